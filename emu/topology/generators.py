"""Which fabrics can be built, by the name a scenario gives in `topology.kind`?

A generator is a function of keyword arguments (counts, rates and delays as plain integers) that returns a
checked `Topology` and raises TopologyError with every fault it sees. A new fabric is one file and one line
of the table here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from emu.topology.ai_zone import ai_zone
from emu.topology.graph import graph
from emu.topology.model import Fault, Topology, TopologyError, nearest

GENERATORS: Final[Mapping[str, Callable[..., Topology]]] = MappingProxyType(
    {
        "ai_zone": ai_zone,
        "graph": graph,
    }
)


def build(kind: str, **arguments: object) -> Topology:
    """The fabric of that kind. TopologyError where nothing is called that, or nothing can be built so."""
    generator = GENERATORS.get(kind)
    if generator is None:
        accepted = nearest(kind, GENERATORS) or f"one of {', '.join(GENERATORS)}"
        raise TopologyError([Fault(("kind",), f"no fabric is called {kind!r}", accepted)])
    return generator(**arguments)
