"""Messages in pieces: they share links and disks as first come, first served queues share them.

A message is cut into pieces. A *stream* is one direction of a connection: it sends its messages one after
another, with a window of bytes under way. A link passes pieces on in the order in which their heads arrive; a
head goes on as soon as a packet is there, so an unloaded message is no slower for being cut. A disk serves
what is written and what is read by turns, piece by piece, out of one budget.

The cost is a few events for each piece and link, whatever else is under way: it grows with what is sent, and
not with how much of it meets. Streams that share a link or a disk get equal parts of it, to within a piece.

Acknowledgements wait for nobody here, and take their time of the links back.

Not modelled: packets, losses, queues that overflow: a piece waits as long as it has to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

PIECES: Final = 16
"""Pieces of a message, at most."""
LEAST_BYTES: Final = 4096
"""Least size of a piece: a packet."""
BIT_PS: Final = 8 * 10**12
"""Over a rate in bit/s: what a byte takes, in ps."""
TAKES, GIVES = range(2)
"""The lines of a disk."""


class Pipe:
    """One direction of a link."""

    __slots__ = ("free_ps", "rate_bps")

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps
        self.free_ps = 0


class Disk:
    """The disks of a server: one rate for what they take and give."""

    __slots__ = ("busy", "lines", "rate_bps", "turn")

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps
        self.busy = False
        self.turn = TAKES
        self.lines: tuple[deque[Piece], deque[Piece]] = (deque(), deque())


class Stage(NamedTuple):
    """A link on the way of a stream, a disk, or neither: some time that everything takes."""

    pipe: Pipe | None
    disk: Disk | None
    line: int
    head_ps: int
    """From the beginning of a piece here until its head is at the next stage."""
    last_ps: int
    """What its last packet takes here."""
    after_ps: int
    """From the end of a packet here to the next stage."""

    def longer(self, more_ps: int) -> Stage:
        """With so much more on the way to the next stage."""
        return self._replace(head_ps=self.head_ps + more_ps, after_ps=self.after_ps + more_ps)


class Way(NamedTuple):
    """Where the pieces of a stream go."""

    stages: tuple[Stage, ...]
    back: tuple[Pipe, ...]
    """The links of acknowledgements."""


class Piece:
    """A piece on its way."""

    __slots__ = ("ack_bytes", "at", "last", "payload_bytes", "stream", "tail_ps", "way", "wire_bytes")

    def __init__(
        self, stream: Stream, way: Way, parts: tuple[int, int, int], last: Callable[[], None] | None
    ) -> None:
        self.stream = stream
        self.way = way
        self.payload_bytes, self.wire_bytes, self.ack_bytes = parts
        self.last = last
        """What follows the last piece of a message, when it is there."""
        self.at = 0
        self.tail_ps = 0


class Stream:
    """One direction of a connection. Pieces take its ways in turn; small messages have one of their own."""

    def __init__(
        self, ways: Sequence[Way], small: Way, window_bytes: int, first_bytes: int, returns_ps: int
    ) -> None:
        self.ways = ways
        self.small = small
        self.most_bytes = window_bytes
        """What it has under way at most, but two pieces at least."""
        self.window_bytes = min(window_bytes, first_bytes)
        """What it may have now: it grows by what arrives while more waits (slow start)."""
        self.returns_ps = returns_ps
        """From the arrival of a piece until its sender knows."""
        self.waiting: deque[tuple[tuple[int, int, int], Way, Callable[[], None] | None]] = deque()
        self.under_way = 0
        self.under_way_bytes = 0
        self.turn = 0


class Pieces:
    """The clock of messages in pieces."""

    def __init__(self) -> None:
        self.now_ps = 0
        self.over = False
        """Whether nobody waits for anything any more."""
        self._queue: list[tuple[int, int, Callable[..., None], Piece | None]] = []
        self.pushed = 0
        """Calls that were asked for: what a run costs."""

    def at(self, time_ps: int, call: Callable[[], None]) -> None:
        """Call somebody at a time, those of one time in the order in which they asked."""
        heappush(self._queue, (max(time_ps, self.now_ps), self.pushed, call, None))
        self.pushed += 1

    def _push(self, time_ps: int, call: Callable[[Piece], None], piece: Piece) -> None:
        heappush(self._queue, (time_ps, self.pushed, call, piece))
        self.pushed += 1

    def run(self, until_ps: int) -> bool:
        """Go on until it is over, or nobody is to be called; False if that is not so by then."""
        queue = self._queue
        while queue and not self.over:
            if queue[0][0] > until_ps:
                return False
            self.now_ps, _, call, piece = heappop(queue)
            if piece is None:
                call()
            else:
                call(piece)
        return True

    def send(
        self, stream: Stream, parts: tuple[int, int, int], done: Callable[[], None], *, small: bool
    ) -> None:
        """Send a message of so many bytes of payload, on the wire and of acknowledgements; `done` follows."""
        payload_bytes = parts[0]
        if small:
            stream.waiting.append((parts, stream.small, done))
            self._pump(stream)
            return
        piece_bytes = max(-(-payload_bytes // PIECES), min(payload_bytes, LEAST_BYTES))
        many = -(-payload_bytes // piece_bytes)
        before = (0, 0, 0)
        for number in range(1, many + 1):
            upto = (parts[0] * number // many, parts[1] * number // many, parts[2] * number // many)
            part = (upto[0] - before[0], upto[1] - before[1], upto[2] - before[2])
            way = stream.ways[stream.turn]
            stream.turn = (stream.turn + 1) % len(stream.ways)
            stream.waiting.append((part, way, done if number == many else None))
            before = upto
        self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        """Send what the window has room for."""
        waiting = stream.waiting
        while waiting and (
            stream.under_way < 2 or stream.under_way_bytes + waiting[0][0][0] <= stream.window_bytes
        ):
            part, way, last = waiting.popleft()
            piece = Piece(stream, way, part, last)
            stream.under_way += 1
            stream.under_way_bytes += part[0]
            piece.tail_ps = self.now_ps
            self._push(self.now_ps, self._enter, piece)

    def _enter(self, piece: Piece) -> None:
        """The head of a piece is at a stage."""
        stage = piece.way.stages[piece.at]
        pipe = stage.pipe
        disk = stage.disk
        if disk is not None:
            disk.lines[stage.line].append(piece)
            if not disk.busy:
                self._serve(disk)
            return
        if pipe is None:
            self._leave(piece, stage, self.now_ps, self.now_ps)
            return
        start_ps = max(pipe.free_ps, self.now_ps)
        pipe.free_ps = start_ps + piece.wire_bytes * BIT_PS // pipe.rate_bps
        self._leave(piece, stage, start_ps, pipe.free_ps)

    def _serve(self, disk: Disk) -> None:
        """A disk begins the next piece, of the other line if it can."""
        line = disk.turn if disk.lines[disk.turn] else 1 - disk.turn
        if not disk.lines[line]:
            disk.busy = False
            return
        piece = disk.lines[line].popleft()
        disk.busy = True
        disk.turn = 1 - line
        end_ps = self.now_ps + piece.payload_bytes * BIT_PS // disk.rate_bps
        self.at(end_ps, lambda: self._serve(disk))
        self._leave(piece, piece.way.stages[piece.at], self.now_ps, end_ps)

    def _leave(self, piece: Piece, stage: Stage, start_ps: int, end_ps: int) -> None:
        """A piece goes through a stage from one time to another, or until its tail is through."""
        tail_ps = max(end_ps, piece.tail_ps + stage.last_ps)
        piece.tail_ps = tail_ps + stage.after_ps
        piece.at += 1
        if piece.at < len(piece.way.stages):
            self._push(min(start_ps + stage.head_ps, piece.tail_ps), self._enter, piece)
        else:
            self._push(piece.tail_ps, self._arrive, piece)

    def _arrive(self, piece: Piece) -> None:
        """All of a piece is there."""
        for pipe in piece.way.back if piece.ack_bytes else ():
            if pipe.free_ps > self.now_ps:
                pipe.free_ps += piece.ack_bytes * BIT_PS // pipe.rate_bps
        self._push(self.now_ps + piece.stream.returns_ps, self._known, piece)
        if piece.last is not None:
            piece.last()

    def _known(self, piece: Piece) -> None:
        """The sender of a piece knows that it arrived."""
        stream = piece.stream
        stream.under_way -= 1
        stream.under_way_bytes -= piece.payload_bytes
        if stream.waiting:
            stream.window_bytes = min(stream.window_bytes + piece.payload_bytes, stream.most_bytes)
        self._pump(stream)
