"""Flows of a pattern: which rank sends how much to which, and when.

A pattern becomes a list of flows here, from numbers alone, before anything runs: the same arguments give
the same list everywhere. Ranks are those of the job; times count from the job's start.

- permutation: every rank sends to one other and receives from one. `any`: no rank to itself; `distinct`: no
  rank within its rack; `next`: to the rank at the same place in the next rack, the last rack's to the
  first's.
- incast: `fan_in` ranks send to one, those that follow it in rank order, from the start again after the last.

A drawn permutation starts from one that certainly obeys the rule (ranks sorted by rack, each sends to the
rank that is the size of the largest rack further on) and is then mixed by swapping the receivers of two
senders, where the rule allows the swap, 32 times per rank. So it always ends, also where few permutations
are allowed.

Poisson background. Flows arrive one by one, the times between them exponential, each from one rank to another
drawn evenly, with a size drawn from a published distribution. The rate of arrivals follows from the load:
load x ranks x a rank's link rate, in bytes, over the mean size. Between two points of a distribution sizes
are evenly spread.

All of it is drawn in integers, so that it is the same everywhere: -ln u, for u of 62 bits, comes from the
binary logarithm worked out bit by bit to 32 places (its error is below 1e-9).

Poisson incasts, which HPCC and others add to such a background: each has its receiver and its senders drawn
evenly, and all its flows are posted together. The rate of arrivals follows from the load as above, with
`fan_in` times the size of a flow in the place of the mean size.

Sources. web_search: DCTCP (SIGCOMM'10), figure 4, and hadoop: Inside the Social Network's (Datacenter)
Network (SIGCOMM'15), figure 6, both as points in HPCC's traffic generator (SIGCOMM'19, `traffic_gen/`
WebSearch_distribution.txt and FbHdp_distribution.txt); its section 5.1 has the incasts (60 senders, 500 KB
each, 2 % of the capacity).

Not modelled: locality within racks and services, requests that are answered.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from actors.kernel.units import BIT_PS_PER_BYTE
from emu.base.errors import KnobError

SWAPS_PER_RANK: Final = 32
_PURPOSE: Final = 0x464C4F57
"""Names the random stream of permutations ("FLOW")."""


class Flow(NamedTuple):
    """Bytes from one rank to another, posted `start_ps` after the job's start."""

    src: int
    dst: int
    size_bytes: int
    start_ps: int = 0
    priority: int | None = None
    """Priority of its queue pairs; None for the job's."""


class PatternError(KnobError):
    """A pattern that these ranks cannot form. `key` is the knob that asks too much."""


def permutation(racks: Sequence[int], size_bytes: int, spread: str, seed: int, job: int = 0) -> list[Flow]:
    """One flow from every rank, in rank order. `racks` holds each rank's rack; `job` tells jobs' draws apart.

    `spread` is "any", "distinct" or "next". Raises `PatternError` if these ranks allow no such permutation.
    """
    if spread == "next":
        receivers = _next_rack(racks)
    else:
        groups = list(racks) if spread == "distinct" else list(range(len(racks)))
        receivers = _rotated(groups)
        _mix(receivers, groups, Stream(seed, job, _PURPOSE))
    return [Flow(src, dst, size_bytes) for src, dst in enumerate(receivers)]


def incast(
    racks: Sequence[int], size_bytes: int, fan_in: int, destination: int, spread: str = "any"
) -> list[Flow]:
    """`fan_in` flows into one rank, in the order of the senders after it; "distinct" keeps to other racks."""
    count = len(racks)
    if destination >= count:
        accepted = f"a rank from 0 to {count - 1}"
        raise PatternError("destination", f"there is no rank {destination}: the job has {count}", accepted)
    senders = [(destination + step) % count for step in range(1, count)]
    if spread == "distinct":
        senders = [rank for rank in senders if racks[rank] != racks[destination]]
    if fan_in > len(senders):
        where = " in other racks" if spread == "distinct" else ""
        reason = f"{fan_in} senders, but the job has {len(senders)} other ranks{where}"
        raise PatternError("fan_in", reason, f"at most {len(senders)}")
    return [Flow(src, destination, size_bytes) for src in senders[:fan_in]]


def check_ranks(flows: Sequence[Flow], ranks: int) -> list[tuple[int, str, int]]:
    """What in a list of flows names no rank of the job: (flow, "src" or "dst", the number)."""
    return [
        (index, end, rank)
        for index, flow in enumerate(flows)
        for end, rank in (("src", flow.src), ("dst", flow.dst))
        if rank >= ranks
    ]


def _next_rack(racks: Sequence[int]) -> list[int]:
    in_rack: dict[int, list[int]] = {}
    for rank, rack in enumerate(racks):
        in_rack.setdefault(rack, []).append(rank)
    groups = list(in_rack.values())
    if len(groups) < 2 or any(len(group) != len(groups[0]) for group in groups):
        sizes = ", ".join(str(len(group)) for group in groups[:8])
        raise PatternError(
            "racks", f"the job has {sizes} ranks in its racks", "two or more racks, equally full"
        )
    receivers = [0] * len(racks)
    for group, following in zip(groups, [*groups[1:], groups[0]], strict=True):
        for src, dst in zip(group, following, strict=True):
            receivers[src] = dst
    return receivers


def _rotated(groups: list[int]) -> list[int]:
    """Each rank's receiver in a permutation in which nobody stays in its group."""
    members: dict[int, list[int]] = {}
    for rank, group in enumerate(groups):
        members.setdefault(group, []).append(rank)
    line = [rank for ranks in members.values() for rank in ranks]
    step = max(len(ranks) for ranks in members.values())
    if 2 * step > len(line):
        reason = f"one rack has {step} of the job's {len(line)} ranks"
        raise PatternError("racks", reason, "no rack with more than half of the ranks, or racks: any")
    receivers = [0] * len(line)
    for place, src in enumerate(line):
        receivers[src] = line[(place + step) % len(line)]
    return receivers


def _mix(receivers: list[int], groups: list[int], stream: Stream) -> None:
    count = len(receivers)
    for _ in range(SWAPS_PER_RANK * count):
        one, other = stream.below(count), stream.below(count)
        to_one, to_other = receivers[other], receivers[one]
        if groups[one] != groups[to_one] and groups[other] != groups[to_other]:
            receivers[one], receivers[other] = to_one, to_other


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

_ARRIVALS: Final = 0x504F4953
"""Names the random stream of backgrounds ("POIS")."""
_INCASTS: Final = 0x494E4341
"""Names the random stream of incasts ("INCA")."""
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
    stream = Stream(seed, job, _ARRIVALS)
    gap_ps = _mean_gap_ps(mean_bytes(points) * scale, load, rates_bps)
    flows: list[Flow] = []
    at_ps = 0
    for _ in range(count):
        at_ps += int(gap_ps * exponential(stream.draw62()) / 2**_PLACES)
        src = int(stream.below(ranks))
        dst = (src + 1 + int(stream.below(ranks - 1))) % ranks
        flows.append(Flow(src, dst, size_at(points, stream.draw62(), scale), at_ps))
    return flows


def poisson_incasts(
    rates_bps: Sequence[int],
    size_bytes: int,
    fan_in: int,
    load: Fraction,
    count: int,
    seed: int,
    job: int,
) -> list[Flow]:
    """The flows of `count` incasts in the order of their arrivals, `fan_in` flows each. `rates_bps` has each
    rank's link rate. Raises `PatternError` if there are too few ranks.
    """
    ranks = len(rates_bps)
    if fan_in >= ranks:
        reason = f"{fan_in} senders, but the job has {ranks - 1} other ranks"
        raise PatternError("fan_in", reason, f"at most {ranks - 1}")
    stream = Stream(seed, job, _INCASTS)
    gap_ps = _mean_gap_ps(Fraction(fan_in * size_bytes), load, rates_bps)
    flows: list[Flow] = []
    at_ps = 0
    for _ in range(count):
        at_ps += int(gap_ps * exponential(stream.draw62()) / 2**_PLACES)
        dst = int(stream.below(ranks))
        others = [(dst + step) % ranks for step in range(1, ranks)]
        for place in range(fan_in):
            drawn = place + int(stream.below(ranks - 1 - place))
            others[place], others[drawn] = others[drawn], others[place]
            flows.append(Flow(others[place], dst, size_bytes, at_ps))
    return flows


def _mean_gap_ps(bytes_each: Fraction, load: Fraction, rates_bps: Sequence[int]) -> Fraction:
    """Mean time between arrivals of so many bytes each that make up this share of what all links can send."""
    return bytes_each * BIT_PS_PER_BYTE / (load * sum(rates_bps))
