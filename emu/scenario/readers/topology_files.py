"""How does a fabric that is kept in another simulator's file get into the scenario?

`kind: file` becomes `kind: graph` with the nodes and links of the file, in the tree, before anything is
validated. Each link remembers its line, so an error names it there, and an effective scenario is complete
without the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emu.errors import Problem, ScenarioError
from emu.scenario.readers.edge_list import FORMATS, EdgeListError, ReadLink, ReadNode, read_edge_list
from emu.scenario.yaml.document import decode
from emu.scenario.yaml.tree import Node, Place

KEY = "topology.path"


def put_fabric_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Replace a fabric that names a file by what the file says; returns what could not be read."""
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
        nodes, links = read_edge_list(decode(read_file(path), str(path)), str(file_format))
    except ScenarioError as error:
        place = topology.keys["path"]
        return [
            Problem(place.file, place.line, KEY, f"{path}: {problem.reason}", problem.accepted)
            for problem in error.problems
        ]
    except EdgeListError as error:
        return [Problem(str(path), error.line, KEY, error.reason, error.accepted)]
    _replace(topology, [_node(node, str(path)) for node in nodes], [_link(link, str(path)) for link in links])
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


def _link(link: ReadLink, file: str) -> Node:
    cells = {"a": link.a, "b": link.b, "rate": link.rate, "delay": link.delay}
    return _mapping(cells, Place(file, link.line))


def _mapping(cells: dict[str, str], place: Place) -> Node:
    node = Node({key: Node(text, place) for key, text in cells.items()}, place)
    node.keys = dict.fromkeys(cells, place)
    return node
