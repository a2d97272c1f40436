"""The event queue where the interpreter runs.

The wheel of `actors.kernel.queue` is made of operations that cost a nanosecond compiled and a hundred
interpreted. Here the standard library does the same in C: events wait unsorted in lists, one for each slot of
time, and a heap has the numbers of the slots. A slot is sorted once, when its turn comes; what is pushed into
it after that goes to its place. The order is the same. A property test runs both queues against each other.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import Final

from actors.kernel.event import NEVER_PS, Event, describe_key
from actors.kernel.queue import EventQueue

Entry = tuple[int, int, Event]
"""Time, key and event."""
SLOT_BITS: Final = 15
"""A slot is 2**15 ps long, less than a link: what an event makes pending is for a later slot, as a rule."""


class HeapQueue(EventQueue):
    """The pending events of one partition, and its clock, for an interpreted run."""

    def __init__(self) -> None:
        super().__init__()
        self._present: list[Entry] = []
        """The slot whose turn it is, in order."""
        self._at = 0
        """How many events of it were taken."""
        self._number = -1
        """Its number. Events of earlier slots that are pushed now go into it, too."""
        self._lists: dict[int, list[Entry]] = {}
        """Slots after it, by number."""
        self._numbers: list[int] = []
        """A heap of their numbers."""

    def __len__(self) -> int:
        """How many events are pending."""
        return len(self._entries())

    def push(self, event: Event) -> None:
        """Make an event pending."""
        time_ps = event.time_ps
        slot = time_ps >> SLOT_BITS
        if slot <= self._number:
            try:
                insort(self._present, (time_ps, event.key, event), self._at)
            except TypeError:  # two events were compared: their time and key are equal
                raise AssertionError(self._doubled((time_ps, event.key, event))) from None
        elif slot in self._lists:
            self._lists[slot].append((time_ps, event.key, event))
        else:
            self._lists[slot] = [(time_ps, event.key, event)]
            heappush(self._numbers, slot)

    def pop(self, limit_ps: int) -> Event | None:
        """Take the first event before `limit_ps`."""
        at = self._at
        if at == len(self._present):
            numbers = self._numbers
            if not numbers or numbers[0] << SLOT_BITS >= limit_ps:
                return None
            self._turn()
            at = 0
        entry = self._present[at]
        if entry[0] >= limit_ps:
            return None
        self._at = at + 1
        self.now_ps = entry[0]
        self.now_key = entry[1]
        return entry[2]

    def void(self, event: Event) -> None:
        """Nothing happens any more at an event that is pending."""
        slot = event.time_ps >> SLOT_BITS
        entries = self._present if slot <= self._number else self._lists[slot]
        at = next(at for at, entry in enumerate(entries) if entry[2] is event)
        super().void(event)
        entries[at] = (event.time_ps, event.key, event)

    def _turn(self) -> None:
        """The present slot is done with: it is the next one's turn."""
        self._number = heappop(self._numbers)
        self._present = self._lists.pop(self._number)
        self._at = 0
        try:
            self._present.sort()
        except TypeError:
            raise AssertionError(self._doubled()) from None

    def take_turn(self, until_ps: int) -> None:
        """Nothing is kept aside: its lists have all."""
        self.turn_end_ps = until_ps

    def next_time_ps(self) -> int:
        """The first pending event's time; NEVER_PS if none is pending."""
        if self._at < len(self._present):
            return self._present[self._at][0]
        if self._numbers:
            return min([entry[0] for entry in self._lists[self._numbers[0]]])
        return NEVER_PS

    def pending(self) -> list[Event]:
        """Every pending event in order."""
        return [event for _, _, event in sorted(self._entries(), key=lambda entry: entry[:2])]

    def clear(self) -> None:
        """Forget every pending event."""
        self._present = []
        self._at = 0
        self._number = -1
        self._lists = {}
        self._numbers = []

    def _entries(self) -> list[Entry]:
        """What is pending, in no order."""
        return self._present[self._at :] + [entry for slot in self._lists.values() for entry in slot]

    def _doubled(self, *more: Entry) -> str:
        """Which events are pending twice, in words."""
        seen: dict[tuple[int, int], int] = {}
        for time_ps, key, _ in (*self._entries(), *more):
            seen[time_ps, key] = seen.get((time_ps, key), 0) + 1
        twice = [entry for entry, count in seen.items() if count > 1]
        return "; ".join(f"pending twice at {time_ps} ps: {describe_key(key)}" for time_ps, key in twice)
