"""Calls of equal groups, as one: all of them begin together and go at one rate, that of the slowest.

A training step on thousands of GPUs has the same call in thousands of groups at the same time. Where every
connection carries as much, the last of them ends when the fullest link has carried what it has to: that is
the time that all take here. What it leaves out: groups that are done earlier, and leave links to others.
A sample of the groups runs alone, in packets (`emu.flow.group_samples`): that is what a call takes, if links
allow it.

What a call takes beside its links is taken from one group, the one with the longest way. Bytes are counted
for every queue pair; in a ring the slices of the first rank count for all, and the last chunks may be some
bytes off. Links that no other groups use are solved once: such a call takes a fixed time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from actors.fabric.paths import Delays
from actors.flow.bundles import Amounts, Bundle, Grounds, PairWays
from actors.flow.filling import LIGHT, PAUSING, QUIET
from actors.flow.footprints import ACKS, DATA, INSIDE, KINDS, Footprint, Ground, Transfer
from actors.flow.progress import Link, Progress, Shape, Strand, Together
from actors.ncclx.operations import Operation
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.ncclx.transport.wiring import Side, WiredJob
from emu.flow.calls import Calls, Launch, Leg, has_closed_form
from emu.flow.connections import PS_OF_BIT_AT_KBPS, Connection, Connections, OnLinks, Slices
from emu.flow.equal_ranks import EqualRanks
from emu.flow.group_samples import Cut, Samples
from emu.flow.isolated import Result
from emu.flow.messages import Load, capacities_kbps, directed, message_load
from emu.flow.queue_pair_paths import FlowFabric
from emu.flow.requests import Request, Requests
from emu.scenario.schema import Scenario

FEWEST_RANKS: Final = 256
"""A job of fewer goes through its step rank by rank."""
_KINDS: Final = {DATA: PAUSING, ACKS: LIGHT, INSIDE: QUIET}


def goes_in_step(scenario: Scenario, job: WiredJob) -> bool:
    """Whether equal ranks of a job go through its step as one, where there is no other job."""
    if scenario.faults or scenario.overrides or not scenario.transport.is_rc:
        return False
    if scenario.routing.kind not in ("ecmp", "e_ecmp"):
        return False
    whole = all(
        operation.channels in (0, schedule.channels) and has_closed_form(operation)
        for schedule in job.schedules
        for operation in schedule.operations
    )
    return len(job.gpus) >= FEWEST_RANKS and not job.script.single and whole


class _Sampled(Connections):
    """Connections of a group that stands for others: they count nothing, and keep the slices asked for and
    not the links."""

    def __init__(self, scenario: Scenario, fabric: FlowFabric, delays: Delays, ways: PairWays) -> None:
        super().__init__(scenario, fabric, delays)
        self._walked = ways
        self.seen: dict[int, tuple[Slices, bool]] = {}
        """By channel, those of the first connection, and whether some go between servers."""
        self.ways = 0
        """Queue pairs of all connections."""
        self.hops = 0
        """Packet-hops of all connections."""

    def connection(
        self,
        send: Side,
        receive: Side,
        rank: int,
        slices: Slices,
        cut: tuple[int, int],
        block: tuple[int, int],
    ) -> Connection:
        before = self.seen.get(send.channel, (slices, False))
        self.seen[send.channel] = before[0], before[1] or not send.inside
        self.ways += 0 if send.inside else len(send.pairs)
        found = super().connection(send, receive, rank, slices, cut, block)
        self.hops += found.hops
        return found

    def _sent(self, send: Side, loads: Sequence[Load], packets: Sequence[int]) -> tuple[OnLinks, int]:
        there, back = Bundle(self._walked.walks), Bundle(self._walked.walks)
        walk(self._walked, there, back, 0, send.nic, send.pairs)
        hops = sum(many * links for many, links in zip(packets, there.lengths(), strict=True))
        each = [((load.wire_bytes * 8, PAUSING), (load.ack_bytes * 8, LIGHT)) for load in loads]
        return tuple((bits, (), kind, -1) for both in each for bits, kind in both), hops

    def _cleared(self, receive: Side, one: Load, count: int) -> OnLinks:
        del receive, one, count
        return ()

    def _inside_bytes(self, link: int, sent_bytes: int) -> None:
        del link, sent_bytes


@dataclass
class _Many:
    """The connections of all groups of a class."""

    there: Bundle
    back: Bundle
    """The links of acknowledgements."""
    pairs: int
    """Data queue pairs of a connection."""
    channels: int
    spread: int = 1
    """Ports over which each slice is cut."""
    inside: dict[int, int] = field(default_factory=dict)
    """By link, connections over NVLink."""
    inside_bytes: int = 0
    """On each of these."""
    sample: tuple[int, int] = -1, -1
    """The most links that a group's ways have, and the group."""
    sent: list[Load] = field(default_factory=list)
    """By place: the queue pairs of each channel, and then that of its clear-to-sends."""
    slices: list[int] = field(default_factory=list)
    """By channel, how many a connection carried."""

    def place(self, channel: int, pair: int) -> int:
        """The index of a queue pair; pair number `pairs` carries clear-to-sends."""
        return channel * (self.pairs + 1) + pair


class _Recipe(NamedTuple):
    """What one operation is for one class."""

    leg: Leg
    slices: dict[int, tuple[Slices, bool]]
    cut: Cut | None
    """What of it runs alone."""
    racks: set[int]
    """Where that meets others."""


class InStepCalls:
    """The calls of one job whose groups are classes; `number` is that of a class."""

    def __init__(
        self, scenario: Scenario, job: WiredJob, fabric: FlowFabric, delays: Delays, equal_ranks: EqualRanks
    ) -> None:
        self._scenario = scenario
        self._job = job
        self._fabric = fabric
        self._equal_ranks = equal_ranks
        self._samples = Samples(scenario, job, fabric)
        self._requests: Requests | None = None
        self.closed = False
        """Whether a call was too large to run alone."""
        self._ways = fabric.pair_ways()
        self._sampled = _Sampled(scenario, fabric, delays, self._ways)
        self._calls = Calls(job, self._sampled, None, delays)
        self._recipes: dict[tuple[int, Operation], _Recipe | None] = {}
        self._many = [self._bundled(groups) for groups in self._connections()]
        self.footprints, self.ground, self._apart = _grounds(self._many, capacities_kbps(fabric.topology))

    # ---- connections

    def _connections(self) -> list[list[Side]]:
        found: list[list[Side]] = [[] for _ in self._equal_ranks.groups]
        of_group = self._equal_ranks.of_group
        for side in chain.from_iterable(self._job.sides):
            found[of_group[side.group]].append(side)
        return found

    def _bundled(self, sides: Sequence[Side]) -> _Many:
        walks = self._fabric.paths.walks
        pairs = max((len(side.pairs) for side in sides if not side.inside), default=0)
        channels = 1 + max((side.channel for side in sides), default=-1)
        spread = max((side.ports for side in sides), default=1)
        many = _Many(Bundle(walks), Bundle(walks), pairs, channels, spread)
        many.sent = [Load()] * (channels * (pairs + 1))
        many.slices = [0] * channels
        hops: dict[int, int] = {}
        for side in sides:
            if side.inside:
                if side.sends:
                    for link in self._nvlinks(side):
                        many.inside[link] = many.inside.get(link, 0) + 1
                    hops.setdefault(side.group, 0)
            elif side.sends:
                long = self._walk(many, many.place(side.channel, 0), side.nic, side.pairs)
                hops[side.group] = hops.get(side.group, 0) + long
            elif side.control >= 0:
                self._walk(many, many.place(side.channel, pairs), side.nic, (side.control,))
        if hops:
            many.sample = max((long, -group) for group, long in hops.items())
            many.sample = many.sample[0], -many.sample[1]
        return many

    def _walk(self, many: _Many, place: int, nic: int, pairs: Sequence[int]) -> int:
        return walk(self._ways, many.there, many.back, place, nic, pairs)

    def _nvlinks(self, side: Side) -> tuple[int, ...]:
        topology = self._fabric.topology
        leaving, arriving = topology.nvlink_end(side.nic), topology.nvlink_end(side.peer_nic)
        assert leaving is not None and arriving is not None, side
        back = topology.ports(arriving.peer)[arriving.peer_port]
        return directed(topology, [(side.nic, leaving), (arriving.peer, back)])

    # ---- calls

    def begin(
        self,
        number: int,
        operation: Operation,
        early_ps: Mapping[int, int],
        launch: Callable[[Launch], None],
    ) -> None:
        """The groups of a class begin an operation: say what it is. When ranks came is left out."""
        del early_ps
        key = number, operation
        if key not in self._recipes:
            self._recipes[key] = self._recipe(number, operation)
        recipe = self._recipes[key]
        if recipe is None:
            launch(Launch([], 0, {}))
            return
        many = self._many[number]
        if recipe.cut is not None:
            self._ask(number, operation, recipe, recipe.cut, launch)
        else:
            self.closed = True
            launch(Launch([recipe.leg], 0, {}))
        self._count(many, recipe)

    def _ask(
        self, number: int, operation: Operation, recipe: _Recipe, cut: Cut, launch: Callable[[Launch], None]
    ) -> None:
        """Have a sample of the groups run alone."""
        assert self._requests is not None, "nobody to ask"
        first = max(self._many[number].slices, default=0)
        shown, outside = next(iter(recipe.slices.values()))
        turn = first % max(self._many[number].pairs, 1) if outside else 0
        kind = len(cut.groups), cut._replace(groups=()), operation._replace(iteration=0), shown.count
        self._requests.ask(
            Request(
                (number, turn, cut, *kind),
                recipe.racks,
                cut.hops,
                cut.pairs,
                needed=False,
                parts=partial(self._samples.parts, operation, cut, turn),
                slices=cut.slices,
                answer=lambda result: launch(self._launch(number, recipe.leg, result)),
                kind=kind,
                sampled=True,
                stands=not self._samples.by_turns(self._many[number].pairs // self._many[number].spread),
            )
        )

    def _launch(self, number: int, leg: Leg, result: Result | None) -> Launch:
        """A call, with the result of some of its groups."""
        if result is None:
            self.closed = True
            return Launch([leg], 0, {})
        alone_ps = max(result.end_ps - leg.first_ps - leg.tail_ps, 1)
        most = max(leg.bits * PS_OF_BIT_AT_KBPS // alone_ps, 1)
        return Launch([self._fixed(number, leg._replace(shape=leg.shape._replace(most_kbps=most)))], 0, {})

    def _fixed(self, number: int, leg: Leg) -> Leg:
        """With the time that it takes, where nobody else uses its links."""
        if not self._apart[number]:
            return leg
        (rate,) = self.ground.rates([transfer_of(self.footprints, leg.shape)])
        return leg._replace(fixed_ps=-(-leg.bits * PS_OF_BIT_AT_KBPS // max(rate, 1)))

    def run_with(self, requests: Requests) -> None:
        """Have samples run by these."""
        self._requests = requests

    def copied_ps(self, number: int, operation: Operation) -> int:
        """What the sender of a transfer takes to copy it into its slots; -1 if they do not hold it."""
        return self._calls.copied_ps(self._equal_ranks.groups[number][0], operation)

    def _recipe(self, number: int, operation: Operation) -> _Recipe | None:
        connections = self._sampled
        connections.seen, connections.ways, connections.hops = {}, 0, 0
        legs = self._calls.legs(self._many[number].sample[1], operation)
        if not legs:
            return None
        whole = max(leg.bits for leg in legs)
        alone_ps = max(
            (leg.bits * PS_OF_BIT_AT_KBPS // leg.shape.most_kbps for leg in legs if leg.shape.most_kbps),
            default=0,
        )
        # All groups of the class are one transfer: what its links carry in the mean of each kind of link.
        sums = dict.fromkeys(_KINDS.values(), 0)
        many = dict.fromkeys(_KINDS.values(), 0)
        for leg in legs:
            for strand in leg.shape.strands:
                sums[strand.kind] += strand.share * leg.bits // whole
                many[strand.kind] += 1
        each = {
            PAUSING: sums[PAUSING] // max(connections.ways, 1),
            LIGHT: sums[LIGHT] // max(connections.ways, 1),
            QUIET: sums[QUIET] // max(many[QUIET], 1),
        }
        strands = tuple(Strand(each[_KINDS[kind]], (number,), QUIET) for kind in range(KINDS))
        weight = max(leg.shape.weight for leg in legs)
        most = whole * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps else 0
        shape = Shape(strands, weight, most)
        leg = Leg(max(leg.first_ps for leg in legs), shape, whole, max(leg.tail_ps for leg in legs))
        groups = self._equal_ranks.groups[number]
        cut = self._samples.cut(
            groups,
            self._many[number].sample[1],
            operation,
            connections.seen,
            connections.hops,
            self._many[number].pairs,
            self._many[number].spread,
        )
        racks = set() if cut is None else self._samples.racks(cut)
        return _Recipe(self._fixed(number, leg), connections.seen, cut, racks)

    # ---- bytes

    def _count(self, many: _Many, recipe: _Recipe) -> None:
        settings = self._scenario.ncclx
        fabric = self._fabric
        mtu_bytes = self._scenario.transport.mtu_bytes
        for channel, (slices, outside) in recipe.slices.items():
            many.inside_bytes += slices.total_bytes
            if not outside:
                continue
            first = many.slices[channel]
            many.slices[channel] += len(slices.sizes)
            policy = settings.qp_policy
            loads = slices.loads(first, many.pairs, many.spread, policy, mtu_bytes, fabric.ack_every)
            place = many.place(channel, 0)
            for at, load in enumerate(loads, place):
                many.sent[at] = many.sent[at].plus(load)
            if settings.admission == "receiver_driven":
                one = message_load(int(CTS_BYTES), mtu_bytes, fabric.ack_every, immediate=True, send=False)
                at = many.place(channel, many.pairs)
                many.sent[at] = many.sent[at].plus(one, len(slices.sizes))

    def flush(self) -> None:
        """Write what was sent into the counters of links."""
        payload, wire = (Amounts(len(self._fabric.wire_bytes)) for _ in range(2))
        for many in self._many:
            for link, connections in many.inside.items():
                self._fabric.payload_bytes[link] += many.inside_bytes * connections // many.channels
            many.there.add_to(payload, [one.payload_bytes for one in many.sent])
            many.there.add_to(wire, [one.wire_bytes for one in many.sent])
            many.back.add_to(wire, [one.ack_bytes for one in many.sent])
        payload.add_to(self._fabric.payload_bytes)
        wire.add_to(self._fabric.wire_bytes)


def walk(ways: PairWays, there: Bundle, back: Bundle, place: int, nic: int, pairs: Sequence[int]) -> int:
    """Add the ways of queue pairs of a NIC, under places from one on, and of their acknowledgements; returns
    how many links all ways there have."""
    step = pairs[1] - pairs[0] if len(pairs) > 1 else 1
    return ways.add(there, back, place, nic, pairs[0], step, len(pairs))


def transfer_of(footprints: Sequence[Footprint], shape: Shape) -> Transfer:
    """A shape of this module as a transfer on the ground."""
    footprint = footprints[shape.strands[0].links[0]]
    return Transfer(footprint, [strand.share for strand in shape.strands], shape.weight, shape.most_kbps)


class InStepProgress(Progress):
    """Transfers of whole classes of groups."""

    def __init__(self, calls: InStepCalls) -> None:
        super().__init__([])
        self._calls = calls
        self._alone: dict[Shape, int] = {}

    def alone_kbps(self, shape: Shape) -> int:
        """The rate of a transfer while nobody else sends."""
        if shape not in self._alone:
            (rate,) = self._calls.ground.rates([transfer_of(self._calls.footprints, shape)])
            self._alone[shape] = max(rate, 1)
        return self._alone[shape]

    def _loads_of(self, shape: Shape) -> dict[int, int]:
        """Footprints are all over the fabric: all are coupled."""
        del shape
        return {0: 0}

    def _couples(self, number: int, link: Link) -> bool:
        del number, link
        return True

    def _rates(self, together: Together, jammed: frozenset[int]) -> list[int]:
        del jammed
        footprints, ground = self._calls.footprints, self._calls.ground
        rates = ground.rates([transfer_of(footprints, shape) for shape in together.shapes])
        return [max(rate, 1) for rate in rates]


def _grounds(many: Sequence[_Many], capacities: list[int]) -> tuple[list[Footprint], Ground, list[bool]]:
    """The footprint of every class, over links of which none are alike; and which classes share no link."""
    grounds = Grounds(capacities)
    for number, one in enumerate(many):
        places = [int(place % (one.pairs + 1) < one.pairs) for place in range(len(one.sent))]
        for kind, bundle in ((DATA, one.there), (ACKS, one.back)):
            if len(bundle.ends):
                on = Amounts(len(capacities))
                bundle.add_to(on, places)
                grounds.lay(number, kind, on)
        if one.inside:
            on = Amounts(len(capacities))
            on.put(one.inside)
            grounds.lay(number, INSIDE, on)
    return grounds.found(len(many))
