"""How fast would flows be if a fluid shared every link max-min fairly? Written from paths alone.

Water-filling: the rates of all flows that are not done rise together until a link is full; its flows stay
there, the others rise on. When a flow is done, the rest is shared anew. Acknowledgements take their part of
the links of their way first, as much as the rates of the flows they belong to say; that is found by
repetition.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

REPETITIONS = 3
"""Each makes the error some fifty times smaller: an ACK is a fiftieth of what it acknowledges."""

Link = tuple[int, int]
"""A device and one of its ports: one direction."""


class Way(NamedTuple):
    """The links of a flow's packets and of their acknowledgements, which go their own way back."""

    data: tuple[Link, ...]
    acks: tuple[Link, ...]


def rates(flows: Sequence[tuple[Link, ...]], room_bps: Mapping[Link, Fraction]) -> list[Fraction]:
    """The max-min fair rate of each flow over its links, on which there is so much room."""
    room = dict(room_bps)
    found = [Fraction(0)] * len(flows)
    rising = list(range(len(flows)))
    while rising:
        load: dict[Link, int] = {}
        for flow in rising:
            for link in flows[flow]:
                load[link] = load.get(link, 0) + 1
        step = min(room[link] / number for link, number in load.items())
        full = {link for link, number in load.items() if room[link] == step * number}
        for link, number in load.items():
            room[link] -= step * number
        for flow in rising:
            found[flow] += step
        rising = [flow for flow in rising if not full.intersection(flows[flow])]
    return found


def rates_beside_acks(ways: Sequence[Way], capacity_bps: int, ack_share: Fraction) -> list[Fraction]:
    """Rates of packets, each of which is followed by an ACK of `ack_share` of its size on the way back."""
    found = [Fraction(0)] * len(ways)
    for _ in range(REPETITIONS):
        room = {link: Fraction(capacity_bps) for way in ways for link in way.data}
        for way, rate in zip(ways, found, strict=True):
            for link in way.acks:
                if link in room:
                    room[link] -= int(rate * ack_share)
        found = [Fraction(int(rate)) for rate in rates([way.data for way in ways], room)]
    return found


def completions_ps(ways: Sequence[Way], wire_bytes: int, capacity_bps: int, ack_share: Fraction) -> list[int]:
    """When each of these flows of so many bytes, which all begin at 0, is through."""
    left = [Fraction(wire_bytes * 8)] * len(ways)
    ends = [0] * len(ways)
    running = list(range(len(ways)))
    now = Fraction(0)
    while running:
        now_bps = rates_beside_acks([ways[flow] for flow in running], capacity_bps, ack_share)
        span = min(left[flow] / rate for flow, rate in zip(running, now_bps, strict=True))
        now += span
        for flow, rate in zip(running, now_bps, strict=True):
            left[flow] -= rate * span
            if left[flow] == 0:
                ends[flow] = int(now * 10**12)
        running = [flow for flow in running if left[flow] > 0]
    return ends
