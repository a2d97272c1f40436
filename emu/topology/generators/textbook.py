"""Textbook fabrics: the k-ary fat tree, rails alone, a single switch.

Fat tree. k pods of k/2 ToRs and k/2 aggregation switches, (k/2)^2 core switches, all of k ports of one rate;
k/2 NICs under each ToR, k^3/4 in all. Aggregation switch a of every pod is joined to core switches a x k/2
and the k/2 - 1 that follow. Between two pods there are (k/2)^2 shortest paths.

With parallel links every switch keeps its k ports, and there are fewer switches: p links between a ToR and an
aggregation switch leave k/2p of each in a pod, and q between an aggregation and a core switch leave k/q pods
under k/2p x k/2q core switches. All of it is k^3/4pq NICs at full bisection.

A server has one GPU and one NIC unless `gpus_per_host` says otherwise; all NICs of a server hang on one ToR.

Names: `tor-<pod>-<i>`, `agg-<pod>-<a>`, `core-<c>`. A rack is a ToR.

Source: A Scalable, Commodity Data Center Network Architecture (Al-Fares and others, SIGCOMM'08), section 2.2.

Rails alone. NIC i of every server hangs on the switch of rail i, and nothing joins the rails: what must
change rails moves inside a server first. A rail that has more servers than one switch has ports is a Clos of
its own: segments with a ToR each, and aggregation switches that join the ToRs of the rail.

Names: `tor-<segment>-<rail>`, `agg-<rail>-<a>`. A rack is a segment.

NICs of different rails do not reach each other. A job whose ranks would have to is refused before it runs, by
the names of the NICs.

Source: How to Build Low-cost Networks for Large Language Models (without Sacrificing Performance)? (Wang and
others, 2023), section 4. Rates and ratios are ours.

Star. All NICs of all servers on one switch, `tor-0`: the smallest fabric with an incast, and what remains of
any other when only one port is in question.
"""

from __future__ import annotations

from fractions import Fraction

from actors.fabric.model import Fault, Topology, TopologyError
from emu.topology.generators.builder import (
    Assembly,
    Cables,
    add_host_links,
    add_servers,
    check_counts,
    check_uplink,
    mesh,
    stripe,
    uplink_bps,
)


def fat_tree(
    *,
    k: int,
    gpus_per_host: int = 1,
    links_per_tor_agg: int = 1,
    links_per_agg_core: int = 1,
    agg_delay_ps: int,
    core_delay_ps: int,
    **given: int,
) -> Topology:
    """A k-ary fat tree; k is even. TopologyError names what cannot be built."""
    cables = Cables(**given)
    half = k // 2
    faults = check_counts(1, {"gpus_per_host": gpus_per_host})
    if k < 2 or k % 2:
        faults.append(Fault(("k",), f"{k} ports cannot be halved", "an even number of at least 2"))
    elif gpus_per_host >= 1 and half % gpus_per_host:
        reason = f"servers of {gpus_per_host} NICs do not divide the {half} ports of a ToR"
        faults.append(Fault(("gpus_per_host",), reason, f"a divisor of {half}"))
    for key, links in (("links_per_tor_agg", links_per_tor_agg), ("links_per_agg_core", links_per_agg_core)):
        if half >= 1 and (links < 1 or half % links):
            reason = f"{links} parallel links do not divide the {half} ports that a switch has upwards"
            faults.append(Fault((key,), reason, f"a divisor of {half}"))
    faults += cables.faults({"agg_delay": agg_delay_ps, "core_delay": core_delay_ps})
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    hosts_per_tor = half // gpus_per_host
    in_each = half // links_per_tor_agg
    cores_per_agg = half // links_per_agg_core
    pods = k // links_per_agg_core
    racks = pods * in_each
    servers = add_servers(fabric, racks * hosts_per_tor, gpus_per_host, hosts_per_tor)
    tors = [fabric.switch(f"tor-{rack // in_each}-{rack % in_each}", "tor", 1, rack) for rack in range(racks)]
    aggs = [[fabric.switch(f"agg-{pod}-{a}", "agg", 2) for a in range(in_each)] for pod in range(pods)]
    cores = [fabric.switch(f"core-{c}", "core", 3) for c in range(in_each * cores_per_agg)]
    for index, server in enumerate(servers):
        for nic in server.nics:
            fabric.link(nic, tors[index // hosts_per_tor], cables.link_bps, cables.nic_delay_ps)
    for pod, in_pod in enumerate(aggs):
        below = tors[pod * in_each : (pod + 1) * in_each]
        mesh(fabric, below, in_pod, cables.link_bps, agg_delay_ps, links_per_tor_agg)
    for in_pod in aggs:
        stripe(fabric, in_pod, cores, cores_per_agg, cables.link_bps, core_delay_ps, links_per_agg_core)
    add_host_links(fabric, servers, cables)
    return fabric.finish("fat_tree")


def rail_only(
    *,
    segments: int = 1,
    hosts_per_segment: int,
    gpus_per_host: int = 8,
    aggs_per_rail: int = 0,
    links_per_tor_agg: int = 1,
    tor_oversubscription: Fraction = Fraction(1),
    agg_delay_ps: int,
    **given: int,
) -> Topology:
    """Rails that nothing joins. TopologyError names what cannot be built."""
    cables = Cables(**given)
    counts = {
        "segments": segments,
        "hosts_per_segment": hosts_per_segment,
        "gpus_per_host": gpus_per_host,
        "links_per_tor_agg": links_per_tor_agg,
    }
    faults = check_counts(1, counts) + check_counts(0, {"aggs_per_rail": aggs_per_rail})
    faults += cables.faults({"agg_delay": agg_delay_ps})
    if segments > 1 and aggs_per_rail == 0:
        reason = f"rail 0 has no path between its {segments} segments without an aggregation switch"
        faults.append(Fault(("aggs_per_rail",), reason, "a whole number of at least 1"))
    if faults:
        raise TopologyError(faults)
    tor_bps = uplink_bps(
        hosts_per_segment * cables.link_bps, tor_oversubscription, aggs_per_rail * links_per_tor_agg
    )
    faults += check_uplink("tor_oversubscription", tor_bps)
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    servers = add_servers(fabric, segments * hosts_per_segment, gpus_per_host, hosts_per_segment)
    tors = [
        [fabric.switch(f"tor-{segment}-{rail}", "tor", 1, segment) for rail in range(gpus_per_host)]
        for segment in range(segments)
    ]
    aggs = [
        [fabric.switch(f"agg-{rail}-{a}", "agg", 2) for a in range(aggs_per_rail if segments > 1 else 0)]
        for rail in range(gpus_per_host)
    ]
    for index, server in enumerate(servers):
        for nic, tor in zip(server.nics, tors[index // hosts_per_segment], strict=True):
            fabric.link(nic, tor, cables.link_bps, cables.nic_delay_ps)
    for rail, uppers in enumerate(aggs):
        mesh(
            fabric,
            [in_segment[rail] for in_segment in tors],
            uppers,
            tor_bps,
            agg_delay_ps,
            links_per_tor_agg,
        )
    add_host_links(fabric, servers, cables)
    return fabric.finish("rail_only", all_reachable=False)


def star(
    *,
    hosts: int,
    gpus_per_host: int = 1,
    **given: int,
) -> Topology:
    """One switch with every NIC on it. TopologyError names what cannot be built."""
    cables = Cables(**given)
    faults = check_counts(1, {"hosts": hosts, "gpus_per_host": gpus_per_host})
    faults += cables.faults({})
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    servers = add_servers(fabric, hosts, gpus_per_host, hosts)
    switch = fabric.switch("tor-0", "tor", 1, 0)
    for server in servers:
        for nic in server.nics:
            fabric.link(nic, switch, cables.link_bps, cables.nic_delay_ps)
    add_host_links(fabric, servers, cables)
    return fabric.finish("star")
