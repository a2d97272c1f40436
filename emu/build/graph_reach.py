"""Ports of a NIC that lead to a peer, in the graph as routing knows it.

A port leads there if its leaf has a route to the peer's address, or the peer hangs on that leaf. What the
search finds for a set of links is kept and shared (`actors.fabric.routing`), so NICs of one worker ask once.
"""

from __future__ import annotations

from actors.fabric.model import FABRIC, Topology
from actors.fabric.routing import routes
from actors.nic.bond import Reach


class GraphReach(Reach):
    """Routes of a NIC's leaves, read off the topology."""

    def __init__(self, topology: Topology, nic: int) -> None:
        self._topology = topology
        self._leaves = [end.peer for end in topology.ports(nic) if end.kind == FABRIC]

    def ports_to(self, addresses: list[int], down: list[int]) -> list[int]:
        found = routes(self._topology, frozenset(down))
        return [
            sum(1 << port for port, leaf in enumerate(self._leaves) if found.reaches(leaf, address))
            for address in addresses
        ]
