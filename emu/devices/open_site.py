"""What posts of an open job make of the devices of one partition.

Connections and calls are made at the virtual time of the post that needs them first, in the order of posts;
every partition does so for the whole fabric, as it works out everything else for itself, and gives its own
devices their part. What is then to happen is an event of the host of the rank that posts, at that time.

A post is plain data, so that it can go to another process:

    [MOVE, number, from, to, bytes, queue pair, what to tell]
    [COMPUTE, number, rank, ps]
    [CALL, number, rank, communicator, operation, algorithm, protocol, channels, bytes, root, ranks,
     type, reduction, input of the rank]

With `payload: real` a call has the bytes of its input (None: zeros), and what is reported of it those of its
result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from actors.fabric.paths import Unloaded
from actors.gpu.gpu import Gpu
from actors.gpu.nvlink import TransferPair
from actors.gpu.posted_memory import PostedMemory
from actors.host.host import Host
from actors.host.open_posts import RECEIVES, ROLES, SENDS, OpenPosts, Way
from actors.kernel.device import Device
from actors.kernel.event import MAX_SUBJECTS, NEVER_PS
from actors.ncclx.on_demand import OpenBook, OpenSchedule
from actors.ncclx.operations import Operation
from actors.ncclx.posted_payload import PostedBuilder
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.schedule import is_ring, operations_of
from actors.ncclx.script import Group, GroupCall, Script, ScriptPlan, kind_of
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.ncclx.transport.posting import NicLoads
from actors.ncclx.transport.wiring import (
    Side,
    WiredJob,
    channels_of,
    connect_groups,
    connect_inside,
    share_domain,
)
from actors.nic.nic import Nic
from actors.wire.message import STATUS_SUCCESS
from emu.devices.drawing import Blueprint
from emu.devices.nics import add_queue_pairs
from emu.devices.plan import data_priority, settings_of, source_port_of

MOVE: Final = 0
COMPUTE: Final = 1
CALL: Final = 2
ROOM: Final = 256
"""Groups of a communicator: kinds of call that it can do."""

Post = list[Any]


@dataclass
class _Communicator:
    """One communicator, as far as it is made."""

    plan: ScriptPlan
    job: WiredJob
    builders: dict[int, PostedBuilder]
    """The ranks that live here, by place in the communicator."""
    places: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Its groups, by what their calls have in common."""
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By number of the post, its group and its number there."""


class OpenSite:
    """The devices of one partition, as posts of job number `job` find them."""

    def __init__(self, blueprint: Blueprint, job: int, devices: Sequence[Device]) -> None:
        self._blueprint = blueprint
        self._job = job
        work = blueprint.plan.jobs[job]
        assert work.wired is not None, job
        self._gpus = work.wired.gpus
        self._nodes = work.wired.nodes
        self._settings = settings_of(blueprint.scenario, blueprint.topology, job)
        self._devices = {int(device.number): device for device in devices}
        self.hosts = [device for device in devices if isinstance(device, Host)]
        self._reported: list[list[int]] = []
        for one in self.hosts:
            one.reported = self._reported
        self._source_port = source_port_of(blueprint.scenario, blueprint.topology)
        self._book = OpenBook(blueprint.plan.pairs, blueprint.plan.inside)
        self._ways: dict[tuple[int, int, str], tuple[int, int]] = {}
        """By ranks and name of the queue pair, the place of either end; -1 of one that lives elsewhere."""
        self._communicators: dict[tuple[str, tuple[int, ...]], _Communicator] = {}
        self._real = blueprint.scenario.payload == "real"
        self._groups = 0
        """Groups of all communicators."""
        self._calls: dict[tuple[int, int], tuple[PostedMemory, int]] = {}
        """By number of a call that is not over, and rank: in which memory its result will be, and its turn
        there."""
        self._posted: dict[int, int] = {}
        """By host, how many posts were events of it."""
        self._doors: dict[int, OpenPosts] = {}
        self._ranks: dict[int, ScriptProgram] = {}
        for node in sorted(set(self._nodes)):
            host = self._host(node)
            if host is not None:
                door = self._doors[node] = OpenPosts(job, int(NEVER_PS))
                host.add(door)
                for program in host.programs:
                    if isinstance(program, ScriptProgram) and program.job == job:
                        program.open(0, 0)
                        self._ranks[int(program.rank)] = program

    def post(self, post: Post, now_ps: int) -> None:
        """Do what a post asks for: `now_ps` is its time."""
        asks = self.prepare(post, now_ps)
        if asks is not None:
            node, ask = asks
            host = self._host(node)
            assert host is not None, node
            host.ask(ask, self._posted[node] % int(MAX_SUBJECTS), now_ps)

    def prepare(self, post: Post, now_ps: int) -> tuple[int, list[int]] | None:
        """Make what a post needs and is not there, and count it. Returns the host that it is an event of, if
        that lives here, and what is asked of it."""
        asks = self._prepare(post, now_ps)
        if asks is not None:
            self._posted[asks[0]] = self._posted.get(asks[0], 0) + 1
        return asks

    def _prepare(self, post: Post, now_ps: int) -> tuple[int, list[int]] | None:
        if post[0] == MOVE:
            return self._move(post, now_ps)
        if post[0] == COMPUTE:
            _, number, rank, duration_ps = post
            program = self._ranks.get(rank)
            if program is None:
                return None
            program.streams.computes = True
            return self._nodes[rank], [int(program.number), number, -1, duration_ps]
        return self._call(post, now_ps)

    def _host(self, node: int) -> Host | None:
        device = self._devices.get(node)
        assert device is None or isinstance(device, Host), node
        return device

    def _port_to(self, device: int) -> int:
        return int(self._blueprint.topology.host_end(device).peer_port)

    # ---- transfers

    def _move(self, post: Post, now_ps: int) -> tuple[int, list[int]] | None:
        _, number, source, destination, size_bytes, name, tell = post
        key = (source, destination, name)
        if key not in self._ways:
            self._ways[key] = self._connect(source, destination, name, now_ps)
        here, there = self._ways[key]
        if there >= 0:
            self._doors[self._nodes[destination]].expect(there, number, size_bytes, tell, now_ps)
        if here < 0:
            return None
        node = self._nodes[source]
        return node, [int(self._doors[node].number), number, here, size_bytes, tell]

    def _connect(self, source: int, destination: int, name: str, now_ps: int) -> tuple[int, int]:
        """A connection between two ranks; the place of either end."""
        topology, scenario = self._blueprint.topology, self._blueprint.scenario
        gpus = self._gpus[source], self._gpus[destination]
        self._book.begin("way", *gpus, name)
        if share_domain(topology, *gpus):
            ends = gpus
            indices, _ = connect_inside(self._book, *gpus, admitted=False)
        else:
            ends = topology.nics_of_gpu(gpus[0])[0], topology.nics_of_gpu(gpus[1])[0]
            priority = data_priority(scenario, self._job)
            indices = self._book.connect(*ends, priority, self._job)
        self._give(now_ps)
        places = []
        for rank, end, index, role in zip(
            (source, destination), ends, indices, (SENDS, RECEIVES), strict=True
        ):
            host = self._host(self._nodes[rank])
            place = -1
            if host is not None:
                door = self._doors[self._nodes[rank]]
                port = self._port_to(end)
                place = door.add(Way(rank, port, index))
                host.bind(port, index, int(door.number), place * ROLES + role)
            places.append(place)
        return places[0], places[1]

    def _give(self, now_ps: int) -> None:
        """Give the devices that live here the queue pairs and pairs that were noted."""
        scenario, topology = self._blueprint.scenario, self._blueprint.topology
        pairs, inside = self._book.made(scenario.seed, topology, self._source_port)
        for number, made in pairs.items():
            nic = self._devices.get(number)
            if nic is not None:
                assert isinstance(nic, Nic), number
                add_queue_pairs(scenario, topology, nic, made, self._book.slots(number), now_ps)
        for number, ends in inside.items():
            gpu = self._devices.get(number)
            if gpu is not None:
                assert isinstance(gpu, Gpu) and gpu.domain is not None, number
                for end in ends:
                    there = topology.nvlink_end(end.peer)
                    assert there is not None, end
                    pair = TransferPair(
                        there.peer_port, end.peer_index, end.flags, end.block, end.leaving, end.arriving
                    )
                    gpu.domain.add(pair)

    # ---- collectives

    def _call(self, post: Post, now_ps: int) -> tuple[int, list[int]] | None:
        _, number, rank, name, *_, ranks, _, _, data = post
        key = (name, tuple(ranks))
        communicator = self._communicators.get(key)
        if communicator is None:
            communicator = self._communicators[key] = self._communicator(name, ranks, now_ps)
        if number not in communicator.calls:
            communicator.calls[number] = self._add_call(communicator, key, post, now_ps)
        builder = communicator.builders.get(ranks.index(rank))
        if builder is None:
            return None
        group, call = communicator.calls[number]
        if self._real:
            memory = builder.memories[group]
            self._calls[number, rank] = memory, call
            if data is not None:
                memory.give(call, data)
        return self._nodes[rank], [builder.number(), number, group, call]

    def _communicator(self, name: str, ranks: Sequence[int], now_ps: int) -> _Communicator:
        topology = self._blueprint.topology
        plan = ScriptPlan()
        plan.reasons = (name,)
        plan.scripts = [Script(place) for place in range(len(ranks))]
        gpus = tuple(self._gpus[rank] for rank in ranks)
        nodes = tuple(self._nodes[rank] for rank in ranks)
        sides: tuple[tuple[Side, ...], ...] = tuple(() for _ in ranks)
        job = WiredJob(self._job, int(NEVER_PS), self._settings, plan, gpus, nodes, (), sides)
        job = replace(job, seed=self._blueprint.scenario.seed)
        unloaded = Unloaded(self._settings.delays, topology, int(CTS_BYTES))
        builders: dict[int, PostedBuilder] = {}
        for place, (rank, node) in enumerate(zip(ranks, nodes, strict=True)):
            host = self._host(node)
            if host is None:  # on another worker, which makes the same communicator
                continue
            loads: NicLoads | None = None
            if self._settings.over_nics:
                loads = NicLoads(sum(topology.host_of(nic) == node for nic in topology.nics))
            base = self._ranks[rank].share
            sms = None if base is None else base.gpu
            gpu = self._devices.get(gpus[place]) if self._real else None
            assert gpu is None or isinstance(gpu, Gpu), gpus[place]
            builder = PostedBuilder(gpu, job, topology, host, place, loads, sms, unloaded)
            builders[place] = builder
            program = builder.add()
            program.name = rank  # reports are about ranks of the job, whatever their place here
            program.open(ROOM, now_ps)
            if sms is not None:
                sms.programs.append(int(program.number))
        return _Communicator(plan, job, builders)

    def _add_call(
        self, communicator: _Communicator, key: tuple[str, tuple[int, ...]], post: Post, now_ps: int
    ) -> tuple[int, int]:
        """One more call of a communicator; its group, which is made if it is the first such, and its number
        there."""
        _, number, _, _, op, algorithm, protocol, channels, size_bytes, root, _, dtype, redop, _ = post
        call = GroupCall(
            op,
            size_bytes,
            algorithm,
            root,
            number,
            dtype=dtype,
            redop=redop,
            protocol=protocol,
            channels=channels,
        )
        (operation,) = operations_of([call])
        kind: tuple[object, ...] = ("ring",) if is_ring(operation) else (op, algorithm, root)
        plan = communicator.plan
        place = communicator.places.get(kind)
        if place is None:
            place = communicator.places[kind] = len(plan.groups)
            self._add_group(communicator, key, kind, operation, now_ps)
        else:
            schedule = communicator.job.schedules[place]
            assert isinstance(schedule, OpenSchedule), place
            schedule.grow(operation)
        plan.scripts[0].calls[place].append(call)  # which all ranks share
        schedule = communicator.job.schedules[place]
        calls = len(schedule.operations)
        for builder in communicator.builders.values():
            if calls == 1:
                builder.number_of_group = self._groups
                builder.grow(communicator.job)
            else:
                builder.add_call(place, call, schedule)
            builder.note_call(place, call)
        self._groups += calls == 1
        return place, calls - 1

    def _add_group(
        self,
        communicator: _Communicator,
        key: tuple[str, tuple[int, ...]],
        kind: tuple[object, ...],
        operation: Operation,
        now_ps: int,
    ) -> None:
        topology, settings = self._blueprint.topology, self._settings
        plan, job = communicator.plan, communicator.job
        number = len(plan.groups)
        group = Group(kind_of(operation.op), 0, tuple(range(len(job.gpus))))
        plan.groups.append(group)
        calls: list[GroupCall] = []
        for script in plan.scripts:
            script.groups.append(number)
            script.calls.append(calls)
        channels = channels_of(settings, topology, group.kind, job.gpus)
        schedule = OpenSchedule(settings, [operation], job.nodes, channels)
        self._book.begin("communicator", key[0], *job.gpus, *kind)
        made = connect_groups(settings, topology, self._book, self._job, job.gpus, [group], [schedule])
        sides = tuple(
            (*known, *(side._replace(group=number) for side in new))
            for known, new in zip(job.sides, made, strict=True)
        )
        self._give(now_ps)
        communicator.job = replace(job, schedules=(*job.schedules, schedule), sides=sides)

    # ---- what comes of it

    def stop_at_reports(self) -> None:
        """Let this partition's run stop at the end of a time at which something came of a post."""
        for host in self.hosts:
            host.stops = True

    def take_reports(self) -> list[list[Any]]:
        """What came of posts since the last call: number, rank, begun_ps, end_ps, status, and of a call that
        carried bytes those of its result."""
        reported: list[list[Any]] = self._reported[:]
        self._reported.clear()
        if self._real:
            for at, row in enumerate(reported):
                asked = self._calls.pop((row[0], row[1]), None)
                if asked is not None and row[4] == STATUS_SUCCESS:
                    memory, turn = asked
                    reported[at] = [*row, memory.take(turn)]
        return reported
