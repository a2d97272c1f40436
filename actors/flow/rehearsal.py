"""Calls of the library by themselves: when data is where it belongs if nobody else sends.

Calls that begin together are rehearsed (`actors.flow.rank_steps`) on links that carry nothing else, and that
pass units on in the order in which they come, each from its first packet on.

So slices wait for one another as their packets do: ranks of a ring that go in step meet on their
links at every step, and queue pairs that are used by turns leave links idle by turns.

Not modelled: thresholds of buffers (nobody is paused), acknowledgements that queue (they only take their
part of a link that is busy), windows of queue pairs.
"""

from __future__ import annotations

from heapq import heappop
from typing import Final

from mypy_extensions import i64

from actors.flow.links import PS_OF_BIT_AT_KBPS
from actors.flow.rank_steps import ACKNOWLEDGED, BEGIN, OF_LINKS, Pipe, Walks
from actors.kernel.vectors import vec

_UNIT: Final = OF_LINKS
_INJECT: Final = OF_LINKS + 1
_ACKS: Final = OF_LINKS + 2
_NOBODY: Final = -2
_UNIT_BITS: Final[i64] = 20


class Rehearsal(Walks):
    """Calls that begin together, to be run once. Links have these rates in kbit/s."""

    def __init__(
        self,
        rates_kbps: list[int],
        credit_ps: list[int],
        ranks: int,
        unit_bits: int,
        message_ps: int,
        proxy_ps: int,
    ) -> None:
        super().__init__(ranks, unit_bits, message_ps, proxy_ps)
        self.rates: vec[i64] = vec[i64](rates_kbps)
        self.credit: vec[i64] = vec[i64](credit_ps)
        """By link, what a report or a grant takes at the modular switch before it; 0: it is none."""
        self._modular: bool = max(credit_ps, default=0) > 0
        self._reported: dict[int, int] = {}
        """By link and the one before, when the last report left."""
        self.free: vec[i64] = vec[i64]([0] * len(rates_kbps))
        """By link, when what came so far has left."""
        self.waited: vec[i64] = vec[i64]([0] * len(rates_kbps))
        """By link, how long a unit waited for it at most."""

    def run(self) -> int:
        """Rehearse; returns when the last copy of all was done, in ps, or -1 if something is left undone."""
        self._find_followers()
        for place, connection in enumerate(self.connections):
            connection.number = place
        for number, walk in enumerate(self.walks):
            self._line_up(walk)
            self._push(walk.start_ps, BEGIN, number)
        queue = self._queue
        while queue:
            when, _, kind, a, b, c, d = heappop(queue)
            self.now_ps = when
            self.events += 1
            self._handle(kind, a, b, c, d)
        end: i64 = 0
        for walk in self.walks:
            for move in walk.moves:
                if move.issued < len(move.sizes):
                    return -1
            if walk.end_ps > end:
                end = walk.end_ps
        return end

    def _find_followers(self) -> None:
        """Of which links the order is that of one link before."""
        before: list[int] = [_NOBODY] * len(self.rates)
        control: set[int] = {int(one.control) for one in self.connections}
        for place, pipe in enumerate(self.pipes):
            pipe.number = place
            if place in control:
                continue
            last: int = -1
            for link in pipe.links:
                if before[link] == _NOBODY:
                    before[link] = last
                elif before[link] != last:
                    before[link] = -1
                last = int(link)
        for place, pipe in enumerate(self.pipes):
            for hop in range(1, len(pipe.links)):
                pipe.follows[hop] = place in control or before[pipe.links[hop]] >= 0

    def _on_link(self, kind: int, a: i64, b: i64, c: i64, d: i64) -> None:
        if kind == _UNIT:
            self._pass(a, b, c, d)
        elif kind == _ACKS:
            self._crosses(a, b, self.now_ps)
        else:
            self._inject(a)

    def _posted(self, piece: i64, number: i64) -> None:
        """A pipe has a piece more to send."""
        pipe = self.pipes[number]
        pipe.line.append(int(piece))
        if len(pipe.line) == 1:
            if pipe.busy_ps > self.now_ps:
                self._push(pipe.busy_ps, _INJECT, number)
            else:
                self._inject(number)

    def _inject(self, number: i64) -> None:
        """A pipe's turn: its next unit goes onto its first link, after those that were before it."""
        pipe = self.pipes[number]
        piece: i64 = pipe.line[0]
        bits: i64 = self._take(pipe)
        link: i64 = pipe.links[0]
        start: i64 = self.free[link]
        if start < self.now_ps:
            start = self.now_ps
        owner = self.connections[self._owners[piece]]
        slice_number: i64 = self._slices[piece]
        if owner.first_ps < 0 and slice_number >= 0:
            owner.first_ps = start
        takes: i64 = bits // pipe.parts[0] * PS_OF_BIT_AT_KBPS // self.rates[link]
        gone: i64 = start + takes
        self.free[link] = gone
        pipe.busy_ps = start
        last: i64 = 0
        if self._left[piece] == 0:
            last = 1
            if owner.inside and slice_number >= 0:
                self._push(gone + owner.sender_ps, ACKNOWLEDGED, self._owners[piece], slice_number)
        if pipe.line:
            self._push(start, _INJECT, number)
        self._go_on(pipe, piece, 0, bits * 2 + last, start, takes, gone)

    def _pass(self, place: i64, hop: i64, coded: i64, tail: i64) -> None:
        """The head of a unit has come to a link of its way; its tail comes at `tail`."""
        number: i64 = place >> 32
        piece: i64 = place & 0xFFFFFFFF
        pipe = self.pipes[number]
        link: i64 = pipe.links[hop]
        start: i64 = self.free[link]
        if start < self.now_ps:
            start = self.now_ps
        elif start - self.now_ps > self.waited[link]:
            self.waited[link] = start - self.now_ps
        bits: i64 = (coded >> 1) // pipe.parts[hop]
        takes: i64 = bits * PS_OF_BIT_AT_KBPS // self.rates[link]
        gone: i64 = start + takes
        self.free[link] = gone
        least: i64 = tail + min(pipe.packet_ps[hop], takes)
        if gone < least:
            gone = least
        self._go_on(pipe, piece, hop, coded, start, takes, gone)

    def _report_acks(self, pipe: Pipe, when: i64) -> None:
        """Acknowledgements leave at a time: data that joins a VOQ after them waits for their report."""
        links: i64 = len(pipe.back)
        hop: i64 = 1
        while hop < links:
            when += pipe.after_ps[links - hop]
            credit_ps: i64 = self.credit[pipe.back[hop]]
            if credit_ps > 0:
                self._push(when, _ACKS, (pipe.back[hop - 1] << 32) | pipe.back[hop], credit_ps)
                when += 2 * credit_ps
            hop += 1

    def _crosses(self, voq: i64, credit_ps: i64, when: i64) -> i64:
        """When what joins a VOQ may leave for its egress: it is reported and granted, and a report leaves
        when the one before it is there.
        """
        left: i64 = self._reported.get(int(voq), -1)
        if left < 0 or when > left + credit_ps:
            left = when
        elif when > left:
            left += credit_ps
        self._reported[int(voq)] = int(left)
        return left + 2 * credit_ps

    def _go_on(self, pipe: Pipe, piece: i64, hop: i64, coded: i64, start: i64, takes: i64, gone: i64) -> None:
        """A unit leaves by a link, which it takes so long: to the next ones, or to the host."""
        bits: i64 = coded >> 1
        after: i64 = pipe.after_ps[hop]
        while hop + 1 < len(pipe.links):
            start += min(pipe.head_ps[hop], takes) + after
            gone += after
            hop += 1
            credit_ps: i64 = self.credit[pipe.links[hop]]
            if credit_ps > 0 and self._slices[piece] < 0:  # a clear-to-send is reported when it comes
                start += 2 * credit_ps
                gone += 2 * credit_ps
            elif credit_ps > 0:
                voq: i64 = (pipe.links[hop - 1] << 32) | pipe.links[hop]
                begins: i64 = start
                start = self._crosses(voq, credit_ps, begins)
                while begins + credit_ps < gone:  # packets of it come all the time
                    begins += credit_ps
                    self._crosses(voq, credit_ps, begins)
                gone = self._crosses(voq, credit_ps, gone)
            if not pipe.follows[hop]:
                self._push(start, _UNIT, pipe.number << 32 | piece, hop, coded, gone)
                return
            link: i64 = pipe.links[hop]
            if start < self.free[link]:
                if self.free[link] - start > self.waited[link]:
                    self.waited[link] = self.free[link] - start
                start = self.free[link]
            takes = bits // pipe.parts[hop] * PS_OF_BIT_AT_KBPS // self.rates[link]
            least: i64 = gone + min(pipe.packet_ps[hop], takes)
            gone = start + takes
            if self._slices[piece] >= 0:  # a clear-to-send waits for what is there, and delays nobody
                self.free[link] = gone
            if gone < least:
                gone = least
            after = pipe.after_ps[hop]
        if self._modular and self._slices[piece] >= 0:
            self._report_acks(pipe, gone + after)
        for one in pipe.back:
            if self.free[one] > self.now_ps:
                acks: i64 = bits * pipe.ack_share >> _UNIT_BITS
                self.free[one] += acks * PS_OF_BIT_AT_KBPS // self.rates[one]
        if coded & 1 == 0:
            return
        self._here(piece, gone + after)
