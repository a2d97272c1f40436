"""The event queue where the interpreter runs.

The wheel of `actors.kernel.queue` is made of operations that cost a nanosecond compiled and a hundred
interpreted. Here the standard library's heap of (time, key, event) does the same, in C: an interpreted run is
a third faster, in the same order. A property test runs both against each other.
"""

from __future__ import annotations

from heapq import heappop, heappush

from actors.kernel.event import NEVER_PS, Event, describe_key
from actors.kernel.queue import EventQueue


class HeapQueue(EventQueue):
    """The pending events of one partition, and its clock, for an interpreted run."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, int, Event]] = []

    def __len__(self) -> int:
        """How many events are pending."""
        return len(self._heap)

    def push(self, event: Event) -> None:
        """Make an event pending."""
        try:
            heappush(self._heap, (event.time_ps, event.key, event))
        except TypeError:  # the heap came to compare two events: their time and key are equal
            raise AssertionError(self._doubled()) from None

    def pop(self, limit_ps: int) -> Event | None:
        """Take the first event before `limit_ps`."""
        heap = self._heap
        try:
            if heap and heap[0][0] < limit_ps:
                return heappop(heap)[2]
        except TypeError:
            raise AssertionError(self._doubled()) from None
        return None

    def next_time_ps(self) -> int:
        """The first pending event's time; NEVER_PS if none is pending."""
        return self._heap[0][0] if self._heap else NEVER_PS

    def pending(self) -> list[Event]:
        """Every pending event in order."""
        return [event for _, _, event in sorted(self._heap, key=lambda entry: entry[:2])]

    def clear(self) -> None:
        """Forget every pending event."""
        self._heap = []

    def _doubled(self) -> str:
        """Which events are pending twice, in words."""
        seen: dict[tuple[int, int], int] = {}
        for time_ps, key, _ in self._heap:
            seen[time_ps, key] = seen.get((time_ps, key), 0) + 1
        twice = [entry for entry, count in seen.items() if count > 1]
        return "; ".join(f"pending twice at {time_ps} ps: {describe_key(key)}" for time_ps, key in twice)
