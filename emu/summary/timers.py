"""Timers of queue pairs that expired, and what is known of why.

A timer is the transport's last resort: it expires because packets or their answers were lost, because the
answer took longer than the timer, because the peer is gone, or because nobody asked again for what a
responder threw away. A run in which one expired says so, with those of these reasons that were counted.

Source: InfiniBand Architecture Specification volume 1, section 9.7.5 (responses before the oldest packet in
flight are dropped), and section 9.7.6 (the timer).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.kernel.counters import (
    NIC_DUPLICATE_REQUEST,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_OUT_OF_SEQUENCE,
    NIC_ROCE_ADP_RETRANS,
)
from emu.base.units import about_time, counted, shown_time
from emu.counts.counts import Counts
from emu.counts.device_state import TIMER
from emu.results.summary import Timers


class Expired(NamedTuple):
    """One timer that expired, as its NIC noted it."""

    at_ps: int
    nic: int
    qpn: int
    ran_ps: int
    """How long it ran."""
    late_nak: bool
    """Whether what it waited for was sent before a NAK came that an acknowledgement had overtaken."""


def expired_in(logs: Iterable[tuple[int, Sequence[Sequence[int]]]]) -> list[Expired]:
    """The timers that NICs noted, in order of time; a NIC's number and the rows of its log."""
    found = [
        Expired(at_ps, nic, qpn, ran_ps, bool(late))
        for nic, rows in logs
        for at_ps, item, _, qpn, ran_ps, late in rows
        if item == TIMER
    ]
    return sorted(found)


class Seen(NamedTuple):
    """What a whole run counted that bears on its timers."""

    expired: int
    dropped: int
    out_of_sequence: int
    duplicates: int
    """Packets that receivers had already."""


def reasons(seen: Seen, after_late_naks: int) -> list[str]:
    """Why timers expired, as far as counters tell; never empty."""
    found: list[str] = []
    if after_late_naks:
        found.append(
            f"of {after_late_naks} the packets had been asked for by a NAK that an acknowledgement overtook: "
            "paths reorder, such a NAK is dropped by specification, and only the timer is left"
        )
    if after_late_naks >= seen.expired:
        return found
    if seen.dropped:
        found.append(f"{counted(seen.dropped, 'frame')} dropped")
    if seen.duplicates:
        found.append(
            f"{counted(seen.duplicates, 'packet')} sent again had arrived already: answers took longer than "
            "the timer or were lost"
        )
    if not found and seen.out_of_sequence:
        found.append(
            f"no frame was dropped; {counted(seen.out_of_sequence, 'packet')} came out of sequence, and "
            "receivers ask once for each gap"
        )
    return found or ["no frame was dropped or out of sequence: nobody answered within the timer"]


def timers_of(
    topology: Topology, logs: Iterable[tuple[int, Sequence[Sequence[int]]]], counts: Counts
) -> Timers | None:
    """The part of the summary; None if no timer expired."""
    total = counts.total(NIC_LOCAL_ACK_TIMEOUT_ERR) + counts.total(NIC_ROCE_ADP_RETRANS)
    if not total:
        return None
    noted = expired_in(logs)
    seen = Seen(
        total,
        sum(counts.of_reason.values()),
        counts.total(NIC_OUT_OF_SEQUENCE),
        counts.total(NIC_DUPLICATE_REQUEST),
    )
    why = "; ".join(reasons(seen, sum(one.late_nak for one in noted)))
    if not noted:
        return Timers(expired=total, nic="", at_ps=0, ran_ps=0, why=why)
    first = noted[0]
    return Timers(
        expired=total, nic=topology.nodes[first.nic].name, at_ps=first.at_ps, ran_ps=first.ran_ps, why=why
    )


def timer_lines(timers: Timers | None) -> list[str]:
    """A line about them; none if no timer expired."""
    if timers is None:
        return []
    first = ""
    if timers.nic:
        first = f", the first of {timers.nic} at {shown_time(timers.at_ps)} after {about_time(timers.ran_ps)}"
    return [f"timers: {timers.expired} expired{first}; {timers.why}"]
