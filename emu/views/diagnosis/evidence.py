"""What a run counted of losses, reordering and timers, where it accuses no component.

Each finding holds by counters of the whole run: frames with a wrong FCS on links that are meant to have bit
errors, frames dropped for want of room, packets sent again though none was lost, and timers that expired.
They are reported where nothing else is (`emu.views.diagnosis.causes`), so that no run with losses ends
without a word.

A timer is too short if it expired in a run in which nothing was dropped, no port went down, nobody was lost,
no queue pair broke by itself and nothing came out of sequence: then the answer was on its way. That one is a
suspect, and the run is emulated with NCCL's timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.fabric.model import Role
from actors.kernel.counters import (
    NIC_DUPLICATE_REQUEST,
    NIC_OUT_OF_SEQUENCE,
    NIC_RETRANSMITTED_FRAMES,
    PORT_DROPPED_FRAMES,
)
from actors.wire.message import STATUS_RETRY_EXCEEDED
from emu.base.units import about_time, counted, shown_time
from emu.counts.device_state import PAIR_ERROR
from emu.summary.timers import Expired, expired_in
from emu.views.diagnosis.finding import BIT_ERRORS, TIMER_SHORT, Finding
from emu.views.diagnosis.view import PORTS_DOWN, View

MOST_LINES: Final = 4


def found(view: View) -> Iterator[Finding]:
    """Timers first, then losses, then what was sent again without one."""
    dropped = sum(view.total(PORT_DROPPED_FRAMES, number, port) for number, port in _ports(view))
    nics = list(view.numbers(Role.NIC))
    whole = not dropped and not view.alarmed()[PORTS_DOWN] and view.all_answer and not _broken(view, nics)
    overtaken = sum(view.total(NIC_OUT_OF_SEQUENCE, nic) for nic in nics)
    timers = expired_in((nic, view.rows(nic, "log")) for nic in nics)
    yield from _timers(view, timers, whole=whole and not overtaken)
    yield from _bit_errors(view)
    yield from _drops(view, timers)
    again = sum(view.total(NIC_RETRANSMITTED_FRAMES, nic) for nic in nics)
    if whole and overtaken and again:
        worst = max(nics, key=lambda nic: (view.total(NIC_OUT_OF_SEQUENCE, nic), -nic))
        yield Finding(
            "reordering",
            view.name(worst),
            60,
            f"{counted(again, 'packet')} sent again though no frame was dropped: paths differ in delay and "
            f"reorder packets, and {counted(overtaken, 'packet')} came out of sequence",
            (f"{view.name(worst)}: {NIC_OUT_OF_SEQUENCE} {view.total(NIC_OUT_OF_SEQUENCE, worst)}",),
            -1,
            alarms=True,
        )


def _broken(view: View, nics: list[int]) -> bool:
    """Whether a queue pair went into error for another reason than that nobody answered."""
    return any(
        item == PAIR_ERROR and status != STATUS_RETRY_EXCEEDED
        for nic in nics
        for _, item, _, _, status, _ in view.rows(nic, "log")
    )


def _ports(view: View) -> Iterator[tuple[int, int]]:
    """The ports of the devices that dropped something."""
    for number in view.striking():
        for port, _ in view.fabric_ports(number):
            yield number, port


def _timers(view: View, timers: list[Expired], *, whole: bool) -> Iterator[Finding]:
    """Timers that a late NAK explains, and those that were too short; `whole` if nothing was lost or
    overtaken."""
    late = [one for one in timers if one.late_nak]
    if late:
        yield Finding(
            "timer_without_loss",
            view.name(late[0].nic),
            90,
            f"{counted(len(late), 'timer')} expired for packets that a NAK had asked for: an acknowledgement "
            "overtook the NAK, which is dropped then, and nothing else asks",
            _lines(view, late),
            -1,
            alarms=True,
        )
    if not whole or not timers:
        return
    by_nic: dict[int, int] = {}
    for one in timers:
        by_nic[one.nic] = by_nic.get(one.nic, 0) + 1
    worst = max(by_nic, key=lambda nic: (by_nic[nic], -nic))
    had = sum(view.total(NIC_DUPLICATE_REQUEST, nic) for nic in view.numbers(Role.NIC))
    again = f"; {counted(had, 'packet')} sent again had arrived already" if had else ""
    ran_ps = min(one.ran_ps for one in timers)
    yield Finding(
        TIMER_SHORT,
        view.name(worst),
        700,
        f"{counted(len(timers), 'timer')} of queue pairs expired after {about_time(ran_ps)} though nothing "
        f"was dropped or out of sequence: answers take longer than the timer{again}",
        _lines(view, timers),
        timers[0].at_ps,
        alarms=True,
        has_impact=True,
    )


def _lines(view: View, timers: list[Expired]) -> tuple[str, ...]:
    return tuple(
        f"{view.name(one.nic)} log at {shown_time(one.at_ps)}: timer of queue pair {one.qpn} expired after "
        f"{about_time(one.ran_ps)}"
        for one in timers[:MOST_LINES]
    )


def _bit_errors(view: View) -> Iterator[Finding]:
    """Links that are meant to have bit errors, and had them."""
    spoilt: dict[str, int] = {}
    for number, port in _ports(view):
        meant = view.scenario.link_at(view.topology, view.topology.ports(number)[port].link)
        count = view.dropped(number, port, "corrupt")
        if count and meant.bit_error_rate:
            sender = view.name(view.peer(number, port)[0])
            spoilt[f"{sender}>{view.name(number)}"] = count
    if spoilt:
        worst = sorted(spoilt, key=lambda name: (-spoilt[name], name))
        frames, links = counted(sum(spoilt.values()), "frame"), counted(len(spoilt), "link")
        yield Finding(
            BIT_ERRORS,
            worst[0],
            80,
            f"{frames} came with a wrong FCS over {links} "
            f"that the scenario gives bit errors, most over {worst[0]}",
            tuple(
                f'{name}: {PORT_DROPPED_FRAMES} reason "corrupt" {spoilt[name]}'
                for name in worst[:MOST_LINES]
            ),
            -1,
            alarms=True,
        )


def _drops(view: View, timers: list[Expired]) -> Iterator[Finding]:
    """Frames dropped for want of room, and the timers that expired there. TCP finds its rate by drops."""
    if all(transport.is_tcp for transport in view.scenario.transports):
        return
    lost = {number: view.dropped_for_want_of_room(number) for number in view.striking()}
    worst = sorted((number for number in lost if lost[number]), key=lambda number: (-lost[number], number))
    if worst:
        frames = counted(sum(lost.values()), "frame")
        sentence = f"{frames} dropped for want of room, most on {view.name(worst[0])}"
        if timers:
            longest_ps = max(one.ran_ps for one in timers)
            sentence += (
                f"; {counted(len(timers), 'timer')} expired, the longest after {about_time(longest_ps)}"
            )
        yield Finding(
            "drops",
            view.name(worst[0]),
            70,
            sentence,
            tuple(
                f"{view.name(number)}: {PORT_DROPPED_FRAMES} {lost[number]}" for number in worst[:MOST_LINES]
            ),
            -1,
            alarms=True,
        )
