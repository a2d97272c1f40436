"""Reader of recorded jobs: traces of Acme, Helios, Philly and Alibaba, and a CSV of one's own. Key `trace`.

A trace is told by its content:

    CSV     `submit_time`, `gpu_num` and `duration`, or `start_time` and `end_time`, in any order among other
            columns: Acme (Kalos, Seren), Helios, an operator's own. `duration` is in seconds, a time is a
            date (with or without a zone) or a number of seconds.
    CSV     `num_gpu`, `creation_time`, `scheduled_time`, `deletion_time`: pods of Alibaba's cluster of 2023.
    CSV     `gpu_request`, `worker_num`, `submit_time`, `duration`: jobs of Alibaba's cluster of 2025.
    CSV     `inst_num`, `plan_gpu` (percent), `start_time`, `end_time`, `job_name`: Alibaba's tasks of 2020,
            whose first line is in a file beside them. A job is all its tasks; it is submitted when it starts.
    JSON    Philly's `cluster_job_log`. A job runs for as long as all its attempts, on the GPUs of the first.

The earliest submission of a job with GPUs is time 0. Left out and counted: jobs without a GPU, without a
length, that never ran. A share of a GPU is a GPU; more than a server's GPUs become whole servers.

Sources: InternLM/AcmeTrace (NSDI'24), S-Lab-System-Group/HeliosData (SC'21), msr-fiddle/philly-traces
(ATC'19), alibaba/clusterdata (cluster-trace-gpu-v2020, -v2023, cluster-trace-v2026-spot-gpu): each
`README.md`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from actors.fabric.model import Topology
from actors.kernel.mixing import Stream
from emu.base.errors import FormatError
from emu.base.outside import MOST_PARTS, json_of
from emu.base.spelling import listed
from emu.doors.weeks.campaign_file import YEAR_MS
from emu.doors.weeks.job_mix import MOST_JOBS, JobMix
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited

PURPOSE: Final = 1 << 26
"""Purpose of the stream that draws which jobs of a trace come."""
MOST_TRACE_BYTES: Final = 512 * 2**20
MOST_ROWS: Final = 4_000_000
MOST_GPUS: Final = 1 << 20
KNOWN: Final = (
    "a CSV with submit_time, gpu_num and duration (Acme, Helios), Alibaba's of 2020, 2023 or 2025, or "
    "Philly's JSON"
)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NOTHING: Final = ("", "nan", "None", "null", "NaT")


class TraceError(FormatError):
    """A job trace that cannot be read."""


class RecordedJob(NamedTuple):
    """A job of a trace."""

    submitted_ms: int
    name: str
    gpus: int
    lasts_ms: int
    waited_ms: int | None
    """As recorded."""


class Recorded(NamedTuple):
    """All jobs of a trace, by time of submission."""

    jobs: tuple[RecordedJob, ...]
    left_out: int
    """Without a GPU or a length, or that never ran."""


class TracedJobs(NamedTuple):
    """Jobs of a trace that come to a cluster."""

    jobs: tuple[RecordedJob, ...]
    """Submitted from the beginning of the window on."""
    recorded: int
    """Jobs of the whole trace."""
    left_out: int
    too_large: int
    """Jobs of the window that need more GPUs than the cluster has."""
    recorded_ms: tuple[int, int]
    """First and last submission of the trace."""


def chosen(trace: Recorded, mix: JobMix, topology: Topology) -> TracedJobs:
    """The jobs of a mix's window, at its scale."""
    section = mix.trace
    assert section is not None, mix.name
    size = max(len(topology.gpus) // max(len(topology.hosts), 1), 1)
    stream = Stream(mix.seed, 0, PURPOSE)
    found: list[RecordedJob] = []
    too_large = 0
    names: dict[str, int] = {}
    for one in trace.jobs:
        drawn = Fraction(stream.draw62(), 1 << 62)
        at_ms = one.submitted_ms - section.from_ms
        if not 0 <= at_ms < mix.lasts_ms or drawn >= section.share:
            continue
        gpus = max(ceil(one.gpus * section.gpus_times), 1)
        gpus = gpus if gpus < size else -(-gpus // size) * size
        if gpus > len(topology.gpus):
            too_large += 1
            continue
        count = names[one.name] = names.get(one.name, 0) + 1
        name = one.name if count == 1 else f"{one.name}-{count}"
        found.append(one._replace(submitted_ms=at_ms, gpus=gpus, name=name))
    span = (trace.jobs[0].submitted_ms, trace.jobs[-1].submitted_ms)
    return TracedJobs(tuple(found), len(trace.jobs), trace.left_out, too_large, span)


def read_trace(text: str) -> Recorded:
    """The jobs of a trace. Raises TraceError."""
    left_out = 0
    rows: list[tuple[float, str, int, float, float | None]] = []
    for row in _philly(text) if text.lstrip()[:1] in ("[", "{") else _table(text):
        submitted, name, gpus, lasts, waited = row
        if gpus < 1 or submitted is None or lasts is None or lasts <= 0:
            left_out += 1
            continue
        rows.append((submitted, name, gpus, lasts, waited))
        limited(TraceError, 1, len(rows), MOST_JOBS, "jobs with GPUs")
    if not rows:
        raise TraceError(1, f"has no job with a GPU and a length ({left_out} without)", KNOWN)
    zero = min(row[0] for row in rows)
    jobs = [
        RecordedJob(
            round((submitted - zero) * 1000),
            _name(name),
            gpus,
            min(max(round(lasts * 1000), 1), YEAR_MS),
            None if waited is None else max(round(waited * 1000), 0),
        )
        for submitted, name, gpus, lasts, waited in rows
    ]
    return Recorded(tuple(sorted(jobs)), left_out)


def _name(text: str) -> str:
    word = _NOT_IN_NAMES.sub("-", text).strip("-")[:48]
    return word if word[:1].isalpha() else f"job-{word}" if word else "job"


_Row = tuple[float | None, str, int, float | None, float | None]
"""Seconds of submission, name, GPUs, seconds of run time, seconds of waiting."""


def _table(text: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text))
    head = next((row for row in reader if any(cell.strip() for cell in row)), [])
    columns = {name.strip(): at for at, name in enumerate(head)}
    forms = [row_of for names, row_of in _FORMS if names <= columns.keys()]
    if not forms:
        raise TraceError(
            max(reader.line_num, 1),
            f"has the columns {listed([name[:LONGEST_SHOWN] for name in columns][:12])}",
            KNOWN,
        )
    row_of = forms[0]
    tasks: list[tuple[int, Mapping[str, str]]] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            line = reader.line_num
            limited(TraceError, line, line, MOST_ROWS, "lines")
            if len(row) != len(head):
                raise TraceError(line, f"{len(row)} cells in {len(head)} columns", ",".join(columns))
            cells = {name: row[at].strip() for name, at in columns.items()}
            if row_of is None:
                tasks.append((line, cells))
            else:
                yield row_of(line, cells)
    except csv.Error as error:
        raise TraceError(reader.line_num, f"is no CSV: {error}", KNOWN) from None
    yield from _jobs_of_tasks(tasks)


def _job(line: int, cells: Mapping[str, str]) -> _Row:
    """Acme, Helios, and a CSV of one's own."""
    submitted = _time(line, cells.get("submit_time", ""))
    start, end = (_time(line, cells.get(name, "")) for name in ("start_time", "end_time"))
    ran = end - start if start is not None and end is not None else _seconds(line, cells.get("duration", ""))
    waited = start - submitted if start is not None and submitted is not None else None
    return submitted, cells.get("job_id", ""), _gpus(line, cells["gpu_num"]), ran, waited


def _pod(line: int, cells: Mapping[str, str]) -> _Row:
    created, begun, gone = (
        _time(line, cells[name]) for name in ("creation_time", "scheduled_time", "deletion_time")
    )
    ran = gone - begun if begun is not None and gone is not None else None
    waited = begun - created if begun is not None and created is not None else None
    return created, cells.get("name", ""), _gpus(line, cells["num_gpu"]), ran, waited


def _workers(line: int, cells: Mapping[str, str]) -> _Row:
    gpus = _gpus(line, cells["gpu_request"], _gpus(line, cells["worker_num"]))
    ran = _seconds(line, cells["duration"])
    return _time(line, cells["submit_time"]), cells.get("job_name", ""), gpus, ran, None


def _jobs_of_tasks(tasks: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[_Row]:
    jobs: dict[str, list[tuple[int, float | None, float | None]]] = {}
    for line, cells in tasks:
        percent = _seconds(line, cells["plan_gpu"]) or 0.0
        gpus = _gpus(line, str(percent / 100), _gpus(line, cells["inst_num"]))
        start, end = (_time(line, cells[name]) for name in ("start_time", "end_time"))
        jobs.setdefault(cells["job_name"], []).append((gpus, start, end))
    for name, parts in jobs.items():
        starts = [start for _, start, _ in parts if start]
        ends = [end for _, _, end in parts if end]
        begun, gone = min(starts, default=None), max(ends, default=None)
        ran = gone - begun if begun is not None and gone is not None else None
        yield begun, name, sum(gpus for gpus, _, _ in parts), ran, None


_FORMS: Final[tuple[tuple[frozenset[str], Callable[[int, Mapping[str, str]], _Row] | None], ...]] = (
    (frozenset(("num_gpu", "creation_time", "scheduled_time", "deletion_time")), _pod),
    (frozenset(("gpu_request", "worker_num", "submit_time", "duration")), _workers),
    (frozenset(("job_name", "inst_num", "plan_gpu", "start_time", "end_time")), None),
    (frozenset(("submit_time", "gpu_num", "duration")), _job),
    (frozenset(("submit_time", "gpu_num", "start_time", "end_time")), _job),
)


def _philly(text: str) -> Iterator[_Row]:
    accepted = "a list of jobs with jobid, submitted_time and attempts"
    try:
        jobs = json_of(text, 2 * MOST_PARTS)
    except ValueError as error:
        raise TraceError(getattr(error, "lineno", 1), "is no JSON", accepted) from None
    if not isinstance(jobs, list):
        raise TraceError(1, "is no list of jobs", accepted)
    for at, job in enumerate(jobs):
        attempts = job.get("attempts") if isinstance(job, dict) else None
        if not isinstance(attempts, list) or "submitted_time" not in job:
            raise TraceError(1, f"job {at} has no submitted_time or attempts", accepted)
        submitted = _time(1, str(job["submitted_time"]))
        spans = [
            (start, end)
            for one in attempts
            if (start := _time(1, str(one.get("start_time", "")))) is not None
            and (end := _time(1, str(one.get("end_time", "")))) is not None
        ]
        waited = spans[0][0] - submitted if spans and submitted is not None else None
        ran = sum(end - start for start, end in spans) if spans else None
        yield submitted, str(job.get("jobid", "")), _philly_gpus(attempts), ran, waited


def _philly_gpus(attempts: Sequence[Any]) -> int:
    detail = attempts[0].get("detail") if attempts and isinstance(attempts[0], dict) else None
    if not isinstance(detail, list):
        return 0
    return sum(len(one.get("gpus") or ()) for one in detail if isinstance(one, dict))


def _time(line: int, text: str) -> float | None:
    """Seconds of a date or of a number of seconds; None where there is none."""
    if text in _NOTHING:
        return None
    try:
        return (
            float(Fraction(text))
            if text[:1].isdigit() and ":" not in text and "-" not in text
            else _date(text)
        )
    except (ValueError, ZeroDivisionError):
        accepted = 'a date like "2023-05-17 11:00:58+00:00", or seconds'
        raise TraceError(line, f"{text[:LONGEST_SHOWN]!r} is not a time", accepted) from None


def _date(text: str) -> float:
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()


def _seconds(line: int, text: str) -> float | None:
    if text in _NOTHING:
        return None
    try:
        found = float(text)
    except ValueError:
        raise TraceError(line, f"{text[:LONGEST_SHOWN]!r} is not a number", "a number of seconds") from None
    if not 0 <= found < 1e12:
        raise TraceError(line, f"{text[:LONGEST_SHOWN]} is out of range", "0 to 1e12")
    return found


def _gpus(line: int, text: str, times: int = 1) -> int:
    """GPUs, a share of one counted as one."""
    found = ceil((_seconds(line, text) or 0.0) * times)
    if found > MOST_GPUS:
        raise TraceError(line, f"{found} GPUs are too many", f"at most {MOST_GPUS}")
    return found
