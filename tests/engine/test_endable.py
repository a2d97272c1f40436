"""One Ctrl-C while Ray starts ends the run, also where a library keeps the KeyboardInterrupt to itself."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress

import pytest

from emu.cluster.ray.session import endable

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@endable()
def reported(number: signal.Signals) -> None:
    signal.raise_signal(number)
    raise AssertionError("nothing is done after that")


@endable()
def deaf(number: signal.Signals) -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(number)


@endable()
def mistaken(number: signal.Signals) -> None:
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise RuntimeError("the cluster could not be started") from None


class Interrupted:
    """The signal comes while this is destroyed; what is raised there is printed."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@endable()
def destroyed(number: signal.Signals) -> None:
    Interrupted(number)


@pytest.mark.filterwarnings("error")
@BOTH
@pytest.mark.parametrize("work", [reported, deaf, mistaken, destroyed])
def test_a_signal_ends_it_whatever_becomes_of_the_exception(work: object, number: signal.Signals) -> None:
    before = [*handlers(), sys.unraisablehook]
    assert callable(work)
    with pytest.raises(KeyboardInterrupt):
        work(number)
    assert [*handlers(), sys.unraisablehook] == before


def test_a_failure_without_a_signal_is_reported() -> None:
    with pytest.raises(RuntimeError, match="no room"), endable():
        raise RuntimeError("no room")


def test_an_exit_is_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt), endable():
        raise SystemExit(15)


class Timeval(ctypes.Structure):
    """What is left of a wait of `select`."""

    _fields_ = [("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)]


def wait_in_c(left: Timeval) -> None:
    """Wait where Python knows nothing of it, as Ray's C++ side does; a signal comes meanwhile."""
    sent = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
    sent.start()
    ctypes.CDLL(None).select(0, None, None, None, ctypes.byref(left))
    sent.join()


@endable()
def waits(left: Timeval) -> None:
    wait_in_c(left)


def waits_whole(left: Timeval, done: list[Timeval]) -> None:
    with endable() as signals, signals.held():
        wait_in_c(left)
        done.append(left)


def notes(done: list[bool]) -> None:
    with endable() as signals, signals.held():
        signals.note(signal.SIGTERM, None)
        done.append(signals.asked)


def test_a_signal_that_is_held_cuts_nothing_short_and_is_heard_behind_it() -> None:
    whole, cut = Timeval(0, 400_000), Timeval(0, 400_000)
    done: list[Timeval] = []
    with pytest.raises(KeyboardInterrupt):
        waits(cut)
    with pytest.raises(KeyboardInterrupt):
        waits_whole(whole, done)
    assert done == [whole]
    assert (cut.microseconds > 0, whole.microseconds) == (True, 0)


def test_a_signal_that_another_thread_takes_is_held_too() -> None:
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        notes(done)
    assert done == [True]
