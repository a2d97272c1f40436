"""What calls of the library take alone: packet runs of them, on the devices that their packets cross.

An *isolated run* is a run of the packet engine with nothing but some calls of the scenario, which begin
together. Ranks, connections, queue pair numbers and UDP source ports are those of the plan, so packets take
the links that they take in the whole run. Only GPUs, hosts and NICs of the ranks are built, and the switches
that hashes lead their packets through: a *testbed*, on which the calls of the same groups run one after
another, each when the fabric is idle again.

A ring may be cut to its first members. The connection that leaves the last of them then leads to the first:
the queue pairs keep the UDP source ports that they have, and get the other end. A run may also be broken off
after so many events; what it did in the second half of them then stands for the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from actors.fabric.model import Topology
from actors.host.host import Host
from actors.kernel.event import NEVER_PS
from actors.kernel.kernel import Kernel
from actors.ncclx.operations import Operation
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.schedule import KnownPlans, Schedule
from actors.ncclx.script import CALL, Group, GroupCall, Script, ScriptPlan
from actors.ncclx.transport.wiring import NvlinkPlan, Side, WiredJob
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.wire.frame import ACKNOWLEDGE, WRITE_MIDDLE
from emu.devices.devices import build_kernel
from emu.devices.drawing import Blueprint
from emu.devices.plan import JobWork, Plan
from emu.flow.queue_pair_paths import FlowFabric
from emu.scenario.faults.events import Fault

SLICE_EVENTS: Final = 1 << 16
"""That the kernel executes between two looks at whether calls are over."""
MOST_DEVICES: Final = 1 << 12
"""Devices of all testbeds that are kept."""
SETTLED: Final = 0.04
"""By how much the rate of a run that is broken off may still change. Slices come in bursts: between 2 and 8
million events, rates of rings that go in lockstep to their end differ by up to 3 %."""
PAUSE_PS: Final = 1_000_000
"""Between the last event of a run and the beginning of the next."""
_HERE, _ABSENT = 0, 1
"""Workers of an isolated run: the one that there is, and one that would host what no packet comes to."""

Connection = tuple[int, int, int, int]
"""Channel, places of both members, lane."""


class Part(NamedTuple):
    """A call, or a part of one, to be run."""

    job: WiredJob
    group: int
    members: tuple[int, ...]
    """The ranks that take part, in the order of the group."""
    schedule: Schedule
    """With all operations that the group may call on the same testbed."""
    number: int
    """The number of the operation among those of the schedule."""
    place: Hashable
    """What has to be the same for two calls to be run on one testbed."""
    delays_ps: tuple[int, ...] = ()
    """By member, how long after the beginning it calls; nothing: all at once."""
    firsts: Mapping[Connection, int] = {}
    """The slices that connections carried before."""
    counts: Mapping[Connection, int] = {}
    """The slices that they carry in this call."""
    turn: int = 0
    """The slices of all other connections, as far as that decides on their queue pairs."""
    slices: int = 0
    """Slices of all connections together, where the run may be broken off; a ring that is cut has as many as
    its members have in the whole one."""


class Result(NamedTuple):
    """What a call took, in ps from the beginning of the run."""

    end_ps: int
    of_ranks: tuple[int, ...]
    """By member, when its own part was done."""

    def times(self, whole: int, part: int) -> Result:
        """The result of a call of `whole` slices, if this is that of `part` of them."""
        if part == whole:
            return self
        ends = tuple(one * whole // part for one in self.of_ranks)
        return Result(self.end_ps * whole // part, ends)


class _Pairs:
    """The queue pairs and NVLink pairs of an isolated run: those of the plan that its calls use."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._remote: dict[tuple[int, int], tuple[int, int]] = {}
        """Both ends of each, by NIC and index in the plan."""
        self._inside: dict[tuple[int, int], tuple[int, int]] = {}

    def join(self, here: tuple[int, int], there: tuple[int, int], *, inside: bool) -> None:
        """Connect two ends."""
        into = self._inside if inside else self._remote
        into[here], into[there] = there, here

    def numbered(self, topology: Topology) -> _Numbered:
        """All of them with numbers of this run, in the order that they have in the plan."""
        numbers: dict[tuple[int, int], int] = {}
        places: dict[int, list[int]] = {}
        for nic, index in sorted(self._remote):
            line = places.setdefault(nic, [])
            numbers[nic, index] = len(line)
            line.append(index)
        pairs: dict[int, tuple[QpPlan, ...]] = {}
        for nic, line in places.items():
            found: list[QpPlan] = []
            for at, index in enumerate(line):
                own = self._plan.pairs[nic][index]
                peer, peer_index = self._remote[nic, index]
                other = self._plan.pairs[peer][peer_index]
                found.append(
                    own._replace(
                        index=at,
                        remote_nic=peer,
                        remote_index=numbers[peer, peer_index],
                        remote_qpn=other.qpn,
                        remote_address=topology.address_of(peer),
                        job=0,
                    )
                )
            pairs[nic] = tuple(found)
        lines: dict[int, list[int]] = {}
        for gpu, index in sorted(self._inside):
            numbers[gpu, index] = len(lines.setdefault(gpu, []))
            lines[gpu].append(index)
        inside = {
            gpu: tuple(self._nvlink(gpu, index, numbers) for index in line) for gpu, line in lines.items()
        }
        return _Numbered(numbers, pairs, inside)

    def _nvlink(self, gpu: int, index: int, numbers: Mapping[tuple[int, int], int]) -> NvlinkPlan:
        own = self._plan.inside[gpu][index]
        peer = self._inside[gpu, index]
        return own._replace(peer=peer[0], peer_index=numbers[peer])


class _Numbered(NamedTuple):
    numbers: Mapping[tuple[int, int], int]
    """By NIC or GPU, and index in the plan."""
    pairs: dict[int, tuple[QpPlan, ...]]
    inside: dict[int, tuple[NvlinkPlan, ...]]


class Testbed:
    """The devices of some groups. `turns` are the slices that their connections are taken to have carried."""

    def __init__(
        self, blueprint: Blueprint, fabric: FlowFabric, parts: Sequence[Part], faults: Sequence[Fault]
    ) -> None:
        scenario, topology, resolved, plan = blueprint
        self._fabric = fabric
        self._ack_priority = scenario.transport.ack_priority
        self.carried = [defaultdict(partial(int, part.turn), part.firsts) for part in parts]
        """By part and connection, slices so far. Calls on other channels use others of a group's."""
        pairs = _Pairs(plan)
        joined = [_joined(part, pairs) for part in parts]
        numbered = pairs.numbered(topology)
        works = tuple(
            _work(number, part, topology, own, numbered.numbers)
            for number, (part, own) in enumerate(zip(parts, joined, strict=True))
        )
        own_plan = Plan(numbered.pairs, works, numbered.inside)
        assignment = [_ABSENT] * len(topology.nodes)
        for device in self._devices(own_plan):
            assignment[device] = _HERE
        own_resolved = resolved._replace(faults=tuple(faults), operator=None)
        own = Blueprint(scenario, topology, own_resolved, own_plan)
        self._kernel, _ = build_kernel(own, assignment, _HERE)
        self._kernel.start()
        self.devices = assignment.count(_HERE)
        self._programs = [_programs(self._kernel, work) for work in works]
        self.executed = 0
        self._run(())

    def fits(self, parts: Sequence[Part]) -> bool:
        """Whether connections have carried as many slices, as far as that decides on their queue pairs."""
        turns = parts[0].job.settings.qps_per_connection
        return all(
            (carried[one] - first) % turns == 0
            for carried, part in zip(self.carried, parts, strict=True)
            for one, first in part.firsts.items()
        )

    def call(self, parts: Sequence[Part], least: int = 0, most: int = 0) -> list[Result]:
        """Run calls that begin together; what each took. With `least` and `most`, break off when rates have
        settled: after `least` events, or twice as many, again and again, until the rate differs by less than
        `SETTLED` from the one before, or there were `most`; but not before each call has moved on. What each
        did since the last but one mark stands for what it had left of its `slices`.
        """
        kernel = self._kernel
        base_ps = kernel.now_ps() + PAUSE_PS
        begins = [
            (base_ps + (part.delays_ps[place] if part.delays_ps else 0), number, place)
            for number, part in enumerate(parts)
            for place in range(len(part.members))
        ]
        before = self._sent() if least else []
        for at_ps, number, place in sorted(begins):
            self._run_until(at_ps)
            host, program = self._programs[number][place]
            program.on_begin(host, parts[number].number, at_ps)
        marks: list[tuple[int, list[int]]] = []
        executed, step = 0, least // 2
        while step:
            used = kernel.run(int(NEVER_PS), step)
            self.executed += used
            executed += used
            marks.append(
                (kernel.now_ps(), [now - was for now, was in zip(self._sent(), before, strict=True)])
            )
            if used < step:
                break
            moving = len(marks) > 1 and _all_move(parts, marks[-2:])
            if moving and (executed >= most or _settled(marks)):
                return self._extrapolated(parts, marks[-2:], base_ps)
            step = executed if len(marks) > 1 else step
        self._run([program for each in self._programs for _, program in each])
        for carried, part in zip(self.carried, parts, strict=True):
            for one, count in part.counts.items():
                carried[one] += count
        found = self._ended(base_ps)
        if least:
            found = [
                one.times(part.slices, sent)
                for one, part, sent in zip(found, parts, marks[-1][1], strict=True)
            ]
        return found

    def _ended(self, base_ps: int) -> list[Result]:
        found: list[Result] = []
        for each in self._programs:
            ends = tuple(program.results.calls.pop()[5] - base_ps for _, program in each)
            found.append(Result(max(ends), ends))
        return found

    def _sent(self) -> list[int]:
        """By part, the slices that ranks have sent."""
        return [
            sum(int(channel.sent) for _, program in each for channel in program.ends.channels)
            for each in self._programs
        ]

    def _extrapolated(
        self, parts: Sequence[Part], marks: Sequence[tuple[int, list[int]]], base_ps: int
    ) -> list[Result]:
        """When parts would end of which so many slices were sent by two times."""
        (half_ps, halves), (last_ps, lasts) = marks
        found: list[Result] = []
        for part, half, last in zip(parts, halves, lasts, strict=True):
            left = max(part.slices - last, 0)
            end_ps = last_ps + left * (last_ps - half_ps) // max(last - half, 1) - base_ps
            found.append(Result(end_ps, (end_ps,) * len(part.members)))
        return found

    def _run_until(self, until_ps: int) -> None:
        """Execute all before a time, and stand there."""
        while (used := self._kernel.run(until_ps, SLICE_EVENTS)) == SLICE_EVENTS:
            self.executed += used
        self.executed += used
        self._kernel.reach(until_ps)

    def _run(self, programs: Sequence[ScriptProgram]) -> None:
        """Execute all that follows, until these programs are done and nothing but upkeep is left."""
        kernel = self._kernel
        while True:
            used = kernel.run(int(NEVER_PS), SLICE_EVENTS)
            self.executed += used
            done = not any(program.running for program in programs)
            assert done or used == SLICE_EVENTS, "a call of the library waits for itself"
            if done and (used < SLICE_EVENTS or not kernel.work_pending()):
                return

    def _devices(self, plan: Plan) -> Iterable[int]:
        """All that packets of a plan come to."""
        topology, paths = self._fabric.topology, self._fabric.paths
        found: set[int] = set()
        for work in plan.jobs:
            assert work.wired is not None
            found.update(work.wired.nodes)
            found.update(work.wired.gpus)
        for gpu in plan.inside:
            end = topology.nvlink_end(gpu)
            assert end is not None, gpu
            found.add(end.peer)
        for nic, own in plan.pairs.items():
            found.add(nic)
            for pair in own:
                acks = pair.priority if self._ack_priority is None else self._ack_priority
                port = paths.port_of(nic, pair.turn)
                for priority, opcode in ((pair.priority, WRITE_MIDDLE), (acks, ACKNOWLEDGE)):
                    frame = paths.frame(
                        nic, pair.remote_nic, pair.udp_source, pair.remote_qpn, priority, int(opcode)
                    )
                    for ends in self._fabric.every_path(frame, port, nic):
                        found.update(end.peer for _, end in ends)
        return found


class IsolatedRuns:
    """Runs calls of one scenario by themselves."""

    def __init__(self, blueprint: Blueprint, fabric: FlowFabric) -> None:
        self._blueprint = blueprint
        self._fabric = fabric
        self._beds: dict[Hashable, Testbed] = {}
        """The least recently used first."""
        self.faults: tuple[Fault, ...] = ()
        """What is broken now."""
        self.executed = 0
        """Events, of all of them."""

    def run(self, parts: Sequence[Part], least: int = 0, most: int = 0) -> list[Result]:
        """Run calls that begin together, each by a job of its own; what each took (`Testbed.call`)."""
        key = (self._fabric.epoch, *(part.place for part in parts))
        bed = None if least else self._beds.pop(key, None)
        if bed is None or not bed.fits(parts):
            bed = Testbed(self._blueprint, self._fabric, parts, self.faults)
        before = bed.executed
        found = bed.call(parts, least, most)
        self.executed += bed.executed - before
        if not least:
            self._beds[key] = bed
            while sum(one.devices for one in self._beds.values()) > MOST_DEVICES and len(self._beds) > 1:
                del self._beds[next(iter(self._beds))]
        return found


def _settled(marks: Sequence[tuple[int, list[int]]]) -> bool:
    """Whether as many slices were sent in a time since the last but one mark as before it.

    Channels of a ring begin together and wait for the same links; on long links they drift apart over a
    hundred steps and more, until slices of one fill what others leave free: then the ring is a fifth faster.
    """
    if len(marks) < 3:
        return False
    sent = [sum(each) for _, each in marks[-3:]]
    took = [now - before for (before, _), (now, _) in zip(marks[-3:], marks[-2:], strict=False)]
    earlier, later = ((sent[at + 1] - sent[at]) / max(took[at], 1) for at in (0, 1))
    return abs(later - earlier) < SETTLED * earlier


def _all_move(parts: Sequence[Part], marks: Sequence[tuple[int, list[int]]]) -> bool:
    """Whether each part sent as many slices between two marks as it has connections. Slices count as sent
    when they are posted: all slots at once at the beginning, and then none until the first are through.
    """
    (_, halves), (_, lasts) = marks
    return all(
        last - half >= len(part.members) * part.schedule.channels
        for part, half, last in zip(parts, halves, lasts, strict=True)
    )


def _programs(kernel: Kernel, work: JobWork) -> list[tuple[Host, ScriptProgram]]:
    """The ranks of a job, each with its host."""
    assert work.wired is not None
    found: dict[int, tuple[Host, ScriptProgram]] = {}
    for number in work.hosts():
        host = cast(Host, kernel.device(number))
        for one in host.programs:
            if int(one.job) == work.job:
                program = cast(ScriptProgram, one)
                found[int(program.rank)] = host, program
    return [found[rank] for rank in range(work.ranks)]


def _joined(part: Part, pairs: _Pairs) -> list[list[tuple[Side, Side]]]:
    """Connect the ends of a part's connections: by place of the sending member, both sides of each."""
    members = part.members
    places = {rank: place for place, rank in enumerate(members)}
    own = [[side for side in part.job.sides[rank] if side.group == part.group] for rank in members]
    receives = {
        (side.channel, side.peer, members[place], side.lane): side
        for place, sides in enumerate(own)
        for side in sides
        if not side.sends
    }
    found: list[list[tuple[Side, Side]]] = [[] for _ in members]
    for place, sides in enumerate(own):
        rank = members[place]
        for side in sides:
            if not side.sends:
                continue
            peer = side.peer
            receive = receives.get((side.channel, rank, peer, side.lane))
            if peer not in places:  # of a ring that is cut: the first of its members comes next
                order = part.schedule.ring(side.channel)
                peer = members[order[(order.index(place) + 1) % len(order)]]
                (receive,) = [
                    one
                    for one in own[places[peer]]
                    if not one.sends and one.channel == side.channel and one.peer not in places
                ]
            assert receive is not None, side
            send = side
            if part.job.settings.qp_policy == "round_robin" and side.pairs:
                first = part.firsts.get((side.channel, place, places[peer], side.lane), part.turn)
                turn = first * side.ports % len(side.pairs)
                send, receive = (
                    one._replace(pairs=(*one.pairs[turn:], *one.pairs[:turn])) for one in (side, receive)
                )
            for here, there in zip(send.pairs, receive.pairs, strict=True):
                pairs.join((side.nic, here), (receive.nic, there), inside=side.inside)
            if side.control >= 0:
                pairs.join((side.nic, side.control), (receive.nic, receive.control), inside=side.inside)
            found[place].append(
                (
                    send._replace(peer=places[peer], peer_nic=receive.nic),
                    receive._replace(peer=place, peer_nic=side.nic),
                )
            )
    return found


def _work(
    number: int,
    part: Part,
    topology: Topology,
    joined: Sequence[Sequence[tuple[Side, Side]]],
    numbers: Mapping[tuple[int, int], int],
) -> JobWork:
    """The job of a part."""
    kind = part.job.script.groups[part.group]
    count = len(part.members)
    script = ScriptPlan()
    script.single = True
    script.groups = [Group(kind.kind, 0, tuple(range(count)), kind.priority, kind.data_priority)]
    calls = [_call_of(operation) for operation in part.schedule.operations]
    line = [(CALL, 0, place) for place in range(len(calls))]
    script.scripts = [Script(rank, [0], [calls], [0], [line]) for rank in range(count)]
    sides: list[list[Side]] = [[] for _ in part.members]
    for place, both in enumerate(joined):
        for send, receive in both:
            for rank, side in ((place, send), (send.peer, receive)):
                sides[rank].append(
                    side._replace(
                        group=0,
                        pairs=tuple(numbers[side.nic, index] for index in side.pairs),
                        control=numbers[side.nic, side.control] if side.control >= 0 else -1,
                    )
                )
    gpus = tuple(part.job.gpus[rank] for rank in part.members)
    wired = WiredJob(
        job=number,
        start_ps=int(NEVER_PS),
        settings=part.job.settings,
        script=script,
        gpus=gpus,
        nodes=tuple(topology.host_of(gpu) for gpu in gpus),
        schedules=(part.schedule,),
        sides=tuple(tuple(one) for one in sides),
        seed=part.job.seed,
        known=KnownPlans(),
    )
    return JobWork(
        number,
        f"call {number}",
        int(NEVER_PS),
        count,
        operations=tuple(part.schedule.operations),
        wired=wired,
    )


def _call_of(operation: Operation) -> GroupCall:
    return GroupCall(
        operation.op,
        operation.size_bytes,
        operation.algorithm,
        operation.root,
        label=0,
        weights=operation.weights,
        own=operation.own,
        protocol=operation.protocol,
        channels=operation.channels,
    )
