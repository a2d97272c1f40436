"""What traces and event logs of a run left behind, as files of its directory.

`trace.csv` (`run.trace`): a row for a queue pair in each interval in which it sent or was acknowledged; its
columns are `TRACE_COLUMNS`. Rows come by NIC, then by time. `rate_bps` is what the congestion control
allows, empty where it bounds nothing; `window_packets` likewise; `sent_packets`, `sent_bytes` (payload) and
`retransmissions` count from the beginning, so that a rate is the difference of two rows over that of their
times.

`timeline.jsonl` (`run.event_log`): a line for each host, NIC and switch: `device`, `name`, `missed` (events
that there was no room for), and `events`: rows of kind, port (of a host: job), -1 (of a host: rank), three
numbers, when it began and when it ended, -1 for what had not by the end of the run. `actors.kernel.event_log`
lists the kinds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from actors.fabric.model import Topology
from emu.counts.collected import DeviceRecord

Cell = int | str | float | None


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A CSV file's text, lines ending in a newline alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


ALPHA_ONE: Final = 1 << 20
TRACE_COLUMNS: Final = (
    "virtual_ps",
    "source",
    "destination",
    "queue_pair",
    "remote_queue_pair",
    "rate_bps",
    "window_packets",
    "in_flight_packets",
    "rtt_ps",
    "alpha",
    "sent_packets",
    "sent_bytes",
    "retransmissions",
)


def trace_csv(topology: Topology, records: Iterable[DeviceRecord]) -> str:
    """The rows of every NIC."""
    names = [node.name for node in topology.nodes]
    rows: list[list[Cell]] = []
    for record in records:
        for row in record.recorded.get("trace", ()):
            at_ps, pair, address, remote, rate, window, flying, rtt, alpha, *sent = row
            who: list[Cell] = [at_ps, names[record.number], names[topology.nic_at(address)], pair, remote]
            marked = round(alpha / ALPHA_ONE, 6) if alpha >= 0 else None
            trip = rtt if rtt >= 0 else None
            rows.append([*who, rate or None, window or None, flying, trip, marked, *sent])
    return csv_text(TRACE_COLUMNS, rows)


def event_records(topology: Topology, records: Iterable[DeviceRecord]) -> Iterator[dict[str, Any]]:
    """What the lines of `timeline.jsonl` hold."""
    for record in records:
        events = record.recorded.get("events")
        if events is not None:
            missed = record.recorded.get("missed", [[0, 0]])[0][0]
            name = topology.nodes[record.number].name
            yield {"device": record.number, "name": name, "missed": missed, "events": events}
