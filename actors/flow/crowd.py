"""Jobs that meet, unit by unit: calls of the library and flows on one fabric, and who is paused there.

Calls go through their steps (`actors.flow.rank_steps`) when they come, on links that all jobs share, whose
ports are paused (`actors.flow.links`). So a burst of one job delays those of others, connections whose buffer
slots are few leave room to flows that have no windows, clear-to-sends and requests of READs stand in line
behind data, and so do the calls of a job behind its own earlier ones.

Flows are those of `actors.host.perftest`: a queue pair has at most so many messages posted (`depth`), posts
and completions go in line at the proxy of their host, and of READs only so many are asked for.

The acknowledgement that a sender waits for, that of the last packet of a message, leaves its NIC before data,
and waits in the queues of switches, where it has the class of data; others take their part of links that are
busy. What has a higher class than data (clear-to-sends, as a rule) goes before it and is not paused.

Times are in ps, rates in kbit/s.
"""

from __future__ import annotations

from heapq import heappop
from typing import Final

from mypy_extensions import i64

from actors.flow.links import PS_OF_BIT_AT_KBPS, Links, Pools, Ports, Unit
from actors.flow.rank_steps import ACKNOWLEDGED, BEGIN, OF_LINKS, POSTED, Pipe, Walks
from actors.flow.voqs import Credit, Voqs

_COMES: Final = OF_LINKS
_FREE: Final = OF_LINKS + 1
_HOLD: Final = OF_LINKS + 2
_GO_ON: Final = OF_LINKS + 3
_BEGINS: Final = OF_LINKS + 4
"""A flow is asked for."""
_ASKED: Final = OF_LINKS + 5
"""The request of a READ is where the data is."""
_COMPLETED: Final = OF_LINKS + 6
"""A message of a flow is complete; and its host's proxy has handled that."""
_HANDLED: Final = OF_LINKS + 7
_WANTED: Final = OF_LINKS + 8
"""A READ is at the NIC that asks; and one that was asked for is there."""
_ANSWERED: Final = OF_LINKS + 9
_ACKS: Final = OF_LINKS + 10
"""A piece is to be acknowledged."""
_CREDIT: Final = OF_LINKS + 11
"""Of `actors.flow.voqs`."""
_REQUEST: Final[i64] = 1
"""What a piece of a flow is that is no data."""
_ACK: Final[i64] = -2
"""What a piece of anybody is that acknowledges slice 0; that of slice 1 is one less."""
_UNIT_BITS: Final[i64] = 20

_ACK_OF_CONTROL: Final[i64] = -(1 << 40)
"""What one is that acknowledges a clear-to-send."""

WALKED: Final = 0
"""What somebody is told: that a walk is done, that a queue pair of a flow has delivered all, that a flow is
complete."""
DELIVERED: Final = 1
COMPLETED: Final = 2


class Sending:
    """One queue pair of a flow. Its host is a rank, whose proxy posts."""

    def __init__(
        self, flow: int, rank: int, pipe: int, bits: tuple[int, int, int], host_ps: int, back_ps: int
    ) -> None:
        self.flow: i64 = flow
        self.rank: i64 = rank
        self.pipe: i64 = pipe
        self.messages: i64 = bits[0]
        self.bits: i64 = bits[1]
        """Of a message, and of the last."""
        self.last_bits: i64 = bits[2]
        self.host_ps: i64 = host_ps
        """From the host to the NIC that posts."""
        self.back_ps: i64 = back_ps
        """From a message's last bit until its host knows, if nobody else sends."""
        self.request: i64 = -1
        """The pipe by which READs are asked for, the bits of a request, and how many may be outstanding."""
        self.request_bits: i64 = 0
        self.most_asked: i64 = 0
        self.asked: i64 = 0
        self.waiting: i64 = 0
        """READs that were posted and are not asked for."""
        self.posted: i64 = 0
        self.sent: i64 = 0
        self.arrived: i64 = 0
        self.completed: i64 = 0
        self.end_ps: i64 = 0
        """When its last bit was there."""

    def reads(self, request: int, request_bits: int, most: int) -> None:
        """Let its messages be READs."""
        self.request = request
        self.request_bits = request_bits
        self.most_asked = most


class Crowd(Walks):
    """What is under way on links of these ports; goes on as far as it is told to."""

    def __init__(
        self,
        ports: Ports,
        pools: Pools,
        credit: Credit,
        ranks: int,
        unit_bits: int,
        message_ps: int,
        proxy_ps: int,
        depth: int,
        ack_bits: int,
    ) -> None:
        super().__init__(ranks, unit_bits, message_ps, proxy_ps)
        self.links: Links = Links(ports, pools)
        self.voqs: Voqs = Voqs(self.links, credit)
        self.answers_all = len(credit.behind) > 0  # others wait while they are reported
        self.depth: i64 = depth
        self.answers: list[int] = []
        """By pipe, that of its acknowledgements; -1 where nothing is in their way."""
        self.urgent: list[bool] = []
        """By pipe, whether its class goes before that of data, and is not paused."""
        self.came_by: i64 = -1
        """The pipe by which a piece has come."""
        self.ack_bits: i64 = ack_bits
        self.told: list[tuple[int, int]] = []
        """What somebody is to hear: of which kind, and the number of the walk, queue pair or flow."""
        self.sendings: list[Sending] = []
        self.flows: list[list[int]] = []
        """The queue pairs of each, and how many of them are not complete."""
        self.open: list[int] = []
        self.woken: list[bool] = [False] * len(ports.rates)
        """By link, whether an event comes when it is free."""
        self._units: list[Unit] = []
        self._gone: list[int] = []
        """Those that have arrived, whose places others may take."""

    def admit(self, first_walk: int, first_connection: int, first_pipe: int) -> None:
        """Walks, connections and pipes were added, from these on."""
        for place in range(first_pipe, len(self.pipes)):
            self.pipes[place].number = place
        while len(self.answers) < len(self.pipes):
            self.answers.append(-1)
        while len(self.urgent) < len(self.pipes):
            self.urgent.append(False)
        for place in range(first_connection, len(self.connections)):
            self.connections[place].number = place
        for place in range(first_walk, len(self.walks)):
            self._line_up(self.walks[place])

    def come(self, walk: int, now_ps: int) -> None:
        """A rank comes to a call."""
        self._push(now_ps, BEGIN, walk)

    def start(self, flow: int, now_ps: int) -> None:
        """A flow begins."""
        self._push(now_ps, _BEGINS, flow)

    def advance(self, until_ps: int) -> bool:
        """Go on until somebody is to hear of something, but not beyond a time; whether there is more."""
        queue = self._queue
        while queue and not self.told:
            if queue[0][0] > until_ps:
                return True
            when, _, kind, a, b, c, d = heappop(queue)
            self.now_ps = when
            self.events += 1
            self._handle(kind, a, b, c, d)
        return len(queue) > 0

    def hear(self) -> list[tuple[int, int]]:
        """What is to be heard."""
        told = self.told
        self.told = []
        return told

    def _begin(self, number: i64) -> None:
        super()._begin(number)
        if self.walks[number].left == 0:
            self.told.append((WALKED, int(number)))

    def _copied(self, number: i64) -> None:
        super()._copied(number)
        if self.walks[number].left == 0:
            self.told.append((WALKED, int(number)))

    # ---- flows

    def _start(self, flow: i64) -> None:
        """Post the first messages, one to each queue pair in turn."""
        turn: i64 = 0
        while turn < self.depth:
            for place in self.flows[flow]:
                if self.sendings[place].posted < self.sendings[place].messages:
                    self._post_one(place)
            turn += 1

    def _post_one(self, place: i64) -> None:
        sending = self.sendings[place]
        sending.posted += 1
        leaves: i64 = self.now_ps
        if self.proxy_ps > 0:
            leaves = self._turn(sending.rank)
        leaves += sending.host_ps
        if sending.request < 0:
            self._push(leaves, POSTED, self._message(place), sending.pipe)
        else:
            self._push(leaves, _WANTED, place)

    def _message(self, place: i64) -> i64:
        """The next message of a flow's queue pair."""
        sending = self.sendings[place]
        sending.sent += 1
        bits: i64 = sending.bits if sending.sent < sending.messages else sending.last_bits
        return self._piece(-1 - place, 0, bits)

    def _want(self, place: i64) -> None:
        """A READ was posted: ask, if not too many are outstanding."""
        sending = self.sendings[place]
        sending.waiting += 1
        self._ask(place, sending)

    def _ask(self, place: i64, sending: Sending) -> None:
        while sending.waiting > 0 and sending.asked < sending.most_asked:
            sending.waiting -= 1
            sending.asked += 1
            self._posted(self._piece(-1 - place, _REQUEST, sending.request_bits), sending.request)

    def _here(self, piece: i64, here: i64) -> None:
        place: i64 = self._owners[piece]
        what: i64 = self._slices[piece]
        if what == _ACK_OF_CONTROL:
            return
        if what <= _ACK:
            if place >= 0:
                self._push(here + self.connections[place].sender_ps, ACKNOWLEDGED, place, _ACK - what)
            else:
                self._push(here + self.sendings[-1 - place].host_ps, _COMPLETED, -1 - place)
        elif place >= 0:
            super()._here(piece, here)
        elif what == _REQUEST:
            self._push(here, _ASKED, -1 - place)
        else:
            self._arrives(piece, -1 - place, here)

    def _arrives(self, piece: i64, place: i64, here: i64) -> None:
        """The last bit of a flow's message is there."""
        sending = self.sendings[place]
        sending.arrived += 1
        if sending.end_ps < here:
            sending.end_ps = here
        if sending.arrived == sending.messages:
            self.told.append((DELIVERED, int(place)))
        if sending.request >= 0:
            self._push(here, _ANSWERED, place)
            self._push(here + sending.back_ps, _COMPLETED, place)
            return
        answer: i64 = self.answers[self.came_by]
        if answer < 0:
            self._push(here + sending.back_ps, _COMPLETED, place)
        else:
            self._push(here, _ACKS, self._piece(-1 - place, _ACK, self.ack_bits), answer)

    def _answer(self, piece: i64, here: i64) -> None:
        answer: i64 = self.answers[self.came_by]
        number: i64 = self._slices[piece]
        if answer < 0 and number >= 0:
            super()._answer(piece, here)
        elif answer >= 0:
            what: i64 = _ACK - number if number >= 0 else _ACK_OF_CONTROL
            self._push(here, _ACKS, self._piece(self._owners[piece], what, self.ack_bits), answer)

    def _complete(self, place: i64) -> None:
        """A host knows that a message is complete."""
        sending = self.sendings[place]
        sending.completed += 1
        if sending.posted < sending.messages:
            self._post_one(place)
        elif sending.completed == sending.messages:
            self.open[sending.flow] -= 1
            if self.open[sending.flow] == 0:
                self.told.append((COMPLETED, int(sending.flow)))

    # ---- links

    def _on_link(self, kind: int, a: i64, b: i64, c: i64, d: i64) -> None:
        if kind == _COMES:
            self._comes(self._units[a])
        elif kind == _FREE:
            self.woken[a] = False
            self._next(a)
        elif kind == _ACKS:
            self._acknowledge(a, self.pipes[b])
        elif kind == _HOLD:
            self.links.stopped[a] = True
        elif kind == _GO_ON:
            self.links.stopped[a] = False
            self.voqs.grant(a, self.now_ps)
            self._credit()
            self._next(a)
        elif kind == _CREDIT:
            freed: i64 = self.voqs.happen(a, self.now_ps)
            self._credit()
            if freed >= 0:
                self._next(freed)
        elif kind == _BEGINS:
            self._start(a)
        elif kind == _ASKED:
            self._posted(self._message(a), self.sendings[a].pipe)
        elif kind == _WANTED:
            self._want(a)
        elif kind == _ANSWERED:
            sending = self.sendings[a]
            sending.asked -= 1
            self._ask(a, sending)
        elif kind == _COMPLETED and self.proxy_ps > 0:
            self._push(self._turn(self.sendings[a].rank), _HANDLED, a)
        else:
            self._complete(a)

    def _comes(self, unit: Unit) -> None:
        """The head of a unit has come to a switch."""
        pipe = self.pipes[unit.stream]
        link: i64 = pipe.links[unit.hop]
        before: i64 = pipe.links[unit.hop - 1]
        urgent = self.urgent[unit.stream]
        if not urgent and self.links.hold(before, unit.bits):
            self._push(self.now_ps + self.links.pause_ps[before], _HOLD, before)
        if self.voqs.behind(link):
            self.voqs.join(before, link, unit, urgent, self.now_ps)
            self._credit()
        else:
            (self.links.first if urgent else self.links.lines)[link].append(unit)
            self._next(link)

    def _acknowledge(self, piece: i64, pipe: Pipe) -> None:
        """A NIC sends an acknowledgement before all that it has to send."""
        unit = self._new(piece, pipe.number, self.ack_bits)
        urgent = self.urgent[pipe.number]
        (self.links.first if urgent else self.links.lines)[pipe.links[0]].append(unit)
        self._next(pipe.links[0])

    def _posted(self, piece: i64, number: i64) -> None:
        pipe = self.pipes[number]
        if self.urgent[number]:
            self.links.first[pipe.links[0]].append(self._new(piece, number, self._left[piece]))
            self._next(pipe.links[0])
            return
        pipe.line.append(int(piece))
        if len(pipe.line) == 1:
            link: i64 = pipe.links[0]
            self.links.turns[link].append(int(number))
            self._next(link)

    def _credit(self) -> None:
        """Modular switches have said what is to happen."""
        for when, what in self.voqs.due:
            self._push(when, _CREDIT, what)
        self.voqs.due = []

    def _next(self, link: i64) -> None:
        """Let a link send the next unit, if it may."""
        if self.links.stopped[link] and not self.links.first[link]:
            return
        if self.links.busy[link] > self.now_ps:
            if not self.woken[link]:
                self.woken[link] = True
                self._push(self.links.busy[link], _FREE, link)
            return
        if self.links.first[link]:
            unit = self.links.first[link].popleft()
            self._send(link, unit, self.pipes[unit.stream])
        elif self.links.lines[link]:
            unit = self.links.lines[link].popleft()
            self._send(link, unit, self.pipes[unit.stream])
        elif self.links.turns[link]:
            number = self.links.turns[link].popleft()
            self._send(link, self._unit(number), self.pipes[number])
        else:
            return
        if self.links.first[link] or self.links.lines[link] or self.links.turns[link]:
            self.woken[link] = True
            self._push(self.links.busy[link], _FREE, link)

    def _unit(self, number: int) -> Unit:
        """The next unit of a pipe."""
        pipe = self.pipes[number]
        piece: i64 = pipe.line[0]
        bits: i64 = self._take(pipe)
        if pipe.line:
            self.links.turns[pipe.links[0]].append(number)
        return self._new(piece if self._left[piece] == 0 else -1, pipe.number, bits)

    def _new(self, piece: i64, pipe: i64, bits: i64) -> Unit:
        if self._gone:
            unit = self._units[self._gone.pop()]
            unit.stream = int(pipe)
            unit.bits = bits
            unit.hop = 0
        else:
            unit = Unit(len(self._units), int(pipe), bits)
            self._units.append(unit)
        unit.piece = piece
        unit.tail_ps = self.now_ps
        return unit

    def _send(self, link: i64, unit: Unit, pipe: Pipe) -> None:
        hop: i64 = unit.hop
        rate: i64 = self.links.rates[link]
        takes: i64 = unit.bits // pipe.parts[hop] * PS_OF_BIT_AT_KBPS // rate
        gone: i64 = self.now_ps + takes
        if self.links.debt[link] > 0:
            gone += self.links.debt[link] * PS_OF_BIT_AT_KBPS // rate
            self.links.debt[link] = 0
        self.links.busy[link] = gone
        if hop > 0:
            if not self.urgent[pipe.number]:
                before: i64 = pipe.links[hop - 1]
                if self.links.release(before, unit.bits):
                    self._push(self.now_ps + self.links.pause_ps[before], _GO_ON, before)
            if pipe.packet_ps[hop - 1] > 0:
                last: i64 = pipe.packet_ps[hop] * pipe.head_ps[hop - 1] // pipe.packet_ps[hop - 1]
                if last > takes:
                    last = takes
                if gone < unit.tail_ps + last:
                    gone = unit.tail_ps + last
        elif unit.piece >= 0:
            self._left_host(unit.piece, gone)
        gone += pipe.after_ps[hop]
        unit.hop = hop + 1
        unit.tail_ps = gone
        if hop + 1 < len(pipe.links):
            head: i64 = pipe.head_ps[hop]
            if head > takes:
                head = takes
            self._push(self.now_ps + head + pipe.after_ps[hop], _COMES, unit.number)
            return
        self._gone.append(int(unit.number))
        acks: i64 = unit.bits * pipe.ack_share >> _UNIT_BITS
        if acks > 0 and unit.piece < 0 and self.answers_all and self.answers[pipe.number] >= 0:
            self._push(gone, _ACKS, -1, self.answers[pipe.number])
        elif acks > 0 and (unit.piece < 0 or self.answers[pipe.number] < 0):
            self.links.acknowledge(pipe.back, acks, self.now_ps)
        if unit.piece >= 0:
            self.came_by = pipe.number
            self._here(unit.piece, gone)

    def _left_host(self, piece: i64, gone: i64) -> None:
        """The last bit of a piece has left its sender: over NVLink that is all that a sender waits for."""
        place: i64 = self._owners[piece]
        if place >= 0 and self._slices[piece] >= 0 and self.connections[place].inside:
            self._push(gone + self.connections[place].sender_ps, ACKNOWLEDGED, place, self._slices[piece])
