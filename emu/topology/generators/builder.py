"""From a generator's plan to a checked `Topology`.

An `Assembly` collects nodes and links in the generator's order and gives out numbers, ports and names by
the rules at the top of `actors.fabric.model`. What it checks is what every fabric must satisfy whichever
generator drew it: rates above zero, delays of at least 1 ns, NICs that reach each other. Faults carry a
path into the configuration, so that the scenario can name file and line.

A generator adds all nodes, then fabric links from the NICs upwards, then host links; `finish` appends the
controller.

Pieces that the generated Clos fabrics share: servers, meshes, stripes.

Servers; meshes, where every switch of one tier is joined to every switch of the next; stripes, where the
aggregation switches of a pod are dealt over the core; and the rate of a link that keeps a ratio.

Ratios. Published fabrics state how many switches they have and by how much each tier is oversubscribed. Both
are knobs, and the rate of the links between two tiers follows from them:

    rate of an uplink = rate below the switch / oversubscription / number of uplinks

With the published counts the rates come out as the real ones (400G). A fabric with fewer racks, hosts or
spines keeps the ratios of the large one, which is what most questions about congestion depend on.

Stripes. Uplink u of aggregation switch a (its place in the pod, or in its plane of the pod) leads to core
switch (a x uplinks + u) mod cores, in every pod alike, so that a core switch reaches every pod. With (k/2)^2
cores that is the wiring of the k-ary fat tree (Al-Fares and others, SIGCOMM'08).

Not modelled: spare ports, cables of different length within a tier.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

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
from actors.fabric.routes import routes
from emu.base.units import MAX_QUANTITY


class Assembly:
    """A fabric in the making."""

    __slots__ = ("_ends", "_hosts", "_in_tier", "_links", "_nodes", "_ports")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._links: list[tuple[int, int, LinkKind, int, int, tuple[int, int]]] = []
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

    def nic(self, name: str, host: int, position: int) -> int:
        """A NIC of the server whose host has this node number."""
        server = self._nodes[host]
        return self.add(name, Role.NIC, "nic", 0, rack=server.rack, host=server.host, position=position)

    def switch(self, name: str, model: str, tier: int, rack: int = -1) -> int:
        """A switch. Its position is the number of switches of its tier before it."""
        assert tier >= 1, f"tier {tier} of {name}: a switch stands above the NICs"
        position = self._in_tier.get(tier, 0)
        self._in_tier[tier] = position + 1
        return self.add(name, Role.SWITCH, model, tier, rack=rack, position=position)

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
        ends = (a, b) if a < b else (b, a)
        self._links.append((a, b, kind, rate_bps, delay_ps, ends))
        self._ends[ends] = self._ends.get(ends, 0) + 1

    def _numbered(self) -> list[Link]:
        numbered: list[Link] = []
        seen: dict[tuple[int, int], int] = {}
        nodes, ports = self._nodes, self._ports
        names = [node.name for node in nodes]
        for number, (a, b, kind, rate_bps, delay_ps, ends) in enumerate(self._links):
            name = f"{names[a]}:{names[b]}"
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


class Cables(NamedTuple):
    """Rates and delays of the links that every generated fabric has."""

    link_bps: int
    nic_delay_ps: int
    """Of the links from NICs to their first switch."""
    host_link_rate_bps: int
    host_link_delay_ps: int
    nic_link_delay_ps: int
    """Inside servers, from the host to a NIC."""

    def faults(self, delays_ps: Mapping[str, int], rates_bps: Mapping[str, int] | None = None) -> list[Fault]:
        """What is wrong with them, and with the rates and delays of links between switches."""
        rates = {"link": self.link_bps, **(rates_bps or {}), "host_link_rate": self.host_link_rate_bps}
        inside = {"host_link_delay": self.host_link_delay_ps, "nic_link_delay": self.nic_link_delay_ps}
        return check_links(rates, {"nic_delay": self.nic_delay_ps, **delays_ps, **inside})


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
    """Every NIC must reach every other NIC of its network from each of its ports; servers do not forward. Two
    NICs that a cable joins reach each other alone: whoever sends elsewhere is refused with its job.
    """
    if not topology.nics:
        return
    found = routes(topology)
    networks: dict[str, int] = {}
    for prefix in range(topology.prefixes):
        network = topology.nodes[topology.prefix_nics(prefix)[0]].network
        networks[network] = networks.get(network, 0) | 1 << prefix
    cabled = 0
    for prefix in range(topology.prefixes):
        cabled |= _reached_by_wire(topology, prefix)
    for prefix in range(topology.prefixes):
        nic = topology.prefix_nics(prefix)[0]
        wanted = networks[topology.nodes[nic].network] & ~cabled
        around = topology.prefix_switches(prefix)
        if not around and not cabled >> prefix & 1 and wanted:
            raise _not_connected(topology, nic, wanted, "")
        missing = [wanted & ~found.reached_from(switch) for switch in around]
        for switch, prefixes in zip(around, missing, strict=True):
            if prefixes:
                leaf = "" if all(missing) else topology.nodes[switch].name
                raise _not_connected(topology, nic, prefixes, leaf)


def _reached_by_wire(topology: Topology, prefix: int) -> int:
    """The prefix of NICs that hang on no switch reaches itself where it is two NICs joined by wire."""
    nics = () if topology.prefix_switches(prefix) else topology.prefix_nics(prefix)
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


class Server(NamedTuple):
    """The node numbers of a server."""

    host: int
    gpus: tuple[int, ...]
    nics: tuple[int, ...]


def add_servers(fabric: Assembly, count: int, gpus_per_host: int, hosts_per_rack: int) -> list[Server]:
    """Servers with a NIC for each GPU: `host-<h>`, `gpu-<h>-<i>`, `nic-<h>-<i>`."""
    servers: list[Server] = []
    for index in range(count):
        host = fabric.host(f"host-{index}", index // hosts_per_rack)
        gpus = tuple(fabric.gpu(f"gpu-{index}-{i}", host, i) for i in range(gpus_per_host))
        nics = tuple(fabric.nic(f"nic-{index}-{i}", host, i) for i in range(gpus_per_host))
        servers.append(Server(host, gpus, nics))
    return servers


def add_host_links(fabric: Assembly, servers: Sequence[Server], cables: Cables) -> None:
    """The links inside the servers, GPUs before NICs. They come after all fabric links."""
    for server in servers:
        for gpu in server.gpus:
            fabric.host_link(server.host, gpu, cables.host_link_rate_bps, cables.host_link_delay_ps)
        for nic in server.nics:
            fabric.host_link(server.host, nic, cables.host_link_rate_bps, cables.nic_link_delay_ps)


def mesh(
    fabric: Assembly,
    lowers: Sequence[int],
    uppers: Sequence[int],
    rate_bps: int,
    delay_ps: int,
    parallel: int = 1,
) -> None:
    """Join every switch of one tier to every switch of the next, by `parallel` links."""
    for lower in lowers:
        for upper in uppers:
            for _ in range(parallel):
                fabric.link(lower, upper, rate_bps, delay_ps)


def stripe(
    fabric: Assembly,
    aggs: Sequence[int],
    cores: Sequence[int],
    uplinks: int,
    rate_bps: int,
    delay_ps: int,
    parallel: int = 1,
) -> None:
    """Deal the uplinks of a pod's aggregation switches over the core, each of `parallel` links."""
    for place, agg in enumerate(aggs):
        for uplink in range(uplinks):
            for _ in range(parallel):
                fabric.link(agg, cores[(place * uplinks + uplink) % len(cores)], rate_bps, delay_ps)


def uplink_bps(below_bps: int, oversubscription: Fraction, uplinks: int) -> int:
    """The rate of each of a switch's uplinks that keeps the ratio, rounded down to whole bit/s."""
    return below_bps * oversubscription.denominator // (oversubscription.numerator * max(uplinks, 1))


def check_uplink(key: str, rate_bps: int) -> list[Fault]:
    """A fault where a ratio leaves nothing for the uplinks, or more than can be counted."""
    if rate_bps > MAX_QUANTITY:
        return [Fault((key,), f"asks for uplinks of {rate_bps} bit/s", f"at most {MAX_QUANTITY} bit/s")]
    if rate_bps > 0:
        return []
    return [Fault((key,), "leaves uplinks of less than 1 bit/s", "less oversubscription, or fewer uplinks")]


def check_stripe(keys: tuple[str, str], aggs: int, uplinks: int, cores: int) -> list[Fault]:
    """A fault where the uplinks of a pod do not spread evenly over the core; `keys` of uplinks and cores."""
    if cores == 0 or aggs * uplinks % cores == 0:
        return []
    reason = f"{aggs} x {uplinks} uplinks of a pod do not divide among {cores} core switches"
    return [Fault((keys[1],), reason, f"a divisor of {aggs * uplinks}, or another {keys[0]}")]


MOST_NIC_PORTS: Final = 8
"""Fabric ports of a NIC. 8 planes of 100G at an 800G NIC are the most that is published (MRC, MPFT)."""


def check_ports(nic_ports: int) -> list[Fault]:
    """A fault for NICs of no or too many fabric ports."""
    if 1 <= nic_ports <= MOST_NIC_PORTS:
        return []
    return [Fault(("nic_ports",), f"a NIC of {nic_ports} ports", f"1 to {MOST_NIC_PORTS}")]


class Pods(NamedTuple):
    """Pods of racks under aggregation switches, and a core above: what DCN+ and MegaScale have in common."""

    pods: int
    racks_per_pod: int
    hosts_per_rack: int
    gpus_per_host: int
    tors_per_rack: int
    aggs_per_pod: int
    links_per_tor_agg: int
    cores: int
    core_uplinks_per_agg: int
    tor_oversubscription: Fraction
    agg_oversubscription: Fraction
    agg_delay_ps: int
    core_delay_ps: int

    def built(self, kind: str, cables: Cables, faults: list[Fault], *, rails: bool) -> Topology:
        """The fabric: with `rails` NIC I of a server is on ToR I of its rack, else on all of them. Raises
        TopologyError for `faults`, and for what else is wrong.
        """
        faults = faults + check_counts(1 if self.pods > 1 else 0, {"cores": self.cores})
        faults += cables.faults({"agg_delay": self.agg_delay_ps, "core_delay": self.core_delay_ps})
        if faults:
            raise TopologyError(faults)
        below_tor_bps = self.hosts_per_rack * (1 if rails else self.gpus_per_host) * cables.link_bps
        links_below_agg = self.racks_per_pod * self.tors_per_rack * self.links_per_tor_agg
        up = self.aggs_per_pod * self.links_per_tor_agg
        tor_bps = uplink_bps(below_tor_bps, self.tor_oversubscription, up)
        agg_bps = uplink_bps(links_below_agg * tor_bps, self.agg_oversubscription, self.core_uplinks_per_agg)
        faults += check_uplink("tor_oversubscription", tor_bps)
        faults += check_uplink("agg_oversubscription", agg_bps)
        if self.pods > 1:
            keys = ("core_uplinks_per_agg", "cores")
            faults += check_stripe(keys, self.aggs_per_pod, self.core_uplinks_per_agg, self.cores)
        if faults:
            raise TopologyError(faults)

        fabric = Assembly()
        racks = self.pods * self.racks_per_pod
        servers = add_servers(fabric, racks * self.hosts_per_rack, self.gpus_per_host, self.hosts_per_rack)
        tors = [
            [fabric.switch(f"tor-{rack}-{i}", "tor", 1, rack) for i in range(self.tors_per_rack)]
            for rack in range(racks)
        ]
        aggs = [
            [fabric.switch(f"agg-{pod}-{a}", "agg", 2) for a in range(self.aggs_per_pod)]
            for pod in range(self.pods)
        ]
        tops = [fabric.switch(f"core-{c}", "core", 3) for c in range(self.cores if self.pods > 1 else 0)]
        for index, server in enumerate(servers):
            in_rack = tors[index // self.hosts_per_rack]
            for position, nic in enumerate(server.nics):
                for tor in [in_rack[position]] if rails else in_rack:
                    fabric.link(nic, tor, cables.link_bps, cables.nic_delay_ps)
        for rack, in_rack in enumerate(tors):
            above = aggs[rack // self.racks_per_pod]
            mesh(fabric, in_rack, above, tor_bps, self.agg_delay_ps, self.links_per_tor_agg)
        for in_pod in aggs if self.pods > 1 else ():
            stripe(fabric, in_pod, tops, self.core_uplinks_per_agg, agg_bps, self.core_delay_ps)
        add_host_links(fabric, servers, cables)
        return fabric.finish(kind)
