"""The table of fabrics, by the name that a scenario gives in `topology.kind`.

A generator is a function of keyword arguments (counts, rates and delays as plain integers, ratios as
fractions) that returns a checked `Topology` and raises TopologyError with every fault it sees. Its arguments
are called as the fields of the scenario's section are, and `host_link_rate_bps` and `host_link_delay_ps` come
from the section `host`. A new fabric is one file, one line of the table here, and a section in the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from actors.fabric.model import Fault, Topology, TopologyError, nearest
from emu.topology.generators.ai_zone import ai_zone
from emu.topology.generators.custom import graph
from emu.topology.generators.dcn_plus import dcn_plus
from emu.topology.generators.hpn import hpn
from emu.topology.generators.llama3 import llama3
from emu.topology.generators.megascale import megascale
from emu.topology.generators.textbook import fat_tree, rail_only, star

GENERATORS: Final[Mapping[str, Callable[..., Topology]]] = MappingProxyType(
    {
        "ai_zone": ai_zone,
        "llama3": llama3,
        "hpn": hpn,
        "dcn_plus": dcn_plus,
        "megascale": megascale,
        "fat_tree": fat_tree,
        "rail_only": rail_only,
        "star": star,
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
