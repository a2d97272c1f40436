"""The 24K-GPU RoCE cluster that trained Llama 3.

Three tiers. A rack holds 2 servers of 8 GPUs under one leaf (RTSW). 192 racks make a pod of 3,072 GPUs: every
RTSW is joined to every spine of its pod (CTSW) at full bisection. 8 pods, 24,576 GPUs, meet in an aggregation
layer (ATSW) that is oversubscribed 1:7, seven times as much below a CTSW as above it: every CTSW is joined to
every ATSW.

Names: `rtsw-<rack>` with racks counted through all pods, `ctsw-<pod>-<s>`, `atsw-<a>`. Node numbers: servers,
RTSW, CTSW pod by pod, ATSW.

Source: The Llama 3 Herd of Models, section 3.3.1: racks, pods, tiers and ratios. It does not say how many
CTSW and ATSW there are: 16 CTSW of 192 ports towards the racks follow from full bisection with one 400G link
each; 192 / 7 = 27.4 links upwards make 28 ATSW (derived). So that the ratio is exactly 7, those links
run at 391.8G and not 400G. With a single pod there is no ATSW.

Not modelled: striping of CTSW over ATSW, the modular inside of a CTSW.
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
    check_uplink,
    mesh,
    uplink_bps,
)


def llama3(
    *,
    pods: int = 8,
    racks_per_pod: int = 192,
    hosts_per_rack: int = 2,
    gpus_per_host: int = 8,
    ctsws_per_pod: int = 16,
    links_per_rtsw_ctsw: int = 1,
    atsws: int = 28,
    links_per_ctsw_atsw: int = 1,
    rtsw_oversubscription: Fraction = Fraction(1),
    ctsw_oversubscription: Fraction = Fraction(7),
    ctsw_delay_ps: int,
    atsw_delay_ps: int,
    **given: int,
) -> Topology:
    """The cluster, or a smaller one of the same ratios. TopologyError names what cannot be built."""
    cables = Cables(**given)
    counts = {
        "pods": pods,
        "racks_per_pod": racks_per_pod,
        "hosts_per_rack": hosts_per_rack,
        "gpus_per_host": gpus_per_host,
        "links_per_rtsw_ctsw": links_per_rtsw_ctsw,
        "links_per_ctsw_atsw": links_per_ctsw_atsw,
    }
    faults = check_counts(1, counts)
    faults += check_counts(0 if pods * racks_per_pod == 1 else 1, {"ctsws_per_pod": ctsws_per_pod})
    faults += check_counts(0 if pods == 1 else 1, {"atsws": atsws})
    rack_bps = hosts_per_rack * gpus_per_host * cables.link_bps
    spine_bps = uplink_bps(rack_bps, rtsw_oversubscription, ctsws_per_pod * links_per_rtsw_ctsw)
    below_ctsw_bps = racks_per_pod * links_per_rtsw_ctsw * spine_bps
    agg_bps = uplink_bps(below_ctsw_bps, ctsw_oversubscription, atsws * links_per_ctsw_atsw)
    faults += cables.faults({"ctsw_delay": ctsw_delay_ps, "atsw_delay": atsw_delay_ps})
    if not faults:
        faults += check_uplink("rtsw_oversubscription", spine_bps)
        faults += check_uplink("ctsw_oversubscription", agg_bps)
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    racks = pods * racks_per_pod
    servers = add_servers(fabric, racks * hosts_per_rack, gpus_per_host, hosts_per_rack)
    rtsws = [fabric.switch(f"rtsw-{rack}", "rtsw", 1, rack) for rack in range(racks)]
    ctsws = [
        [fabric.switch(f"ctsw-{pod}-{place}", "ctsw", 2) for place in range(ctsws_per_pod)]
        for pod in range(pods)
    ]
    tops = [fabric.switch(f"atsw-{place}", "atsw", 3) for place in range(atsws if pods > 1 else 0)]
    for index, server in enumerate(servers):
        for nic in server.nics:
            fabric.link(nic, rtsws[index // hosts_per_rack], cables.link_bps, cables.nic_delay_ps)
    for pod, spines in enumerate(ctsws):
        in_pod = rtsws[pod * racks_per_pod : (pod + 1) * racks_per_pod]
        mesh(fabric, in_pod, spines, spine_bps, ctsw_delay_ps, links_per_rtsw_ctsw)
    for spines in ctsws:
        mesh(fabric, spines, tops, agg_bps, atsw_delay_ps, links_per_ctsw_atsw)
    add_host_links(fabric, servers, cables)
    return fabric.finish("llama3")
