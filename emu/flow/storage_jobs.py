"""Clients of storage at flow level: their requests and answers as pieces on links and disks.

Clients and servers are those of packet level (`actors.optional.storage_clients`); their messages are sent in
pieces (`actors.flow.pieces`). The front end shares nothing with the back end, so it has a clock of its own.
A message without data passes links that it finds free, and waits for disks alone. TCP has its windows here,
and no losses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.flow.pieces import BIT_PS, GIVES, TAKES, Disk, Pieces, Pipe, Stage, Stream, Way
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.optional.storage_clients import (
    CONTROL_BYTES,
    DATA_KINDS,
    MOVED,
    ServiceQueue,
    StorageClients,
    StorageNetwork,
    answer_bytes,
    request_bytes,
)
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.devices.plan import ClientsWork, JobWork
from emu.flow.messages import ahead, crossing_ps, host_ps, message_load
from emu.flow.queue_pair_paths import FlowFabric
from emu.scenario.schema import Scenario
from emu.topology.front_end import METADATA, STORAGE, front_end_nic

CONTROL_WIRE_BYTES: Final = int(wire_size(int(WRITE_MIDDLE), CONTROL_BYTES))
NO_WINDOW_BYTES: Final = 1 << 20
"""What a connection without a window has under way. More than a front end's round trip needs."""


class Servers:
    """The servers on the front end, their disks and queues, and the links that lead there."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._pipes = [Pipe(link.rate_bps) for link in topology.links for _ in (0, 1)]
        self._lines: dict[tuple[int, int], Stream] = {}
        self._disks: dict[int, Disk] = {}
        """By NIC."""
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
                self._disks[nic] = Disk(frontend.storage.disk_bps)

    def line(self, run: StorageRun, nic: int, index: int, peer: int) -> Stream:
        """What carries the messages of a queue pair."""
        found = self._lines.get((nic, index))
        if found is None:
            found = self._lines[nic, index] = self._made(run, nic, index, peer)
        return found

    def _made(self, run: StorageRun, nic: int, index: int, peer: int) -> Stream:
        fabric, topology = run.fabric, run.fabric.topology
        way, mtu_bytes = fabric.way(nic, index), fabric.mtu_bytes(nic, peer)
        sends, takes = self._disks.get(nic), self._disks.get(peer)
        ways = []
        for there, back in zip(way.there, way.back, strict=True):
            packet_bytes = int(wire_size(int(WRITE_MIDDLE), mtu_bytes))
            heads, after = ahead(topology, way.ends, run.delays, packet_bytes, {})
            stages: list[Stage] = []
            if sends is not None:
                stages.append(_disk_stage(sends, GIVES, mtu_bytes))
            for place, link in enumerate(there.links):
                pipe, passed_ps = self._pipes[link], heads[place] + after[place]
                beside = ((sends, place == 0), (takes, place == len(there.links) - 1))
                if stages and any(disk and near and disk.rate_bps <= pipe.rate_bps for disk, near in beside):
                    stages[-1] = stages[-1].longer(passed_ps)  # never what limits them
                else:
                    last_ps = packet_bytes * BIT_PS // pipe.rate_bps
                    stages.append(Stage(pipe, None, 0, passed_ps, last_ps, after[place]))
            if takes is not None:
                stages.append(_disk_stage(takes, TAKES, mtu_bytes))
            ways.append(Way(tuple(stages), tuple(self._pipes[link] for link in back.links)))
        heads, after = ahead(topology, way.ends, run.delays, CONTROL_WIRE_BYTES, {})
        crossing = sum(heads) + sum(after)
        small = [Stage(None, None, 0, crossing, 0, crossing)]
        if sends is not None:
            small.insert(0, _disk_stage(sends, GIVES, 0))
        if takes is not None:
            small.append(_disk_stage(takes, TAKES, 0))
        transport = self._scenario.at(topology, nic).transport
        window_bytes = getattr(transport.recovery, "window_bytes", None) or NO_WINDOW_BYTES
        first = getattr(transport.congestion_control, "initial_window", NO_WINDOW_BYTES)
        returns_ps = crossing_ps(topology, way.ends, run.delays, int(ACK_WIRE_BYTES))
        return Stream(ways, Way(tuple(small), ()), window_bytes, first * mtu_bytes, returns_ps)


def _disk_stage(disk: Disk, line: int, packet_bytes: int) -> Stage:
    """A disk on the way of packets of so many bytes."""
    packet_ps = packet_bytes * BIT_PS // disk.rate_bps
    return Stage(None, disk, line, packet_ps, packet_ps, 0)


class StorageRun:
    """The clients of one job. `over` is called when all are through."""

    def __init__(
        self,
        scenario: Scenario,
        work: JobWork,
        fabric: FlowFabric,
        delays: Delays,
        servers: Servers,
        pieces: Pieces,
        over: Callable[[int], None],
    ) -> None:
        assert work.manners is not None, work.name
        self.work = work
        self.fabric = fabric
        self.delays = delays
        self.servers = servers
        self.pieces = pieces
        self.hosts = [_OnHost(self, one, scenario.seed) for one in work.clients]
        self._over = over
        self._open = len(self.hosts)
        self._end_ps = 0

    def begin(self) -> None:
        """Let the clients begin at the job's start."""
        for host in self.hosts:
            start_ps = self.work.start_ps
            self.pieces.at(start_ps, partial(host.clients.begin, start_ps))

    def through(self, end_ps: int) -> None:
        """The clients of a host are through."""
        self._open -= 1
        self._end_ps = max(self._end_ps, end_ps)
        if self._open == 0:
            self._over(self._end_ps)

    def moved_bytes(self) -> int:
        """What requests that are answered have moved."""
        job = self.work.job
        return sum(row[2 + MOVED] for one in self.hosts for row in one.clients.request_rows(job))

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


class _OnHost(StorageNetwork):
    """The clients of one host, and what carries their requests."""

    def __init__(self, run: StorageRun, work: ClientsWork, seed: int) -> None:
        assert run.work.manners is not None, run.work.name
        self.work = work
        self.clients = StorageClients(
            work.scripts, run.work.manners, self, (seed, work.host + (run.work.job << 20)), work.spares
        )
        self._run = run

    def send(self, number: int, now_ps: int) -> None:
        request = self.work.requests[number]
        server, here, _ = self.work.connections[request.server]
        came = partial(self._came, number)
        self._carry(self.work.nic, here, server, request_bytes(request), data=request.up_bytes > 0, then=came)

    def later(self, time_ps: int, subject: int) -> None:
        self._run.pieces.at(time_ps, lambda: self._due(subject))

    def over(self, begun_ps: int, ended_ps: int, status: int) -> None:
        self._run.through(ended_ps)

    def _due(self, subject: int) -> None:
        self.clients.due(subject, self._run.pieces.now_ps)

    def _came(self, number: int) -> None:
        """A request is at its server."""
        pieces = self._run.pieces
        request = self.work.requests[number]
        server = self.work.connections[request.server][0]
        if request.kind < DATA_KINDS:
            self._answer(number, refused=False)
            return
        done_ps = self._run.servers.queues[server].take(pieces.now_ps)
        if done_ps < 0:
            self._answer(number, refused=True)
        else:
            pieces.at(done_ps, partial(self._answer, number, refused=False))

    def _answer(self, number: int, *, refused: bool) -> None:
        request = self.work.requests[number]
        server, _, there = self.work.connections[request.server]
        size_bytes, data = answer_bytes(request), request.down_bytes > 0
        came = partial(self._answered, number, refused)
        self._carry(server, there, self.work.nic, size_bytes, data=data, then=came)

    def _answered(self, number: int, refused: bool) -> None:
        self.clients.answered(number, refused, self._run.pieces.now_ps)

    def _carry(
        self, nic: int, index: int, peer: int, size_bytes: int, *, data: bool, then: Callable[[], None]
    ) -> None:
        """A message from NIC to NIC; `then` when its host has it."""
        run, pieces = self._run, self._run.pieces
        fabric, topology = run.fabric, run.fabric.topology
        load = message_load(
            size_bytes,
            fabric.mtu_bytes(nic, peer),
            fabric.acknowledged_every(peer),
            immediate=True,
            send=False,
        )
        fabric.count(fabric.way(nic, index), load)
        line = run.servers.line(run, nic, index, peer)
        before_ps, after_ps = host_ps(topology, nic, run.delays), host_ps(topology, peer, run.delays)

        def begin() -> None:
            pieces.send(line, (size_bytes, load.wire_bytes, load.ack_bytes), came, small=not data)

        def came() -> None:
            pieces.at(pieces.now_ps + after_ps, then)

        pieces.at(pieces.now_ps + before_ps, begin)
