"""Which event is next?

Three stores by distance. Events of the present slot of about 0.5 ns (and anything earlier) are in a short
table, sorted so that the next one is last: taking it moves nothing. Events of the next 32,767 slots (about 17
us) hang in chains on a wheel: putting one there costs two stores. Whatever lies beyond is in a 4-ary heap. A
slot's chain moves into the table when the queue reaches it, by insertion: a busy fabric has a few events in a
slot. A slot in which very many devices act at once is sorted by the library instead.

Order is by (time, key) alone; where an event waited never shows. No two pending events may have both in
common: two that do meet in the table, which asserts it. The queue does not look beyond the limit it
is asked for: if it moved its base past the end of a window, the packets that arrive for that window would all
pile into the table.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from emu.vectors import append, pop, vec
from emu.wire.event import NEVER_PS, Event, describe_key

SLOT_SHIFT: Final[i64] = 9
SLOTS: Final[i64] = 32768
_SLOT_MASK: Final[i64] = 32767
_GROUP_SHIFT: Final[i64] = 6
_SLOT_COUNT: Final = 32768
_MANY: Final[i64] = 64
"""A chain longer than this is not sorted by insertion."""


def _push(heap: vec[Event], event: Event) -> vec[Event]:
    """Put an event into a 4-ary heap ordered by (time, key)."""
    time: i64 = event.time_ps
    key: i64 = event.key
    heap = append(heap, event)
    at: i64 = len(heap) - 1
    while at > 0:
        up: i64 = (at - 1) >> 2
        parent = heap[up]
        parent_time: i64 = parent.time_ps
        if parent_time < time or (parent_time == time and parent.key < key):
            break
        heap[at] = parent
        at = up
    heap[at] = event
    return heap


def _sink(heap: vec[Event], event: Event) -> None:
    """Put an event in the place of a 4-ary heap's first and restore the order."""
    time: i64 = event.time_ps
    key: i64 = event.key
    size: i64 = len(heap)
    at: i64 = 0
    while True:
        child: i64 = (at << 2) + 1
        if child >= size:
            break
        least = heap[child]
        least_time: i64 = least.time_ps
        least_at: i64 = child
        last: i64 = child + 4
        if last > size:
            last = size
        child += 1
        while child < last:
            other = heap[child]
            other_time: i64 = other.time_ps
            if other_time < least_time or (other_time == least_time and other.key < least.key):
                least = other
                least_time = other_time
                least_at = child
            child += 1
        if time < least_time or (time == least_time and key < least.key):
            break
        heap[at] = least
        at = least_at
    heap[at] = event


class EventQueue:
    """The pending events of one partition, and its clock.

    `now_ps` is the time of the event being executed. `stop_ps` is the end of the run once the control plane
    has announced it.
    """

    def __init__(self) -> None:
        self.now_ps: i64 = 0
        self.stop_ps: i64 = NEVER_PS
        self._near: vec[Event] = vec[Event]()
        self._near_count: i64 = 0
        """How many of `_near` are pending; what lies behind them is stale."""
        self._far: vec[Event] = vec[Event]()
        self._slots: vec[Event | None] = vec[Event | None]([None] * _SLOT_COUNT)
        self._group_counts: vec[i64] = vec[i64]([0] * (_SLOT_COUNT >> 6))
        self._on_wheel: i64 = 0
        self._slot: i64 = 0

    def __len__(self) -> int:
        """How many events are pending."""
        return self._near_count + self._on_wheel + len(self._far)

    def push(self, event: Event) -> None:
        """Make an event pending at `event.time_ps`, which is not before now."""
        slot: i64 = event.time_ps >> SLOT_SHIFT
        ahead: i64 = slot - self._slot
        if ahead <= 0:
            assert event.time_ps >= self.now_ps, (event.time_ps, self.now_ps)
            self._insert(event)
        elif ahead < SLOTS:
            at: i64 = slot & _SLOT_MASK
            slots = self._slots
            event.chain = slots[at]
            slots[at] = event
            self._group_counts[at >> _GROUP_SHIFT] += 1
            self._on_wheel += 1
        else:
            self._far = _push(self._far, event)

    def pop(self, limit_ps: i64) -> Event | None:
        """Take the first event before `limit_ps`, or None where there is none."""
        if self._near_count == 0 and not self._advance(limit_ps):
            return None
        last: i64 = self._near_count - 1
        event = self._near[last]
        if event.time_ps >= limit_ps:
            return None
        self._near_count = last
        return event

    def next_time_ps(self) -> i64:
        """The first pending event's time; NEVER_PS if none is pending."""
        if self._near_count > 0:
            return self._near[self._near_count - 1].time_ps
        best: i64 = NEVER_PS
        far = self._far
        if len(far) > 0:
            best = far[0].time_ps
        if self._on_wheel > 0:
            event = self._slots[self._next_slot() & _SLOT_MASK]
            while event is not None:
                if event.time_ps < best:
                    best = event.time_ps
                event = event.chain
        return best

    def pending(self) -> list[Event]:
        """Every pending event in order, for a snapshot or a check; changes nothing."""
        events: list[Event] = list(self._near[: self._near_count])
        events.extend(self._far)
        for head in self._slots:
            event = head
            while event is not None:
                events.append(event)
                event = event.chain
        events.sort(key=_order)
        return events

    def clear(self) -> None:
        """Forget every pending event; the clock stays."""
        self._near = vec[Event]()
        self._near_count = 0
        self._far = vec[Event]()
        self._slots = vec[Event | None]([None] * _SLOT_COUNT)
        self._group_counts = vec[i64]([0] * (_SLOT_COUNT >> 6))
        self._on_wheel = 0
        self._slot = self.now_ps >> SLOT_SHIFT

    def _insert(self, event: Event) -> None:
        """Put an event in its place in the table: later events before it, earlier ones behind."""
        near = self._near
        time: i64 = event.time_ps
        key: i64 = event.key
        at: i64 = self._near_count
        if at == len(near):
            near = append(near, event)
        while at > 0:
            other = near[at - 1]
            other_time: i64 = other.time_ps
            if other_time > time:
                break
            if other_time == time:
                other_key: i64 = other.key
                if other_key > key:
                    break
                assert other_key != key, (time, describe_key(key))
            near[at] = other
            at -= 1
        near[at] = event
        self._near = near
        self._near_count += 1

    def _next_slot(self) -> i64:
        """The first slot after the present one that holds an event; the wheel is not empty."""
        slots = self._slots
        counts = self._group_counts
        slot: i64 = self._slot + 1
        while True:
            at: i64 = slot & _SLOT_MASK
            if counts[at >> _GROUP_SHIFT] == 0:
                slot = ((slot >> _GROUP_SHIFT) + 1) << _GROUP_SHIFT
            elif slots[at] is None:
                slot += 1
            else:
                return slot

    def _advance(self, limit_ps: i64) -> bool:
        """Move to the next slot that holds an event, unless it begins at or after the limit."""
        slot: i64 = NEVER_PS
        if self._on_wheel > 0:
            slot = self._next_slot()
        far = self._far
        if len(far) > 0:
            far_slot: i64 = far[0].time_ps >> SLOT_SHIFT
            if far_slot < slot:
                slot = far_slot
        if slot == NEVER_PS or (slot << SLOT_SHIFT) >= limit_ps:
            return False
        if self._on_wheel > 0 and slot - self._slot < SLOTS:
            self._unchain(slot & _SLOT_MASK)
        while len(far) > 0 and (far[0].time_ps >> SLOT_SHIFT) == slot:
            self._insert(far[0])
            far, last = pop(far)
            if len(far) > 0:
                _sink(far, last)
        self._far = far
        self._slot = slot
        return True

    def _unchain(self, at: i64) -> None:
        """Move a slot's chain into the table, which is empty."""
        event = self._slots[at]
        self._slots[at] = None
        moved: i64 = 0
        while event is not None and moved < _MANY:
            following = event.chain
            event.chain = None
            self._insert(event)
            moved += 1
            event = following
        if event is not None:
            events: list[Event] = list(self._near[: self._near_count])
            while event is not None:
                rest = event.chain
                event.chain = None
                events.append(event)
                moved += 1
                event = rest
            events.sort(key=_order, reverse=True)
            for place in range(1, len(events)):
                assert _order(events[place - 1]) != _order(events[place]), describe_key(events[place].key)
            self._near = vec[Event](events)
            self._near_count = len(events)
        self._group_counts[at >> _GROUP_SHIFT] -= moved
        self._on_wheel -= moved


def _order(event: Event) -> tuple[int, int]:
    return event.time_ps, event.key
