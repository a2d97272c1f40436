"""UDP source ports by which the queue pairs between two NICs take disjoint paths.

Switches hash what anybody can know, so a library that knows their hash functions can tell where a queue pair
will go before it sends. For each queue pair ports are drawn until its path shares no link between switches
with those that the same NIC has towards the same peer already; after `TRIES` the one that shares least is
taken, the first among equals. The first draw is the port that it would have anyhow.

A path is what the hashes make of it with every link up. Then `qp_policy: least_loaded` has paths to choose
from that do not fill up together.

Source: Alibaba HPN (SIGCOMM'24), section 6: disjoint paths found by the hash of its switches (as RePaC,
USENIX ATC'21, has it), and messages on the connection with the least outstanding. Not modelled: paths found
anew after a failure, switches whose hash is not known.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import FABRIC, INDEX_BITS, Role, Topology
from actors.nic.queue_pair.numbers import assign_udp_source, hash_seed
from actors.switch.routing.hashing import POLICIES, FieldHash, choose, flow_hash
from actors.switch.routing.policy import INDEX_MASK, VIA_BRANCH, Group
from actors.wire.frame import WRITE_MIDDLE, Frame
from emu.build.switches import GraphRoutes, field_hash, is_written_out
from emu.scenario.schema import Scenario

TRIES: Final = 64
_DRAWS_APART: Final = 1 << 20


class DisjointPaths:
    """The search, for one scenario on its fabric."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        self._routes = GraphRoutes(topology, scenario.routing, scenario.switch.static_routes)
        self._groups: dict[int, list[Group]] = {}
        self._hashes: dict[int, FieldHash] = {}
        self._used: dict[tuple[int, int, int, bool], dict[int, int]] = {}

    def source_port(self, nic: int, index: int, peer: int, qpn: int, priority: int, sends: bool) -> int:
        """The port of a queue pair of `nic`, by its place there; `qpn` is the one that it sends to."""
        used = self._used.setdefault((nic, peer, priority, sends), {})
        best: tuple[int, int, list[int]] | None = None
        for draw in range(TRIES):
            port = assign_udp_source(self._scenario.seed, nic, index + draw * _DRAWS_APART)
            links = self.path(nic, index, peer, port, qpn, priority)
            shared = sum(used.get(link, 0) for link in links)
            if best is None or shared < best[0]:
                best = shared, port, links
            if shared == 0:
                break
        assert best is not None
        for link in best[2]:
            used[link] = used.get(link, 0) + 1
        return best[1]

    def path(self, nic: int, index: int, peer: int, port: int, qpn: int, priority: int) -> list[int]:
        """The links between switches that packets of a queue pair cross, with every link up."""
        topology = self._topology
        ends = [end for end in topology.ports(nic) if end.kind == FABRIC]
        bond = self._scenario.at(topology, nic).nic.bond
        here = ends[index % len(ends) if bond == "per_qp" else 0]
        address = topology.address_of(peer)
        frame = Frame(WRITE_MIDDLE, priority, topology.address_of(nic), address, port, qpn, 0, 0, 0)
        links: list[int] = []
        while topology.nodes[here.peer].role is Role.SWITCH and len(links) < len(topology.switches):
            switch, ingress = here.peer, here.peer_port
            at = self._exit(switch, frame, ingress)
            if at < 0:
                break
            here = topology.ports(switch)[at]
            if topology.nodes[here.peer].role is Role.SWITCH:
                links.append(here.link)
        return links

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
