"""Which rows of the columns of `samples.jsonl` grew, and by how much; which counters moved at all.

A module of its own because it is compiled: it looks at every counter that changed.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.vectors import append, vec

NOT_KEPT = -1


class Kept:
    """Of devices with one layout: by place, the column (`NOT_KEPT`: none) and which of its own rows there."""

    def __init__(self, columns: list[int], nth: list[int]) -> None:
        self.columns: vec[i64] = vec[i64](columns)
        self.nth: vec[i64] = vec[i64](nth)


class Grown:
    """Of one device: its first row in every column, and what its counters were when last heard of."""

    def __init__(self, kept: Kept, first: list[int]) -> None:
        self.kept: Kept = kept
        self.first: vec[i64] = vec[i64](first)
        self.last: vec[i64] = vec[i64]([0] * len(kept.columns))

    def add(self, changed: list[int], rows: list[list[int]], grown: list[list[int]]) -> None:
        """What changed, place and new value in turn: put rows and their growth into the lists of columns."""
        columns = self.kept.columns
        nth = self.kept.nth
        first = self.first
        last = self.last
        at: i64 = 0
        while at < len(changed):
            place: i64 = changed[at]
            value: i64 = changed[at + 1]
            column: i64 = columns[place]
            if column >= 0 and value != last[place]:
                rows[column].append(int(first[column] + nth[place]))
                grown[column].append(int(value - last[place]))
                last[place] = value
            at += 2


class Nonzero:
    """Which counters of one device were seen to be other than 0."""

    def __init__(self) -> None:
        self._seen: vec[i64] = vec[i64]()

    def add(self, changed: list[int]) -> list[int]:
        """What changed, place and new value in turn: the places that were 0 so far and no longer are."""
        found: list[int] = []
        at: i64 = 0
        while at < len(changed):
            place: i64 = changed[at]
            value: i64 = changed[at + 1]
            if value != 0 and self._is_new(place):
                found.append(int(place))
            at += 2
        return found

    def _is_new(self, place: i64) -> bool:
        seen = self._seen
        while len(seen) <= place:
            seen = append(seen, 0)
        self._seen = seen
        if seen[place] != 0:
            return False
        seen[place] = 1
        return True
