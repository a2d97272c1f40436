"""Is an override that cannot be meant refused by file, line, key and reason, and shown where it counts?"""

from __future__ import annotations

import pytest

from emu.cli.commands.validate import described
from emu.cli.topo_views import overrides
from emu.scenario.dump import canonical_bytes, to_yaml
from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology
from tests.scenario.scenarios import SMALL, loaded, refusals, scenario, unresolvable

MTUS = "256, 512, 1024, 2048 or 4096"


def with_override(override: str) -> str:
    """The small scenario, with one override on its last line."""
    return f"{SMALL}overrides:\n  - {{{override}}}\n"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("devices: nic-0-0, transport: {mtux: 1}", ".transport.mtux: unknown key; did you mean 'mtu'?"),
        (
            "devices: nic-0-0, transport: {mtu: 1000}",
            f".transport.mtu: 1000 is not an MTU of InfiniBand transport; accepted: {MTUS} (bytes)",
        ),
        ("devices: nic-0-0, nic: {ttl: 300}", ".nic.ttl: 300 is out of range; accepted: at most 255"),
        (
            "devices: nic-0-0, nic: 3",
            ".nic: 3 is not a mapping; accepted: a mapping with latency, pfc_response",
        ),
        (
            "devices: nic-0-0, nic: {}",
            ".nic: changes nothing; accepted: a mapping with latency, pfc_response",
        ),
        (
            "devices: nic-0-0",
            ": changes nothing; accepted: a key of switch, link, nic, transport, host or gpu",
        ),
        ("nic: {ttl: 3}", ".devices: is required"),
        ("devices: [], nic: {ttl: 3}", ".devices: names no device"),
        (
            "devices: rtsw-0, switch: {scheduling: {kind: weigted}}",
            ".switch.scheduling.kind: there is no kind 'weigted'; did you mean 'weighted'?",
        ),
        (
            "devices: rtsw-0, switch: {buffer: {pool: 1MB, reserve: 2MB}}",
            ".switch.buffer.reserve: is larger than the pool; accepted: less than `pool`",
        ),
        (
            "devices: rtsw-0, switch: {static_routes: []}",
            ".switch.static_routes: switch.static_routes is one for the whole fabric",
        ),
        (
            "devices: nic-0-0, transport: {data_priority: 4}",
            ".transport.data_priority: transport.data_priority is one for the whole fabric",
        ),
        (
            "devices: nic-0-0, transport: {congestion_control: {kind: hpcc}}",
            ".transport.congestion_control.kind: telemetry is collected on the whole",
        ),
        (
            "devices: 'rtsw-0:ctsw-0', nic: {ttl: 3}",
            ".nic: 'rtsw-0:ctsw-0' is a link, and has no such section",
        ),
        ("devices: rtsw-0, link: {rate: 1G}", ".link: 'rtsw-0' is no link"),
    ],
)
def test_an_override_is_refused_by_its_line_as_the_section_itself_is(override: str, said: str) -> None:
    (reported,) = refusals(with_override(override))
    assert reported.startswith(f"file:7: overrides[0]{said}")


def test_a_gpu_without_an_sm_beside_its_channels_is_refused() -> None:
    text = with_override("devices: gpu-0-0, gpu: {sms: 2}")
    (reported,) = refusals(text, "ncclx.sms_per_channel=1", "ncclx.channels=2")
    assert reported.startswith("file:7: overrides[0].gpu.sms: 2 channels take all 2 SMs of a GPU")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("devices: nic-9-*, nic: {ttl: 3}", ".devices: no device is like 'nic-9-*'"),
        ("devices: nic-0-9, nic: {ttl: 3}", ".devices: no device is named 'nic-0-9'; did you mean"),
        ("devices: [nic-0-0, tor], nic: {ttl: 3}", ".devices[1]: no device is named 'tor'"),
        ("devices: 'rtsw-0:ctsw-7', link: {rate: 1G}", ".devices: no link is named 'rtsw-0:ctsw-7'"),
        ("devices: 'rtsw-*:ctsw-7', link: {rate: 1G}", ".devices: no link is like 'rtsw-*:ctsw-7'"),
        ("devices: 'rtsw-*', nic: {ttl: 3}", ".nic: 'rtsw-*' names no nic: rtsw-0 is a switch"),
        ("devices: nic-0-0, switch: {latency: 0}", ".switch: 'nic-0-0' names no switch: nic-0-0 is a nic"),
    ],
)
def test_an_override_for_what_the_fabric_has_not_is_refused_by_its_line(override: str, said: str) -> None:
    (reported,) = unresolvable(with_override(override))
    assert reported.startswith(f"file:7: overrides[0]{said}")


def test_overrides_that_are_each_right_and_not_together_are_refused() -> None:
    both = SMALL + (
        "overrides:\n"
        "  - {devices: rtsw-0, switch: {ecn: {kmin: 3MB}}}\n"
        "  - {devices: 'rtsw-*', switch: {ecn: {kmax: 1MB}}}\n"
    )
    (reported,) = unresolvable(both)
    assert reported.startswith(
        "file:8: overrides[1]: the overrides of rtsw-0 do not go together: kmin lies above"
    )


def test_a_scenario_without_overrides_has_none_and_one_with_them_is_written_and_read_back() -> None:
    assert b'"overrides":[]' in canonical_bytes(scenario())
    made = scenario(with_override("devices: nic-0-*, transport: {mtu: 1024, recovery: {reorder: 9}}"))
    text = to_yaml(made)
    assert "devices: nic-0-*" in text
    assert load_text(text).scenario == made


def test_a_view_is_made_once_and_a_changed_copy_has_its_own() -> None:
    made = scenario(with_override("devices: nic-0-0, nic: {ttl: 3}"))
    view = made.overridden((0,))
    assert view.nic.ttl == 3
    assert made.overridden((0,)) is view
    other = made.model_copy(update={"nic": made.nic.model_copy(update={"corrupt_every": 7})})
    assert other.overridden((0,)).nic.corrupt_every == 7


def test_topo_and_validate_show_overrides() -> None:
    made = loaded(with_override("devices: nic-0-*, transport: {mtu: 1024}"))
    topology = build_topology(made.scenario)
    assert overrides(made.scenario, topology) == ["overrides[0]: transport.mtu 1024, of nic-0-0, nic-0-1"]
    assert described(made, topology).endswith(", 1 override")
