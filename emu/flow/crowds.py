"""Jobs that meet, in a run: their calls and flows as `actors.flow.crowd` goes through them.

Where jobs send over the back end by the library, or by flows of READs, all of it goes unit by unit, if that
is not too much (`unit_of_crowd`): nobody's rate is worked out then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop
from itertools import chain
from typing import Final

from actors.fabric.paths import Delays
from actors.flow.crowd import DELIVERED, WALKED, Crowd, Sending
from actors.flow.progress import Progress
from actors.flow.queues import Buffers
from actors.flow.rank_steps import Pipe
from actors.host.perftest import TX_DEPTH
from actors.kernel.units import serialisation_ps
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import operations_of
from actors.ncclx.script import CALL, UNLABELLED, GroupCall
from actors.ncclx.transport.wiring import Side, WiredJob
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.wire.frame import READ_REQUEST, wire_size
from actors.wire.message import MESSAGE_BYTES, POST_READ
from emu.build.plan import FlowWork, JobWork, settings_of
from emu.flow.calls import MOST_WALKED, Calls
from emu.flow.edges import Edge, Edges, Slices
from emu.flow.floods import MOST_UNITS, Unit, Volume, pools_of, ports_of
from emu.flow.messages import ahead, crossing_ps, directed, host_ps
from emu.flow.rehearsals import Stage
from emu.flow.wires import Wires
from emu.scenario.schema import Scenario

MOST_ALONE: Final = 250_000
"""Units of a job that is alone: others are rehearsed call by call, of which many are alike."""


class Crowds(Stage):
    """All calls and flows of a run."""

    def __init__(
        self, scenario: Scenario, wires: Wires, buffers: Buffers, works: list[JobWork], unit: Unit
    ) -> None:
        super().__init__(scenario, wires, 1)
        topology = wires.topology
        end = topology.host_end(topology.gpus[0])
        message_ps = serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps
        ranks = sum(len(work.hosts()) + work.ranks for work in works)
        self.crowd = Crowd(
            ports_of(scenario, topology, buffers),
            pools_of(scenario, buffers),
            buffers.credit,
            ranks,
            unit.packets * unit.packet_bytes * 8,
            message_ps,
            scenario.host.proxy_cost_ps,
            int(TX_DEPTH),
            int(ACK_WIRE_BYTES) * 8,
        )
        self.crowd.pipes = self._pipes
        self.crowd.connections = self._connections
        self.crowd.walks = self._walks
        self._answers: list[int] = []
        self.crowd.answers = self._answers
        self._urgent: list[bool] = []
        self.crowd.urgent = self._urgent
        self._done: dict[int, Callable[[], None]] = {}
        """By walk, who is to hear that it is done."""
        self._delivered: list[Callable[[int], None]] = []
        """By queue pair of a flow, who is to hear when its last bit was there."""
        self._completed: list[Callable[[int], None]] = []

    def open(self, on_stage: Callable[[Stage], None]) -> dict[int, list[int]]:
        """A call is to be gone through: the walks of each of its ranks, to which they have not come yet."""
        walks, connections, pipes = len(self._walks), len(self._connections), len(self._pipes)
        on_stage(self)
        self.crowd.admit(walks, connections, pipes)
        found: dict[int, list[int]] = {}
        for at in range(walks, len(self._walks)):
            found.setdefault(self._walked[at], []).append(at)
        return found

    def come(self, walks: list[int], now_ps: int, done: Callable[[], None]) -> None:
        """A rank comes to its walks of a call; `done` hears when it is through with all."""
        left = [len(walks)]

        def one_done() -> None:
            left[0] -= 1
            if left[0] == 0:
                done()

        for walk in walks:
            self._done[walk] = one_done
            self.crowd.come(walk, now_ps)

    def connect(self, send: Side, receive: Side, edge: Edge, slices: Slices, walks: tuple[int, int]) -> int:
        """A connection; clear-to-sends of a higher class do not wait for data."""
        place = super().connect(send, receive, edge, slices, walks)
        if not send.inside and receive.control >= 0:
            urgent = self._wires.goes_before(receive.nic, receive.control, send.nic, send.pairs[0])
            control = int(self._connections[place].control)
            self._urgent[control] = urgent
            if self._answers[control] >= 0:
                self._urgent[self._answers[control]] = urgent
        return place

    def flow(
        self,
        job: int,
        flow: FlowWork,
        delays: Delays,
        messages: Sequence[tuple[int, int, int]],
        now_ps: int,
        delivered: Callable[[int, int], None],
        completed: Callable[[int], None],
    ) -> None:
        """A flow begins. Of each of its queue pairs that have any, `messages` are how many, the
        bits of one and of the last. `delivered` hears of each, by its place, when its last bit was there.
        """
        self._delays = delays
        wires, topology, crowd = self._wires, self._wires.topology, self.crowd
        host = self._ranks.setdefault((job, -1 - flow.host), len(self._ranks))
        own_ps = host_ps(topology, flow.nic, delays._replace(proxy_ps=0, elsewhere={}))
        ack, first = int(ACK_WIRE_BYTES), len(self._pipes)
        mtu_bytes = wires.mtu_bytes(flow.source, flow.destination)
        number, places = len(crowd.flows), []
        for place, ((index, other), bits) in enumerate(zip(flow.pairs, messages, strict=False)):
            ends = wires.way(flow.source, index).ends
            pipe = self._pipe(flow.source, flow.destination, index, mtu_bytes)
            back_ps = own_ps
            if not flow.flags & POST_READ:
                slowest_ps = serialisation_ps(ack, min(end.rate_bps for _, end in ends))
                back_ps += crossing_ps(topology, ends, delays, ack) + slowest_ps
            sending = Sending(number, host, pipe, bits, own_ps, back_ps)
            if flow.flags & POST_READ:
                self._pipes[pipe].ack_share = 0
                request = self._pipe(flow.destination, flow.source, other, mtu_bytes)
                sending.reads(request, int(wire_size(int(READ_REQUEST), 0)) * 8, wires.max_reads)
            places.append(len(crowd.sendings))
            crowd.sendings.append(sending)
            self._delivered.append(partial(delivered, place))
        crowd.flows.append(places)
        crowd.open.append(len(places))
        self._completed.append(completed)
        crowd.admit(len(self._walks), len(self._connections), first)
        crowd.start(number, now_ps)

    def _link(self, link: tuple[int, ...], rate_bps: int) -> int:
        """Links have the numbers of the fabric: nothing is spread here."""
        del rate_bps
        (found,) = link
        return found

    def _pipe(self, nic: int, peer: int, index: int, most_bytes: int) -> int:
        """A queue pair may carry other sizes later."""
        del most_bytes
        if (nic, index) in self._known:
            return self._known[nic, index]
        wires = self._wires
        place = super()._pipe(nic, peer, index, wires.mtu_bytes(nic, peer))
        ends = wires.queued_acknowledgements(nic, index)
        self._answers += [-1] * (len(self._pipes) - len(self._answers))
        if ends:
            ack, links = int(ACK_WIRE_BYTES), list(directed(wires.topology, ends))
            heads_ps, after_ps = ahead(wires.topology, ends, self._delays, ack, wires.credit_ps)
            each_ps = [serialisation_ps(ack, end.rate_bps) for _, end in ends]
            parts = [1] * len(links)
            self._answers[place] = len(self._pipes)
            self._pipes.append(Pipe(links, each_ps, heads_ps, after_ps, parts, [], 0, turns=False))
            self._answers.append(-1)
        self._urgent += [False] * (len(self._pipes) - len(self._urgent))
        return place

    def tell(self) -> None:
        """Let everybody hear what is to be heard."""
        for kind, number in self.crowd.hear():
            if kind == WALKED:
                self._done.pop(number)()
            elif kind == DELIVERED:
                self._delivered[number](int(self.crowd.sendings[number].end_ps))
            else:
                self._completed[number](int(self.crowd.now_ps))


class CrowdCalls:
    """The calls of one job."""

    def __init__(self, calls: Calls, crowds: Crowds, progress: Progress) -> None:
        self._calls = calls
        self._crowds = crowds
        self._progress = progress
        self._open: dict[tuple[int, int], dict[int, list[int]]] = {}
        """By group and its how many-th call, the walks of ranks that have not come."""

    def come(self, number: int, turn: int, operation: Operation, rank: int, done: Callable[[], None]) -> None:
        """A rank comes to a call of a group; it hears when it is through."""
        key = (number, turn)
        walks = self._open.get(key)
        if walks is None:
            on_stage = self._calls.staged(number, operation)
            if on_stage is None:
                self._progress.at(self._progress.now_ps, done)
                return
            walks = self._open[key] = self._crowds.open(on_stage)
        self._crowds.come(walks.pop(rank), self._progress.now_ps, done)
        if not walks:
            del self._open[key]


class CrowdProgress(Progress):
    """What is to be done at its time, between what a crowd goes through."""

    def __init__(self, crowds: Crowds) -> None:
        super().__init__([])
        self._crowds = crowds

    def run(self, until_ps: int) -> bool:
        """Go on until nothing is under way and nobody is to be called; False if it is not so by then."""
        crowd = self._crowds.crowd
        while True:
            next_ps = min(self._queue[0][0], until_ps) if self._queue else until_ps
            more = crowd.advance(next_ps)
            if crowd.told:
                self.now_ps = crowd.now_ps
                self._crowds.tell()
            elif not self._queue:
                return not more
            elif self._queue[0][0] > until_ps:
                return False
            else:
                self.now_ps, _, call = heappop(self._queue)
                call()


def unit_of_crowd(
    scenario: Scenario, wires: Wires, works: Sequence[JobWork], buffers: Buffers | None
) -> Unit:
    """Of which units these jobs are if they go unit by unit together."""
    works = [work for work in works if work.wired is not None or work.flows]
    volume = Volume()
    asked = any(flow.flags & POST_READ for work in works for flow in work.flows)
    if buffers is None or wires.spread or not (asked or any(work.wired is not None for work in works)):
        return Unit(0, 0)
    most = MOST_UNITS if asked or len(works) > 1 else MOST_ALONE
    for work in works:
        volume.add_flows(wires, work)
        if work.wired is None:
            continue
        if len(work.wired.script.scripts) > MOST_WALKED:
            return Unit(0, 0)
        delays = settings_of(scenario, wires.topology, work.job).delays
        calls = Calls(work.wired, Edges(scenario, wires, delays, counted=False), None, delays)
        for (number, one), times in _calls_of(work.wired, len(work.operations)).items():
            (operation,) = operations_of([one])
            for carried in chain.from_iterable(calls.whole(number, operation)):
                volume.add_edge(wires, carried.edge, len(carried.slices.sizes), times)
            if volume.is_beyond(most):
                return Unit(0, 0)
    unit = volume.unit(buffers, most)
    return unit if most == MOST_UNITS or unit.packets == 1 else Unit(0, 0)


def _calls_of(job: WiredJob, operations: int) -> Counter[tuple[int, GroupCall]]:
    """The calls of a job by their groups, and how often each comes."""
    plan = job.script
    found: Counter[tuple[int, GroupCall]] = Counter()
    times = 1 if plan.single else operations
    for rank, script in enumerate(plan.scripts):
        for stream in script.streams:
            for kind, place, call in stream:
                if kind == CALL and plan.groups[script.groups[place]].members[0] == rank:
                    one = script.calls[place][call]
                    if len(plan.groups[script.groups[place]].members) > 1 and one.size_bytes:
                        found[script.groups[place], one._replace(label=UNLABELLED)] += times
    return found
