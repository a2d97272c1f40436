"""Published times beside emulated ones with `costs: default`, row by row.

    python -m tests.ncclx.costs_rows

Sources are split by name and never by row: the last bit of the sha256 of a source's name says whether a key
may be fitted to it (0) or it only judges (1). No key is fitted to any, so all judge. Rule and rows were
written before the first comparison.
"""

import csv
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from emu.api import prepare, run_prepared
from emu.engine.outcome import Observer, RunOptions
from emu.scenario.load import load_mapping
from emu.scenario.set_options import parse_override

ROWS = Path(__file__).with_suffix(".csv")
MIB = 1 << 20


class Row(NamedTuple):
    """A published time."""

    source: str
    gpu: str
    servers: int
    gpus: int
    link: str
    op: str
    algorithm: str
    settings: str
    size: int
    measured_us: float

    @property
    def setup(self) -> tuple[object, ...]:
        """What rows of one table have in common."""
        return self[:8]


def rows() -> list[Row]:
    """All published times."""
    with ROWS.open(encoding="utf-8") as file:
        return [
            Row(
                row["source"],
                row["gpu"],
                int(row["servers"]),
                int(row["gpus"]),
                row["link"],
                row["op"],
                row["algorithm"],
                row["settings"],
                int(row["bytes"]),
                float(row["measured_us"]),
            )
            for row in csv.DictReader(file)
        ]


def judges(source: str) -> bool:
    """Whether no key may be fitted to a source."""
    return hashlib.sha256(source.encode()).digest()[-1] % 2 == 1


def topology(servers: int, gpus: int, link: str) -> dict[str, Any]:
    """Servers at one switch: what a fabric costs by collisions is no cost of the library."""
    return {"kind": "star", "hosts": servers, "gpus_per_host": gpus, "link": link}


def emulated(table: list[Row]) -> Iterator[tuple[Row, float]]:
    """Rows of one table with the times of a run."""
    one = table[0]
    workload = {
        "kind": "collective",
        "op": one.op,
        "algorithm": one.algorithm,
        "sizes": [f"{row.size}B" for row in table],
    }
    plain = {
        "name": "rows",
        "costs": "default",
        "gpu": {"model": one.gpu},
        "topology": topology(one.servers, one.gpus, one.link),
        "jobs": [{"name": "bench", "workload": workload}],
    }
    loaded = load_mapping(plain, overrides=[parse_override(text) for text in one.settings.split()])
    result = run_prepared(prepare(loaded), RunOptions(local=True), Observer(), diagnose=False)
    for row, found in zip(table, result.summary.jobs["bench"].collectives, strict=True):
        yield row, ((found.end_ps or 0) - (found.start_ps or 0)) / 1e6


def part_of(size: int) -> str:
    """Which of the bounds of a judged source is for a size."""
    return "below 16 MiB" if size < 16 * MIB else "from 64 MiB" if size >= 64 * MIB else "between"


def main() -> None:
    """Print every row with its error, and the medians of each source."""
    tables: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows():
        tables[row.setup].append(row)
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for table in tables.values():
        for row, found_us in emulated(table):
            error = found_us / row.measured_us - 1
            errors[row.source, part_of(row.size)].append(abs(error))
            where = f"{row.source:32} {row.servers}x{row.gpus} {row.gpu} {row.algorithm:18}"
            sys.stdout.write(f"{where} {row.size:>10} {row.measured_us:>9} {found_us:>9.1f} {error:+6.0%}\n")
            sys.stdout.flush()
    for (source, part), found in errors.items():
        role = "judges" if judges(source) else "may be fitted to"
        sys.stdout.write(f"{source:32} {role:16} {part:12} {len(found):3} rows, median {median(found):.0%}\n")


if __name__ == "__main__":
    main()
