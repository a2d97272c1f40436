"""How long a clear-to-send waits on its way.

A CTS carries the time at which it was posted, as a profiler with synchronised clocks would put it into the
FIFO's entry: in units of 1,024 ps, modulo 2**32 of them (4.4 s). The rank that it admits takes from its
flight the *unloaded flight*, which follows from configuration alone (see `actors.ncclx.transport.flight`):
what is left it waited for other traffic, in its class's queues, for a frame in progress, or because the class
was paused.

Waits are counted in buckets: exact below 64 units, above that 32 buckets per doubling, so a bucket is at
most 3 % wide and its lower end is what is reported; the largest wait is kept as it is.

Not modelled: clocks that differ.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, load_fields, save_fields

UNIT_BITS: Final[i64] = 10
_STAMP_MASK: Final[i64] = 0xFFFFFFFF
_FINE: Final[i64] = 64
_FINE_BITS: Final[i64] = 5

_FIELDS: Final = ("count", "total_ps", "most_ps", "operation_most_ps", "closed")


def stamp(now: i64) -> i64:
    """What a CTS that is posted now carries."""
    return (now >> UNIT_BITS) & _STAMP_MASK


def waited_ps(stamped: i64, now: i64, unloaded_ps: i64) -> i64:
    """How long a CTS waited; 0 where less than a unit is left."""
    flight_ps: i64 = (((now >> UNIT_BITS) - stamped) & _STAMP_MASK) << UNIT_BITS
    wait_ps: i64 = flight_ps - unloaded_ps
    return wait_ps if wait_ps >> UNIT_BITS > 0 else 0


def bucket_ps(wait_ps: i64) -> i64:
    """The lower end of the bucket that a wait falls into."""
    units: i64 = wait_ps >> UNIT_BITS
    shift: i64 = 0
    while (units >> shift) >= _FINE:
        shift += 1
    return (units >> shift) << shift << UNIT_BITS


class Waits:
    """The waits of one rank: in all, and by operation."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.total_ps: i64 = 0
        self.most_ps: i64 = 0
        self.operation_most_ps: i64 = 0
        """The largest of the present operation."""
        self.closed: i64 = -1
        """The largest number of an operation that was over."""
        self._buckets: dict[int, int] = {}
        """Of the present operation: how many waits by lower end."""
        self._rows: list[list[int]] = []

    def add(self, wait_ps: i64) -> None:
        """Count a wait of the present operation."""
        self.count += 1
        self.total_ps += wait_ps
        if wait_ps > self.most_ps:
            self.most_ps = wait_ps
        if wait_ps > self.operation_most_ps:
            self.operation_most_ps = wait_ps
        at: i64 = bucket_ps(wait_ps)
        self._buckets[at] = self._buckets.get(at, 0) + 1

    def close(self, job: i64, operation: i64) -> None:
        """The operation is over here: note its rows."""
        if operation > self.closed:
            self.closed = operation
        else:  # the job began again: what it waited in the round before is forgotten
            self._rows = [row for row in self._rows if row[1] != operation]
        if self._buckets:
            self._rows += self._open_rows(job, operation)
        self._buckets = {}
        self.operation_most_ps = 0

    def rows(self, job: i64, operation: i64) -> list[list[int]]:
        """(job, operation, wait_ps, how many) of all operations, the present one as far as it is."""
        return self._rows + self._open_rows(job, operation)

    def _open_rows(self, job: i64, operation: i64) -> list[list[int]]:
        largest: i64 = bucket_ps(self.operation_most_ps)
        rows: list[list[int]] = []
        for at in sorted(self._buckets):
            count: i64 = self._buckets[at]
            if at == largest:
                rows.append([job, operation, self.operation_most_ps, 1])
                count -= 1
            if count > 0:
                rows.append([job, operation, at, count])
        return rows

    def save(self) -> list[Plain]:
        """The waits so far."""
        buckets: list[Plain] = [[at, count] for at, count in self._buckets.items()]
        rows: list[Plain] = [list[Plain](row) for row in self._rows]
        return [save_fields(self, _FIELDS), buckets, rows]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        fields, buckets, rows = as_list(state)
        load_fields(self, _FIELDS, fields)
        self._buckets = {}
        for entry in as_list(buckets):
            at, count = as_list(entry)
            self._buckets[as_int(at)] = as_int(count)
        self._rows = [[as_int(value) for value in as_list(row)] for row in as_list(rows)]
