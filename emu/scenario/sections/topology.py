"""Which fabric is built? Section `topology`, by `kind`.

Sources: Meta, RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), for the AI Zone:
racks of servers under one leaf (RTSW), every leaf linked to every spine (CTSW), eight GPUs a server with a
400G NIC each. The larger fabrics are in `topology_clos`, the textbook ones in `topology_plain`.

Host links (GPU to host, NIC to host) follow from which host a GPU or NIC belongs to; their rate and delay are
in section `host`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from emu.scenario.sections.section import OneOf, Refusal, Section
from emu.scenario.sections.topology_base import DELAY_500NS_PS, LINK_400G_BPS, Count, TopologySection
from emu.scenario.sections.topology_clos import DcnPlus, Hpn, Llama3, MegaScale
from emu.scenario.sections.topology_plain import FatTree, RailOnly, Star
from emu.scenario.yaml.values import DelayPs, NodeName, RateBps

__all__ = ["TOPOLOGIES", "AiZone", "Graph", "TopologySection"]

MAX_NICS_PER_LEAF: Final = 1024
"""An address is the leaf's prefix and ten bits."""
MAX_LEAVES: Final = 2**14


class AiZone(TopologySection):
    """Racks of servers under one leaf each (RTSW), every leaf linked to every spine (CTSW)."""

    kind: Literal["ai_zone"] = "ai_zone"
    """A two-stage Clos: leaves (RTSW) and spines (CTSW)."""
    racks: Count
    """Racks, each with one leaf `rtsw-R`."""
    hosts_per_rack: Count
    """Servers in a rack, `host-H`, counted through all racks."""
    gpus_per_host: Count = 8
    """GPUs in a server, `gpu-H-I`, each with a NIC of its own, `nic-H-I`. 8 in a Grand Teton (Meta)."""
    spines: Annotated[int, Field(ge=0, le=1024)]
    """Spines, `ctsw-S`. 0 only with a single rack."""
    uplinks_per_leaf_spine: Annotated[int, Field(ge=1, le=64)] = 1
    """Parallel links between each leaf and each spine."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of a NIC's link to its leaf. 400G (Meta)."""
    uplink_bps: RateBps = Field(default_factory=lambda known: int(known["link_bps"]))
    """Rate of a link between leaf and spine. Default: that of `link`."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its leaf."""
    uplink_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a leaf and a spine."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what cannot be connected or addressed."""
        if self.spines == 0 and self.racks > 1:
            yield Refusal(("spines",), f"0 spines leave {self.racks} racks unconnected", "at least 1")
        nics_per_leaf = self.hosts_per_rack * self.gpus_per_host
        if nics_per_leaf > MAX_NICS_PER_LEAF:
            accepted = f"hosts_per_rack x gpus_per_host of at most {MAX_NICS_PER_LEAF}"
            yield Refusal(("hosts_per_rack",), f"{nics_per_leaf} NICs under one leaf are too many", accepted)
        if self.racks > MAX_LEAVES:
            yield Refusal(("racks",), f"{self.racks} racks are too many", f"at most {MAX_LEAVES}")


class GraphNode(Section):
    """One device of a fabric that is spelled out."""

    name: NodeName
    """The device's name in targets, tables and metrics."""
    role: Literal["gpu", "host", "nic", "switch"]
    """What stands there."""
    host: NodeName | None = None
    """The host that a GPU or NIC belongs to; only for those."""
    tier: Annotated[int, Field(ge=1, le=8)] | None = None
    """Tier of a switch, 1 at the NICs; only for switches. Default: by distance from the NICs."""
    rack: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Rack a host or switch stands in. Default: a switch of tier 1 is a rack of its own, and a host
    stands in that of the first switch of its first NIC."""

    def check(self) -> Iterator[Refusal]:
        """Refuse keys that say nothing about this role, and a GPU or NIC without a host."""
        inside = self.role in ("gpu", "nic")
        if inside and self.host is None:
            yield Refusal((), f"{self.role} {self.name!r} belongs to no host", "host: the name of a host")
        if not inside and self.host is not None:
            yield Refusal(("host",), f"a {self.role} belongs to no host", "no host here")
        if self.tier is not None and self.role != "switch":
            yield Refusal(("tier",), f"a {self.role} has no tier", "no tier here")
        if self.rack is not None and inside:
            yield Refusal(("rack",), f"a {self.role} stands where its host stands", "no rack here")


class GraphLink(Section):
    """One cable: between two switches, a NIC and a switch, or two NICs."""

    a: NodeName
    """One end."""
    b: NodeName
    """The other end."""
    rate_bps: RateBps
    """Rate, the same both ways."""
    delay_ps: DelayPs
    """Propagation, the same both ways."""


class Graph(TopologySection):
    """A fabric spelled out node by node and link by link."""

    kind: Literal["graph"] = "graph"
    """Nodes and links as listed."""
    nodes: Annotated[tuple[GraphNode, ...], Field(min_length=1, max_length=65536)]
    """Every GPU, host, NIC and switch. GPUs are ranked, and NICs paired with GPUs, in this order."""
    links: Annotated[tuple[GraphLink, ...], Field(min_length=1, max_length=262144)]
    """Every fabric link. A port's number is its place among the links of its node."""


class TopologyFile(TopologySection):
    """A fabric in a file of another simulator; loading a scenario turns it into a `graph`, so that an
    effective scenario is complete."""

    kind: Literal["file"] = "file"
    """The fabric in an edge list."""
    format: Literal["ns3", "simai"]
    """`ns3`: counts, switches, then a link a line, as HPCC's simulator reads it. `simai`: the same with GPUs
    in servers and NVSwitches."""
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """The file, relative to the scenario's own directory."""


TOPOLOGIES: Final = OneOf(
    "kind",
    {
        "ai_zone": AiZone,
        "llama3": Llama3,
        "hpn": Hpn,
        "dcn_plus": DcnPlus,
        "megascale": MegaScale,
        "fat_tree": FatTree,
        "rail_only": RailOnly,
        "star": Star,
        "graph": Graph,
        "file": TopologyFile,
    },
)
