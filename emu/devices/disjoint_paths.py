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

from actors.fabric.model import Role, Topology
from actors.nic.queue_pair.numbers import assign_udp_source
from emu.devices.hashed_paths import HashedPaths
from emu.scenario.schema import Scenario

TRIES: Final = 64
"""Draws for one queue pair: of 16 equal paths a given one is missed once in 60 times."""
_DRAWS_APART: Final = 1 << 20
"""Further draws are those of pairs that no NIC has, so that the first is what `hashed` would give."""


class DisjointPaths:
    """The search, for one scenario on its fabric."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        self._paths = HashedPaths(scenario, topology)
        self._used: dict[tuple[int, int, int, bool], dict[int, int]] = {}

    def source_port(
        self, nic: int, index: int, turn: int, peer: int, qpn: int, priority: int, sends: bool
    ) -> int:
        """The port of a queue pair of `nic`, by its place there; `qpn` is the one that it sends to."""
        used = self._used.setdefault((nic, peer, priority, sends), {})
        best: tuple[int, int, list[int]] | None = None
        for draw in range(TRIES):
            port = assign_udp_source(self._scenario.seed, nic, index + draw * _DRAWS_APART)
            links = self.path(nic, turn, peer, port, qpn, priority)
            shared = sum(used.get(link, 0) for link in links)
            if best is None or shared < best[0]:
                best = shared, port, links
            if shared == 0:
                break
        assert best is not None
        for link in best[2]:
            used[link] = used.get(link, 0) + 1
        return best[1]

    def path(self, nic: int, turn: int, peer: int, port: int, qpn: int, priority: int) -> list[int]:
        """The links between switches that packets of a queue pair cross, with every link up."""
        nodes = self._topology.nodes
        ends = self._paths.ends(nic, turn, peer, port, qpn, priority)
        return [end.link for _, end in ends[1:] if nodes[end.peer].role is Role.SWITCH]
