"""When did a counter first move?

Of every counter of every device the two samples between which it left its first value: the last one without
and the first one with. That is all that is kept of a run's samples, so it does not grow with time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import ne
from typing import Any, NamedTuple

from actors.kernel.device import Series
from emu.measure.collected import Sample


class Moved(NamedTuple):
    """A counter moved after one sample and by the time of another."""

    after_ps: int
    by_ps: int


class Moves:
    """Hears samples in order, or the lines of `samples.jsonl`."""

    def __init__(self) -> None:
        self._first: dict[int, dict[int, Moved]] = {}
        self._last: dict[int, Sequence[int]] = {}
        self._last_ps = 0

    def add(self, sample: Sample) -> None:
        """The next sample."""
        after_ps, self._last_ps = self._last_ps, sample.virtual_ps
        for number, values in sample.counters.items():
            last = self._last.get(number)
            if last is values:
                continue
            self._last[number] = values
            if last is None:
                last = [0] * len(values)
            changed = list(compress(range(len(values)), map(ne, last, values)))
            self._note(number, changed, Moved(after_ps, sample.virtual_ps))

    def add_record(self, record: Mapping[str, Any]) -> None:
        """The next line of `samples.jsonl`."""
        at_ps = record["virtual_ps"]
        after_ps, self._last_ps = self._last_ps, at_ps
        for number, flat in record["changed"].items():
            self._note(int(number), flat[::2], Moved(after_ps, at_ps))

    def _note(self, number: int, places: Sequence[int], moved: Moved) -> None:
        first = self._first.setdefault(number, {})
        for place in places:
            if place not in first:
                first[place] = moved

    def of_metric(self, series: Mapping[int, Sequence[Series]]) -> dict[tuple[str, int, int, str], Moved]:
        """(metric, device, port, reason) to when the earliest of its counters moved."""
        found: dict[tuple[str, int, int, str], Moved] = {}
        for number, first in self._first.items():
            counted = series.get(number, ())
            for place, moved in first.items():
                if place < len(counted):
                    one = counted[place]
                    key = (one.metric, number, one.port, one.reason)
                    known = found.get(key)
                    if known is None or moved < known:
                        found[key] = moved
        return found
