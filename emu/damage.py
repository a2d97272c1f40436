"""Which file of a run directory is damaged, found out once a command could not read it.

Readers trust what a run wrote: checking each value of a large directory would cost more than reading it.
Where a command fails in a way that nobody foresaw, every file of the directories that it was given is looked
at, value by value, and the first that no run would have written is named.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from emu.base.errors import EmuError
from emu.run_directory.comparison import load_summary
from emu.run_directory.samples import SampleReader, read_digests
from emu.scenario.load import load
from emu.stored_run import stored_run


def damage_of(directory: Path) -> str:
    """The first damaged file of a run directory and what is wrong with it, in a line; empty if none is."""
    for name, check in _CHECKS.items():
        file = directory / name
        if file.is_file():
            try:
                check(file)
            except EmuError as error:
                line = str(error).splitlines()[0]
                return line if str(file) in line else f"{file}: damaged: {line}"
            except Exception as error:  # noqa: BLE001  whatever a reader makes of what no run wrote
                return f"{file}: damaged: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def _samples(file: Path) -> None:
    reader = SampleReader(file)
    for changed in reader.changes():
        _integers([changed.virtual_ps, *(one for flat in changed.changed.values() for one in flat)])


def _shown(file: Path) -> None:
    numbers = [_shown_device(one) for one in _records(file)]
    if numbers != list(range(len(numbers))) or not numbers:
        raise ValueError(f"has devices {numbers[:3]}, not all from 0")


def _shown_device(record: Mapping[str, Any]) -> int:
    assert isinstance(record["name"], str), record["name"]
    for metric, port, priority, reason, value in record["counters"]:
        assert isinstance(metric, str) and isinstance(reason, str), metric
        _integers([port, priority, value])
    for name, rows in record["tables"].items():
        assert isinstance(name, str) and isinstance(rows, list), name
    return int(record["device"])


def _timeline(file: Path) -> None:
    for record in _records(file):
        assert isinstance(record["name"], str), record["name"]
        for event in record["events"]:
            assert len(event) == 8 and event[0] >= 0, event
            _integers(event)


def _table(file: Path) -> None:
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if not all(name.isidentifier() for name in reader.fieldnames or ("",)):
            raise ValueError("does not begin with the names of its columns")
        for number, row in enumerate(reader, 2):
            for key, value in row.items():
                if key is None or value is None:
                    raise ValueError(f"line {number} has another number of columns than its head")
                if key.endswith(("_ps", "_bytes", "_frames", "port", "iteration", "bytes")):
                    _number(value, number, key)


def _number(value: str, line: int, key: str) -> None:
    try:
        float(value or 0)
    except ValueError:
        raise ValueError(f"line {line}, {key}: {value[:40]!r} is no number") from None


def _workers(file: Path) -> None:
    for worker in json.loads(file.read_text("utf-8"))["workers"]:
        assert isinstance(worker["metrics_address"], str), worker


def _records(file: Path) -> Iterator[Any]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _integers(values: list[Any]) -> None:
    for one in values:
        if type(one) is not int:
            raise ValueError(f"{one!r} is no integer")


_CHECKS: Final[Mapping[str, Callable[[Path], object]]] = {
    "summary.json": load_summary,
    "scenario.yaml": load,
    "journal.jsonl": lambda file: stored_run(file.parent),
    "digests.jsonl": read_digests,
    "samples.jsonl": _samples,
    "shown.jsonl": _shown,
    "timeline.jsonl": _timeline,
    **dict.fromkeys(("ports.csv", "collectives.csv", "flows.csv", "trace.csv", "events.csv"), _table),
    "workers.json": _workers,
}
