"""Flows that wait for nobody, unit by unit: what waits in which buffer, and who is paused for it.

A *unit* is a packet, or several packets of one queue pair in a row. Queue pairs take turns at their NIC unit
by unit; a link sends what comes first, each unit from its first packet on. What cannot be sent at once waits
on the account of the port by which it came (`actors.switch.buffer`): first of its reserve, then of the pool.
A port of which more than its threshold waits, a share of what is free of the pool, is paused: the link that
leads to it sends nothing until what came since has gone on, and the rest is below the threshold by an offset.
So what stands behind a paused head waits, whatever its destination, and what waits in a buffer leaves it
after the flow that sent it has ended.

Acknowledgements take their part of links that are busy, and do not queue.

Times are in ps, rates in kbit/s.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec

_READY: Final = 0
_COMES: Final = 1
_FREE: Final = 2
_HOLD: Final = 3
_GO_ON: Final = 4
_ASKED: Final = 5
_PS_OF_BIT_AT_KBPS: Final[i64] = 10**9
_UNIT_BITS: Final[i64] = 20


class Stream:
    """One queue pair of a flow. Lists are by link of its path, as in `actors.flow.rehearsal.Pipe`."""

    def __init__(
        self,
        links: list[int],
        last_ps: list[int],
        head_ps: list[int],
        after_ps: list[int],
        back: list[int],
        ack_share: int,
        bits: int,
        most_kbps: int,
    ) -> None:
        self.links: vec[i64] = vec[i64](links)
        self.last_ps: vec[i64] = vec[i64](last_ps)
        """What of a last packet a link has still to send when all of it has come."""
        self.head_ps: vec[i64] = vec[i64](head_ps)
        self.after_ps: vec[i64] = vec[i64](after_ps)
        self.back: vec[i64] = vec[i64](back)
        self.ack_share: i64 = ack_share
        self.left: i64 = bits
        self.most_kbps: i64 = most_kbps
        """At which the host posts what it sends; 0: all at once."""
        self.end_ps: i64 = 0
        """When its last bit has arrived."""
        self.message_bits: i64 = 0
        """Of a READ; 0: nobody has to ask for what it sends."""
        self.asked: i64 = 0
        """Bits that were asked for and are not sent."""
        self.arrived: i64 = 0
        """Of the message that arrives."""
        self.ask_ps: i64 = 0
        """From a message's last bit until the next one is asked for."""
        self.idle: bool = False

    def reads(self, message_bits: int, most: int, ask_ps: int) -> None:
        """Let it be READs, of which so many may be outstanding."""
        self.message_bits = message_bits
        self.asked = message_bits * most
        self.ask_ps = ask_ps


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
    """Links with the switches that they lead to (-1: none), and how long a pause takes to stop each."""

    def __init__(self, rates_kbps: list[int], switches: list[int], pause_ps: list[int]) -> None:
        self.rates: vec[i64] = vec[i64](rates_kbps)
        self.switches: vec[i64] = vec[i64](switches)
        self.pause_ps: vec[i64] = vec[i64](pause_ps)


class Pools:
    """Buffers of switches, all with the same settings: alpha is in units of 2^-20."""

    def __init__(
        self, pools_bits: list[int], alpha_scaled: int, reserve_bits: int, xon_bits: tuple[int, int]
    ) -> None:
        self.pools: vec[i64] = vec[i64](pools_bits)
        self.alpha: i64 = alpha_scaled
        self.reserve: i64 = reserve_bits
        self.least: i64 = xon_bits[0]
        """Where ports go on: so far below the threshold (`offset`), but not below this."""
        self.offset: i64 = xon_bits[1]


class Flood:
    """To be run once."""

    def __init__(self, ports: Ports, pools: Pools, unit_bits: int) -> None:
        links = len(ports.rates)
        self.ports: Ports = ports
        self.pools: Pools = pools
        self.unit_bits: i64 = unit_bits
        self.streams: list[Stream] = []
        self.starts: list[int] = []
        self.busy: vec[i64] = vec[i64]([0] * links)
        """By link, until when it sends what it has begun."""
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
        """By switch, of its pool."""
        self.lines: list[deque[Unit]] = [deque() for _ in range(links)]
        self.turns: list[deque[int]] = [deque() for _ in range(links)]
        """By link from a NIC, the streams that have something to send."""
        self.now_ps: i64 = 0
        self.events: i64 = 0
        self.pauses: i64 = 0
        """How often a port was paused."""
        self._units: list[Unit] = []
        self._pushed: i64 = 0
        self._queue: list[tuple[int, int, int, int]] = []

    def add(self, stream: Stream, start_ps: int) -> None:
        """Another stream, which begins at a time."""
        self.streams.append(stream)
        self.starts.append(start_ps)

    def run(self) -> None:
        """Until all is there."""
        for number, start in enumerate(self.starts):
            self._push(start, _READY, number)
        queue = self._queue
        while queue:
            when, _, kind, a = heappop(queue)
            self.now_ps = when
            self.events += 1
            if kind == _COMES:
                self._comes(self._units[a])
            elif kind == _FREE:
                self._next(a)
            elif kind == _READY:
                link: i64 = self.streams[a].links[0]
                self.turns[link].append(a)
                self._next(link)
            elif kind == _HOLD:
                self.stopped[a] = True
            elif kind == _ASKED:
                self._ask(a)
            else:
                self.stopped[a] = False
                self._next(a)

    def _push(self, when: i64, kind: int, a: i64) -> None:
        heappush(self._queue, (int(when), int(self._pushed), kind, int(a)))
        self._pushed += 1

    def _comes(self, unit: Unit) -> None:
        """The head of a unit has come to a switch."""
        stream = self.streams[unit.stream]
        before: i64 = stream.links[unit.hop - 1]
        link: i64 = stream.links[unit.hop]
        self._hold(before, unit.bits)
        self.lines[link].append(unit)
        self._next(link)

    def _next(self, link: i64) -> None:
        """Let a link send the next unit, if it may."""
        if self.stopped[link] or self.busy[link] > self.now_ps:
            return
        if self.lines[link]:
            unit = self.lines[link].popleft()
            self._send(link, unit, self.streams[unit.stream])
        elif self.turns[link]:
            number = self.turns[link].popleft()
            stream = self.streams[number]
            bits: i64 = self.unit_bits
            if bits > stream.left:
                bits = stream.left
            if stream.message_bits > 0:
                if bits > stream.asked:
                    bits = stream.asked
                stream.asked -= bits
            stream.left -= bits
            unit = Unit(len(self._units), number, bits)
            self._units.append(unit)
            unit.tail_ps = self.now_ps
            if stream.left > 0:
                if stream.message_bits > 0 and stream.asked == 0:
                    stream.idle = True
                elif stream.most_kbps > 0:
                    self._push(self.now_ps + bits * _PS_OF_BIT_AT_KBPS // stream.most_kbps, _READY, number)
                else:
                    self.turns[link].append(number)
            self._send(link, unit, stream)

    def _send(self, link: i64, unit: Unit, stream: Stream) -> None:
        hop: i64 = unit.hop
        if hop > 0:
            self._release(stream.links[hop - 1], unit.bits)
        bits: i64 = unit.bits + self.debt[link]
        self.debt[link] = 0
        gone: i64 = self.now_ps + bits * _PS_OF_BIT_AT_KBPS // self.ports.rates[link]
        self.busy[link] = gone
        self._push(gone, _FREE, link)
        least: i64 = unit.tail_ps + stream.last_ps[hop]
        if gone < least:
            gone = least
        gone += stream.after_ps[hop]
        unit.hop = hop + 1
        unit.tail_ps = gone
        if hop + 1 < len(stream.links):
            self._push(self.now_ps + stream.head_ps[hop] + stream.after_ps[hop], _COMES, unit.number)
            return
        if stream.end_ps < gone:
            stream.end_ps = gone
        if stream.message_bits > 0:
            stream.arrived += unit.bits
            if stream.arrived >= stream.message_bits:
                stream.arrived -= stream.message_bits
                self._push(gone + stream.ask_ps, _ASKED, unit.stream)
        acks: i64 = unit.bits * stream.ack_share >> _UNIT_BITS
        at: i64 = 0
        while at < len(stream.back):
            one: i64 = stream.back[at]
            if self.busy[one] > self.now_ps:
                self.debt[one] += acks
            at += 1

    def _ask(self, number: i64) -> None:
        """One message more of a stream was asked for."""
        stream = self.streams[number]
        stream.asked += stream.message_bits
        if stream.idle:
            stream.idle = False
            self.turns[stream.links[0]].append(int(number))
            self._next(stream.links[0])

    # ---- buffers

    def _threshold(self, switch: i64) -> i64:
        return (self.pools.pools[switch] - self.used[switch]) * self.pools.alpha >> _UNIT_BITS

    def _hold(self, link: i64, bits: i64) -> None:
        """Bits that came by a link wait."""
        switch: i64 = self.ports.switches[link]
        if self.reserved[link] + bits <= self.pools.reserve:
            self.reserved[link] += bits
        elif self.paused[link]:
            self.over[link] += bits
        else:
            self.shared[link] += bits
            self.used[switch] += bits
            if self.shared[link] > self._threshold(switch):
                self.paused[link] = True
                self.pauses += 1
                self._push(self.now_ps + self.ports.pause_ps[link], _HOLD, link)

    def _release(self, link: i64, bits: i64) -> None:
        """Bits that came by a link go on: it may go on, too."""
        switch: i64 = self.ports.switches[link]
        left: i64 = bits
        part: i64 = min(left, self.over[link])
        self.over[link] -= part
        left -= part
        part = min(left, self.shared[link])
        self.shared[link] -= part
        self.used[switch] -= part
        self.reserved[link] -= left - part
        if self.paused[link] and self.over[link] == 0:
            least: i64 = self._threshold(switch) - self.pools.offset
            if least < self.pools.least:
                least = self.pools.least
            if self.shared[link] <= least:
                self.paused[link] = False
                self._push(self.now_ps + self.ports.pause_ps[link], _GO_ON, link)
