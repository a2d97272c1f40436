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

from actors.fabric.model import Topology
from emu.topology.generators.builder import Cables, Pods, check_counts, check_ports


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
    shape = Pods(
        pods=pods,
        racks_per_pod=segments_per_pod,
        hosts_per_rack=hosts_per_segment,
        gpus_per_host=gpus_per_host,
        tors_per_rack=nic_ports,
        aggs_per_pod=aggs_per_pod,
        links_per_tor_agg=links_per_tor_agg,
        cores=cores,
        core_uplinks_per_agg=core_uplinks_per_agg,
        tor_oversubscription=tor_oversubscription,
        agg_oversubscription=agg_oversubscription,
        agg_delay_ps=agg_delay_ps,
        core_delay_ps=core_delay_ps,
    )
    return shape.built("dcn_plus", Cables(**given), faults, rails=False)
