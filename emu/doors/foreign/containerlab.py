"""Reader of containerlab's topologies (`*.clab.yml`): nodes by kind, and links between their interfaces.

    topology:
      nodes:
        leaf1: {kind: nokia_srlinux}
        h1: {kind: linux}
      links:
        - endpoints: ["leaf1:e1-1", "h1:eth1"]

A node of kind `linux` is a server with one GPU and one NIC that has all its links; every other kind is a
switch (`kinds`, `groups` and `defaults` of the file count). Both forms of links are read: a list of two
endpoints, and `type: veth` with `node` and `interface`. A file says no rates and no lengths: the rate is that
of whoever reads it, and the delay 500 ns. What else a node or the file has (images, addresses, startup
configurations) is left out and named, and so are links that end outside (`host`, `mgmt-net`, `macvlan`).

Source: srl-labs/containerlab, `docs/manual/topo-def-file.md`.
"""

from collections.abc import Mapping
from typing import Any, Final

from emu.base.errors import FormatError, ScenarioError
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut, limited
from emu.scenario.readers.read_fabric import EdgeList, ReadLink, ReadNode, server
from emu.scenario.yaml.document import Node, read_document

DELAY: Final = "500ns"
MOST_NODES: Final = 4096
MOST_LINKS: Final = 65536
_OUTSIDE: Final = ("host", "mgmt-net", "macvlan", "dummy", "vxlan", "vxlan-stitch")


class ContainerlabError(FormatError):
    """A file that is no such topology."""


def is_containerlab(text: str) -> bool:
    """Whether a text looks like one: it has `topology`, `nodes` and `endpoints`."""
    keys = {line.strip().lstrip("- ").partition(":")[0] for line in text.splitlines()}
    return {"topology", "nodes", "endpoints"} <= keys


def read_containerlab(text: str, rate: str) -> EdgeList:
    """The fabric of a file, whose links all have this rate. Raises ContainerlabError."""
    try:
        root, problems = read_document(text, "")
    except ScenarioError as error:
        problem = error.problems[0]
        raise ContainerlabError(problem.line, problem.reason, problem.accepted) from error
    if problems:
        raise ContainerlabError(problems[0].line, problems[0].reason, problems[0].accepted)
    topology = root.child("topology")
    nodes = None if topology is None else topology.child("nodes")
    if topology is None or nodes is None or not isinstance(nodes.value, dict):
        raise ContainerlabError(1, "no nodes under `topology`", "topology.nodes, each with its kind")
    limited(ContainerlabError, nodes.place.line, len(nodes.value), MOST_NODES, "nodes")
    left_out = LeftOut()
    for name, node in (*_cells(root).items(), *_cells(topology).items()):
        if name not in ("topology", "nodes", "links", "defaults", "kinds", "groups"):
            left_out.add(f"{name} ({_shown(node)})")
    found: list[ReadNode] = []
    names: dict[str, str] = {}
    servers = 0
    for name, node in nodes.value.items():
        kind = _kind(topology, node, name, left_out)
        if kind == "linux":
            names[name] = server(found, node.place.line, servers)
            servers += 1
        else:
            names[name] = name
            found.append(ReadNode(node.place.line, name, "switch"))
    links = [link for one in _items(topology.child("links")) if (link := _link(one, names, rate, left_out))]
    limited(ContainerlabError, 1, len(links), MOST_LINKS, "links")
    if links:
        left_out.add("names of interfaces")
    if servers:
        left_out.add("names of hosts")
    return EdgeList(found, links, "", "", left_out)


def _cells(node: Node | None) -> Mapping[str, Node]:
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _items(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _shown(node: Node) -> str:
    return " ".join(str(node.plain()).split())[:LONGEST_SHOWN]


def _kind(topology: Node, node: Node, name: str, left_out: LeftOut) -> str:
    """The kind of a node: its own, its group's or the default."""
    own, defaults = _cells(node), _cells(topology.child("defaults"))
    group = own["group"].value if "group" in own else None
    of_group = _cells(_cells(topology.child("groups")).get(str(group)))
    kind: Any = next((one["kind"].value for one in (own, of_group, defaults) if "kind" in one), None)
    if not isinstance(kind, str) or not kind:
        raise ContainerlabError(
            node.place.line, f"node {name[:LONGEST_SHOWN]!r} has no kind", "linux, or a switch's"
        )
    of_kind = _cells(_cells(topology.child("kinds")).get(kind))
    for part in (own, of_group, of_kind, defaults):
        for key, value in part.items():
            if key not in ("kind", "group"):
                left_out.add(f"{key} ({_shown(value)})")
    if kind != "linux":
        left_out.add(f"kind {kind[:LONGEST_SHOWN]} of switches")
    return kind


def _link(node: Node, names: Mapping[str, str], rate: str, left_out: LeftOut) -> ReadLink | None:
    line, cells = node.place.line, _cells(node)
    for key, value in cells.items():
        if key not in ("endpoints", "type"):
            left_out.add(f"{key} of a link ({_shown(value)})")
    kind = str(cells["type"].value) if "type" in cells else "veth"
    if kind != "veth":
        left_out.add(f"link of type {kind[:LONGEST_SHOWN]}")
        return None
    ends: list[str] = []
    for one in _items(cells.get("endpoints")):
        of = _cells(one)
        ends.append(str(of["node"].value) if "node" in of else str(one.value).partition(":")[0])
        for key, value in of.items():
            if key not in ("node", "interface"):
                left_out.add(f"{key} of an endpoint ({_shown(value)})")
    if len(ends) != 2:
        raise ContainerlabError(line, f"a link with {len(ends)} endpoints", 'endpoints: ["a:eth1", "b:eth1"]')
    if any(end in _OUTSIDE for end in ends):
        left_out.add(f"link of {ends[0][:LONGEST_SHOWN]} to {ends[1][:LONGEST_SHOWN]}")
        return None
    for end in ends:
        if end not in names:
            raise ContainerlabError(line, f"there is no node {end[:LONGEST_SHOWN]!r}", "a node of the file")
    return ReadLink(line, names[ends[0]], names[ends[1]], rate, DELAY)
