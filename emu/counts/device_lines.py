"""What devices counted, in the decimal of `shown.jsonl` and `ports.csv`.

A module of its own because it is compiled: it looks at every counter of every device, and writes those that
are not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from actors.kernel.device import Series
from actors.kernel.vectors import vec
from emu.counts.lines import write_number

_COMMA: Final = 44
_END: Final = 10
_NONE: Final[i64] = -1
"""A cell of a counter that there is not."""


class CounterLines:
    """Counters of devices with one layout, as JSON has them."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._texts: list[bytes] = []
        """What stands before each number."""
        for one in series:  # names of counters and reasons are ASCII, and nothing in them is quoted
            self._texts.append(f'["{one.metric}",{one.port},{one.priority},"{one.reason}",'.encode())

    def write(self, out: BytesWriter, counters: Sequence[int]) -> bool:
        """Those that are not 0, as a list of place and value. Returns whether there are any."""
        found = False
        out.write(b"[")
        for at, value in enumerate(counters):
            if value != 0:
                if found:
                    out.append(_COMMA)
                found = True
                out.write(self._texts[at])
                write_number(out, value)
                out.write(b"]")
        out.write(b"]")
        return found


class PortCells:
    """Counters of devices with one layout, as the rows of their ports have them: counters are summed over
    priorities, and of gauges the largest is taken."""

    def __init__(
        self, series: Sequence[Series], column_of: Mapping[str, int], gauges: frozenset[str]
    ) -> None:
        ports = 1 + max([one.port for one in series], default=-1)
        self._columns: int = len(column_of)
        self._empty: list[int] = [int(_NONE)] * (ports * self._columns)
        cells: list[int] = []
        is_gauge: list[int] = []
        for one in series:
            column = column_of.get(f"{one.metric}_{one.reason}" if one.reason else one.metric, -1)
            cell = one.port * self._columns + column if one.port >= 0 and column >= 0 else -1
            cells.append(cell)
            is_gauge.append(1 if one.metric in gauges else 0)
            if cell >= 0:
                self._empty[cell] = 0
        self._cell_of: vec[i64] = vec[i64](cells)
        self._is_gauge: vec[i64] = vec[i64](is_gauge)
        self._cells: vec[i64] = vec[i64]()

    def read(self, counters: Sequence[int]) -> None:
        """The counters of the device whose ports are written next."""
        cells = vec[i64](self._empty)
        cell_of = self._cell_of
        for at, number in enumerate(counters):
            if number != 0:
                value: i64 = number
                cell: i64 = cell_of[at]
                if cell >= 0:
                    if self._is_gauge[at] == 0:
                        cells[cell] += value
                    elif value > cells[cell]:
                        cells[cell] = value
        self._cells = cells

    def write(self, out: BytesWriter, port: int) -> None:
        """The columns of one port, and the end of its row; empty where there is no such counter."""
        cells = self._cells
        at: i64 = port * self._columns
        end: i64 = at + self._columns
        while at < end:
            out.append(_COMMA)
            if at < len(cells) and cells[at] != _NONE:
                write_number(out, cells[at])
            at += 1
        out.append(_END)
