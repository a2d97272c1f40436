"""Alibaba's HPN: dual-ToR, dual-plane, rail-optimised.

Rail-optimised and dual-ToR. A server has 8 GPUs and as many NICs, each of two 200G ports. NIC i of all 128
servers of a segment hangs on the pair of ToRs of rail i, one port on each: 16 ToRs and 1,024 GPUs in one
tier. 15 segments make a pod of 15,360 GPUs in two tiers: a ToR has 128 x 200G down and 60 x 400G up, 1.067:1.

Planes. With two planes (as deployed) a pod has 60 aggregation switches in each, and the first ToR of every
pair is joined to those of plane 0, the second to those of plane 1: what leaves port 0 of a NIC arrives on
port 0. NICs of up to eight ports have as many ToRs each, and port j is on plane j mod `planes`. With one
plane, every ToR is joined to all 60 aggregation switches of its pod, and both ToRs of a pair are reached
through the same ones: how the two ports of a NIC load is left to the hash.

Core. An aggregation switch has 120 x 400G down and 8 x 400G up, 15:1; only pipeline traffic crosses pods. The
uplinks of a plane are striped over the plane's own core switches, in every pod alike.

Names: `tor-<segment>-<rail>-<plane>` with segments counted through all pods, `agg-<pod>-<plane>-<a>`,
`core-<plane>-<c>`; with one plane the aggregation switches and cores are all of plane 0. A rack is a segment.

Source: Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM'24), sections 4 to 6.
It does not say how many core switches there are: 60 to a plane, with room for 16 pods of 8 links each on 128
ports, are ours, and so is that the planes do not meet there.

Not modelled: the ToRs' 8 spare ports, the second port of the front-end NIC.
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
    check_ports,
    check_stripe,
    check_uplink,
    mesh,
    stripe,
    uplink_bps,
)


def hpn(
    *,
    pods: int = 1,
    segments_per_pod: int = 15,
    hosts_per_segment: int = 128,
    gpus_per_host: int = 8,
    nic_ports: int = 2,
    planes: int = 2,
    aggs_per_plane: int = 60,
    cores_per_plane: int = 60,
    links_per_tor_agg: int = 1,
    core_uplinks_per_agg: int = 8,
    tor_oversubscription: Fraction = Fraction(16, 15),
    agg_oversubscription: Fraction = Fraction(15),
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
        "links_per_tor_agg": links_per_tor_agg,
        "core_uplinks_per_agg": core_uplinks_per_agg,
    }
    faults = check_counts(1, counts)
    faults += cables.faults({"agg_delay": agg_delay_ps, "core_delay": core_delay_ps})
    faults += _check_planes(nic_ports, planes, aggs_per_plane)
    if faults:
        raise TopologyError(faults)
    tor_bps = uplink_bps(
        hosts_per_segment * cables.link_bps, tor_oversubscription, aggs_per_plane * links_per_tor_agg
    )
    links_below_agg = segments_per_pod * gpus_per_host * nic_ports // planes * links_per_tor_agg
    agg_bps = uplink_bps(links_below_agg * tor_bps, agg_oversubscription, core_uplinks_per_agg)
    faults += check_uplink("tor_oversubscription", tor_bps)
    faults += check_uplink("agg_oversubscription", agg_bps)
    if pods > 1:
        faults += _check_core(pods, aggs_per_plane, cores_per_plane, core_uplinks_per_agg)
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    segments = pods * segments_per_pod
    servers = add_servers(fabric, segments * hosts_per_segment, gpus_per_host, hosts_per_segment)
    tors = [
        [
            [fabric.switch(f"tor-{segment}-{rail}-{port}", "tor", 1, segment) for port in range(nic_ports)]
            for rail in range(gpus_per_host)
        ]
        for segment in range(segments)
    ]
    aggs = [
        [
            [fabric.switch(f"agg-{pod}-{plane}-{a}", "agg", 2) for a in range(aggs_per_plane)]
            for plane in range(planes)
        ]
        for pod in range(pods)
    ]
    cores = [
        [fabric.switch(f"core-{plane}-{c}", "core", 3) for c in range(cores_per_plane if pods > 1 else 0)]
        for plane in range(planes)
    ]
    for index, server in enumerate(servers):
        for rail, nic in enumerate(server.nics):
            for tor in tors[index // hosts_per_segment][rail]:
                fabric.link(nic, tor, cables.link_bps, cables.nic_delay_ps)
    for segment, rails in enumerate(tors):
        for pair in rails:
            for port, tor in enumerate(pair):
                uppers = aggs[segment // segments_per_pod][port % planes]
                mesh(fabric, [tor], uppers, tor_bps, agg_delay_ps, links_per_tor_agg)
    if pods > 1:
        for in_pod in aggs:
            for plane, in_plane in enumerate(in_pod):
                stripe(fabric, in_plane, cores[plane], core_uplinks_per_agg, agg_bps, core_delay_ps)
    add_host_links(fabric, servers, cables)
    return fabric.finish("hpn")


def _check_planes(nic_ports: int, planes: int, aggs_per_plane: int) -> list[Fault]:
    """A plane needs a port of every NIC below it and switches that join its ToRs."""
    faults = check_ports(nic_ports)
    if planes < 1:
        faults.append(Fault(("planes",), f"{planes} planes", "1, or as many as nic_ports"))
    elif planes > nic_ports:
        ports = "one port" if nic_ports == 1 else f"{nic_ports} ports"
        reason = f"plane {nic_ports} has no path: NICs of {ports} reach {_first_planes(nic_ports)} only"
        accepted = "1 plane" if nic_ports == 1 else f"at most {nic_ports} planes"
        faults.append(Fault(("planes",), reason, f"{accepted}, or nic_ports: {planes}"))
    elif nic_ports % planes:
        reason = f"{planes} planes do not divide the {nic_ports} ports of a NIC"
        fitting = [str(count) for count in range(1, nic_ports + 1) if nic_ports % count == 0]
        faults.append(Fault(("planes",), reason, " or ".join(fitting)))
    if aggs_per_plane < 1:
        reason = "plane 0 has no path between its ToRs without an aggregation switch"
        faults.append(Fault(("aggs_per_plane",), reason, "a whole number of at least 1"))
    return faults


def _first_planes(count: int) -> str:
    return "plane 0" if count == 1 else f"planes 0 to {count - 1}"


def _check_core(pods: int, aggs: int, cores: int, uplinks: int) -> list[Fault]:
    """Planes of several pods meet in the core."""
    if cores < 1:
        reason = f"plane 0 has no path between its {pods} pods without a core switch"
        return [Fault(("cores_per_plane",), reason, "a whole number of at least 1")]
    return check_stripe(("core_uplinks_per_agg", "cores_per_plane"), aggs, uplinks, cores)
