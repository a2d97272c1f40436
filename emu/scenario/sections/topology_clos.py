"""Which large fabrics can be built, and what are their real sizes? Sections of `topology` for Llama 3's
cluster, HPN, DCN+ and MegaScale.

Every default is the real system's; sources, and what had to be derived, are at the top of each generator in
`emu.topology`. An oversubscription is the rate below a switch over the rate above it, and the rate of the
uplinks follows from it: a smaller fabric keeps the ratios of the large one.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from emu.scenario.sections.topology_base import (
    DELAY_500NS_PS,
    LINK_200G_BPS,
    LINK_400G_BPS,
    Count,
    CountOrNone,
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
    atsws: CountOrNone = 28
    """Aggregation switches `atsw-A` above the pods. 192 / 7, rounded up (derived); none with a single pod."""
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
    nic_ports: Literal[1, 2] = 2
    """Fabric ports of a NIC, each on a ToR of its own: `tor-S-R-0` and `tor-S-R-1`. 2 (HPN); 1 for a single
    ToR."""
    planes: Literal[1, 2] = Field(default_factory=lambda known: known.get("nic_ports", 2))
    """2: what leaves port 0 arrives on port 0 (HPN). 1: all ToRs of a pod share its aggregation switches.
    Default: as many as `nic_ports`."""
    aggs_per_plane: CountOrNone = 60
    """Aggregation switches `agg-P-L-A` in a plane L of a pod. 60 (HPN)."""
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
    nic_ports: Literal[1, 2] = 2
    """Fabric ports of a NIC, each on a ToR of its own, `tor-S-0` and `tor-S-1`. 2 (HPN); 1: a single ToR."""
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
