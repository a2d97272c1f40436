"""Workloads kept in files: flows in CSV and in the flow files of HPCC's simulator, requests in CSV, traces.

`kind: flow_table` becomes `kind: flows` with the rows of the file, in the tree, before anything is validated.
Each flow remembers its line in the CSV file, so an error names it there.

The first line names the columns, in any order: `src` and `dst` (ranks); `size` with a unit ("1MiB") or
`size_bytes` without; optionally `start` with a unit or `start_ps` without. Empty lines and lines that begin
with # are skipped. Cells are handed on as text with the line they stand in; the scenario checks them as it
checks flows that are spelled out.

A file whose first line is a number alone is one of HPCC's: that many flows follow, each a line of

    source  destination  priority group  destination port  bytes  start in seconds

and what comes after them is left out, as there. The generator of ConWeave's simulator, and older ones of
HPCC's, write no destination port: five words. Nodes are numbered as in the topology file that the scenario
names (`format: ns3`), where switches have numbers, too; without one they are ranks. Priority group and port
are not taken: the job's `data_priority` and drawn ports hold.

Requests. The `file` of `kind: serving` becomes its `trace` in the same way. Its columns are those of Azure's
traces of 2023 and 2024, `TIMESTAMP` (a date and a time of day, with at most twelve decimals), `ContextTokens`
and `GeneratedTokens`, or `at` (with unit), `prompt` and `output`. The earliest TIMESTAMP is 0.

Sources: alibaba-edu/High-Precision-Congestion-Control, `simulation/scratch/third.cc`;
conweave-project/conweave-ns3, `traffic_gen/traffic_gen.py`; Azure/AzurePublicDataset,
`AzureLLMInferenceDataset2023.md`.

Traces. What is in their files takes the place of their names in the scenario: a text of SimAI as it is; of
Chakra's binary traces what is read of them, in Base64, for there is no other way to write bytes in YAML.
"""

import base64
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from emu.base.errors import FormatError, Problem, ScenarioError
from emu.scenario.readers.chakra import MOST_FILE_BYTES, MOST_RANKS, MOST_TRACE_BYTES, pared
from emu.scenario.readers.foreign import limited, whole_number
from emu.scenario.readers.topology_files import EdgeListError, ranks_of
from emu.scenario.yaml.document import Node, Place, decode, resolved

COLUMNS: Final = ("src", "dst", "size", "size_bytes", "start", "start_ps")
_UNITS: Final = {"size_bytes": "B", "start_ps": "ps"}
MAX_ROWS: Final = 2**20
MAX_REQUESTS: Final = 2**16
REQUEST_COLUMNS: Final = {
    "TIMESTAMP": "at",
    "ContextTokens": "prompt",
    "GeneratedTokens": "output",
    "at": "at",
    "prompt": "prompt",
    "output": "output",
}
"""What a column of requests is to the workload."""
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,12}))?(?:Z|\+00:00)?", re.ASCII
)
_HPCC: Final = "source, destination, priority group, port (or none), bytes, start in seconds"


class FlowTableError(FormatError):
    """A table that cannot be read."""


class RequestTableError(FormatError):
    """A table of requests that cannot be read."""


class FlowRow(NamedTuple):
    """One line: where it stands, and its cells by the names that a scenario has for them."""

    line: int
    cells: dict[str, str]


def read_flow_table(text: str) -> list[FlowRow]:
    """The rows of a table. Raises `FlowTableError` if the columns are not those above, or a row has
    others."""
    columns: list[str] = []
    rows: list[FlowRow] = []
    for line, cells in _lines(text, FlowTableError):
        if not columns:
            columns = _checked_columns(cells, line)
            continue
        _as_many(FlowTableError, line, cells, columns)
        limited(FlowTableError, line, len(rows) + 1, MAX_ROWS, "flows")
        rows.append(_row(columns, cells, line))
    if not rows:
        last = max(len(text.splitlines()), 1)
        raise FlowTableError(last, "no flow in the table", "a line of columns, then flows")
    return rows


def _lines(text: str, error: type[FormatError]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV file that say something, by number."""
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and not stripped[0].startswith("#"):
                yield reader.line_num, stripped
    except csv.Error as broken:
        raise error(reader.line_num, f"not CSV: {broken}", "cells with commas between") from broken


def _as_many(error: type[FormatError], line: int, cells: list[str], columns: list[str]) -> None:
    if len(cells) != len(columns):
        reason = f"{len(cells)} cells under {len(columns)} columns"
        raise error(line, reason, ", ".join(columns))


def read_requests(text: str) -> list[FlowRow]:
    """The requests of a table: at, prompt, output. Raises `RequestTableError`."""
    columns: list[str] = []
    rows: list[FlowRow] = []
    moments_ps: list[int] = []
    for line, cells in _lines(text, RequestTableError):
        if not columns:
            columns = cells
            if sorted(REQUEST_COLUMNS.get(one, "") for one in columns) != ["at", "output", "prompt"]:
                accepted = "TIMESTAMP,ContextTokens,GeneratedTokens, or at,prompt,output"
                raise RequestTableError(line, f"columns {','.join(columns)[:60]}", accepted)
            continue
        _as_many(RequestTableError, line, cells, columns)
        limited(RequestTableError, line, len(rows) + 1, MAX_REQUESTS, "requests")
        named = {REQUEST_COLUMNS[column]: cell for column, cell in zip(columns, cells, strict=True)}
        for key in ("prompt", "output"):
            whole_number(RequestTableError, line, named[key], 1, MAX_ROWS, f"{key} tokens,")
        if "TIMESTAMP" in columns:
            moments_ps.append(_moment_ps(named["at"], line))
        rows.append(FlowRow(line, named))
    if not rows:
        last = max(len(text.splitlines()), 1)
        raise RequestTableError(last, "no request in the table", "a line of columns, then requests")
    if not moments_ps:
        return rows
    first_ps = min(moments_ps)
    return [
        row._replace(cells={**row.cells, "at": f"{at_ps - first_ps}ps"})
        for row, at_ps in zip(rows, moments_ps, strict=True)
    ]


def _moment_ps(written: str, line: int) -> int:
    """Since the first day of the calendar."""
    found = _TIMESTAMP.fullmatch(written)
    accepted = "a date and a time of day in UTC, as 2023-11-16 18:15:46.6805900"
    if found is None:
        raise RequestTableError(line, f"{written[:40]!r} is no TIMESTAMP", accepted)
    year, month, day, hours, minutes, seconds = map(int, found.groups()[:6])
    lengths = (31, 28 + _is_leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        raise RequestTableError(line, f"{written[:40]!r} is no day", accepted)
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 10**12 + int((found[7] or "").ljust(12, "0"))


def read_flow_file(text: str, ranks: Mapping[int, int] | None = None) -> list[FlowRow]:
    """The rows of a table or of an HPCC flow file, whose nodes have these ranks. Raises FlowTableError."""
    lines = text.splitlines()
    if not lines or not lines[0].strip().isdecimal():
        return read_flow_table(text)
    count = whole_number(FlowTableError, 1, lines[0].strip(), 1, MAX_ROWS, "how many flows,")
    rows: list[FlowRow] = []
    wide = 0
    for line, written in enumerate(lines[1:], start=2):
        words = written.split()
        if not words:
            continue
        if len(rows) == count:
            break
        wide = wide or len(words)
        if len(words) not in (5, 6) or len(words) != wide:
            due = f"and flow {len(rows) + 1} of {count} is due"
            others = f", of {wide} words as the first" if wide in (5, 6) else ""
            raise FlowTableError(line, f"{len(words)} words, {due}{others}", _HPCC)
        ends = [whole_number(FlowTableError, line, word, 0, MAX_ROWS, "a node,") for word in words[:2]]
        for end in ends:
            if ranks is not None and end not in ranks:
                raise FlowTableError(line, f"node {end} is no host of the topology file", "a host's number")
        src, dst = (str(end if ranks is None else ranks[end]) for end in ends)
        cells = {"src": src, "dst": dst, "size": f"{words[-2]}B", "start": f"{words[-1]}s"}
        rows.append(FlowRow(line, cells))
    if len(rows) < count:
        raise FlowTableError(len(lines), f"{len(rows)} flows of {count}", "as many as the first line says")
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


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def put_tables_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Replace every table named in `jobs` by its flows; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(jobs.value if jobs is not None and isinstance(jobs.value, list) else ()):
        workload = job.child("workload")
        if workload is None or not isinstance(workload.value, dict):
            continue
        named = _named_table(workload.value)
        if named is None:
            continue
        kind, file = named
        path = directory / file
        key = f"jobs[{index}].workload.file"
        try:
            text = decode(read_file(path), str(path))
            if kind == "serving":
                rows = read_requests(text)
            else:
                rows = read_flow_file(text, _ranks(tree, directory, read_file))
        except ScenarioError as error:
            place = workload.keys["file"]
            problems.extend(
                Problem(place.file, place.line, key, f"{path}: {problem.reason}", problem.accepted)
                for problem in error.problems
            )
        except FormatError as error:
            problems.append(Problem(str(path), error.line, key, error.reason, error.accepted))
        else:
            _replace(workload, workload.value, kind, [_flow(row, str(path)) for row in rows])
    return problems


def _ranks(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> dict[int, int] | None:
    """The rank of each host of the scenario's topology file; None if it names none that can be read."""
    topology = tree.child("topology")
    given = {} if topology is None else topology.plain()
    if not isinstance(given, dict) or given.get("kind") != "file" or given.get("format") != "ns3":
        return None
    path = directory / str(given.get("path", ""))
    try:
        return ranks_of(decode(read_file(path), str(path)))
    except (ScenarioError, EdgeListError):
        return None  # refused as the topology


_TABLES: Final = {"flow_table": ("flows", "flows"), "serving": ("serving", "trace")}
"""The kind that a workload with a table becomes, and the key of its rows."""


def _named_table(workload: dict[str, Node]) -> tuple[str, str] | None:
    """Kind and file of a workload that is right in all but its rows; the others are for validation to
    judge."""
    given = {key: node.value for key, node in workload.items()}
    kind, file = given.get("kind"), given.get("file")
    if not isinstance(kind, str) or kind not in _TABLES or _TABLES[kind][1] in given:
        return None
    return (kind, file) if isinstance(file, str) and file else None


def _replace(workload: Node, values: dict[str, Node], kind: str, rows: list[Node]) -> None:
    place = workload.keys.pop("file")
    del values["file"]
    new_kind, key = _TABLES[kind]
    values["kind"] = Node(new_kind, workload.keys["kind"])
    values[key] = Node(list(rows), place)
    workload.keys[key] = place


def _flow(row: FlowRow, file: str) -> Node:
    place = Place(file, row.line)
    cells = {
        name: Node(resolved(text) if name in ("src", "dst", "prompt", "output") else text, place)
        for name, text in row.cells.items()
    }
    node = Node(dict(cells), place)
    node.keys = dict.fromkeys(cells, place)
    return node


ReadFile = Callable[[Path], bytes]


def put_traces_in_place(tree: Node, directory: Path, read_file: ReadFile) -> list[Problem]:
    """Replace the `file` of every trace in `jobs` by what is in it; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(jobs.value if jobs is not None and isinstance(jobs.value, list) else ()):
        workload = job.child("workload")
        if workload is None or not isinstance(workload.value, dict):
            continue
        given = {key: node.value for key, node in workload.value.items()}
        file, kind = given.get("file"), given.get("kind")
        known = kind in ("simai_trace", "chakra_trace") and not {"text", "traces"} & set(given)
        if not known or not isinstance(file, str) or not file:
            continue
        place = workload.keys["file"]
        try:
            key, content = _content(directory / file, kind == "chakra_trace", place, read_file)
        except ScenarioError as error:
            problems.extend(
                Problem(
                    place.file,
                    place.line,
                    f"jobs[{index}].workload.file",
                    f"{one.file}: {one.reason}",
                    one.accepted,
                )
                for one in error.problems
            )
            continue
        del workload.value["file"]
        del workload.keys["file"]
        workload.value[key] = content
        workload.keys[key] = place
    return problems


def _content(path: Path, binary: bool, place: Place, read_file: ReadFile) -> tuple[str, Node]:
    """The key that takes the place of `file`, and its value."""
    if not binary:
        return "text", Node(decode(read_file(path), str(path)), place)
    if path.suffix == ".et":
        files = [path]
    else:
        files = []
        while len(files) < MOST_RANKS:
            one = path.with_name(f"{path.name}.{len(files)}.et")
            if files and not one.exists():
                break
            files.append(one)
    return "traces", Node([Node(one, place) for one in _encoded(files, read_file)], place)


def _encoded(files: Sequence[Path], read_file: ReadFile) -> Iterator[str]:
    """What is read of each file, in Base64."""
    whole = kept = 0
    for path in files:
        data = read_file(path)
        whole += len(data)
        if whole > MOST_FILE_BYTES:
            reason = "the traces are too large"
            raise ScenarioError(
                [Problem(str(path), 0, "", reason, f"at most {MOST_FILE_BYTES} bytes in all")]
            )
        data = pared(data)
        kept += len(data)
        if kept > MOST_TRACE_BYTES:
            reason = "there is too much in the traces"
            accepted = f"at most {MOST_TRACE_BYTES} bytes of nodes, dependencies and attributes in all"
            raise ScenarioError([Problem(str(path), 0, "", reason, accepted)])
        yield base64.b64encode(data).decode("ascii")
