"""The run directory: its files, written and read back.

    scenario.yaml      the effective scenario, every default spelled out
    summary.json       the outcome (`emu.results.summary`)
    ports.csv flows.csv collectives.csv
    journal.jsonl      scenario, faults, sync points, end
    samples.jsonl digests.jsonl    counters and mixes at sync points (`emu.run_directory.samples`)
    shown.jsonl        what devices show at the end (`emu.counts.device_state`)
    trace.csv timeline.jsonl    of `run.trace` and `run.event_log` (`emu.run_directory.recorded`)
    parent.json        of a fork: the run it continues, from when, and what was changed
    workers.json       which worker hosts what, written by the runtime as soon as they are up
    captures/          pcapng files of `run.capture` (`emu.views.captures.pcapng`)
    snapshots/         what a run that broke off can go on from, written by the runtime

Without a directory given, `runs/NAME-N` is made, N the least number not taken. A directory that exists is
used if it is empty or holds a run that never began, or, with `force`, an earlier run and nothing else, which
is then replaced; anything else is refused, so that a slip of the tongue never mixes results with somebody's
files.

Whole files appear at once: they are written beside their place and moved there. Line files grow by whole
lines, so that what an interrupted run leaves can be read. Directories are made 0700 and files 0600.

Tables (`ports.csv`, `flows.csv`, `collectives.csv`) are CSV with a header line, numbers without units in the
base units of the columns' names, an empty cell for what there is none of. Rows come in the order of the
topology (ports) or of the plan (flows, collectives), so the files of two placements are equal byte for byte.

The columns of `ports.csv` are read off the declaration of series: counters are summed over priorities, peaks
are the largest among them, drops have a column for each reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from librt.strings import BytesWriter

from actors.fabric.model import Topology
from actors.kernel.counters import DEVICE_METRICS, Kind
from emu.base.errors import RuntimeFailure, UsageError
from emu.counts.collected import ByCounters, Changed, DeviceRecord
from emu.counts.device_lines import PortCells
from emu.counts.device_state import shown_lines
from emu.results.metrics import DROP_REASONS
from emu.results.summary import Collective, Flow, Job, Summary
from emu.run_directory.recorded import Cell, csv_text, event_records, trace_csv
from emu.run_directory.samples import (
    Counted,
    SampleReader,
    SampleWriter,
    digest_header,
    line,
    mixed_since,
    mixes_line,
)


def _port_columns() -> list[str]:
    columns: list[str] = []
    for metric in DEVICE_METRICS:
        if "reason" in metric.labels:
            columns += [f"{metric.key}_{reason}" for reason in DROP_REASONS]
        elif "port" in metric.labels:
            columns.append(metric.key)
    return columns


def ports_csv(topology: Topology, records: Iterable[DeviceRecord]) -> str:
    """One row for each fabric port of the devices that did anything."""
    columns = _port_columns()
    header = ["device", "port", "peer", "peer_port", "link", "rate_bps", *columns]
    column_of = {column: place for place, column in enumerate(columns)}
    gauges = frozenset(one.key for one in DEVICE_METRICS if one.kind is Kind.GAUGE)
    cells_of = ByCounters(lambda series: PortCells(series, column_of, gauges))
    names = [_csv_cell(node.name) for node in topology.nodes]
    out = BytesWriter()
    out.write(csv_text(header, ()).encode())
    for record in sorted(records, key=lambda one: one.number):
        if record.idle:
            continue
        cells = cells_of.of(record.series)
        cells.read(record.counters)
        name = names[record.number]
        for port, end in enumerate(topology.ports(record.number)):
            if end.kind == "fabric":
                link = _csv_cell(topology.links[end.link].name)
                place = f"{name},{port},{names[end.peer]},{end.peer_port},{link},{end.rate_bps}"
                out.write(place.encode())
                cells.write(out, port)
    return out.getvalue().decode()


def _csv_cell(text: str) -> str:
    """A text as a cell of a row."""
    plain = text.isprintable() and "," not in text and '"' not in text
    return text if plain else csv_text([text], ()).removesuffix("\n")


def flows_csv(jobs: Mapping[str, Job]) -> str:
    """One row for each flow of each job."""
    columns = list(Flow.model_fields)
    rows = (
        [name, *(getattr(flow, column) for column in columns)]
        for name, job in jobs.items()
        for flow in job.flows
    )
    return csv_text(["job", *columns], rows)


OPERATIONS: Final = "operations.csv"
_OPERATION: Final = ("job", "operation", "start_ps", "end_ps", "status")


def operations_csv(records: Sequence[DeviceRecord]) -> str:
    """One row for each operation that the controller saw end: the job's number, the operation's, times and
    status (0: success)."""
    rows = [row for record in records for row in record.results.get("operations", ())]
    return csv_text(list(_OPERATION), [list(row) for row in rows])


def operations_of(directory: Path) -> list[tuple[int, ...]] | None:
    """The same read back; None of a run that did not write them."""
    path = directory / OPERATIONS
    if not path.is_file():
        return None
    try:
        lines = path.read_text("ascii").splitlines()
    except UnicodeDecodeError:
        lines = []
    rows = [line.split(",") for line in lines[1:]]
    known = [",".join(_OPERATION)] == lines[:1]
    if not known or any(len(row) != len(_OPERATION) or not all(map(str.isdecimal, row)) for row in rows):
        raise UsageError(f"{path}: is no list of operations; {ACCEPTED_OPERATIONS}")
    return [tuple(map(int, row)) for row in rows]


ACCEPTED_OPERATIONS: Final = f"accepted: the file that a run wrote, with {', '.join(_OPERATION)}"


def collectives_csv(jobs: Mapping[str, Job]) -> str:
    """One row for each operation of each job."""
    columns = list(Collective.model_fields)
    return csv_text(["job", *columns], _collective_rows(jobs, columns))


def _collective_rows(jobs: Mapping[str, Job], columns: Sequence[str]) -> Iterator[list[Cell]]:
    for name, job in jobs.items():
        for one in job.collectives:
            yield [name, *(getattr(one, column) for column in columns)]


FILES: Final = (
    "scenario.yaml",
    "summary.json",
    "ports.csv",
    "flows.csv",
    "collectives.csv",
    OPERATIONS,
    "journal.jsonl",
    "samples.jsonl",
    "digests.jsonl",
    "shown.jsonl",
    "trace.csv",
    "timeline.jsonl",
    "workers.json",
    "parent.json",
)
SNAPSHOTS: Final = "snapshots"
"""The directory of what a run can go on from (`emu.engine.recovery.snapshots`)."""
FLIGHTS: Final = "flight_recorder"
"""The directory of flight recorders (`emu.run_directory.flight_recorder`)."""
CAPTURES: Final = "captures"
"""The directory of captures (`emu.views.captures.pcapng`)."""
SOCKET: Final = "control.sock"
"""Where a live run takes orders, while it goes on (`emu.engine.live.control_socket`)."""
PAGE: Final = "page.url"
"""The link to the live page, while the run goes on (`emu.views.reports.live_link`)."""
TARGETS: Final = "targets.json"
"""Where Prometheus finds the workers, for `file_sd_configs`; written where metrics are served."""
DETAILS: Final = r"worker-\d+\.txt"
"""Tracebacks of workers that failed."""
RESULTS: Final = frozenset(
    (
        *("summary.json", "samples.jsonl", "digests.jsonl", "collectives.csv", "flows.csv", "ports.csv"),
        *("trace.csv", "timeline.jsonl", SNAPSHOTS),
    )
)
"""What of an earlier run is removed only when that is asked for; a run that never began has none of it."""
WAYS_ON: Final = (
    "accepted: another directory with --out, --force to replace them, or --resume where that run broke off"
)
AT_END: Final = ("summary.json", "shown.jsonl", "timeline.jsonl")
LINE_FILES: Final = ("journal.jsonl", "samples.jsonl", "digests.jsonl")
MOST_BYTES: Final = {"journal.jsonl": 1 << 26, "samples.jsonl": 1 << 32, "digests.jsonl": 1 << 32}
"""How large a line file may grow; what is written at the end of a run has room behind it."""
PART: Final = ".part"
DEFAULT_ROOT: Final = Path("runs")
MOST_RUNS: Final = 100_000


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears at once and complete, readable by its owner alone."""
    write_pieces(path, (content.encode() if isinstance(content, str) else content,))


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that is made piece by piece, so that it appears at once and complete."""
    part = path.with_name(path.name + PART)
    try:
        with open(part, "wb", buffering=0, opener=_private) as file:
            for piece in pieces:
                _write_all(file, piece)
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # nor is there a place for a part
            part.unlink(missing_ok=True)
        raise _unwritable(path, error) from error
    except BaseException:  # What was to be written could not be made.
        part.unlink(missing_ok=True)
        raise


def _write_all(file: FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def _unwritable(path: Path, error: OSError) -> RuntimeFailure:
    return RuntimeFailure(f"{path}: {error.strerror}; what was written before is whole")


def capture_name(number: int) -> str:
    """The file of a capture."""
    return f"{CAPTURES}/{number}.pcapng"


def details_name(worker: int) -> str:
    """The file that a worker's traceback goes to."""
    return f"worker-{worker}.txt"


def _is_free(directory: Path) -> bool:
    """Whether a directory that exists may be used: nothing in it but an earlier run."""
    names = [entry.name for entry in directory.iterdir()]
    known = [*FILES, SNAPSHOTS, FLIGHTS, CAPTURES, SOCKET, TARGETS, PAGE, *(name + PART for name in FILES)]
    return not names or (
        "journal.jsonl" in names and all(name in known or re.fullmatch(DETAILS, name) for name in names)
    )


def _record(text: bytes) -> dict[str, Any] | None:
    """What a line says; None for one that is not whole."""
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return record if text.endswith(b"\n") else None


def _numbered(name: str, root: Path) -> Path:
    """A new directory `root/name-N`, made here, with the least N that is not taken."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(1, MOST_RUNS):
        path = root / f"{name}-{number}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path
    raise UsageError(f"{root}: {MOST_RUNS} runs of {name}; remove some, or give a directory with --out")


class LineFile:
    """A line file that may still grow, read on from where it was left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """What was added since the last call, as far as lines are whole."""
        if not self._path.exists():
            return
        with self._path.open("rb") as lines:
            lines.seek(self._offset)
            for text in lines:
                record = _record(text)
                if record is None:
                    return
                self._offset += len(text)
                yield record


def samples_until(path: Path, until_ps: int) -> list[Changed]:
    """The samples of a run up to a time; none where there is no such file."""
    file = path / "samples.jsonl"
    if not file.exists():
        return []
    return [one for one in SampleReader(file).changes() if one.virtual_ps <= until_ps]


class RunDirectory:
    """One run's directory, being written. Use it in a `with` statement, or call `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replaces = False
        """Whether it held an earlier run."""
        self._lines: dict[str, FileIO] = {}
        self._samples: SampleWriter | None = None
        """Once it is known what is counted."""
        self._numbers: list[int] = []
        """Numbers of all devices."""
        self._held = -1
        self.resumed = False
        """Whether it is of a run that is gone on with."""
        self.earlier: list[Changed] = []
        """The samples that a run which is gone on with, or the parent of a fork, has written before."""
        self._names: list[str] = []

    @classmethod
    def create(
        cls, name: str, out: Path | None = None, root: Path = DEFAULT_ROOT, *, force: bool = False
    ) -> RunDirectory:
        """Make or take the directory of a run of the scenario `name`; with `force` it may hold results of an
        earlier one, which are removed. UsageError if `out` cannot be it.
        """
        try:
            if out is None:
                directory = cls(_numbered(name, root))
                directory._lock()
                return directory
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_free(out):
                reason = "is not empty and holds other things than a run"
                raise UsageError(f"{out}: {reason}; give another directory with --out")
            directory = cls(out)
            directory._lock()
            earlier = list(out.iterdir())
            if not force and any(entry.name in RESULTS for entry in earlier):
                directory.close()
                raise UsageError(f"{out}: holds the results of an earlier run; {WAYS_ON}")
            directory.replaces = bool(earlier)
            for entry in earlier:
                if entry.name in (SNAPSHOTS, FLIGHTS, CAPTURES) and entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
        except OSError as error:
            where = error.filename or out or root
            raise UsageError(f"{where}: {error.strerror}; give another directory with --out") from error
        return directory

    @classmethod
    def reopen(cls, path: Path, until_ps: int) -> RunDirectory:
        """Take the directory of a run that broke off, to go on from a sync point.

        What its line files say of later times, and what was written at its end, is removed.
        Raises UsageError, or RuntimeFailure.
        """
        directory = cls(path)
        try:
            directory._lock()
            directory.resumed = True
            for name in FILES:
                if name.endswith((".csv", ".part")) or name in AT_END:
                    (path / name).unlink(missing_ok=True)
            for name in LINE_FILES:
                directory._cut(name, until_ps)
            directory.earlier = samples_until(path, until_ps)
            directory.journal("resume", until_ps)
        except OSError as error:
            raise _unwritable(path, error) from error
        return directory

    def _cut(self, name: str, until_ps: int) -> None:
        """Open a line file behind its last line that is whole and not of a later time."""
        path = self.path / name
        if not path.exists():
            return
        file = open(path, "r+b", buffering=0, opener=_private)  # noqa: SIM115
        self._lines[name] = file
        end = 0
        for text in path.read_bytes().splitlines(keepends=True):
            record = _record(text)
            if record is None or record.get("kind") == "end":
                break
            if "kind" not in record and record.get("virtual_ps", 0) > until_ps:
                break
            end += len(text)
        file.truncate(end)
        file.seek(end)

    def _lock(self) -> None:
        """Make sure that nobody else writes here, until `close`. Raises UsageError."""
        self._held = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._held)
            self._held = -1
            raise UsageError(f"{self.path}: another run is writing here") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the line files. May be called again."""
        for file in self._lines.values():
            file.close()
        self._lines.clear()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def begin(self, scenario_text: str, topology: Topology, **facts: Any) -> None:
        """Write the effective scenario (YAML), and begin the journal with `facts` about the run."""
        self.name_devices(topology)
        write_whole(self.path / "scenario.yaml", scenario_text)
        self.journal("begin", 0, **facts)

    def name_devices(self, topology: Topology) -> None:
        """Whose mixes are written."""
        self._names = [node.name for node in topology.nodes]

    def write_results(
        self,
        summary: Summary,
        topology: Topology,
        records: Sequence[DeviceRecord],
        flight_files: Mapping[str, bytes],
        capture_files: Mapping[int, Iterable[bytes]],
    ) -> None:
        """The tables, flight recorders by their place, captures by number, and the summary last: where it
        is, all is.
        """
        self.journal("end", summary.virtual_ps, ending=summary.ending, digest=summary.digest)
        write_whole(self.path / "shown.jsonl", shown_lines(topology, records))
        write_whole(self.path / "ports.csv", ports_csv(topology, records))
        write_whole(self.path / "flows.csv", flows_csv(summary.jobs))
        if any("trace" in record.recorded for record in records):
            write_whole(self.path / "trace.csv", trace_csv(topology, records))
        if any("events" in record.recorded for record in records):
            write_whole(self.path / "timeline.jsonl", "".join(map(line, event_records(topology, records))))
        write_whole(self.path / "collectives.csv", collectives_csv(summary.jobs))
        write_whole(self.path / OPERATIONS, operations_csv(records))
        for place, content in flight_files.items():
            (self.path / place).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.path / place, content)
        self.write_captures(capture_files)
        write_whole(self.path / "summary.json", summary.json_text())

    def write_captures(self, capture_files: Mapping[int, Iterable[bytes]]) -> None:
        """Write the files of captures, by number."""
        for number, pieces in capture_files.items():
            (self.path / CAPTURES).mkdir(mode=0o700, exist_ok=True)
            write_pieces(self.path / capture_name(number), pieces)

    def sync(self) -> None:
        """Have the line files on disk as far as they are written. Raises OSError."""
        for file in self._lines.values():
            os.fsync(file.fileno())

    def journal(self, kind: str, virtual_ps: int, **facts: Any) -> None:
        """Append one entry to the journal; it is on the disk when this returns."""
        self.journal_all([(kind, virtual_ps, facts)])

    def journal_all(self, entries: Iterable[tuple[str, int, Mapping[str, Any]]]) -> None:
        """Append entries of a kind and a time to the journal; they are on the disk when this returns."""
        for kind, virtual_ps, facts in entries:
            text = line({"kind": kind, "virtual_ps": virtual_ps, **facts})
            self._append("journal.jsonl", text, ends=kind == "end")
        os.fsync(self._lines["journal.jsonl"].fileno())

    def counted(self, counted: Counted) -> None:
        """Begin the samples with what they count, unless a run that is gone on with has done so."""
        self._samples = SampleWriter(counted)
        self._numbers = sorted(counted.layouts.of_device)
        if not self.resumed or "samples.jsonl" not in self._lines:
            self._append("samples.jsonl", counted.text(), ends=True)
        elif self.earlier:
            self._samples.resume(self.earlier)

    def sample(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Append what changed of the counters and the mixes of all devices up to one sync point."""
        if "digests.jsonl" not in self._lines:
            self._append(
                "digests.jsonl", digest_header((number, self._names[number]) for number in self._numbers)
            )
        if changed.whole:
            mixed = mixed_since(self.path / "digests.jsonl", mixed)
        self._append("digests.jsonl", mixes_line(changed.virtual_ps, mixed))
        assert self._samples is not None
        self._append("samples.jsonl", self._samples.text(changed))

    def measured(self) -> dict[tuple[int, int], str]:
        """What faults that hit the busiest were found to hit, as the journal has it: by fault and
        occurrence."""
        return {
            (entry["fault"], entry["occurrence"]): entry["target"]
            for entry in self._entries()
            if entry["kind"] == "target"
        }

    def operated(self) -> set[str]:
        """What the journal says of the operator: each line as text (`emu.summary.recoveries`)."""
        return {
            repr(("operator", entry.pop("virtual_ps"), {key: entry[key] for key in entry if key != "kind"}))
            for entry in self._entries()
            if entry["kind"] == "operator"
        }

    def _entries(self) -> list[dict[str, Any]]:
        path = self.path / "journal.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [entry for text in lines if (entry := _record(text)) is not None]

    def samples(self) -> Iterator[Changed]:
        """Every sample of the run so far, those before a fork included."""
        if not self.resumed:
            yield from self.earlier
        path = self.path / "samples.jsonl"
        if path.exists():
            yield from SampleReader(path).changes()

    def _append(self, name: str, text: str, ends: bool = False) -> None:
        """Write lines, all or none. Raises RuntimeFailure, also for a file that would grow too large."""
        file = self._lines.get(name)
        if file is None:
            try:
                file = open(self.path / name, "wb", buffering=0, opener=_private)  # noqa: SIM115
            except OSError as error:
                raise _unwritable(self.path / name, error) from error
            self._lines[name] = file
        size_bytes = file.tell()
        if size_bytes + len(text) > MOST_BYTES[name] and not ends:
            hint = "" if name == "journal.jsonl" else " (sample more rarely, with run.sample_every)"
            raise RuntimeFailure(
                f"{self.path / name}: would grow beyond {MOST_BYTES[name]} bytes{hint}; "
                "what was written before is whole"
            )
        try:
            _write_all(file, text.encode("ascii"))
        except OSError as error:
            file.truncate(size_bytes)
            file.seek(size_bytes)
            raise _unwritable(self.path / name, error) from error
