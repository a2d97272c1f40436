"""What can be read of a worker while it runs?

Its metrics page (`actors.runtime.exporter`), answered between slices by the thread that simulates, and how
far it is, read by another thread: plain integers, each right by itself, not taken at one moment. What must
be exact is taken at sync points instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import emu
from actors.runtime.exporter import Exporter
from actors.runtime.outcome import Progress
from actors.runtime.partition import Partition
from emu.kernel.device import Device
from emu.scenario.schema import Scenario
from emu.topology.model import Topology


class Scrape:
    """The readable side of one process: one worker, or all parts of a local run."""

    def __init__(
        self, topology: Topology, partitions: Sequence[Partition], windows: Callable[[], int]
    ) -> None:
        self._topology = topology
        self._partitions = partitions
        self._windows = windows
        devices = [device for partition in partitions for device in partition.devices]
        self._devices: list[Device] = sorted(devices, key=lambda device: device.number)
        nics = frozenset(topology.nics)
        self._nics = [device for device in self._devices if device.number in nics]
        self._controller = [device for device in self._devices if device.number == topology.controller]
        self._exporter: Exporter | None = None

    def start(self, scenario: Scenario) -> str:
        """Serve the metrics page; where, as HOST:PORT."""
        names = self._topology.nodes
        self._exporter = Exporter(
            [(names[device.number].name, device.series()) for device in self._devices],
            {
                "build": {"version": emu.__version__, "compiled": str(emu.is_compiled()).lower()},
                "run": {"scenario": scenario.name, "seed": str(scenario.seed)},
            },
        )
        self.publish()
        return self._exporter.start()

    def answer(self) -> None:
        """Publish a snapshot if a scrape waits for one. Called between slices."""
        if self._exporter is not None and self._exporter.wanted:
            self.publish()

    def publish(self) -> None:
        """Publish a snapshot; the last one stays when the run is over."""
        if self._exporter is None:
            return
        engine = {
            "events": sum(device.executed for device in self._devices),
            "packet_hops": sum(device.frames_received for device in self._devices),
            "data_packet_hops": sum(device.data_frames_received for device in self._devices),
            "windows": self._windows(),
        }
        values = [device.counters() for device in self._devices]
        self._exporter.publish(self.virtual_ps(), values, engine)

    def virtual_ps(self) -> int:
        """How far virtual time is."""
        return max(partition.now_ps() for partition in self._partitions)

    def progress(self) -> Progress:
        """Virtual time, payload delivered, and the operations that have ended, if the controller is here."""
        rows = [row for one in self._controller for row in one.results().get("operations", [])]
        return Progress(
            self.virtual_ps(), sum(nic.progress for nic in self._nics), tuple(tuple(row) for row in rows)
        )

    def close(self) -> None:
        """Stop serving. May be called again."""
        if self._exporter is not None:
            self._exporter.close()
