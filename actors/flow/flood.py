"""Flows that wait for nobody, unit by unit, on links whose ports are paused (`actors.flow.links`).

Queue pairs take turns at their NIC unit by unit; a link sends what comes first, each unit from its first
packet on. Acknowledgements take their part of links that are busy, and do not queue.

Times are in ps, rates in kbit/s.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from actors.flow.links import PS_OF_BIT_AT_KBPS, Links, Pools, Ports, Unit
from actors.flow.voqs import Credit, Voqs
from actors.kernel.vectors import vec

_READY: Final = 0
_COMES: Final = 1
_FREE: Final = 2
_HOLD: Final = 3
_GO_ON: Final = 4
_ASKED: Final = 5
_CREDIT: Final = 6
_UNIT_BITS: Final[i64] = 20


class Stream:
    """One queue pair of a flow. Lists are by link of its path, as in `actors.flow.rank_steps.Pipe`."""

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


class Flood:
    """To be run once."""

    def __init__(self, ports: Ports, pools: Pools, credit: Credit, unit_bits: int) -> None:
        self.links: Links = Links(ports, pools)
        self.voqs: Voqs = Voqs(self.links, credit)
        self.unit_bits: i64 = unit_bits
        self.streams: list[Stream] = []
        self.starts: list[int] = []
        self.now_ps: i64 = 0
        self.events: i64 = 0
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
                self.links.turns[link].append(a)
                self._next(link)
            elif kind == _HOLD:
                self.links.stopped[a] = True
            elif kind == _ASKED:
                self._ask(a)
            elif kind == _CREDIT:
                freed: i64 = self.voqs.happen(a, when)
                self._credit()
                if freed >= 0:
                    self._next(freed)
            else:
                self.links.stopped[a] = False
                self.voqs.grant(a, when)
                self._credit()
                self._next(a)

    def _push(self, when: i64, kind: int, a: i64) -> None:
        heappush(self._queue, (int(when), int(self._pushed), kind, int(a)))
        self._pushed += 1

    def _comes(self, unit: Unit) -> None:
        """The head of a unit has come to a switch."""
        stream = self.streams[unit.stream]
        before: i64 = stream.links[unit.hop - 1]
        link: i64 = stream.links[unit.hop]
        if self.links.hold(before, unit.bits):
            self._push(self.now_ps + self.links.pause_ps[before], _HOLD, before)
        if self.voqs.behind(link):
            self.voqs.join(before, link, unit, urgent=False, now_ps=self.now_ps)
            self._credit()
        else:
            self.links.lines[link].append(unit)
            self._next(link)

    def _credit(self) -> None:
        """Modular switches have said what is to happen."""
        for when, what in self.voqs.due:
            self._push(when, _CREDIT, what)
        self.voqs.due = []

    def _next(self, link: i64) -> None:
        """Let a link send the next unit, if it may."""
        if self.links.stopped[link] or self.links.busy[link] > self.now_ps:
            return
        if self.links.lines[link]:
            unit = self.links.lines[link].popleft()
            self._send(link, unit, self.streams[unit.stream])
        elif self.links.turns[link]:
            number = self.links.turns[link].popleft()
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
                    self._push(self.now_ps + bits * PS_OF_BIT_AT_KBPS // stream.most_kbps, _READY, number)
                else:
                    self.links.turns[link].append(number)
            self._send(link, unit, stream)

    def _send(self, link: i64, unit: Unit, stream: Stream) -> None:
        hop: i64 = unit.hop
        if hop > 0:
            before: i64 = stream.links[hop - 1]
            if self.links.release(before, unit.bits):
                self._push(self.now_ps + self.links.pause_ps[before], _GO_ON, before)
        bits: i64 = unit.bits + self.links.debt[link]
        self.links.debt[link] = 0
        gone: i64 = self.now_ps + bits * PS_OF_BIT_AT_KBPS // self.links.rates[link]
        self.links.busy[link] = gone
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
        self.links.acknowledge(stream.back, unit.bits * stream.ack_share >> _UNIT_BITS, self.now_ps)

    def _ask(self, number: i64) -> None:
        """One message more of a stream was asked for."""
        stream = self.streams[number]
        stream.asked += stream.message_bits
        if stream.idle:
            stream.idle = False
            self.links.turns[stream.links[0]].append(int(number))
            self._next(stream.links[0])
