"""A fabric spelled out as a list of nodes and links, checked and built.

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
  a NIC without a cable, a GPU whose server has no NIC. Only when each device is sound does the check ask
  whether they hang together: one wrong name would otherwise be reported twice.

Not modelled: networks other than the back-end in a spelled-out graph; NICs of different kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from actors.fabric.model import LEAST_DELAY_PS, Fault, Role, Topology, TopologyError, nearest
from emu.topology.generators.builder import Assembly, check_links, delay_fault, rate_fault

MODELS: Final = {1: "rtsw", 2: "ctsw", 3: "atsw"}
"""What a switch of a tier is called; `switch` above."""


def graph(
    *,
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    host_link_rate_bps: int,
    host_link_delay_ps: int,
    nic_link_delay_ps: int,
) -> Topology:
    """The fabric spelled out. TopologyError names every fault by its place in `nodes` and `links`."""
    faults = check_links(
        {"host_link_rate": host_link_rate_bps},
        {"host_link_delay": host_link_delay_ps, "nic_link_delay": nic_link_delay_ps},
    )
    known, found = check_graph(nodes, links)
    faults += found
    if faults:
        raise TopologyError(faults)
    return _assembled(nodes, links, known, host_link_rate_bps, host_link_delay_ps, nic_link_delay_ps)


def _assembled(
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    known: dict[str, int],
    host_link_rate_bps: int,
    host_link_delay_ps: int,
    nic_link_delay_ps: int,
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
    # GPUs before NICs, server after server, as generated fabrics have them: ports are numbered by the order
    # of links, and events of one time are ordered by port.
    inside: dict[str, list[int]] = {name: [] for name in servers}
    for role in (Role.GPU, Role.NIC):
        for index, node in enumerate(nodes):
            if node.role == role and node.host is not None:
                inside[node.host].append(index)
    for name, devices in inside.items():
        for device in devices:
            delay_ps = nic_link_delay_ps if nodes[device].role == "nic" else host_link_delay_ps
            fabric.host_link(known[name], device, host_link_rate_bps, delay_ps)
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


class NodePlan(Protocol):
    """A node as the user wrote it."""

    @property
    def name(self) -> str:
        """Its name, one of a kind."""

    @property
    def role(self) -> str:
        """`gpu`, `host`, `nic` or `switch`."""

    @property
    def host(self) -> str | None:
        """For GPUs and NICs, the name of their host."""

    @property
    def tier(self) -> int | None:
        """For switches, the tier; None to take the distance from the NICs."""

    @property
    def rack(self) -> int | None:
        """For hosts and switches, the rack; None to go by the leaf."""


class LinkPlan(Protocol):
    """A cable as the user wrote it, with the names of its ends."""

    @property
    def a(self) -> str:
        """The name of one end."""

    @property
    def b(self) -> str:
        """The name of the other end."""

    @property
    def rate_bps(self) -> int:
        """Rate, the same both ways."""

    @property
    def delay_ps(self) -> int:
        """Propagation, the same both ways."""


def check_graph(nodes: Sequence[NodePlan], links: Sequence[LinkPlan]) -> tuple[dict[str, int], list[Fault]]:
    """The index of each node by name, and every fault by its place in `nodes` and `links`."""
    known: dict[str, int] = {}
    faults: list[Fault] = []
    for index, node in enumerate(nodes):
        if node.name in known or node.name == "controller":
            reason = f"a second device named {node.name!r}"
            faults.append(Fault(("nodes", index, "name"), reason, "a name that is not taken"))
        known.setdefault(node.name, index)
    faults += _server_faults(nodes, known)
    for index, link in enumerate(links):
        faults += _link_faults(index, link, nodes, known)
    return known, faults or _loose_ends(nodes, links, known)


def _server_faults(nodes: Sequence[NodePlan], known: dict[str, int]) -> list[Fault]:
    """GPUs and NICs need a host that is one; a GPU needs a NIC beside it."""
    faults: list[Fault] = []
    hosts = [node.name for node in nodes if node.role == Role.HOST]
    with_nics = {node.host for node in nodes if node.role == Role.NIC}
    for index, node in enumerate(nodes):
        if node.role not in {Role.GPU, Role.NIC}:
            continue
        if node.host is None:
            reason = f"{node.role} {node.name!r} belongs to no host"
            faults.append(Fault(("nodes", index), reason, "host: the name of a host"))
        elif node.host not in known:
            reason = f"no host is named {node.host!r}"
            faults.append(Fault(("nodes", index, "host"), reason, nearest(node.host, hosts)))
        elif nodes[known[node.host]].role != Role.HOST:
            reason = f"{node.host!r} is a {nodes[known[node.host]].role}, not a host"
            faults.append(Fault(("nodes", index, "host"), reason, "the name of a host"))
        elif node.role == Role.GPU and node.host not in with_nics:
            reason = f"gpu {node.name!r} has no NIC to send through: {node.host!r} has none"
            faults.append(Fault(("nodes", index), reason, f"a node of role nic with host: {node.host}"))
    return faults


def _link_faults(index: int, link: LinkPlan, nodes: Sequence[NodePlan], known: dict[str, int]) -> list[Fault]:
    """What is wrong with one cable taken alone."""
    faults: list[Fault] = []
    for key, name in (("a", link.a), ("b", link.b)):
        if name not in known:
            reason = f"no device is named {name!r}"
            faults.append(Fault(("links", index, key), reason, nearest(name, known)))
        elif nodes[known[name]].role not in {Role.NIC, Role.SWITCH}:
            reason = f"{name!r} is a {nodes[known[name]].role}: a cable joins switches and NICs"
            accepted = "a switch or a NIC (GPUs and NICs are joined to their host by naming it)"
            faults.append(Fault(("links", index, key), reason, accepted))
    if link.a == link.b:
        faults.append(Fault(("links", index), f"a link from {link.a!r} to itself", "two different devices"))
    if link.rate_bps <= 0:
        faults.append(rate_fault(("links", index, "rate"), link.rate_bps))
    if link.delay_ps < LEAST_DELAY_PS:
        faults.append(delay_fault(("links", index, "delay"), link.delay_ps))
    return faults


def _loose_ends(nodes: Sequence[NodePlan], links: Sequence[LinkPlan], known: dict[str, int]) -> list[Fault]:
    """Devices without what joins them to the rest."""
    neighbours: list[list[int]] = [[] for _ in nodes]
    cabled = [False] * len(nodes)
    pairs = [(known[link.a], known[link.b]) for link in links]
    for a, b in pairs:
        cabled[a] = cabled[b] = True
    pairs += [(known[node.host], index) for index, node in enumerate(nodes) if node.host is not None]
    for a, b in pairs:
        neighbours[a].append(b)
        neighbours[b].append(a)
    faults = [
        Fault(("nodes", index), f"{node.role} {node.name!r} hangs on no link", "a link to it under links")
        for index, node in enumerate(nodes)
        if node.role in {Role.NIC, Role.SWITCH} and not cabled[index]
    ]
    faults += [
        Fault(("nodes", index), f"host {node.name!r} has no NIC", "a node of role nic that names it as host")
        for index, node in enumerate(nodes)
        if node.role == Role.HOST and not neighbours[index]
    ]
    if not faults and not any(node.role == Role.NIC for node in nodes):
        faults.append(Fault(("nodes",), "a fabric without a NIC carries nothing", "a node of role nic"))
    if not faults:
        apart = next((index for index, far in enumerate(distances(neighbours, [0])) if far < 0), None)
        if apart is not None:
            reason = f"the fabric is not connected: no path from {nodes[0].name!r} to {nodes[apart].name!r}"
            faults.append(Fault(("links",), reason, "links that join all devices"))
    return faults


def distances(neighbours: Sequence[Sequence[int]], starts: Sequence[int]) -> list[int]:
    """Hops to the nearest start; -1 where there is no path."""
    far = [-1] * len(neighbours)
    for start in starts:
        far[start] = 0
    edge = list(starts)
    while edge:
        beyond: list[int] = []
        for index in edge:
            for other in neighbours[index]:
                if far[other] < 0:
                    far[other] = far[index] + 1
                    beyond.append(other)
        edge = beyond
    return far
