"""A NIC's port: acknowledgements, and the round of queue pairs that have packets to send.

Acknowledgements wait as frames, data waits as queue pairs: a data packet is built when its turn comes, so
that nothing is queued in the NIC that a rollback would have to find. Within a priority acknowledgements
go first, then queue pairs in turn, one packet each (round-robin). Between priorities the port is strict.
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i16, i32, i64, u8

from actors.kernel.device import Device, Plain
from actors.kernel.event import RETRANSMIT, SERVE
from actors.kernel.state import as_int, as_list, load_frames, save_frames
from actors.kernel.units import sending_ps
from actors.kernel.vectors import vec
from actors.nic.congestion.control import LEFT_AGAIN, CongestionControl
from actors.nic.loss_recovery import Recovery
from actors.nic.memory_path import Fetch
from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import NO_PSN, UNLIMITED_PSN, QueuePair
from actors.port.link import PRIORITIES, Wire
from actors.port.passage import Passage
from actors.port.port import Port
from actors.wire.frame import FIRST_TTL, PSN_HALF, READ_REQUEST, SEND_MIDDLE, WRITE_MIDDLE, Frame
from actors.wire.train import FEWEST, Coupling, Train


class SendQueue(Coupling):
    """What a port has to send of one priority: acknowledgements, and the round of its queue pairs; and when
    it tries to make trains of these."""

    def __init__(self) -> None:
        super().__init__()
        self.frame: Frame | None = None
        self.last_frame: Frame | None = None
        self.pair: QueuePair | None = None
        self.last_pair: QueuePair | None = None
        self.filling: tuple[i64, i64, i64, i64, i64] = (0, 0, 0, 0, 0)
        """Nothing, as in `actors.switch.egress.EgressQueue`."""


class Departures(Passage):
    """A train that begins at a NIC: packets of a queue pair, the first of which leaves now."""

    def __init__(self, train: Train, first_ps: i64, exit_port: i64, pair: QueuePair) -> None:
        super().__init__(train, first_ps, -1, exit_port)
        self.pair: QueuePair = pair


class NicPort(Port):
    """A fabric port of a NIC: the port, its acknowledgements and its round of active queue pairs."""

    def __init__(
        self,
        owner: Device,
        number: int,
        wire: Wire,
        own_ingress_latency_ps: int,
        timeout_ps: int,
        recovery: Recovery,
    ) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps)
        # What a packet that leaves reads comes first, in one cache line.
        self.queues: vec[SendQueue] = vec[SendQueue]([SendQueue() for _ in range(PRIORITIES)])
        """By priority."""
        self.fetch: Fetch | None = None
        """The way from memory to the NIC, where that may be slower than its links; all its ports share it."""
        self.timeout_ps: i64 = timeout_ps
        """How long to wait for the first acknowledgement; 0 for ever."""
        self.recovery: Recovery = recovery
        self.retransmitted: i64 = 0
        self.stamping: bool = False
        """Whether frames leave with a TTL or DSCP of their own."""
        self.ttl: u8 = FIRST_TTL
        self.dscp_of: vec[i64] = vec[i64]([0, 8, 16, 24, 32, 40, 48, 56])
        """By priority."""
        self.filling: tuple[i64, i64] = (0, 0)
        """Nothing: 512 bytes with the collector's header, eight cache lines."""

    def send_frame(self, frame: Frame, now: i64) -> None:
        """Send an acknowledgement now if nothing goes before it, else let it wait."""
        if self.send_at_once(frame, now):
            return
        if self.leaving is not None:
            self.owner.uncouple_port(self.number)
            if self.send_at_once(frame, now):
                return
        if not self.up:
            self.lose(frame)
            return
        self._append(frame)
        if not self.serve_pending:
            self.kick(now)

    def set_stamp(self, ttl: int, dscp_of: list[int]) -> None:
        """Frames leave with this TTL, and the DSCP of their priority."""
        assert len(dscp_of) == PRIORITIES, dscp_of
        self.ttl = ttl
        self.dscp_of = vec[i64](dscp_of)
        self.stamping = True
        self.measuring = True

    def tell(self, frame: Frame, now: i64) -> None:
        """A frame leaves now: it gets the TTL and DSCP that this NIC gives."""
        if self.stamping:
            frame.ttl = self.ttl
            frame.dscp = u8(self.dscp_of[i64(frame.priority)])
        super().tell(frame, now)

    def set_fetch(self, fetch: Fetch) -> None:
        """Payload that is sent has to be read first."""
        self.fetch = fetch
        self.uneven = True

    def _fly(self, frame: Frame, now: i64, done: i64) -> None:
        super()._fly(frame, now, done)
        fetch = self.fetch
        if fetch is not None and frame.payload_bytes > 0:
            self.free_ps = fetch.take(i64(frame.payload_bytes), now, done)

    def activate(self, pair: QueuePair, now: i64) -> None:
        """A queue pair has packets to send: it joins the end of its priority's round."""
        if self.leaving is not None:
            self.owner.uncouple_port(self.number)
        if not pair.active and not pair.paced:
            self._join(pair)
            if not self.up:
                self._cut_off(pair, now)
        if not self.serve_pending:
            self.kick(now)

    def drain_round(self) -> None:
        """Take all queue pairs out of the round; acknowledgements stay."""
        priority: i64 = 0
        while priority < 8:
            queue = self.queues[priority]
            pair = queue.pair
            while pair is not None:
                following = pair.active_next
                pair.active_next = None
                pair.active = False
                pair = following
            queue.pair = None
            queue.last_pair = None
            if queue.frame is None:
                self.waiting &= ~(1 << priority)
            priority += 1

    def take(self, priority: i64, now: i64) -> Frame | None:  # noqa: C901, PLR0912  a call costs 1 %
        """The next acknowledgement of a priority, else the next packet of the queue pair whose turn it is."""
        queue = self.queues[priority]
        answer = queue.frame
        if answer is not None:
            frame: Frame = answer
            self._unlink(queue, frame, priority)
            return frame
        first = queue.pair
        assert first is not None, (self.number, priority)
        pair: QueuePair = first  # what is narrowed is checked again at each use
        queue.pair = pair.active_next
        if pair.active_next is None:
            queue.last_pair = None
        else:
            pair.active_next = None
        pair.active = False
        if self.fetch is not None:
            self.fetch.use(pair.qpn, now)
        built: Frame | None = None
        if pair.pending is not None:
            built = self._respond(pair, now)
        elif pair.has_packets():
            if pair.una_psn == pair.next_psn:
                self._starts(pair, now)
            psn: i64 = pair.next_psn
            before: i64 = pair.high_psn
            if pair.resend_psn >= 0:
                psn = pair.resend_psn
                built = pair.frame_again(psn)
                self.recovery.on_resent(pair)
                self._resent(pair, psn, psn + 1, now)
            else:
                built = pair.next_frame()
                if pair.next_psn <= pair.high_psn:
                    self._resent(pair, psn, pair.next_psn, now)
                else:
                    pair.high_psn = pair.next_psn
                    if self.couples and queue.pair is None:
                        if queue.skip > 0:
                            queue.skip -= 1
                        else:
                            built = self._couple(pair, queue, built, now)
            if pair.control is not None:
                control = pair.control
                first_time: bool = pair.high_psn > before
                self._routed(control, built, psn, now if first_time else LEFT_AGAIN)
                if control.wants_rtt and first_time and control.timed_psn == NO_PSN:
                    self._time(pair, control, built, now)
                self._paced(pair, control, built, now)
            if pair.has_packets() and not pair.paced:
                self._join(pair)
            if not pair.timer_pending and self.timeout_ps > 0:
                pair.timer_pending = True
                self.owner.push_timer(pair.deadline_ps, RETRANSMIT, self.number, pair.index)
        if queue.pair is None and queue.frame is None:
            self.waiting &= ~(1 << priority)
        return built

    def _couple(self, pair: QueuePair, queue: SendQueue, first: Frame, now: i64) -> Frame:
        """Let the packets of a queue pair leave as a train that follow one that leaves now, if nothing else
        is there to be sent: as many as leave before the first one arrives."""
        if self.uneven or self.measuring or self.control_pending or self.owner.stopping > 0:
            return first
        if self.waiting != 1 << i64(pair.priority) or self.serve_pending or self.ps_per_byte == 0:
            return first
        opcode: int = first.opcode
        request = pair.sending
        if request is None or (opcode != WRITE_MIDDLE and opcode != SEND_MIDDLE) or request.data is not None:
            return first
        if (
            pair.limit_psn != UNLIMITED_PSN
            or pair.control is not None
            or self.recovery.whole_messages
            or (pair.reading is not None and pair.reads > 0)
        ):
            return first
        its: int = first.wire_bytes
        size: i64 = its
        gap_ps: i64 = size * self.ps_per_byte
        count: i64 = request.first_psn + request.packets - pair.next_psn  # the last one is different
        if pair.ack_every > 1:  # so is each that asks for an answer
            at: i64 = pair.next_psn - 1 - request.first_psn
            count = min(count, pair.ack_every - 1 - at % pair.ack_every)
        most: i64 = 1 + (self.flight_ps - 1) // gap_ps
        if count > most:
            count = most
        if count < FEWEST or pair.next_psn + count - pair.una_psn >= PSN_HALF:
            return first
        train = Train(first, count, gap_ps, queue)
        more: i64 = count - 1
        pair.next_psn += more
        pair.high_psn = pair.next_psn
        self._sent_so_many(train, more)
        leaving = Departures(train, now, self.number, pair)
        self.leaving = leaving
        owner = self.owner
        owner.executed += more
        if leaving.last_ps > owner.ahead_ps:
            owner.ahead_ps = leaving.last_ps
        return train

    def hold_back(self, passage: Departures, now: i64, place: i64) -> None:
        """Packets of a train that leave after an event now are the queue pair's to send, at their turn."""
        self.leaving = None
        left: i64 = passage.left(now, place)
        if left == 0:
            left = 1
        if left >= passage.count:
            return
        back: i64 = passage.count - left
        train = passage.train
        pair = passage.pair
        pair.next_psn -= back
        pair.high_psn = pair.next_psn
        owner = self.owner
        owner.executed -= back
        owner.undefer(self)
        self.take_back_departures(passage, train, left)
        self.due_ps = self.free_ps
        owner.defer(self)

    def _unlink(self, queue: SendQueue, first: Frame, priority: i64) -> None:
        """Take the first acknowledgement out of its line."""
        following = cast("Frame | None", first.chain)
        queue.frame = following
        if following is not None:
            first.chain = None
            return
        queue.last_frame = None
        if queue.pair is None:
            self.waiting &= ~(1 << priority)

    def _starts(self, pair: QueuePair, now: i64) -> None:
        """A packet leaves now, and nothing is in flight."""
        pair.deadline_ps = now + self.timeout_ps
        if self.recovery.self_clocked:
            nic = self.owner
            assert isinstance(nic, Endpoint), nic.number
            self.recovery.on_start(nic, pair, now)

    def _resent(self, pair: QueuePair, psn: i64, beyond_psn: i64, now: i64) -> None:
        """What was sent before, up to before a PSN, leaves again."""
        self.retransmitted += 1
        events = self.owner.events
        if events is not None:
            events.note_resent(self.number, pair.qpn, psn, beyond_psn, now)

    def _respond(self, pair: QueuePair, now: i64) -> Frame:
        """The next response that a queue pair owes; acknowledgements behind it wait as frames."""
        frame = pair.next_response()
        control = pair.control
        if control is not None:
            self._paced(pair, control, frame, now)
        pending = pair.pending
        while pending is not None and pending.syndrome >= 0:
            self._append(pair.acknowledgement(pending.psn, pending.syndrome))
            pending = pair.pending = pending.following
        if pair.has_packets() and not pair.paced:
            self._join(pair)
        return frame

    def _routed(self, control: CongestionControl, frame: Frame, psn: i64, left_ps: i64) -> None:
        """A request of a controlled queue pair leaves: by which path, and when?"""
        if control.picks_entropy:
            frame.udp_source = i32(control.entropy(psn) & 0xFFFF)
        if control.wants_echo:
            control.leaves(psn, left_ps)

    def _time(self, pair: QueuePair, control: CongestionControl, frame: Frame, now: i64) -> None:
        """Time a packet that leaves for the first time, until it is acknowledged.

        Packets that leave again are not timed, because an acknowledgement may be for either of the two
        (Karn's rule; RFC 6298, section 3).
        """
        if frame.opcode < READ_REQUEST:
            control.timed_psn = pair.next_psn - 1
            control.timed_ps = now

    def _paced(self, pair: QueuePair, control: CongestionControl, frame: Frame, now: i64) -> None:
        """A packet of a controlled queue pair leaves now: when may the next one?"""
        if control.wants_telemetry:
            frame.tail = b""
            frame.wire_bytes += i16(control.telemetry_bytes)
        its: int = frame.wire_bytes
        size: i64 = its
        control.on_send(size, now)
        if control.rate_bps == 0 or control.rate_bps >= self.rate_bps:
            return
        next_send_ps: i64 = now + sending_ps(size, control.rate_bps)
        if next_send_ps > now + self.serialisation(size):
            pair.paced = True
            self.owner.push_timer(next_send_ps, SERVE, self.number, pair.index + 1)

    def _cut_off(self, pair: QueuePair, now: i64) -> None:
        """A queue pair waits for a link that is down. If it has nothing in flight, no timer runs yet: one
        starts, as if the packet had left and been lost, so that the queue pair gives up after its retries.
        """
        nic = self.owner
        assert isinstance(nic, Endpoint), nic.number
        if not nic.cut_off(pair):
            return
        if self.recovery.self_clocked:
            self.recovery.on_cut_off(nic, pair, now)
            return
        pair.deadline_ps = now + self.timeout_ps
        if not pair.timer_pending and self.timeout_ps > 0:
            pair.timer_pending = True
            nic.push_timer(pair.deadline_ps, RETRANSMIT, self.number, pair.index)

    def link_lost(self, now: i64) -> None:
        """Acknowledgements that wait for a dead link are lost; queue pairs keep their place."""
        priority: i64 = 0
        while priority < 8:
            while self.queues[priority].frame is not None:
                frame = self.take(priority, now)
                if frame is not None:
                    self.lose(frame)
            pair = self.queues[priority].pair
            while pair is not None:
                self._cut_off(pair, now)
                pair = pair.active_next
            priority += 1

    def _append(self, frame: Frame) -> None:
        its: int = frame.priority
        priority: i64 = its
        queue = self.queues[priority]
        tail = queue.last_frame
        if tail is None:
            queue.frame = frame
        else:
            tail.chain = frame
        queue.last_frame = frame
        self.waiting |= 1 << priority

    def _join(self, pair: QueuePair) -> None:
        priority: i64 = i64(pair.priority)
        queue = self.queues[priority]
        tail = queue.last_pair
        if tail is None:
            queue.pair = pair
        else:
            tail.active_next = pair
        queue.last_pair = pair
        pair.active = True
        self.waiting |= 1 << priority

    def save(self) -> list[Plain]:
        """The port's state: what waits, and the order of the round."""
        queues: list[Plain] = [save_frames(queue.frame) for queue in self.queues]
        rounds: list[Plain] = []
        for queue in self.queues:
            pair = queue.pair
            while pair is not None:
                rounds.append(pair.index)
                pair = pair.active_next
        fetch: Plain = None if self.fetch is None else self.fetch.save()
        return [super().save(), self.retransmitted, queues, rounds, fetch]

    def load_round(self, state: Plain, pairs: list[QueuePair]) -> None:
        """Take the state that `save` returned; `pairs` are the NIC's queue pairs by index, already loaded."""
        base, retransmitted, queues, rounds, fetch = as_list(state)
        super().load(base)
        if self.fetch is not None:
            self.fetch.load(fetch)  # every port of the NIC brings the same
        self.retransmitted = as_int(retransmitted)
        waiting: i64 = self.waiting
        self.queues = vec[SendQueue]([SendQueue() for _ in range(PRIORITIES)])
        for frames in as_list(queues):
            for frame in load_frames(frames):
                self._append(frame)
        for index in as_list(rounds):
            self._join(pairs[as_int(index)])
        assert self.waiting == waiting, (self.number, self.waiting, waiting)
