"""Rows of CSV files, by the names that a scenario has for their cells."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from emu.base.errors import FormatError


class Row(NamedTuple):
    """One line: where it stands, and its cells by the names that a scenario has for them."""

    line: int
    cells: dict[str, str]


def csv_rows(text: str, error: type[FormatError]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV file that say something, by number."""
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and not stripped[0].startswith("#"):
                yield reader.line_num, stripped
    except csv.Error as broken:
        raise error(reader.line_num, f"not CSV: {broken}", "cells with commas between") from broken


def as_many(error: type[FormatError], line: int, cells: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a row with more or fewer cells than columns."""
    if len(cells) != len(columns):
        reason = f"{len(cells)} cells under {len(columns)} columns"
        raise error(line, reason, ", ".join(columns))
