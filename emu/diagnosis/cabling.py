"""Swapped cables, and neighbours that do not route through a switch.

Each port says who its neighbour is (LLDP), which is compared with the intended fabric. A switch is drained if
its neighbours withdrew their routes through it while the links to it were up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from actors.fabric.model import Role
from emu.diagnosis.finding import Finding
from emu.diagnosis.view import View
from emu.measure.device_state import ROUTE
from emu.measure.formatting import shown_time

CROWDED_PERMILLE: Final = 1250


def found(view: View) -> Iterator[Finding]:
    """Swapped cables, then drained switches."""
    yield from _swapped(view)
    yield from _drained(view)


def _swapped(view: View) -> Iterator[Finding]:
    wrong: dict[str, tuple[str, str]] = {}
    for number in view.networked():
        if not view.rows(number, "neighbours"):
            continue
        for port, end in view.fabric_ports(number):
            peer, peer_port = view.peer(number, port)
            if (peer, peer_port) != (end.peer, end.peer_port):
                link = view.topology.links[end.link].name
                is_there = f"{view.name(number)} port {port} sees {view.name(peer)} port {peer_port}"
                wrong.setdefault(link, (is_there, f"{view.name(end.peer)} port {end.peer_port}"))
    if not wrong:
        return
    links = sorted(wrong)
    yield Finding(
        "miscabling",
        links[0],
        865,
        f"cables are swapped: {', '.join(links[:4])} do not lead where they were meant to; "
        f"{wrong[links[0]][0]} in place of {wrong[links[0]][1]}",
        tuple(f"LLDP: {one}; meant: {meant}" for one, meant in wrong.values()),
        0,
        harms=_crowded(view, wrong),
    )


def _crowded(view: View, links: Iterable[str]) -> bool:
    """Whether a switch at one of the links loads its uplinks unequally."""
    ends = {name for link in links for name in link.partition("/")[0].split(":")}
    return any(
        row.switch in ends and row.max_over_mean is not None and row.max_over_mean * 1000 >= CROWDED_PERMILLE
        for row in view.uplinks
    )


def _drained(view: View) -> Iterator[Finding]:
    """Switches around which all their neighbours routed at one instant, while the links were up."""
    around: dict[int, dict[int, dict[int, bool]]] = {}
    topology = view.topology
    for switch in view.numbers(Role.SWITCH):
        down = {view.topology.ports(switch)[row[0]].link for row in view.rows(switch, "downs")}
        for at_ps, item, link, a, *_ in view.rows(switch, "log"):
            if item != ROUTE or a < 0 or link in down:
                continue
            ends = (topology.links[link].a, topology.links[link].b)
            if switch not in ends:
                continue
            other = ends[0] if ends[1] == switch else ends[1]
            around.setdefault(other, {}).setdefault(at_ps, {})[link] = True
    for other, times in around.items():
        links = [end.link for _, end in view.fabric_ports(other)]
        for at_ps, withdrawn in times.items():
            if len(links) > 1 and all(link in withdrawn for link in links):
                name = view.name(other)
                yield Finding(
                    "switch_drained",
                    name,
                    860,
                    f"all {len(links)} neighbours of {name} have routed around it since {shown_time(at_ps)} "
                    "though their links to it are up: it is drained",
                    (f"routes through {name}: withdrawn by all its neighbours; its ports: up",),
                    at_ps,
                    harms=True,
                )
                break
