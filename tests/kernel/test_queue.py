"""Is the queue a sorted list, whatever it is made of?

Times are drawn so that events fall into the present slot, onto the wheel, beyond it, on top of each other,
and by the hundred into one slot.
"""

from __future__ import annotations

import bisect
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import emu
from actors.kernel.block import new_queue
from actors.kernel.event import NEVER_PS, Event, Message, pack_key
from actors.kernel.queue import LEAST_SLOTS, SLOT_SHIFT, SLOTS, EventQueue
from actors.wire.frame import WRITE_ONLY, Frame

SLOT_PS = 1 << int(SLOT_SHIFT)
WHEEL_PS = SLOT_PS * int(SLOTS)
DISTANCES_PS = st.one_of(
    st.just(0),
    st.integers(0, 2 * SLOT_PS),
    st.integers(0, WHEEL_PS),
    st.sampled_from([SLOT_PS, WHEEL_PS - SLOT_PS, WHEEL_PS - 1, WHEEL_PS, WHEEL_PS + SLOT_PS]),
    st.integers(WHEEL_PS, 20 * WHEEL_PS),
    st.integers(0, 4 * 10**12),
)


def some_event(time_ps: int, key: int) -> Event:
    """A timer, a message or a frame: the queue tells none from another."""
    event: Event
    if key % 3 == 0:
        event = Event(0, 0)
    elif key % 3 == 1:
        event = Message(1, 0, 0, 0, 0, 0, 0)
    else:
        event = Frame(WRITE_ONLY, 3, 0, 0, 0, 0, 0, 0, 98)
    event.time_ps = time_ps
    event.key = key
    return event


class AgainstSortedList(RuleBasedStateMachine):
    """Both queues and a list, pushed to and popped from alike."""

    @initialize(start_ps=st.sampled_from([0, 12_345, 10**15]))
    def build(self, start_ps: int) -> None:
        self.queues = [EventQueue()]
        if not emu.is_compiled():
            self.queues.append(new_queue())
        for queue in self.queues:
            queue.now_ps = start_ps
        self.expected: list[tuple[int, int]] = []
        self.now_ps = start_ps
        self.keys = Random(start_ps)

    @rule(distances=st.lists(DISTANCES_PS, min_size=1, max_size=20))
    def push(self, distances: list[int]) -> None:
        for distance in distances:
            entry = (self.now_ps + distance, self.keys.randrange(2**62))
            self.expected.append(entry)
            for queue in self.queues:
                queue.push(some_event(*entry))
        self.expected.sort()

    @rule(distance=DISTANCES_PS, count=st.integers(40, 150), spread_ps=st.sampled_from([1, 60, SLOT_PS]))
    def push_many_together(self, distance: int, count: int, spread_ps: int) -> None:
        self.push([distance + place * spread_ps // count for place in range(count)])

    @rule(ahead_ps=DISTANCES_PS, most=st.sampled_from([1, 10, 200]))
    def pop_before(self, ahead_ps: int, most: int) -> None:
        limit_ps = self.now_ps + ahead_ps
        for _ in range(most):
            due = self.expected[:1] if self.expected and self.expected[0][0] < limit_ps else []
            for queue in self.queues:
                event = queue.pop(limit_ps)
                assert ([] if event is None else [(event.time_ps, event.key)]) == due
            if not due:
                break
            del self.expected[0]
            self.now_ps = due[0][0]
            for queue in self.queues:
                queue.now_ps = self.now_ps

    @rule(pick=st.integers(0, 3))
    def start_over(self, pick: int) -> None:
        if pick == 0:
            for queue in self.queues:
                queue.clear()
            self.expected = []

    @invariant()
    def agree(self) -> None:
        for queue in getattr(self, "queues", []):
            assert len(queue) == len(self.expected)
            assert queue.next_time_ps() == (self.expected[0][0] if self.expected else NEVER_PS)
            assert [(event.time_ps, event.key) for event in queue.pending()] == self.expected


TestAgainstSortedList = AgainstSortedList.TestCase
TestAgainstSortedList.settings = settings(stateful_step_count=20)


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_events_come_out_in_order(seed: int) -> None:
    random = Random(seed)
    queue = new_queue()
    expected = []
    for _ in range(4_000):
        entry = (random.choice((10**4, 10**6, 10**8, 10**11)) * random.randrange(50), random.randrange(2**62))
        expected.append(entry)
        queue.push(some_event(*entry))
    popped = []
    event = queue.pop(NEVER_PS)
    while event is not None:
        queue.now_ps = event.time_ps
        popped.append((event.time_ps, event.key))
        event = queue.pop(NEVER_PS)
    assert popped == sorted(expected)


@pytest.mark.parametrize("seed", range(5))
def test_queues_that_take_turns_share_a_wheel_and_keep_their_own_order(seed: int) -> None:
    random = Random(seed)
    queues = [EventQueue(int(LEAST_SLOTS)) for _ in range(3)]
    for queue in queues:
        queue.share(queues[0])
    pending: list[list[tuple[int, int]]] = [[], [], []]

    def push(at: int, from_ps: int) -> None:
        entry = (from_ps + random.choice((0, 10, SLOT_PS, 10**5, 10**6, 10**8)), random.randrange(2**62))
        bisect.insort(pending[at], entry)
        queues[at].push(some_event(*entry))

    end_ps = 0
    for _ in range(200):
        begin_ps, end_ps = end_ps, end_ps + random.choice((SLOT_PS // 3, 10**5, 5 * 10**5, 10**7))
        for at, queue in enumerate(queues):
            queue.take_turn(end_ps)
            for _ in range(random.randrange(4)):
                push(at, begin_ps)
            for _ in range(random.randrange(200)):
                event = queue.pop(end_ps)
                if event is None:
                    break
                queue.now_ps = event.time_ps
                assert (event.time_ps, event.key) == pending[at].pop(0)
                if random.randrange(8) > 0:
                    push(at, event.time_ps)
            queue.take_turn(end_ps)  # as where a slice ended within it
            while (event := queue.pop(end_ps)) is not None:
                queue.now_ps = event.time_ps
                assert (event.time_ps, event.key) == pending[at].pop(0)
            assert all(time_ps >= end_ps for time_ps, _ in pending[at])
            assert queue.next_time_ps() == (pending[at][0][0] if pending[at] else NEVER_PS)
            assert [(one.time_ps, one.key) for one in queue.pending()] == pending[at]
    assert sum(map(len, pending)) > 20


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_queue_full_of_chained_events_is_freed_without_harm(kind: int) -> None:
    # Longer than the depth to which the interpreter frees by recursion, and than its stack would bear.
    for count in (200, 200_000 if emu.is_compiled() else 20_000):
        queue = EventQueue()
        for number in range(count):
            queue.push(some_event(100 * SLOT_PS, 3 * number + kind))
        assert len(queue) == count
        del queue
        beside = [some_event(place, 3 * place + kind) for place in range(1_000)]
        assert [event.key for event in beside] == [3 * place + kind for place in range(1_000)]


def test_looking_for_the_next_event_does_not_move_the_queue_past_the_limit() -> None:
    queue = EventQueue()
    queue.push(Event(500 * SLOT_PS, pack_key(0, 6, 0, 0)))
    assert queue.pop(100 * SLOT_PS) is None
    assert queue.next_time_ps() == 500 * SLOT_PS
    assert queue._slot << int(SLOT_SHIFT) <= 100 * SLOT_PS
    queue.push(Event(200 * SLOT_PS, pack_key(0, 6, 0, 0)))
    first = queue.pop(NEVER_PS)
    assert first is not None
    assert first.time_ps == 200 * SLOT_PS


@pytest.mark.parametrize("others", [0, 1, 100])
@pytest.mark.parametrize("distance_ps", [0, 100 * SLOT_PS, 5 * WHEEL_PS])
def test_two_pending_events_of_one_time_and_key_are_refused(distance_ps: int, others: int) -> None:
    queue = new_queue()

    def take_all() -> None:
        for key in (7, *range(1_000, 1_000 + others), 7):
            queue.push(some_event(distance_ps, key))
        event = queue.pop(NEVER_PS)
        while event is not None:
            # One at the same instant and before: it would come between the two.
            if event.key == 7:
                queue.push(some_event(distance_ps, 3))
            queue.now_ps = distance_ps
            event = queue.pop(NEVER_PS)

    with pytest.raises(AssertionError):
        take_all()


def push_twice_and_pop(queue: EventQueue) -> None:
    for _ in range(2):
        queue.push(Event(7, pack_key(3, 6, 1, 0)))
    queue.pop(NEVER_PS)


if emu.is_compiled():

    def test_the_queue_of_interpreted_runs_passes_these_tests_too() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", __file__]
        environment = os.environ | {"EMU_INTERPRETED": "1", "PYTEST_ADDOPTS": ""}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout

else:

    @pytest.mark.parametrize("present", [False, True])
    def test_an_event_that_is_pending_twice_is_named(present: bool) -> None:
        queue = new_queue()
        queue.push(Event(0, pack_key(0, 6, 0, 0)))
        if present:
            assert queue.pop(1) is not None
        with pytest.raises(AssertionError, match="pending twice at 7 ps: device 3 serve port 1 subject 0"):
            push_twice_and_pop(queue)
