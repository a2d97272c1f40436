"""State of each device at the end of a run, and how it is kept.

`shown.jsonl` of a run directory has one numbered line for each device that has something to show: its
counters that are not zero, each as metric, port, priority, reason and value, and its tables: what it answers
to an operator who asks (`emu.engine.device_inspection`), and what hosts and the controller remember of
operations. The last line is the controller's. Together with the samples, the topology and the intended
configuration this is all that a diagnosis goes by.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from actors.fabric.model import Topology
from emu.base.errors import UsageError
from emu.counts.collected import ByCounters, DeviceRecord, Rows
from emu.counts.device_lines import CounterLines

TABLES: Final[dict[str, tuple[str, ...]]] = {
    "neighbours": ("port", "peer", "peer_port"),
    "downs": ("port", "times", "from_ps", "until_ps"),
    "differs": ("item", "place", "a", "b", "c", "start_a", "start_b", "start_c"),
    "log": ("at_ps", "item", "place", "a", "b", "c"),
    "late": ("port", "frames", "late_ps", "latest_ps", "since_ps"),
    "held": ("port", "waiting", "blocked", "signalled", "up"),
    "voqs": ("egress", "priority", "frames", "blocked", "up"),
    "withdrawn": ("link",),
    "receive": ("port", "priority", "peak_bytes", "size_bytes"),
    "pairs": ("pair", "qpn", "remote_address", "remote_qpn"),
    "outstanding": ("pair", "qpn", "remote_address", "left", "sent", "quiet_ps"),
    "ranks": ("job", "rank", "operation", "waits_for", "peer", "port", "pair"),
    "silent": ("silent",),
}
"""What a device may show, by name, with its columns; -1 stands for never, or nobody."""
WAITS: Final = ("nothing", "data", "a clear-to-send", "an acknowledgement", "a queue pair in error")
"""What a rank waits for, in words, by `waits_for` of table `ranks`."""
WAIT_DATA: Final = 1
WAIT_ACKNOWLEDGEMENT: Final = 3
ROUTE: Final = 0
"""Items of configuration and of the log: routes withdrawn (the place is a link),"""
SPEED: Final = 1
"""a port's speed, bit/s,"""
PFC: Final = 2
"""whether a port has priority flow control,"""
HEADROOM: Final = 3
"""headroom of a port's lossless groups, bytes,"""
ALPHA: Final = 4
"""the buffer's dynamic threshold, 65536ths,"""
ECN: Final = 5
"""a port's marking thresholds,"""
DSCP: Final = 6
"""queue and priority group of a DSCP (the place),"""
HASH_SEED: Final = 7
"""the hash's seed,"""
HASH_FIELDS: Final = 8
"""whether it takes the QP field,"""
CREDITS: Final = 9
"""a modular switch's credit window: initial and most,"""
PAIR_ERROR: Final = 10
"""a queue pair (the place) went into error: its number, and the status of what it was doing,"""
GPU_GONE: Final = 11
"""the GPU behind a host's port (the place) is gone,"""
BOOTED: Final = 12
"""a host has booted,"""
TIMER: Final = 13
"""the timer of a queue pair (the place) expired: its number, how long it ran in ps, and whether a NAK that an
acknowledgement had overtaken asked for something sent before."""
REMEMBERED: Final = ("operations", "flights", "failures", "steps")
"""Tables of results that are kept with them."""

_compact: Final = json.JSONEncoder(separators=(",", ":")).encode  # one for all: making one takes longer

Place = tuple[str, int, int, str]
"""Metric, port, priority, reason."""


class Shown(NamedTuple):
    """One device at the end of a run."""

    number: int
    counters: dict[Place, int]
    """Those that are not zero."""
    tables: Rows

    def rows(self, name: str) -> Sequence[Sequence[int]]:
        """A table; empty if there is nothing to show."""
        return self.tables.get(name, ())


def shown_of(record: DeviceRecord) -> Shown:
    """What a device left behind."""
    counters = {one.place: value for one, value in record.counted()}
    return Shown(record.number, counters, tables_of(record))


def tables_of(record: DeviceRecord) -> Rows:
    """What a device left behind besides its counters."""
    results = record.results
    found = {name: results[name] for name in REMEMBERED if results.get(name)} if results else None
    return {**record.shown, **found} if found else record.shown


def shown_lines(topology: Topology, records: Iterable[DeviceRecord]) -> bytes:
    """The lines of `shown.jsonl`, in the order of the records: of the devices that show something, and of the
    controller, which is the last. They are numbered, so that one that is lost is missed.
    """
    place = 0
    pieces: list[bytes] = []
    lines = ByCounters(CounterLines)
    out = BytesWriter()
    for record in records:
        tables = tables_of(record)
        counts = lines.of(record.series).write(out, () if record.idle else record.counters)
        if counts or tables or record.number == topology.controller:
            name = _compact(topology.nodes[record.number].name)
            begin = f'{{"line":{place},"device":{record.number},"name":{name},"counters":'
            shown = _compact(tables) if tables else "{}"
            pieces += (begin.encode(), out.getvalue(), f',"tables":{shown}}}\n'.encode())
            place += 1
        out.truncate(0)
    return b"".join(pieces)


def read_shown(path: Path) -> list[Shown]:
    """The devices of `shown.jsonl`. UsageError if it is not such a file, or lacks any line."""
    found = []
    whole = True
    try:
        with path.open(encoding="ascii") as lines:
            for place, text in enumerate(lines):
                record = json.loads(text)
                whole = whole and record["line"] == place
                counters = {tuple(place): value for *place, value in record["counters"]}
                found.append(Shown(record["device"], counters, record["tables"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: not what devices showed at the end of a run: {reason}") from error
    if not found or not whole:
        raise UsageError(f"{path}: damaged: lines of devices are missing")
    return found
