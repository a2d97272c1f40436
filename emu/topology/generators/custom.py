"""What fabric does a list of nodes and links describe?

For fabrics that no generator draws: two servers and a switch, a ring of switches, a fabric somebody really
has. The user names GPUs, hosts, NICs and switches, and every cable between a NIC and a switch, or between
two switches (or two NICs: a wire). A GPU or NIC names its host, and the host link follows; nobody writes it
down.

Rules.

* Nodes are numbered, and ports are, in the order of the file: a port's number is its place among the links
  of its node. Host links follow the cables. Servers count in the order of their hosts, GPUs and NICs of a
  server in the order of the file.
* A switch's tier is its distance from the nearest NIC (1 at the NICs) unless given; its rack is its place
  among the switches of tier 1. A server stands in the rack of the first switch of its first NIC unless
  given.
* Every fault is reported at once, with its place in the file: unknown or doubled names, an end that takes
  no cable, a link from a device to itself, a rate of zero, a delay below 1 ns, a NIC or GPU without a host,
  a NIC without a cable, a GPU whose server has no NIC, a device that nothing connects to the rest.

Not modelled: networks other than the back-end in a spelled-out graph; NICs of different kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.fabric.model import Role, Topology, TopologyError
from emu.topology.generators.builder import Assembly, check_links
from emu.topology.generators.custom_check import LinkPlan, NodePlan, check_graph, distances

MODELS: Final = {1: "rtsw", 2: "ctsw", 3: "atsw"}
"""What a switch of a tier is called; `switch` above."""


def graph(
    *,
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    host_link_rate_bps: int,
    host_link_delay_ps: int,
) -> Topology:
    """The fabric spelled out. TopologyError names every fault by its place in `nodes` and `links`."""
    faults = check_links({"host_link_rate": host_link_rate_bps}, {"host_link_delay": host_link_delay_ps})
    known, found = check_graph(nodes, links)
    faults += found
    if faults:
        raise TopologyError(faults)
    return _assembled(nodes, links, known, host_link_rate_bps, host_link_delay_ps)


def _assembled(
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    known: dict[str, int],
    host_link_rate_bps: int,
    host_link_delay_ps: int,
) -> Topology:
    tiers = _tiers(nodes, links, known)
    racks = _racks(nodes, links, known, tiers)
    servers = {node.name: number for number, node in enumerate(n for n in nodes if n.role == Role.HOST)}
    seen: dict[tuple[str, str], int] = {}
    fabric = Assembly()
    for index, node in enumerate(nodes):
        name = node.name
        if node.role == Role.SWITCH:
            fabric.switch(name, MODELS.get(tiers[index], "switch"), tiers[index], racks[index])
        elif node.role == Role.HOST:
            fabric.host(name, racks[index])
        else:
            assert node.host is not None, f"{name} has no host"
            position = seen.get((node.host, node.role), 0)
            seen[node.host, node.role] = position + 1
            fabric.add(
                name,
                Role(node.role),
                node.role,
                tiers[index],
                rack=racks[known[node.host]],
                host=servers[node.host],
                position=position,
            )
    for link in links:
        a, b = known[link.a], known[link.b]
        lower, upper = (b, a) if tiers[b] < tiers[a] else (a, b)
        fabric.link(lower, upper, link.rate_bps, link.delay_ps)
    inside: dict[str, list[int]] = {name: [] for name in servers}
    for role in (Role.GPU, Role.NIC):
        for index, node in enumerate(nodes):
            if node.role == role and node.host is not None:
                inside[node.host].append(index)
    for name, devices in inside.items():
        for device in devices:
            fabric.host_link(known[name], device, host_link_rate_bps, host_link_delay_ps)
    return fabric.finish("graph")


def _tiers(nodes: Sequence[NodePlan], links: Sequence[LinkPlan], known: dict[str, int]) -> list[int]:
    """0 for NICs, distance from the NICs for switches, -1 for the rest."""
    neighbours: list[list[int]] = [[] for _ in nodes]
    for link in links:
        neighbours[known[link.a]].append(known[link.b])
        neighbours[known[link.b]].append(known[link.a])
    far = distances(neighbours, [index for index, node in enumerate(nodes) if node.role == Role.NIC])
    return [
        node.tier if node.role == Role.SWITCH and node.tier is not None else far[index]
        for index, node in enumerate(nodes)
    ]


def _racks(
    nodes: Sequence[NodePlan], links: Sequence[LinkPlan], known: dict[str, int], tiers: Sequence[int]
) -> list[int]:
    """For hosts and switches as given, else by the switches of tier 1; -1 for all others."""
    racks = [-1 if node.rack is None else node.rack for node in nodes]
    leaves = [index for index, node in enumerate(nodes) if node.role == Role.SWITCH and tiers[index] == 1]
    for place, leaf in enumerate(leaves):
        if nodes[leaf].rack is None:
            racks[leaf] = place
    first_switch: dict[str, int] = {}
    for link in links:
        for nic, switch in ((link.a, link.b), (link.b, link.a)):
            if nodes[known[nic]].role == Role.NIC and nodes[known[switch]].role == Role.SWITCH:
                first_switch.setdefault(nic, known[switch])
    for node in nodes:
        if node.role == Role.NIC and node.host is not None and node.name in first_switch:
            host = known[node.host]
            if racks[host] < 0:
                racks[host] = racks[first_switch[node.name]]
    return racks
