"""A fabric of two constants, to try the library on: every WRITE takes its size over a rate, then a delay.

Hosts, GPUs and the controller are the real ones. A toy NIC sends one WRITE after the other, each with 64 B
of headers; it arrives a delay after its last byte left, and is acknowledged a delay later. Nothing is lost,
except on queue pairs that a test breaks: their WRITEs complete with an error after the delay.
"""

from collections.abc import Callable, Sequence
from typing import Any

from actors.control.controller import Controller, build_controller
from actors.fabric.model import Role, Topology
from actors.host.host import Host
from actors.kernel.device import Device
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.kernel.queue import EventQueue
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.transport.wiring import Side
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.port.link import MessagePort
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    POST,
    POST_WITH_IMMEDIATE,
    STATUS_RETRY_EXCEEDED,
    STATUS_SUCCESS,
)
from emu.devices.hosts import build_gpu, build_host, build_nvswitch
from emu.devices.plan import Plan, make_plan
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.schema import Scenario
from tests.scenario.plain import plain

RATE_BPS = 400 * 10**9
HEADER_BYTES = 64
ARRIVAL_PORT = 11
ACKNOWLEDGE_PORT = 12
US = 10**6


class ToyNic(Device):
    """See above. `arrived` lists (queue pair, immediate, bytes, time), `posted` (queue pair, bytes, time)."""

    def __init__(
        self, number: int, queue: EventQueue, host: MessagePort, pairs: Sequence[QpPlan], delay_ps: int
    ) -> None:
        super().__init__(number, queue)
        self.host = host
        self.pairs = pairs
        self.delay_ps = delay_ps
        self.free_ps = 0
        self.broken: set[int] = set()
        self.arrived: list[tuple[int, int, int, int]] = []
        self.posted: list[tuple[int, int, int]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        now = self.queue.now_ps
        if port == ARRIVAL_PORT:
            self._arrive(message, subject, now)
        elif port == ACKNOWLEDGE_PORT:
            self._complete(subject, message)
        else:
            self._send(message, now)

    def _send(self, message: Message, now: int) -> None:
        pair = self.pairs[message.a]
        self.posted.append((message.a, message.c, now))
        start = max(now, self.free_ps)
        self.free_ps = start + (message.c + HEADER_BYTES) * 8 * 10**12 // RATE_BPS
        at_ps = self.free_ps + self.delay_ps
        if message.a in self.broken:
            failed = Message(COMPLETION, message.a, message.b, 0, COMPLETED_SEND, STATUS_RETRY_EXCEEDED, 0)
            self._push(failed, at_ps, self.number, ACKNOWLEDGE_PORT, message.a)
            return
        packet = Message(POST, message.a, message.b, message.c, message.d, message.e, 0)
        self._push(packet, at_ps, pair.remote_nic, ARRIVAL_PORT, pair.remote_index)

    def _push(self, message: Message, at_ps: int, nic: int, port: int, pair: int) -> None:
        message.time_ps = at_ps
        message.key = pack_key(nic, MESSAGE, port, pair)
        self.queue.push(message)

    def _arrive(self, packet: Message, index: int, now: int) -> None:
        pair = self.pairs[index]
        self.progress += packet.c
        self.arrived.append((index, packet.e, packet.c, now))
        if packet.d & POST_WITH_IMMEDIATE:
            self.host.send(
                Message(COMPLETION, index, packet.e, packet.c, COMPLETED_RECEIVE, STATUS_SUCCESS, 0), now
            )
        done = Message(COMPLETION, packet.a, packet.b, packet.c, COMPLETED_SEND, STATUS_SUCCESS, 0)
        self._push(done, now + self.delay_ps, pair.remote_nic, ACKNOWLEDGE_PORT, pair.remote_index)

    def _complete(self, index: int, message: Message) -> None:
        done = Message(COMPLETION, index, message.b, message.c, COMPLETED_SEND, message.e, 0)
        self.host.send(done, self.queue.now_ps)


class Toy:
    """A scenario on the toy fabric."""

    def __init__(self, scenario: Scenario, delay_ps: int = 1 * US) -> None:
        self.scenario = scenario
        self.topology: Topology = build_topology(scenario)
        self.plan: Plan = make_plan(scenario, self.topology, resolve(scenario, self.topology))
        self.kernel = Kernel(len(self.topology.nodes))
        for node in self.topology.nodes:
            device = self._device(node.number, node.role, delay_ps)
            if device is not None:
                self.kernel.add(device)

    def _device(self, number: int, role: Role, delay_ps: int) -> Device | None:
        queue = self.kernel.queue
        if role is Role.HOST:
            return build_host(self.scenario, self.topology, self.plan, number, queue, lambda _: None)
        if role is Role.GPU:
            return build_gpu(self.scenario, self.topology, self.plan, number, queue, lambda _: None)
        if role is Role.NVSWITCH:
            return build_nvswitch(self.scenario, self.topology, number, queue, lambda _: None)
        if role is Role.CONTROLLER:
            delay = self.scenario.control.management_delay_ps
            hosts, outlines = self.topology.hosts, self.plan.outlines()
            return build_controller(number, hosts, outlines, delay, queue, lambda _: None)
        if role is Role.NIC:
            end = self.topology.ports(number)[-1]
            link = MessagePort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, 0, None)
            return ToyNic(number, queue, link, self.plan.pairs[number], delay_ps)
        return None

    @property
    def controller(self) -> Controller:
        device = self.kernel.device(self.topology.controller)
        assert isinstance(device, Controller)
        return device

    def nic(self, number: int) -> ToyNic:
        device = self.kernel.device(number)
        assert isinstance(device, ToyNic)
        return device

    def host(self, number: int) -> Host:
        device = self.kernel.device(number)
        assert isinstance(device, Host)
        return device

    def ranks(self, job: int = 0) -> list[ScriptProgram]:
        """The rank programs of a job, by rank."""
        programs = [program for host in self.topology.hosts for program in self.host(host).programs]
        found = [one for one in programs if isinstance(one, ScriptProgram) and one.job == job]
        return sorted(found, key=lambda program: program.rank)

    def side(self, rank: int, channel: int = 0, *, sends: bool = True) -> Side:
        """A rank's side of its first connection on a channel, of the first job."""
        sides = self.plan.wired()[0].sides[rank]
        return next(one for one in sides if (one.channel, one.sends) == (channel, sends))

    def run(self, after_each: Callable[[], None] | None = None, most: int = 10**7) -> "Toy":
        """Run to the end, event by event if there is something to look at after each."""
        self.kernel.start()
        for _ in range(most):
            if self.kernel.run(1 << 61, 1 if after_each else most) == 0:
                return self
            if after_each:
                after_each()
        raise AssertionError(f"still running after {most} events")

    def operation_ps(self, operation: int = 0) -> int:
        """How long an operation of the first job took."""
        row = self.controller.operations[operation]
        assert row[:2] == [0, operation], row
        assert row[4] == STATUS_SUCCESS, row
        return row[3] - row[2]


def scenario(jobs: Any = None, *, hosts: int = 4, gpus_per_host: int = 1, **sections: Any) -> Scenario:
    """A scenario of `hosts` racks of one host and the plainest library, with costs of host and GPU at their
    least."""
    given = {
        "name": "toy",
        "seed": 7,
        "topology": {
            "kind": "ai_zone",
            "racks": hosts,
            "hosts_per_rack": 1,
            "gpus_per_host": gpus_per_host,
            "spines": 1,
            "link": "400G",
        },
        "host": {"link_delay": "1ns", "link_rate": "512T"},
        "gpu": {"copy_rate": "1000000T"},
        "jobs": tuple(jobs or ()),
    }
    return Scenario.model_validate(plain({**given, **sections}))


def collective(op: str, *sizes: str, **more: Any) -> dict[str, Any]:
    """A job of one collective benchmark over all ranks."""
    workload = {"kind": "collective", "op": op, "sizes": sizes}
    for key in ("iterations", "warmup"):
        if key in more:
            workload[key] = more.pop(key)
    return {"name": "bench", "workload": workload, **more}
