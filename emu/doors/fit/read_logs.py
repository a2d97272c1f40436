"""Readers of what nccl-tests and perftest print: sizes, and the time that each took.

nccl-tests: the text (`# size count type redop root time algbw busbw ...`, out of place and in place), or the
JSON of `-J`. The operation comes from the line "Collective test starting", from a command in the log or from
the name of the file; ranks and servers from the lines of the devices. perftest: the tables of `ib_write_bw`,
`ib_write_lat` and `ib_send_lat` (`-a` runs all sizes). What `srun -l` and `mpirun --tag-output` put before
each line is taken off.

A row has the columns of the header above it. It is checked against itself: its type is known, count times the
type's width is its size (or a rank's share of it), its time is above 0. A row that fails is refused with its
line: left out, or read by other columns, it would change which sizes are kept back.

Source: nccl-tests 2.17 (`src/common.cu`, `src/util.cu`), perftest 4.5 (`src/perftest_parameters.h`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from actors.ncclx.operations import OPERATIONS
from emu.base.errors import UsageError
from emu.base.outside import file_text, json_of
from emu.base.spelling import listed, shown
from emu.base.units import counted
from emu.workload.perf_scan import which_test

LARGEST_BYTES: Final = 16 << 20
"""Largest log."""
Column = Literal["in-place", "out-of-place"]


class Measured(NamedTuple):
    """One size of a log."""

    size_bytes: int
    time_us: float
    """Time of the operation, or of one message."""


class Log(NamedTuple):
    """One log: what was measured, among whom, and the sizes in ascending order."""

    file: str
    operation: str
    """A collective, or `write_bw`, `write_lat`, `send_lat`."""
    ranks: int
    """0 where the log does not say."""
    servers: int
    """0 where the log does not say."""
    queue_pairs: int
    """Queue pairs of perftest."""
    rows: tuple[Measured, ...]
    gpu: str = ""
    """Model of the GPUs; empty where the log does not say."""


PERFTEST: Final = {
    "RDMA_Write BW Test": "write_bw",
    "RDMA_Write Latency Test": "write_lat",
    "Send Latency Test": "send_lat",
}
"""Title of a test of perftest that can be fitted to -> what it measures."""
_PERFTEST_TITLE: Final = re.compile(r"^\s*(\S[\w -]* (?:BW|Latency|Bidirectional BW) Test)\s*$", re.MULTILINE)
_RATES: Final = {"Gb/sec": 1e9 / 8, "MB/sec": 1e6, "MiB/sec": 2**20, "GB/sec": 1e9}
"""Unit of perftest's bandwidth -> bytes a second. Its older versions write MB/sec and mean MiB/sec."""
_RANK: Final = re.compile(r"^#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)", re.MULTILINE)
_MODEL: Final = re.compile(r"^.*#\s+Rank\s+\d+\b.*?\b(?:NVIDIA|Tesla)\s+(\S.*?)\s*$", re.MULTILINE)
_STARTING: Final = re.compile(r"Collective test starting: (\w+)")
_COMMAND: Final = re.compile(
    r"\b((?:all_?reduce|all_?gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv)_perf)\b"
)
_TAG: Final = re.compile(
    r"^(?: *\d+:(?: |(?=#))|\[[^\]\s]*\d\](?:<std(?:out|err)>)?:? ?|[^<>]{,80}<std(?:out|err)>: ?)",
    re.MULTILINE,
)
"""What is put before a line: by `srun -l` ("0: "), `mpirun --tag-output` ("[1,0]<stdout>:", of Open MPI 5
"[host@1,0]<stdout>: ") and `--timestamp-output`, and MPICH's `-prepend-rank` ("[0] ")."""
_WIDTHS: Final = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16"), 2),
    **dict.fromkeys(("float", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64"), 8),
}
"""Types of nccl-tests and rccl-tests -> bytes."""
_FIGURE: Final = re.compile(r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE)
_BLANK: Final = ("redop", "root")
"""Columns that old versions leave blank for tests without a reduction."""
MOST_BYTES: Final = 1 << 50
"""Largest size of a row."""


def read_log(path: Path, operation: str, column: Column) -> Log:
    """The log in a file; `operation` where the log does not say it. Raises UsageError."""
    text = file_text(path, "one log of a test", LARGEST_BYTES)
    if not text.strip():
        raise UsageError(f"{path}: is empty; accepted: a log of nccl-tests or perftest")
    if text.lstrip().startswith("{"):
        return _of_json(path, text, operation, column)
    text = _TAG.sub("", text)
    titles = _PERFTEST_TITLE.findall(text)
    if titles:
        return _of_perftest(path, text, titles[0].strip())
    return _of_nccl_tests(path, text, operation, column)


def _named(path: Path, said: str, operation: str) -> str:
    """The collective that a log is about. Raises UsageError."""
    word = operation or said or next(iter(_COMMAND.findall(path.name)), "")
    if not word:
        raise UsageError(f"{path}: does not say which collective it is about; accepted: --op all_reduce, ...")
    return which_test(word, OPERATIONS)[1]


def _of_nccl_tests(path: Path, text: str, operation: str, column: Column) -> Log:
    tests = list(dict.fromkeys(_STARTING.findall(text)))
    if len(tests) > 1:
        raise UsageError(f"{path}: has tests of {' and '.join(tests[:3])}; accepted: a log of one test")
    command = _COMMAND.search(text)
    said = tests[0] if tests else command[1] if command else ""
    names: list[str] = []
    rows: dict[int, float] = {}
    shares: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.lstrip("# ").split()
        if words[:2] == ["size", "count"]:
            names = words
            for column_name in ("type", "time"):
                if column_name not in words:
                    reason = f"has the columns {' '.join(words)[:60]!r}, no {column_name}"
                    raise UsageError(f"{path}:{number}: {reason}; accepted: nccl-tests' columns")
        elif names and words and not line.lstrip().startswith("#") and _is_row(words):
            shares.add(_take(rows, path, number, words, names, column))
            if len(shares - {0}) > 1:
                reason = f"count times the width of {words[2]} is another share of the size than above"
                raise UsageError(f"{path}:{number}: {reason}; accepted: nccl-tests' rows")
    if not names:
        raise UsageError(
            f"{path}: has neither a table of nccl-tests (size, count, ..., time, algbw, busbw) nor a title of"
            " perftest; accepted: what these print, or the JSON of nccl-tests' -J"
        )
    ranks = dict(_RANK.findall(text))
    return Log(
        str(path),
        _named(path, said, operation),
        len(ranks),
        len(set(ranks.values())),
        1,
        _sorted(path, rows),
        next(iter(_MODEL.findall(text)), ""),
    )


def check_alike(logs: Sequence[Log]) -> None:
    """Refuse logs of clusters with different GPUs. Raises UsageError."""
    known = [log for log in logs if log.gpu]
    for log in known:
        if log.gpu != known[0].gpu:
            others = f"{known[0].file} of {known[0].gpu}"
            raise UsageError(f"{log.file} is of {log.gpu}, {others}; accepted: logs of one cluster")


def _is_row(words: Sequence[str]) -> bool:
    """Whether a line is meant as a row of a table: it begins with a figure, or has a type in its place."""
    return _FIGURE.fullmatch(words[0]) is not None or (words[2:3] != [] and words[2] in _WIDTHS)


def _take(
    rows: dict[int, float], path: Path, number: int, words: list[str], names: list[str], column: Column
) -> int:
    """Keep the time of one line. Returns its size over its bytes by count and type; 0 of an empty row."""
    times = [at for at, name in enumerate(names) if name == "time"]
    at = times[-1] if column == "in-place" else times[0]
    missing = len(names) - len(words)
    least = len(names) - sum(name in names for name in _BLANK)
    if not least <= len(words) <= len(names):
        reason = f"has {counted(len(words), 'column')} below a header of {len(names)}"
        raise UsageError(f"{path}:{number}: {reason}; accepted: nccl-tests' rows")
    if names[2] != "type" or words[2] not in _WIDTHS:
        reason = f"has {shown(words[2])} in the column of the type"
        raise UsageError(f"{path}:{number}: {reason}; accepted: {listed(_WIDTHS, 20)}")
    size_bytes = _size(path, number, words[0])
    moved_bytes = _size(path, number, words[1]) * _WIDTHS[words[2]]
    if size_bytes == 0:
        return 0
    if moved_bytes == 0 or size_bytes % moved_bytes:
        reason = f"its size of {size_bytes} B is no multiple of its {words[1]} elements of {words[2]}"
        raise UsageError(f"{path}:{number}: {reason}; accepted: nccl-tests' rows")
    rows[size_bytes] = _figure(path, number, words[at - missing], "time")
    return size_bytes // moved_bytes


def _size(path: Path, number: int, word: str) -> int:
    """A whole number of a row. Raises UsageError."""
    if not word.isdecimal() or len(word) > len(str(MOST_BYTES)) or int(word) > MOST_BYTES:
        raise UsageError(f"{path}:{number}: {shown(word)} is no size; accepted: 0 to {MOST_BYTES} B")
    return int(word)


def _figure(path: Path, number: int, word: str, name: str) -> float:
    """A time or rate of a row. Raises UsageError."""
    found = float(word) if _FIGURE.fullmatch(word) and word.count(".") < 2 else 0.0
    if not 0 < found < math.inf:
        raise UsageError(f"{path}:{number}: {shown(word)} is no {name}; accepted: a number above 0")
    return found


def _sorted(path: Path, rows: Mapping[int, float]) -> tuple[Measured, ...]:
    if not rows:
        raise UsageError(f"{path}: has no row with a size and a time; accepted: a log of a whole test")
    return tuple(Measured(size, rows[size]) for size in sorted(rows))


def _of_json(path: Path, text: str, operation: str, column: Column) -> Log:
    half = column.replace("-", "_")
    try:
        value: Any = json_of(text)
        rows = {}
        for at, one in enumerate(value["results"]):
            size_bytes, time_us = one["size"], one[half]["time"]
            fits = isinstance(size_bytes, int) and 0 <= size_bytes <= MOST_BYTES
            if not fits or isinstance(time_us, bool) or (size_bytes and not 0 < time_us < math.inf):
                reason = f"results[{at}] has the size {shown(size_bytes)} and the time {shown(time_us)}"
                raise UsageError(f"{path}: {reason}; accepted: whole bytes and a number above 0")
            if size_bytes:
                rows[size_bytes] = float(time_us)
        devices = value["config"]["devices"]
        ranks, servers = len(devices), len({one["hostname"] for one in devices})
        models = [str(word) for one in devices for word in one.values() if str(word).startswith("NVIDIA ")]
        said = " ".join(str(word) for word in value.get("args", ()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__} {error}"[:60]
        raise UsageError(
            f"{path}: is no JSON of nccl-tests ({reason}); accepted: what its -J writes"
        ) from None
    match = _COMMAND.search(said)
    words = said.split()
    if match is None and "perf" in words[:-1]:  # emu's own
        said = words[words.index("perf") + 1]
    name = _named(path, match[1] if match else said if said.replace("_", "").isalpha() else "", operation)
    model = models[0].removeprefix("NVIDIA ").strip() if models else ""
    return Log(str(path), name, ranks, servers, 1, _sorted(path, rows), model)


def _of_perftest(path: Path, text: str, title: str) -> Log:
    if title not in PERFTEST:
        raise UsageError(f"{path}: is of a {title}; accepted: {', '.join(PERFTEST)}")
    kind = PERFTEST[title]
    pairs = re.search(r"Number of qps\s*:\s*(\d+)", text)
    rows: dict[int, float] = {}
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#bytes"):
            names = re.findall(  # columns have spaces in their names, and no two versions the same distance
                r"#\w+|BW \w+\s?\[[^\]]+\]|MsgRate\s?\[[^\]]+\]|[\w%]+(?: \w+)?\s?\[\w+\]", line
            )
            wanted = "BW average" if kind == "write_bw" else "t_typical"
            if not any(name.startswith(wanted) for name in names):
                raise UsageError(
                    f"{path}:{number}: has no column {wanted!r}; accepted: perftest's own columns"
                )
            continue
        words = line.split()
        if not names or not words or not _FIGURE.fullmatch(words[0]):
            continue
        at = next(at for at, name in enumerate(names) if name.startswith(("BW average", "t_typical")))
        if len(words) != len(names):
            reason = f"has {counted(len(words), 'column')} below a header of {len(names)}"
            raise UsageError(f"{path}:{number}: {reason}; accepted: perftest's rows")
        size_bytes = _size(path, number, words[0])
        figure = _figure(path, number, words[at], names[at].partition("[")[0].strip())
        if kind == "write_bw":
            unit = names[at].partition("[")[2].rstrip("]")
            if unit not in _RATES:
                raise UsageError(f"{path}:{number}: is in {unit!r}; accepted: {', '.join(_RATES)}")
            figure = 1e6 * size_bytes / (figure * _RATES[unit])
        rows[size_bytes] = figure
    return Log(str(path), kind, 2, 2, int(pairs[1]) if pairs else 1, _sorted(path, rows))


def of_size(log: Log, most_bytes: int) -> Log:
    """The log without sizes above `most_bytes`. Raises UsageError if fewer than six are left."""
    rows = tuple(row for row in log.rows if row.size_bytes <= most_bytes)
    if len(rows) < LEAST_SIZES:
        raise UsageError(
            f"{log.file}: has {counted(len(rows), 'size')} up to --largest; accepted: at least {LEAST_SIZES},"
            " half of which are kept back"
        )
    return log._replace(rows=rows)


LEAST_SIZES: Final = 6
