"""Reader of htsim's files: topologies (`.topo`) and connection matrices (`.cm`).

A topology is a fat tree of two or three tiers, without regard to case, with `#` before comments:

    Nodes 8                       hosts
    Tiers 2
    Podsize 8                     hosts in a pod
    Tier 0                        then what holds there: 0 ToRs, 1 above them, 2 the core
    Downlink_speed_Gbps 100
    Radix_Down 4                  ports downwards of a switch
    Radix_Up 2                    and upwards; not at the highest tier
    Downlink_Latency_ns 1000
    Bundle 1                      parallel links to each switch below

`Switch_Latency_ns`, `Queue_Up`, `Queue_Down` and `Oversubscribed`, which follows from the radices, are left
out and named. Every host is a server with one GPU and one NIC. In three tiers the switch at place p of its
pod, of a switches there, leads to the cores p, p + a, p + 2 a ..., as in htsim. Names: `tor-<n>`, `agg-<n>`,
`core-<n>`, with the tier's own number.

A connection matrix is `Nodes n`, `Connections m`, then m lines `source->destination` with words and numbers:
`start` in ps, `size` in bytes, `id`, `priority`. Triggers (a connection that begins when another ends) and
failures are refused: a flow table has no such order.

Source: Broadcom/csg-htsim, `sim/datacenter/fat_tree_topology.cpp`, `connection_matrix.cpp`.
"""

from typing import Final, NamedTuple

from emu.base.errors import FormatError
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut, limited, whole_number
from emu.scenario.readers.read_fabric import EdgeList, ReadLink, ReadNode, server

MOST_HOSTS: Final = 65536
MOST_LINKS: Final = 262144
MOST_FLOWS: Final = 2**20
MOST_PS: Final = 10**18
MOST_BYTES: Final = 2**40
_WHOLE: Final = ("nodes", "tiers", "podsize")
_READ: Final = ("downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns", "bundle")
_LEFT_OUT: Final = ("switch_latency_ns", "queue_up", "queue_down", "oversubscribed")
_ACCEPTED: Final = ", ".join((*_WHOLE, "tier", *_READ, *_LEFT_OUT))
_NAMES: Final = ("tor", "agg", "core")


class HtsimError(FormatError):
    """A file that is no such topology or connection matrix."""


class Connection(NamedTuple):
    """A flow, and its line."""

    line: int
    source: int
    destination: int
    start_ps: int
    size_bytes: int


class Matrix(NamedTuple):
    """A whole connection matrix."""

    nodes: int
    connections: list[Connection]
    left_out: LeftOut


class _Tier(NamedTuple):
    line: int
    given: dict[str, int]

    def of(self, key: str, default: int = 0) -> int:
        value = self.given.get(key, default)
        if value < 1:
            raise HtsimError(self.line, f"a tier without {key}", f"{key} with a number above 0")
        return value


def is_topo(text: str) -> bool:
    """Whether a text is a topology of htsim."""
    words = {line.split()[0].lower() for line in text.splitlines()[:64] if line.split()}
    return {"nodes", "tiers"} <= words


def is_matrix(text: str) -> bool:
    """Whether a text is a connection matrix of htsim."""
    words = {line.split()[0].lower() for line in text.splitlines()[:64] if line.split()}
    return {"nodes", "connections"} <= words


def read_topo(text: str) -> EdgeList:
    """The fabric of a topology. Raises HtsimError."""
    whole: dict[str, int] = {}
    tiers: dict[int, _Tier] = {}
    left_out = LeftOut()
    at = -1
    for line, words in _rows(text):
        key = words[0].lower()
        if len(words) != 2 or key not in (*_WHOLE, "tier", *_READ, *_LEFT_OUT):
            raise HtsimError(
                line, f"{' '.join(words)[:LONGEST_SHOWN]!r}", f"a number after one of {_ACCEPTED}"
            )
        number = whole_number(HtsimError, line, words[1], 0, MOST_HOSTS * 1000, f"{key},")
        if key == "tier":
            at = number
            tiers[at] = _Tier(line, {})
        elif key in _WHOLE:
            whole[key] = number
        elif at not in tiers:
            raise HtsimError(line, f"{key} before the first tier", "Tier 0 before it")
        elif key in _READ:
            tiers[at].given[key] = number
        else:
            left_out.add(f"{words[0]} {number} of tier {at}")
    count = whole.get("tiers", 0)
    if count not in (2, 3) or sorted(tiers) != list(range(count)):
        raise HtsimError(
            1, f"{count} tiers, and {len(tiers)} are there", "Tiers 2 or 3, and each from Tier 0"
        )
    hosts = whole.get("nodes", 0)
    if not 1 <= hosts <= MOST_HOSTS:
        raise HtsimError(1, f"{hosts} nodes", f"1 to {MOST_HOSTS}")
    podsize = whole.get("podsize", 0) if count == 3 else hosts
    if "podsize" in whole and whole["podsize"] != podsize:
        left_out.add(f"Podsize {whole['podsize']} of two tiers")
    return _Tree(hosts, podsize, [tiers[tier] for tier in range(count)]).fabric(left_out)


class _Tree:
    """A fat tree, cut as htsim cuts it."""

    def __init__(self, hosts: int, podsize: int, tiers: list[_Tier]) -> None:
        self.tiers = tiers
        tor, agg = tiers[0], tiers[1]
        down = tor.of("radix_down")
        if not podsize or hosts % podsize or podsize % down:
            reason = f"{hosts} nodes, pods of {podsize} and ToRs of {down} hosts"
            raise HtsimError(tor.line, reason, "nodes a multiple of podsize, and that of radix_down")
        self.hosts, self.per_tor = hosts, down
        self.tors, self.pods = hosts // down, hosts // podsize
        self.tors_in_pod = podsize // down
        self.aggs_in_pod = self._above(1, self.tors_in_pod * tor.of("radix_up"))
        self.cores = 0
        if len(tiers) == 3:
            self.cores = self._above(2, self.pods * self.aggs_in_pod * agg.of("radix_up"))
        for tier in range(1, len(tiers)):
            below, above = tiers[tier - 1], self.aggs_in_pod if tier == 1 else self.cores // self.aggs_in_pod
            if above * tiers[tier].of("bundle", 1) != below.of("radix_up"):
                reason = f"radix_up {below.of('radix_up')} below {above} switches in bundles of"
                reason += f" {tiers[tier].of('bundle', 1)}"
                raise HtsimError(below.line, reason, "radix_up as many as these together")

    def _above(self, tier: int, ports: int) -> int:
        """How many switches of a tier take so many ports."""
        down = self.tiers[tier].of("radix_down")
        if ports % down:
            reason = f"{ports} ports upwards do not divide into switches of {down}"
            raise HtsimError(self.tiers[tier].line, reason, "a radix_down that divides them")
        return ports // down

    def fabric(self, left_out: LeftOut) -> EdgeList:
        """Its nodes and links."""
        bundles = [tier.of("bundle", 1) for tier in self.tiers]
        aggs = self.pods * self.aggs_in_pod
        cables = self.hosts + self.tors * self.aggs_in_pod * bundles[1]
        cables += aggs * self.tiers[1].of("radix_up") if self.cores else 0
        limited(HtsimError, 1, cables, MOST_LINKS, "links")
        nodes: list[ReadNode] = []
        links: list[ReadLink] = []

        def cable(tier: int, below: str, above: str) -> None:
            of = self.tiers[tier]
            rate, delay = f"{of.of('downlink_speed_gbps')}Gbps", f"{of.of('downlink_latency_ns')}ns"
            links.extend([ReadLink(of.line, below, above, rate, delay)] * bundles[tier])

        for host in range(self.hosts):
            cable(0, server(nodes, self.tiers[0].line, host), f"tor-{host // self.per_tor}")
        for tier, count in enumerate((self.tors, aggs, self.cores)):
            line = self.tiers[tier].line if count else 0
            nodes += [ReadNode(line, f"{_NAMES[tier]}-{number}", "switch") for number in range(count)]
        for tor in range(self.tors):
            first = tor // self.tors_in_pod * self.aggs_in_pod
            for agg in range(first, first + self.aggs_in_pod):
                cable(1, f"tor-{tor}", f"agg-{agg}")
        for agg in range(aggs if self.cores else 0):
            for core in range(agg % self.aggs_in_pod, self.cores, self.aggs_in_pod):
                cable(2, f"agg-{agg}", f"core-{core}")
        return EdgeList(nodes, links, "", "", left_out)


def read_matrix(text: str) -> Matrix:
    """The connections of a matrix. Raises HtsimError."""
    whole: dict[str, int] = {}
    found: list[Connection] = []
    left_out = LeftOut()
    for line, words in _rows(text):
        key = words[0].lower()
        if "->" not in key:
            _whole_line(line, words, whole)
            continue
        limited(HtsimError, line, len(found) + 1, MOST_FLOWS, "connections")
        found.append(_connection(line, words, whole.get("nodes", MOST_HOSTS), left_out))
    if len(found) != whole.get("connections", 0):
        reason = f"says {whole.get('connections', 0)} connections, and {len(found)} follow"
        raise HtsimError(max(len(text.splitlines()), 1), reason, "as many as follow")
    if not found:
        raise HtsimError(1, "no connection in it", "Connections 1 and more")
    return Matrix(whole.get("nodes", 0), found, left_out)


def _whole_line(line: int, words: list[str], whole: dict[str, int]) -> None:
    key = words[0].lower()
    if len(words) != 2 or key not in ("nodes", "connections", "triggers", "failures"):
        shown = " ".join(words)[:LONGEST_SHOWN]
        accepted = "Nodes, Connections, or 0->1 start PS size BYTES"
        if key in ("trigger", "failure"):
            accepted += "; what begins when something else ends is a `kind: program`"
        raise HtsimError(line, f"{shown!r} is not modelled", accepted)
    whole[key] = whole_number(HtsimError, line, words[1], 0, MOST_FLOWS, f"{key},")
    if key in ("triggers", "failures") and whole[key]:
        raise HtsimError(line, f"{key} are not modelled", f"{key} 0, and connections with a start")


def _connection(line: int, words: list[str], nodes: int, left_out: LeftOut) -> Connection:
    accepted = "0->1 start PS size BYTES, and id and priority, which are left out"
    source, _, destination = words[0].partition("->")
    ends = [whole_number(HtsimError, line, one, 0, nodes - 1, "a node,") for one in (source, destination)]
    given: dict[str, int] = {}
    for key, value in zip(words[1::2], [*words[2::2], ""], strict=False):
        if key not in ("start", "size", "id", "priority"):
            why = " is not modelled" if key.endswith("trigger") else ""
            raise HtsimError(line, f"{key[:LONGEST_SHOWN]!r}{why}", accepted)
        given[key] = whole_number(HtsimError, line, value, 0, MOST_PS, f"{key},")
        if key in ("id", "priority"):
            left_out.add(f"{key} of connections")
    if "start" not in given or not 1 <= given.get("size", 0) <= MOST_BYTES:
        raise HtsimError(line, f"{' '.join(words)[:LONGEST_SHOWN]!r} has no start, or no size", accepted)
    return Connection(line, ends[0], ends[1], given["start"], given["size"])


def _rows(text: str) -> list[tuple[int, list[str]]]:
    rows = enumerate((line.split() for line in text.splitlines()), 1)
    return [(line, words) for line, words in rows if words and not words[0].startswith("#")]
