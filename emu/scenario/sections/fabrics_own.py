"""Section `topology`: a fabric of one's own, spelled out or in a file of another simulator."""

from collections.abc import Iterator
from typing import Annotated, Literal

from emu.base.records import Field
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.topology import (
    TopologySection,
)
from emu.scenario.yaml.values import DelayPs, NodeName, RateBps


class GraphNode(Section):
    """One device of a fabric that is spelled out."""

    name: NodeName
    """The device's name in targets, tables and metrics."""
    role: Literal["gpu", "host", "nic", "switch"]
    """Kind of device."""
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
    format: Literal["ns3", "simai", "htsim"]
    """`ns3`: counts, switches, then a link a line, as HPCC's simulator reads it. `simai`: the same with GPUs
    in servers and NVSwitches. `htsim`: a fat tree by its tiers (.topo)."""
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """The file, relative to the scenario's own directory."""
