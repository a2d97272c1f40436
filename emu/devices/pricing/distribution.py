"""What a run takes on N workers, by the formula and the constants of docs/scale.md.

Not counted: what a network between machines adds to each window beyond TCP on loopback. The busiest worker
has `UNEVEN` times the share that uniform traffic would give it. A worker's devices cost what they cost in one
process: in blocks they fit the cache either way.

Constants are those of one machine, so that the answer depends on the scenario alone.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Final, NamedTuple

from emu.devices.pricing.estimate import Estimate

CROSSING_US: Final = ((64, 0.13), (1024, 0.33), (3072, 0.41))
"""What a packet costs more where it is handed to another worker, by NICs."""
WINDOW_US: Final = 21.0
"""A window of two workers with a core each, without packets."""
TCP: Final = 1.4
"""How many times as long a window takes over TCP, as between machines."""
RAY_S: Final = 2.4
"""The start of Ray and its workers."""
AGAIN_US: Final = 450
"""A device of a run on workers: every worker learns of it, and its rows travel."""
UNEVEN: Final = 1.1
"""What the busiest worker has more than its share of uniform traffic."""
SOONER: Final = 0.8
"""Workers are used where they take no more than this part of the time of one process."""


class Distributed(NamedTuple):
    """The terms of the time of a run on so many workers, in seconds."""

    workers: int
    nodes: int
    alone_s: float
    """What is not distributed: imports, building, samples, results, the runs of a diagnosis."""
    ray_s: float
    """The start of Ray, and what each device costs once more."""
    packets_s: float
    """The packets of the busiest worker."""
    crossing_s: float
    """Handing packets to other workers, and taking them."""
    windows_s: float
    """The windows of the protocol between workers."""

    @property
    def wall_s(self) -> float:
        """The whole command."""
        return self.alone_s + self.ray_s + self.packets_s + self.crossing_s + self.windows_s

    @property
    def bound(self) -> str:
        """The largest term, in words."""
        terms = {
            "what is not distributed": self.alone_s,
            "the start of Ray and of the devices": self.ray_s,
            "packets": self.packets_s,
            "packets that cross": self.crossing_s,
            "windows": self.windows_s,
        }
        return max(terms, key=lambda name: terms[name])


def distributed(
    cost: Estimate,
    nics: int,
    devices: int,
    workers: int,
    share: float,
    lookahead_ps: int,
    cores: int = 0,
    nodes: int = 1,
) -> Distributed:
    """The terms for a run of that cost on so many workers. `share` is the busiest worker's part of uniform
    traffic; with fewer `cores` than workers these take turns (0: each has one).
    """
    if workers == 1:
        return Distributed(1, 1, cost.wall_s - cost.packets_s, 0.0, cost.packets_s, 0.0, 0.0)
    turns = max(1.0, workers / cores) if cores else 1.0
    crossing = cost.hops * (1 - 1 / workers) / 2
    windows = cost.least_ps / lookahead_ps * WINDOW_US * (TCP if nodes > 1 else 1)
    return Distributed(
        workers,
        nodes,
        cost.wall_s - cost.packets_s,
        RAY_S + devices * AGAIN_US / 1e6,
        turns * min(UNEVEN * share, 1.0) * cost.packets_s,
        turns * crossing / workers * by_size(CROSSING_US, nics) / 1e6,
        turns * windows * (workers - 1).bit_length() / 1e6,
    )


def by_size(prices: Sequence[tuple[int, float]], size: int) -> float:
    """Between the sizes that were measured, on a line; beyond them as at the ends."""
    sizes = [one for one, _ in prices]
    at = bisect(sizes, size)
    if at in (0, len(prices)):
        return prices[min(at, len(prices) - 1)][1]
    (low, cheap), (high, dear) = prices[at - 1], prices[at]
    return cheap + (dear - cheap) * (size - low) / (high - low)
