"""Which flows does a Poisson background post?

Flows arrive one by one, the times between them exponential, each from one rank to another drawn evenly, with
a size drawn from a published distribution. The rate of arrivals follows from the load: load x ranks x a
rank's link rate, in bytes, over the mean size. Between two points of a distribution sizes are evenly spread.

All of it is drawn in integers, so that it is the same everywhere: -ln u, for u of 62 bits, comes from the
binary logarithm worked out bit by bit to 32 places (its error is below 1e-9).

Sources. web_search: DCTCP (SIGCOMM'10), figure 4, and hadoop: Inside the Social Network's (Datacenter)
Network (SIGCOMM'15), figure 6, both as points in HPCC's traffic generator (SIGCOMM'19, `traffic_gen/`
WebSearch_distribution.txt and FbHdp_distribution.txt).

Not modelled: locality within racks and services, requests that are answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

from actors.kernel.mixing import Stream
from actors.kernel.units import BIT_PS_PER_BYTE
from emu.workload.flows import Flow

Points = tuple[tuple[int, int], ...]

SIZES: Final[dict[str, Points]] = {
    "web_search": (
        (0, 0),
        (10_000, 150),
        (20_000, 200),
        (30_000, 300),
        (50_000, 400),
        (80_000, 530),
        (200_000, 600),
        (1_000_000, 700),
        (2_000_000, 800),
        (5_000_000, 900),
        (10_000_000, 970),
        (30_000_000, 1000),
    ),
    "hadoop": (
        (0, 0),
        (100, 10),
        (200, 20),
        (300, 50),
        (350, 150),
        (400, 200),
        (500, 300),
        (600, 400),
        (700, 500),
        (1_000, 600),
        (2_000, 670),
        (7_000, 700),
        (30_000, 720),
        (50_000, 820),
        (80_000, 870),
        (120_000, 900),
        (300_000, 950),
        (1_000_000, 975),
        (2_000_000, 990),
        (10_000_000, 1000),
    ),
}
"""Distribution -> its points: bytes, and the share of flows up to there in thousandths."""

_PURPOSE: Final = 0x504F4953
"""Names the random stream of backgrounds ("POIS")."""
_LN2: Final = 2_977_044_472
"""ln 2 in 2^-32."""
_PLACES: Final = 32
_DRAW_BITS: Final = 62


def mean_bytes(points: Points) -> Fraction:
    """The mean size of a distribution."""
    total = Fraction(0)
    for (low, before), (high, after) in pairwise(points):
        total += Fraction(low + high, 2) * Fraction(after - before, 1000)
    return total


def size_at(points: Points, share: int, scale: Fraction = Fraction(1)) -> int:
    """The size that `share` of 2^62 of all flows are at most, times `scale`; at least one byte."""
    place = share * 1000
    for (low, before), (high, after) in pairwise(points):
        if place < after << _DRAW_BITS:
            into = place - (before << _DRAW_BITS)
            span = (after - before) << _DRAW_BITS
            return max(int((low + Fraction((high - low) * into, span)) * scale), 1)
    return max(int(points[-1][0] * scale), 1)


def exponential(draw: int) -> int:
    """-ln((draw + 1) / 2^62) in 2^-32, for a draw of 62 bits."""
    value = draw + 1
    whole = value.bit_length() - 1
    mantissa = value << (_DRAW_BITS - whole)
    places = 0
    for _ in range(_PLACES):
        mantissa = mantissa * mantissa >> _DRAW_BITS
        places <<= 1
        if mantissa >> (_DRAW_BITS + 1):
            places |= 1
            mantissa >>= 1
    below = (_DRAW_BITS - whole << _PLACES) - places
    return below * _LN2 >> _PLACES


def poisson(
    rates_bps: Sequence[int],
    distribution: str,
    scale: Fraction,
    load: Fraction,
    count: int,
    seed: int,
    job: int,
) -> list[Flow]:
    """`count` flows in the order of their arrivals. `rates_bps` has each rank's link rate."""
    points = SIZES[distribution]
    ranks = len(rates_bps)
    stream = Stream(seed, job, _PURPOSE)
    gap_ps = mean_bytes(points) * scale * BIT_PS_PER_BYTE / (load * sum(rates_bps))
    flows: list[Flow] = []
    at = Fraction(0)
    for _ in range(count):
        at += gap_ps * exponential(stream.draw62()) / 2**_PLACES
        at = Fraction(int(at))
        src = int(stream.below(ranks))
        dst = (src + 1 + int(stream.below(ranks - 1))) % ranks
        flows.append(Flow(src, dst, size_at(points, stream.draw62(), scale), int(at)))
    return flows
