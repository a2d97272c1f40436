"""Which links does each node have, and which are called what?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.fabric.model import Link, Node


def links_at(nodes: tuple[Node, ...], links: tuple[Link, ...]) -> list[list[int]]:
    """The links of each node in the order of its ports."""
    found: list[list[int]] = [[] for _ in nodes]
    for link in links:
        found[link.a].append(link.number)
        found[link.b].append(link.number)
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
