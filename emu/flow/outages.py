"""Transfers on a fabric that breaks: they stop where packets are lost, and go on when they would there.

When a path loses what it is given, a transfer stops, and what was under way before the loss is to be sent
again. It goes on over the paths that its queue pairs' hashes give by then, when its sender hears of the loss
and packets arrive again:

- A sender that waits for nothing goes on pouring into the hole, on the links before it; one that has a window
  as long as that allows. The first packet that arrives again is out of sequence, and the answer to it comes a
  round trip later. If that answer is lost, no other is sent.
- A sender that has nothing more to pour waits until its queue pair's timer runs out: the local ACK timeout
  after the last answer, and again after each (with adaptive retransmission the short ones that double). At
  each it pours again.
- What its own NIC cannot send waits there, and goes on as soon as the link is back.

A transfer of several queue pairs (a collective) stops with the first of them. After as many timeouts as
`retry_count` allows the queue pair is in error, and the run is refused there: flow level has no failed jobs.

Not modelled: what waits in buffers before the hole and is to be sent again (a full link that breaks costs
its flows more); packets that overtake each other when a path changes under them; acknowledgements that are
lost while data arrives, where the sender has no window; what a window of packets in the hole takes from
others on its links, on which it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.flow.filling import LIGHT, PAUSING, UNIT
from actors.flow.progress import NANOS, Progress, Shape, Strand, Work
from actors.flow.queues import Buffers
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.base.errors import Problem, ScenarioError
from emu.base.units import about_time
from emu.build.nics import first_timeout_ps
from emu.flow.fault_line import FaultLine
from emu.flow.messages import Ends, crossing_ps, message_load
from emu.flow.wires import CONTROL, Way, Wires, strands_of
from emu.scenario.schema import Scenario


class _Transfer:
    """A transfer, under way or stopped."""

    __slots__ = (
        "bits",
        "deaf",
        "done",
        "full_ps",
        "heard_ps",
        "held",
        "lost",
        "hole",
        "pairs",
        "pour",
        "retries",
        "round",
        "shape",
        "wait_ps",
        "work",
    )

    def __init__(self, shape: Shape, bits: int, done: Callable[[], None]) -> None:
        self.shape = shape
        self.pairs = list(dict.fromkeys(one.pair for one in shape.strands if one.pair >= 0))
        self.bits = bits
        """To be sent when it goes on."""
        self.done = done
        self.work: Work | None = None
        """None: it is stopped."""
        self.pour: Work | None = None
        """What it sends into the hole."""
        self.deaf = False
        """Whether the answer to its first packet that arrived again was lost."""
        self.full_ps = 0
        """Until when its window lets it pour."""
        self.hole: tuple[int, ...] | None = None
        """The links that its packets cross before they are lost."""
        self.lost = False
        """Whether packets of it were lost that had left their NIC."""
        self.held = False
        """Whether its packets wait in the NIC, whose own link is down."""
        self.round = 0
        """Raised when it stops or goes on."""
        self.heard_ps = 0
        """When its sender hears nothing more."""
        self.wait_ps = 0
        """The present timeout."""
        self.retries = 0


class Outages(Progress):
    """Transfers on links of these capacities, some of which break."""

    def __init__(
        self,
        capacities_kbps: list[int],
        buffers: Buffers | None,
        scenario: Scenario,
        wires: Wires,
        line: FaultLine,
        delays: Delays,
    ) -> None:
        super().__init__(capacities_kbps, buffers)
        self._scenario = scenario
        self._wires = wires
        self._line = line
        self._delays = delays
        self._transfers: dict[_Transfer, None] = {}
        self._next = 0
        mtu_bytes = scenario.transport.mtu_bytes
        self._packet_bytes = int(wire_size(int(WRITE_MIDDLE), mtu_bytes))
        clear = message_load(int(CTS_BYTES), mtu_bytes, 1, immediate=True, send=False)
        self._cleared = clear.payload_bytes * UNIT // clear.wire_bytes
        """Payload by bytes on the wire: of clear-to-sends, and of data."""
        self._paid = mtu_bytes * UNIT // self._packet_bytes
        self._sleep()

    def computing_ps(self, gpu: int, duration_ps: int) -> int:
        """How long a GPU takes from now on for what usually takes so long."""
        return self._line.computed_ps(gpu, self.now_ps, duration_ps)

    def begin(self, shape: Shape, size_bits: int, done: Callable[[], None]) -> None:
        """Begin a transfer now, and call `done` when its last bit has left."""
        one = _Transfer(shape, size_bits, done)
        if not one.pairs:
            super().begin(shape, size_bits, done)
            return
        self._transfers[one] = None
        if self._stopped(one):
            self._count(shape, -size_bits)
            one.heard_ps = self.now_ps
            most_kbps = min(
                self._capacities[link] * UNIT // strand.share
                for strand in shape.strands
                if strand.kind == PAUSING
                for link in strand.links
            )
            one.full_ps = self._full_ps(one, min(most_kbps, shape.most_kbps or most_kbps))
            self._wait(one)
        else:
            self._put(one)

    def _put(self, one: _Transfer) -> None:
        one.round += 1
        one.work = self.put(one.shape, one.bits, partial(self._done, one))

    def _done(self, one: _Transfer) -> None:
        del self._transfers[one]
        one.done()

    # ---- faults

    def _sleep(self) -> None:
        if self._next < len(self._line.events):
            self.at(self._line.events[self._next].at_ps, self._wake)

    def _wake(self) -> None:
        events = self._line.events
        first = self._next
        while self._next < len(events) and events[self._next].at_ps <= self.now_ps:
            self._next += 1
        for link in self._line.apply(events[first : self._next]):
            self.set_capacity(link, self._wires.rates_bps[link] // 1000)
        for one in list(self._transfers):
            self._look(one)
        self._sleep()

    def _look(self, one: _Transfer) -> None:
        """What became of a transfer's paths."""
        stopped = self._stopped(one)
        if one.work is None:
            if self._hole(one) != one.hole:
                self._pour(one, one.bits if one.held and not stopped else self._close(one))
            if not stopped:
                self._answer(one)
        elif stopped:
            self._stop(one, one.work)
        else:
            shape = self._rewired(one.shape)
            if shape != one.shape:
                left = max(one.work.left // NANOS, 0)
                self._count(one.shape, -left)
                self._count(shape, left)
                one.shape = shape
                self.reshape(one.work, shape)

    def _ways(self, one: _Transfer) -> list[Way]:
        return [self._wires.way_of(pair) for pair in one.pairs]

    def _stopped(self, one: _Transfer) -> bool:
        return any(
            way.hole is not None or (one.shape.window_bits > 0 and not way.returns) for way in self._ways(one)
        )

    def _rewired(self, shape: Shape) -> Shape:
        """By the paths that hashes give now."""
        shares: dict[tuple[int, int], int] = {}
        for one in shape.strands:
            if one.pair >= 0:
                shares[one.pair, one.kind] = shares.get((one.pair, one.kind), 0) + one.share
        found: list[Strand] = []
        for one in shape.strands:
            share = shares.pop((one.pair, one.kind), 0)
            if one.pair < 0:
                found.append(one)
            elif share:
                way = self._wires.way_of(one.pair)
                back = one.kind == LIGHT and not one.pair & CONTROL
                found += strands_of(way.back if back else way.there, share, one.kind, one.pair)
        return shape._replace(strands=tuple(found))

    # ---- stops

    def _stop(self, one: _Transfer, work: Work) -> None:
        rate_kbps = work.rate
        left = max(self.take(work), 0)
        one.work = None
        one.lost = True
        self._count(one.shape, -left)
        one.bits = left
        one.heard_ps = self.now_ps
        one.full_ps = self._full_ps(one, rate_kbps)
        holes: dict[Strand, tuple[int, int]] = {}
        for strand in one.shape.strands:
            place = next((at for at, link in enumerate(strand.links) if link // 2 in self._wires.down), -1)
            if strand.kind != PAUSING or strand.pair < 0 or place < 0:
                continue
            ends = self._wires.way_of(strand.pair).ends
            there_ps = crossing_ps(self._topology, ends[: place + 1], self._delays, self._packet_bytes)
            holes[strand] = place, rate_kbps * there_ps // NANOS
            one.heard_ps = max(one.heard_ps, self.now_ps + max(self._round_trip_ps(ends) - there_ps, 0))
        again = max((lost for _, lost in holes.values()), default=0)
        one.bits += again
        for strand in one.shape.strands:
            place, lost = holes.get(strand, (0, 0))
            self._count(one.shape._replace(strands=(strand,)), lost - again)
            self._count(one.shape._replace(strands=(strand,)), -lost, place)
            if strand in holes:
                self._waste(one, strand, one.shape.ahead_bits - lost)
        self._wait(one)

    @property
    def _topology(self) -> Topology:
        return self._wires.topology

    def _round_trip_ps(self, ends: Ends) -> int:
        """A packet there and its answer back, on links that nobody else uses."""
        there_ps = crossing_ps(self._topology, ends, self._delays, self._packet_bytes)
        return there_ps + crossing_ps(self._topology, ends, self._delays, int(ACK_WIRE_BYTES))

    def _full_ps(self, one: _Transfer, rate_kbps: int) -> int:
        """Until when a window, and what is left to send, let it pour at this rate."""
        if not one.shape.window_bits or not rate_kbps:
            return self.now_ps
        if one.bits <= one.shape.ahead_bits:
            return self.now_ps + one.bits * NANOS // rate_kbps
        return self.now_ps + max(one.shape.ahead_bits * NANOS // rate_kbps - one.shape.turn_ps, 0)

    def _wait(self, one: _Transfer) -> None:
        """It has stopped: pour into the hole, and wait for the timer."""
        one.round += 1
        one.retries = 0
        one.deaf = False
        holes = [way.hole for way in self._ways(one) if way.hole is not None]
        one.held = bool(holes) and not any(holes)
        one.wait_ps = first_timeout_ps(self._scenario.transport)
        self._pour(one, one.bits)
        if one.wait_ps:
            self.at(one.heard_ps + one.wait_ps, partial(self._timed_out, one, one.round))

    def _pour(self, one: _Transfer, bits: int) -> None:
        """Send what counts for nothing: into the hole, or to a receiver that waits for earlier packets."""
        one.hole = self._hole(one)
        if one.shape.window_bits or one.hole == () or bits <= 0:
            return
        shape = (
            one.shape._replace(strands=(Strand(UNIT, one.hole),)) if one.hole else self._rewired(one.shape)
        )
        self._count(shape, bits)
        one.pour = self.put(shape, bits, partial(self._poured, one))

    def _waste(self, one: _Transfer, strand: Strand, bits: int) -> None:
        """Count what a queue pair sends in vain: up to the hole, or again where only answers are lost."""
        if strand.kind != PAUSING or strand.pair < 0 or self._wires.way_of(strand.pair).open:
            return
        way = self._wires.way_of(strand.pair)
        links = strand.links if way.hole is None or len(way.there) > 1 else way.hole
        self._count(one.shape._replace(strands=(strand._replace(links=links),)), max(min(bits, one.bits), 0))

    def _hole(self, one: _Transfer) -> tuple[int, ...] | None:
        return next((way.hole for way in self._ways(one) if way.hole is not None), None)

    def _poured(self, one: _Transfer) -> None:
        one.pour = None

    def _close(self, one: _Transfer) -> int:
        """Pour no more; returns what was not poured, in bits."""
        left = 0
        if one.pour is not None:
            left = max(self.take(one.pour), 0)
            self._count(self._shapes[one.pour.shape], -left)
            one.pour = None
        return left

    def _timed_out(self, one: _Transfer, number: int) -> None:
        if one.round != number:
            return
        one.deaf = False
        if not self._stopped(one):
            self._go_on(one, number, answered=False)
            return
        transport = self._scenario.transport
        most_ps = transport.timeout_ps
        if one.wait_ps >= most_ps:
            one.retries += 1
        one.wait_ps = min(2 * one.wait_ps, most_ps)
        if one.retries > transport.retry_count:
            nic = self._topology.nodes[self._nic(one)].name
            at = about_time(self.now_ps)
            reason = f"a queue pair of {nic} gives up at {at}, and flow level has no failed jobs"
            accepted = "faster convergence, more transport.timeout or retry_count, or fidelity: packet"
            raise ScenarioError([Problem(self._scenario.name, 0, "faults", reason, accepted)])
        self._close(one)
        self._pour(one, one.bits)
        for strand in one.shape.strands:
            self._waste(one, strand, one.shape.ahead_bits)
        self.at(self.now_ps + one.wait_ps, partial(self._timed_out, one, number))

    def _nic(self, one: _Transfer) -> int:
        return next(way.ends[0][0] for way in self._ways(one) if not way.open)

    def _answer(self, one: _Transfer) -> None:
        """Packets would arrive again: who sends some hears of it."""
        poured = one.pour is not None or self.now_ps < one.full_ps
        if (poured or one.held) and not one.deaf:
            way = self._ways(one)[0]
            back_ps = self.now_ps + self._round_trip_ps(way.ends)
            self.at(back_ps, partial(self._go_on, one, one.round, answered=one.lost or not one.held))

    def _go_on(self, one: _Transfer, number: int, answered: bool) -> None:
        if one.round != number or self._stopped(one):
            return
        if answered and not all(way.returns for way in self._ways(one)):
            one.deaf = True
            return
        self._close(one)
        one.shape = self._rewired(one.shape)
        self._count(one.shape, one.bits)
        self._put(one)

    def _count(self, shape: Shape, bits: int, first: int = 0) -> None:
        """So many bits more of a transfer were sent on its links, from one of them on."""
        wires = self._wires
        for one in shape.strands:
            sent = bits * one.share // UNIT // 8
            for link in one.links[first:] if one.kind in (PAUSING, LIGHT) else ():
                wires.wire_bytes[link] += sent
                if one.kind == PAUSING:
                    wires.payload_bytes[link] += sent * self._paid // UNIT
                elif one.pair >= 0 and one.pair & CONTROL:
                    wires.payload_bytes[link] += sent * self._cleared // UNIT
