"""Multi-plane fat trees: k equal fabrics of two or three tiers, each with some ports of every server.

A plane is a fat tree of switches with `radix` ports, half down and half up. With two tiers it has `radix`
ToRs under `radix`/2 aggregation switches and room for radix^2/2 ports of NICs; with three tiers, pods of
`radix`/2 ToRs and as many aggregation switches under (`radix`/2)^2 core switches, and room for radix^3/4.
With p parallel links between a ToR and an aggregation switch, a plane of two tiers and a pod have so many
times fewer of both; with q between an aggregation and a core switch a plane has so many times fewer pods, and
core switches above each aggregation switch. Every switch keeps its `radix` ports.

Nothing joins the planes: what leaves a plane's port arrives on a port of that plane.

Ports of a server are dealt over the planes in turn, NIC by NIC and port by port: port j of NIC i is on plane
(i x `nic_ports` + j) mod `planes`. So two published designs are one arithmetic. DeepSeek's MPFT has NICs of
one port, NIC i on plane i: 8 planes of two tiers of 64-port switches, 16,384 GPUs and 768 switches. The
fabrics of MRC have every NIC on all planes: 8 planes of two tiers of 512-port switches, 131,072 NICs.

A fabric with fewer servers than there is room for fills ToRs, and pods, one after the other, and has those
only; each ToR has all its uplinks. Under a single ToR a plane needs no other switch.

Names: `tor-<plane>-<t>`, `agg-<plane>-<a>`, `core-<plane>-<c>`; ToRs and aggregation switches are counted
through all pods of a plane. A rack is the servers of one ToR of each plane.

Source: DeepSeek-AI, Insights into DeepSeek-V3 (ISCA'25, arXiv 2505.09343), section 5.1; Araujo et al.,
Resilient AI Supercomputer Networking using MRC and SRv6 (arXiv 2605.04333), section 2.
"""

from typing import NamedTuple

from actors.fabric.model import Fault, Topology, TopologyError
from emu.topology.generators.builder import (
    MOST_NIC_PORTS,
    Assembly,
    Cables,
    add_host_links,
    add_servers,
    check_counts,
    check_ports,
    mesh,
    stripe,
)


class Room(NamedTuple):
    """What a plane of a fat tree may have."""

    ports: int
    """Ports of NICs."""
    switches: tuple[int, ...]
    """By tier."""


def room(tiers: int, radix: int, links_per_tor_agg: int = 1, links_per_agg_core: int = 1) -> Room:
    """The arithmetic of a full plane."""
    half = radix // 2
    in_each = half // links_per_tor_agg
    if tiers == 2:
        return Room(2 * in_each * half, (2 * in_each, in_each))
    lower = radix // links_per_agg_core * in_each
    return Room(lower * half, (lower, lower, in_each * (half // links_per_agg_core)))


def hosts_that_fit(
    *,
    planes: int,
    tiers: int,
    radix: int,
    gpus_per_host: int,
    nic_ports: int,
    links_per_tor_agg: int = 1,
    links_per_agg_core: int = 1,
) -> int:
    """How many servers have room; 0 where a server's ports of one plane are more than a ToR has below."""
    below = radix // 2
    ports = room(tiers, radix, links_per_tor_agg, links_per_agg_core).ports
    return ports // below * (below * planes // (gpus_per_host * nic_ports))


def multi_plane(
    *,
    planes: int = 8,
    tiers: int = 2,
    radix: int = 64,
    links_per_tor_agg: int = 1,
    links_per_agg_core: int = 1,
    hosts: int | None = None,
    gpus_per_host: int = 8,
    nic_ports: int = 1,
    agg_delay_ps: int,
    core_delay_ps: int,
    **given: int,
) -> Topology:
    """The fabric. TopologyError names what cannot be built."""
    cables = Cables(**given)
    faults = check_counts(1, {"hosts": 1 if hosts is None else hosts, "gpus_per_host": gpus_per_host})
    faults += check_ports(nic_ports)
    faults += cables.faults({"agg_delay": agg_delay_ps, "core_delay": core_delay_ps})
    faults += _check_shape(planes, tiers, radix)
    faults += _check_parallel(tiers, radix, links_per_tor_agg, links_per_agg_core)
    if faults:
        raise TopologyError(faults)
    faults = _check_planes(planes, gpus_per_host, nic_ports)
    if faults:
        raise TopologyError(faults)
    most = hosts_that_fit(
        planes=planes,
        tiers=tiers,
        radix=radix,
        gpus_per_host=gpus_per_host,
        nic_ports=nic_ports,
        links_per_tor_agg=links_per_tor_agg,
        links_per_agg_core=links_per_agg_core,
    )
    if hosts is None:
        hosts = most
    ports = gpus_per_host * nic_ports // planes
    if most == 0:
        reason = f"a server has {ports} ports on a plane, and a ToR of {radix} ports takes {radix // 2}"
        raise TopologyError([Fault(("radix",), reason, f"an even number of at least {2 * ports}")])
    if hosts > most:
        reason = f"{tiers} tiers of {radix}-port switches have room for {most} servers on a plane"
        raise TopologyError(
            [Fault(("hosts",), f"{hosts} are too many: {reason}", f"at most {most}, or another radix")]
        )

    half = radix // 2
    hosts_per_tor = half // ports
    tors = -(-hosts // hosts_per_tor)
    in_each = half // links_per_tor_agg
    cores_per_agg = half // links_per_agg_core
    pods = 1 if tiers == 2 else -(-tors // in_each)
    fabric = Assembly()
    servers = add_servers(fabric, hosts, gpus_per_host, hosts_per_tor)
    own_tors = [
        [fabric.switch(f"tor-{plane}-{tor}", "tor", 1, tor) for tor in range(tors)] for plane in range(planes)
    ]
    aggs = [
        [fabric.switch(f"agg-{plane}-{a}", "agg", 2) for a in range(pods * in_each if tors > 1 else 0)]
        for plane in range(planes)
    ]
    cores = [
        [
            fabric.switch(f"core-{plane}-{c}", "core", 3)
            for c in range(in_each * cores_per_agg if pods > 1 else 0)
        ]
        for plane in range(planes)
    ]
    for index, server in enumerate(servers):
        for place, nic in enumerate(server.nics):
            for port in range(nic_ports):
                plane = (place * nic_ports + port) % planes
                fabric.link(
                    nic, own_tors[plane][index // hosts_per_tor], cables.link_bps, cables.nic_delay_ps
                )
    tors_per_pod = tors if tiers == 2 else in_each
    for plane in range(planes):
        for pod in range(pods if tors > 1 else 0):
            below = own_tors[plane][pod * tors_per_pod : (pod + 1) * tors_per_pod]
            above = aggs[plane][pod * in_each : (pod + 1) * in_each]
            mesh(fabric, below, above, cables.link_bps, agg_delay_ps, links_per_tor_agg)
    for plane in range(planes if pods > 1 else 0):
        for pod in range(pods):
            in_pod = aggs[plane][pod * in_each : (pod + 1) * in_each]
            stripe(
                fabric,
                in_pod,
                cores[plane],
                cores_per_agg,
                cables.link_bps,
                core_delay_ps,
                links_per_agg_core,
            )
    add_host_links(fabric, servers, cables)
    # Nothing joins the planes, so NICs that are not on all of them do not reach one another.
    return fabric.finish("multi_plane", all_reachable=nic_ports >= planes)


def _check_shape(planes: int, tiers: int, radix: int) -> list[Fault]:
    """Planes, tiers and ports of a switch that a fat tree can have."""
    faults = []
    if not 1 <= planes <= MOST_NIC_PORTS:
        faults.append(Fault(("planes",), f"{planes} planes", f"1 to {MOST_NIC_PORTS}"))
    if tiers not in {2, 3}:
        faults.append(Fault(("tiers",), f"{tiers} tiers", "2 or 3"))
    if radix < 2 or radix % 2:
        faults.append(Fault(("radix",), f"{radix} ports are not half down and half up", "an even number"))
    return faults


def _check_parallel(tiers: int, radix: int, links_per_tor_agg: int, links_per_agg_core: int) -> list[Fault]:
    """Parallel links divide the ports that a switch has upwards."""
    faults = []
    half = radix // 2
    for key, links in (("links_per_tor_agg", links_per_tor_agg), ("links_per_agg_core", links_per_agg_core)):
        if half >= 1 and (links < 1 or half % links):
            reason = f"{links} parallel links do not divide the {half} ports that a switch has upwards"
            faults.append(Fault((key,), reason, f"a divisor of {half}"))
    if tiers == 2 and links_per_agg_core != 1:
        faults.append(Fault(("links_per_agg_core",), "two tiers have no core", "1, or tiers: 3"))
    return faults


def _check_planes(planes: int, gpus_per_host: int, nic_ports: int) -> list[Fault]:
    """Every plane has equally many ports of a server, and of a NIC with several."""
    divides = planes % nic_ports == 0 or nic_ports % planes == 0
    if divides and gpus_per_host * nic_ports % planes == 0:
        return []
    reason = (
        f"{planes} planes do not divide the {gpus_per_host * nic_ports} ports of a server"
        f" (gpus_per_host: {gpus_per_host} NICs of nic_ports: {nic_ports})"
    )
    fitting = [
        count
        for count in range(1, MOST_NIC_PORTS + 1)
        if gpus_per_host * nic_ports % count == 0 and (count % nic_ports == 0 or nic_ports % count == 0)
    ]
    return [Fault(("planes",), reason, " or ".join(str(count) for count in fitting))]
