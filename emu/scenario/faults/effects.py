"""What does each kind of fault change, on which devices?

Small functions from a spot of the fabric to changes of devices, from which the kinds in
`emu.scenario.faults.table` are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actors.fabric.model import Role, Topology
from actors.wire.fault import GPU_GONE, HOLD, LOST, RESET, SLOW
from emu.scenario.faults.events import Change
from emu.scenario.faults.targets import fabric_ports


def held(topology: Topology, links: Iterable[int]) -> list[Change]:
    """Both ends of each link lose their signal."""
    found: list[Change] = []
    for number in links:
        link = topology.links[number]
        found += [Change(int(HOLD), link.a, link.a_port), Change(int(HOLD), link.b, link.b_port)]
    return found


def links_at(topology: Topology, node: int, ports: Iterable[int] | None = None) -> tuple[int, ...]:
    """The links behind ports of a device; by default all its links on the fabric."""
    numbers = fabric_ports(topology, node) if ports is None else ports
    return tuple(topology.ports(node)[port].link for port in numbers)


def at_ports(op: int, node: int, ports: Iterable[int], values: tuple[int, int, int]) -> list[Change]:
    """The same at several ports of a device."""
    return [Change(int(op), node, port, values) for port in ports]


def at_senders(
    op: int, topology: Topology, links: Iterable[int], sender: str | None, values: tuple[int, int, int]
) -> list[Change]:
    """The same at the sending ends of links: both, or the one that is named."""
    return [Change(int(op), node, port, values) for node, port in _ends(topology, links, sender)]


def at_receivers(
    op: int, topology: Topology, links: Iterable[int], sender: str | None, values: tuple[int, int, int]
) -> list[Change]:
    """The same at the receiving ends of links, seen from the sender."""
    found: list[Change] = []
    for node, port in _ends(topology, links, sender):
        end = topology.ports(node)[port]
        found.append(Change(int(op), end.peer, end.peer_port, values))
    return found


def _ends(topology: Topology, links: Iterable[int], sender: str | None) -> Iterator[tuple[int, int]]:
    for number in links:
        link = topology.links[number]
        for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
            if sender is None or topology.nodes[node].name == sender:
                yield node, port


def members(topology: Topology, host: int, role: Role) -> list[int]:
    """The GPUs or NICs of a server."""
    return [node for node in topology.server(topology.nodes[host].host) if topology.nodes[node].role is role]


def lost_host(topology: Topology, host: int) -> tuple[list[Change], tuple[int, ...]]:
    """A server is gone: what it ran, its GPUs, its queue pairs, and the links of its NICs, which are told."""
    nics = members(topology, host, Role.NIC)
    links = tuple(link for nic in nics for link in links_at(topology, nic))
    changes = [Change(int(LOST), host, 0)]
    changes += [Change(int(LOST), gpu, 0) for gpu in members(topology, host, Role.GPU)]
    changes += [Change(int(RESET), nic, 0) for nic in nics]
    return changes + held(topology, links), links


def lost_gpu(topology: Topology, gpu: int) -> list[Change]:
    """A GPU is gone, and its host sees it."""
    host = topology.host_of(gpu)
    port = next(at for at, end in enumerate(topology.ports(host)) if end.peer == gpu)
    return [Change(int(LOST), gpu, 0), Change(int(GPU_GONE), host, port)]


def slow_host(topology: Topology, host: int, thousandths: int) -> list[Change]:
    """The GPUs of a server, and its proxies, take longer."""
    gpus = members(topology, host, Role.GPU)
    return [Change(int(SLOW), node, 0, (thousandths, 0, 0)) for node in (host, *gpus)]
