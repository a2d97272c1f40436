"""Roots of pause trees, circles of pauses, and whether there is a reason for them.

A switch that says stop because its egress was told to stop passes on what began elsewhere. So one goes along
the paused ports until somebody says stop who is not stopped: the root. A NIC has no egress behind it; if its
receive buffer filled, memory behind it is slow, and if it did not, it storms: a port that says stop while its
buffer is all but empty. A port that received fewer pauses than its peer sent does not hear them.

A deadlock is a circle of ports that hold frames for each other and are told to hold them, at a stall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actors.fabric.model import Role
from actors.kernel.counters import (
    INGRESS_PEAK_BYTES,
    NIC_CONTEXT_MISSES,
    PFC_PAUSED_PS,
    PFC_RECEIVE_XOFF_FRAMES,
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_WATCHDOG_STORMS,
)
from emu.base.units import about_size, about_time
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View

EMPTY_FRAMES = 3
"""A buffer that never held more frames than this is all but empty: nothing to say stop for."""
LOST_PAUSES = 2
"""Pauses that may be on their way when the run ends."""
IMPACT_PERMILLE = 50


def found(view: View) -> Iterator[Finding]:
    """Circles, storms, slow receivers, and ports that do not hear."""
    yield from _circle(view)
    yield from _roots(view)
    yield from _deaf(view)


def victims(view: View, number: int, port: int) -> list[str]:
    """Who stood still because of a port's pauses, from its peer outwards, nearest first."""
    peer, _ = view.peer(number, port)
    seen, order = {number: True}, [peer]
    for node in order:
        if node in seen:
            continue
        seen[node] = True
        if view.role(node) is Role.SWITCH:
            for own, _ in view.fabric_ports(node):
                other, other_port = view.peer(node, own)
                reported = view.total(PFC_TRANSMIT_XOFF_FRAMES, node, own)
                if reported and view.total(PFC_PAUSED_PS, other, other_port):
                    order.append(other)
    return [view.name(node) for node in dict.fromkeys(order)]


def _roots(view: View) -> Iterator[Finding]:
    frame_bytes = max(one.mtu_bytes for one in view.scenario.transports) + 100
    stopping = {number for number, _ in view.counting(PFC_TRANSMIT_XOFF_FRAMES)}
    for number in sorted(stopping.union(view.striking("receive"))):
        for port, _ in view.fabric_ports(number):
            sent = view.total(PFC_TRANSMIT_XOFF_FRAMES, number, port)
            if not sent and view.role(number) is not Role.NIC:
                continue
            fills = _fills(view, number, port)
            if not sent:
                if max(fills.values(), default=0) > EMPTY_FRAMES * frame_bytes:
                    yield _slow_receiver(view, number, port, fills)
                continue
            empty = [
                priority
                for priority in view.by_priority(PFC_TRANSMIT_XOFF_FRAMES, number, port)
                if fills.get(priority, 0) <= EMPTY_FRAMES * frame_bytes
            ]
            if empty:
                yield _storm(view, number, port, empty, fills)
            elif view.role(number) is Role.NIC:
                yield _slow_receiver(view, number, port, fills)


def _fills(view: View, number: int, port: int) -> Mapping[int, int]:
    """By priority, the most that the buffer behind a port held."""
    if view.role(number) is Role.NIC:
        rows = view.rows(number, "receive")
        return {priority: peak for own, priority, peak, _ in rows if own == port}
    return view.by_priority(INGRESS_PEAK_BYTES, number, port)


def _paused(view: View, number: int, port: int) -> int:
    """How long the peer of a port stood still, for its most paused priority."""
    peer, peer_port = view.peer(number, port)
    return max(view.by_priority(PFC_PAUSED_PS, peer, peer_port).values(), default=0)


def _tree(view: View, number: int, port: int) -> str:
    waiting = victims(view, number, port)
    shown = ", ".join(waiting[:6]) + (f" and {len(waiting) - 6} more" if len(waiting) > 6 else "")
    return f"behind it stood still: {shown}"


def _storm(view: View, number: int, port: int, empty: list[int], fills: Mapping[int, int]) -> Finding:
    where = view.port_name(number, port)
    paused_ps = _paused(view, number, port)
    peer, peer_port = view.peer(number, port)
    classes = ", ".join(map(str, empty))
    held = about_size(max((fills.get(one, 0) for one in empty), default=0))
    sent = view.total(PFC_TRANSMIT_XOFF_FRAMES, number, port)
    storms = view.total(PFC_WATCHDOG_STORMS, peer, peer_port)
    when = view.when(PFC_TRANSMIT_XOFF_FRAMES, number, port)
    evidence = [
        f"{where}: {PFC_TRANSMIT_XOFF_FRAMES} {sent}{when}, its buffer held at most {held}",
        f"{view.port_name(peer, peer_port)}: pfc_paused {about_time(paused_ps)}",
        _tree(view, number, port),
    ]
    if storms:
        evidence.append(f"{view.port_name(peer, peer_port)}: the watchdog saw {storms} storms")
    return Finding(
        "pause_storm",
        where,
        930,
        f"{view.name(number)} told {view.name(peer)} to stop priority {classes} for {about_time(paused_ps)} "
        f"though it held no more than {held}: a pause storm, and the root of what was paused",
        tuple(evidence),
        view.since(PFC_TRANSMIT_XOFF_FRAMES, number, port),
        alarms=storms > 0,
        has_impact=paused_ps * 1000 >= view.end_ps * IMPACT_PERMILLE,
    )


def _slow_receiver(view: View, number: int, port: int, fills: Mapping[int, int]) -> Finding:
    paused_ps = _paused(view, number, port)
    peer, peer_port = view.peer(number, port)
    held = about_size(max(fills.values(), default=0))
    sent = view.total(PFC_TRANSMIT_XOFF_FRAMES, number, port)
    sentence = (
        f"{view.name(number)} does not take what arrives as fast as its link brings it: its receive buffer "
        f"filled to {held}"
    )
    evidence = [f"{view.name(number)}: receive buffer held up to {held}"]
    misses = view.total(NIC_CONTEXT_MISSES, number, -1)
    if misses:
        evidence.append(f"{view.name(number)}: {misses} contexts of queue pairs fetched")
    since_ps = -1
    if sent:
        since_ps = view.since(PFC_TRANSMIT_XOFF_FRAMES, number, port)
        when = view.when(PFC_TRANSMIT_XOFF_FRAMES, number, port)
        sentence += (
            f" and it paused {view.name(peer)} for {about_time(paused_ps)}; not the network, but memory "
            "behind the NIC is the root of what was paused"
        )
        evidence += [
            f"{view.port_name(number, port)}: {PFC_TRANSMIT_XOFF_FRAMES} {sent}{when}",
            f"{view.port_name(peer, peer_port)}: pfc_paused {about_time(paused_ps)}",
            _tree(view, number, port),
        ]
    has_impact = paused_ps * 1000 >= view.end_ps * IMPACT_PERMILLE
    return Finding(
        "slow_receiver", view.name(number), 920, sentence, tuple(evidence), since_ps, has_impact=has_impact
    )


def _deaf(view: View) -> Iterator[Finding]:
    stopped = {view.peer(*place)[0] for place in view.counting(PFC_TRANSMIT_XOFF_FRAMES)}
    for number in sorted(stopped):
        for port, _ in view.fabric_ports(number):
            peer, peer_port = view.peer(number, port)
            sent = view.total(PFC_TRANSMIT_XOFF_FRAMES, peer, peer_port)
            heard = view.total(PFC_RECEIVE_XOFF_FRAMES, number, port)
            overruns = view.dropped(peer, peer_port, "headroom_overrun", "receive_overrun")
            in_flight = 0 if overruns else LOST_PAUSES
            if sent - heard <= in_flight or view.rows(number, "downs"):
                continue
            where = view.port_name(number, port)
            when = view.when(PFC_TRANSMIT_XOFF_FRAMES, peer, peer_port)
            yield Finding(
                "pause_loss",
                where,
                890,
                f"{view.name(number)} did not hear {sent - heard} of {sent} pauses that {view.name(peer)} "
                f"sent; {overruns} frames were lost for want of headroom, and pauses lapsed late",
                (
                    f"{view.port_name(peer, peer_port)}: {PFC_TRANSMIT_XOFF_FRAMES} {sent}{when}",
                    f"{where}: {PFC_RECEIVE_XOFF_FRAMES} {heard}",
                    f"{view.port_name(peer, peer_port)}: headroom overruns {overruns}",
                ),
                -1,
                alarms=overruns > 0,
            )


def _circle(view: View) -> Iterator[Finding]:
    if view.ending == "finished":
        return
    onwards: dict[int, list[tuple[int, int]]] = {}
    for number in view.striking("held"):
        for port, waiting, blocked, _, up in view.rows(number, "held"):
            if waiting & blocked and up:
                onwards.setdefault(number, []).append((view.peer(number, port)[0], port))
    circle = _first_circle(onwards)
    if not circle:
        return
    names = " -> ".join(view.name(node) for node, _ in [*circle, circle[0]])
    what, held = ("credits", "has no credits") if view.credited else ("pauses", "is told to hold them")
    evidence = tuple(f"{view.port_name(node, port)}: holds frames and {held}" for node, port in circle)
    yield Finding(
        "deadlock",
        view.name(circle[0][0]),
        1000,
        f"a deadlock of {what}: {names}; each holds frames for the next and {held} by it",
        evidence,
        alarms=True,
    )


def _first_circle(onwards: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Devices of a circle with the port that leads on, from the least of them."""
    for start in sorted(onwards):
        path: list[tuple[int, int]] = []
        if _walk(start, start, onwards, path, {}):
            return path
    return []


def _walk(
    node: int,
    goal: int,
    onwards: dict[int, list[tuple[int, int]]],
    path: list[tuple[int, int]],
    seen: dict[int, bool],
) -> bool:
    for following, port in onwards.get(node, ()):
        path.append((node, port))
        if following == goal:
            return True
        if following > goal and following not in seen:
            seen[following] = True
            if _walk(following, goal, onwards, path, seen):
                return True
        path.pop()
    return False
