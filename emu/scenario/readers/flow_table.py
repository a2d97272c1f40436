"""How are flows written as a table (CSV)?

The first line names the columns, in any order: `src` and `dst` (ranks); `size` with a unit ("1MiB") or
`size_bytes` without; optionally `start` with a unit or `start_ps` without. Empty lines and lines that begin
with # are skipped. Cells are handed on as text with the line they stand in; the scenario checks them as it
checks flows that are spelled out.
"""

from __future__ import annotations

import csv
import io
from typing import Final, NamedTuple

from emu.errors import FormatError
from emu.scenario.readers.foreign import limited

COLUMNS: Final = ("src", "dst", "size", "size_bytes", "start", "start_ps")
_UNITS: Final = {"size_bytes": "B", "start_ps": "ps"}
MAX_ROWS: Final = 2**20


class FlowTableError(FormatError):
    """A table that cannot be read."""


class FlowRow(NamedTuple):
    """One line: where it stands, and its cells by the names a scenario's flow has (src, dst, size, start)."""

    line: int
    cells: dict[str, str]


def read_flow_table(text: str) -> list[FlowRow]:
    """The rows of a table. Raises `FlowTableError` if the columns are not those above, or a row has
    others."""
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    columns: list[str] = []
    rows: list[FlowRow] = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped) or stripped[0].startswith("#"):
                continue
            if not columns:
                columns = _checked_columns(stripped, reader.line_num)
                continue
            if len(stripped) != len(columns):
                reason = f"{len(stripped)} cells under {len(columns)} columns"
                raise FlowTableError(reader.line_num, reason, ", ".join(columns))
            limited(FlowTableError, reader.line_num, len(rows) + 1, MAX_ROWS, "flows")
            rows.append(_row(columns, stripped, reader.line_num))
    except csv.Error as error:
        raise FlowTableError(reader.line_num, f"not CSV: {error}", "cells with commas between") from error
    if not rows:
        raise FlowTableError(max(reader.line_num, 1), "no flow in the table", "a line of columns, then flows")
    return rows


def _checked_columns(columns: list[str], line: int) -> list[str]:
    accepted = "src,dst,size (or size_bytes), and optionally start (or start_ps)"
    for column in columns:
        if column not in COLUMNS:
            raise FlowTableError(line, f"unknown column {column[:40]!r}", accepted)
        if columns.count(column) > 1:
            raise FlowTableError(line, f"column {column!r} twice", accepted)
    sizes = sum(column in ("size", "size_bytes") for column in columns)
    starts = sum(column in ("start", "start_ps") for column in columns)
    if "src" not in columns or "dst" not in columns or sizes != 1 or starts > 1:
        raise FlowTableError(line, f"columns {','.join(columns)}", accepted)
    return columns


def _row(columns: list[str], cells: list[str], line: int) -> FlowRow:
    named = {}
    for column, cell in zip(columns, cells, strict=True):
        unit = _UNITS.get(column, "")
        plain = cell.isascii() and cell.isdigit()
        named[column.removesuffix("_bytes").removesuffix("_ps")] = f"{cell}{unit}" if unit and plain else cell
    return FlowRow(line, named)
