"""Computing of a rank's streams: in pieces, at the pace of its GPU, with the SMs that channels leave.

Long computing is cut in pieces of `PIECE_PS`. When the GPU becomes slow, hangs or recovers, what is left of a
piece begins anew at the new pace, with a timer of the stream's next turn: the one before means nothing any
more. Where channels take SMs, `actors.ncclx.rank.sm_share` counts how much is done in which time, and the
timers are set here.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.event_log import COMPUTED as COMPUTED_EVENT
from actors.kernel.state import load_fields, save_fields
from actors.ncclx.rank.sm_share import TURNS, Share
from actors.ncclx.rank.streams import Stream, Streams
from actors.ncclx.rank.timer_subjects import COMPUTED, LATER, PIECE_PS, Timers

_FIELDS: Final = ("factor", "first_ps", "spent_ps", "work_ps")


class Computing:
    """What the streams of one rank compute, and have computed."""

    def __init__(self, streams: Streams, timers: Timers, gpu_port: int, share: Share | None) -> None:
        self.streams: Streams = streams
        self.timers: Timers = timers
        self.gpu_port: i64 = gpu_port
        """The host's port to the rank's GPU."""
        self.share: Share | None = share
        """Share of the SMs; None where channels take none. It then counts instead of the fields below."""
        self.factor: i64 = 1000
        """Thousandths of its time that computing takes; 0 while it stands still."""
        self.first_ps: i64 = 0
        """How long stream 0 computed in this operation."""
        self.spent_ps: i64 = 0
        """How long all streams have computed, in all steps."""
        self.work_ps: i64 = 0
        """How long that takes where the GPU is not slow."""

    def begin_operation(self) -> None:
        """An operation begins: nothing was computed in it."""
        self.first_ps = 0
        share = self.share
        if share is not None:
            share.first_ps = 0

    def begin(self, host: Host, stream: Stream, duration_ps: i64, now: i64) -> None:
        """A stream computes what takes so long at full pace."""
        share = self.share
        stream.from_ps = now
        if share is not None:
            share.begin(stream.number, duration_ps, now)
            self._go_at(host, share, stream.number, now)
            return
        factor: i64 = self.factor
        piece: i64 = duration_ps
        most: i64 = PIECE_PS
        if factor > 1000:
            most = PIECE_PS * 1000 // factor
        if piece > most:
            piece = most
        stream.left_ps = duration_ps - piece
        stream.piece_ps = piece
        if factor == 0:
            return
        takes_ps: i64 = piece if factor == 1000 else (piece * factor + 999) // 1000
        kind: i64 = COMPUTED
        if stream.turn > 0:
            kind = LATER + stream.turn
        self.timers.set(host, now + takes_ps, kind, stream.number)

    def on_timer(self, host: Host, stream: Stream, turn: i64, now: i64) -> bool:
        """The timer of a stream's turn; whether the stream has done its computing."""
        share = self.share
        if share is not None:
            number: i64 = stream.number
            if turn != share.turns[number]:
                return False
            host.progress += 1
            if not share.computed(number, now):
                self._go_at(host, share, number, now)
                return False
            self._note(host, stream, now)
            return True
        if turn != stream.turn:
            return False
        host.progress += 1
        self._count(stream, now - stream.from_ps, stream.piece_ps)
        self._note(host, stream, now)
        if stream.left_ps > 0:
            self.begin(host, stream, stream.left_ps, now)
            return False
        return True

    def pace(self, host: Host, factor: i64, now: i64) -> None:
        """Computing takes so many thousandths of its time from now on."""
        before: i64 = self.factor
        self.factor = factor
        share = self.share
        if share is not None:
            share.pace(factor, now)
            self._go_on(host, share, now)
            return
        for stream in self.streams.each:
            if self.streams.computing(stream):
                self._begin_anew(host, stream, before, now)

    def change(self, host: Host, now: i64) -> None:
        """Calls began or ended: go on computing with the SMs that are left."""
        share = self.share
        if share is not None and share.change(now):
            self._go_on(host, share, now)

    def abort(self) -> None:
        """No stream computes any more: a pending timer of one that did means nothing from now on."""
        for stream in self.streams.each:
            if self.streams.computing(stream):
                stream.turn = stream.turn % (TURNS - 1) + 1
            stream.busy = False
            stream.left_ps = 0

    def _begin_anew(self, host: Host, stream: Stream, before: i64, now: i64) -> None:
        """The pace was `before` and is another: begin what is left of the computing anew."""
        spent_ps: i64 = now - stream.from_ps
        done_ps: i64 = 0
        if before > 0:
            done_ps = spent_ps * 1000 // before
        if done_ps > stream.piece_ps:
            done_ps = stream.piece_ps
        self._count(stream, spent_ps, done_ps)
        self._note(host, stream, now)
        stream.turn = stream.turn % (TURNS - 1) + 1
        self.begin(host, stream, stream.piece_ps - done_ps + stream.left_ps, now)

    def _go_on(self, host: Host, share: Share, now: i64) -> None:
        """Set the timers of all streams that compute anew."""
        number: i64 = 0
        while number < len(self.streams.each):
            if share.from_ps[number] >= 0:
                self._go_at(host, share, number, now)
            number += 1

    def _go_at(self, host: Host, share: Share, number: i64, now: i64) -> None:
        """Set the timer of a stream that computes with a share of the SMs: for its end, or a piece before."""
        left_ps: i64 = share.left_ps(number)
        if left_ps > PIECE_PS:
            left_ps = PIECE_PS
        turn: i64 = share.turn(number)
        if share.factor == 0:
            return
        self.timers.set(host, now + left_ps, LATER + turn, number)

    def _count(self, stream: Stream, spent_ps: i64, work_ps: i64) -> None:
        """A stream has computed for so long what takes `work_ps` at full pace."""
        if stream.number == 0:
            self.first_ps += spent_ps
        self.spent_ps += spent_ps
        self.work_ps += work_ps

    def _note(self, host: Host, stream: Stream, now: i64) -> None:
        events = host.events
        if events is not None:
            events.note(COMPUTED_EVENT, self.timers.program, stream.number, 0, 0, stream.from_ps, now)

    def step_ps(self) -> i64:
        """How long stream 0 computed in this operation."""
        share = self.share
        if share is None:
            return self.first_ps
        return share.first_ps

    def computed(self) -> i64:
        """How long all streams have computed, in all steps."""
        share = self.share
        if share is None:
            return self.spent_ps
        return share.computed_ps

    def computed_work(self) -> i64:
        """How long that takes where the GPU is not slow."""
        share = self.share
        if share is None:
            return self.work_ps
        return share.computed_work_ps

    def save(self) -> Plain:
        """State for a snapshot; the share's is its own."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        load_fields(self, _FIELDS, state)
