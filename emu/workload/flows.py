"""Which rank sends how much to which, and when?

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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from emu.errors import KnobError

SWAPS_PER_RANK: Final = 32
_PURPOSE: Final = 0x464C4F57
"""Names the random stream of permutations ("FLOW")."""


class Flow(NamedTuple):
    """So many bytes from one rank to another, posted `start_ps` after the job's start."""

    src: int
    dst: int
    size_bytes: int
    start_ps: int = 0
    priority: int | None = None
    """Of its queue pairs; None for the job's."""


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
