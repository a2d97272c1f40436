"""Does the effective scenario spell out every default, and load back as an equal scenario?"""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from emu.scenario import dump
from emu.scenario.dump import canonical_bytes, to_mapping, to_yaml
from emu.scenario.load import load_mapping, load_text
from emu.scenario.yaml.document import read_document, resolved
from emu.scenario.yaml.problems import fields
from tests.scenario.scenarios import FILES, GOLDEN, SMALL, from_file, scenario, with_sections

QUOTED_AND_LONG = {"trace"}
"""Files with a text of several lines, which is quoted: the emitters break it into lines elsewhere."""


def test_effective_scenario_of_a_small_one() -> None:
    assert to_yaml(scenario()) == (GOLDEN / "small_effective.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_effective_scenario_loads_back_as_an_equal_one(path: Path, tmp_path: Path) -> None:
    original = from_file(path)
    text = to_yaml(original)
    again = load_text(text, "effective", tmp_path).scenario
    assert again == original
    assert to_yaml(again) == text
    assert canonical_bytes(again) == canonical_bytes(original)
    assert load_mapping(to_mapping(original), tmp_path).scenario == original


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_of_every_section_is_spelled_out(path: Path) -> None:
    written = to_mapping(from_file(path))
    for name in ("switch", "link", "nic", "transport", "host", "gpu", "ncclx", "control", "run", "routing"):
        section = getattr(from_file(path), name)
        assert list(written[name]) == list(fields(type(section)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_emitters_in_c_and_in_python_write_the_same_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dump._DUMPER is yaml.CSafeDumper, "PyYAML came without libyaml"
    text = to_yaml(from_file(path))
    monkeypatch.setattr(dump, "_DUMPER", yaml.SafeDumper)
    slowly = to_yaml(from_file(path))
    broken = "\\\n" in slowly
    assert broken == (path.stem in QUOTED_AND_LONG)
    if broken:
        slowly, text = (one.replace("\\\n", " ") for one in (slowly, text))
        assert "".join(slowly.replace("\\ ", " ").split()) == "".join(text.split())
    else:
        assert slowly == text


@given(st.text(max_size=60))
def test_any_description_comes_back_as_it_was(text: str) -> None:
    original = with_sections(description=text)
    assert load_text(to_yaml(original)).scenario == original


@given(
    st.sampled_from(
        ["1e3", "10:30", "on", "0o17", "~", "", "true", "1.", "- x", "a: b", "#x", "<<", "=", "1_0"]
    )
)
def test_texts_that_look_like_something_else_are_quoted(text: str) -> None:
    written = to_yaml(with_sections(description=text))
    (line,) = [line for line in written.splitlines() if line.startswith("description:")]
    assert read_document(line, "line")[0].plain() == {"description": text}
    plain = line.removeprefix("description: ")
    assert plain[:1] in ("'", '"') or isinstance(resolved(plain), str)


def test_equal_scenarios_have_the_same_bytes_however_they_were_written() -> None:
    one = scenario(SMALL, "topology.link=400G", "switch.buffer.alpha=0.125", "transport.mtu=4KiB")
    other = scenario(SMALL, "topology.link=0.4Tbps", "switch.buffer.alpha=2/16")
    assert one == other
    assert canonical_bytes(one) == canonical_bytes(other)
    assert canonical_bytes(one) != canonical_bytes(scenario(SMALL, "topology.link=400001Mbps"))


def test_defaults_that_follow_another_value_are_written_as_that_value() -> None:
    written = to_mapping(scenario(SMALL, "topology.link=200G"))
    assert written["topology"]["uplink"] == "200Gbps"


def test_scenarios_cannot_be_changed() -> None:
    frozen = scenario()
    with pytest.raises(AttributeError, match="frozen"):
        frozen.seed = 3  # type: ignore[misc]  # what the rule is about
