"""Transfers of an open job: what programs outside post, one by one, while the run goes on.

A *way* is one end of a connection: a queue pair between two NICs, or a pair of GPUs over NVLink. The end that
sends has a line of transfers. A transfer goes as WRITEs of at most `PIECE_BYTES`, and `DEPTH` WRITEs of a way
are outstanding. The last WRITE carries an immediate, so the host at the other end hears of the transfer. Two
times are reported: *delivered*, when that host has the completion of the receive, and *completed*, when the
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
from actors.kernel.state import as_list, load_fields, save_fields
from actors.wire.message import COMPLETED_RECEIVE, POST_WITH_IMMEDIATE, STATUS_SUCCESS

PIECE_BYTES: Final[i64] = 1 << 21
"""Largest size of one WRITE."""
DEPTH: Final[i64] = 128
"""WRITEs outstanding on one queue pair (perftest's -t)."""
_MANY: Final[i64] = 1024
"""How many transfers that are over are forgotten at once: out of a long line, one by one is slow."""
TELL_COMPLETED: Final = 1
TELL_DELIVERED: Final = 2
SENDS: Final = 0
RECEIVES: Final = 1
ROLES: Final = 2

_FIELDS: Final = ("filled", "outstanding", "status")
_TRANSFER: Final = ("number", "size_bytes", "tell", "begun_ps", "posted", "done")


class Transfer:
    """One transfer, at one of its ends."""

    def __init__(self, number: int, size_bytes: int, tell: int, begun_ps: int) -> None:
        self.number: i64 = number
        """The post's number."""
        self.size_bytes: i64 = size_bytes
        self.tell: i64 = tell
        """What is told of it at this end; 0 is nothing."""
        self.begun_ps: i64 = begun_ps
        self.posted: i64 = 0
        """How many of its pieces are posted, and ..."""
        self.done: i64 = 0
        """... how many of these are acknowledged."""

    def pieces(self) -> i64:
        """How many WRITEs it takes."""
        return (self.size_bytes + PIECE_BYTES - 1) // PIECE_BYTES


class Line:
    """Transfers of one direction of a way that are not over, in order."""

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        """From `first` on; before it, those that are over and not forgotten yet."""
        self.first: i64 = 0

    def put(self, transfer: Transfer) -> None:
        """One more is under way."""
        self.transfers.append(transfer)

    def take(self) -> Transfer:
        """The first is over."""
        transfer = self.transfers[self.first]
        self.first += 1
        if self.first == _MANY:
            self.transfers = self.transfers[self.first :]
            self.first = 0
        return transfer

    def take_all(self) -> list[Transfer]:
        """All of them are over."""
        left = self.transfers[self.first :]
        self.transfers = []
        self.first = 0
        return left

    def save(self) -> list[Plain]:
        """Those that are not over."""
        return [save_fields(one, _TRANSFER) for one in self.transfers[self.first :]]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        self.first = 0
        self.transfers = []
        for saved in as_list(state):
            transfer = Transfer(0, 0, 0, 0)
            load_fields(transfer, _TRANSFER, saved)
            self.transfers.append(transfer)


class Way:
    """One end of a connection, at the host's port and the queue pair (or the GPU's pair) there."""

    def __init__(self, rank: int, port: int, pair: int) -> None:
        self.rank: i64 = rank
        """Whose end it is."""
        self.port: i64 = port
        self.pair: i64 = pair
        self.going = Line()
        """Transfers from here."""
        self.coming = Line()
        """Transfers to here."""
        self.filled: i64 = 0
        """How many of those from here are posted whole."""
        self.outstanding: i64 = 0
        """Pieces that are posted and not acknowledged."""
        self.status: i64 = STATUS_SUCCESS


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
        way.going.put(Transfer(post[1], post[3], post[4] & TELL_COMPLETED, now))
        self._fill(host, way)

    def expect(self, place: int, number: int, size_bytes: int, tell: int, now: int) -> None:
        """A transfer will come on a way."""
        self.ways[place].coming.put(Transfer(number, size_bytes, tell & TELL_DELIVERED, now))

    def _fill(self, host: Host, way: Way) -> None:
        """Post pieces, as many as may be outstanding."""
        line = way.going
        while way.outstanding < DEPTH and line.first + way.filled < len(line.transfers):
            one = line.transfers[line.first + way.filled]
            posted: i64 = one.posted
            size: i64 = one.size_bytes - posted * PIECE_BYTES
            flags: i64 = POST_WITH_IMMEDIATE
            last: i64 = 1
            if size > PIECE_BYTES:
                size = PIECE_BYTES
                flags = 0
                last = 0
            else:
                way.filled += 1
            one.posted = posted + 1
            way.outstanding += 1
            host.post(self.number, way.port, way.pair, posted, size, flags, last)

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        way = self.ways[context // ROLES]
        if way.status != STATUS_SUCCESS:
            return
        if message.d == COMPLETED_RECEIVE:
            if message.b == 1:
                self._over(host, way, way.coming.take(), STATUS_SUCCESS)
            return
        if message.e != STATUS_SUCCESS:
            self._fail(host, way, message.e)
            return
        way.outstanding -= 1
        one = way.going.transfers[way.going.first]
        one.done += 1
        if one.done == one.pieces():
            way.filled -= 1
            self._over(host, way, way.going.take(), STATUS_SUCCESS)
        self._fill(host, way)

    def _over(self, host: Host, way: Way, one: Transfer, status: i64) -> None:
        """A transfer is over at this end; of one that failed it is reported in any case."""
        if one.tell != 0 or status != STATUS_SUCCESS:
            host.tell(one.number, way.rank, one.begun_ps, status)

    def _fail(self, host: Host, way: Way, status: i64) -> None:
        """Whatever goes on a way fails, now and later."""
        way.status = status
        way.filled = 0
        for one in way.going.take_all():
            self._over(host, way, one, status)

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if gpu_port >= 0:
            return
        for way in self.ways:
            if way.status == STATUS_SUCCESS:
                self._fail(host, way, status)

    def save(self) -> list[Plain]:
        return [[save_fields(way, _FIELDS), way.going.save(), way.coming.save()] for way in self.ways]

    def load(self, state: list[Plain]) -> None:
        for way, saved in zip(self.ways, state, strict=True):
            fields, going, coming = as_list(saved)
            load_fields(way, _FIELDS, fields)
            way.going.load(going)
            way.coming.load(coming)
