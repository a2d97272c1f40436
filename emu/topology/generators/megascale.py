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

from actors.fabric.model import Topology, TopologyError
from emu.topology.generators.builder import (
    Assembly,
    Cables,
    add_host_links,
    add_servers,
    check_counts,
    check_stripe,
    check_uplink,
    mesh,
    stripe,
    uplink_bps,
)


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
    cables = Cables(**given)
    counts = {
        "pods": pods,
        "blocks_per_pod": blocks_per_pod,
        "hosts_per_block": hosts_per_block,
        "gpus_per_host": gpus_per_host,
        "aggs_per_pod": aggs_per_pod,
        "links_per_tor_agg": links_per_tor_agg,
        "core_uplinks_per_agg": core_uplinks_per_agg,
    }
    faults = check_counts(1, counts) + check_counts(1 if pods > 1 else 0, {"cores": cores})
    faults += cables.faults({"agg_delay": agg_delay_ps, "core_delay": core_delay_ps})
    if faults:
        raise TopologyError(faults)
    tor_bps = uplink_bps(
        hosts_per_block * cables.link_bps, tor_oversubscription, aggs_per_pod * links_per_tor_agg
    )
    below_agg_bps = blocks_per_pod * gpus_per_host * links_per_tor_agg * tor_bps
    agg_bps = uplink_bps(below_agg_bps, agg_oversubscription, core_uplinks_per_agg)
    faults += check_uplink("tor_oversubscription", tor_bps)
    faults += check_uplink("agg_oversubscription", agg_bps)
    if pods > 1:
        faults += check_stripe(("core_uplinks_per_agg", "cores"), aggs_per_pod, core_uplinks_per_agg, cores)
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    blocks = pods * blocks_per_pod
    servers = add_servers(fabric, blocks * hosts_per_block, gpus_per_host, hosts_per_block)
    tors = [
        [fabric.switch(f"tor-{block}-{i}", "tor", 1, block) for i in range(gpus_per_host)]
        for block in range(blocks)
    ]
    aggs = [[fabric.switch(f"agg-{pod}-{a}", "agg", 2) for a in range(aggs_per_pod)] for pod in range(pods)]
    tops = [fabric.switch(f"core-{c}", "core", 3) for c in range(cores if pods > 1 else 0)]
    for index, server in enumerate(servers):
        for nic, tor in zip(server.nics, tors[index // hosts_per_block], strict=True):
            fabric.link(nic, tor, cables.link_bps, cables.nic_delay_ps)
    for block, in_block in enumerate(tors):
        mesh(fabric, in_block, aggs[block // blocks_per_pod], tor_bps, agg_delay_ps, links_per_tor_agg)
    if pods > 1:
        for in_pod in aggs:
            stripe(fabric, in_pod, tops, core_uplinks_per_agg, agg_bps, core_delay_ps)
    add_host_links(fabric, servers, cables)
    return fabric.finish("megascale")
