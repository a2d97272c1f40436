"""What is the Ray actor that hosts devices?

An async actor: its loop is asyncio's, with trio as a guest for connections, handshake and (over TCP) the
windows; the simulation has a thread of its own. A call takes about a millisecond, and up to a slice longer
while the simulation runs. The coordinator calls, in this order: `prepare` (build the devices from the
scenario's text, open the sockets), `connect`, `run` (returns when the run is over, for whatever reason),
`collect`, `close`; meanwhile `progress` and `stop`. What it takes and returns is plain: numbers, texts,
tuples. An `EmuError` is returned, not raised, because Ray would wrap it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from actors.runtime.build import draw
from actors.runtime.exchange import Exchange, SocketExchange
from actors.runtime.guest import TrioGuest
from actors.runtime.hello import RunIdentity
from actors.runtime.outcome import Progress
from actors.runtime.participant import Participant, records_of
from actors.runtime.partition import Partition
from actors.runtime.peers import Address, Peers, StreamExchange
from actors.runtime.placement import Placement
from actors.runtime.plain_records import PlainRecord, to_plain
from actors.runtime.plan import spread
from actors.runtime.sampling import Sampler, Share
from actors.runtime.scrape import Scrape
from actors.runtime.simulation import Report, Simulation
from actors.runtime.waiting import waits_of
from emu.errors import EmuError
from emu.scenario.load import load_text
from emu.topology.model import Topology

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SPIN_S: Final = 0.0002


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is told: everything else it works out from the scenario."""

    worker: int
    workers: int
    placement: Placement
    scenario: str
    """The effective scenario, as text."""
    run: str
    secret: bytes
    sockets: str
    tcp_host: str
    """The address on which other hosts reach this worker; empty if none need to."""
    metrics: bool
    incarnation: int = 0
    """See `actors.runtime.hello`."""

    def __repr__(self) -> str:
        return f"WorkerSpec(worker={self.worker}, workers={self.workers}, run={self.run!r})"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor runs."""

    pid: int
    host: str
    """Equal for actors that share Unix sockets."""
    node: str
    ip: str
    """The address on which other hosts reach its node."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a worker says of itself once it is built."""

    address: Address
    metrics_address: str


@dataclass(slots=True)
class _Hosted:
    """What a worker has built."""

    spec: WorkerSpec
    topology: Topology
    partition: Partition
    sampler: Sampler
    participant: Participant
    scrape: Scrape
    metrics_address: str


class Worker:
    """The actor; one of a run."""

    def __init__(self) -> None:
        self._hosted: _Hosted | None = None
        self._guest: TrioGuest | None = None
        self._peers: Peers | None = None
        self._address: Address | None = None
        self._exchange: Exchange | None = None
        self._simulation: Simulation | None = None

    async def where(self) -> Place:
        """Where this actor runs."""
        import ray  # noqa: PLC0415  an actor runs where Ray is

        ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return Place(os.getpid(), host_identity(), socket.gethostname(), ip)

    async def prepare(self, spec: WorkerSpec) -> Prepared | EmuError:
        """Build the devices and open the sockets."""
        try:
            hosted = self._hosted = await asyncio.to_thread(_build, spec)
            self._guest = TrioGuest()
            await self._guest.ready()
            identity = RunIdentity(spec.run, spec.secret, spec.workers, spec.incarnation)
            self._peers = Peers(identity, spec.worker)
            self._address = await self._guest.call(self._peers.listen, host_identity(), spec.tcp_host)
        except EmuError as error:
            return error
        self._guest.spawn(self._peers.serve)
        return Prepared(self._address, hosted.metrics_address)

    async def connect(self, addresses: list[Address]) -> EmuError | None:
        """Connect to the peers this worker talks to."""
        assert self._guest is not None and self._peers is not None, "prepare comes first"
        assert self._hosted is not None and self._address is not None, "prepare comes first"
        peers = self._hosted.participant.machine.peers
        ways = {peer: addresses[peer].way_from(self._address, self._hosted.spec.sockets) for peer in peers}
        try:
            await self._guest.call(self._peers.connect, ways)
        except EmuError as error:
            return error
        if all(way.startswith("/") for way in ways.values()):
            self._exchange = SocketExchange(self._peers.take_sockets(), _patience_s(self._hosted.spec))
        else:
            assert self._guest.token is not None, "the guest is ready"
            self._exchange = StreamExchange(
                self._peers.streams, self._guest.token, self._guest.spawn, self._peers.seals
            )
        return None

    async def run(self) -> Report:
        """Run until the run is over."""
        hosted = self._hosted
        assert hosted is not None, "prepare comes first"
        self._simulation = Simulation(hosted.participant, self._exchange, hosted.scrape.answer)
        hosted.partition.start()
        return await asyncio.to_thread(self._simulation.run)

    async def progress(self) -> tuple[Progress, list[Share]]:
        """How far this worker is, and the shares of samples taken since the last call."""
        assert self._hosted is not None, "prepare comes first"
        refusals = () if self._peers is None else self._peers.drain_refusals()
        lines = tuple(f"worker {self._hosted.spec.worker} refused {one}" for one in refusals)
        return replace(self._hosted.scrape.progress(), refusals=lines), self._hosted.sampler.drain()

    async def stop(self) -> None:
        """End the simulation at the next slice."""
        if self._simulation is not None:
            self._simulation.stop_asked = True

    async def collect(self) -> tuple[list[PlainRecord], int]:
        """What the devices leave behind, and the peak resident memory of this process in bytes."""
        assert self._hosted is not None, "prepare comes first"
        self._hosted.scrape.publish()
        records = [to_plain(record) for record in records_of(self._hosted.partition)]
        return records, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    async def waits(self) -> list[tuple[int, int, str, bool]]:
        """What the devices wait for, where a job is unfinished: see `actors.runtime.waiting`."""
        assert self._hosted is not None, "prepare comes first"
        found = waits_of(self._hosted.partition.devices, self._hosted.topology)
        return [(one.device, one.waits_for, one.why, one.paused) for one in found]

    async def close(self) -> None:
        """Close, remove and forget everything: the actor is as new. May be called again."""
        await self.stop()
        guest, self._guest = self._guest, None
        if self._exchange is not None:
            self._exchange.close()
        if guest is not None:
            if self._peers is not None:
                await guest.call(self._peers.close)
            await guest.close()
        if self._hosted is not None:
            self._hosted.scrape.close()
        self._hosted = self._peers = self._address = self._exchange = self._simulation = None


def _build(spec: WorkerSpec) -> _Hosted:
    scenario = load_text(spec.scenario, "scenario").scenario
    plan = spread(draw(scenario), spec.workers, spec.placement)
    partition = plan.partition(spec.worker)
    sampler = Sampler(partition)
    participant = Participant(partition, plan.machine(spec.worker), sampler.act)
    scrape = Scrape(plan.topology, [partition], lambda: participant.machine.round)
    metrics_address = scrape.start(scenario) if spec.metrics else ""
    return _Hosted(spec, plan.topology, partition, sampler, participant, scrape, metrics_address)


def _patience_s(spec: WorkerSpec) -> float:
    """How long a worker looks for its peers' parcels before it sleeps: where each has a core, as long as a
    window takes; where they share cores, not at all, for then it would keep a peer from running."""
    return SPIN_S if spec.workers <= len(os.sched_getaffinity(0)) else 0.0


def host_identity() -> str:
    """Equal for processes that see the same Unix sockets: one boot of one kernel, one view of /tmp."""
    boot = BOOT_ID.read_text("ascii").strip() if BOOT_ID.exists() else socket.gethostname()
    place = Path("/tmp").stat()  # noqa: S108  asked for its identity, not written to
    return f"{boot}/{place.st_dev}/{place.st_ino}"
