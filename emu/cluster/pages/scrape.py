"""Snapshots of a running worker: counters for its metrics page, and progress for the terminal.

Its metrics page (`emu.cluster.pages.metrics_page`), answered between slices by the thread that simulates, and
how far it is, read by another thread: plain integers, each right by itself, not taken at one moment. What
must be exact is taken at sync points instead.

A run that goes back to a snapshot keeps its pages. Until virtual time passes what was served before, the
last that was served is served again, so no counter ever falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import emu
from actors.fabric.model import Role, Topology
from actors.kernel.device import Device, Series, Tally, counts_of
from actors.kernel.event import FIRST_UPKEEP, KIND_NAMES, key_device, key_kind
from emu.cluster.pages.metrics_page import Exporter
from emu.cluster.pages.state_series import Rows, StateReading
from emu.engine.outcome import Awaited, Made, Progress
from emu.engine.sync.partition import Partition
from emu.scenario.schema import Scenario


def classes_in_use(scenario: Scenario) -> tuple[int, ...]:
    """Classes whose series are shown from the beginning: lossless ones, and those that are sent in."""
    given: list[int | None] = list(scenario.switch.pfc.priorities)
    for transport in scenario.transports:
        given += [transport.data_priority, transport.control_priority, transport.ack_priority]
    for job in scenario.jobs:
        given += [job.data_priority, *job.workload.classes()]
    return tuple(sorted({one for one in given if one is not None}))


def awaited(partitions: Sequence[Partition], topology: Topology) -> Awaited | None:
    """The first pending event that is work and no upkeep; None if there is none."""
    first = min(
        (
            (int(event.time_ps), int(event.key))
            for partition in partitions
            for event in partition.kernel.pending()
            if key_kind(event.key) < FIRST_UPKEEP
        ),
        default=None,
    )
    if first is None:
        return None
    at_ps, key = first
    return Awaited(at_ps, KIND_NAMES[key_kind(key)], topology.nodes[key_device(key)].name)


class Scrape:
    """The readable side of one process: one worker, or all parts of a local run."""

    def __init__(
        self, topology: Topology, partitions: Sequence[Partition], windows: Callable[[], int]
    ) -> None:
        self._topology = topology
        self._exporter: Exporter | None = None
        self._address = ""
        self._served_ps = -1
        """The virtual time of the last snapshot that was published."""
        self._tally = Tally()
        self._engine: dict[str, int] = {}
        self._windows_before = 0
        self.state: StateReading | None = None
        self.waited_ps: Callable[[], int] = int
        """For how long of wall time this process waited for others, since it hosts these partitions."""
        self._waited_before_ps = 0
        self.refused: Callable[[], int] = int
        """How many connections this process refused, since it hosts these partitions."""
        self._refused_before = 0
        self._delivered_bytes = -1
        """At the last progress."""
        self.measured: Sequence[Made] = ()
        """What faults were found to hit so far; grows."""
        self._rows: Rows = {}
        self.host(partitions, windows)

    def host(self, partitions: Sequence[Partition], windows: Callable[[], int]) -> None:
        """Read these partitions from now on; they host the same devices as those before."""
        self._partitions = partitions
        self._windows = windows
        self._windows_before = self._engine.get("windows", 0)
        self._waited_before_ps = self._engine.get("window_wait_wall_ps", 0)
        self.waited_ps = int
        self._refused_before = self._engine.get("refused_connections", 0)
        self.refused = int
        self._devices: list[Device] = []
        """All of them by number, once there is somebody to read what they count."""
        built = [device for partition in partitions for device in partition.built]
        self._controller = [device for device in built if device.number == self._topology.controller]

    def _carriers(self) -> Iterator[Device]:
        """What payload comes to, or passes on its way between GPUs of a server. Who sleeps has none."""
        nodes = self._topology.nodes
        for partition in self._partitions:
            for device in partition.built:
                if nodes[device.number].role in (Role.NIC, Role.NVSWITCH):
                    yield device

    def _all(self) -> list[Device]:
        """Every device here; those that sleep wake."""
        if not self._devices:
            devices = [device for partition in self._partitions for device in partition.devices]
            self._devices = sorted(devices, key=lambda device: device.number)
        return self._devices

    def start(self, scenario: Scenario, *, idle: bool = True) -> str:
        """Serve the metrics page, if it is not served yet; where, as HOST:PORT. `idle`: for some time nobody
        will look whether somebody asks, so what there is now is published."""
        if self._exporter is not None:
            return self._address
        self._exporter = Exporter(
            self._series(),
            {
                "build_info": {"version": emu.__version__, "compiled": str(emu.is_compiled()).lower()},
                "run_info": {"scenario": scenario.name, "seed": str(scenario.seed)},
            },
            classes_in_use(scenario),
        )
        if idle:
            self.publish()
        self._address = self._exporter.start()
        return self._address

    def _series(self) -> Iterator[tuple[str, Sequence[Series]]]:
        """What devices count, for the first who asks."""
        names = self._topology.nodes
        for device in self._all():
            yield names[device.number].name, device.series()

    def answer(self) -> None:
        """Publish a snapshot if a scrape waits for one. Called between slices."""
        if self._exporter is not None and self._exporter.wanted:
            self.publish()

    def publish(self) -> None:
        """Publish a snapshot; the last one stays when the run is over."""
        if self._exporter is None:
            return
        virtual_ps = self.virtual_ps()
        if virtual_ps >= self._served_ps:
            self._served_ps = virtual_ps
            devices = self._all()
            for partition in self._partitions:
                partition.kernel.settle()
            self._engine = {
                "events": sum(device.executed for device in devices),
                "packet_hops": sum(device.frames_received() for device in devices),
                "data_packet_hops": sum(device.data_frames_received() for device in devices),
                "windows": self._windows_before + self._windows(),
                "window_wait_wall_ps": self._waited_before_ps + self.waited_ps(),
            }
            self._tally = counts_of(devices)
            if self.state is not None:
                self._rows = self.state.rows(virtual_ps)
        self._engine["refused_connections"] = self._refused_before + self.refused()
        self._exporter.publish(self._served_ps, self._tally, self._engine, self._rows)

    def page(self) -> tuple[int, bytes]:
        """The metrics page, and a virtual time that it is not beyond."""
        assert self._exporter is not None, "it is served"
        try:
            text = self._exporter.body()
            return self._served_ps, text
        finally:
            self._exporter.sent()

    def virtual_ps(self) -> int:
        """How far virtual time is."""
        return max(partition.now_ps() for partition in self._partitions)

    def progress(self) -> Progress:
        """Virtual time, payload delivered, and the operations that have ended, if the controller is here."""
        tables = [one.results() for one in self._controller]
        rows = [row for one in tables for row in one.get("operations", [])]
        delivered_bytes = sum(one.progress for one in self._carriers())
        still = delivered_bytes == self._delivered_bytes
        self._delivered_bytes = delivered_bytes
        return Progress(
            self.virtual_ps(),
            delivered_bytes,
            tuple(tuple(row) for row in rows),
            measured=tuple(self.measured),
            awaits=awaited(self._partitions, self._topology) if still else None,
            operator=tuple(tuple(row) for one in tables for row in one.get("operator", [])),
        )

    def close(self) -> None:
        """Stop serving. May be called again."""
        if self._exporter is not None:
            self._exporter.close()
