"""The cyclic collector looks at what a run made once that is enough, and less often where it frees little."""

import gc
import sys
from collections.abc import Callable, Iterator
from weakref import ref

import pytest

import emu
from actors.kernel.event import Event, Message
from actors.wire.frame import WRITE_MIDDLE, Frame
from emu.engine.sync.garbage import MUCH, Growth, quiet_collector

ENOUGH = 2_000


class Circle:
    """An object that only the cyclic collector frees; two objects for it, with its attributes."""

    def __init__(self) -> None:
        self.me = self
        self.more: list[object] = []


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """As in a run: what was there before is frozen, and nothing is collected by itself."""
    with quiet_collector():
        yield


@pytest.fixture
def collections() -> Iterator[Callable[[], int]]:
    """How many collections there were."""
    seen: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    yield lambda: seen.count("start")
    gc.callbacks.remove(note)


def test_what_comes_and_goes_brings_no_collection(collections: Callable[[], int]) -> None:
    growth = Growth(ENOUGH)
    for _ in range(50):
        made = [Circle.__new__(Circle) for _ in range(ENOUGH // 2)]
        growth.look()
        del made
        growth.look()
    assert collections() == 0


@pytest.mark.skipif(not emu.is_compiled(), reason="interpreted, records are objects as all others")
def test_packets_and_messages_that_wait_are_not_looked_at() -> None:
    growth = Growth(ENOUGH)
    waiting: list[Event] = []
    while len(waiting) < 2 * ENOUGH:
        waiting.append(Frame(WRITE_MIDDLE, 3, 1, 2, 50_000, 7, len(waiting), 4096, 4178))
        waiting.append(Message(1, 2, 3, 4, 5, 6, 7))
        growth.look()
    assert growth.enough > ENOUGH
    assert not any(map(gc.is_tracked, waiting))
    del waiting[::2]  # freed records are used again
    assert not gc.is_tracked(Message(1, 2, 3, 4, 5, 6, 7))


def test_circles_that_nobody_needs_are_freed_once_there_are_enough(collections: Callable[[], int]) -> None:
    growth = Growth(ENOUGH)
    first = ref(Circle())
    growth.look()
    assert collections() == 0
    assert first() is not None
    for turn in range(1, 6):
        for _ in range(ENOUGH):
            Circle()
        growth.look()
        assert collections() == turn
        assert first() is None
        assert growth.enough == ENOUGH


def test_growth_of_what_lives_brings_collections_by_its_logarithm(collections: Callable[[], int]) -> None:
    growth = Growth(ENOUGH)
    kept: list[list[int]] = []
    while len(kept) < 64 * ENOUGH:
        kept += ([] for _ in range(100))
        growth.look()
    # After ENOUGH, 2 ENOUGH more, 4 more: 1 + 2 + 4 + 8 + 16 + 32 are 63.
    assert collections() == 6
    assert growth.enough == 64 * ENOUGH


def test_collections_come_as_often_as_at_first_where_they_free_much_again() -> None:
    growth = Growth(ENOUGH)
    growth.enough = 8 * ENOUGH
    for _ in range(4):
        for _ in range(8 * ENOUGH):
            Circle()
        growth.look()
    assert growth.enough == ENOUGH


def test_runs_beside_many_objects_of_others_do_not_look_at_them(collections: Callable[[], int]) -> None:
    others: list[list[int]] = [[] for _ in range(MUCH + 100_000)]
    with quiet_collector():
        pass  # what is there now has survived
    whole = collections()
    for _ in range(5):
        with quiet_collector():
            assert gc.get_freeze_count() > len(others)
    assert collections() - whole == 5  # those of the youngest generation, in which nothing is


def test_what_earlier_runs_left_in_circles_is_freed_before_the_next() -> None:
    with quiet_collector():
        first = ref(Circle())
        left = [Circle() for _ in range(sys.getallocatedblocks() // 4)]
    del left
    assert first() is not None
    with quiet_collector():
        assert first() is None
