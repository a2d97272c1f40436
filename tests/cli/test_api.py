"""Does Python do the same as the command, under `import emu`?"""

import ast
import inspect
import json
import os
import re
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import emu
from actors.fabric.model import Topology
from emu import api
from emu.base.errors import ScenarioError, UsageError
from emu.cli.main import main
from emu.counts.collected import Changed
from emu.devices.plan import Plan, make_plan
from emu.scenario.resolve import Resolved
from emu.scenario.schema import Scenario
from emu.scenario.set_options import override_with, parse_override
from emu.scenario.yaml.document import read_document
from emu.views.reports.summary_html import summary_html
from tests.cli import python_reference
from tests.scenario.scenarios import ROOT, SMALL

TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"


def test_every_public_name_is_reached_from_emu() -> None:
    assert [name for name in api.__all__ if getattr(emu, name) is not getattr(api, name)] == []
    assert sorted(api.__all__) == api.__all__
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        emu.rnu  # noqa: B018 - the look-up is the test


def test_dir_shows_the_public_names_and_nothing_that_imports_need() -> None:
    shown = dir(emu)
    assert {"run", "load", "session", "Program", "is_compiled"} <= set(shown)
    assert not {"import_module", "find_spec", "actors"} & set(shown)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("[4KiB, 8KiB]", ["4KiB", "8KiB"]), ("{kind: none}", {"kind": "none"}), ("true", True)],
)
def test_a_text_as_an_override_is_read_as_set_reads_it(text: str, value: object) -> None:
    assert override_with("a.b", text).value.plain() == parse_override(f"a.b={text}").value.plain()
    assert override_with("a.b", text).value.plain() == override_with("a.b", value).value.plain()


def test_a_result_shows_itself_in_a_notebook_with_texts_escaped() -> None:
    expect = [{"value": "drops.total", "at_least": 1}]
    result = api.run(TINY, overrides={"expect": expect, "jobs[0].workload.iterations": "1"}, local=True)
    assert repr(result) == (
        f"<Result of tiny_all_reduce: 1 expectation failed, digest {result.summary.digest[:12]}>"
    )
    shown = result._repr_html_()
    page = ET.fromstring(shown)
    cells = [[cell.text for cell in row] for row in page.iter("tr")]
    assert cells[0] == ["job", "operation", "size", "iteration", "time", "algbw", "busbw", "status"]
    assert cells[1][:4] == ["ring", "all_reduce (ring)", "256KiB", "0"]
    assert "FAIL drops.total at_least 1: 0 is less than 1" in "".join(page.itertext())
    assert result.summary.digest in shown
    renamed = result.summary.scenario.model_copy(update={"name": "<b>&"})
    page = ET.fromstring(summary_html(result.summary.model_copy(update={"scenario": renamed}), "<i>"))
    assert page[0].text == "<b>&"
    assert str(page[0].tail).startswith(": <i>, ")


def test_a_notebook_shows_the_step_of_a_training_job_and_the_fabric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = api.run("training_step", {"jobs[0].workload.steps": 1}, local=True, diagnose=False)
    page = "".join(ET.fromstring(result._repr_html_()).itertext())
    result.show()
    for text in (page, capsys.readouterr().out):
        assert "step " in text
        assert "computing " in text
        assert "exposed: " in text
    prepared = api.prepare(TINY)
    for shown in (prepared._repr_html_(), prepared.topology._repr_html_()):  # type: ignore[attr-defined]
        assert ET.fromstring(shown).tag.endswith("svg")
        assert "NVLink 4 x " in shown


def test_report_and_diagnose_take_a_result_or_a_directory(tmp_path: Path) -> None:
    flap = {"faults": [{"kind": "link_down", "at": "10us", "for": "100us", "target": "rtsw-0:ctsw-0"}]}
    whole = api.run("tiny_flap", {"faults": [], "expect": []}, local=True, out=tmp_path / "whole")
    cut = api.run("tiny_flap", {**flap, "expect": []}, local=True, out=tmp_path / "cut")
    assert api.report(cut) == tmp_path / "cut" / "report.html"
    first = (tmp_path / "cut" / "report.html").read_bytes()
    assert main(["report", str(tmp_path / "cut")]) == 0
    assert (tmp_path / "cut" / "report.html").read_bytes() == first
    assert api.report(whole, str(tmp_path / "cut"), out=tmp_path / "two.html").is_file()
    assert api.diagnose(whole) == []
    (found,) = api.diagnose(cut)
    assert (found.cause, found.place) == ("link_down", "rtsw-0:ctsw-0")
    assert api.diagnose(tmp_path / "cut", whole)[0].place == found.place
    kept = api.run("tiny_flap", {**flap, "expect": []}, local=True)
    assert api.diagnose(kept) == [found]
    with pytest.raises(UsageError, match="accepted: a run with out=DIR"):
        api.report(kept)
    with pytest.raises(UsageError, match="accepted: a run with out=DIR"):
        api.diagnose(kept, whole)


def test_the_page_lists_the_columns_and_fields_that_there_are() -> None:
    text = python_reference.PAGE.read_text("utf-8")
    assert text == python_reference.page(), "python -m tests.regenerate --no-tutorials"
    columns = dict(re.findall(r"^\| `(\w+)` \| (`job`.*?) \|$", text, re.MULTILINE))
    frame = api.run(TINY, local=True, diagnose=False).frame("collectives")
    assert columns["collectives"].replace("`", "").split(", ") == list(frame.columns)


@pytest.mark.parametrize("name", ["load", "prepare", "run", "stepped", "open"])
def test_overrides_come_second_in_every_call(name: str) -> None:
    _, overrides, *_ = inspect.signature(getattr(api, name)).parameters.values()
    assert (overrides.name, overrides.kind) == ("overrides", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def test_a_run_gives_its_summary_and_its_verdict() -> None:
    result = api.run(TINY, local=True)
    assert result.passed
    assert result.directory is None
    assert [row.ranks for row in result.summary.jobs["ring"].collectives] == [4, 4]
    assert result.summary.digest == result.outcome.digest
    assert result.summary.digest == api.run(TINY, local=True, parts=2).summary.digest


def test_a_run_that_is_not_diagnosed_has_the_same_answer_and_emulates_nothing_beside_it() -> None:
    fault = {"kind": "degrade", "target": "nic-0-0:rtsw-0", "loss": "1/20"}
    overrides = {"faults": [fault], "expect": []}
    whole = api.run(TINY, overrides=overrides, local=True).summary
    brief = api.run(TINY, overrides=overrides, local=True, diagnose=False).summary
    assert [one.cause for one in whole.diagnosis] == ["degraded_link"]
    assert whole.counterfactuals
    assert (list(brief.diagnosis), list(brief.counterfactuals), brief.reference) == ([], [], None)
    assert (brief.digest, brief.jobs, brief.faults) == (whole.digest, whole.jobs, whole.faults)


@pytest.mark.parametrize("fidelity", ["packet", "flow"])
def test_a_run_plans_its_jobs_once(fidelity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def counted(scenario: Scenario, topology: Topology, resolved: Resolved) -> Plan:
        planned.append(scenario.name)
        return make_plan(scenario, topology, resolved)

    monkeypatch.setattr("emu.devices.drawing.make_plan", counted)
    api.run(TINY, overrides={"fidelity": fidelity, "expect": []}, local=True, diagnose=False)
    assert planned == ["tiny_all_reduce"]


def test_overrides_take_python_values_and_change_the_answer() -> None:
    overrides = {"jobs[0].workload.sizes": ["4KiB"], "jobs[0].workload.iterations": 1, "seed": 5}
    result = api.run(TINY, overrides=overrides, local=True)
    (row,) = result.summary.jobs["ring"].collectives
    assert (row.bytes, result.summary.scenario.seed) == (4096, 5)


def test_a_mapping_is_a_scenario() -> None:
    mapping = read_document(SMALL, "small")[0].plain()
    assert isinstance(mapping, dict)
    prepared = api.prepare(mapping, {"jobs[0].ranks": 4})
    assert len(prepared.resolved.jobs[0].gpus) == 4
    assert len(prepared.topology.gpus) == 8
    assert api.load(api_text(prepared)).scenario == prepared.scenario


def api_text(prepared: api.Prepared) -> dict[str, object]:
    """The effective scenario as a mapping again."""
    plain = read_document(api.effective(prepared.scenario), "effective")[0].plain()
    assert isinstance(plain, dict)
    return plain


def test_results_go_where_they_are_asked_to_go(tmp_path: Path) -> None:
    result = api.run(TINY, local=True, out=tmp_path / "run")
    assert result.directory == tmp_path / "run"
    summary = (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")
    assert summary == result.summary.json_text()


def test_what_is_wrong_is_raised_by_key() -> None:
    with pytest.raises(
        ScenarioError, match=r"override jobs\[0\]\.ranks: jobs\[0\]\.ranks: 5 ranks on a fabric of 4"
    ):
        api.prepare(TINY, {"jobs[0].ranks": 5})
    with pytest.raises(ScenarioError, match="override a b: 'a b' is not a path"):
        api.load(TINY, {"a b": 5})
    with pytest.raises(ScenarioError, match=r"override seed: a scenario holds .*, not object"):
        api.load(TINY, {"seed": object()})
    with pytest.raises(UsageError, match="--parts"):
        api.run(TINY, workers=2, parts=2)


def test_a_failed_expectation_is_data() -> None:
    result = api.run(TINY, overrides={"expect[0].equals": 3}, local=True)
    assert (result.passed, result.exit_status) == (False, 1)
    assert [verdict.passed for verdict in result.summary.expectations] == [False, True]


def test_the_example_on_top_of_the_module_is_python() -> None:
    doc = ast.get_docstring(ast.parse((ROOT / "emu" / "api.py").read_text(encoding="utf-8")))
    assert doc is not None
    example = [line.strip() for line in doc.splitlines() if line.startswith("    ")]
    assert example[0] == "import emu"
    ast.parse("\n".join(example))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_a_signal_ends_raises_and_leaves_what_there_is(
    number: signal.Signals, tmp_path: Path
) -> None:
    class Ends(api.Observer):
        asked = False

        def sampled(self, sample: Changed, digests: object) -> None:
            if not self.asked:
                self.asked = True
                os.kill(os.getpid(), number)

    overrides = {"run.repeat": True, "run.max_time": "10s", "run.sample_every": "10us"}
    with pytest.raises(KeyboardInterrupt):
        api.run(TINY, overrides=overrides, local=True, out=tmp_path / "run", observer=Ends())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert (summary["ending"], summary["digest"]) == ("interrupted", "")
