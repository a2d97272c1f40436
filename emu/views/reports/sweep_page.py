"""The report of a sweep: a curve of each number by each axis, with the distribution over seeds.

A chart for each number that was shown and each axis with several values. Lines are the combinations of the
other axes; a point is the median over seeds, the band reaches from the least to the greatest, and each seed
is a dot. Runs that failed are named, and left out of the curves.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Final

from emu.base.errors import UsageError
from emu.summary.verdict import shown_quantity
from emu.views.reports.html_file import chart_places, document, folded, table

TABLE: Final = "sweep.csv"
MOST_LINES: Final = 12
"""Lines of a chart, at most; the rest is in the table."""

Row = Mapping[str, str]


def is_sweep(directory: Path) -> bool:
    """Whether that is what `emu sweep --out` wrote."""
    return (directory / TABLE).is_file()


def sweep_page(directory: Path) -> str:
    """The page of a sweep. UsageError if its table cannot be read."""
    axes, shown, rows = _read(directory / TABLE)
    charts = [
        chart
        for path in shown
        for axis in axes
        if len({row[axis] for row in rows}) > 1
        if (chart := _chart(rows, axes, axis, path)) is not None
    ]
    title = f"sweep {directory.resolve().name}"
    return document(title, _body(title, axes, shown, rows, charts), {"charts": charts, "first": -1})


def _read(file: Path) -> tuple[list[str], list[str], list[Row]]:
    with file.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        columns, rows = list(reader.fieldnames or ()), list[Row](reader)
    if "seed" not in columns or "exit_status" not in columns:
        raise UsageError(f"{file}: not the table of a sweep; accepted: what `emu sweep --out` wrote")
    seed, status = columns.index("seed"), columns.index("exit_status")
    return columns[:seed], columns[seed + 1 : status], rows


def _chart(rows: Sequence[Row], axes: Sequence[str], axis: str, path: str) -> dict[str, Any] | None:
    """A number by an axis; None if no run has such a number, or all have the same."""
    others = [one for one in axes if one != axis and len({row[one] for row in rows}) > 1]
    lines: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        value = number_of(row[path])
        if value is not None and row["exit_status"] in ("0", "1"):
            name = ", ".join(f"{one.rpartition('.')[2]}={row[one]}" for one in others)
            lines.setdefault(name, {}).setdefault(row[axis], []).append(value)
    if len({value for line in lines.values() for values in line.values() for value in values}) < 2:
        return None
    numeric = all(number_of(x) is not None for line in lines.values() for x in line)
    return {
        "label": f"{path} by {axis}" + (f", the first {MOST_LINES} lines" if len(lines) > MOST_LINES else ""),
        "x": axis,
        "y": path,
        "lines": [
            {
                "name": name,
                "points": [
                    [
                        number_of(x) if numeric else x,
                        median(values),
                        sorted(values) if len(values) > 1 else [],
                    ]
                    for x, values in line.items()
                ],
            }
            for name, line in list(lines.items())[:MOST_LINES]
        ],
    }


def number_of(text: str) -> float | None:
    """A cell of a table as a number; None if it is none."""
    try:
        return float(Fraction(text))  # 1/8, too
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


def _body(
    title: str, axes: Sequence[str], shown: Sequence[str], rows: Sequence[Row], charts: Sequence[Any]
) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield '<ul class="found">'
    for axis in axes:
        values = list(dict.fromkeys(row[axis] for row in rows))
        yield f"<li>{escape(axis)}: {escape(', '.join(values))}</li>"
    yield f"<li>{len(rows)} runs, {len({row['seed'] for row in rows})} seeds</li></ul>"
    bad = [row for row in rows if row["exit_status"] != "0"]
    if bad:
        failed = [(*(row[axis] for axis in axes), row["seed"], row["message"]) for row in bad]
        yield f'<p class="bad">{len(bad)} runs did not end well</p>'
        yield table((*axes, "seed", "why"), failed)
    yield '<p class="quiet">A point is the median over seeds, a ring is one seed, the band reaches from the'
    yield " least to the greatest.</p>"
    yield from chart_places(charts)
    drawn = {chart["y"] for chart in charts}
    for path in shown:
        if path not in drawn:
            equal = list(dict.fromkeys(row[path] for row in rows if row[path]))
            value = number_of(equal[0]) if len(equal) == 1 else None
            same = equal[0] if value is None and equal else shown_quantity(path, value)
            reported = f"{same} in every run" if len(equal) == 1 else "no number to draw"
            yield f'<p class="quiet">{escape(path)}: {escape(reported)}</p>'
    head = (*axes, "seed", *shown)
    yield folded(
        f"All {len(rows)} runs as a table", table(head, [[row[one] for one in head] for row in rows])
    )
