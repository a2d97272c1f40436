"""Section `topology`: the fabrics of large clusters, whose defaults are the real systems'."""

from fractions import Fraction
from typing import Annotated, Literal

from emu.base.records import Field
from emu.scenario.sections.topology import (
    DELAY_500NS_PS,
    LINK_200G_BPS,
    LINK_400G_BPS,
    Count,
    CountOrNone,
    NicPorts,
    TopologySection,
)
from emu.scenario.yaml.values import DelayPs, PositiveFraction, RateBps


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
    planes: NicPorts = Field(default_from=lambda known: known.get("nic_ports", 2))
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
        default_from=lambda known: LINK_400G_BPS if known.get("nic_ports") == 1 else LINK_200G_BPS
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
        default_from=lambda known: LINK_400G_BPS if known.get("nic_ports") == 1 else LINK_200G_BPS
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
