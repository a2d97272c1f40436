"""Rehearsals of calls: connections and steps of the library for `actors.flow.rehearsal`, and what it tells.

A rehearsal costs an event for each unit on each link, so a call that has more than `MOST_EVENTS` of them has
none: what it would take alone is then a closed form (`emu.flow.calls`), or is refused. Of rings over queue
pairs by turns the first slices are rehearsed, and stand for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from actors.fabric.paths import Delays
from actors.flow.filling import UNIT
from actors.flow.progress import Progress
from actors.flow.queues import SCALE, Buffers
from actors.flow.rank_steps import Connection, Move, Pipe, Walk
from actors.flow.rehearsal import Rehearsal
from actors.kernel.units import serialisation_ps
from actors.ncclx.protocols import LL, LL128, SIMPLE
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.ncclx.transport.wiring import Side
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.wire.frame import WRITE_MIDDLE, wire_size
from actors.wire.message import MESSAGE_BYTES
from emu.flow.edges import PS_OF_BIT_AT_KBPS, Edge, Slices, pieces
from emu.flow.messages import ahead, crossing_ps, directed, host_ps, message_load
from emu.flow.wires import Paths, Wires
from emu.scenario.schema import Scenario

MOST_EVENTS: Final = 1_000_000
"""Of one rehearsal."""
MOST_NEEDED_EVENTS: Final = 4_000_000
"""Of one of a call that has no closed form."""
MOST_IN_ALL: Final = 5_000_000
"""Of all rehearsals of a run but those that are needed."""
ENOUGH: Final = 1_000_000
"""Of all rehearsals of a run, before those of a kind stand for others of it."""
MOST_OF_KINDS: Final = 20_000_000
"""Of all rehearsals of a run that stand for a kind."""
EVENTS_OF_STAGE: Final = 1000
"""What it costs to set one up, in events."""
EVENTS_OF_PIECE: Final = 10
"""Beside those of its units: copy, post, arrival, acknowledgement, clear-to-send."""
EVENTS_OF_UNIT: Final = 3
"""About; one for each link where others come in."""
BEGINNINGS: Final = 4
"""How many times `MOST_EVENTS` a beginning of a call may have, where it stands for all of it."""
UNITS: Final = 8
"""Of a slice, where nobody takes turns with it."""
UNITS_BY_TURNS: Final = 32
"""Of a slice, where queue pairs take whole slices by turns: coarser ones wait less for one another."""


class Heard(NamedTuple):
    """What a rehearsal told of a call. Times in ps from when its last rank came."""

    end_ps: int
    begun_ps: int
    """When its first bit left, or 0 if that was before."""
    of_ranks: tuple[int, ...]
    """Of each member of the group, when its last copy was done."""


class Asked:
    """A call that begins. `key` says what it is, `links` which it uses; `on_stage` brings it to a stage."""

    def __init__(
        self,
        key: Hashable,
        links: Iterable[int],
        events: int,
        needed: bool,
        on_stage: Callable[[Stage], None],
        heard: Callable[[Heard | None], None],
        more: Callable[[Stage], None] | None = None,
        times: Fraction | int = 0,
        share: int = 1,
        kind: Hashable = None,
    ) -> None:
        self.key = key
        self.kind = kind
        """What it has in common with others that stand for it once rehearsals have cost enough."""
        self.links = links
        self.events = events
        """What it costs to rehearse it, about."""
        self.needed = needed
        """Whether there is no closed form for it."""
        self.on_stage = on_stage
        self.heard = heard
        """To be called with what its rehearsal told; None: there was none."""
        self.more = more
        """Of a call that is gone through in part: what brings a longer part of it to a stage."""
        self.times = times
        """How often what the longer part has more is to be added."""
        self.share = share
        """How many times `MOST_EVENTS` its units may be."""

    def whole(self, part: Heard, longer: Heard) -> Heard:
        """What a rehearsal of a call tells, by those of two parts of it."""
        if self.more is None:
            return longer
        return Heard(
            int(part.end_ps + self.times * (longer.end_ps - part.end_ps)),
            part.begun_ps,
            tuple(int(a + self.times * (b - a)) for a, b in zip(part.of_ranks, longer.of_ranks, strict=True)),
        )


class Rehearsals:
    """The rehearsals of a run: calls that begin at one time and share links are rehearsed together."""

    def __init__(
        self, scenario: Scenario, wires: Wires, progress: Progress, buffers: Buffers | None = None
    ) -> None:
        self.scenario = scenario
        self._wires = wires
        self._progress = progress
        self._buffers = buffers
        self._asked: list[Asked] = []
        self.jams: set[int] = set()
        """Links for which more had to wait than a port may hold before it is paused."""
        self._known: dict[tuple[Hashable, ...], tuple[list[Heard], list[Heard]]] = {}
        """Of calls, or of parts of them, and of longer parts."""
        self._alike: dict[tuple[Hashable, ...], tuple[list[Heard], list[Heard]]] = {}
        """The first ones of a kind."""
        self._events = 0

    def ask(self, call: Asked) -> None:
        """A call begins now; it hears when all others of this time have begun."""
        if not self._asked:
            self._progress.at(self._progress.now_ps, self._answer)
        self._asked.append(call)

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        found: dict[int, Heard] = {}
        for together in _sharing(asked):
            if sum(asked[one].events for one in together) <= MOST_EVENTS:
                self._rehearse(asked, together, found)
            else:
                for one in together:
                    most = MOST_NEEDED_EVENTS if asked[one].needed else asked[one].share * MOST_EVENTS
                    if asked[one].events <= most:
                        self._rehearse(asked, [one], found)
        for at, call in enumerate(asked):
            call.heard(found.get(at))

    def _rehearse(self, asked: list[Asked], together: list[int], found: dict[int, Heard]) -> None:
        key = (self._wires.epoch, *(asked[one].key for one in together))
        known = self._known.get(key)
        kind = (self._wires.epoch, *(asked[one].kind for one in together))
        if known is None and self._events > ENOUGH:
            known = self._alike.get(kind)
        if known is None:
            most = MOST_IN_ALL if None in kind else MOST_OF_KINDS
            if self._events > most and not any(asked[one].needed for one in together):
                return
            shares = [asked[one].share for one in together]
            share = max(shares) if None in kind else min(sum(shares), BEGINNINGS)
            in_part = any(asked[one].more for one in together)
            units = UNITS_BY_TURNS if in_part and None not in kind else 0
            part = longer = self._run([asked[one].on_stage for one in together], share, units)
            if in_part:
                more = [asked[one].more or asked[one].on_stage for one in together]
                longer = self._run(more, share, units)
            known = self._known[key] = part, longer
            if None not in kind:
                self._alike.setdefault(kind, known)
        for one, *heard in zip(together, *known, strict=True):
            found[one] = asked[one].whole(*heard)

    def _run(self, calls: Iterable[Callable[[Stage], None]], share: int, most_units: int) -> list[Heard]:
        """Of a slice there are not more than so many units, if that is not 0."""
        stage = Stage(self.scenario, self._wires, share, most_units)
        for on_stage in calls:
            on_stage(stage)
        found = stage.run()
        if self._buffers is not None:
            self.jams.update(stage.jams(self._buffers))
        self._events += stage.events + EVENTS_OF_STAGE
        return found


def _sharing(asked: list[Asked]) -> list[list[int]]:
    """Places of calls that share links, directly or by way of others, in the order of the first of each."""
    if len(asked) == 1:
        return [[0]]
    above = list(range(len(asked)))

    def top(one: int) -> int:
        while above[one] != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    users: dict[int, int] = {}
    for at, call in enumerate(asked):
        for link in call.links:
            a, b = top(users.setdefault(link, at)), top(at)
            above[max(a, b)] = min(a, b)
    found: dict[int, list[int]] = {}
    for at in range(len(asked)):
        found.setdefault(top(at), []).append(at)
    return list(found.values())


class Stage:
    """Calls to be rehearsed together. Connections and walks are numbered as they come."""

    def __init__(self, scenario: Scenario, wires: Wires, share: int, most_units: int = 0) -> None:
        self.events = 0
        """That it took."""
        self._scenario = scenario
        self._wires = wires
        self._most = share * MOST_EVENTS
        self._most_units = most_units
        self._delays = Delays(0, 0, 0, cuts_through=False)
        self._job = -1
        self._protocol = int(SIMPLE)
        self._early_ps: Mapping[int, int] = {}
        self._calls: list[tuple[int, int]] = []
        """Of each, where its connections and its walks begin."""
        self._links: dict[tuple[int, ...], int] = {}
        self._rates: list[int] = []
        self._credits_ps: list[int] = []
        """By place of a link, that of the modular switch that it leaves."""
        self._pipes: list[Pipe] = []
        self._known: dict[tuple[int, int], int] = {}
        self._connections: list[Connection] = []
        self._walks: list[Walk] = []
        self._ranks: dict[tuple[int, int], int] = {}
        self._walked: list[int] = []
        self._largest_bits = 1
        self._packet_bits = 1
        self._bits = 0
        self._pieces = 0
        self._waited_ps: list[int] = []

    def call(
        self, job: int, delays: Delays, protocol: int, early_ps: Mapping[int, int], *, joins: bool = False
    ) -> int:
        """Another call begins, to which ranks came so early; returns how many walks precede its own.

        One that joins is of one kind with the last, and what is told of them is told together.
        """
        self._job, self._delays, self._protocol, self._early_ps = job, delays, protocol, early_ps
        if not joins:
            self._calls.append((len(self._connections), len(self._walks)))
        return len(self._walks)

    def connect(self, send: Side, receive: Side, edge: Edge, slices: Slices, walks: tuple[int, int]) -> int:
        """A connection between two walks, by their numbers."""
        parts = edge.parts
        topology, bare = self._wires.topology, self._delays._replace(proxy_ps=0)
        own_ps = host_ps(topology, send.nic, bare), host_ps(topology, send.peer_nic, bare)
        if send.inside:
            pipes, back_ps = [self._inside(send, list(parts))], own_ps[0]
            cut = [[(0, max(size, int(MESSAGE_BYTES)) * 8)] for size in slices.sizes]
            clear_ps = edge.clear_ps or -1
            control = -1
        else:
            pipes = [self._pipe(send.nic, send.peer_nic, index, slices.largest_bytes) for index in send.pairs]
            way = self._wires.way(send.nic, send.pairs[0])
            ack = int(ACK_WIRE_BYTES)
            slowest_ps = serialisation_ps(ack, min(end.rate_bps for _, end in way.ends))
            back_ps = crossing_ps(topology, way.ends, self._delays, ack) + slowest_ps + own_ps[0]
            if slices.largest_bytes > self._wires.mtu_bytes(send.nic, send.peer_nic):
                back_ps += self._wires.reported_ps(way.ends)
            cut = self._cut(send, edge, slices)
            clear_ps = edge.clear_ps if receive.control >= 0 else -1
            control = -1
            if receive.control >= 0:
                control = self._pipe(receive.nic, send.nic, receive.control, int(CTS_BYTES))
        for of_slice in cut:
            for _, bits in of_slice:
                self._bits += bits
                self._largest_bits = max(self._largest_bits, bits)
            self._pieces += len(of_slice)
        cts = message_load(int(CTS_BYTES), 4096, 1, immediate=True, send=False).wire_bytes * 8
        self._connections.append(
            Connection(*walks, edge.slots, pipes, control, own_ps, back_ps, clear_ps, send.inside, cts, cut)
        )
        return len(self._connections) - 1

    def walk(self, rank: int, node: int, moves: list[Move]) -> None:
        """A channel of a rank of the call, on this GPU."""
        gpu, slow = self._scenario.gpu, self._wires.slowness.get(node, 1000)
        place = self._ranks.setdefault((self._job, rank), len(self._ranks))
        copy_ps = 0 if self._protocol == LL128 else gpu.copy_latency_ps * slow // 1000
        copy_bps = 0 if self._protocol == LL else gpu.copy_rate_bps * 1000 // slow
        self._walks.append(Walk(place, moves, copy_ps, copy_bps, -self._early_ps.get(rank, 0)))
        self._walked.append(rank)

    def run(self) -> list[Heard]:
        """Rehearse; of each call what it told, its ranks in the order in which they walked first."""
        topology = self._wires.topology
        end = topology.host_end(topology.gpus[0])
        message_ps = serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps
        rehearsal = Rehearsal(
            self._rates,
            self._credits_ps,
            len(self._ranks),
            self._unit_bits(),
            message_ps,
            self._delays.proxy_ps,
        )
        base_ps = -min(int(walk.start_ps) for walk in self._walks)
        for walk in self._walks:
            walk.start_ps += base_ps
        rehearsal.pipes = self._pipes
        rehearsal.connections = self._connections
        rehearsal.walks = self._walks
        over_ps = rehearsal.run()
        assert over_ps >= 0, "a call of the library waits for itself"
        self.events = int(rehearsal.events)
        self._waited_ps = list(rehearsal.waited)
        found: list[Heard] = []
        ends = [*self._calls[1:], (len(self._connections), len(self._walks))]
        for (first, first_walk), (last, last_walk) in zip(self._calls, ends, strict=True):
            ranks: dict[int, int] = {}
            for at in range(first_walk, last_walk):
                rank = self._walked[at]
                ranks[rank] = max(ranks.get(rank, 0), int(self._walks[at].end_ps) - base_ps)
            begun = [int(one.first_ps) - base_ps for one in self._connections[first:last]]
            found.append(Heard(max(ranks.values()), max(min(begun), 0), tuple(ranks.values())))
        return found

    def jams(self, buffers: Buffers) -> list[int]:
        """Links from switches for which so much had to wait that it is over the threshold of one port."""
        links = self._wires.topology.links
        found: list[int] = []
        for equal, place in self._links.items():
            switch = links[equal[0] // 2].b if equal[0] % 2 else links[equal[0] // 2].a
            bits = self._waited_ps[place] * self._rates[place] // PS_OF_BIT_AT_KBPS // len(equal)
            free = max(buffers.pools_bits[switch] - bits, 0)
            if (
                buffers.pools_bits[switch]
                and bits > buffers.reserve_bits + free * buffers.alphas_scaled[switch] // SCALE
            ):
                found.append(equal[0])
        return found

    def _unit_bits(self) -> int:
        """A packet where queue pairs take turns at a NIC, if that is not too much; else larger."""
        most = max(self._most - EVENTS_OF_PIECE * self._pieces, self._most // 8)
        least = EVENTS_OF_UNIT * self._bits // most
        data = sorted({pipe for one in self._connections if not one.inside for pipe in one.pipes})
        firsts = [int(self._pipes[pipe].links[0]) for pipe in data]
        if len(set(firsts)) == len(firsts):
            least = max(least, -(-self._largest_bits // UNITS))
        if self._most_units:
            least = max(least, -(-self._largest_bits // self._most_units))
        return max(self._packet_bits, least)

    def _cut(self, send: Side, edge: Edge, slices: Slices) -> list[list[tuple[int, int]]]:
        """The WRITEs of each slice, and their bits on the wire."""
        wires, policy = self._wires, self._scenario.ncclx.qp_policy
        mtu_bytes = wires.mtu_bytes(send.nic, send.peer_nic)
        self._packet_bits = max(self._packet_bits, int(wire_size(int(WRITE_MIDDLE), mtu_bytes)) * 8)
        found: list[list[tuple[int, int]]] = []
        for at, size in enumerate(slices.sizes):
            row = []
            for place, piece in pieces(edge.first + at, size, len(send.pairs), policy):
                load = message_load(piece, mtu_bytes, wires.ack_every, immediate=True, send=False)
                row.append((place, load.wire_bytes * 8))
            found.append(row)
        return found

    def _hops(self, paths: Paths) -> list[int]:
        """The links of a way; those among which its packets are spread are one."""
        rates_bps = self._wires.rates_bps
        found = []
        for hop in range(len(paths[0].links)):
            equal = tuple(sorted({path.links[hop] for path in paths}))
            found.append(self._link(equal, sum(rates_bps[link] for link in equal)))
        return found

    def _link(self, link: tuple[int, ...], rate_bps: int) -> int:
        place = self._links.get(link)
        if place is None:
            place = self._links[link] = len(self._rates)
            self._rates.append(rate_bps // 1000)
            ends = self._wires.topology.links[link[0] // 2]
            sender = ends.b if link[0] % 2 else ends.a
            self._credits_ps.append(self._wires.credit_ps.get(sender, 0))
        return place

    def _pipe(self, nic: int, peer: int, index: int, most_bytes: int) -> int:
        known = self._known.get((nic, index))
        if known is not None:
            return known
        wires = self._wires
        way = wires.way(nic, index)
        mtu_bytes = wires.mtu_bytes(nic, peer)
        packet = int(wire_size(int(WRITE_MIDDLE), min(mtu_bytes, most_bytes)))
        links, back = self._hops(way.there), self._hops(way.back)
        whole = message_load(1 << 20, mtu_bytes, wires.ack_every, immediate=True, send=False)
        share = whole.ack_bytes * UNIT // whole.wire_bytes
        packets_ps = [serialisation_ps(packet, end.rate_bps) for _, end in way.ends]
        parts = [1] * len(links)
        pipe = Pipe(
            links,
            packets_ps,
            *ahead(wires.topology, way.ends, self._delays, packet, wires.credit_ps),
            parts,
            back,
            share,
            turns=True,
        )
        self._pipes.append(pipe)
        self._known[nic, index] = len(self._pipes) - 1
        return len(self._pipes) - 1

    def _inside(self, send: Side, parts: list[int]) -> int:
        topology = self._wires.topology
        leaving, arriving = topology.nvlink_end(send.nic), topology.nvlink_end(send.peer_nic)
        assert leaving is not None and arriving is not None, send
        back = topology.ports(arriving.peer)[arriving.peer_port]
        numbers = directed(topology, [(send.nic, leaving), (arriving.peer, back)])
        links = [self._link(numbers[:1], leaving.rate_bps), self._link(numbers[1:], back.rate_bps)]
        delays = [leaving.delay_ps, arriving.delay_ps]
        self._pipes.append(Pipe(links, [0, 0], [0, 0], delays, parts, [], 0, turns=False))
        return len(self._pipes) - 1
