"""The way that the hashes of switches give the packets of a queue pair, with every link up.

What every switch chooses follows from headers alone where it hashes fields that a flow keeps, so the way of a
queue pair can be told before it sends anything.
"""

from __future__ import annotations

from actors.fabric.model import FABRIC, INDEX_BITS, Attachment, Role, Topology
from actors.nic.queue_pair.numbers import hash_seed
from actors.switch.routing.hashing import POLICIES, FieldHash, choose, flow_hash
from actors.switch.routing.policy import INDEX_MASK, VIA_BRANCH, Group
from actors.wire.frame import WRITE_MIDDLE, Frame
from emu.build.switches import GraphRoutes, field_hash, is_written_out
from emu.scenario.schema import Scenario


class HashedPaths:
    """The ways of one scenario's queue pairs on its fabric."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        self._routes = GraphRoutes(topology, scenario.routing, scenario.switch.static_routes)
        self._groups: dict[int, list[Group]] = {}
        self._hashes: dict[int, FieldHash] = {}

    def ends(
        self, nic: int, index: int, peer: int, port: int, qpn: int, priority: int, opcode: int = WRITE_MIDDLE
    ) -> list[tuple[int, Attachment]]:
        """The sending ends of the links that packets cross, each with its device, from the NIC on.

        They are those of the NIC's queue pair at `index`, to queue pair `qpn` of `peer`, with `port` as their
        UDP source port. The last one leads to the peer, unless a switch has no route.
        """
        topology = self._topology
        ends = [end for end in topology.ports(nic) if end.kind == FABRIC]
        bond = self._scenario.at(topology, nic).nic.bond
        here = ends[index % len(ends) if bond == "per_qp" else 0]
        address = topology.address_of(peer)
        frame = Frame(opcode, priority, topology.address_of(nic), address, port, qpn, 0, 0, 0)
        found = [(nic, here)]
        while topology.nodes[here.peer].role is Role.SWITCH and len(found) <= len(topology.switches):
            switch, ingress = here.peer, here.peer_port
            at = self._exit(switch, frame, ingress)
            if at < 0:
                break
            here = topology.ports(switch)[at]
            found.append((switch, here))
        return found

    def _exit(self, switch: int, frame: Frame, ingress: int) -> int:
        """The port by which a switch sends a frame on; -1 where it has no route."""
        if switch not in self._groups:
            self._groups[switch] = self._routes.groups(switch, [])
        group = self._groups[switch][frame.dst >> INDEX_BITS]
        if group.by_address:
            index = frame.dst & INDEX_MASK
            at = int(group.ports[index]) if index < group.count else -1
            if at > VIA_BRANCH:
                return at
            group = group.branches[VIA_BRANCH - at]
        if group.count < 2:
            return int(group.ports[0]) if group.count else -1
        routing = self._scenario.routing
        seed = hash_seed(self._scenario.seed, -1 if routing.seed == "equal" else switch)
        if is_written_out(routing):
            return int(group.ports[choose(flow_hash(frame, POLICIES[routing.kind], seed), group.count)])
        if switch not in self._hashes:
            self._hashes[switch] = field_hash(routing, self._topology.nodes[switch].tier, seed)
        frame.ingress = ingress << 3
        return int(group.ports[self._hashes[switch].member(frame, group.count)])
