"""Links that are up and not what they should be: slow, late, spoiling frames, swapped, or not routed over.

A port's speed is configuration that it shows and logs. Frames with a wrong FCS are counted where they arrive,
so they tell the direction. How long a frame takes is what time stamps at both ends of a link tell (PTP). A
link that was meant to have bit errors (`link.bit_error_rate`) is not blamed for them.

Each port says who its neighbour is (LLDP), which is compared with the intended fabric. A switch is drained if
its neighbours withdrew their routes through it while the links to it were up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from actors.fabric.model import Role
from actors.kernel.counters import PORT_DROPPED_FRAMES, PORT_RECEIVE_FRAMES
from emu.base.units import about_rate, about_time, shown_time
from emu.counts.device_state import ROUTE, SPEED
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View


def found(view: View) -> Iterator[Finding]:
    """Slow or spoiling links first, then late ones, swapped cables, and drained switches."""
    yield from _degraded(view)
    yield from _late(view)
    yield from _swapped(view)
    yield from _drained(view)


def _degraded(view: View) -> Iterator[Finding]:
    """One finding for each link, whatever is wrong with it and in which direction."""
    parts: dict[str, list[tuple[str, str, int, int]]] = {}
    for number in view.striking("log", "differs"):
        for port, (rate_bps, built_bps, at_ps) in speeds(view, number).items():
            what = f"sends at {about_rate(rate_bps)} towards {view.name(view.peer(number, port)[0])}"
            where = f"{view.port_name(number, port)}: speed {about_rate(rate_bps)}"
            if built_bps:
                where += f", meant to be {about_rate(built_bps)}"
            parts.setdefault(view.link_name(number, port), []).append(
                (f"{view.name(number)} {what}", where, at_ps, 0)
            )
        for port, _ in view.fabric_ports(number):
            spoilt = view.dropped(number, port, "corrupt")
            if not spoilt:
                continue
            name = view.link_name(number, port)
            meant = view.scenario.link_at(view.topology, view.topology.ports(number)[port].link)
            if meant.bit_error_rate:
                continue
            came = view.total(PORT_RECEIVE_FRAMES, number, port) + spoilt
            sender = view.name(view.peer(number, port)[0])
            where = f"{sender}>{view.name(number)}"
            when = view.when(PORT_DROPPED_FRAMES, number, port, "corrupt")
            parts.setdefault(name, []).append(
                (
                    f"{spoilt} of {came} frames from {sender} came with a wrong FCS",
                    f'{where}: {PORT_DROPPED_FRAMES} reason "corrupt" {spoilt}{when}',
                    view.since(PORT_DROPPED_FRAMES, number, port, "corrupt"),
                    spoilt,
                )
            )
    for name, found_there in parts.items():
        spoilt = sum(one[3] for one in found_there)
        yield Finding(
            "degraded_link",
            name,
            880 + min(spoilt, 15),
            f"link {name} is degraded: {', '.join(dict.fromkeys(one[0] for one in found_there))}",
            tuple(one[1] for one in found_there),
            min(one[2] for one in found_there),
            alarms=spoilt > 0,
            has_impact=True,
        )


def speeds(view: View, number: int) -> dict[int, tuple[int, int, int]]:
    """Port to its slowest speed, the one it should have (0 if it has it again), and since when."""
    found_there: dict[int, tuple[int, int, int]] = {}
    for at_ps, item, port, rate_bps, *_ in view.rows(number, "log"):
        if item == SPEED and rate_bps > 0 and (port not in found_there or rate_bps < found_there[port][0]):
            since_ps = found_there[port][2] if port in found_there else at_ps
            found_there[port] = (rate_bps, 0, since_ps)
    for item, port, rate_bps, _, _, built_bps, *_ in view.rows(number, "differs"):
        if item == SPEED:
            since_ps = found_there[port][2] if port in found_there else 0
            found_there[port] = (rate_bps, built_bps, since_ps)
    return found_there


def _late(view: View) -> Iterator[Finding]:
    parts: dict[str, list[tuple[int, int, str, str]]] = {}
    for number in view.striking("late"):
        for port, frames, late_ps, latest_ps, since_ps in view.rows(number, "late"):
            where = view.port_name(number, port)
            mean = about_time(late_ps // frames)
            line = f"{where}: {frames} frames late by {mean}, one by {about_time(latest_ps)} (time stamps)"
            what = f"frames from {view.name(number)} took {mean} longer than the link, since "
            parts.setdefault(view.link_name(number, port), []).append(
                (since_ps, frames, what + shown_time(since_ps), line)
            )
    for name, rows in parts.items():
        most = max(rows, key=lambda row: row[1])
        yield Finding(
            "delayed_link",
            name,
            840,
            f"link {name} is late: {most[2]}",
            tuple(row[3] for row in rows),
            min(row[0] for row in rows),
            has_impact=True,
        )


CROWDED_PERMILLE: Final = 1250
"""Load of a link over that of its equals from which on a swapped cable has an impact."""


def _swapped(view: View) -> Iterator[Finding]:
    wrong: dict[str, tuple[str, str]] = {}
    for number in view.striking("neighbours"):
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
        has_impact=_crowded(view, wrong),
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
    for switch in view.striking("log"):
        if view.role(switch) is not Role.SWITCH:
            continue
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
                    has_impact=True,
                )
                break
