"""DCN+, the network that HPN is compared with.

A Clos of three tiers for general clouds, widened for training. A segment is 16 servers, 128 GPUs: all their
NICs, of two 200G ports each, hang on the same pair of ToRs (dual-ToR), one port on each. 4 segments make a
pod; every ToR is joined to every aggregation switch of its pod, and there are no planes: both ToRs of a pair
hash towards both of another, so the two ports of a NIC load unevenly. The core joins the pods.

Names: `tor-<segment>-<port>` with segments counted through all pods, `agg-<pod>-<a>`, `core-<c>`. A rack is a
segment.

Source: Alibaba HPN (SIGCOMM'24), which describes DCN+ as its baseline: three tiers, segments of 128 GPUs,
dual-ToR. Pods of 4 segments under 8 aggregation switches are the defaults of SimAI's generator. The rest is
derived from switches of 128 x 400G used half down and half up: 8 links from a ToR to each aggregation switch,
64 uplinks from each of these, 128 core switches, 32 pods (16,384 GPUs), no oversubscription.

Not modelled: storage and front-end traffic, which share the real DCN+.
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
    check_ports,
    check_stripe,
    check_uplink,
    mesh,
    stripe,
    uplink_bps,
)


def dcn_plus(
    *,
    pods: int = 32,
    segments_per_pod: int = 4,
    hosts_per_segment: int = 16,
    gpus_per_host: int = 8,
    nic_ports: int = 2,
    aggs_per_pod: int = 8,
    links_per_tor_agg: int = 8,
    cores: int = 128,
    core_uplinks_per_agg: int = 64,
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
        "segments_per_pod": segments_per_pod,
        "hosts_per_segment": hosts_per_segment,
        "gpus_per_host": gpus_per_host,
        "aggs_per_pod": aggs_per_pod,
        "links_per_tor_agg": links_per_tor_agg,
        "core_uplinks_per_agg": core_uplinks_per_agg,
    }
    faults = check_counts(1, counts) + check_ports(nic_ports)
    faults += check_counts(1 if pods > 1 else 0, {"cores": cores})
    faults += cables.faults({"agg_delay": agg_delay_ps, "core_delay": core_delay_ps})
    if faults:
        raise TopologyError(faults)
    below_tor_bps = hosts_per_segment * gpus_per_host * cables.link_bps
    tor_bps = uplink_bps(below_tor_bps, tor_oversubscription, aggs_per_pod * links_per_tor_agg)
    below_agg_bps = segments_per_pod * nic_ports * links_per_tor_agg * tor_bps
    agg_bps = uplink_bps(below_agg_bps, agg_oversubscription, core_uplinks_per_agg)
    faults += check_uplink("tor_oversubscription", tor_bps)
    faults += check_uplink("agg_oversubscription", agg_bps)
    if pods > 1:
        faults += check_stripe(("core_uplinks_per_agg", "cores"), aggs_per_pod, core_uplinks_per_agg, cores)
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    segments = pods * segments_per_pod
    servers = add_servers(fabric, segments * hosts_per_segment, gpus_per_host, hosts_per_segment)
    tors = [
        [fabric.switch(f"tor-{segment}-{port}", "tor", 1, segment) for port in range(nic_ports)]
        for segment in range(segments)
    ]
    aggs = [[fabric.switch(f"agg-{pod}-{a}", "agg", 2) for a in range(aggs_per_pod)] for pod in range(pods)]
    tops = [fabric.switch(f"core-{c}", "core", 3) for c in range(cores if pods > 1 else 0)]
    for index, server in enumerate(servers):
        for nic in server.nics:
            for tor in tors[index // hosts_per_segment]:
                fabric.link(nic, tor, cables.link_bps, cables.nic_delay_ps)
    for segment, pair in enumerate(tors):
        mesh(fabric, pair, aggs[segment // segments_per_pod], tor_bps, agg_delay_ps, links_per_tor_agg)
    if pods > 1:
        for in_pod in aggs:
            stripe(fabric, in_pod, tops, core_uplinks_per_agg, agg_bps, core_delay_ps)
    add_host_links(fabric, servers, cables)
    return fabric.finish("dcn_plus")
