"""The graph of a fabric: its devices and links, their numbers, names and addresses.

A `Topology` is data: nodes, links, and what follows from them. Nothing in it moves. Everything that
identifies a device or a link anywhere else in the project (event keys, random streams, the digest,
addresses) is one of the numbers given out here, so they depend on the graph alone, never on placement or on
the order of arrivals.

Rules.

* A node's number is its index in `nodes`; device numbers are node numbers. The controller is always the
  last node.
* Ports are numbered per node, in link order. Fabric links (NIC to switch, switch to switch) come before
  host links (host to GPU, host to NIC), so a leaf has its down ports first, a NIC's fabric ports are 0, 1,
  .. and its host link is its last port. NVLinks (GPU to NVSwitch) come last: a GPU's port 0 is its host link.
* A link is named after its ends, `rtsw-0:ctsw-3`; parallel links between the same two nodes are distinguished
  by a suffix, `rtsw-0:ctsw-3/0`, `rtsw-0:ctsw-3/1`. In the order of the ends the lower tier comes first.
* A link has one rate and one delay, the same in both directions, and a delay of at least 1 ns in every
  fabric.
* Addresses are 24 bits below 10.0.0.0/8: `prefix << 10 | index`. NICs that hang on the same set of switches
  share a prefix (a subnet), numbered in the order of their first NIC; the 1,025th NIC of a set opens
  another prefix. Switches route prefixes, not addresses, which keeps routing state small on large fabrics.
* A server is one host, its GPUs and its NICs, joined by host links. GPUs and NICs of a server are matched
  in order: one NIC each where there are as many, several each (or one shared by several) otherwise.
* NVSwitches of servers (`emu.topology.fabrics`) are the last nodes before the controller.
* The path from a host to the controller is management: it has a delay in the scenario but is not a link.

Source: the address plan is our own. The server (GPU:NIC 1:1 behind one host) is Grand Teton as described in
"RDMA over Ethernet for Distributed AI Training at Meta Scale" (SIGCOMM'24).

Not modelled: links whose directions differ in rate or delay; switches and NICs with an address per port.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from actors.kernel.errors import EmuError
from actors.kernel.event import MAX_DEVICES, MAX_PORTS

INDEX_BITS: Final = 10
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
PREFIX_BITS: Final = 14
NICS_PER_PREFIX: Final = 1 << INDEX_BITS
MOST_PREFIXES: Final = 1 << PREFIX_BITS
LEAST_DELAY_PS: Final = 1_000
MOST_DEVICES: Final = MAX_DEVICES - 1
"""An event's key has room for so many, and the controller."""
MOST_PORTS: Final = MAX_PORTS
MOST_LINKS: Final = 1 << 21

FABRIC: Final = "fabric"
HOST: Final = "host"
NVLINK: Final = "nvlink"
LinkKind = Literal["fabric", "host", "nvlink"]


class Role(StrEnum):
    """What stands at a node."""

    GPU = "gpu"
    HOST = "host"
    NIC = "nic"
    SWITCH = "switch"
    NVSWITCH = "nvswitch"
    CONTROLLER = "controller"

    __hash__ = str.__hash__
    """Of the text that it equals; an enumeration's own is a function in Python, which kinds of devices are
    looked up by."""


class Fault(NamedTuple):
    """One thing wrong with a fabric: where in the topology's configuration, why, and what would do.

    `path` leads there from the topology section, in the scenario's keys: `("links", 3, "b")`, `("racks",)`.
    """

    path: tuple[str | int, ...]
    reason: str
    accepted: str = ""

    def __str__(self) -> str:
        where = ".".join(str(part) for part in self.path)
        text = f"{where}: {self.reason}" if where else self.reason
        return f"{text}; {self.accepted}" if self.accepted else text


class TopologyError(EmuError):
    """A fabric that cannot be built, or a name it does not have. `faults` has all that were found."""

    exit_status = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        assert self.faults, "a TopologyError needs at least one fault"
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class Node(NamedTuple):
    """One device."""

    number: int
    name: str
    role: Role
    model: str
    """What the field calls it: `rtsw`, `ctsw`, `nic`, `gpu`, `nvswitch`, `host`, `controller`."""
    tier: int
    """0 for a NIC, 1 for a leaf, 2 for a spine and so on; -1 for what is not on the fabric."""
    network: str
    """`backend` or `frontend`."""
    rack: int
    """-1 where no rack is known."""
    host: int
    """Index of the server (0 for the first host in `Topology.hosts`), -1 outside servers."""
    position: int
    """Index among the server's GPUs, or its NICs; for a switch, among the switches of its tier; else 0."""


class Link(NamedTuple):
    """One full-duplex cable, or a path inside a server (PCIe, NVLink), with the ports at its two ends."""

    number: int
    name: str
    a: int
    a_port: int
    b: int
    b_port: int
    kind: LinkKind
    rate_bps: int
    delay_ps: int
    network: str


class Attachment(NamedTuple):
    """A port, seen from the node that has it: which link, who is at the other end, how fast and how far."""

    link: int
    peer: int
    peer_port: int
    rate_bps: int
    delay_ps: int
    kind: LinkKind


class Topology:
    """Nodes, links and what follows from them. Immutable once built; compare fabrics by `nodes` and `links`.

    The constructor trusts its arguments: generators go through `emu.topology.generators.builder`, which
    checks them.
    """

    __slots__ = (
        "__weakref__",
        "_address_of",
        "_bonded_nics",
        "_by_link_name",
        "_by_name",
        "_links_at",
        "_nic_at",
        "_nics_of_gpu",
        "_ports",
        "_prefix_nics",
        "_prefix_switches",
        "_prefixes_at",
        "_servers",
        "derived",
        "gpus",
        "hosts",
        "kind",
        "links",
        "nics",
        "nodes",
        "switches",
        "valley_free",
    )

    def __init__(self, nodes: Sequence[Node], links: Sequence[Link], kind: str = "graph") -> None:
        assert nodes, "a topology has at least its controller"
        assert nodes[-1].role is Role.CONTROLLER, f"the last node is the controller, not {nodes[-1]}"
        self.kind: str = kind
        """The generator that made it."""
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.links: tuple[Link, ...] = tuple(links)
        self.hosts: tuple[int, ...] = self._numbers_with(Role.HOST)
        self.switches: tuple[int, ...] = self._numbers_with(Role.SWITCH)
        self._by_name = {node.name: node.number for node in self.nodes}
        self._links_at = links_at(self.nodes, self.links)
        self._ports: list[tuple[Attachment, ...] | None] = [None] * len(self.nodes)
        self._servers = _servers_of(self.nodes)
        self.gpus: tuple[int, ...] = self._in_server_order(Role.GPU)
        """GPUs in rank order: host by host, in each by position."""
        self.nics: tuple[int, ...] = self._in_server_order(Role.NIC)
        """NICs in the same order."""
        self._nics_of_gpu = self._matched()
        self.valley_free: bool = False
        """Whether routes go up the tiers and down again, and never up once they went down."""
        self.derived: dict[str, Any] = {}
        """What others have worked out of it and keep for as long as it lives, by what it is."""
        self._address_of: dict[int, int] = {}
        self._nic_at: dict[int, int] = {}
        self._prefix_switches: list[tuple[int, ...]] = []
        self._prefix_nics: list[list[int]] = []
        self._prefixes_at: dict[int, list[int]] = {}
        self._give_addresses()
        self._by_link_name: dict[str, tuple[int, ...]] | None = None
        self._bonded_nics: tuple[int, ...] | None = None

    @property
    def bonded_nics(self) -> tuple[int, ...]:
        """The NICs with more than one fabric port, in order."""
        if self._bonded_nics is None:
            fabric = [link.kind == FABRIC for link in self.links]
            self._bonded_nics = tuple(
                nic for nic in self.nics if sum(fabric[link] for link in self._links_at[nic]) > 1
            )
        return self._bonded_nics

    @property
    def controller(self) -> int:
        """The control plane's node number: always the last."""
        return len(self.nodes) - 1

    @property
    def prefixes(self) -> int:
        """How many prefixes there are."""
        return len(self._prefix_switches)

    def node_named(self, name: str) -> Node:
        """The node of that name. TopologyError with the nearest name where there is none."""
        number = self._by_name.get(name)
        if number is None:
            raise TopologyError([Fault((), f"no device is named {name!r}", nearest(name, self._by_name))])
        return self.nodes[number]

    def links_named(self, name: str) -> tuple[int, ...]:
        """Numbers of the links called `a:b`, ends in either order; all of parallel links, or one as `a:b/1`.

        TopologyError with the nearest name where there is none.
        """
        if self._by_link_name is None:
            self._by_link_name = link_names(self.links)
        found = self._by_link_name.get(name)
        if found is None:
            ends, slash, member = name.partition("/")
            a, _, b = ends.partition(":")
            found = self._by_link_name.get(f"{b}:{a}{slash}{member}")
        if found is None:
            accepted = nearest(name, self._by_link_name)
            raise TopologyError([Fault((), f"no link is named {name!r}", accepted)])
        return found

    def ports(self, number: int) -> tuple[Attachment, ...]:
        """The node's ports, in order. Worked out when first asked for: most are never looked at."""
        found = self._ports[number]
        if found is None:
            links = self.links
            found = tuple(_attachment(links[link], number) for link in self._links_at[number])
            self._ports[number] = found
        return found

    def links_at(self, number: int) -> Sequence[int]:
        """The numbers of the node's links, in the order of its ports."""
        return self._links_at[number]

    def host_of(self, number: int) -> int:
        """The node number of the host device of a GPU's, NIC's or host's server."""
        host = self.nodes[number].host
        assert host >= 0, f"{self.nodes[number].name} is in no server"
        return self.hosts[host]

    def server(self, host: int) -> tuple[int, ...]:
        """Numbers of the host with that index, its GPUs, its NICs, each by position, and its NVSwitch."""
        return self._servers[host]

    def host_end(self, number: int) -> Attachment:
        """A GPU's or NIC's end of its host link."""
        return next(end for end in self.ports(number) if end.kind == HOST)

    def nvlink_end(self, gpu: int) -> Attachment | None:
        """A GPU's end of its NVLink; None where its server has no NVSwitch."""
        return next((end for end in self.ports(gpu) if end.kind == NVLINK), None)

    def nics_of_gpu(self, gpu: int) -> tuple[int, ...]:
        """The backend NICs a GPU sends through, in order; shared where a server has fewer NICs than GPUs."""
        return self._nics_of_gpu[gpu]

    def address_of(self, nic: int) -> int:
        """The NIC's 24-bit address, `prefix << 10 | index`."""
        return self._address_of[nic]

    def nic_at(self, address: int) -> int:
        """The node number of the NIC with that address. KeyError where nobody has it."""
        return self._nic_at[address]

    def prefix_switches(self, prefix: int) -> tuple[int, ...]:
        """The switches every NIC of the prefix is attached to, ascending; none for two NICs on a wire."""
        return self._prefix_switches[prefix]

    def prefixes_at(self, switch: int) -> tuple[int, ...]:
        """The prefixes whose NICs are attached to this switch, ascending."""
        return tuple(self._prefixes_at.get(switch, ()))

    def prefix_nics(self, prefix: int) -> tuple[int, ...]:
        """The NICs of this prefix, in the order of their index."""
        return tuple(self._prefix_nics[prefix])

    def __repr__(self) -> str:
        return (
            f"<Topology {self.kind}: {len(self.gpus)} GPUs, {len(self.nics)} NICs,"
            f" {len(self.switches)} switches, {len(self.links)} links>"
        )

    def _numbers_with(self, role: Role) -> tuple[int, ...]:
        return tuple(node.number for node in self.nodes if node.role is role)

    def _in_server_order(self, role: Role) -> tuple[int, ...]:
        return tuple(
            number for server in self._servers for number in server if self.nodes[number].role is role
        )

    def _matched(self) -> dict[int, tuple[int, ...]]:
        matches: dict[int, tuple[int, ...]] = {}
        for server in self._servers:
            gpus = [number for number in server if self.nodes[number].role is Role.GPU]
            nics = [
                number
                for number in server
                if self.nodes[number].role is Role.NIC and self.nodes[number].network == "backend"
            ]
            for index, gpu in enumerate(gpus):
                first = index * len(nics) // len(gpus)
                last = (index + 1) * len(nics) // len(gpus)
                matches[gpu] = tuple(nics[first : max(last, first + 1)])
        return matches

    def _give_addresses(self) -> None:
        open_prefix: dict[tuple[int, ...], int] = {}
        is_switch = [node.role is Role.SWITCH for node in self.nodes]
        for nic in self.nics:
            links = [self.links[link] for link in self._links_at[nic]]
            peers = {link.b if link.a == nic else link.a for link in links}
            around = tuple(sorted(peer for peer in peers if is_switch[peer]))
            cabled = sorted({nic, *(peer for peer in peers if self.nodes[peer].role is Role.NIC)})
            ends = around or tuple(cabled)  # NICs that a cable joins have a prefix of their own
            prefix = open_prefix.get(ends)
            if prefix is None or len(self._prefix_nics[prefix]) == NICS_PER_PREFIX:
                prefix = open_prefix[ends] = len(self._prefix_switches)
                self._prefix_switches.append(around)
                self._prefix_nics.append([])
                for switch in around:
                    self._prefixes_at.setdefault(switch, []).append(prefix)
            address = prefix << INDEX_BITS | len(self._prefix_nics[prefix])
            self._prefix_nics[prefix].append(nic)
            self._address_of[nic] = address
            self._nic_at[address] = nic
        if self.prefixes > MOST_PREFIXES:
            reason = f"the fabric needs {self.prefixes} prefixes (sets of switches with NICs on them)"
            raise TopologyError([Fault((), reason, f"at most {MOST_PREFIXES}")])


def prefix_of(address: int) -> int:
    """The prefix an address belongs to."""
    return address >> INDEX_BITS


def format_address(address: int) -> str:
    """The address as a user reads it: `10.x.y.z`."""
    assert 0 <= address < 1 << 24, f"{address} does not fit 24 bits"
    return f"10.{address >> 16}.{address >> 8 & 255}.{address & 255}"


def nearest(name: str, names: Iterable[str]) -> str:
    """What to offer to a user who wrote a name that does not exist; empty where nothing is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for what is wrong

    close = get_close_matches(name, list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _attachment(link: Link, node: int) -> Attachment:
    """A link as the node at one of its ends sees it."""
    if link.a == node:
        return Attachment(link.number, link.b, link.b_port, link.rate_bps, link.delay_ps, link.kind)
    return Attachment(link.number, link.a, link.a_port, link.rate_bps, link.delay_ps, link.kind)


def _servers_of(nodes: tuple[Node, ...]) -> tuple[tuple[int, ...], ...]:
    hosts = [node.number for node in nodes if node.role is Role.HOST]
    gpus: list[list[int]] = [[] for _ in hosts]
    nics: list[list[int]] = [[] for _ in hosts]
    nvswitches: list[list[int]] = [[] for _ in hosts]
    for node in nodes:
        if node.role is Role.GPU:
            gpus[node.host].append(node.number)
        elif node.role is Role.NIC:
            nics[node.host].append(node.number)
        elif node.role is Role.NVSWITCH:
            nvswitches[node.host].append(node.number)
    return tuple(
        (
            host,
            *sorted(gpus[index], key=lambda gpu: nodes[gpu].position),
            *sorted(nics[index], key=lambda nic: nodes[nic].position),
            *nvswitches[index],
        )
        for index, host in enumerate(hosts)
    )


def links_at(nodes: tuple[Node, ...], links: tuple[Link, ...]) -> list[list[int]]:
    """The links of each node in the order of its ports."""
    found: list[list[int]] = [[] for _ in nodes]
    ordered = True
    for link in links:
        one, other = found[link.a], found[link.b]
        ordered = ordered and link.a_port == len(one) and link.b_port == len(other)
        one.append(link.number)
        other.append(link.number)
    if ordered:  # as generators number ports
        return found
    for number, at in enumerate(found):
        at.sort(key=lambda one: links[one].a_port if links[one].a == number else links[one].b_port)
        ports = [links[one].a_port if links[one].a == number else links[one].b_port for one in at]
        assert ports == list(range(len(at))), f"the ports of {nodes[number].name} are {ports}"
    return found


def link_names(links: tuple[Link, ...]) -> dict[str, tuple[int, ...]]:
    """Numbers by name; parallel links also by the name without their suffix."""
    names: dict[str, tuple[int, ...]] = {}
    for link in links:
        names[link.name] = (link.number,)
        ends, slash, _ = link.name.partition("/")
        if slash:
            names[ends] = (*names.get(ends, ()), link.number)
    return names
