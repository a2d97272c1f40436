"""Do runs side by side answer in order, and is one that does not answer told?"""

import multiprocessing
import os
import signal

import pytest

from emu.base.errors import RuntimeFailure, UsageError
from emu.base.side_by_side import side_by_side


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


def test_an_interrupted_run_ends_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeFailure, match="status 130"):
        list(side_by_side(interrupted, [0, 1], 2))
    assert "Traceback" not in capfd.readouterr().err
