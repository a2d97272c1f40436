"""Do the defaults, derived values and kinds of the schema say what they promise?"""

from fractions import Fraction

import pytest

from emu.base.docstrings import field_docstrings
from emu.scenario.reference import parts
from emu.scenario.section import Section, yaml_name
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.sections.nic import NicSection, TransportSection
from emu.scenario.sections.routing import POLICIES
from emu.scenario.sections.switch import BufferSection, PfcSection
from emu.scenario.yaml.problems import fields
from tests.scenario.scenarios import SMALL, scenario


def test_defaults_are_those_of_the_sources() -> None:
    ncclx, transport, buffer = NcclxSection(), TransportSection(), BufferSection()
    assert (ncclx.buffsize_bytes, ncclx.steps, ncclx.chunk_steps, ncclx.slice_steps) == (4 * 2**20, 8, 4, 2)
    assert (ncclx.qps_per_connection, ncclx.qp_policy) == (1, "round_robin")
    assert (ncclx.channels, ncclx.protocol, ncclx.tuner.model) == (None, "auto", "nccl")
    assert (ncclx.p2p_chunk_bytes, ncclx.slices) == (128 * 2**10, "even")
    assert (transport.mtu_bytes, transport.timeout, transport.retry_count) == (4096, 20, 7)
    assert (buffer.pool_bytes, buffer.alpha, buffer.reserve_bytes) == (None, Fraction(1, 8), 4096)
    assert (PfcSection().quanta, PfcSection().priorities) == (65_535, (3, 6))
    assert scenario().routing == POLICIES.section("e_ecmp")


def test_a_section_of_which_nothing_is_written_passes_its_checks_and_is_written_as_it_is_read() -> None:
    every = (field.default for part in parts() for field in part.model.model_fields.values())
    models = {type(default) for default in every if isinstance(default, Section)}
    assert len(models) > 30
    for model in models:
        checked = model()
        assert model.defaults() == checked, model
        assert model.defaults().model_dump(by_alias=True) == checked.model_dump(by_alias=True), model


@pytest.mark.parametrize(
    ("timeout", "time_ps"), [(0, 0), (1, 8_192_000), (8, 1_048_576_000), (14, 67_108_864_000)]
)
def test_timeout_is_4096_ns_times_a_power_of_two(timeout: int, time_ps: int) -> None:
    assert TransportSection(timeout=timeout).timeout_ps == time_ps


@pytest.mark.parametrize(
    ("rate_bps", "response_ps"),
    [(400 * 10**9, 1_158_400), (100 * 10**9, 2_017_280), (50 * 10**9, 4_034_560)],
)
def test_automatic_pause_response_is_905_quanta_or_394_up_to_100g(rate_bps: int, response_ps: int) -> None:
    assert PfcSection().response_at(rate_bps) == response_ps
    assert NicSection().response_at(rate_bps) == response_ps
    assert scenario(SMALL, "nic.pfc_response=0", "switch.pfc.response=1us").nic.response_at(rate_bps) == 0


@pytest.mark.parametrize(
    ("assignments", "time_ps"),
    [
        (["transport.timeout=8", "transport.retry_count=7"], 9 * 1_048_576_000),
        (["transport.timeout=14"], 9 * 67_108_864_000),
        (["transport.timeout=1"], 10_000_000_000),
        (["transport.timeout=0"], 100_000_000_000_000),
        (["transport.timeout=31"], 100_000_000_000_000),
        (["run.stall_after=3ms"], 3_000_000_000),
    ],
)
def test_a_stall_is_called_once_every_retry_had_its_time(assignments: list[str], time_ps: int) -> None:
    expected = max(time_ps, 10_000_000_000) if "run.stall_after=3ms" not in assignments else time_ps
    assert scenario(SMALL, *assignments).stall_after_ps == expected


def test_yaml_keys_are_attributes_without_their_unit() -> None:
    names = ("at_ps", "pool_bytes", "link_bps", "seed", "link_rate_bps")
    assert [yaml_name(name) for name in names] == ["at", "pool", "link", "seed", "link_rate"]


def test_no_two_attributes_of_a_section_share_a_key() -> None:
    for part in parts():
        assert len(fields(part.model)) == len(part.model.model_fields), part.model


def test_every_attribute_says_what_it_is() -> None:
    silent = [
        f"{part.model.__name__}.{name}"
        for part in parts()
        for name in part.model.model_fields
        if not field_docstrings(part.model).get(name)
    ]
    assert silent == []


def test_every_section_is_reached_and_documented() -> None:
    def subclasses(model: type[Section]) -> list[type[Section]]:
        return [model, *(deeper for child in model.__subclasses__() for deeper in subclasses(child))]

    bases = {
        "Section",
        "TopologySection",
        "PolicySection",
        "RoutingSection",
        "FiveTupleSection",
        "HashedSection",
        "FlowsWorkload",
        "Maintenance",
        "StorageWorkload",
        "FaultSection",
        "_OfSummary",
        "RecurringFault",
        "Environment",
        "OneWayFault",
        "PortFault",
        "PfcFault",
        "SwitchDrift",
        "HashDrift",
        "OwnTransportSection",
        "RecoverySection",
        "ArbiterSection",
        "SchedulingSection",
        "CongestionSection",
        "QosMaps",
        "BufferProfile",
        "MarkingProfile",
        "AqmSection",
        "AdmissionSection",
        "TraceWorkload",
        "Workload",
    }
    declared = {
        model.__name__ for model in subclasses(Section) if model.__module__.startswith("emu.scenario.")
    }
    assert declared - bases == {part.model.__name__ for part in parts()}
    assert all(part.model.__doc__ for part in parts())


def test_kinds_are_looked_up_in_tables() -> None:
    assert POLICIES.chosen({}) == "e_ecmp"
    assert POLICIES.model("e_ecmp") is POLICIES.table["e_ecmp"]
    assert POLICIES.model("sprayed") is None
