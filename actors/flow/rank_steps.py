"""Calls of the library slice by slice: ranks that go through their steps, whatever carries what they send.

Steps are those of `GraphChannel` (`actors.ncclx.transport.channel`): a slice goes on when it is here, in its
turn, and a slot is free; it waits for its clear-to-send, and its slot for an acknowledgement. Copies of a
GPU, and what a rank's proxy handles, go in line.

What they send are *pieces*, each by a pipe. What takes time on the links of pipes are *units*: parts of a
piece, of several packets each. Queue pairs take turns at a NIC with them. Who carries them is a class on this
one: `actors.flow.rehearsal` for calls by themselves, `actors.flow.crowd` for jobs that meet.

Times are in ps, rates in kbit/s.
"""

from __future__ import annotations

from heapq import heappush
from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec

_COPIED: Final = 0
POSTED: Final = 1
_ARRIVED: Final = 4
_CLEARED: Final = 5
ACKNOWLEDGED: Final = 6
_SETTLED: Final = 7
"""The send of a clear-to-send is acknowledged: work for the proxy, and nothing else."""
BEGIN: Final = 8
_HANDLED: Final = 16
"""Added to a kind: the proxy has handled it."""
_HEADER_BITS: Final[i64] = 84 * 8
"""Of a packet, with preamble and gap. What is left of a message and is less belongs to its last packet."""
_ADDRESS_BITS: Final[i64] = 16 * 8
"""Of the first packet of a WRITE: where it goes to."""
OF_LINKS: Final = 32
"""The first kind of an event of those who carry."""


class Pipe:
    """The way of a queue pair, or of a pair of GPUs, and what waits there to be sent."""

    def __init__(
        self,
        links: list[int],
        packet_ps: list[int],
        head_ps: list[int],
        after_ps: list[int],
        parts: list[int],
        back: list[int],
        ack_share: int,
        turns: bool,
    ) -> None:
        self.links: vec[i64] = vec[i64](links)
        self.packet_ps: vec[i64] = vec[i64](packet_ps)
        """By link: a packet of the largest size on it."""
        self.head_ps: vec[i64] = vec[i64](head_ps)
        """What of a packet must be there before it goes on."""
        self.after_ps: vec[i64] = vec[i64](after_ps)
        """Propagation, and the device behind the link."""
        self.parts: vec[i64] = vec[i64](parts)
        """By link, the pieces that it carries once: those of a multicast, or of a reduction."""
        self.back: vec[i64] = vec[i64](back)
        """Links of acknowledgements."""
        self.ack_share: i64 = ack_share
        """Their bits by those of data, in units of 2^-20."""
        self.turns: bool = turns
        """Whether it takes turns with others, unit by unit; else a piece leaves whole."""
        self.follows: list[bool] = [False] * len(links)
        """By link, whether all that comes there came by the link before: it keeps its order."""
        self.line: list[int] = []
        """Pieces that wait, the first on its way."""
        self.busy_ps: i64 = 0
        """When its last unit begins to leave: then it may take its place in the round again."""
        self.number: i64 = 0
        """Among those of the call."""


class Connection:
    """A connection in one call. Its times are between a host and its NIC or GPU, one way, except
    `back_ps`: from the delivery of a last packet until the sender's host knows.
    """

    def __init__(
        self,
        sender: int,
        receiver: int,
        slots: int,
        pipes: list[int],
        control: int,
        host_ps: tuple[int, int],
        back_ps: int,
        clear_ps: int,
        inside: bool,
        cts_bits: int,
        pieces: list[list[tuple[int, int]]],
    ) -> None:
        self.sender: i64 = sender
        """The walk that sends; and the one that receives."""
        self.receiver: i64 = receiver
        self.slots: i64 = slots
        self.pipes: list[int] = pipes
        self.control: i64 = control
        """The pipe of its clear-to-sends; -1 if nothing is in their way."""
        self.sender_ps: i64 = host_ps[0]
        self.receiver_ps: i64 = host_ps[1]
        self.back_ps: i64 = back_ps
        self.clear_ps: i64 = clear_ps
        """A clear-to-send to the sender's host if nothing is in its way; -1 where slices wait for none."""
        self.inside: bool = inside
        self.cts_bits: i64 = cts_bits
        self.pieces: list[list[tuple[int, int]]] = pieces
        """By slice: pipe (a place in `pipes`) and bits of each WRITE."""
        self.issued: i64 = 0
        self.filled: i64 = 0
        self.granted: i64 = 0
        self.posted: i64 = 0
        self.freed: i64 = 0
        self.cleared: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.recycled: i64 = 0
        self.missing: list[int] = [len(one) for one in pieces]
        """By slice, pieces that have not arrived; and that are not acknowledged."""
        self.open: list[int] = [len(one) for one in pieces]
        self.send_line: list[int] = []
        """Steps of the sender on it, in their order, and how many were given to the GPU."""
        self.send_head: i64 = 0
        self.receive_line: list[int] = []
        self.receive_head: i64 = 0
        self.number: i64 = 0
        """Among those of the call."""
        self.first_ps: i64 = -1
        """When its first bit left."""
        self.last_ps: i64 = 0
        """When the last slice was copied out at the receiver."""


class Move:
    """A step of a rank on a channel: where data comes from (-1: from here), where it goes to, its slices in
    bytes, and how many earlier steps it waits for.
    """

    def __init__(self, receive: int, sends: list[int], sizes: list[int], after: list[int]) -> None:
        self.receive: i64 = receive
        self.sends: list[int] = sends
        self.sizes: list[int] = sizes
        self.waiting: i64 = len(after)
        self.after: list[int] = after
        self.issued: i64 = 0
        self.then: list[int] = []


class Walk:
    """One channel of one rank, whose GPU and proxy it shares with others of that rank. A copy takes a message
    to the GPU and one back, `copy_ps`, and its bytes at `copy_bps` (0: no time at all).
    """

    def __init__(self, rank: int, moves: list[Move], copy_ps: int, copy_bps: int, start_ps: int) -> None:
        self.rank: i64 = rank
        self.start_ps: i64 = start_ps
        """When its rank comes to the call."""
        self.begun: bool = False
        self.moves: list[Move] = moves
        self.copy_ps: i64 = copy_ps
        self.copy_bps: i64 = copy_bps
        self.copies: list[int] = []
        """Steps of the copies under way, oldest first."""
        self.left: i64 = 0
        """Copies that are not done."""
        self.end_ps: i64 = 0
        """When its last copy was done."""


class Walks:
    """Channels of ranks, in calls. The clock is theirs who carry what they send."""

    def __init__(self, ranks: int, unit_bits: int, message_ps: int, proxy_ps: int) -> None:
        self.unit_bits: i64 = unit_bits
        self.answers_all: bool = False
        """Whether acknowledgements matter that nobody waits for."""
        self.message_ps: i64 = message_ps
        self.proxy_ps: i64 = proxy_ps
        self.memory_free: vec[i64] = vec[i64]([0] * ranks)
        self.proxy_free: vec[i64] = vec[i64]([0] * ranks)
        self.pipes: list[Pipe] = []
        self.connections: list[Connection] = []
        self.walks: list[Walk] = []
        self.now_ps: i64 = 0
        self.events: i64 = 0
        """Handled."""
        self._queue: list[tuple[int, int, int, int, int, int, int]] = []
        """When, order, kind, and what it needs."""
        self._pushed: i64 = 0
        self._owners: list[int] = []
        """By piece: its connection, its slice (-1: a clear-to-send), what is left of it in bits."""
        self._slices: list[int] = []
        self._left: list[int] = []
        self._whole: list[int] = []

    def _line_up(self, walk: Walk) -> None:
        for at, move in enumerate(walk.moves):
            walk.left += len(move.sizes)
            for one in move.after:
                walk.moves[one].then.append(at)
            for place in move.sends:
                self.connections[place].send_line.append(at)
            if move.receive >= 0:
                self.connections[move.receive].receive_line.append(at)

    def _push(self, when: i64, kind: int, a: i64, b: i64 = 0, c: i64 = 0, d: i64 = 0) -> None:
        heappush(self._queue, (int(when), int(self._pushed), kind, int(a), int(b), int(c), int(d)))
        self._pushed += 1

    def _handle(self, kind: int, a: i64, b: i64, c: i64, d: i64) -> None:
        if kind >= OF_LINKS:
            self._on_link(kind, a, b, c, d)
        elif kind == BEGIN:
            self._begin(a)
        elif kind == _COPIED:
            self._copied(a)
        elif kind == POSTED:
            self._posted(a, b)
        elif kind < _HANDLED:
            self._proxy(kind, a, b)
        elif kind == _ARRIVED + _HANDLED:
            self._arrived(a, b)
        elif kind == _CLEARED + _HANDLED:
            connection = self.connections[a]
            connection.granted += 1
            self._post(a)
        elif kind == ACKNOWLEDGED + _HANDLED:
            self._acknowledged(a, b)

    def _proxy(self, kind: int, a: i64, b: i64) -> None:
        """Something for the proxy of a rank: it is handled when what came before has been."""
        connection = self.connections[a]
        if self.proxy_ps == 0 or connection.inside:
            if kind != _SETTLED:
                self._handle(kind + _HANDLED, a, b, 0, 0)
            return
        walk: i64 = connection.receiver if kind in (_ARRIVED, _SETTLED) else connection.sender
        self._push(self._turn(self.walks[walk].rank), kind + _HANDLED, a, b)

    def _turn(self, rank: i64) -> i64:
        """When a rank's proxy has done one more thing."""
        free: i64 = self.proxy_free[rank]
        if free < self.now_ps:
            free = self.now_ps
        free += self.proxy_ps
        self.proxy_free[rank] = free
        return free

    # ---- ranks

    def _begin(self, number: i64) -> None:
        """A rank comes to the call: it says where it has room, in the order in which it wants data."""
        walk = self.walks[number]
        walk.begun = True
        for move in walk.moves:
            if move.receive >= 0:
                receive = self.connections[move.receive]
                if receive.cleared == 0:
                    self._clear(receive)
        self._look(number, list(range(len(walk.moves))))

    def _look(self, number: i64, line: list[int]) -> None:
        """Give the GPU what may be done of these steps of a walk, and of those that they hold up."""
        walk = self.walks[number]
        if not walk.begun:
            return
        line.reverse()
        while line:
            at: i64 = line.pop()
            if not self._issue(number, walk, at):
                continue
            move = walk.moves[at]
            for then in move.then:
                walk.moves[then].waiting -= 1
                line.append(then)
            for place in move.sends:
                send = self.connections[place]
                send.send_head += 1
                if send.send_head < len(send.send_line):
                    line.append(send.send_line[send.send_head])
            if move.receive >= 0:
                receive = self.connections[move.receive]
                receive.receive_head += 1
                if receive.receive_head < len(receive.receive_line):
                    line.append(receive.receive_line[receive.receive_head])

    def _issue(self, number: i64, walk: Walk, at: i64) -> bool:
        """Give the GPU what may be done of a step; whether that was the last of it."""
        move = walk.moves[at]
        many: i64 = len(move.sizes)
        if move.waiting > 0 or move.issued == many:
            return False
        for place in move.sends:
            send = self.connections[place]
            if send.send_line[send.send_head] != at:
                return False
        if move.receive >= 0:
            receive = self.connections[move.receive]
            if receive.receive_line[receive.receive_head] != at:
                return False
        while move.issued < many:
            if move.receive >= 0:
                receive = self.connections[move.receive]
                if receive.taken == receive.ready:
                    return False
            for place in move.sends:
                send = self.connections[place]
                if send.issued - send.freed >= send.slots:
                    return False
            if move.receive >= 0:
                self.connections[move.receive].taken += 1
            for place in move.sends:
                self.connections[place].issued += 1
            self._copy(number, walk, at, move.sizes[move.issued])
            move.issued += 1
        return True

    def _copy(self, number: i64, walk: Walk, at: i64, size: i64) -> None:
        walk.copies.append(int(at))
        done: i64 = self.now_ps
        if walk.copy_bps > 0:
            start: i64 = done + self.message_ps
            if start < self.memory_free[walk.rank]:
                start = self.memory_free[walk.rank]
            whole: i64 = size * 8_000_000 // (walk.copy_bps // 1_000_000)
            self.memory_free[walk.rank] = start + whole
            done = start + whole + walk.copy_ps + self.message_ps
        self._push(done, _COPIED, number)

    def _copied(self, number: i64) -> None:
        """A GPU has done the oldest copy of a walk."""
        walk = self.walks[number]
        move = walk.moves[walk.copies.pop(0)]
        walk.left -= 1
        walk.end_ps = self.now_ps
        if move.receive >= 0:
            receive = self.connections[move.receive]
            receive.recycled += 1
            receive.last_ps = self.now_ps
            self._clear(receive)
        for place in move.sends:
            self.connections[place].filled += 1
            self._post(place)

    def _clear(self, connection: Connection) -> None:
        """Send a clear-to-send for every free slot that is still needed."""
        if connection.clear_ps < 0:
            return
        slices: i64 = len(connection.pieces)
        while connection.cleared < slices and connection.cleared - connection.recycled < connection.slots:
            connection.cleared += 1
            number: i64 = connection.number
            leaves: i64 = self.now_ps
            if self.proxy_ps > 0 and not connection.inside:
                leaves = self._turn(self.walks[connection.receiver].rank)
            if connection.control < 0:
                self._push(leaves + connection.clear_ps, _CLEARED, number)
                continue
            piece: i64 = self._piece(number, -1, connection.cts_bits)
            self._push(leaves + connection.receiver_ps, POSTED, piece, connection.control)

    def _piece(self, connection: i64, number: i64, bits: i64) -> i64:
        self._owners.append(int(connection))
        self._slices.append(int(number))
        self._left.append(int(bits))
        self._whole.append(int(bits))
        return len(self._left) - 1

    def _post(self, place: i64) -> None:
        """Send every slice of a connection that is in its slot and may go."""
        connection = self.connections[place]
        admitted: bool = connection.clear_ps >= 0
        while connection.posted < connection.filled and (
            not admitted or connection.posted < connection.granted
        ):
            number: i64 = connection.posted
            connection.posted += 1
            for pipe, bits in connection.pieces[number]:
                leaves: i64 = self.now_ps
                if self.proxy_ps > 0 and not connection.inside:
                    leaves = self._turn(self.walks[connection.sender].rank)
                piece: i64 = self._piece(place, number, bits)
                self._push(leaves + connection.sender_ps, POSTED, piece, connection.pipes[pipe])

    def _arrived(self, place: i64, number: i64) -> None:
        """A piece of a slice is here."""
        connection = self.connections[place]
        connection.missing[number] -= 1
        more: bool = False
        while connection.ready < len(connection.missing) and connection.missing[connection.ready] == 0:
            connection.ready += 1
            more = True
        if more and connection.receive_head < len(connection.receive_line):
            self._look(connection.receiver, [connection.receive_line[connection.receive_head]])

    def _acknowledged(self, place: i64, number: i64) -> None:
        """A piece of a slice is acknowledged."""
        connection = self.connections[place]
        connection.open[number] -= 1
        more: bool = False
        while connection.freed < connection.posted and connection.open[connection.freed] == 0:
            connection.freed += 1
            more = True
        if more and connection.send_head < len(connection.send_line):
            self._look(connection.sender, [connection.send_line[connection.send_head]])

    # ---- pieces

    def _on_link(self, kind: int, a: i64, b: i64, c: i64, d: i64) -> None:
        """An event of those who carry."""
        raise AssertionError(kind, int(a), int(b), int(c), int(d))

    def _posted(self, piece: i64, number: i64) -> None:
        """A pipe has a piece more to send."""
        raise AssertionError(int(piece), int(number))

    def _take(self, pipe: Pipe) -> i64:
        """Take the bits of a pipe's next unit off the piece in front; a piece that is all taken goes away."""
        piece: i64 = pipe.line[0]
        left: i64 = self._left[piece]
        bits: i64 = left
        if pipe.turns and left >= self.unit_bits + _HEADER_BITS:
            bits = self.unit_bits
            if left == self._whole[piece]:
                bits += _ADDRESS_BITS
        self._left[piece] = int(left - bits)
        if bits == left:
            pipe.line.pop(0)
        return bits

    def _here(self, piece: i64, here: i64) -> None:
        """The last bit of a piece is at its receiver."""
        place: i64 = self._owners[piece]
        owner = self.connections[place]
        number: i64 = self._slices[piece]
        if number < 0:
            self._push(here + owner.sender_ps, _CLEARED, place)
            if self.proxy_ps > 0:
                self._push(here + owner.back_ps, _SETTLED, place)
            if self.answers_all:
                self._answer(piece, here)
            return
        self._push(here + owner.receiver_ps, _ARRIVED, place, number)
        if not owner.inside and (self.answers_all or self.proxy_ps > 0 or len(owner.pieces) > owner.slots):
            self._answer(piece, here)

    def _answer(self, piece: i64, here: i64) -> None:
        """The last bit of a piece of a slice is to be acknowledged."""
        place: i64 = self._owners[piece]
        self._push(here + self.connections[place].back_ps, ACKNOWLEDGED, place, self._slices[piece])
