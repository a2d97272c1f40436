"""Parts of a fabric and what is free in them: GPUs in servers, servers in racks, racks in pods.

A unit is a number: a GPU, or a whole server. The smallest parts hold units, all others hold parts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence

from emu.topology.fabric_blocks import Block


class Part:
    """A part of the fabric, and how many of its units are free."""

    __slots__ = ("above", "below", "free", "tier", "units")

    def __init__(self, tier: int, below: Iterable[Part] = (), units: Iterable[int] = ()) -> None:
        self.tier = tier
        """0 for a server, 1 for what is under one leaf, and so on."""
        self.below: tuple[Part, ...] = tuple(below)
        self.units: list[int] = sorted(units)
        """Free ones that no part below holds."""
        self.free: int = len(self.units) + sum(part.free for part in self.below)
        self.above: Part | None = None
        for part in self.below:
            part.above = self

    def take(self, unit: int) -> None:
        """A free unit of this part is free no more."""
        del self.units[bisect_left(self.units, unit)]
        self._count(-1)

    def give_back(self, unit: int) -> None:
        """A unit of this part is free again."""
        insort(self.units, unit)
        self._count(1)

    def _count(self, change: int) -> None:
        part: Part | None = self
        while part is not None:
            part.free += change
            part = part.above


def parts_of(block: Block, leaf: Callable[[int], Part]) -> Part:
    """The part that a block of the fabric is; `leaf` makes the part of a server from its host's number."""
    below = [parts_of(one, leaf) for one in block.below]
    return Part(block.tier, [*below, *map(leaf, block.hosts)])


def fewest_parts(parts: Sequence[Part], count: int) -> list[int]:
    """`count` free units out of as few of these parts as can be, and of those in as few of theirs.

    Of several with room, the one with the least to spare, so that large holes stay whole; where none has
    room, the fullest first, and the rest in the one that fits it best. They stay free.
    """
    if count == 0:
        return []
    fitting = [part for part in parts if part.free >= count]
    if fitting:
        part = min(fitting, key=lambda one: one.free)
        return part.units[:count] if not part.below else fewest_parts(part.below, count)
    fullest = max(parts, key=lambda one: one.free)
    others = [part for part in parts if part is not fullest]
    return fewest_parts([fullest], fullest.free) + fewest_parts(others, count - fullest.free)
