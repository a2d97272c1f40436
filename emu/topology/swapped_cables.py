"""Two cables plugged into each other's sockets.

The fabric is then another one: the second ends of two links have changed places, and what is computed from
the graph (groups, addresses) follows the cables, as routing protocols do. The links keep the names that they
were meant to have, as labels on cables would. Rate and delay stay with the cable.
"""

from __future__ import annotations

from dataclasses import replace

from actors.fabric.model import FABRIC, Fault, Link, Topology, TopologyError


def swapped(topology: Topology, one: int, other: int) -> Topology:
    """The fabric with the second ends of two links exchanged. Raises TopologyError."""
    first, second = topology.links[one], topology.links[other]
    if one == other:
        raise TopologyError([Fault((), f"{first.name} cannot be swapped with itself", "two links")])
    if FABRIC not in (first.kind, second.kind) or first.kind != second.kind:
        raise TopologyError([Fault((), "cables inside a server cannot be swapped", "links of the fabric")])
    if first.a == second.b or second.a == first.b:
        raise TopologyError(
            [Fault((), f"{first.name} would end where it begins", "links without a common end")]
        )
    links = list(topology.links)
    links[one] = _moved(first, second)
    links[other] = _moved(second, first)
    return Topology(topology.nodes, links, topology.kind)


def _moved(link: Link, to: Link) -> Link:
    return replace(link, b=to.b, b_port=to.b_port)
