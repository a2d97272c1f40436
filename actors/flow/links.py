"""Links that pass units on in the order in which they come: what waits on whose account, and who is paused.

A *unit* is a packet, or several packets of one queue pair in a row. What cannot be sent at once waits on the
account of the port by which it came (`actors.switch.buffer`): first of its reserve, then of the pool. A port
of which more than its threshold waits, a share of what is free of the pool, is paused: the link that leads to
it sends nothing until what came since has gone on, and the rest is below the threshold by an offset. So what
stands behind a paused head waits, whatever its destination, and what waits in a buffer leaves it after the
flow that sent it has ended.

When a link sends what, and the events of that, belong to those who use it: `actors.flow.flood` and
`actors.flow.crowd`.

Times are in ps, rates in kbit/s.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec

PS_OF_BIT_AT_KBPS: Final[i64] = 10**9
_UNIT_BITS: Final[i64] = 20


class Unit:
    """Bits under way."""

    def __init__(self, number: int, stream: int, bits: i64) -> None:
        self.number: i64 = number
        self.stream: int = stream
        self.bits: i64 = bits
        self.hop: i64 = 0
        self.tail_ps: i64 = 0
        """When its last bit comes to where it is."""
        self.piece: i64 = -1
        """Whose last unit it is (`actors.flow.crowd`)."""


class Ports:
    """Links with the buffers that they lead to (-1: none), and how long a pause takes to stop each."""

    def __init__(self, rates_kbps: list[int], buffers: list[int], pause_ps: list[int]) -> None:
        self.rates: vec[i64] = vec[i64](rates_kbps)
        self.buffers: vec[i64] = vec[i64](buffers)
        self.pause_ps: vec[i64] = vec[i64](pause_ps)


class Pools:
    """Buffers of switches, or of single ports of modular ones: alpha is in units of 2^-20."""

    def __init__(
        self, pools_bits: list[int], alphas_scaled: list[int], reserve_bits: int, xon_bits: tuple[int, int]
    ) -> None:
        self.pools: vec[i64] = vec[i64](pools_bits)
        self.alphas: vec[i64] = vec[i64](alphas_scaled)
        self.reserve: i64 = reserve_bits
        self.least: i64 = xon_bits[0]
        """Where ports go on: so far below the threshold (`offset`), but not below this."""
        self.offset: i64 = xon_bits[1]


class Links:
    """By link: what waits, and until when it sends what it has begun."""

    def __init__(self, ports: Ports, pools: Pools) -> None:
        links = len(ports.rates)
        self.rates: vec[i64] = ports.rates
        self.buffers: vec[i64] = ports.buffers
        self.pause_ps: vec[i64] = ports.pause_ps
        self.pools: Pools = pools
        self.busy: vec[i64] = vec[i64]([0] * links)
        """Until when it sends what it has begun."""
        self.debt: vec[i64] = vec[i64]([0] * links)
        """Bits of acknowledgements that are to be sent beside."""
        self.reserved: vec[i64] = vec[i64]([0] * links)
        """What waits on the account of a port: of its reserve, of the pool, and what came after its pause."""
        self.shared: vec[i64] = vec[i64]([0] * links)
        self.over: vec[i64] = vec[i64]([0] * links)
        self.stopped: list[bool] = [False] * links
        """Whether it is paused; and whether it is to be."""
        self.paused: list[bool] = [False] * links
        self.used: vec[i64] = vec[i64]([0] * len(pools.pools))
        """By buffer, of its pool."""
        self.first: list[deque[Unit]] = [deque() for _ in range(links)]
        """What is urgent."""
        self.lines: list[deque[Unit]] = [deque() for _ in range(links)]
        self.turns: list[deque[int]] = [deque() for _ in range(links)]
        """From a NIC, the streams or pipes that have something to send."""

    def hold(self, link: i64, bits: i64) -> bool:
        """Bits that came by a link wait; whether it is to be paused for them."""
        buffer: i64 = self.buffers[link]
        if buffer < 0:
            return False
        if self.reserved[link] + bits <= self.pools.reserve:
            self.reserved[link] += bits
        elif self.paused[link]:
            self.over[link] += bits
        else:
            self.shared[link] += bits
            self.used[buffer] += bits
            if self.shared[link] > self._threshold(buffer):
                self.paused[link] = True
                return True
        return False

    def release(self, link: i64, bits: i64) -> bool:
        """Bits that came by a link go on; whether it may go on, too."""
        buffer: i64 = self.buffers[link]
        if buffer < 0:
            return False
        left: i64 = bits
        part: i64 = min(left, self.over[link])
        self.over[link] -= part
        left -= part
        part = min(left, self.shared[link])
        self.shared[link] -= part
        self.used[buffer] -= part
        self.reserved[link] -= left - part
        if not self.paused[link] or self.over[link] > 0:
            return False
        least: i64 = self._threshold(buffer) - self.pools.offset
        if least < self.pools.least:
            least = self.pools.least
        if self.shared[link] > least:
            return False
        self.paused[link] = False
        return True

    def acknowledge(self, back: vec[i64], bits: i64, now_ps: i64) -> None:
        """Acknowledgements come: they take their part of links that are busy, and do not queue."""
        at: i64 = 0
        while at < len(back):
            one: i64 = back[at]
            if self.busy[one] > now_ps:
                self.debt[one] += bits
            at += 1

    def _threshold(self, buffer: i64) -> i64:
        return (self.pools.pools[buffer] - self.used[buffer]) * self.pools.alphas[buffer] >> _UNIT_BITS
