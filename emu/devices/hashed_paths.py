"""The way that the hashes of switches give the packets of a queue pair, with every link up.

What every switch chooses follows from headers alone where it hashes fields that a flow keeps, so the way of a
queue pair can be known before it sends anything.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from actors.nic.queue_pair.numbers import hash_seed
from actors.switch.routing.hashing import POLICIES
from actors.switch.routing.walks import PortTable, Walks
from actors.wire.frame import WRITE_MIDDLE, Frame
from emu.devices.switches import GraphRoutes, field_hash, is_written_out
from emu.scenario.schema import Scenario

Ends = list[tuple[int, Attachment]]
"""The sending ends of the links of a way, each with its device."""
WHOLE: Final = 1 << 20
_MOST_HOPS: Final = 16


class HashedPaths:
    """The ways of one scenario's queue pairs on its fabric."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        self._ends = [(node.number, end) for node in topology.nodes for end in topology.ports(node.number)]
        """By number of the port."""
        self.addresses = {nic: topology.address_of(nic) for nic in topology.nics}
        self.walks = _walks(scenario, topology, self._ends)
        self._fabric_ports = {
            nic: [at for at, end in enumerate(topology.ports(nic)) if end.kind == FABRIC]
            for nic in topology.nics
        }
        self.turning = {nic: self._turning(nic) for nic in topology.nics}
        """By NIC, the ports by which its queue pairs of a kind send in turn."""

    def ends(
        self, nic: int, turn: int, peer: int, port: int, qpn: int, priority: int, opcode: int = WRITE_MIDDLE
    ) -> Ends:
        """The sending ends of the links that packets cross, each with its device, from the NIC on.

        They are those of a queue pair of the NIC with this `turn`, to queue pair `qpn` of `peer`, with `port`
        as their UDP source port. The last one leads to the peer, unless a switch has no route.
        """
        frame = self.frame(nic, peer, port, qpn, priority, opcode)
        return self.ends_of(frame, self.port_of(nic, turn), nic)

    def ends_of(self, frame: Frame, port: int, nic: int) -> Ends:
        """Those that a packet crosses which leaves a NIC by this port."""
        return [self._ends[one] for one in self.walks.walk(nic, port, frame)]

    def spread(self, frame: Frame, port: int, nic: int, *, by_rate: bool) -> list[tuple[int, Ends]]:
        """The ways of packets of which every switch gives each a port of its own, and which share each takes,
        in units of 2^-20: of equal ports the same, or what their rates are.
        """
        found: list[tuple[int, Ends]] = []
        open_ways = [(WHOLE, [self.walks.ports.first[nic] + port])]
        while open_ways:
            share, hops = open_ways.pop()
            switch = self._ends[hops[-1]][1].peer
            if self._topology.nodes[switch].role is not Role.SWITCH or len(hops) > _MOST_HOPS:
                found.append((share, [self._ends[hop] for hop in hops]))
                continue
            ports = self.walks.members(switch, frame.dst)
            if not ports:
                found.append((share, [self._ends[hop] for hop in hops]))
                continue
            own = self._topology.ports(switch)
            weights: dict[int, int] = {}
            for one in ports:
                weights[one] = weights.get(one, 0) + 1
            if by_rate:
                weights = {one: own[one].rate_bps for one in weights}
            total, before, first = sum(weights.values()), 0, self.walks.ports.first[switch]
            for one, weight in reversed(weights.items()):
                part = share * (before + weight) // total - share * before // total
                before += weight
                open_ways.append((part, [*hops, first + one]))
        return found

    def over_ports(self, frame: Frame, nic: int, *, by_rate: bool) -> list[tuple[int, Ends]]:
        """The ways of packets that leave a NIC by all its ports alike, with the share of each."""
        ports = self._fabric_ports[nic]
        found: list[tuple[int, Ends]] = []
        for number, port in enumerate(ports):
            own = WHOLE * (number + 1) // len(ports) - WHOLE * number // len(ports)
            before = 0
            for share, ends in self.spread(frame, port, nic, by_rate=by_rate):
                after = before + share
                found.append((own * after // WHOLE - own * before // WHOLE, ends))
                before = after
        return found

    def port_of(self, nic: int, turn: int) -> int:
        """The port by which a queue pair of a NIC sends, by its place among those of its kind."""
        ports = self.turning[nic]
        return ports[turn % len(ports)]

    def _turning(self, nic: int) -> list[int]:
        ports = self._fabric_ports[nic]
        if len(ports) == 1 or self._scenario.at(self._topology, nic).nic.bond == "per_qp":
            return ports
        return ports[:1]

    def frame(self, nic: int, peer: int, port: int, qpn: int, priority: int, opcode: int) -> Frame:
        """A packet as switches hash it."""
        addresses = self.addresses
        return Frame(opcode, priority, addresses[nic], addresses[peer], port, qpn, 0, 0, 0)


def _walks(scenario: Scenario, topology: Topology, ends: list[tuple[int, Attachment]]) -> Walks:
    first = [0]
    for node in topology.nodes:
        first.append(first[-1] + len(topology.ports(node.number)))
    links = [
        2 * end.link + (topology.links[end.link].a != device) if end.kind == FABRIC else -1
        for device, end in ends
    ]
    switches = [node.role is Role.SWITCH for node in topology.nodes]
    table = PortTable(
        first, [end.peer for _, end in ends], [end.peer_port for _, end in ends], links, switches
    )
    routing = scenario.routing
    equal = routing.seed == "equal"
    seeds = [
        hash_seed(scenario.seed, -1 if equal else node.number) if node.role is Role.SWITCH else 0
        for node in topology.nodes
    ]
    routes = GraphRoutes(topology, routing, scenario.switch.static_routes)
    if is_written_out(routing):
        return Walks(table, routes, POLICIES[routing.kind], seeds, {})
    hashes = {one: field_hash(routing, topology.nodes[one].tier, seeds[one]) for one in topology.switches}
    return Walks(table, routes, -1, seeds, hashes)
