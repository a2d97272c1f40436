"""Do the acceptance suites answer every test, name the key of a failure, and refuse what they do not know?"""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.base.errors import EmuError, UsageError
from emu.cli.main import main
from emu.doors.accept import bmwg, sonic
from emu.doors.accept.answers import Answer, Check, compared, junit, text_of, write
from emu.doors.accept.bench import TOPOLOGIES, Bench, Site, figure
from emu.many_runs import Machines
from tests.tidy.tracked import ROOT

CONFIG = ROOT / "scenarios" / "switch" / "sonic_config_db.json"


def changed(tmp_path: Path, change: Callable[[dict[str, dict[str, dict[str, str]]]], None]) -> Path:
    tables = json.loads(CONFIG.read_text())
    change(tables)
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(tables))
    return path


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    box = sonic.box_of(CONFIG, None)
    return {one.test: one for one in sonic.answer(box, ["TC2.1", "TC5"], Machines(1), lambda *_: None)}


def test_a_sound_box_passes(answers: dict[str, Answer]) -> None:
    assert {test: one.verdict for test, one in answers.items()} == dict.fromkeys(answers, "pass")


def test_lossless_flows_stand_as_on_hardware(answers: dict[str, Answer]) -> None:
    """Of case 2 on an S6100: 0 failed messages and 0 NAKs of lossless flows, NAKs of lossy ones."""
    found = {check.what: check.number for check in answers["TC2.1"].checks}
    assert (found["lossless flows failed"], found["lossless NAKs"]) == (0, 0)
    assert (found["lossy NAKs"] or 0) > 0
    assert any("33 and 23" in note for note in answers["TC2.1"].notes)


def test_pauses_go_back_over_spines(tmp_path: Path) -> None:
    """A receiver under another leaf pauses: its leaf, the spines and the sender's leaf pass it on."""

    def small(tables: dict[str, dict[str, dict[str, str]]]) -> None:
        tables["BUFFER_POOL"]["ingress_lossless_pool"]["size"] = "4194304"

    (one,) = sonic.answer(
        sonic.box_of(changed(tmp_path, small), None), ["TC5"], Machines(1), lambda *_: None, "clos"
    )
    assert one.verdict == "pass", text_of([one])


def _no_headroom(tables: dict[str, dict[str, dict[str, str]]]) -> None:
    pool = tables["BUFFER_POOL"]["ingress_lossless_pool"]
    pool["size"] = "4194304"  # flows are four times as long as the pool
    pool.pop("xoff")
    for name, profile in tables["BUFFER_PROFILE"].items():
        if name.startswith("pg_lossless"):
            profile["xoff"] = "2000"


def test_a_failure_names_the_key_that_explains_it(tmp_path: Path) -> None:
    """The tutorial has one without marking."""
    box = sonic.box_of(changed(tmp_path, _no_headroom), None)
    (one,) = sonic.answer(box, ["TC2.1"], Machines(1), lambda *_: None)
    assert one.verdict == "FAIL"
    assert "lossless NAKs" in [each.what for each in one.checks if each.holds is False]
    assert "BUFFER_PG|Ethernet0|3-4 -> pg_lossless_400000_5m (xoff" in one.reason


def _lossy(tables: dict[str, dict[str, dict[str, str]]]) -> None:
    for port in tables["PORT_QOS_MAP"].values():
        port.pop("pfc_enable")
        port.pop("pfc_to_queue_map")
    for name in ("BUFFER_PG", "BUFFER_QUEUE"):
        tables.pop(name)


def test_a_box_without_a_lossless_queue_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        sonic.box_of(changed(tmp_path, _lossy), None)
    assert "names no lossless queue (PORT_QOS_MAP" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("{}", "names no lossless queue"), ("[]", "no mapping of tables"), ("{", "config_db")],
)
def test_what_is_no_configuration_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config_db.json"
    path.write_text(text)
    with pytest.raises(EmuError) as refused:
        sonic.box_of(path, None)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_not_understood_of_a_box_is_named() -> None:
    assert any("tables not read: VLAN" in note for note in sonic.box_of(CONFIG, None).notes)


SITE = Site("A", "", "small")


@pytest.mark.parametrize(
    "test", [one for one in bmwg.TESTS if one.carry_out is None], ids=lambda one: one.number
)
def test_what_nothing_stands_for_is_not_supported(test: bmwg.Test) -> None:
    one = bmwg.carry_out(SITE, test)
    assert one.verdict == "not supported"
    assert one.reason


@pytest.mark.parametrize(
    ("word", "there"), [("ecmp", True), ("spray", True), ("dcqcn", True), ("multipath", True), ("uet", False)]
)
def test_abilities_are_looked_up_in_the_schema(word: str, there: bool) -> None:
    assert bmwg.able(word) is there


def test_every_mechanism_that_a_test_needs_and_that_exists_has_a_run() -> None:
    lacking = [
        one.number for one in bmwg.TESTS if one.carry_out is None and one.needs and bmwg.able(one.needs)
    ]
    assert lacking == []
    named = {one.number for one in bmwg.TESTS}
    assert {f"i{category}.{test}" for category in (1, 2, 3) for test in (1, 2, 3, 4)} <= named


CHEAP = ("2.3", "3.3", "6.1", "6.3", "7.2", "i1.1", "i2.2", "i3.2")


@pytest.mark.parametrize("number", CHEAP)
def test_a_test_of_the_drafts_ends_with_figures(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are alike, and the suite as a whole is for a build server."""
    monkeypatch.setattr(Site, "flow_bytes", 256 << 10)
    monkeypatch.setattr(Site, "call_bytes", 1 << 20)
    (test,) = bmwg.chosen(number)
    one = bmwg.carry_out(SITE, test)
    assert one.verdict in ("pass", "shown"), text_of([one])
    assert one.excluded == ()
    assert sum(check.number is not None for check in one.checks) >= 2
    assert one.digest


def _drawn(bench: Bench) -> tuple[list[Check], list[str]]:
    if bench.seed == 3:
        raise UsageError("no such thing")
    bench.digests.append(f"digest{bench.seed}")
    return figure("ratio", "a KPI", float(bench.seed)), ["a note"]


def test_trials_are_means_with_their_spread_and_errors_are_excluded() -> None:
    """Of 1 and 2: mean 1.5, standard deviation 0.5, so a coefficient of variation of a third."""
    test = bmwg.Test("9.9", "made", _drawn, drawn=True)
    one = bmwg.carry_out(SITE, test, 3)
    (check,) = one.checks
    assert (check.number, check.found) == (1.5, "1.500 (CV 33.3 %)")
    assert check.cv == pytest.approx(1 / 3, abs=1e-6)
    assert (one.trials, one.digest, one.excluded) == (3, "digest1 digest2", ("seed 3: no such thing",))
    accounting = dict(bmwg.sections(SITE, [one]))["10. Trial accounting"]
    assert accounting[0] == "3 trials attempted, 2 included (2 runs), 1 excluded"


def test_a_test_whose_runs_take_too_long_is_excluded_with_the_time() -> None:
    one = bmwg.carry_out(SITE._replace(longest_s=0.001), bmwg.chosen("5.3")[0])
    assert one.verdict == "not run"
    assert "longer than --longest" in one.excluded[0]


def test_a_fabric_of_a_file_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "flow_bytes", 64 << 10)
    one = bmwg.carry_out(Site("", "quickstart", "small"), bmwg.chosen("4.1")[0])
    assert one.verdict == "pass"
    assert bmwg.comparability(Site("", "quickstart", "small"))["N"] != bmwg.comparability(SITE)["N"]


def test_tests_are_chosen_by_pattern() -> None:
    assert [one.number for one in bmwg.chosen("1.1, 4.*")] == ["1.1", "4.1", "4.2", "4.3", "4.4"]
    with pytest.raises(UsageError, match=r"there is no test '9\.9'"):
        bmwg.chosen("9.9")


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
def test_a_report_has_the_drafts_ten_sections(
    topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Site, "call_bytes", 4 << 20)
    site = SITE._replace(topology=topology)
    one = bmwg.carry_out(site, bmwg.chosen("5.3")[0])
    assert one.verdict == "pass"
    found = {check.what: check.number for check in one.checks}
    assert found["S_fabric, measured"] == pytest.approx(found["S_fabric, derived (S x f x N)"], rel=0.01) or (
        topology == "C"  # what stays in a server crosses no NIC
    )
    sections = bmwg.sections(site, [one])
    assert [name.partition(".")[0] for name, _ in sections] == [str(number) for number in range(1, 11)]
    written = write(tmp_path / "out", "bmwg", "a title", [one], sections)
    assert [path.name for path in written] == ["answers.json", "junit.xml", "report.html"]
    assert "neither a hardware generator" in (tmp_path / "out" / "report.html").read_text()


def _answer(test: str, holds: bool | None, number: float) -> Answer:
    return Answer(test, "a test", (Check("goodput", f"{number}", "", holds, number),))


def test_junit_tells_failures_and_what_is_not_supported() -> None:
    given = [_answer("1", True, 1.0), _answer("2", False, 1.0), Answer("3", "a test", (), "no mechanism")]
    given.append(given[-1]._replace(excluded=("seed 1: too long",)))
    root = ET.fromstring(junit("bmwg", given))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "1", "2")


def test_two_answers_are_compared(tmp_path: Path) -> None:
    for name, number in (("a", 2.0), ("b", 3.0)):
        write(tmp_path / name, "bmwg", name, [_answer("1.1", None, number)], [])
    lines = compared(tmp_path / "a", tmp_path / "b")
    assert lines[0].split()[-3:] == ["second", "/", "first"]
    assert lines[-1].split() == ["goodput", "2.0", "3.0", "1.500"]


def test_what_is_not_equal_in_two_answers_is_named(tmp_path: Path) -> None:
    for name, gpus in (("a", "16 GPUs"), ("b", "32 GPUs")):
        equal = {"N": gpus, "f": "as nccl-tests"}
        write(tmp_path / name, "bmwg", name, [_answer("1.1", None, 1.0)], [], equal)
    assert compared(tmp_path / "a", tmp_path / "b")[-1].strip() == "N: 16 GPUs and 32 GPUs"


def _missing(tmp_path: Path) -> None:
    compared(tmp_path / "a", tmp_path / "b")


def _of_two_suites(tmp_path: Path) -> None:
    for name in ("bmwg", "sonic"):
        write(tmp_path / name, name, name, [], [])
    compared(tmp_path / "bmwg", tmp_path / "sonic")


@pytest.mark.parametrize(("asked", "said"), [(_missing, "No such file"), (_of_two_suites, "of the suite")])
def test_what_cannot_be_compared_is_refused(asked: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    with pytest.raises(EmuError, match=said):
        asked(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--link", "0G"], "--link 0G: no frame would leave; accepted: a rate above 0, like 400G"),
        (["--out", "FILE"], "Directory 'FILE' is a file"),
    ],
)
def test_what_cannot_work_is_refused_before_a_test_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    file = tmp_path / "report.html"
    file.touch()
    given = [word.replace("FILE", str(file)) for word in words]
    assert main(["accept", "sonic", "--config-db", str(CONFIG), *given]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert said.replace("FILE", str(file)) in line
    assert out == ""
