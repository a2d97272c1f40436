"""Is what a user sees plain in a pipe, and silent where JSON is asked for?"""

import io
import re
from typing import Any

import pytest

from emu import api
from emu.cli.main import main
from emu.engine.outcome import Progress
from emu.terminal import terminal as shown_by
from emu.terminal.terminal import Paced, SoFar, Terminal
from tests.summary.handmade import all_reduce_plan, fabric, record, summary

ROW = (0, 0, 0, 100_000_000, 0)
RECORDS = [record(fabric(), "controller", results={"operations": [ROW]})]


def shown(quiet: bool = False, **changes: Any) -> str:
    stream = io.StringIO()
    terminal = Terminal([all_reduce_plan()], quiet=quiet, stream=stream)
    terminal.begin("handmade, seed 5", ["4 GPUs, 4 switches"])
    terminal.progressed(Progress(virtual_ps=50, delivered_bytes=100))
    terminal.progressed(Progress(virtual_ps=100_000_000, delivered_bytes=6 * 2**20, operations=(ROW,)))
    one = summary(RECORDS, [all_reduce_plan()], **changes)
    terminal.finish(one, [ROW], "runs/handmade-1", "emu run handmade.yaml --seed 5")
    return stream.getvalue()


def test_pipe_gets_plain_lines_without_a_bar() -> None:
    text = shown()
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.splitlines()[0] == "handmade, seed 5"
    assert text.count("1048576") == 1
    assert text.splitlines()[-1] == "results in runs/handmade-1"


def test_failed_expectation_ends_with_the_line_that_repeats_the_run() -> None:
    text = shown(expect=[{"value": "drops.total", "at_least": 1}])
    assert text.splitlines()[-1] == "repeat with: emu run handmade.yaml --seed 5"


def test_quiet_terminal_shows_nothing() -> None:
    assert shown(quiet=True) == ""


def test_pipe_has_eighty_columns_if_columns_does_not_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(len(line) > 80 for line in shown().splitlines())
    monkeypatch.delenv("COLUMNS")
    assert all(len(line) <= 80 for line in shown().splitlines())


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_of_a_training_job_counts_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plans = api.prepare("training_step", {"jobs[0].workload.steps": 3}).jobs
    screen = Screen()
    terminal = Terminal(plans, stream=screen)
    terminal.begin("train")
    bar = terminal._bar
    assert bar is not None
    for steps in range(3):
        rows = tuple((0, step, 0, 10**9, 0) for step in range(steps))
        terminal.progressed(Progress(10**9 * steps, 5, operations=rows))
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == (f"{steps} of 3 steps", steps, 3)
    terminal.close()


def test_sentences_go_on_below_on_a_narrow_terminal_and_figures_and_commands_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # no colours
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen()
    terminal = Terminal([], stream=screen)
    sentence = (
        "  drops 0 (congestion 0), pause frames 2449, paused 15.92ms, retransmitted 0, peak buffer 28.93MiB"
    )
    row = f"  nic-14-0 -> rtsw-1  24MiB        22.3%   55.7%   {'1234567  ' * 5}"
    cell = f"  degrade  link  {'a flow takes longer ' * 4}at last"
    repeat = "repeat with: emu run handmade.yaml --seed 5 --set jobs[0].workload.size=1MiB --set a=b"
    digest = f"digest {'0123456789abcdef' * 6}"
    terminal.begin("handmade", [sentence, row, cell, repeat, digest])
    terminal.close()
    assert screen.getvalue().splitlines()[:8] == [
        "handmade",
        "  drops 0 (congestion 0), pause frames 2449, paused 15.92ms, retransmitted 0,",
        "    peak buffer 28.93MiB",
        row,
        "  degrade  link  a flow takes longer a flow takes longer a flow takes longer a",
        "                 flow takes longer at last",
        repeat,
        digest,
    ]


def test_pieces_of_work_are_told_with_the_time_left_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Paced(quiet=False)("2 of 4 runs: mine")
    Paced(quiet=True)("2 of 4 runs: mine")
    assert capsys.readouterr().err == "2 of 4 runs: mine\n"
    seen = Screen()
    monkeypatch.setattr("sys.stderr", seen)
    Paced(quiet=False)("2 of 4 runs: mine")
    assert re.fullmatch(r"2 of 4 runs: mine \(50 %, .+ left\)\n", seen.getvalue())


def test_a_command_that_works_for_long_says_so_and_takes_the_line_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Screen()
    monkeypatch.setattr("sys.stderr", seen)
    monkeypatch.setattr(shown_by, "PATIENCE_S", 0.0)
    with SoFar("reading"):
        while "reading: 0 s so far" not in seen.getvalue():
            pass
    assert seen.getvalue().endswith("\r\x1b[K")


def test_a_run_of_which_only_results_are_shown_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_by, "LEAST_S", -1.0)
    monkeypatch.setattr("sys.stderr", seen := Screen())
    assert main(["cross", "tiny_all_reduce", "--local", "--set", "jobs[0].workload.iterations=1"]) in (0, 1)
    assert " %" in seen.getvalue()
