"""What is wrong with a list of nodes and links?

Everything is looked for before anything is built, so that one run of `emu validate` shows it all: unknown
or doubled names, an end that takes no cable, a link from a device to itself, a rate of zero, a delay below
1 ns, a NIC or GPU without a host, a NIC without a cable, a GPU whose server has no NIC. Whether the devices
hang together is asked only once each of them is sound, for otherwise one wrong name would be reported
twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from actors.fabric.model import LEAST_DELAY_PS, Fault, Role, nearest
from emu.topology.generators.builder import delay_fault, rate_fault


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
