"""From a generator's plan to a checked `Topology`.

An `Assembly` collects nodes and links in the generator's order and gives out numbers, ports and names by
the rules at the top of `actors.fabric.model`. What it checks is what every fabric must satisfy whichever
generator drew it: rates above zero, delays of at least 1 ns, NICs that reach each other. Faults carry a
path into the configuration, so that the scenario can name file and line.

A generator adds all nodes, then fabric links from the NICs upwards, then host links; `finish` appends the
controller.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.fabric.model import (
    FABRIC,
    HOST,
    LEAST_DELAY_PS,
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
from actors.fabric.routing import routes


class Assembly:
    """A fabric in the making."""

    __slots__ = ("_ends", "_hosts", "_in_tier", "_links", "_nodes", "_ports")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._links: list[tuple[int, int, LinkKind, int, int]] = []
        self._ports: list[int] = []
        self._ends: dict[tuple[int, int], int] = {}
        self._in_tier: dict[int, int] = {}
        self._hosts = 0

    def host(self, name: str, rack: int = -1) -> int:
        """A server's host device. Its index is the number of hosts before it."""
        self._hosts += 1
        return self.add(name, Role.HOST, "host", rack=rack, host=self._hosts - 1)

    def gpu(self, name: str, host: int, position: int) -> int:
        """A GPU of the server whose host has this node number."""
        server = self._nodes[host]
        return self.add(name, Role.GPU, "gpu", rack=server.rack, host=server.host, position=position)

    def nic(self, name: str, host: int, position: int, network: str = "backend") -> int:
        """A NIC of the server whose host has this node number."""
        server = self._nodes[host]
        return self.add(name, Role.NIC, "nic", 0, network, server.rack, server.host, position)

    def switch(self, name: str, model: str, tier: int, rack: int = -1, network: str = "backend") -> int:
        """A switch. Its position is the number of switches of its tier before it."""
        assert tier >= 1, f"tier {tier} of {name}: a switch stands above the NICs"
        position = self._in_tier.get(tier, 0)
        self._in_tier[tier] = position + 1
        return self.add(name, Role.SWITCH, model, tier, network, rack, -1, position)

    def add(
        self,
        name: str,
        role: Role,
        model: str,
        tier: int = -1,
        network: str = "backend",
        rack: int = -1,
        host: int = -1,
        position: int = 0,
    ) -> int:
        """A node as given, for generators that know every field; `host` is the server's index."""
        number = len(self._nodes)
        if number == MOST_DEVICES and role is not Role.CONTROLLER:
            raise _too_large(f"the fabric has more than {MOST_DEVICES} devices")
        self._nodes.append(Node(number, name, role, model, tier, network, rack, host, position))
        self._ports.append(0)
        return number

    def link(self, lower: int, upper: int, rate_bps: int, delay_ps: int) -> None:
        """A fabric link; the end of the lower tier first."""
        assert not self._links or self._links[-1][2] == FABRIC, "fabric links come before host links"
        self._join(lower, upper, FABRIC, rate_bps, delay_ps)

    def host_link(self, host: int, device: int, rate_bps: int, delay_ps: int) -> None:
        """The path between a host and its GPU or NIC."""
        self._join(host, device, HOST, rate_bps, delay_ps)

    def finish(self, kind: str, all_reachable: bool = True) -> Topology:
        """The topology, with its controller. TopologyError unless the NICs of a network reach each other.

        `all_reachable=False` admits fabrics that are cut on purpose (rails without a spine).
        """
        self.add("controller", Role.CONTROLLER, "controller", network="frontend")
        topology = Topology(self._nodes, self._numbered(), kind)
        for node, ports in zip(self._nodes, self._ports, strict=True):
            if ports > MOST_PORTS:
                reason = f"{node.name} needs {ports} ports"
                raise TopologyError([Fault((), reason, f"at most {MOST_PORTS} for each device")])
        if all_reachable:
            _check_reachable(topology)
        return topology

    def _join(self, a: int, b: int, kind: LinkKind, rate_bps: int, delay_ps: int) -> None:
        assert a != b, f"a link joins two devices, not {self._nodes[a].name} with itself"
        assert rate_bps > 0, f"rate {rate_bps} of {self._nodes[a].name}:{self._nodes[b].name}"
        assert delay_ps >= LEAST_DELAY_PS, f"delay {delay_ps} of {self._nodes[a].name}:{self._nodes[b].name}"
        if len(self._links) == MOST_LINKS:
            raise _too_large(f"the fabric has more than {MOST_LINKS} links")
        self._links.append((a, b, kind, rate_bps, delay_ps))
        ends = (min(a, b), max(a, b))
        self._ends[ends] = self._ends.get(ends, 0) + 1

    def _numbered(self) -> list[Link]:
        numbered: list[Link] = []
        seen: dict[tuple[int, int], int] = {}
        nodes, ports = self._nodes, self._ports
        for number, (a, b, kind, rate_bps, delay_ps) in enumerate(self._links):
            ends = (min(a, b), max(a, b))
            name = f"{nodes[a].name}:{nodes[b].name}"
            if self._ends[ends] > 1:
                member = seen.get(ends, 0)
                seen[ends] = member + 1
                name = f"{name}/{member}"
            network = nodes[a].network
            numbered.append(Link(number, name, a, ports[a], b, ports[b], kind, rate_bps, delay_ps, network))
            ports[a] += 1
            ports[b] += 1
        return numbered


def check_counts(least: int, counts: Mapping[str, int]) -> list[Fault]:
    """A fault for each count below `least`, keyed by its configuration key."""
    accepted = f"a whole number of at least {least}"
    return [Fault((key,), f"{count} is too few", accepted) for key, count in counts.items() if count < least]


def check_links(rates_bps: Mapping[str, int], delays_ps: Mapping[str, int]) -> list[Fault]:
    """A fault for each rate that is not above zero and each delay below 1 ns, keyed by configuration key."""
    faults = [rate_fault((key,), rate_bps) for key, rate_bps in rates_bps.items() if rate_bps <= 0]
    return faults + [
        delay_fault((key,), delay_ps) for key, delay_ps in delays_ps.items() if delay_ps < LEAST_DELAY_PS
    ]


def rate_fault(path: tuple[str | int, ...], rate_bps: int) -> Fault:
    """The fault of a link that could carry nothing."""
    return Fault(path, f"a link of {rate_bps} bit/s carries nothing", "a rate above zero, such as 400G")


def delay_fault(path: tuple[str | int, ...], delay_ps: int) -> Fault:
    """The fault of a link without a delay: windows between workers are as long as the delays allow."""
    reason = "a link without delay" if delay_ps == 0 else f"a link's delay of {delay_ps} ps"
    return Fault(path, reason, "at least 1ns, such as 500ns (100 m of fibre)")


def _check_reachable(topology: Topology) -> None:
    """Every NIC must reach every other NIC of its network from each of its ports; servers do not forward."""
    if not topology.nics:
        return
    found = routes(topology)
    networks: dict[str, int] = {}
    for prefix in range(topology.prefixes):
        network = topology.nodes[topology.prefix_nics(prefix)[0]].network
        networks[network] = networks.get(network, 0) | 1 << prefix
    for prefix in range(topology.prefixes):
        nic = topology.prefix_nics(prefix)[0]
        wanted = networks[topology.nodes[nic].network]
        around = topology.prefix_switches(prefix)
        if not around and wanted & ~_reached_by_wire(topology, prefix):
            raise _not_connected(topology, nic, wanted & ~_reached_by_wire(topology, prefix), "")
        missing = [wanted & ~found.reached_from(switch) for switch in around]
        for switch, prefixes in zip(around, missing, strict=True):
            if prefixes:
                leaf = "" if all(missing) else topology.nodes[switch].name
                raise _not_connected(topology, nic, prefixes, leaf)


def _reached_by_wire(topology: Topology, prefix: int) -> int:
    """The prefix of NICs that hang on no switch reaches itself where it is two NICs joined by wire."""
    nics = topology.prefix_nics(prefix)
    wired = len(nics) == 2 and any(port.peer == nics[1] for port in topology.ports(nics[0]))
    return 1 << prefix if wired else 0


def _not_connected(topology: Topology, nic: int, missing: int, leaf: str) -> TopologyError:
    """What does not hang together: the fabric, or the plane of the NICs' ports on this leaf."""
    other = topology.prefix_nics((missing & -missing).bit_length() - 1)[-1]
    names = topology.nodes[nic].name, topology.nodes[other].name
    if leaf:
        reason = f"the plane of {leaf} is cut: no path from the port of {names[0]} there to {names[1]}"
        return TopologyError([Fault(("links",), reason, f"links that lead from {leaf} to {names[1]}")])
    reason = f"the fabric is not connected: no path through switches from {names[0]} to {names[1]}"
    return TopologyError([Fault(("links",), reason)])


def _too_large(reason: str) -> TopologyError:
    return TopologyError([Fault((), reason, "fewer racks, hosts or switches")])
