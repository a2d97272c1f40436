"""Does a comparison name the first device, port and sync point where two runs part?"""

import json
import re
from pathlib import Path

import pytest

from emu import api
from emu.base.errors import UsageError
from emu.cli.main import main
from emu.run_directory.comparison import (
    Run,
    headline,
    load_run,
    main_numbers,
    parting,
    parting_lines,
)
from emu.run_directory.run_directory import RunDirectory
from emu.run_directory.samples import Mixes
from tests.summary.handmade import summary
from tests.summary.test_run_directory import write_run

DEVICES = ((4, "rtsw-0"), (9, "nic-0-0"), (12, "nic-1-0"))


def run(digest: str, *points: tuple[int, list[int]]) -> Run:
    """A run of three devices; what each did at its port 2 was mixed to these numbers at sync points."""
    mixed = [
        Mixes(at_ps, {(number, 3): mix for (number, _), mix in zip(DEVICES, mixes, strict=True)})
        for at_ps, mixes in points
    ]
    return Run(Path("run"), summary([], digest=digest), DEVICES, tuple(mixed))


def test_equal_digests_do_not_part() -> None:
    assert parting(run("a", (100, [1, 2, 3])), run("a", (100, [1, 2, 3]))) is None


def test_runs_without_a_digest_are_not_called_equal() -> None:
    assert parting(run(""), run("")) is not None


def test_first_device_that_differs_is_named_with_its_sync_points() -> None:
    one = run("a", (100, [1, 2, 3]), (200, [4, 5, 6]), (300, [7, 8, 9]))
    other = run("b", (100, [1, 2, 3]), (200, [4, 50, 60]), (300, [70, 80, 90]))
    assert parting(one, other) == ("nic-0-0", 2, 1, 100, 200)


def test_sync_points_that_only_one_run_has_are_passed_over() -> None:
    one = run("a", (100, [1, 2, 3]), (150, [0, 0, 0]), (200, [4, 5, 6]))
    other = run("b", (100, [1, 2, 3]), (200, [4, 5, 60]))
    assert parting(one, other) == ("nic-1-0", 2, 0, 100, 200)


def test_first_port_of_a_device_is_named_and_what_concerns_none_comes_before_it() -> None:
    def at(digest: str, *changed: dict[tuple[int, int], int]) -> Run:
        points = tuple(Mixes(100 * (one + 1), mixed) for one, mixed in enumerate(changed))
        return Run(Path("run"), summary([], digest=digest), DEVICES, points)

    one = at("a", {(9, 1): 5, (9, 4): 6}, {(9, 0): 7, (9, 4): 8, (12, 1): 9})
    assert parting(one, at("b", {(9, 1): 5, (9, 4): 6}, {(9, 0): 7, (9, 4): 9})) == (
        "nic-0-0",
        3,
        1,
        100,
        200,
    )
    assert parting(one, at("b", {(9, 1): 5, (9, 4): 6}, {(9, 4): 9})) == ("nic-0-0", None, 1, 100, 200)
    assert parting(one, at("b", {(9, 1): 5})) == ("nic-0-0", 3, 0, 0, 100)


def test_sync_points_of_one_run_alone_do_not_hide_what_changed_there() -> None:
    one = run("a", (100, [1, 2, 3]), (150, [4, 5, 6]), (200, [4, 5, 6]))
    assert parting(one, run("b", (100, [1, 2, 3]), (200, [4, 5, 6]))) == (None, None, 0, 200, None)
    assert parting(one, run("b", (100, [1, 2, 3]), (200, [1, 5, 6]))) == ("rtsw-0", 2, 0, 100, 200)


def test_parting_after_the_last_sync_point_of_both_is_said_to_be_there() -> None:
    found = parting(run("a", (100, [1, 2, 3])), run("b", (100, [1, 2, 3])))
    assert found == (None, None, 0, 100, None)


def test_main_numbers_stand_side_by_side() -> None:
    rows = {row.name: row for row in main_numbers(summary([]), summary([], virtual_ps=2 * 10**9))}
    assert (rows["virtual time"].one, rows["virtual time"].other, rows["virtual time"].ratio) == (
        10**9,
        2 * 10**9,
        2.0,
    )
    assert rows["drops"].ratio is None


def test_the_first_line_says_which_run_ends_sooner_and_what_changed_most() -> None:
    one = api.run("tiny_all_reduce", local=True, diagnose=False).summary
    (name, job), *_ = one.jobs.items()
    assert job.end_ps is not None
    calls = [call.model_copy(update={"busbw": 2 * (call.busbw or 0)}) for call in job.collectives]
    faster = job.model_copy(update={"end_ps": job.end_ps * 3 // 4, "collectives": calls})
    other = one.model_copy(update={"jobs": {name: faster}})
    assert re.fullmatch(r"B ends 25\.0% sooner; .* busbw 2 times A's", headline(one, other))
    assert re.fullmatch(r"B ends 33\.3% later; .* busbw 0\.5 times A's", headline(other, one))
    assert headline(one, one) == "A and B end together"
    thrice = one.model_copy(update={"jobs": {name: job.model_copy(update={"end_ps": 3 * job.end_ps})}})
    assert headline(one, thrice) == "B takes 3 times as long"
    assert headline(thrice, one) == "A takes 3 times as long"


def test_run_directories_are_compared(tmp_path: Path) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "a"), "a" * 64)
    write_run(RunDirectory.create("handmade", tmp_path / "b"), "b" * 64, second_mix=22)
    lines = parting_lines(load_run(tmp_path / "a"), load_run(tmp_path / "b"))
    assert lines[0] == "A and B end together"
    assert lines[-1] == "first to differ: rtsw-0 port 2, between the sync points 100ps and 200ps"


def test_scenarios_that_differ_are_shown(tmp_path: Path) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "a"), "a" * 64)
    write_run(RunDirectory.create("handmade", tmp_path / "b"), "b" * 64)
    (tmp_path / "a/scenario.yaml").write_text(
        "jobs: [{size: 1MiB, ranks: [0, 1]}]\nrun: {seed: 1}\nnic: [1, 2]\n"
    )
    (tmp_path / "b/scenario.yaml").write_text(
        "jobs: [{size: 2MiB, ranks: [0, 1]}]\nrun: {stop: 1s}\nnic: [1]\n"
    )
    lines = parting_lines(load_run(tmp_path / "a"), load_run(tmp_path / "b"))
    assert lines[3:8] == [
        "the scenarios differ:",
        "  jobs[0].size: 1MiB -> 2MiB",
        "  run.seed: 1 -> not there",
        "  run.stop: not there -> 1s",
        "  nic: [1, 2] -> [1]",
    ]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"digest": 5}'])
def test_file_that_is_no_summary_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UsageError, match="not the summary of a run"):
        load_run(tmp_path)


def test_missing_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"accepted: a run directory or its summary\.json"):
        load_run(tmp_path / "none")


def test_command_tells_by_its_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "a"), "a" * 64)
    write_run(RunDirectory.create("handmade", tmp_path / "b"), "b" * 64, second_mix=22)
    one, other = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["compare", one, one]) == 0
    assert capsys.readouterr().out.startswith("same answer: digest " + "a" * 64)
    assert main(["compare", one, other]) == 1
    assert "first to differ: rtsw-0 port 2" in capsys.readouterr().out
    assert main(["compare", one, str(tmp_path / "none")]) == 2


def test_command_prints_json_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "a"), "a" * 64)
    write_run(RunDirectory.create("handmade", tmp_path / "b"), "b" * 64, second_mix=22)
    assert main(["compare", "--json", str(tmp_path / "a"), str(tmp_path / "b" / "summary.json")]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert (reported["same"], reported["parting"]["device"], reported["parting"]["port"]) == (
        False,
        None,
        None,
    )
    assert reported["numbers"]["virtual time"] == [10**9, 10**9]
