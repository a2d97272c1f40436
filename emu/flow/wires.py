"""The ways of queue pairs, and what was sent on every link.

A queue pair has the number, the UDP source port and so the hashes that it has at packet level, so its packets
take the same links there; its acknowledgements go back by hashes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.fabric.model import Topology
from actors.wire.frame import ACKNOWLEDGE, WRITE_MIDDLE, Frame
from emu.build.hashed_paths import HashedPaths
from emu.build.nics import path_mtu_bytes
from emu.build.plan import Plan
from emu.flow.messages import Ends, Load, directed
from emu.scenario.schema import Scenario


class Way:
    """Where the packets of one queue pair go, and their acknowledgements."""

    __slots__ = ("back", "ends", "links")

    def __init__(self, ends: Ends, links: tuple[int, ...], back: tuple[int, ...]) -> None:
        self.ends = ends
        self.links = links
        self.back = back


class Wires:
    """The queue pairs of a plan on its fabric, and the links' counters."""

    def __init__(self, scenario: Scenario, topology: Topology, plan: Plan) -> None:
        self.topology = topology
        self.payload_bytes = [0] * (2 * len(topology.links))
        """By directed link."""
        self.wire_bytes = [0] * (2 * len(topology.links))
        self._scenario = scenario
        self.inside = plan.inside
        """Pairs of GPUs over NVLink."""
        self._pairs = plan.pairs
        self.paths = HashedPaths(scenario, topology)
        """Where hashes lead."""
        self._ways: dict[tuple[int, int], Way] = {}
        self._mtus: dict[tuple[int, int], int] = {}
        transport = scenario.transport
        self.ack_every = transport.ack_every
        self._ack_priority = transport.ack_priority

    def way(self, nic: int, index: int) -> Way:
        """Of a queue pair of a NIC."""
        found = self._ways.get((nic, index))
        if found is None:
            walks = self.paths
            ends = walks.ends_of(*self.packet(nic, index), nic)
            back = walks.ends_of(*self.acknowledgement(nic, index))
            topology = self.topology
            found = Way(ends, directed(topology, ends), directed(topology, back))
            self._ways[nic, index] = found
        return found

    def packet(self, nic: int, index: int) -> tuple[Frame, int]:
        """A data packet of a queue pair of a NIC, and the port by which it leaves."""
        pair = self._pairs[nic][index]
        frame = self.paths.frame(
            nic, pair.remote_nic, pair.udp_source, pair.remote_qpn, pair.priority, int(WRITE_MIDDLE)
        )
        return frame, self.paths.port_of(nic, index)

    def acknowledgement(self, nic: int, index: int) -> tuple[Frame, int, int]:
        """One that comes back to a queue pair, the port by which it leaves the peer, and the peer."""
        pair = self._pairs[nic][index]
        other = self._pairs[pair.remote_nic][pair.remote_index]
        priority = other.priority if self._ack_priority is None else self._ack_priority
        frame = self.paths.frame(
            other.nic, nic, other.udp_source, other.remote_qpn, priority, int(ACKNOWLEDGE)
        )
        return frame, self.paths.port_of(other.nic, other.index), other.nic

    def mtu_bytes(self, nic: int, peer: int) -> int:
        """Of the queue pairs between two NICs."""
        return path_mtu_bytes(self._scenario, self.topology, nic, peer)

    def add(self, payload: Sequence[int], wire: Sequence[int], acks: Sequence[int]) -> None:
        """Messages were sent on many ways; by link."""
        for link, one in enumerate(payload):
            self.payload_bytes[link] += one
            self.wire_bytes[link] += wire[link] + acks[link]

    def count(self, way: Way, load: Load) -> None:
        """Messages were sent."""
        for link in way.links:
            self.payload_bytes[link] += load.payload_bytes
            self.wire_bytes[link] += load.wire_bytes
        for link in way.back:
            self.wire_bytes[link] += load.ack_bytes
