"""Tallies: where devices write what they count, when somebody asks.

A fabric of 512 hosts has 200,000 counters, and a run may be scraped twice a second. So they go one after the
other into one table of native integers: compiled, a few ns each, and no object is made for any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mypy_extensions import i64

from actors.kernel.vectors import append, vec


class Tally:
    """Numbers, one behind the other."""

    def __init__(self) -> None:
        self.numbers: vec[i64] = vec[i64]()

    def add(self, number: i64) -> None:
        """One more."""
        self.numbers = append(self.numbers, number)

    def add_table(self, table: vec[i64]) -> None:
        """All of a table."""
        numbers = self.numbers
        count: i64 = len(table)
        at: i64 = 0
        while at < count:
            numbers = append(numbers, table[at])
            at += 1
        self.numbers = numbers

    def add_list(self, values: Sequence[int]) -> None:
        """All of a list."""
        for value in values:
            self.add(value)

    def __len__(self) -> int:
        return len(self.numbers)

    def listed(self) -> list[int]:
        """All of them."""
        return [int(number) for number in self.numbers]


def tally_of(rows: Iterable[Sequence[int]]) -> Tally:
    """The numbers of all rows."""
    tally = Tally()
    for row in rows:
        tally.add_list(row)
    return tally
