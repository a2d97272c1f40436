"""The table of a sweep.

It has a row for each run, in the order of the sweep: the values of its axes, its seed where there are
several, how it ended, and what was asked to be shown. Or, with `mean`, a row for each combination, with the
mean over its seeds of every number, or, with `quantiles`, rows for each combination, with quantiles over its
seeds of each number by itself; a run without a value is left out of it, and the status is the worst.

For reading, numbers have the unit that their path's last word names. CSV and JSON have them as in
`summary.json`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from emu.base.units import folded
from emu.results.percentiles import nearest_rank
from emu.results.places import Bound
from emu.results.summary import Summary
from emu.scenario.set_options import labels
from emu.summary.verdict import NOTHING, shown_quantity

INTERRUPTED: Final = 130
STATUS_NAMES: Final = {
    0: "ok",
    1: "expectation failed",
    2: "bad input",
    3: "stalled",
    4: "failed",
    130: "interrupted",
}
QUANTILES: Final = (("least", 0), ("p25", 250), ("p50", 500), ("p75", 750), ("p95", 950), ("most", 1000))


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a sweep."""

    settings: tuple[str, ...]
    """The value of each axis, as written."""
    seed: int | None
    """None where the scenario could not be read."""
    exit_status: int
    """As the command's `emu run` would have been."""
    digest: str = ""
    values: Mapping[str, Bound | None] = field(default_factory=dict)
    """By path; None where it leads nowhere."""
    message: str = ""
    """Why the status is not 0."""
    uplink: float | None = None
    """Share of the time in which jobs ran that the busiest uplink sent; None without uplinks."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All rows of a sweep. `keys` are the axes, `paths` what is shown of every run."""

    keys: tuple[str, ...]
    paths: tuple[str, ...]
    rows: tuple[Row, ...]
    seeds: int = 1

    def exit_status(self) -> int:
        """The worst of the runs."""
        return max((row.exit_status for row in self.rows), default=0)

    def _combinations(self) -> list[list[Row]]:
        """The rows of each combination: one for each seed."""
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.settings, []).append(row)
        return list(groups.values())

    def mean(self) -> SweepTable:
        """A row for each combination: its seeds' mean."""
        rows = tuple(_over_seeds(self.paths, of_one, _mean) for of_one in self._combinations())
        return SweepTable(self.keys, self.paths, rows)

    def quantiles(self) -> SweepTable:
        """Rows for each combination: the quantiles over its seeds."""
        rows = tuple(
            _over_seeds(self.paths, of_one, partial(_quantile, permille=permille), name)
            for of_one in self._combinations()
            for name, permille in QUANTILES
        )
        return SweepTable((*self.keys, "quantile"), self.paths, rows)

    def text(self, width: int = 0) -> list[str]:
        """Lines for reading, no wider than `width` where that can be."""
        varying = [at for at in range(len(self.keys)) if len({row.settings[at] for row in self.rows}) > 1]
        head = [
            *short_names([self.keys[at] for at in varying]),
            *(["seed"] if self.seeds > 1 else []),
            *short_names(self.paths),
            "status",
        ]
        table = [head]
        names = [labels([row.settings[at] for row in self.rows]) for at in varying]
        for row in self.rows:
            seed = [NOTHING if row.seed is None else str(row.seed)] if self.seeds > 1 else []
            table.append(
                [
                    *(named[row.settings[at]] for named, at in zip(names, varying, strict=True)),
                    *seed,
                    *(shown_quantity(path, row.values.get(path)) for path in self.paths),
                    STATUS_NAMES.get(row.exit_status, str(row.exit_status)),
                ]
            )
        keys = len(varying) + (self.seeds > 1)
        fixed = [
            f"{key}={self.rows[0].settings[at]}" for at, key in enumerate(self.keys) if at not in varying
        ]
        return [*([f"with {', '.join(fixed)}"] if fixed and self.rows else []), *folded(table, keys, width)]

    def unchanged(self) -> list[str]:
        """The axes of several values that changed nothing shown in any run, each in words, with how busy the
        busiest uplink was: what nothing runs through cannot matter."""
        lines = []
        for at, key in enumerate(self.keys):
            groups: dict[tuple[object, ...], list[Row]] = {}
            for row in self.rows:
                groups.setdefault((*row.settings[:at], *row.settings[at + 1 :], row.seed), []).append(row)
            equal = [rows for rows in groups.values() if len({row.settings[at] for row in rows}) > 1]
            if not equal or not all(_shown_equal(rows) for rows in equal):
                continue
            loads = [row.uplink for row in self.rows if row.uplink is not None]
            load = f"; no uplink was busy for more than {max(loads):.1%} of a run" if loads else ""
            same = all(len({row.digest for row in rows}) == 1 for rows in equal)
            what = (
                "the runs are the same to the last packet" if same else "the runs differ in what is not shown"
            )
            lines.append(f"{key} changed nothing that is shown: {what}{load}")
        return lines

    def csv_text(self) -> str:
        """The table with every value as in `summary.json`."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*self.keys, "seed", *self.paths, "exit_status", "digest", "message"])
        for row in self.rows:
            values = [_csv_cell(row.values.get(path)) for path in self.paths]
            seed = "" if row.seed is None else row.seed
            writer.writerow([*row.settings, seed, *values, row.exit_status, row.digest, row.message])
        return out.getvalue()

    def json_text(self) -> str:
        """A list of runs."""
        rows: list[dict[str, Any]] = [
            {
                "set": dict(zip(self.keys, row.settings, strict=True)),
                "seed": row.seed,
                "values": {path: row.values.get(path) for path in self.paths},
                "exit_status": row.exit_status,
                "digest": row.digest,
                "message": row.message,
            }
            for row in self.rows
        ]
        return json.dumps(rows, indent=2)


def short_names(names: Sequence[str]) -> list[str]:
    """The last two words of each path, or all of it where that is not one path's alone."""
    short = [".".join(name.split(".")[-2:]) for name in names]
    return [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]


def _csv_cell(value: Bound | None) -> Bound:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _shown_equal(rows: Sequence[Row]) -> bool:
    """Whether runs that ended well show the same, and something at all."""
    first = rows[0]
    shown = any(value is not None for value in first.values.values())
    return shown and all(row.exit_status == 0 and row.values == first.values for row in rows)


def busiest_uplink(summary: Summary) -> float | None:
    """Share of the time in which jobs ran that the busiest uplink sent; None without uplinks."""
    ups = {(row.switch, other) for row in summary.fabric.uplinks for other in row.towards}
    found = [one.utilisation for one in summary.fabric.links if (one.source, one.destination) in ups]
    return max(found, default=None)


def _mean(numbers: Sequence[float]) -> float:
    """The mean, which is one of the numbers where all are the same."""
    return numbers[0] if len(set(numbers)) == 1 else round(sum(numbers) / len(numbers), 6)


def _quantile(numbers: Sequence[float], permille: int) -> float:
    """Of n seeds the value of rank ceil(n x permille / 1000)."""
    return nearest_rank(sorted(numbers), permille)


def _over_seeds(
    paths: Sequence[str], rows: Sequence[Row], figure: Callable[[Sequence[float]], Bound], *name: str
) -> Row:
    """One row for the seeds of a combination: that figure of each number by itself; else what all have."""
    values: dict[str, Bound | None] = {}
    for path in paths:
        found = [value for value in (row.values.get(path) for row in rows) if value is not None]
        numbers = [
            value for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if numbers and len(numbers) == len(found):
            values[path] = figure(numbers)
        else:
            values[path] = found[0] if len(set(found)) == 1 else None
    worst = max(rows, key=lambda row: row.exit_status)
    return Row((*rows[0].settings, *name), rows[0].seed, worst.exit_status, "", values, worst.message)
