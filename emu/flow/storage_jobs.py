"""Clients of storage at flow level: requests with data are transfers, the others take their way alone.

Clients and servers are those of packet level (`actors.host.storage_clients`): only what carries their
requests is another. The front end shares nothing with the back end, so its transfers go by a clock of their
own. TCP's rates are max-min shares here, with no slow start and no window; a disk is a link that carries
payload.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.flow.filling import LIGHT, QUIET, UNIT
from actors.flow.progress import Progress, Shape, Strand
from actors.host.storage_clients import (
    DATA_KINDS,
    ServiceQueue,
    StorageClients,
    answer_bytes,
    request_bytes,
)
from actors.host.storage_clients import Wires as StorageWires
from actors.kernel.units import serialisation_ps
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.build.plan import ClientsWork, JobWork
from emu.flow.messages import capacities_kbps, crossing_ps, host_ps, message_load
from emu.flow.wires import Wires, strands_of
from emu.scenario.schema import Scenario
from emu.topology.front_end import METADATA, STORAGE, front_end_nic


class Servers:
    """The servers on the front end: disks as links behind those of the fabric, and queues for metadata."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self.capacities_kbps = capacities_kbps(topology)
        self.disks: dict[int, tuple[int, int]] = {}
        """By NIC: what its server takes, and gives."""
        self.queues: dict[int, ServiceQueue] = {}
        frontend = scenario.frontend
        for host in topology.hosts:
            model = topology.nodes[host].model
            if model not in (STORAGE, METADATA):
                continue
            nic = front_end_nic(topology, host)
            metadata = frontend.metadata
            self.queues[nic] = ServiceQueue(metadata.operation_ps, metadata.queue)
            if model == STORAGE:
                first = len(self.capacities_kbps)
                self.disks[nic] = first, first + 1
                self.capacities_kbps += [frontend.storage.disk_bps // 1000] * 2


class StorageRun:
    """The clients of one job. `over` is called when all are through."""

    def __init__(
        self,
        scenario: Scenario,
        work: JobWork,
        wires: Wires,
        delays: Delays,
        servers: Servers,
        progress: Progress,
        over: Callable[[int], None],
    ) -> None:
        assert work.manners is not None, work.name
        self.work = work
        self.wires = wires
        self.delays = delays
        self.servers = servers
        self.progress = progress
        self.hosts = [_OnHost(self, one, scenario.seed) for one in work.clients]
        self._over = over
        self._open = len(self.hosts)
        self._end_ps = 0

    def begin(self) -> None:
        """Let the clients begin at the job's start."""
        for host in self.hosts:
            start_ps = self.work.start_ps
            self.progress.at(start_ps, partial(host.clients.begin, start_ps))

    def through(self, end_ps: int) -> None:
        """The clients of a host are through."""
        self._open -= 1
        self._end_ps = max(self._end_ps, end_ps)
        if self._open == 0:
            self._over(self._end_ps)

    def rows(self) -> dict[int, dict[str, list[list[int]]]]:
        """By host, what its clients did."""
        job = self.work.job
        return {
            one.work.host: {
                "clients": one.clients.client_rows(job, one.work.first),
                "requests": one.clients.request_rows(job),
            }
            for one in self.hosts
        }


class _OnHost(StorageWires):
    """The clients of one host, and what carries their requests."""

    def __init__(self, run: StorageRun, work: ClientsWork, seed: int) -> None:
        assert run.work.manners is not None, run.work.name
        self.work = work
        self.clients = StorageClients(
            work.scripts, run.work.manners, self, (seed, work.host + (run.work.job << 20))
        )
        self._run = run

    def send(self, number: int, now_ps: int) -> None:
        request = self.work.requests[number]
        server, here, _ = self.work.connections[request.server]
        disk = self._run.servers.disks.get(server, (0, 0))[0] if request.up_bytes else 0
        came = partial(self._came, number)
        self._carry(self.work.nic, here, server, request_bytes(request), disk, came)

    def later(self, time_ps: int, subject: int) -> None:
        self._run.progress.at(time_ps, lambda: self._due(subject))

    def over(self, begun_ps: int, ended_ps: int, status: int) -> None:
        self._run.through(ended_ps)

    def _due(self, subject: int) -> None:
        self.clients.due(subject, self._run.progress.now_ps)

    def _came(self, number: int) -> None:
        """A request is at its server."""
        progress = self._run.progress
        request = self.work.requests[number]
        server = self.work.connections[request.server][0]
        if request.kind < DATA_KINDS:
            self._answer(number, refused=False)
            return
        done_ps = self._run.servers.queues[server].take(progress.now_ps)
        if done_ps < 0:
            self._answer(number, refused=True)
        else:
            progress.at(done_ps, partial(self._answer, number, refused=False))

    def _answer(self, number: int, *, refused: bool) -> None:
        request = self.work.requests[number]
        server, _, there = self.work.connections[request.server]
        disk = self._run.servers.disks.get(server, (0, 0))[1] if request.down_bytes else 0
        size_bytes = answer_bytes(request)
        self._carry(server, there, self.work.nic, size_bytes, disk, partial(self._answered, number, refused))

    def _answered(self, number: int, refused: bool) -> None:
        self.clients.answered(number, refused, self._run.progress.now_ps)

    def _carry(
        self, nic: int, index: int, peer: int, size_bytes: int, disk: int, then: Callable[[], None]
    ) -> None:
        """A message from NIC to NIC, over the link `disk` if it is not 0; `then` when its host has it."""
        wires, delays, progress = self._run.wires, self._run.delays, self._run.progress
        topology = wires.topology
        way = wires.way(nic, index)
        mtu_bytes = wires.mtu_bytes(nic, peer)
        load = message_load(size_bytes, mtu_bytes, wires.acknowledged_every(peer), immediate=True, send=False)
        wires.count(way, load)
        packet = int(wire_size(int(WRITE_MIDDLE), min(mtu_bytes, size_bytes)))
        before_ps = host_ps(topology, nic, delays)
        after_ps = crossing_ps(topology, way.ends, delays, packet) + host_ps(topology, peer, delays)
        if not disk:
            slowest_bps = min(end.rate_bps for _, end in way.ends)
            after_ps += serialisation_ps(load.wire_bytes, slowest_bps)
            progress.at(progress.now_ps + before_ps + after_ps, then)
            return
        payload, acks = (part * UNIT // load.wire_bytes for part in (size_bytes, load.ack_bytes))
        strands = (
            *strands_of(way.there, UNIT, QUIET, -1),
            Strand(payload, (disk,), QUIET),
            *strands_of(way.back, acks, LIGHT, -1),
        )

        def begin() -> None:
            progress.begin(Shape(strands), load.wire_bytes * 8, sent)

        def sent() -> None:
            progress.at(progress.now_ps + after_ps, then)

        progress.at(progress.now_ps + before_ps, begin)
