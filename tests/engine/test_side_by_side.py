"""Do runs side by side answer in order, and is one that does not answer told?"""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emu.base.errors import RuntimeFailure, UsageError
from emu.base.side_by_side import as_they_end, side_by_side
from tests.engine.patience import until


def waits(place: int) -> tuple[int, int]:
    """The first waits for the second to have begun: they end the other way round."""
    if place == 0:
        os.read(READS, 1)
    elif place == 1:
        os.write(WRITES, b".")
    return place, os.getpid()


READS, WRITES = os.pipe()


def test_answers_come_in_the_order_of_the_items_from_processes_of_their_own() -> None:
    found = list(side_by_side(waits, range(5), 2))
    assert [place for place, _ in found] == [0, 1, 2, 3, 4]
    assert len({os.getpid(), *(process for _, process in found)}) == 6


def test_one_at_a_time_runs_in_this_process() -> None:
    assert list(side_by_side(lambda _: os.getpid(), [1, 2], 1)) == [os.getpid()] * 2


def refuses(_: int) -> None:
    raise UsageError("no such thing")


def dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_an_item_raises_is_raised_here() -> None:
    with pytest.raises(UsageError, match="no such thing"):
        list(side_by_side(refuses, [1, 2], 2))


def test_a_process_that_dies_is_reported_with_its_status() -> None:
    with pytest.raises(RuntimeFailure, match="status -9"):
        list(side_by_side(dies, [1, 2], 2))


def sleeps(_: int) -> None:
    signal.pause()


def test_whoever_stops_asking_leaves_no_process_behind() -> None:
    found = side_by_side(lambda place: place if place == 0 else sleeps(place), [0, 1, 2], 3)
    assert next(found) == 0
    found.close()
    assert multiprocessing.active_children() == []


def interrupted(place: int) -> int:
    if place:
        raise KeyboardInterrupt
    return place


def test_an_interrupted_run_interrupts_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(interrupted, [0, 1], 2))
    assert "Traceback" not in capfd.readouterr().err


def says_who_it_is_and_sleeps(_: int) -> None:
    os.write(1, f"{os.getpid()}\n".encode())
    signal.pause()


def test_processes_end_with_the_one_that_asked_even_if_that_is_killed() -> None:
    code = (
        "from emu.base.side_by_side import side_by_side as s\n"
        "from tests.engine import test_side_by_side as t\n"
        "list(s(t.says_who_it_is_and_sleeps, [0, 1], 2))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_an_assertion_is_told_with_its_item_and_the_others_go_on() -> None:
    found = {one.number: one for one in as_they_end(asserts, range(3), 2)}
    assert [found[number].answer for number in (0, 2)] == [0, 2]
    assert str(found[1].failure).startswith("a run failed by a bug, AssertionError 1 is odd")
    assert not found[1].lost


def asserts(place: int) -> int:
    assert place != 1, "1 is odd"
    return place


def test_every_item_ends_though_the_last_ends_alone() -> None:
    for many in (1, 2, 3):
        assert sorted(one.number for one in as_they_end(os.getpgid, [0] * 4, many)) == [0, 1, 2, 3]
