"""The event queue of compiled runs: a wheel, and a heap beyond it.

Three stores by distance. Events of the present slot of about 0.5 ns (and anything earlier) are in one chain,
in their order. Events of the next 32,767 slots (about 17 us; fewer in a wheel that is made for a block) hang
in chains on a wheel, as they came: putting one there costs two stores. Whatever lies beyond is in a 4-ary
heap. When the queue reaches a slot, its chain is put in order by insertion: a busy fabric has a few events in
a slot, and those of one instant mostly lie in the chain as they are to be, last first. A slot in which very
many devices act at once is merged from the runs of which its chain is made.

Order is by (time, key) alone; where an event waited never shows. No two pending events may have both in
common: two that do meet in the chain, which asserts it. The queue does not look beyond the limit it
is asked for: if it moved its base past the end of a window, the packets that arrive for that window would all
pile into the present chain.

The queues of blocks have turns (`actors.kernel.kernel`), and one wheel for all. What becomes pending for a
later turn is kept aside in a table until that begins.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.cache import AHEAD, fetch_behind, fetch_event
from actors.kernel.event import NEVER_PS, Event, describe_key, void
from actors.kernel.vectors import append, pop, vec
from actors.kernel.watch import Watch
from actors.wire.frame import Spares

SLOT_SHIFT: Final[i64] = 9
SLOTS: Final[i64] = 32768
"""Slots of a wheel, unless it is made for a block; a power of two, and at least `LEAST_SLOTS`."""
LEAST_SLOTS: Final[i64] = 1024
_WORD_SHIFT: Final[i64] = 5
_WORD_MASK: Final[i64] = 31
_WORD_BITS: Final[i64] = 32
"""A word of the wheel has a bit for each of 32 slots."""
_BEYOND_WORD: Final[i64] = 1 << 32
"""Bits are made of it by shifting right: mypyc writes a small literal as a C int, and 1 << 31 is negative."""
_MANY: Final[i64] = 8
"""How many events of a chain are sorted by insertion; a longer rest is merged."""


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

    `now_ps` and `now_key` are those of the event being executed. `stop_ps` is the end of the run once the
    control plane has announced it. `extra` is how many events more those of the present slice count for,
    because one took as long as many.
    """

    def __init__(self, slots: int = int(SLOTS)) -> None:
        assert slots >= LEAST_SLOTS and slots & (slots - 1) == 0, slots
        self.now_ps: i64 = 0
        self.now_key: i64 = 0
        self.stop_ps: i64 = NEVER_PS
        self.extra: i64 = 0
        self.watch: Watch | None = None
        """Is told of events that become pending, where somebody watches devices."""
        self.spares: Spares = Spares()
        """Used frames of all NICs of the partition or block."""
        self._first: Event | None = None
        """The next event, and behind it the others of the present slot in their order."""
        self._slot: i64 = 0
        self._mask: i64 = slots - 1
        """How many slots there are, less one."""
        self._slots: vec[Event | None] = vec[Event | None]([None] * slots)
        self._words: vec[i64] = vec[i64]([0] * (slots >> _WORD_SHIFT))
        """Which slots hold events, a bit each."""
        self._used: i64 = 0
        """How many slots do."""
        self._far_slot: i64 = NEVER_PS
        """The slot of the first event in the heap."""
        self._far: vec[Event] = vec[Event]()
        self.turn_end_ps: i64 = NEVER_PS
        """End of the present turn, where blocks have them: what is due then or later is kept aside."""
        self._later: vec[Event | None] = vec[Event | None]()
        """What is, as it came, in the first `_kept` places; the others are empty, for what comes."""
        self._kept: i64 = 0
        self._later_ps: i64 = NEVER_PS
        """The earliest time in it."""

    def __len__(self) -> int:
        """How many events are pending."""
        return len(self.pending())

    def push(self, event: Event) -> None:
        """Make an event pending at `event.time_ps`, which is not before now."""
        slot: i64 = event.time_ps >> SLOT_SHIFT
        ahead: i64 = slot - self._slot
        if ahead <= 0 or ahead > self._mask or event.time_ps >= self.turn_end_ps:
            self._push_aside(event, slot)
            return
        at: i64 = slot & self._mask
        if self._slots[at] is None:
            word: i64 = at >> _WORD_SHIFT
            self._words[word] |= _BEYOND_WORD >> (_WORD_BITS - (at & _WORD_MASK))
            self._used += 1
        else:
            event.chain = self._slots[at]
        self._slots[at] = event

    def _push_aside(self, event: Event, slot: i64) -> None:
        """Make an event pending that is not for the wheel: due in the present slot, or in a later turn, or
        beyond the wheel."""
        if event.time_ps < self.turn_end_ps and slot <= self._slot:
            assert event.time_ps >= self.now_ps, (event.time_ps, self.now_ps)
            self._insert(event)
            return
        if slot - self._slot <= self._mask:
            if self._kept < len(self._later):
                self._later[self._kept] = event
            else:
                self._later = append(self._later, event)
            self._kept += 1
            if event.time_ps < self._later_ps:
                self._later_ps = event.time_ps
            return
        self._far = _push(self._far, event)
        if slot < self._far_slot:
            self._far_slot = slot

    def void(self, event: Event) -> None:
        """Nothing happens any more at an event that is pending (`actors.kernel.event.void`)."""
        void(event)

    def take_turn(self, until_ps: i64) -> None:
        """A turn begins, and ends then: what was kept aside and is due in it comes to its place.

        All of it is read here in a row, so that one miss of the cache does not wait for the other.
        """
        assert self._used == 0 or self.turn_end_ps == until_ps, (self.turn_end_ps, until_ps)
        self.turn_end_ps = until_ps
        later = self._later
        count: i64 = self._kept
        kept: i64 = 0
        least_ps: i64 = NEVER_PS
        at: i64 = 0
        while at < count:
            fetch_event(later, at + AHEAD)
            waiting = later[at]
            assert waiting is not None, at
            event: Event = waiting
            time: i64 = event.time_ps
            if time < until_ps:
                later[at] = None
                self.push(event)
            else:  # it takes the place of one that was read
                if kept < at:
                    later[at] = None
                    later[kept] = event
                kept += 1
                if time < least_ps:
                    least_ps = time
            at += 1
        self._kept = kept
        self._later_ps = least_ps

    def share(self, other: EventQueue) -> None:
        """Use the wheel of another queue, so that it stays in the cache: in turns, which leave it empty."""
        self._slots = other._slots
        self._words = other._words
        self.turn_end_ps = 0

    def pop(self, limit_ps: i64) -> Event | None:
        """Take the first event before `limit_ps`, which is now; or None where there is none."""
        if self._first is None and not self._advance(limit_ps):
            return None
        first = self._first
        assert first is not None, self._slot
        event: Event = first  # what is narrowed is checked again at each use
        time: i64 = event.time_ps
        if time >= limit_ps:
            return None
        self.now_ps = time
        self.now_key = event.key
        fetch_behind(event)  # by the time that one is taken, what its arrival asks for is here
        self._first = event.chain
        event.chain = None
        return event

    def next_time_ps(self) -> i64:
        """The first pending event's time; NEVER_PS if none is pending."""
        best: i64 = self._later_ps
        first = self._first
        if first is not None:
            if first.time_ps < best:
                best = first.time_ps
            return best
        far = self._far
        if len(far) > 0 and far[0].time_ps < best:
            best = far[0].time_ps
        if self._used > 0:
            event = self._slots[self._next_slot() & self._mask]
            while event is not None:
                if event.time_ps < best:
                    best = event.time_ps
                event = event.chain
        return best

    def pending(self) -> list[Event]:
        """Every pending event in order, for a snapshot or a check; changes nothing."""
        events: list[Event] = [*self._far, *[kept for kept in self._later if kept is not None]]
        heads: list[Event | None] = [self._first]
        at: i64 = 0
        for word in self._words:
            left: i64 = word
            slot: i64 = at
            while left != 0:
                if left & 1 != 0:
                    heads.append(self._slots[slot])
                left >>= 1
                slot += 1
            at += _WORD_BITS
        for head in heads:
            event = head
            while event is not None:
                events.append(event)
                event = event.chain
        events.sort(key=_order)
        return events

    def clear(self) -> None:
        """Forget every pending event; the clock stays."""
        self._first = None
        self._far = vec[Event]()
        self._far_slot = NEVER_PS
        self._later = vec[Event | None]()
        self._kept = 0
        self._later_ps = NEVER_PS
        slots = self._slots
        at: i64 = 0
        while at <= self._mask:
            slots[at] = None
            at += 1
        words = self._words
        at = 0
        while at < len(words):
            words[at] = 0
            at += 1
        self._used = 0
        self._slot = self.now_ps >> SLOT_SHIFT

    def _insert(self, event: Event) -> None:
        """Put an event in its place in the present chain."""
        time: i64 = event.time_ps
        key: i64 = event.key
        before: Event | None = None
        other = self._first
        while other is not None:
            other_time: i64 = other.time_ps
            if other_time > time:
                break
            if other_time == time:
                other_key: i64 = other.key
                if other_key > key:
                    break
                assert other_key != key, (time, describe_key(key))
            before = other
            other = other.chain
        event.chain = other
        if before is None:
            self._first = event
        else:
            before.chain = event

    def _next_slot(self) -> i64:
        """The first slot after the present one that holds an event; the wheel is not empty."""
        slot: i64 = self._slot + 1
        at: i64 = (slot & self._mask) >> _WORD_SHIFT
        word: i64 = self._words[at] >> (slot & _WORD_MASK)
        while word == 0:
            slot = (slot | _WORD_MASK) + 1
            at = (slot & self._mask) >> _WORD_SHIFT
            word = self._words[at]
        while word & 0xF == 0:
            word >>= 4
            slot += 4
        while word & 1 == 0:
            word >>= 1
            slot += 1
        return slot

    def _advance(self, limit_ps: i64) -> bool:
        """Move to the next slot that holds an event, unless it begins at or after the limit: its chain is the
        present one then."""
        slot: i64 = self._far_slot
        near: i64 = NEVER_PS
        if self._used > 0:
            near = self._next_slot()
        if near < slot:
            slot = near
        if slot == NEVER_PS:
            return False
        if (slot << SLOT_SHIFT) >= limit_ps:
            # Nothing comes before the limit any more: these slots need not be looked at again.
            before: i64 = (limit_ps >> SLOT_SHIFT) - 1
            if before > self._slot:
                self._slot = before
            return False
        self._slot = slot
        if slot == near:
            self._unchain(slot & self._mask)
        if slot == self._far_slot:
            self._come_near(slot)
        return True

    def _come_near(self, slot: i64) -> None:
        """Move a slot's events from the heap into the present chain."""
        far = self._far
        while len(far) > 0 and (far[0].time_ps >> SLOT_SHIFT) == slot:
            self._insert(far[0])
            far, last = pop(far)
            if len(far) > 0:
                _sink(far, last)
        self._far = far
        self._far_slot = far[0].time_ps >> SLOT_SHIFT if len(far) > 0 else NEVER_PS

    def _unchain(self, at: i64) -> None:
        """Make a slot's chain the present one, which is empty."""
        slots = self._slots
        found = slots[at]
        assert found is not None, at
        first: Event = found
        slots[at] = None
        words = self._words
        word: i64 = at >> _WORD_SHIFT
        words[word] &= ~(_BEYOND_WORD >> (_WORD_BITS - (at & _WORD_MASK)))
        self._used -= 1
        if first.chain is None:
            self._first = first
        else:
            self._sort(first)

    def _sort(self, first: Event) -> None:
        """Make a chain the present one, in its order."""
        first_time: i64 = first.time_ps
        rest = first.chain
        first.chain = None
        left: i64 = _MANY
        while rest is not None and left > 0:
            event: Event = rest
            rest = event.chain
            time: i64 = event.time_ps
            key: i64 = event.key
            if time < first_time or (time == first_time and key < first.key):
                event.chain = first
                first = event
                first_time = time
                continue
            left -= 1
            before = first
            while before.chain is not None:
                other: Event = before.chain
                other_time: i64 = other.time_ps
                if other_time > time or (other_time == time and other.key > key):
                    break
                before = other
            assert before.key != key or before.time_ps != time, (time, describe_key(key))
            event.chain = before.chain
            before.chain = event
        self._first = first
        if rest is not None:
            self._sort_in(rest)

    def _sort_in(self, event: Event) -> None:
        """Bring the rest of a long chain into the present one, by merging the runs of which it is made."""
        first = self._first
        assert first is not None, self._slot
        runs: list[Event] = [first]
        rest: Event | None = event
        while rest is not None:
            head = rest
            rest = head.chain
            head.chain = None
            while rest is not None and _precedes(rest, head):
                following = rest.chain
                rest.chain = head
                head = rest
                rest = following
            runs.append(head)
        while len(runs) > 1:
            odd = runs[len(runs) & -2 :]
            runs = [_merged(runs[place], runs[place + 1]) for place in range(0, len(runs) - 1, 2)] + odd
        self._first = runs[0]


def _precedes(event: Event, other: Event) -> bool:
    """Whether an event comes before another."""
    time: i64 = event.time_ps
    other_time: i64 = other.time_ps
    return time < other_time or (time == other_time and event.key < other.key)


def _merged(one: Event, other: Event) -> Event:
    """Two chains that are in order, as one."""
    first = one
    later = other
    if _precedes(other, one):
        first = other
        later = one
    assert _precedes(first, later), (first.time_ps, describe_key(first.key))
    last = first
    time: i64 = later.time_ps
    key: i64 = later.key
    while last.chain is not None:
        rest: Event = last.chain
        rest_time: i64 = rest.time_ps
        rest_key: i64 = rest.key
        if rest_time < time or (rest_time == time and rest_key < key):
            last = rest
            continue
        assert rest_time > time or rest_key != key, (time, describe_key(key))
        last.chain = later  # the rest of this chain is the later one from here on
        last = later
        later = rest
        time = rest_time
        key = rest_key
    last.chain = later
    return first


def _order(event: Event) -> tuple[int, int]:
    return event.time_ps, event.key
