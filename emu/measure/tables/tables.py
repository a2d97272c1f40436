"""The tables of a run directory: ports, flows, collectives.

CSV with a header line, numbers without units in the base units of the columns' names, an empty cell for what
there is none of. Rows come in the order of the topology (ports) or of the plan (flows, collectives), so the
files of two placements are equal byte for byte.

The columns of `ports.csv` are read off the declaration of series: counters are summed over priorities, peaks
are the largest among them, drops have a column for each reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from actors.fabric.model import Topology
from actors.kernel.device import Series
from emu.measure.collected import DeviceRecord
from emu.measure.metrics import DEVICE_METRICS, DROP_REASONS, METRIC_OF, Kind
from emu.measure.summary.summary import Collective, Flow, Job

Cell = int | str | float | None


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A CSV file's text, lines ending in a newline alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _port_columns() -> list[str]:
    columns: list[str] = []
    for metric in DEVICE_METRICS:
        if "reason" in metric.labels:
            columns += [f"{metric.key}_{reason}" for reason in DROP_REASONS]
        elif "port" in metric.labels:
            columns.append(metric.key)
    return columns


def ports_csv(topology: Topology, records: Iterable[DeviceRecord]) -> str:
    """One row for each fabric port."""
    columns = _port_columns()
    by_number = {record.number: record for record in records}
    header = ["device", "port", "peer", "peer_port", "link", "rate_bps", *columns]
    layouts: dict[tuple[Series, ...], _Layout] = {}
    nothing: list[Cell] = [None] * len(columns)
    rows: list[list[Cell]] = []
    for node in topology.nodes:
        record = by_number.get(node.number)
        if record is None:
            continue
        alike = tuple(record.series)
        layout = layouts.get(alike)
        if layout is None:
            layout = layouts[alike] = _Layout(alike, columns)
        cells = layout.cells(record.counters)
        for port, end in enumerate(topology.ports(node.number)):
            if end.kind != "fabric":
                continue
            peer = topology.nodes[end.peer].name
            link = topology.links[end.link].name
            place: list[Cell] = [node.name, port, peer, end.peer_port, link, end.rate_bps]
            rows.append(place + (cells[port * len(columns) : (port + 1) * len(columns)] or nothing))
    return csv_text(header, rows)


class _Layout:
    """Where the counters of devices that count alike stand in their ports' rows."""

    def __init__(self, series: tuple[Series, ...], columns: Sequence[str]) -> None:
        at = {column: place for place, column in enumerate(columns)}
        ports = 1 + max((one.port for one in series), default=-1)
        self._empty: list[int | None] = [None] * (ports * len(columns))
        self._cell_of: list[int] = []
        self._is_gauge: list[bool] = []
        for one in series:
            column = f"{one.metric}_{one.reason}" if one.reason else one.metric
            cell = one.port * len(columns) + at[column] if one.port >= 0 and column in at else -1
            self._cell_of.append(cell)
            self._is_gauge.append(METRIC_OF[one.metric].kind is Kind.GAUGE)
            if cell >= 0:
                self._empty[cell] = 0

    def cells(self, counters: Sequence[int]) -> list[Cell]:
        """The columns of every port, one port after the other; None where there is no such counter.

        Nearly all counters of a large fabric are 0, and passed over.
        """
        cells = self._empty.copy()
        for place, value in enumerate(counters):
            if value and (cell := self._cell_of[place]) >= 0:
                before = cells[cell] or 0
                cells[cell] = max(before, value) if self._is_gauge[place] else before + value
        return list[Cell](cells)


def flows_csv(jobs: Mapping[str, Job]) -> str:
    """One row for each flow of each job."""
    columns = list(Flow.model_fields)
    rows = (
        [name, *(getattr(flow, column) for column in columns)]
        for name, job in jobs.items()
        for flow in job.flows
    )
    return csv_text(["job", *columns], rows)


def collectives_csv(jobs: Mapping[str, Job]) -> str:
    """One row for each operation of each job."""
    columns = list(Collective.model_fields)
    return csv_text(["job", *columns], _collective_rows(jobs, columns))


def _collective_rows(jobs: Mapping[str, Job], columns: Sequence[str]) -> Iterator[list[Cell]]:
    for name, job in jobs.items():
        for one in job.collectives:
            yield [name, *(getattr(one, column) for column in columns)]
