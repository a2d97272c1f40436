"""Is a variant the run that its file says, under its name, and is a wrong one refused where it stands?"""

from pathlib import Path

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.base.shipped import scenario_names, scenarios_in
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_text
from tests.cli.telling import Captured, reported
from tests.scenario.scenarios import ROOT, SMALL

TEXT = (
    SMALL
    + """\
seed: 5
variants:
  more: {ncclx.channels: 2, "jobs[0].workload.sizes": [2MiB], seed: null}
  named: {name: other, topology: {kind: star, hosts: 4}}
"""
)


def refused(text: str, variant: str = "") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_text(text, "file", variant=variant)
    return str(caught.value).splitlines()


def test_a_file_with_variants_run_as_it_stands_is_the_file_without_them() -> None:
    plain = load_text(TEXT)
    assert plain.scenario == load_text(TEXT.partition("variants:")[0]).scenario
    assert plain.variants == ("more", "named")


def test_a_variant_changes_what_it_sets_and_is_named_after_itself_unless_it_has_a_name() -> None:
    more = load_text(TEXT, variant="more").scenario
    assert (more.name, more.ncclx.channels, more.seed) == ("small_more", 2, 1)
    assert more.jobs[0].workload.model_dump()["sizes_bytes"] == ("2MiB",)
    named = load_text(TEXT, variant="named").scenario
    assert (named.name, named.topology.kind, named.seed) == ("other", "star", 5)


def test_an_override_comes_after_the_variant() -> None:
    assert api.load("polarisation_cured", {"routing.bit_offset": [1]}).scenario.routing.bit_offset == (1,)


def test_the_effective_scenario_of_a_variant_has_no_variants_and_loads_as_an_equal_one() -> None:
    scenario = load_text(TEXT, variant="more").scenario
    text = to_yaml(scenario)
    assert "variants" not in text
    assert load_text(text).scenario == scenario


@pytest.mark.parametrize(
    ("variants", "variant", "said"),
    [
        (
            "{more: {seed: 2}}",
            "mor",
            "file:6: variants: there is no variant 'mor'; did you mean 'more'?; accepted: more",
        ),
        (
            "",
            "more",
            "file:6: variants: there is no variant 'more'; accepted: no --variant: the scenario has none",
        ),
        ("[a]", "", "file:6: variants: is not a mapping; accepted: names, each with what it changes"),
        (
            "{'a b': {seed: 2}}",
            "",
            "file:6: variants: 'a b' is not a name; accepted: letters, digits, - and _",
        ),
        (
            "{a: {}}",
            "",
            'file:6: variants.a: changes nothing; accepted: paths with their values, like {"ncclx.cha',
        ),
        (
            "{a: {seed..b: 2}}",
            "",
            "file:6: variants.a: 'seed..b' is not a path; accepted: paths with their values",
        ),
        ("{a: {sed: 2}}", "a", "file:6: sed: unknown key; did you mean 'seed'?"),
        (
            "{a: {'jobs[3].ranks': 2}}",
            "a",
            "file:6: jobs[3].ranks: jobs has 1 item; accepted: an index from 0 to 0",
        ),
    ],
)
def test_a_wrong_variant_is_refused_with_its_line(variants: str, variant: str, said: str) -> None:
    (line,) = refused(SMALL + f"variants: {variants}\n", variant)
    assert line.startswith(said)


def test_a_variant_is_run_by_its_name_and_by_its_file_and_a_mistyped_one_is_reported_the_nearest(
    capsys: Captured, tmp_path: Path
) -> None:
    file = ROOT / "scenarios/routing/spray.yaml"
    by_name = reported(capsys, "validate", "--effective", "spray_collapse")
    assert by_name == reported(capsys, "validate", "--effective", str(file), "--variant", "collapse")
    assert (by_name[0], by_name[1][0]) == (0, "name: spray_collapse")
    status, _, err = reported(capsys, "validate", "spray_colapse")
    assert (status, err[0].endswith("did you mean 'spray_collapse'?")) == (2, True)
    status, _, err = reported(capsys, "run", "spray", "--variant", "colapse", "--local")
    assert (status, err[0].partition("variants: ")[2]) == (
        2,
        "there is no variant 'colapse'; did you mean 'collapse'?; accepted: collapse",
    )
    small = tmp_path / "small.yaml"
    small.write_text(TEXT + "  wrong: {ncclx.chanels: 2}\n", encoding="utf-8")
    status, out, err = reported(capsys, "validate", str(small))
    assert [line.split(": valid: ")[1].split(",")[0] for line in out] == ["small", "small_more", "other"]
    assert err == [f"emu: {small}:10: ncclx.chanels: unknown key; did you mean 'channels'?"]


def test_every_name_belongs_to_one_scenario_that_has_it_as_its_own() -> None:
    files = scenarios_in(ROOT / "scenarios")
    assert len({path.stem for path in files}) == len(files)
    for name, (path, variant) in scenario_names().items():
        assert api.load(path, variant=variant).scenario.name == name
