"""Transfers of an open job: what programs outside post, one by one, while the run goes on.

A *way* is one end of a connection: a queue pair between two NICs, or a pair of GPUs over NVLink. The end that
sends has a line of transfers. A transfer goes as WRITEs of at most `PIECE_BYTES`, and `DEPTH` WRITEs of a way
are outstanding. The last WRITE carries an immediate, so the host at the other end hears of the transfer. Two
times are told: *delivered*, when that host has the completion of the receive, and *completed*, when the
sender's host has the acknowledgement of the last WRITE. A post says which it wants.

A WRITE that fails ends the way: its transfers, and all that are posted there later, fail with that status.

Source: linux-rdma/perftest, `ib_write_bw --write_with_imm`.

Not modelled: receives that somebody has to post in time, beyond `transport.receive_queue`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host, Program
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.wire.message import COMPLETED_RECEIVE, POST_WITH_IMMEDIATE, STATUS_SUCCESS

PIECE_BYTES: Final[i64] = 1 << 21
"""Of one WRITE, at most."""
DEPTH: Final[i64] = 128
"""WRITEs outstanding on one queue pair (perftest's -t)."""
_MANY: Final[i64] = 1024
"""So many transfers that are over are forgotten at once: out of a long line, one by one is slow."""
TELL_COMPLETED: Final = 1
TELL_DELIVERED: Final = 2
SENDS: Final = 0
RECEIVES: Final = 1
ROLES: Final = 2

_NUMBER: Final[i64] = 0
_BYTES: Final[i64] = 1
_TELL: Final[i64] = 2
_BEGUN: Final[i64] = 3
_PIECES: Final[i64] = 4
_POSTED: Final[i64] = 5
_DONE: Final[i64] = 6

_FIELDS: Final = ("first", "filled", "outstanding", "status", "came")


class Way:
    """One end of a connection, at the host's port and the queue pair (or the GPU's pair) there."""

    def __init__(self, rank: int, port: int, pair: int) -> None:
        self.rank: i64 = rank
        """Whose end it is."""
        self.port: i64 = port
        self.pair: i64 = pair
        self.line: list[list[int]] = []
        """Transfers from here: number of the post, bytes, what to tell, when it was posted, pieces in all,
        those that are posted, and those that are acknowledged."""
        self.first: i64 = 0
        """The place of the first that is not over."""
        self.filled: i64 = 0
        """The place of the first that is not posted whole."""
        self.outstanding: i64 = 0
        """Pieces that are posted and not acknowledged."""
        self.status: i64 = STATUS_SUCCESS
        self.coming: list[list[int]] = []
        """Transfers to here: number of the post, whether to tell of it, when it was posted."""
        self.came: i64 = 0
        """How many of these are there."""


class OpenPosts(Program):
    """The transfers from and to the ranks of an open job on one host."""

    def __init__(self, job: int, start_ps: int) -> None:
        super().__init__(job, start_ps)
        self.ways: list[Way] = []

    def add(self, way: Way) -> int:
        """Take a way in; returns its place."""
        self.ways.append(way)
        return len(self.ways) - 1

    def on_ask(self, host: Host, post: list[int], now: i64) -> None:
        """A transfer is posted: its way, bytes and what to tell."""
        way = self.ways[post[2]]
        if way.status != STATUS_SUCCESS:
            host.tell(post[1], way.rank, now, way.status)
            return
        pieces: i64 = (i64(post[3]) + PIECE_BYTES - 1) // PIECE_BYTES
        way.line.append([post[1], post[3], post[4], now, pieces, 0, 0])
        self._fill(host, way)

    def expect(self, place: int, number: int, tell: int, now: int) -> None:
        """A transfer will come on a way."""
        self.ways[place].coming.append([number, tell, now])

    def _fill(self, host: Host, way: Way) -> None:
        """Post pieces, as many as may be outstanding."""
        while way.outstanding < DEPTH and way.filled < len(way.line):
            one = way.line[way.filled]
            posted: i64 = one[_POSTED]
            size: i64 = one[_BYTES] - posted * PIECE_BYTES
            flags: i64 = POST_WITH_IMMEDIATE
            last: i64 = 1
            if size > PIECE_BYTES:
                size = PIECE_BYTES
                flags = 0
                last = 0
            else:
                way.filled += 1
            one[_POSTED] = posted + 1
            way.outstanding += 1
            host.post(self.number, way.port, way.pair, posted, size, flags, last)

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        way = self.ways[context // ROLES]
        if way.status != STATUS_SUCCESS:
            return
        if message.d == COMPLETED_RECEIVE:
            if message.b == 1:
                number, tells, begun_ps = way.coming[way.came]
                way.came += 1
                if way.came == _MANY:
                    way.coming = way.coming[way.came :]
                    way.came = 0
                if tells:
                    host.tell(number, way.rank, begun_ps, STATUS_SUCCESS)
            return
        if message.e != STATUS_SUCCESS:
            self._fail(host, way, message.e)
            return
        way.outstanding -= 1
        one = way.line[way.first]
        one[_DONE] += 1
        if one[_DONE] == one[_PIECES]:
            way.first += 1
            if way.first == _MANY:
                way.line = way.line[way.first :]
                way.filled -= way.first
                way.first = 0
            if one[_TELL] & TELL_COMPLETED:
                host.tell(one[_NUMBER], way.rank, one[_BEGUN], STATUS_SUCCESS)
        self._fill(host, way)

    def _fail(self, host: Host, way: Way, status: i64) -> None:
        """Whatever is on a way, and comes to it, fails."""
        way.status = status
        for one in way.line[way.first :]:
            host.tell(one[_NUMBER], way.rank, one[_BEGUN], status)
        way.line = []
        way.first = 0
        way.filled = 0

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if gpu_port >= 0:
            return
        for way in self.ways:
            if way.status == STATUS_SUCCESS:
                self._fail(host, way, status)

    def save(self) -> list[Plain]:
        ways: list[Plain] = []
        for way in self.ways:
            line: list[Plain] = [list[Plain](one) for one in way.line]
            coming: list[Plain] = [list[Plain](one) for one in way.coming]
            ways.append([save_fields(way, _FIELDS), line, coming])
        return ways

    def load(self, state: list[Plain]) -> None:
        for way, saved in zip(self.ways, state, strict=True):
            fields, line, coming = as_list(saved)
            load_fields(way, _FIELDS, fields)
            way.line = [[as_int(value) for value in as_list(one)] for one in as_list(line)]
            way.coming = [[as_int(value) for value in as_list(one)] for one in as_list(coming)]
