"""Reader of the table of NCCL's example tuner plug-in. Key `ncclx.tuner.table`; NCCL_TUNER_CONFIG_FILE.

A line is a row with 6 to 10 cells; the first cells of a header line are `collective_type,min_bytes`:

    collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff

-1 leaves algorithm, protocol and channels to NCCL's own choice, and matches any number of servers and ranks.
What is read becomes `ncclx.tuner.rows`. Rows for several operations in one call (`numPipeOps` above 1) or for
registered buffers (`regBuff` 1) match nothing here, where each call is one operation on plain buffers, and so
do algorithms with reductions in switches: they are left out and counted in a note. Tables of NCCLX's built-in
tuner (NCCLX_TUNER_CONFIG_FILE) have other columns, and are refused by name.

Source: NCCL 2.30, `plugins/tuner/example` (README.md, plugin.c); RCCL, `ext-tuner/example/*.conf`;
NCCLX, `comms/ncclx/meta/tuner/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from emu.base.errors import FormatError, Problem, ScenarioError
from emu.base.spelling import did_you_mean, listed
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited, whole_number
from emu.scenario.yaml.document import Node, Place, decode, from_plain

CELLS: Final = (
    "collective_type",
    "min_bytes",
    "max_bytes",
    "algorithm",
    "protocol",
    "channels",
    "nNodes",
    "nRanks",
    "numPipeOps",
    "regBuff",
)
LEAST_CELLS: Final = 6
OPS: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
ALGORITHMS: Final = {
    "ring": "ring",
    "tree": "double_binary_tree",
    "nvls": "nvls",
    "nvls_tree": "nvls_tree",
    "pat": "pat",
    "collnet_direct": "",
    "collnet_chain": "",
}
"""NCCL's names and those of the model; empty: reductions in switches, which are not modelled."""
PROTOCOLS: Final = ("ll", "ll128", "simple")
MOST_ROWS: Final = 4096
MOST_BYTES: Final = 1 << 50
MOST_CHANNELS: Final = 64
_ANY: Final = "-1"
_NCCLX: Final = ("[", "(", "*", "b")
"""How the second cell of NCCLX's tables begins: intervals, any number, or the header's bytesPerRank."""


class TunerTableError(FormatError):
    """A table that cannot be read."""


def put_tuner_in_place(
    tree: Node, directory: Path, read_file: Callable[[Path], bytes], notes: list[str]
) -> list[Problem]:
    """Put the rows of `ncclx.tuner.table` into `ncclx.tuner.rows`; returns what does not fit."""
    ncclx = tree.child("ncclx")
    tuner = None if ncclx is None else ncclx.child("tuner")
    table = None if tuner is None else tuner.child("table")
    if tuner is None or table is None or not isinstance(table.value, str):
        return []
    key, place = "ncclx.tuner.table", table.place
    if tuner.child("rows") is not None:
        return [Problem(place.file, place.line, key, "`rows` are given as well", "one of the two")]
    path = directory / table.value
    try:
        text = decode(read_file(path), str(path))
        rows, left_out = read_table(text)
    except ScenarioError as error:
        (problem,) = error.problems
        return [Problem(place.file, place.line, key, f"{path}: {problem.reason}", problem.accepted)]
    except FormatError as error:
        return [Problem(str(path), error.line, key, error.reason, error.accepted)]
    assert isinstance(tuner.value, dict), place
    tuner.value["rows"] = from_plain([row for _, row in rows], place)
    items = tuner.value["rows"].value
    assert isinstance(items, list), place
    for (line, row), item in zip(rows, items, strict=True):
        item.place = Place(str(path), line)
        item.keys = dict.fromkeys(row, item.place)
    tuner.keys["rows"] = place
    del tuner.value["table"], tuner.keys["table"]
    if left_out:
        every = len(rows) + left_out
        why = "for several operations in a call, registered buffers or reductions in switches"
        notes.append(f"{key}: {left_out} of {every} rows match nothing here: {why}")
    return []


def read_table(text: str) -> tuple[list[tuple[int, dict[str, object]]], int]:
    """The rows of a table with their lines, and how many can match nothing. Raises TunerTableError."""
    rows: list[tuple[int, dict[str, object]]] = []
    left_out = 0
    for line, cells in _lines(text):
        limited(TunerTableError, line, len(rows) + left_out, MOST_ROWS - 1, "rows")
        row = _row(line, cells)
        left_out += row is None
        if row is not None:
            rows.append((line, row))
    if not rows and not left_out:
        raise TunerTableError(1, "has no row", ",".join(CELLS))
    return rows, left_out


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for line, written in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in written.split(",")]
        if not written.strip() or written.lstrip().startswith("#") or cells[:2] == list(CELLS[:2]):
            continue
        if cells[0].lower() in ("collective", *OPS) and written.partition(",")[2].lstrip()[:1] in _NCCLX:
            reason = "is a row of NCCLX's built-in tuner, which goes by bytes of a rank"
            raise TunerTableError(line, reason, f"NCCL's: {','.join(CELLS)}")
        if not LEAST_CELLS <= len(cells) <= len(CELLS):
            reason = f"{len(cells)} cells"
            raise TunerTableError(line, reason, f"{LEAST_CELLS} to {len(CELLS)}: {','.join(CELLS)}")
        yield line, cells


def _row(line: int, cells: list[str]) -> dict[str, object] | None:
    """A row as the tuner takes it; None if it matches no call."""
    cell = dict(zip(CELLS, [*cells, *[_ANY] * (len(CELLS) - len(cells))], strict=True))
    algorithm = _one_of(line, cell["algorithm"].lower(), [*ALGORITHMS, _ANY])
    protocol = _one_of(line, cell["protocol"].lower(), [*PROTOCOLS, _ANY])
    least = whole_number(TunerTableError, line, cell["min_bytes"], 0, MOST_BYTES)
    most = whole_number(TunerTableError, line, cell["max_bytes"], 0, MOST_BYTES)
    if most < least:
        raise TunerTableError(line, f"max_bytes {most} is below min_bytes", f"at least {least}")
    row: dict[str, object] = {
        "op": OPS[_one_of(line, cell["collective_type"].lower(), list(OPS))],
        "at_least": f"{least}B",
        "at_most": f"{most}B",
    }
    limits = {"channels": MOST_CHANNELS, "nNodes": 1 << 20, "nRanks": 1 << 20, "numPipeOps": 1 << 20}
    numbers = {
        name: None if cell[name] == _ANY else whole_number(TunerTableError, line, cell[name], 1, top)
        for name, top in limits.items()
    }
    _one_of(line, cell["regBuff"], ["0", "1", _ANY])
    if cell["regBuff"] == "1" or numbers["numPipeOps"] not in (None, 1) or ALGORITHMS.get(algorithm) == "":
        return None
    chosen = {
        "algorithm": ALGORITHMS.get(algorithm),
        "protocol": protocol if protocol in PROTOCOLS else None,
        "channels": numbers["channels"],
        "servers": numbers["nNodes"],
        "ranks": numbers["nRanks"],
    }
    return row | {name: value for name, value in chosen.items() if value is not None}


def _one_of(line: int, text: str, known: list[str]) -> str:
    if text not in known:
        hint = did_you_mean(text, known)
        raise TunerTableError(line, f"there is no {text[:LONGEST_SHOWN]!r}{hint}", listed(known, len(known)))
    return text
