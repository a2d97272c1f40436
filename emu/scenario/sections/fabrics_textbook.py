"""Section `topology`: the k-ary fat tree, rails alone, a star."""

from fractions import Fraction
from typing import Annotated, Literal

from emu.base.records import Field
from emu.scenario.sections.topology import (
    DELAY_500NS_PS,
    LINK_400G_BPS,
    Count,
    CountOrNone,
    TopologySection,
)
from emu.scenario.yaml.values import DelayPs, PositiveFraction, RateBps


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
