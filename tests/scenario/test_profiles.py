"""Do words for many constants set all of them, and nothing that the scenario writes?"""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from emu.base.units import parse_rate, parse_time
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_mapping, load_text
from emu.scenario.profiles import COSTS, GPUS, costs_table, generation_warnings, gpus_table
from emu.scenario.schema import Scenario
from emu.scenario.section import yaml_name
from emu.scenario.sections.host import GpuSection
from emu.scenario.sections.switch import BufferSection

JOB = {"name": "bench", "workload": {"kind": "collective", "op": "barrier", "sizes": ["4B"]}}


def loaded(**keys: object) -> Scenario:
    """A scenario of two hosts with some keys."""
    plain = {"name": "profiles", "topology": {"kind": "star", "hosts": 2}, "jobs": [JOB], **keys}
    return load_mapping(plain).scenario


def value(scenario: Scenario, key: str) -> object:
    """What a scenario has at a key of a section."""
    section, name = key.split(".")
    part = getattr(scenario, section)
    return next(getattr(part, one) for one in type(part).model_fields if yaml_name(one) == name)


def test_costs_none_makes_every_cost_zero_or_unlimited() -> None:
    scenario = loaded(costs="none")
    values = {one.key: value(scenario, one.key) for one in COSTS}
    assert values.pop("gpu.nic_copy_rate") is None
    assert set(values.values()) == {0}


def test_costs_default_are_those_of_the_table_and_without_the_word_each_key_has_its_own_default() -> None:
    scenario, plain = loaded(costs="default"), loaded()
    for one in COSTS:
        if one.usual:
            assert value(scenario, one.key) == parse_time(one.usual), one.key
    assert scenario.gpu.nic_copy_rate_bps == parse_rate("32GB/s")
    assert scenario.ncclx.version == "2.30.7"
    changed = {one.key for one in COSTS if value(plain, one.key) not in (0, None)}
    assert changed == {"host.proxy_cost"}


@pytest.mark.parametrize("model", GPUS)
def test_a_gpu_sets_all_its_constants_at_once(model: str) -> None:
    profile = GPUS[model]
    scenario = loaded(gpu={"model": model}, costs="default")
    assert scenario.ncclx.tuner.gpu == profile.tuner
    assert scenario.host.nvlink.rate_bps == parse_rate(profile.nvlink)
    assert scenario.gpu.channel_rate_bps == parse_rate(profile.channel_rate)
    assert scenario.gpu.nic_copy_rate_bps == parse_rate(profile.nic_copy_rate)
    assert scenario.gpu.flush_ps == parse_time(profile.flush)
    assert scenario.gpu.sms == profile.sms


def test_what_is_written_stays_beside_a_profile() -> None:
    scenario = loaded(
        costs="default",
        gpu={"model": "b200", "channel_rate": "30GB/s", "fence": "3us"},
        host={"nvlink": {"rate": "4000G"}},
        ncclx={"launch": "9us", "tuner": {"gpu": "hopper"}},
    )
    assert scenario.gpu.channel_rate_bps == parse_rate("30GB/s")
    assert scenario.gpu.fence_ps == parse_time("3us")
    assert scenario.host.nvlink.rate_bps == parse_rate("4000G")
    assert (scenario.ncclx.launch_ps, scenario.ncclx.tuner.gpu) == (parse_time("9us"), "hopper")
    assert scenario.gpu.sms == 148


def test_the_effective_scenario_of_profiles_loads_back_equal() -> None:
    scenario = loaded(costs="default", gpu={"model": "h20"})
    assert load_text(to_yaml(scenario)).scenario == scenario


def test_every_row_of_the_table_is_a_model_that_a_scenario_may_name() -> None:
    named = get_args(get_type_hints(GpuSection)["model"])
    assert named == ("auto", *GPUS)


def test_a_device_cannot_have_another_model_alone() -> None:
    with pytest.raises(Exception, match=r"gpu\.model is one for the whole fabric"):
        loaded(overrides=[{"devices": ["gpu-0-*"], "gpu": {"model": "a100"}}])


def test_a_generation_that_is_set_for_the_tuner_alone_is_warned_of() -> None:
    hopper = parse_rate("2966.4G"), parse_rate("24GB/s")
    assert not list(generation_warnings("auto", "auto", *hopper))
    (line,) = generation_warnings("auto", "blackwell", *hopper)
    assert "gpu.channel_rate is h100's" in line
    assert "gpu.model: b200" in line
    (line,) = generation_warnings("auto", "auto", parse_rate("6600G"), hopper[1])
    assert "blackwell" in line
    (line,) = generation_warnings("b200", "hopper", parse_rate("5774.4G"), parse_rate("70GB/s"))
    assert line == "ncclx.tuner.gpu is hopper, and gpu.model: b200 has blackwell"


def test_an_unknown_model_and_a_word_for_no_costs_are_refused_by_name() -> None:
    for keys in ({"gpu": {"model": "h1000"}}, {"costs": "free"}):
        with pytest.raises(Exception, match=r"h100|none"):
            loaded(**keys)


def test_the_page_of_costs_has_the_tables_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/costs.md").read_text(encoding="utf-8")
    assert costs_table() in page
    assert gpus_table() in page


def test_chips_that_a_switch_may_name_are_broadcom_s() -> None:
    named = get_args(get_type_hints(BufferSection)["asic"])
    assert {one for one in named if one not in ("auto", "none")} == {f"tomahawk{one}" for one in (3, 4, 5)}
