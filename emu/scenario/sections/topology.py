"""Section `topology`: the fabric to build, by `kind`.

Sources: Meta, RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), for the AI Zone:
racks of servers under one leaf (RTSW), every leaf linked to every spine (CTSW), eight GPUs a server with a
400G NIC each. Sources of all other fabrics are at the top of each generator in `emu.topology`.

Host links (GPU to host, NIC to host) follow from which host a GPU or NIC belongs to; their rate and delay are
in section `host`.

Delays are the 500 ns that simulators of such fabrics agree on (about 100 m of fibre). Whether the counts of a
section can be connected is said by the fabric's generator, in the section's keys.

Textbook fabrics: the k-ary fat tree, rails alone, a star. Large ones: Llama 3's cluster, HPN, DCN+ and
MegaScale, whose defaults are the real systems'. An oversubscription is the rate below a switch over the rate
above it, and the rate of the uplinks follows from it: a smaller fabric keeps the ratios of the large one.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import Field

from emu.base.units import parse_rate, parse_time
from emu.scenario.section import OneOf, Refusal, Section
from emu.scenario.yaml.values import DelayPs, NodeName, PositiveFraction, RateBps

LINK_200G_BPS: Final = parse_rate("200G")
LINK_400G_BPS: Final = parse_rate("400G")
DELAY_500NS_PS: Final = parse_time("500ns")

Count = Annotated[int, Field(ge=1, le=65536)]
CountOrNone = Annotated[int, Field(ge=0, le=65536)]
NicPorts = Annotated[int, Field(ge=1, le=8)]


class TopologySection(Section):
    """Base of the fabrics."""

    kind: str
    """Which kind of fabric."""


class FatTree(TopologySection):
    """k pods of k/2 ToRs and k/2 aggregation switches under (k/2)^2 core switches; k/2 NICs under a ToR."""

    kind: Literal["fat_tree"] = "fat_tree"
    """Three tiers of equal switches."""
    k: Annotated[int, Field(ge=2, le=256)]
    """Ports of a switch; even."""
    gpus_per_host: Count = 1
    """GPUs in a server, each with a NIC of its own, all on one ToR; divides k/2."""
    links_per_tor_agg: Count = 1
    """Parallel links between a ToR and an aggregation switch; divides k/2. A pod has so many times fewer of
    both."""
    links_per_agg_core: Count = 1
    """Parallel links between an aggregation and a core switch; divides k/2. There are so many times
    fewer pods, and core switches above each aggregation switch."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of every link."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToR."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""
    core_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between an aggregation switch and the core."""


class RailOnly(TopologySection):
    """NIC I of every server on the switch of rail I, and nothing between the rails."""

    kind: Literal["rail_only"] = "rail_only"
    """Rails that nothing joins."""
    segments: Count = 1
    """Segments, each with a ToR `tor-S-R` for every rail R."""
    hosts_per_segment: Count
    """Servers in a segment."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own; as many rails."""
    aggs_per_rail: CountOrNone = 0
    """Aggregation switches `agg-R-A` that join the ToRs of a rail, if there are several segments."""
    links_per_tor_agg: Count = 1
    """Parallel links between a ToR and an aggregation switch: with twice as many and half the aggregation
    switches, uplinks keep their rate."""
    tor_oversubscription: PositiveFraction = Fraction(1)
    """Rate below a ToR over rate above it."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of a NIC."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToR."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""


class Star(TopologySection):
    """One switch, `tor-0`, with every NIC on it."""

    kind: Literal["star"] = "star"
    """A single switch."""
    hosts: Count
    """Servers."""
    gpus_per_host: Count = 1
    """GPUs in a server, each with a NIC of its own."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of a NIC."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and the switch."""


class Llama3(TopologySection):
    """Meta's 24K-GPU cluster: racks under RTSW, pods under CTSW, pods joined by ATSW at 1:7."""

    kind: Literal["llama3"] = "llama3"
    """Three tiers, oversubscribed between the pods."""
    pods: Count = 8
    """Pods. 8 (Llama 3)."""
    racks_per_pod: Count = 192
    """Racks in a pod, each with one leaf `rtsw-R`. 192, for 3,072 GPUs (Llama 3)."""
    hosts_per_rack: Count = 2
    """Servers in a rack. 2, for 16 GPUs (Llama 3)."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own. 8 (Llama 3)."""
    ctsws_per_pod: CountOrNone = 16
    """Spines `ctsw-P-S` of a pod. 16, for one 400G link to each rack at full bisection (derived)."""
    links_per_rtsw_ctsw: Count = 1
    """Parallel links between an RTSW and a CTSW: with twice as many and half the spines, uplinks keep their
    rate."""
    atsws: CountOrNone = 28
    """Aggregation switches `atsw-A` above the pods. 192 / 7, rounded up (derived); none with a single pod."""
    links_per_ctsw_atsw: Count = 1
    """Parallel links between a CTSW and an ATSW."""
    rtsw_oversubscription: PositiveFraction = Fraction(1)
    """Rate below an RTSW over rate above it. Full bisection in a pod (Llama 3)."""
    ctsw_oversubscription: PositiveFraction = Fraction(7)
    """Rate below a CTSW over rate above it. 1:7 (Llama 3)."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of a NIC. 400G (Meta)."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its RTSW."""
    ctsw_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between RTSW and CTSW."""
    atsw_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between CTSW and ATSW."""


class Hpn(TopologySection):
    """Alibaba's HPN: rails, two ToRs for each NIC, two planes above them."""

    kind: Literal["hpn"] = "hpn"
    """Rail-optimised, dual-ToR, dual-plane."""
    pods: Count = 1
    """Pods; with more than one, a core joins them."""
    segments_per_pod: Count = 15
    """Segments in a pod. 15, for 15,360 GPUs (HPN)."""
    hosts_per_segment: Count = 128
    """Servers in a segment. 128, for 1,024 GPUs in one tier (HPN)."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own; as many rails. 8 (HPN)."""
    nic_ports: NicPorts = 2
    """Fabric ports of a NIC, each on a ToR of its own: `tor-S-R-0`, `tor-S-R-1` and so on. 2 (HPN); 1 for a
    single ToR."""
    planes: NicPorts = Field(default_factory=lambda known: known.get("nic_ports", 2))
    """As many as `nic_ports`, the default: what leaves port 0 arrives on port 0 (HPN has 2). 1: all ToRs of a
    pod share its aggregation switches."""
    aggs_per_plane: CountOrNone = 60
    """Aggregation switches `agg-P-L-A` in a plane L of a pod. 60 (HPN)."""
    links_per_tor_agg: Count = 1
    """Parallel links between a ToR and an aggregation switch: with twice as many and half the aggregation
    switches, uplinks keep their rate."""
    cores_per_plane: CountOrNone = 60
    """Core switches `core-L-C` of a plane, if there are several pods. 60 (ours)."""
    core_uplinks_per_agg: Count = 8
    """Links from an aggregation switch to the core. 8 (HPN: 120 x 400G below)."""
    tor_oversubscription: PositiveFraction = Fraction(16, 15)
    """Rate below a ToR over rate above it. 128 x 200G over 60 x 400G, 1.067 (HPN)."""
    agg_oversubscription: PositiveFraction = Fraction(15)
    """Rate below an aggregation switch over rate towards the core. 15:1 (HPN)."""
    link_bps: RateBps = Field(
        default_factory=lambda known: LINK_400G_BPS if known.get("nic_ports") == 1 else LINK_200G_BPS
    )
    """Rate of one port of a NIC. 200G (HPN); by default 400G if it is the only one."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToRs."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""
    core_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between an aggregation switch and the core."""


class DcnPlus(TopologySection):
    """Alibaba's DCN+, HPN's baseline: two ToRs for all NICs of a segment, and no planes."""

    kind: Literal["dcn_plus"] = "dcn_plus"
    """Three tiers, dual-ToR without planes."""
    pods: Count = 32
    """Pods; with more than one, a core joins them. 32, for 16,384 GPUs (derived)."""
    segments_per_pod: Count = 4
    """Segments in a pod. 4 (SimAI)."""
    hosts_per_segment: Count = 16
    """Servers in a segment. 16, for 128 GPUs (HPN)."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own. 8 (HPN)."""
    nic_ports: NicPorts = 2
    """Fabric ports of a NIC, each on a ToR of its own, `tor-S-0`, `tor-S-1` and so on. 2 (HPN); 1: a single
    ToR."""
    aggs_per_pod: Count = 8
    """Aggregation switches `agg-P-A` of a pod. 8 (SimAI)."""
    links_per_tor_agg: Count = 8
    """Parallel links between a ToR and an aggregation switch. 8, for 64 x 400G up (derived)."""
    cores: CountOrNone = 128
    """Core switches `core-C`, if there are several pods. 128 (derived)."""
    core_uplinks_per_agg: Count = 64
    """Links from an aggregation switch to the core. 64 (derived)."""
    tor_oversubscription: PositiveFraction = Fraction(1)
    """Rate below a ToR over rate above it. 1 (derived)."""
    agg_oversubscription: PositiveFraction = Fraction(1)
    """Rate below an aggregation switch over rate towards the core. 1 (derived)."""
    link_bps: RateBps = Field(
        default_factory=lambda known: LINK_400G_BPS if known.get("nic_ports") == 1 else LINK_200G_BPS
    )
    """Rate of one port of a NIC. 200G (HPN); by default 400G if it is the only one."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToRs."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""
    core_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between an aggregation switch and the core."""


class MegaScale(TopologySection):
    """ByteDance's MegaScale: 64-port switches, split downlinks, the 8 NICs of a server on 8 ToRs."""

    kind: Literal["megascale"] = "megascale"
    """Three tiers, an uplink twice a downlink."""
    pods: Count = 6
    """Pods; with more than one, a core joins them. 6, for 12,288 GPUs (MegaScale's largest job)."""
    blocks_per_pod: Count = 4
    """Blocks of servers under the same ToRs. 4, for 32 ToRs (derived: an aggregation switch has as many)."""
    hosts_per_block: Count = 64
    """Servers in a block. 64: a ToR's 32 down ports of 400G, split in two (MegaScale)."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own; NIC I of block B is on `tor-B-I`. 8 (MegaScale)."""
    aggs_per_pod: Count = 32
    """Aggregation switches `agg-P-A` of a pod. 32 (derived from 32 uplinks of a ToR)."""
    links_per_tor_agg: Count = 1
    """Parallel links between a ToR and an aggregation switch: with twice as many and half the aggregation
    switches, uplinks keep their rate."""
    cores: CountOrNone = 128
    """Core switches `core-C`, if there are several pods. 128 (derived)."""
    core_uplinks_per_agg: Count = 32
    """Links from an aggregation switch to the core. 32 (MegaScale)."""
    tor_oversubscription: PositiveFraction = Fraction(1)
    """Rate below a ToR over rate above it. 64 x 200G over 32 x 400G (MegaScale)."""
    agg_oversubscription: PositiveFraction = Fraction(1)
    """Rate below an aggregation switch over rate towards the core. 32 ports each (MegaScale)."""
    link_bps: RateBps = LINK_200G_BPS
    """Rate of a NIC. 200G, half a port of the ToR (MegaScale)."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToR."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""
    core_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between an aggregation switch and the core."""


class MultiPlane(TopologySection):
    """Several equal fat trees side by side, each with some ports of every server: MPFT, and MRC's fabrics."""

    kind: Literal["multi_plane"] = "multi_plane"
    """Planes of two or three tiers that nothing joins."""
    planes: NicPorts = 8
    """Planes. Port J of NIC I of a server is on plane (I x `nic_ports` + J) mod `planes`. 8 (MPFT, MRC)."""
    tiers: Literal[2, 3] = 2
    """Tiers of a plane: ToRs `tor-P-T` under `agg-P-A`, and with 3 under `core-P-C`. 2 (MPFT, MRC)."""
    radix: Annotated[int, Field(ge=2, le=1024)] = 64
    """Ports of a switch, half down and half up; even. 64 (MPFT); 512 (MRC)."""
    links_per_tor_agg: Count = 1
    """Parallel links between a ToR and an aggregation switch; divides `radix`/2. There are so many times
    fewer of both."""
    links_per_agg_core: Count = 1
    """Parallel links between an aggregation and a core switch, with 3 tiers; divides `radix`/2. There are so
    many times fewer pods, and core switches above each aggregation switch."""
    hosts: Count | None = None
    """Servers. Default: as many as a plane has room for, 2,048 for 16,384 GPUs (MPFT)."""
    gpus_per_host: Count = 8
    """GPUs in a server, each with a NIC of its own. 8 (MPFT)."""
    nic_ports: NicPorts = 1
    """Fabric ports of a NIC. 1, NIC I on plane I (MPFT); 8, every NIC on every plane (MRC)."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of one port of a NIC, and of the links between switches. 400G (MPFT); 100G (MRC)."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its ToRs."""
    agg_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a ToR and an aggregation switch."""
    core_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between an aggregation switch and the core."""


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
        "multi_plane": MultiPlane,
        "fat_tree": FatTree,
        "rail_only": RailOnly,
        "star": Star,
        "graph": Graph,
        "file": TopologyFile,
    },
)
