"""The front-end network: a NIC of the hosts' own, two tiers of switches, and storage servers behind them.

It stands beside the fabric of the GPUs, and shares nothing with it but the hosts. It is added to a finished
fabric, whatever drew it: its nodes go before the controller and its links after all others, so that no
device, link or port of the back end changes its number (addresses do: prefixes are counted through both).

Every host gets a NIC `fnic-<h>` on the rack switch (`rsw-<r>`) of its `hosts_per_rsw` neighbours. Storage
servers `store-<s>` have a NIC `fnic-store-<s>` each, on rack switches of their own (`rsw-store-<r>`);
metadata servers `meta-<m>` stand behind them. Every rack switch is joined to every fabric switch (`fsw-<f>`),
at a rate that keeps `oversubscription`.

Source: Meta, RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), section 3.1: a
front-end network of RSW, FSW and up for ingest, checkpoints and logs, apart from the back end of RoCEv2.
Counts are ours.

Not modelled: tiers above the FSW, racks shared with other services.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from actors.fabric.model import (
    FABRIC,
    HOST,
    MOST_DEVICES,
    MOST_LINKS,
    MOST_PORTS,
    Fault,
    Link,
    LinkKind,
    Node,
    Role,
    Topology,
    TopologyError,
)
from emu.topology.generators.builder import check_uplink, uplink_bps

FRONT_END: Final = "frontend"
STORAGE: Final = "storage"
"""What the hosts of storage servers are called (`Node.model`)."""
METADATA: Final = "metadata"
"""What the hosts of metadata servers are called (`Node.model`)."""


def front_end_nic(topology: Topology, host: int) -> int:
    """The NIC of a host (its node number) on the front-end network."""
    server = topology.server(topology.nodes[host].host)
    return next(
        one
        for one in server
        if topology.nodes[one].role is Role.NIC and topology.nodes[one].network == FRONT_END
    )


def storage_hosts(topology: Topology) -> tuple[int, ...]:
    """The hosts of the storage servers, in order."""
    return tuple(host for host in topology.hosts if topology.nodes[host].model == STORAGE)


def metadata_hosts(topology: Topology) -> tuple[int, ...]:
    """The hosts of the metadata servers, in order."""
    return tuple(host for host in topology.hosts if topology.nodes[host].model == METADATA)


class _Growing:
    """A finished fabric that nodes and links are added to."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.nodes = list(topology.nodes[:-1])
        self.links = list(topology.links)
        self._taken = {node.name for node in topology.nodes}
        self._ports: dict[int, int] = {}

    def node(self, name: str, role: Role, model: str, tier: int, rack: int, host: int, position: int) -> int:
        if name in self._taken:
            reason = f"{name} is what a device of the front-end network is called"
            raise TopologyError([Fault((), reason, "another name in `topology`")])
        if len(self.nodes) >= MOST_DEVICES:
            raise TopologyError([Fault((), f"there are more than {MOST_DEVICES} devices", "fewer servers")])
        self._taken.add(name)
        number = len(self.nodes)
        self.nodes.append(Node(number, name, role, model, tier, FRONT_END, rack, host, position))
        return number

    def link(self, a: int, b: int, kind: LinkKind, rate_bps: int, delay_ps: int) -> None:
        if len(self.links) >= MOST_LINKS:
            raise TopologyError([Fault((), f"there are more than {MOST_LINKS} links", "fewer servers")])
        name = f"{self.nodes[a].name}:{self.nodes[b].name}"
        ends = a, self._port(a), b, self._port(b)
        self.links.append(Link(len(self.links), name, *ends, kind, rate_bps, delay_ps, FRONT_END))

    def _port(self, node: int) -> int:
        first = len(self.topology.ports(node)) if node < len(self.topology.nodes) - 1 else 0
        port = self._ports.get(node, first)
        if port >= MOST_PORTS:
            reason = f"{self.nodes[node].name} needs more than {MOST_PORTS} ports"
            raise TopologyError([Fault((), reason, "fewer hosts on a switch")])
        self._ports[node] = port + 1
        return port


def with_front_end(
    topology: Topology,
    *,
    hosts_per_rsw: int,
    fsws: int,
    oversubscription: Fraction,
    link_bps: int,
    nic_delay_ps: int,
    fsw_delay_ps: int,
    storage_servers: int,
    metadata_servers: int,
    storage_link_bps: int,
    host_link_rate_bps: int,
    nic_link_delay_ps: int,
) -> Topology:
    """The fabric with a front-end network. Raises TopologyError, its paths in the keys of `frontend`."""
    made = _Growing(topology)
    nodes = topology.nodes
    groups: list[tuple[str, int, list[tuple[int, int]]]] = []
    """Rack switches: name, rate of their NICs, and (host, NIC) below."""
    clients = [(host, _host_nic(made, nodes[host])) for host in topology.hosts]
    stores = [
        _server(made, len(clients) + number, *named)
        for number, named in enumerate(
            [(f"store-{number}", STORAGE) for number in range(storage_servers)]
            + [(f"meta-{number}", METADATA) for number in range(metadata_servers)]
        )
    ]
    for label, servers, rate_bps in (("", clients, link_bps), ("store-", stores, storage_link_bps)):
        for rack, first in enumerate(range(0, len(servers), hosts_per_rsw)):
            groups.append((f"rsw-{label}{rack}", rate_bps, servers[first : first + hosts_per_rsw]))
    above = fsws if len(groups) > 1 else 0
    leaves = sum(1 for node in nodes if node.tier == 1)
    rsws = [
        made.node(name, Role.SWITCH, "rsw", 1, -1, -1, leaves + place)
        for place, (name, _, _) in enumerate(groups)
    ]
    spines = sum(1 for node in nodes if node.tier == 2)
    tops = [
        made.node(f"fsw-{place}", Role.SWITCH, "fsw", 2, -1, -1, spines + place) for place in range(above)
    ]
    for rsw, (_, rate_bps, servers) in zip(rsws, groups, strict=True):
        for _, nic in servers:
            made.link(nic, rsw, FABRIC, rate_bps, nic_delay_ps)
    for rsw, (_, rate_bps, servers) in zip(rsws, groups, strict=True):
        up_bps = uplink_bps(len(servers) * rate_bps, oversubscription, above)
        if above and (faults := check_uplink("oversubscription", up_bps)):
            raise TopologyError(faults)
        for top in tops:
            made.link(rsw, top, FABRIC, up_bps, fsw_delay_ps)
    for _, _, servers in groups:
        for host, nic in servers:
            made.link(host, nic, HOST, host_link_rate_bps, nic_link_delay_ps)
    return Topology([*made.nodes, nodes[-1]._replace(number=len(made.nodes))], made.links, topology.kind)


def _host_nic(made: _Growing, host: Node) -> int:
    """The front-end NIC of a host, behind its others."""
    server = made.topology.server(host.host)
    position = sum(1 for one in server if made.topology.nodes[one].role is Role.NIC)
    name = f"fnic-{host.name.removeprefix('host-')}"
    return made.node(name, Role.NIC, "nic", 0, host.rack, host.host, position)


def _server(made: _Growing, index: int, name: str, model: str) -> tuple[int, int]:
    """A server of storage or metadata: its host and its NIC."""
    host = made.node(name, Role.HOST, model, -1, -1, index, 0)
    return host, made.node(f"fnic-{name}", Role.NIC, "nic", 0, -1, index, 0)
