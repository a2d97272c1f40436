"""Reader of topology files of ns-3's RDMA simulators and of SimAI.

`kind: file` becomes `kind: graph` with the nodes and links of the file, in the tree, before anything is
validated. Each link remembers its line, so an error names it there, and an effective scenario is complete
without the file.

Both formats are lists of numbers and words between blanks; line breaks mean nothing to their readers, nor
here. The reader of `ns3` stops after the last link, and what follows (explanations, links that are switched
off by the first line) is left out and noted; in a `simai` file it is refused.

    ns3     nodes switches links             then the numbers of the switches,
    simai   nodes gpus_per_server nvswitches switches links gpu_type
                                             then the numbers of the NVSwitches and of the switches,
            then for every link              source destination rate delay error_rate

A first line of four or six words is that of PowerTCP's and Reverie's simulator: nodes, switches, ToRs, links,
and two rates that it generates traffic by. A rate without a unit is in bits a second, as in ns-3.

Nodes are numbered from 0; those that are no switches are hosts (ns3) or GPUs (simai). Of an `ns3` host we
make a server with one GPU and one NIC that has all its links. Of `gpus_per_server` successive GPUs of a
`simai` file we make a server; each GPU has a NIC with its links, and links to NVSwitches stay inside the
server.

What a GPU has of links to NVSwitches and to GPUs of its own server is its NVLink: rate and delay, where they
are alike for all GPUs, are what `host.nvlink` may take (`emu import` writes it). The type of GPU, the number
of ToRs and the rates of the first line are left out and named.

Names: `host-<h>`, `gpu-<h>-<i>`, `nic-<h>-<i>` in the order of the file's numbers, and `switch-<n>` with the
file's own number n.

Sources: the readers of HPCC's simulator (alibaba-edu/High-Precision-Congestion-Control), of PowerTCP and
Reverie (inet-tub/ns3-datacenter), and of SimAI (aliyun/SimAI, gen_Topo_Template.py writes such files).

Not modelled: error rates other than 0, which belong under `faults`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from emu.base.errors import FormatError, Problem, QuantityError, ScenarioError
from emu.base.spelling import listed
from emu.base.units import format_rate, format_time, parse_rate, parse_time
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut, whole_number
from emu.scenario.readers.htsim import HtsimError, read_topo
from emu.scenario.readers.read_fabric import EdgeList, ReadLink, ReadNode
from emu.scenario.yaml.document import Node, Place, decode

FORMATS: Final = ("ns3", "simai", "htsim")
MOST_NODES: Final = 65536
_LEAST_DIGITS: Final = 7
"""Fewest digits of a rate in bits a second; a shorter number lacks its unit."""
MOST_LINKS: Final = 262144


class EdgeListError(FormatError):
    """A file that is no such list."""


class _Word(NamedTuple):
    text: str
    line: int


class _Words:
    """The words of a file, one after the other."""

    def __init__(self, text: str) -> None:
        self._words = [
            _Word(word, line) for line, row in enumerate(text.splitlines(), 1) for word in row.split()
        ]
        self._next = 0
        self.line = 1

    def word(self, what: str) -> str:
        """The next word, which is `what`."""
        if self._next == len(self._words):
            raise EdgeListError(self.line, f"the file ends before {what}", what)
        text, self.line = self._words[self._next]
        self._next += 1
        return text

    def number(self, what: str, least: int, most: int) -> int:
        """The next word as a number from `least` to `most`."""
        return whole_number(EdgeListError, self.line, self.word(what), least, most, f"{what},")

    def in_first_line(self) -> int:
        """How many words the first line has that has any."""
        return sum(line == self._words[0].line for _, line in self._words) if self._words else 0

    def end(self, links: int, *, whole: bool) -> None:
        """Refuse what follows the last link: in its line, and in lines below if the file is to be `whole`."""
        if self._next < len(self._words) and (whole or self._words[self._next].line == self.line):
            text, line = self._words[self._next]
            reason = f"{text[:LONGEST_SHOWN]!r} follows the last of {links} links"
            raise EdgeListError(line, reason, "as many links as the first line says")


class _Header(NamedTuple):
    nodes: int
    per_server: int
    nvswitches: int
    switches: int
    links: int
    beside: tuple[str, ...]
    """What else the first line says."""


def read_edge_list(text: str, file_format: str) -> EdgeList:
    """Nodes and links of a file in one of `FORMATS`. EdgeListError names the line of what is wrong."""
    assert file_format in FORMATS, file_format
    if file_format == "htsim":
        try:
            return read_topo(text)
        except HtsimError as error:
            raise EdgeListError(error.line, error.reason, error.accepted) from error
    words = _Words(text)
    header = _simai_header(words) if file_format == "simai" else _ns3_header(words)
    ends = words.line
    inside = _numbers(words, header, header.nvswitches, {}, "the number of an NVSwitch")
    switches = _numbers(words, header, header.switches, inside, "the number of a switch")
    names: dict[int, str] = {number: f"switch-{number}" for number in switches}
    nodes: list[ReadNode] = []
    gpus = [number for number in range(header.nodes) if number not in switches and number not in inside]
    server_of: dict[int, int] = {}
    for place, number in enumerate(gpus):
        host, index = divmod(place, header.per_server)
        if index == 0:
            nodes.append(ReadNode(ends, f"host-{host}", "host"))
        nodes.append(ReadNode(ends, f"gpu-{host}-{index}", "gpu", f"host-{host}"))
        nodes.append(ReadNode(ends, f"nic-{host}-{index}", "nic", f"host-{host}"))
        names[number] = f"nic-{host}-{index}"
        server_of[number] = host
    nodes += [ReadNode(line, names[number], "switch") for number, line in switches.items()]
    nvlinks = _Nvlinks(gpus)
    left_out = LeftOut(*header.beside)
    links: list[ReadLink] = []
    for _ in range(header.links):
        link, ends_at = _link(words, header.nodes)
        if set(ends_at) & inside.keys():
            if not nvlinks.take(link, [end for end in ends_at if end in server_of]):
                left_out.add(f"link of an NVSwitch to a switch or an NVSwitch of {link.rate}, {link.delay}")
        elif header.per_server > 1 and server_of.get(ends_at[0], -1) == server_of.get(ends_at[1], -2):
            nvlinks.take(link, ends_at)
        else:
            links.append(link._replace(a=names[ends_at[0]], b=names[ends_at[1]]))
    words.end(header.links, whole=file_format == "simai")
    rate, delay = nvlinks.of_each()
    if not rate and (uneven := nvlinks.uneven()):
        left_out.add(uneven)
    return EdgeList(nodes, links, rate, delay, left_out)


class _Nvlinks:
    """What each GPU has of links inside its server."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self._rates_bps = dict.fromkeys(gpus, 0)
        self._delays_ps: dict[int, None] = {}

    def take(self, link: ReadLink, gpus: Sequence[int]) -> bool:
        """Count a link for the GPUs at its ends; whether there are any."""
        try:
            rate_bps, delay_ps = parse_rate(link.rate), parse_time(link.delay)
        except QuantityError as error:
            raise EdgeListError(
                link.line, str(error), "a rate such as 400Gbps, a delay such as 500ns"
            ) from None
        for gpu in gpus:
            self._rates_bps[gpu] += rate_bps
        if gpus:
            self._delays_ps[delay_ps] = None
        return bool(gpus)

    def of_each(self) -> tuple[str, str]:
        """Rate and delay of every GPU; empty where they differ, or there are none."""
        rates_bps = set(self._rates_bps.values())
        if len(rates_bps) != 1 or len(self._delays_ps) != 1:
            return "", ""
        return format_rate(rates_bps.pop()), format_time(next(iter(self._delays_ps)))

    def uneven(self) -> str:
        """What they come to in words, where GPUs differ; empty for none."""
        if not self._delays_ps:
            return ""
        rates = dict.fromkeys(format_rate(rate) if rate else "none" for rate in self._rates_bps.values())
        delays = [format_time(delay_ps) for delay_ps in self._delays_ps]
        return f"NVLink of GPUs that differ in it ({listed(rates, 8)}; {listed(delays, 8)})"


def left_out(text: str) -> str:
    """What a valid `ns3` file has after its last link, in words; empty for nothing."""
    words = _Words(text)
    header = _ns3_header(words)
    for _ in range(header.switches + 5 * header.links):
        words.word("a word that is there")
    rows = [line for line in text.splitlines()[words.line :] if line.strip()]
    if not rows:
        return ""
    links = sum(len(row.split()) == 5 and row.split()[0].isdecimal() for row in rows)
    return f"{len(rows)} lines after the last of {header.links} links are left out, {links} of them links"


def ranks_of(text: str) -> dict[int, int]:
    """By number in an `ns3` file, the place of each host among the hosts. Raises EdgeListError."""
    words = _Words(text)
    header = _ns3_header(words)
    switches = _numbers(words, header, header.switches, {}, "the number of a switch")
    hosts = [number for number in range(header.nodes) if number not in switches]
    return {number: rank for rank, number in enumerate(hosts)}


def _ns3_header(words: _Words) -> _Header:
    nodes = words.number("how many nodes", 1, MOST_NODES)
    switches = words.number("how many switches", 0, nodes)
    counted = words.in_first_line()
    beside = []
    if counted in (4, 6):
        beside.append(f"number of ToRs {words.number('how many ToRs', 0, nodes)}")
    links = words.number("how many links", 1, MOST_LINKS)
    both = ("servers", "spines") if counted == 6 else ()
    beside += [f"rate of {what} {words.word(f'a rate of {what}')[:LONGEST_SHOWN]}" for what in both]
    return _Header(nodes, 1, 0, switches, links, tuple(beside))


def _simai_header(words: _Words) -> _Header:
    nodes = words.number("how many nodes", 1, MOST_NODES)
    per_server = words.number("GPUs in a server", 1, nodes)
    nvswitches = words.number("how many NVSwitches", 0, nodes)
    switches = words.number("how many switches", 0, nodes - nvswitches)
    links = words.number("how many links", 1, MOST_LINKS)
    gpu = f"type of GPU {words.word('the type of GPU')[:LONGEST_SHOWN]}"
    gpus = nodes - nvswitches - switches
    if gpus % per_server:
        reason = f"{gpus} GPUs do not divide into servers of {per_server}"
        raise EdgeListError(words.line, reason, "a number of GPUs that does")
    return _Header(nodes, per_server, nvswitches, switches, links, (gpu,))


def _numbers(words: _Words, header: _Header, count: int, taken: dict[int, int], what: str) -> dict[int, int]:
    """The next node numbers, and the line of each."""
    found: dict[int, int] = {}
    for _ in range(count):
        number = words.number(what, 0, header.nodes - 1)
        if number in found or number in taken:
            raise EdgeListError(words.line, f"{number} is listed twice", "each switch once")
        found[number] = words.line
    return found


def _link(words: _Words, nodes: int) -> tuple[ReadLink, tuple[int, int]]:
    """The next link without the names of its ends, and their numbers."""
    first = words.number("a link's source", 0, nodes - 1)
    line = words.line
    second = words.number("a link's destination", 0, nodes - 1)
    if first == second:
        raise EdgeListError(line, f"a link from {first} to itself", "two different nodes")
    rate = words.word("a link's rate, such as 400Gbps")
    if not rate.strip("0123456789.") and len(rate.partition(".")[0]) >= _LEAST_DIGITS:
        rate += "bps"
    delay = words.word("a link's delay, such as 500ns")
    error_rate = words.word("a link's error rate")
    if error_rate.strip("0.") or not error_rate.strip("."):
        reason = f"an error rate of {error_rate[:LONGEST_SHOWN]!r} is not part of a fabric"
        raise EdgeListError(words.line, reason, "0; what breaks is said under faults")
    return ReadLink(line, "", "", rate, delay), (first, second)


KEY = "topology.path"


def put_fabric_in_place(
    tree: Node, directory: Path, read_file: Callable[[Path], bytes], notes: list[str]
) -> list[Problem]:
    """Replace a fabric that names a file by what the file says, and note what is left out of it; returns what
    could not be read."""
    topology = tree.child("topology")
    if topology is None or not isinstance(topology.value, dict):
        return []
    given = {key: node.value for key, node in topology.value.items()}
    name, file_format = given.get("path"), given.get("format")
    right = given.get("kind") == "file" and sorted(given) == ["format", "kind", "path"]
    if not (right and isinstance(name, str) and name and file_format in FORMATS):
        return []
    path = directory / name
    try:
        text = decode(read_file(path), str(path))
        read = read_edge_list(text, str(file_format))
        if file_format == "ns3" and (rest := left_out(text)):
            notes.append(f"{path}: {rest}")
        if read.nvlink_rate:
            read.left_out.add(f"NVLink of {read.nvlink_rate} and {read.nvlink_delay}, see host.nvlink")
        if note := read.left_out.note():
            notes.append(f"{path}: {note}")
    except ScenarioError as error:
        place = topology.keys["path"]
        return [
            Problem(place.file, place.line, KEY, f"{path}: {problem.reason}", problem.accepted)
            for problem in error.problems
        ]
    except EdgeListError as error:
        return [Problem(str(path), error.line, KEY, error.reason, error.accepted)]
    nodes, links = (
        [_node(one, str(path)) for one in read.nodes],
        [_link_row(one, str(path)) for one in read.links],
    )
    _replace(topology, nodes, links)
    return []


def _replace(topology: Node, nodes: list[Node], links: list[Node]) -> None:
    place = topology.keys["path"]
    kind = topology.keys["kind"]
    topology.value = {"kind": Node("graph", kind), "nodes": Node(list(nodes), place)}
    topology.value["links"] = Node(list(links), place)
    topology.keys = {"kind": kind, "nodes": place, "links": place}


def _node(node: ReadNode, file: str) -> Node:
    cells = {"name": node.name, "role": node.role}
    if node.host:
        cells["host"] = node.host
    return _mapping(cells, Place(file, node.line))


def _link_row(link: ReadLink, file: str) -> Node:
    cells = {"a": link.a, "b": link.b, "rate": link.rate, "delay": link.delay}
    return _mapping(cells, Place(file, link.line))


def _mapping(cells: dict[str, str], place: Place) -> Node:
    node = Node({key: Node(text, place) for key, text in cells.items()}, place)
    node.keys = dict.fromkeys(cells, place)
    return node
