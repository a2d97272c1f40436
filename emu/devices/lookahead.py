"""Lookahead: how soon what one worker does can be felt by another.

The lookahead of a link that crosses is what even the least packet needs: serialisation of the least frame,
propagation, and the receiver's fixed ingress latency; for a pause, the peer's response time in place of
that latency; for a message over a host link, serialisation of a message and the link's delay. Between two
workers the least link counts, and along a path of workers the sum.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from actors.kernel.event import NEVER_PS
from actors.kernel.units import serialisation_ps
from actors.wire.frame import HEAD_WIRE_BYTES, LEAST_WIRE_BYTES, PAUSE_WIRE_BYTES
from actors.wire.message import MESSAGE_BYTES


class Crossing(NamedTuple):
    """One direction of a link between two workers, and the least time anything takes on it."""

    sender: int
    receiver: int
    least_ps: int


def fabric_lookahead_ps(
    rate_bps: int,
    delay_ps: int,
    ingress_latency_ps: int,
    pause_response_ps: int,
    cut_through: bool = False,
    pause_wire_bytes: int = int(PAUSE_WIRE_BYTES),
) -> int:
    """The least time of a frame (its head, to a switch that cuts through), or of a pause or an update of
    credits, over a fabric link."""
    least_bytes = int(HEAD_WIRE_BYTES) if cut_through else int(LEAST_WIRE_BYTES)
    frame_ps = serialisation_ps(least_bytes, rate_bps) + ingress_latency_ps
    pause_ps = serialisation_ps(pause_wire_bytes, rate_bps) + pause_response_ps
    return min(frame_ps, pause_ps) + delay_ps


def message_lookahead_ps(rate_bps: int, delay_ps: int) -> int:
    """The least time of a message over a host link."""
    return serialisation_ps(int(MESSAGE_BYTES), rate_bps) + delay_ps


def close_lookaheads(workers: int, crossings: Iterable[Crossing]) -> list[list[int]]:
    """The least time along any path: row = where something happens, column = where it is felt.

    On the diagonal is the shortest cycle. NEVER_PS where there is no path.
    """
    least = [[NEVER_PS] * workers for _ in range(workers)]
    for crossing in crossings:
        assert crossing.least_ps > 0 and crossing.sender != crossing.receiver, crossing
        row = least[crossing.sender]
        row[crossing.receiver] = min(row[crossing.receiver], crossing.least_ps)
    for middle in range(workers):
        onwards = least[middle]
        for row in least:
            first = row[middle]
            if first < NEVER_PS:
                for end in range(workers):
                    if first + onwards[end] < row[end]:
                        row[end] = first + onwards[end]
    return least


def neighbours_of(worker: int, crossings: Sequence[Crossing]) -> list[int]:
    """The workers that exchange packets with one, in order."""
    found = {c.receiver for c in crossings if c.sender == worker}
    found |= {c.sender for c in crossings if c.receiver == worker}
    return sorted(found)
