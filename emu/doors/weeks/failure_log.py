"""Reader of recorded failures: an operator's own log, and the fault trace of InfiniteHBD. Key `failures.log`.

Two forms, told by their content:

    CSV     a first line with the names of columns, in any order: `time`, `host`, `cause`, perhaps `repaired`.
            Times are dates (2025-03-30 08:00:00, with or without T, decimals and a zone) or spans from the
            beginning of the log (36.5h). `repaired` is when the host was back; empty where nobody knows. A
            failure without a host takes none out. Empty lines and lines that begin with # are skipped.
    JSON    the list of `fault_start` and `fault_end` events that comes with InfiniteHBD: `node_id`,
            `event_time` in days, and the `Class` of `fault_type` as the cause.

The earliest date is time 0. A cause's name becomes one word: "Power Supply" is power_supply.

Source: stepfun-ai/InfiniteHBD-Trace, `README.md` and `fault_trace.json` (SIGCOMM'25).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple

from emu.base.errors import FormatError
from emu.base.outside import MOST_PARTS, json_of
from emu.base.records import RefusedError
from emu.base.spelling import did_you_mean, listed
from emu.doors.weeks.campaign_file import SPAN, UNITS_MS
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited

MOST_RECORDS: Final = 100_000
MOST_CAUSES: Final = 1024
COLUMNS: Final = ("time", "host", "cause", "repaired")
REQUIRED: Final = COLUMNS[:3]
DATES: Final = 'a date like "2025-03-30 08:00:00", or a time from the beginning like "36.5h"'
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


class LogError(FormatError):
    """A failure log that cannot be read."""


class Record(NamedTuple):
    """One failure."""

    at_ms: int
    host: str
    """Empty where no host was named."""
    cause: str
    repaired_after_ms: int | None
    """Until the host was back; None where the log has no end of it."""


@dataclass(frozen=True, slots=True)
class FailureLog:
    """All failures of a log, in order of time."""

    records: tuple[Record, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that failed, by their first failure."""
        return tuple(dict.fromkeys(one.host for one in self.records if one.host))

    @property
    def causes(self) -> tuple[str, ...]:
        """Causes, by their first failure."""
        return tuple(dict.fromkeys(one.cause for one in self.records))

    @property
    def lasts_ms(self) -> int:
        """From its beginning to its last failure."""
        return self.records[-1].at_ms + 1


def read_log(text: str) -> FailureLog:
    """The failures of a text. Raises LogError."""
    first = text.lstrip()[:1]
    records = sorted(_events(text) if first in ("[", "{") else _rows(text))
    if not records:
        raise LogError(
            1, "has no failure", f"a CSV with the columns {listed(REQUIRED)}, or InfiniteHBD's JSON"
        )
    limited(LogError, 1, len({one.cause for one in records}), MOST_CAUSES, "causes")
    return FailureLog(tuple(records))


def cause_word(text: str) -> str:
    """A cause's name as a campaign writes it."""
    return _NOT_IN_NAMES.sub("_", text.lower()).strip("_")[:64]


def _rows(text: str) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(text))
    columns: list[str] = []
    found: list[tuple[int, int | datetime, int | datetime | None, str, str]] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            line = reader.line_num
            if not columns:
                columns = _columns(line, cells)
                continue
            if len(cells) != len(columns):
                raise LogError(line, f"{len(cells)} cells in {len(columns)} columns", ",".join(columns))
            limited(LogError, line, len(found), MOST_RECORDS - 1, "failures")
            cell = dict(zip(columns, cells, strict=True))
            cause = cause_word(cell["cause"])
            if not cause:
                raise LogError(line, "names no cause", "a word in the column cause")
            end = cell.get("repaired", "")
            found.append(
                (line, _time(line, cell["time"]), _time(line, end) if end else None, cell["host"], cause)
            )
    except csv.Error as error:
        raise LogError(reader.line_num, f"is no CSV: {error}", f"the columns {listed(REQUIRED)}") from None
    if not columns:
        raise LogError(1, "is empty", f"a first line with the columns {listed(REQUIRED)}")
    # Rows come in any order, and dates count from the earliest: nothing can be given before the last is read.
    dates = [one[1] for one in found if isinstance(one[1], datetime)]
    zero = min(dates) if dates else None
    for line, at, end_at, host, cause in found:
        if isinstance(at, datetime) != bool(dates):
            raise LogError(line, "mixes dates and times from the beginning", "one of them in the whole file")
        at_ms = _since(line, at, zero)
        back_ms = None if end_at is None else _since(line, end_at, zero) - at_ms
        if back_ms is not None and back_ms < 0:
            raise LogError(line, "is repaired before it failed", "a later time in the column repaired")
        yield Record(at_ms, host, cause, back_ms)


def _columns(line: int, cells: list[str]) -> list[str]:
    for name in cells:
        if name not in COLUMNS:
            raise LogError(
                line,
                f"there is no column {name[:LONGEST_SHOWN]!r}{did_you_mean(name, COLUMNS)}",
                listed(COLUMNS),
            )
    for name in REQUIRED:
        if cells.count(name) != 1:
            raise LogError(
                line,
                f"the column {name} is {'missing' if name not in cells else 'there twice'}",
                listed(REQUIRED),
            )
    return cells


def _time(line: int, text: str) -> int | datetime:
    try:
        at = SPAN.read(text)
        assert isinstance(at, int), at
    except RefusedError:
        pass
    else:
        return at
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise LogError(line, f"{text[:LONGEST_SHOWN]!r} is not a time", DATES) from None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _since(line: int, at: int | datetime, zero: datetime | None) -> int:
    """Milliseconds from the beginning of the log."""
    if isinstance(at, int) and zero is None:
        return at
    if isinstance(at, int) or zero is None:
        raise LogError(line, "mixes dates and times from the beginning", "one of them in the whole file")
    since = at - zero
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _events(text: str) -> Iterator[Record]:
    """Failures of InfiniteHBD's trace: a start with the end that follows at the same node and of the same
    kind."""
    accepted = "a list of events with node_id, event_time (days), event_type and fault_type"
    try:
        events = json_of(text, 2 * MOST_PARTS)
    except ValueError as error:
        raise LogError(getattr(error, "lineno", 1), "is no JSON", accepted) from None
    if not isinstance(events, list):
        raise LogError(1, "is no list of events", accepted)
    limited(LogError, 1, len(events), 2 * MOST_RECORDS, "events")
    begun: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for at, event in enumerate(events):
        node, at_ms, kind, fault = _event(at, event, accepted)
        key = (node, json.dumps(fault, sort_keys=True))
        if kind == "fault_start":
            begun.setdefault(key, []).append((at_ms, cause_word(str(fault.get("Class", "")))))
        elif begun.get(key):
            start_ms, cause = begun[key].pop(0)
            yield Record(start_ms, node, cause, at_ms - start_ms)
    for (node, _), open_ones in begun.items():
        for start_ms, cause in open_ones:
            yield Record(start_ms, node, cause, None)


def _event(at: int, event: Any, accepted: str) -> tuple[str, int, str, Mapping[str, Any]]:
    if not isinstance(event, dict):
        raise LogError(1, f"event {at} is no mapping", accepted)
    node, days, kind, fault = (
        event.get(key) for key in ("node_id", "event_time", "event_type", "fault_type")
    )
    if not isinstance(node, str) or not node:
        raise LogError(1, f"event {at} names no node", accepted)
    if not isinstance(days, int | float) or isinstance(days, bool) or not 0 <= days <= 36_600:
        raise LogError(1, f"event {at} has no time", "event_time in days, 0 to 36,600")
    if kind not in ("fault_start", "fault_end"):
        raise LogError(1, f"event {at} is neither fault_start nor fault_end", accepted)
    if not isinstance(fault, dict) or not cause_word(str(fault.get("Class", ""))):
        raise LogError(1, f"event {at} has no class of fault", "fault_type with Level, Class and Desc")
    return node, round(Fraction(str(days)) * UNITS_MS["d"]), str(kind), fault
