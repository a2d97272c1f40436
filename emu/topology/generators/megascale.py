"""The network of MegaScale.

Three tiers of switches with 64 ports of 400G, 32 down and 32 up. The down ports of a ToR are split into 2 x
200G, so that a ToR serves 64 NICs of 200G and each of its uplinks carries twice a NIC: two flows that hash
onto one uplink still fit. The 8 NICs of a server go to 8 ToRs, NIC i to ToR i of its block, so that a block
is 64 servers and 512 GPUs. 4 blocks, 32 ToRs, are joined to 32 aggregation switches in a pod, and the core
joins the pods.

Names: `tor-<block>-<i>` with blocks counted through all pods, `agg-<pod>-<a>`, `core-<c>`. A rack is a block.

Source: MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs (NSDI'24), section 3.6: port
counts, split downlinks, three layers, 8 NICs to 8 switches. Pods of 32 ToRs follow from the port counts; 6
pods are 12,288 GPUs, the largest job of the paper; 128 core switches would take 8 (derived).

Not modelled: placement of data-intensive nodes under one ToR, which is the scheduler's.
"""

from __future__ import annotations

from fractions import Fraction

from actors.fabric.model import Topology
from emu.topology.generators.builder import Cables, Pods, check_counts


def megascale(
    *,
    pods: int = 6,
    blocks_per_pod: int = 4,
    hosts_per_block: int = 64,
    gpus_per_host: int = 8,
    aggs_per_pod: int = 32,
    cores: int = 128,
    links_per_tor_agg: int = 1,
    core_uplinks_per_agg: int = 32,
    tor_oversubscription: Fraction = Fraction(1),
    agg_oversubscription: Fraction = Fraction(1),
    agg_delay_ps: int,
    core_delay_ps: int,
    **given: int,
) -> Topology:
    """The fabric, or a smaller one of the same ratios. TopologyError names what cannot be built."""
    counts = {
        "pods": pods,
        "blocks_per_pod": blocks_per_pod,
        "hosts_per_block": hosts_per_block,
        "gpus_per_host": gpus_per_host,
        "aggs_per_pod": aggs_per_pod,
        "links_per_tor_agg": links_per_tor_agg,
        "core_uplinks_per_agg": core_uplinks_per_agg,
    }
    faults = check_counts(1, counts)
    shape = Pods(
        pods=pods,
        racks_per_pod=blocks_per_pod,
        hosts_per_rack=hosts_per_block,
        gpus_per_host=gpus_per_host,
        tors_per_rack=gpus_per_host,
        aggs_per_pod=aggs_per_pod,
        links_per_tor_agg=links_per_tor_agg,
        cores=cores,
        core_uplinks_per_agg=core_uplinks_per_agg,
        tor_oversubscription=tor_oversubscription,
        agg_oversubscription=agg_oversubscription,
        agg_delay_ps=agg_delay_ps,
        core_delay_ps=core_delay_ps,
    )
    return shape.built("megascale", Cables(**given), faults, rails=True)
