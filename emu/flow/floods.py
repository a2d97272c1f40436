"""Jobs of flows alone in the fabric, unit by unit: their queue pairs as streams of `actors.flow.flood`.

Flows wait for nobody, so all of them are known before the first begins. Where units would be too coarse for
the buffers that they wait in, or for the flows, rates take their place (`actors.flow.progress`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.flow.filling import UNIT
from actors.flow.flood import Flood, Pools, Ports, Stream
from actors.flow.queues import SCALE, Buffers
from actors.kernel.units import serialisation_ps
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.build.buffer_sizes import largest_frame_bytes, pause_response_ps
from emu.build.plan import JobWork
from emu.flow.messages import Load, ahead, capacities_kbps
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
        heads_ps, after_ps = ahead(self._wires.topology, way.ends, delays, packet_bytes)
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
        ports = Ports(capacities_kbps(topology), list(buffers.switch_of), self._pauses_ps(topology))
        least, offset = self._scenario.switch.buffer.resumes_at(largest_frame_bytes(self._scenario))
        xon_bits = least * 8, offset * 8
        pools = Pools(list(buffers.pools_bits), buffers.alpha_scaled, buffers.reserve_bits, xon_bits)
        flood = Flood(ports, pools, self._packets * self._largest_bytes * 8)
        for stream, start_ps, _ in self._streams:
            flood.add(stream, start_ps)
        flood.run()
        for stream, _, done in sorted(self._streams, key=lambda one: int(one[0].end_ps)):
            done(int(stream.end_ps))

    def _pauses_ps(self, topology: Topology) -> list[int]:
        """How long it takes from a port's pause until its link stops, by directed link."""
        return [
            link.delay_ps + pause_response_ps(self._scenario, topology, end, link.rate_bps)
            for link in topology.links
            for end in (link.a, link.b)
        ]


def packets_of_unit(wires: Wires, works: list[JobWork], buffers: Buffers | None) -> int:
    """How many packets the units of these jobs have; 0 where they have to go by rates."""
    if buffers is None or any(work.wired is not None for work in works):
        return 0
    total_bytes, many, packet = 0, 0, 1
    for work in works:
        for flow in work.flows:
            way = wires.way(flow.source, flow.pairs[0][0])
            if len(way.there) > 1 or len(way.back) > 1:
                return 0
            total_bytes += flow.size_bytes * len(way.ends)
            many += len(way.ends)
            mtu_bytes = wires.mtu_bytes(flow.source, flow.destination)
            packet = max(packet, int(wire_size(int(WRITE_MIDDLE), mtu_bytes)))
    units = max(-(-total_bytes // (MOST_UNITS * packet)), 1)
    least_bits = min(pool for pool in buffers.pools_bits if pool) * buffers.alpha_scaled // SCALE
    coarse = FEWEST_UNITS * units * packet
    if units > 1 and (coarse * many > total_bytes or coarse * 8 > least_bits):
        return 0
    return units if many and many <= MOST_UNITS else 0
