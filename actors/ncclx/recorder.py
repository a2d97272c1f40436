"""What does a rank remember of its last operations, and of what went wrong?

The *flight recorder* keeps when each of the last operations was created, when it started and when it was
over, as PyTorch's does: those of a rank that hangs show who is behind. A *failure* is an error completion or
the watchdog's end of an operation; it names what the rank then waited for: a peer, and the queue pair.

Source: PyTorch, `FlightRecorder.hpp` (ring buffer per rank), `ProcessGroupNCCL.cpp` (watchdog).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from emu.kernel.device import Plain
from emu.kernel.state import as_int, as_list

WAITS_NOTHING: Final[i64] = 0
WAITS_DATA: Final[i64] = 1
WAITS_CTS: Final[i64] = 2
WAITS_ACKNOWLEDGEMENT: Final[i64] = 3
FAILED: Final[i64] = 4
"""The queue pair went into error."""


class Recorder:
    """Of one rank. `most` operations are kept."""

    def __init__(self, most: int) -> None:
        self.most: i64 = most
        self.flights: list[list[int]] = []
        """operation, begun_ps, end_ps (-1 while it runs)."""
        self.failures: list[list[int]] = []
        """operation, status, what it waited for, peer, host's port, queue pair's number, at_ps."""

    def begin(self, operation: i64, now: i64) -> None:
        """An operation begins."""
        if self.most == 0:
            return
        if len(self.flights) == self.most:
            self.flights.pop(0)
        self.flights.append([operation, now, -1])

    def end(self, end_ps: i64) -> None:
        """The present operation is over."""
        if self.flights:
            self.flights[-1][2] = end_ps

    def save(self) -> list[Plain]:
        """What is remembered."""
        flights: list[Plain] = [list[Plain](row) for row in self.flights]
        failures: list[Plain] = [list[Plain](row) for row in self.failures]
        return [flights, failures]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        flights, failures = as_list(state)
        self.flights = [[as_int(value) for value in as_list(row)] for row in as_list(flights)]
        self.failures = [[as_int(value) for value in as_list(row)] for row in as_list(failures)]
