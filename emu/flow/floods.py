"""Jobs of flows alone in the fabric, unit by unit: their queue pairs as streams of `actors.flow.flood`.

Flows wait for nobody, so all of them are known before the first begins. Where units would be too coarse for
the buffers that they wait in, or for the flows, rates take their place (`actors.flow.progress`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.flow.filling import PAUSING, UNIT
from actors.flow.flood import Flood, Stream
from actors.flow.links import Pools, Ports
from actors.flow.queues import SCALE, Buffers
from actors.kernel.units import serialisation_ps
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.build.buffer_sizes import largest_frame_bytes, pause_response_ps
from emu.build.plan import JobWork
from emu.flow.edges import Edge
from emu.flow.messages import Load, ahead, capacities_kbps
from emu.flow.rehearsals import EVENTS_OF_PIECE, UNITS
from emu.flow.wires import Way, Wires
from emu.scenario.schema import Scenario

MOST_UNITS: Final = 2_500_000
"""Of all flows, each counted on every link of its path."""
FEWEST_UNITS: Final = 16
"""Of a flow in the mean, and of what a port may hold."""


class Asks(NamedTuple):
    """Of READs: the bits of one on the wire (0: none), how many may be outstanding, and how long it takes
    from the last bit of one until the next is asked for.
    """

    message_bits: int = 0
    most: int = 0
    ask_ps: int = 0


class Unit(NamedTuple):
    """Of how many packets units are (0: they would be too coarse, and all has to go by rates), and the bytes
    of the largest packet.
    """

    packets: int
    packet_bytes: int


class Floods:
    """The flows of all jobs of a run."""

    def __init__(self, scenario: Scenario, wires: Wires, buffers: Buffers, packets: int) -> None:
        self._scenario = scenario
        self._wires = wires
        self._buffers = buffers
        self._packets = packets
        """Of a unit."""
        self._streams: list[tuple[Stream, int, Callable[[int], None]]] = []
        self._largest_bytes = 1

    def add(
        self,
        way: Way,
        delays: Delays,
        load: Load,
        packet_bytes: int,
        most_kbps: int,
        asks: Asks,
        start_ps: int,
        done: Callable[[int], None],
    ) -> None:
        """A queue pair of a flow begins at a time; `done` hears when its last bit has arrived."""
        (there,), (back,) = way.there, way.back
        packets_ps = [serialisation_ps(packet_bytes, end.rate_bps) for _, end in way.ends]
        heads_ps, after_ps = ahead(
            self._wires.topology, way.ends, delays, packet_bytes, self._wires.credit_ps
        )
        lasts_ps = [
            0,
            *(each_ps * heads_ps[at] // packets_ps[at] for at, each_ps in enumerate(packets_ps[1:])),
        ]
        self._largest_bytes = max(self._largest_bytes, packet_bytes)
        acks = load.ack_bytes * UNIT // load.wire_bytes
        stream = Stream(
            list(there.links),
            lasts_ps,
            heads_ps,
            after_ps,
            list(back.links),
            acks,
            load.wire_bytes * 8,
            most_kbps,
        )
        if asks.message_bits:
            stream.reads(*asks)
        self._streams.append((stream, start_ps, done))

    def run(self) -> None:
        """Go through all of them, and tell."""
        topology, buffers = self._wires.topology, self._buffers
        ports, pools = ports_of(self._scenario, topology, buffers), pools_of(self._scenario, buffers)
        flood = Flood(ports, pools, buffers.credit, self._packets * self._largest_bytes * 8)
        for stream, start_ps, _ in self._streams:
            flood.add(stream, start_ps)
        flood.run()
        for stream, _, done in sorted(self._streams, key=lambda one: int(one[0].end_ps)):
            done(int(stream.end_ps))


def ports_of(scenario: Scenario, topology: Topology, buffers: Buffers) -> Ports:
    """All links, with how long it takes from a port's pause until its link stops."""
    pauses_ps = [
        link.delay_ps + pause_response_ps(scenario, topology, end, link.rate_bps)
        for link in topology.links
        for end in (link.a, link.b)
    ]
    return Ports(capacities_kbps(topology), list(buffers.buffer_of), pauses_ps)


def pools_of(scenario: Scenario, buffers: Buffers) -> Pools:
    """The buffers of all switches."""
    least, offset = scenario.switch.buffer.resumes_at(largest_frame_bytes(scenario))
    xon_bits = least * 8, offset * 8
    return Pools(list(buffers.pools_bits), list(buffers.alphas_scaled), buffers.reserve_bits, xon_bits)


class Volume:
    """What jobs send, each byte as often as there are links on its way."""

    def __init__(self) -> None:
        self.pieces = 0
        """Messages of the library, over NVLink or by NICs."""
        self._packet_bytes = 1
        """The largest."""
        self._flows = 0
        self._flow_bytes = 0
        self._slice_bytes = 0
        """The least of what slices have at most, by connection."""
        self._total_bytes = 0
        self._spread = False

    def add_flows(self, wires: Wires, work: JobWork) -> None:
        """The flows of a job."""
        for flow in work.flows:
            way = wires.way(flow.source, flow.pairs[0][0])
            self._spread = self._spread or len(way.there) > 1 or len(way.back) > 1
            self._flow_bytes += flow.size_bytes * len(way.ends)
            self._total_bytes += flow.size_bytes * len(way.ends)
            self._flows += len(way.ends)
            self._packet_of(wires, flow.source, flow.destination)

    def add_edge(self, wires: Wires, edge: Edge, slices: int, times: int) -> None:
        """What a connection of the library carries in a call of so many slices, that comes so many times."""
        self.pieces += slices * edge.writes * times
        if edge.inside:
            return
        self._packet_of(wires, edge.nic, edge.nic)
        slice_bytes = edge.slice_bits // 8 // edge.writes
        self._slice_bytes = min(self._slice_bytes or slice_bytes, slice_bytes)
        for bits, links, kind, _ in edge.loads:
            if kind == PAUSING:
                self._total_bytes += bits // 8 * len(links) * times

    def _packet_of(self, wires: Wires, nic: int, peer: int) -> None:
        packet = int(wire_size(int(WRITE_MIDDLE), wires.mtu_bytes(nic, peer)))
        self._packet_bytes = max(self._packet_bytes, packet)

    def is_beyond(self, most_units: int) -> bool:
        """Whether it is sure that units of a few packets are too many."""
        return self.pieces * EVENTS_OF_PIECE > most_units

    def unit(self, buffers: Buffers, most_units: int = MOST_UNITS) -> Unit:
        """What units there are, of which there are not too many."""
        packet = self._packet_bytes
        room = most_units - self.pieces * EVENTS_OF_PIECE
        if self._spread or self._flows > room or not self._total_bytes or room <= 0:
            return Unit(0, packet)
        units = max(-(-self._total_bytes // (room * packet)), 1)
        pools = zip(buffers.pools_bits, buffers.alphas_scaled, strict=True)
        least_bits = min(pool * alpha // SCALE for pool, alpha in pools if pool)
        if buffers.credit.behind:  # a unit crosses on credit of a window
            least_bits = min(least_bits, FEWEST_UNITS * int(buffers.credit.initial) // 2)
        coarse = FEWEST_UNITS * units * packet
        if units > 1 and (coarse * self._flows > self._flow_bytes or coarse * 8 > least_bits):
            return Unit(0, packet)
        if units > 1 and UNITS * units * packet > (self._slice_bytes or coarse * UNITS):
            return Unit(0, packet)
        return Unit(units, packet)


def unit_of_flows(wires: Wires, works: Sequence[JobWork], buffers: Buffers | None) -> Unit:
    """Of which units the flows of these jobs are, if nobody else sends."""
    volume = Volume()
    if buffers is None or any(work.wired is not None for work in works):
        return Unit(0, 0)
    for work in works:
        volume.add_flows(wires, work)
    return volume.unit(buffers)
