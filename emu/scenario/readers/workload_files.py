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
are not taken, which a note says: the job's `data_priority` and drawn ports hold.

A connection matrix of htsim (`emu.scenario.readers.htsim`) is such a table, too.

Requests (`emu.scenario.readers.request_traces`): the `file` of `kind: serving` becomes its `trace` in the
same way.

Sources: alibaba-edu/High-Precision-Congestion-Control, `simulation/scratch/third.cc`;
conweave-project/conweave-ns3, `traffic_gen/traffic_gen.py`.

Traces. What is in their files takes the place of their names in the scenario: a text of SimAI as it is; of
Chakra's binary traces what is read of them, in Base64, for there is no other way to write bytes in YAML.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from emu.base.errors import FormatError, Problem, ScenarioError
from emu.scenario.readers.chakra import MOST_FILE_BYTES, MOST_RANKS, MOST_TRACE_BYTES, pared
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut, limited, whole_number
from emu.scenario.readers.htsim import is_matrix, read_matrix
from emu.scenario.readers.request_traces import read_requests
from emu.scenario.readers.tables import Row, as_many, csv_rows
from emu.scenario.readers.topology_files import EdgeListError, ranks_of
from emu.scenario.yaml.document import Node, Place, decode, resolved

COLUMNS: Final = ("src", "dst", "size", "size_bytes", "start", "start_ps")
_UNITS: Final = {"size_bytes": "B", "start_ps": "ps"}
MAX_ROWS: Final = 2**20
_HPCC: Final = "source, destination, priority group, port (or none), bytes, start in seconds"


class FlowTableError(FormatError):
    """A table that cannot be read."""


def read_flow_table(text: str) -> list[Row]:
    """The rows of a table. Raises `FlowTableError` if the columns are not those above, or a row has
    others."""
    columns: list[str] = []
    rows: list[Row] = []
    for line, cells in csv_rows(text, FlowTableError):
        if not columns:
            columns = _checked_columns(cells, line)
            continue
        as_many(FlowTableError, line, cells, columns)
        limited(FlowTableError, line, len(rows) + 1, MAX_ROWS, "flows")
        rows.append(_row(columns, cells, line))
    if not rows:
        last = max(len(text.splitlines()), 1)
        raise FlowTableError(last, "no flow in the table", "a line of columns, then flows")
    return rows


def read_flow_file(text: str, ranks: Mapping[int, int] | None = None) -> tuple[list[Row], LeftOut]:
    """The rows of a table, of a connection matrix or of an HPCC flow file, whose nodes have these ranks, and
    what they leave out. Raises FormatError."""
    if is_matrix(text):
        matrix = read_matrix(text)
        rows = [
            Row(
                one.line,
                {"src": str(one.source), "dst": str(one.destination)}
                | {"size": f"{one.size_bytes}B", "start": f"{one.start_ps}ps"},
            )
            for one in matrix.connections
        ]
        return rows, matrix.left_out
    lines = text.splitlines()
    if not lines or not lines[0].strip().isdecimal():
        return read_flow_table(text), LeftOut()
    return _hpcc_flows(lines, ranks)


def _hpcc_flows(lines: Sequence[str], ranks: Mapping[int, int] | None) -> tuple[list[Row], LeftOut]:
    count = whole_number(FlowTableError, 1, lines[0].strip(), 1, MAX_ROWS, "how many flows,")
    rows: list[Row] = []
    left_out = LeftOut()
    wide = 0
    for line, written in enumerate(lines[1:], start=2):
        words = written.split()
        if not words:
            continue
        if len(rows) == count:
            left_out.add("lines after the last flow")
            continue
        wide = wide or len(words)
        if len(words) not in (5, 6) or len(words) != wide:
            due = f"and flow {len(rows) + 1} of {count} is due"
            others = f", of {wide} words as the first" if wide in (5, 6) else ""
            raise FlowTableError(line, f"{len(words)} words, {due}{others}", _HPCC)
        ends = [whole_number(FlowTableError, line, word, 0, MAX_ROWS, "a node,") for word in words[:2]]
        for end in ends:
            if ranks is not None and end not in ranks:
                raise FlowTableError(line, f"node {end} is no host of the topology file", "a host's number")
        left_out.add(f"priority group {words[2][:LONGEST_SHOWN]}")
        if wide == 6:
            left_out.add("ports of flows")
        src, dst = (str(end if ranks is None else ranks[end]) for end in ends)
        cells = {"src": src, "dst": dst, "size": f"{words[-2]}B", "start": f"{words[-1]}s"}
        rows.append(Row(line, cells))
    if len(rows) < count:
        raise FlowTableError(len(lines), f"{len(rows)} flows of {count}", "as many as the first line says")
    return rows, left_out


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


def _row(columns: list[str], cells: list[str], line: int) -> Row:
    named = {}
    for column, cell in zip(columns, cells, strict=True):
        unit = _UNITS.get(column, "")
        plain = cell.isascii() and cell.isdigit()
        named[column.removesuffix("_bytes").removesuffix("_ps")] = f"{cell}{unit}" if unit and plain else cell
    return Row(line, named)


def put_tables_in_place(
    tree: Node, directory: Path, read_file: Callable[[Path], bytes], notes: list[str]
) -> list[Problem]:
    """Replace every table named in `jobs` by its flows, and note what is left out of it; returns what could
    not be read."""
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
                rows, left_out = read_flow_file(text, _ranks(tree, directory, read_file))
                notes += [f"{path}: {note}"] if (note := left_out.note()) else []
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


_NUMBERS: Final = ("src", "dst", "prompt", "output", "cached")
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


def _flow(row: Row, file: str) -> Node:
    place = Place(file, row.line)
    cells = {
        name: Node(resolved(text) if name in _NUMBERS else text, place) for name, text in row.cells.items()
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
