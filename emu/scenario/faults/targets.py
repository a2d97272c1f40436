"""The targets of faults: names, patterns and roles, and what they mean on a fabric.

    rtsw-0:ctsw-3          a link by its ends; parallel links together, or one as rtsw-0:ctsw-3/1
    rtsw-*:ctsw-0          every link whose name fits the pattern; rtsw-* every device
    rtsw:ctsw              every link between two roles; rtsw every device of the role
    2% of rtsw:ctsw        that share of these, spread evenly over them in their order, at least one
    any rtsw:ctsw          one of these, drawn from the seed each time the fault occurs
    busiest rtsw:ctsw      the one of these that has sent most of late, found when the fault occurs
    busiest uplink         of the links between switches, by what is sent upwards (downlink: downwards)
    rtsw-0/3, rtsw-0>ctsw-3  a port, by number or by the device at its other end; a NIC's name: all its ports

A role is what the field calls a device: `rtsw`, `ctsw`, `nic`, `gpu`, `host`; `switch` is any of the
switches.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from actors.fabric.model import FABRIC, Fault, Node, Role, Topology, TopologyError, nearest

TargetKind = Literal["link", "switch", "nic", "gpu", "host", "port"]
ANY: Final = "any "
BUSIEST: Final = "busiest "
UPLINK: Final = "uplink"
DOWNLINK: Final = "downlink"
_SHARE: Final = r"([0-9]+(?:\.[0-9]+)?)\s*% of (.+)"
_ROLES: Final = {"switch": Role.SWITCH, "nic": Role.NIC, "gpu": Role.GPU, "host": Role.HOST}


class Spot(NamedTuple):
    """One thing that a fault hits: links, a device, or ports of a device."""

    name: str
    links: tuple[int, ...] = ()
    node: int = -1
    ports: tuple[int, ...] = ()


def is_any(target: str) -> bool:
    """Whether the target is one of several, drawn anew each time."""
    return target.startswith(ANY)


def is_measured(target: str) -> bool:
    """Whether the target is found by measurement, each time the fault occurs."""
    return target.startswith(BUSIEST)


class Candidate(NamedTuple):
    """What a fault may hit, and the ports of one device whose bytes say how busy it is."""

    spot: Spot
    node: int
    ports: tuple[int, ...]


def candidates(target: str, target_kind: TargetKind, topology: Topology) -> list[Candidate]:
    """What `busiest ...` may turn out to be: a link once for each direction that counts, a port, a device.

    Raises TopologyError.
    """
    text = target.removeprefix(BUSIEST).strip()
    if text in (UPLINK, DOWNLINK):
        return list(_tiers(text, target_kind, topology))
    spots = spots_of(text, target_kind, topology)
    if target_kind == "link":
        return [
            Candidate(spot, end, (port,))
            for spot in spots
            for number in spot.links
            for end, port in _ends(topology, number)
        ]
    if target_kind == "port":
        return [
            Candidate(
                Spot(f"{topology.nodes[spot.node].name}/{port}", (), spot.node, (port,)), spot.node, (port,)
            )
            for spot in spots
            for port in spot.ports
        ]
    if target_kind not in ("switch", "nic"):
        raise TopologyError(
            [Fault((), f"a {target_kind} sends nothing by itself", "links, ports, switches or NICs")]
        )
    return [Candidate(spot, spot.node, fabric_ports(topology, spot.node)) for spot in spots]


def _ends(topology: Topology, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    link = topology.links[number]
    return (link.a, link.a_port), (link.b, link.b_port)


def _tiers(text: str, target_kind: TargetKind, topology: Topology) -> Iterator[Candidate]:
    if target_kind not in ("link", "port"):
        raise TopologyError(
            [Fault((), f"{text} is a link, and a {target_kind} is asked for", f"a {target_kind}")]
        )
    found = False
    for link in topology.links:
        if link.kind != FABRIC or {topology.nodes[link.a].role, topology.nodes[link.b].role} != {Role.SWITCH}:
            continue
        low, high = sorted(_ends(topology, link.number), key=lambda end: topology.nodes[end[0]].tier)
        if topology.nodes[low[0]].tier == topology.nodes[high[0]].tier:
            continue
        found = True
        node, port = low if text == UPLINK else high
        named = Spot(f"{topology.nodes[node].name}/{port}", (), node, (port,))
        yield Candidate(Spot(link.name, (link.number,)) if target_kind == "link" else named, node, (port,))
    if not found:
        raise TopologyError([Fault((), f"the fabric has no {text}", "a link, a pattern or a role")])


def spots_of(target: str, target_kind: TargetKind, topology: Topology) -> tuple[Spot, ...]:
    """Everything that a target means, in the order of the fabric's numbers. Raises TopologyError."""
    if is_measured(target):
        return tuple(dict.fromkeys(one.spot for one in candidates(target, target_kind, topology)))
    text = target.removeprefix(ANY).strip()
    shared = _share(text)
    if shared is not None:
        return tuple(_spread(list(spots_of(shared[1], target_kind, topology)), shared[0]))
    if target_kind == "link":
        found = _links(text, topology)
    elif target_kind == "port":
        found = _ports(text, topology)
    else:
        found = [Spot(node.name, (), node.number) for node in _nodes(text, topology, _ROLES[target_kind])]
    return tuple(found)


def _share(text: str) -> tuple[Fraction, str] | None:
    """The share in `2% of rtsw:ctsw`, and the rest; None where there is none. Raises TopologyError."""
    found = re.fullmatch(_SHARE, text)
    if found is None:
        return None
    share = Fraction(found[1]) / 100
    if not 0 < share <= 1:
        raise TopologyError([Fault((), f"{found[1]}% is no share", "above 0% to 100%, like 2% of rtsw:ctsw")])
    return share, found[2].strip()


def _spread(spots: list[Spot], share: Fraction) -> list[Spot]:
    """A share of them, spread evenly, at least one."""
    count = max(round(len(spots) * share), 1)
    return [spots[(2 * at + 1) * len(spots) // (2 * count)] for at in range(min(count, len(spots)))]


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _links(text: str, topology: Topology) -> list[Spot]:
    fabric = [link for link in topology.links if link.kind == FABRIC]
    one, _, other = text.partition(":")
    if _is_pattern(text):
        swapped = f"{other}:{one}"
        chosen = [link for link in fabric if fnmatchcase(link.name, text) or fnmatchcase(link.name, swapped)]
    elif _is_role(one, topology) and _is_role(other, topology):
        chosen = [
            link
            for link in fabric
            if (_has_role(topology.nodes[link.a], one) and _has_role(topology.nodes[link.b], other))
            or (_has_role(topology.nodes[link.a], other) and _has_role(topology.nodes[link.b], one))
        ]
    else:
        numbers = topology.links_named(text)
        if any(topology.links[number].kind != FABRIC for number in numbers):
            raise TopologyError([Fault((), f"{text!r} is inside a server", "a link of the fabric")])
        return [Spot(text, numbers)]
    if not chosen:
        raise TopologyError(
            [Fault((), f"no link of the fabric is like {text!r}", "a link, a pattern or a role")]
        )
    return [Spot(link.name, (link.number,)) for link in chosen]


def _nodes(text: str, topology: Topology, role: Role) -> list[Node]:
    if _is_pattern(text):
        chosen = [node for node in topology.nodes if node.role is role and fnmatchcase(node.name, text)]
    elif _is_role(text, topology):
        chosen = [node for node in topology.nodes if node.role is role and _has_role(node, text)]
    else:
        node = topology.node_named(text)
        if node.role is not role:
            raise TopologyError([Fault((), f"{text} is a {node.role.value}", f"a {role.value}")])
        return [node]
    if not chosen:
        raise TopologyError([Fault((), f"no {role.value} is like {text!r}", f"a {role.value}")])
    return chosen


def _is_role(text: str, topology: Topology) -> bool:
    if any(node.name == text for node in topology.nodes):
        return False
    return text in _ROLES or any(node.model == text for node in topology.nodes)


def _has_role(node: Node, role: str) -> bool:
    return node.model == role or node.role is _ROLES.get(role)


def _ports(text: str, topology: Topology) -> list[Spot]:
    return list(_port_spots(text, topology))


def _port_spots(text: str, topology: Topology) -> Iterator[Spot]:
    name, arrow, peer = text.partition(">")
    if arrow:
        node = topology.node_named(name)
        other = topology.node_named(peer)
        numbers = [at for at, end in enumerate(topology.ports(node.number)) if end.peer == other.number]
        if not numbers or topology.ports(node.number)[numbers[0]].kind != FABRIC:
            raise TopologyError([Fault((), f"{name} has no link to {peer}", f"a neighbour of {name}")])
        yield Spot(text, (), node.number, tuple(numbers))
        return
    name, slash, port = text.rpartition("/")
    if slash:
        node = topology.node_named(name)
        count = len(fabric_ports(topology, node.number))
        if not port.isdecimal() or int(port) >= count:
            raise TopologyError([Fault((), f"{name} has no fabric port {port}", f"0 to {count - 1}")])
        yield Spot(text, (), node.number, (int(port),))
        return
    chosen = [
        node for node in topology.nodes if node.role in (Role.NIC, Role.SWITCH) and fits(node, text, topology)
    ]
    if not chosen:
        hint = nearest(text, [node.name for node in topology.nodes])
        raise TopologyError([Fault((), f"{text!r} is no port", hint or 'a port, like "rtsw-0/3"')])
    for node in chosen:
        yield Spot(node.name, (), node.number, fabric_ports(topology, node.number))


def fits(node: Node, text: str, topology: Topology) -> bool:
    """Whether a device has the name, fits the pattern, or is of the role."""
    return node.name == text or _fits(node, text, topology)


def _fits(node: Node, text: str, topology: Topology) -> bool:
    if _is_pattern(text):
        return fnmatchcase(node.name, text)
    return _is_role(text, topology) and _has_role(node, text)


def fabric_ports(topology: Topology, node: int) -> tuple[int, ...]:
    """The numbers of a device's ports on the fabric."""
    return tuple(at for at, end in enumerate(topology.ports(node)) if end.kind == FABRIC)
