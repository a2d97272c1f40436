"""A NIC: verbs from the host, packets from the fabric, ports, counters and faults.

A POST joins its queue pair; packets leave as the port takes them. What comes is handed to the half of its
queue pair that it concerns: acknowledgements, CNPs and responses of READs to the requester
(`actors.nic.queue_pair.requester`), requests to the responder (`actors.nic.queue_pair.responder`). What is
done about packets that are lost, doubled or out of order is the recovery scheme's
(`actors.nic.loss_recovery`). `corrupt_every` loses every so many-th data packet here, as if its ICRC were
wrong.

Where links have credits (`CreditNic`), what comes counts as arrived once it has been dealt with. It is held
only where the way to memory is slow (`actors.nic.memory_path`): then the NIC has no pause to send, and its
leaf runs out of credits instead.

Counters. One of a feature that is off is not there, so that a scenario without it keeps its digest.

Faults. Besides its ports, a queue pair goes into error, or with a reset all of them, and what is posted is
flushed; or memory takes what arrives more slowly than the link brings it. When that ends memory is faster
than any link again, and what waited is taken at once.

Not modelled: atomics, memory keys, firmware that hangs, a NIC that computes a wrong checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64

from actors.kernel.block import Outbox
from actors.kernel.counters import (
    NIC_BOND_FAILOVERS,
    NIC_CONTEXT_MISSES,
    NIC_DELIVERED_BYTES,
    NIC_DUPLICATE_REQUEST,
    NIC_LATE_NAKS,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_NP_CNP_SENT,
    NIC_NP_ECN_MARKED_ROCE_PACKETS,
    NIC_OUT_OF_BUFFER,
    NIC_OUT_OF_SEQUENCE,
    NIC_PACKET_SEQ_ERR,
    NIC_PCIE_WAIT_PS,
    NIC_POSTED_BYTES,
    NIC_RECEIVE_BUFFER_BYTES,
    NIC_RECEIVE_BUFFER_PEAK_BYTES,
    NIC_RETRANSMITTED_FRAMES,
    NIC_RNR_NAK_RETRY_ERR,
    NIC_ROCE_ADP_RETRANS,
    NIC_RP_CNP_HANDLED,
    NIC_RX_ICRC_ENCAPSULATED,
    NIC_TRANSMIT_ACKS,
    NIC_TRANSMIT_NAKS,
    NIC_UNKNOWN_QPN,
    PORT_DROPPED_FRAMES,
)
from actors.kernel.device import Plain, Series, Tally, by_priority, series_of
from actors.kernel.event import (
    CONFIGURATION,
    COPY_DONE,
    LINK_STATE,
    PAUSE_EXPIRY,
    PAUSE_REFRESH,
    RATE_TIMER,
    RETRANSMIT,
    SERVE,
    Message,
)
from actors.kernel.mixing import Stream
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.nic.bond import Bond
from actors.nic.egress_port import Departures, NicPort
from actors.nic.loss_recovery import Recovery
from actors.nic.memory_path import ContextCache, ReceiveBuffer, show_refused
from actors.nic.queue_pair.endpoint import CNP_PORT, RECOVERY_PORT, RNR_PORT, EndpointSettings
from actors.nic.queue_pair.numbers import slots_for
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.nic.queue_pair.queue_pair import (
    ERROR,
    READY,
    READY_TO_RECEIVE,
    RESET,
    SEND_ERROR,
    SEND_QUEUE_DRAINED,
    TRANSITIONS,
    UNLIMITED_PSN,
    QueuePair,
)
from actors.nic.queue_pair.responder import Responder
from actors.port.link import PRIORITIES, MessagePort
from actors.port.passage import Passage
from actors.port.port import DEBOUNCED, apply_port_fault, count_port, port_is_steady, port_series
from actors.port.tap import BAD_ICRC, UNKNOWN_PAIR
from actors.wire.fault import FAULT_OPERATIONS, HOLD, PAIR_ERROR, RECEIVE, ROUTE
from actors.wire.fault import RESET as RESET_NIC
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    ECN_CONGESTED,
    LEAST_WIRE_BYTES,
    PSN_MASK,
    READ_REQUEST,
    SYNDROME_ACK,
    Frame,
)
from actors.wire.message import (
    COMPLETED_RECEIVE,
    MODIFIED,
    MODIFY,
    POST,
    SHARE,
    STATUS_FLUSHED,
    STATUS_INVALID,
    STATUS_NOT_SENDING,
    STATUS_SUCCESS,
)
from actors.wire.message import RECEIVE as POST_RECEIVES
from actors.wire.train import Train

ICRC_DROP: Final[i64] = 10
UNKNOWN_PAIR_DROP: Final[i64] = 11
NO_BOTTLENECK_BPS: Final = 10**15
"""Above any link: memory that never makes a packet wait, with a rate all the same to divide by."""

_PLAIN: Final = (
    NIC_OUT_OF_SEQUENCE,
    NIC_PACKET_SEQ_ERR,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_LATE_NAKS,
    NIC_DUPLICATE_REQUEST,
    NIC_TRANSMIT_ACKS,
    NIC_TRANSMIT_NAKS,
    NIC_DELIVERED_BYTES,
    NIC_POSTED_BYTES,
    NIC_UNKNOWN_QPN,
)
_CONTROL: Final = (NIC_NP_CNP_SENT, NIC_NP_ECN_MARKED_ROCE_PACKETS, NIC_RP_CNP_HANDLED)
_RECEIVES: Final = (NIC_RNR_NAK_RETRY_ERR, NIC_OUT_OF_BUFFER)
_OTHERS: Final = (NIC_BOND_FAILOVERS, NIC_ROCE_ADP_RETRANS, NIC_RX_ICRC_ENCAPSULATED)
_STATE: Final = (
    *[one.field for one in (*_PLAIN, *_CONTROL, *_RECEIVES, *_OTHERS)],
    "data_packets",
    "deliveries",
)
"""What a snapshot keeps, on or off."""
_KNOWN: Final[dict[tuple[int, bool, bool, bool, tuple[str, ...]], list[Series]]] = {}
"""The counters of a NIC, by all that they depend on."""


class Answers(Passage):
    """A train of requests that ends at a NIC, and its acknowledgements."""

    def __init__(self, train: Train, first_ps: i64, port: i64, pair: QueuePair, answer: Train | None) -> None:
        super().__init__(train, first_ps, port, -1 if answer is None else port)
        self.pair: QueuePair = pair
        self.answer: Train | None = answer


class Acknowledgements(Passage):
    """A train of acknowledgements that ends at a NIC."""

    def __init__(self, train: Train, first_ps: i64, port: i64, pair: QueuePair) -> None:
        super().__init__(train, first_ps, port, -1)
        self.pair: QueuePair = pair


class Nic(Responder):
    """One RDMA NIC; its fabric ports are one bond."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        settings: EndpointSettings,
        recovery: Recovery,
    ) -> None:
        super().__init__(number, queue, host, settings, recovery)
        self.receive: ReceiveBuffer | None = None
        """Where packets wait for a slow way to memory."""
        self.data_packets: i64 = 0
        """Data packets that came, the corrupt ones included."""
        self.rx_icrc_encapsulated: i64 = 0
        self.posted_bytes: i64 = 0
        self.jitter_ps: i64 = 0
        self.dice: Stream | None = None
        """For the delays, up to `jitter_ps`, with which queue pairs begin; None for no delay."""
        self.unknown_qpn: i64 = 0
        self.bond: Bond | None = None
        """Bond of several ports; None where there is one."""
        self.make_receive: Callable[[], ReceiveBuffer] | None = None
        """Builds one, for memory that becomes slow."""
        self.filling: tuple[i64, i64] = (0, 0)
        """Nothing, as in `actors.switch.egress.EgressQueue`."""

    def set_ports(self, ports: list[NicPort]) -> None:
        """The NIC's fabric ports in order."""
        self._ports = vec[NicPort](ports)
        self.first_port = ports[0]
        self.notes.mixing_ports = len(ports)

    def set_receive(self, receive: ReceiveBuffer) -> None:
        """Let packets wait for a slow way to memory."""
        self.receive = receive
        self.receives_slowly = True

    def set_pairs(self, pairs: list[QueuePair]) -> None:
        """The NIC's queue pairs by index; their numbers are all different."""
        slots = slots_for(len(pairs))
        while len({pair.qpn & (slots - 1) for pair in pairs}) < len(pairs):
            slots *= 2  # of a NIC that has some of the queue pairs of another run
        table: list[QueuePair | None] = [None] * slots
        for pair in pairs:
            pair.spares = self.queue.spares
            table[pair.qpn & (slots - 1)] = pair
            self.recovery.prepare(pair)
        self.pairs = pairs
        self._table = vec[QueuePair | None](table)
        self._mask = slots - 1

    def add_pairs(self, pairs: list[QueuePair], slots: int) -> None:
        """Queue pairs behind those that there are, in a table of so many slots."""
        known = self.pairs
        table: list[QueuePair | None] = [None] * slots
        for pair in pairs:
            pair.spares = self.queue.spares
            self.recovery.prepare(pair)
        for pair in known + pairs:
            slot: int = pair.qpn & (slots - 1)
            assert table[slot] is None, (self.number, pair.qpn)
            table[slot] = pair
        self.pairs = known + pairs
        self._table = vec[QueuePair | None](table)
        self._mask = slots - 1

    def ports(self) -> list[NicPort]:
        """The NIC's fabric ports in order."""
        return list(self._ports)

    def let_defer(self) -> bool:
        crosses: bool = False
        if self.controlled or self.self_clocked:
            return crosses  # what is sent sets timers, which may be due before the frame arrives
        for port in self._ports:
            least_ps: i64 = port.flight_ps
            if port.outbound:  # a turn may be as long as this
                least_ps += port.serialisation(LEAST_WIRE_BYTES)
            soon: bool = self.settings.timeout_ps == 0 or least_ps < self.first_timeout_ps
            if soon and port.let_defer():
                crosses = True
        return crosses

    def let_couple(self, near: list[Outbox]) -> None:
        for port in self._ports:
            port.couples = (
                port.defers
                and not port.outbound
                and self.bond is None
                and self.receive is None
                and port.fetch is None
                and self.corrupt_every == 0
                and not (self.guarded or self.repeating or self.whole_messages)
                and self.recovery.window_packets == 0
            )

    # ---- digest

    def mix_at(self, place: i64) -> i64:
        if place > 0 and place <= len(self._ports):
            return self._ports[place - 1].mix
        return super().mix_at(place)

    def set_mix(self, place: i64, digest: i64) -> None:
        if place > 0 and place <= len(self._ports):
            self._ports[place - 1].mix = digest
        else:
            super().set_mix(place, digest)

    def write_mixes(self, into: Tally) -> None:
        mixes = self._mixes
        into.add(mixes[0])
        for port in self._ports:
            into.add(port.mix)
        at: i64 = len(self._ports) + 1
        while at < len(mixes):
            into.add(mixes[at])
            at += 1

    # ---- counts

    def frames_received(self) -> int:
        return sum([int(port.received_frames) for port in self._ports])

    def data_frames_received(self) -> int:
        return sum([int(port.received_data_frames) for port in self._ports])

    # ---- verbs

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        if message.op == SHARE:
            fetch = self._ports[0].fetch
            return fetch is not None and fetch.gpu_link_bps > 0
        return 0 <= message.a < len(self.pairs)

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        if message.op == SHARE:
            fetch = self._ports[0].fetch
            assert fetch is not None, self.number
            fetch.share(message.a)
            return
        pair = self.pairs[message.a]
        now: i64 = self.queue.now_ps
        if message.op == POST:
            if pair.state != READY and pair.state != SEND_QUEUE_DRAINED:
                status: i64 = STATUS_FLUSHED if pair.state >= SEND_ERROR else STATUS_NOT_SENDING
                self.complete(pair, message.b, message.c, status)
                return
            self.posted_bytes += message.c
            if self.dice is not None and pair.head is None:
                self._begin_later(pair, now)
            pair.post(message.b, message.c, message.d, message.e).data = message.data
            self.activate(pair, now)
        elif message.op == POST_RECEIVES:
            if pair.state == ERROR:
                self.tell(pair, 0, 0, COMPLETED_RECEIVE, STATUS_FLUSHED)
            elif pair.state != RESET:
                pair.receives += i32(message.b)
        else:
            assert message.op == MODIFY, message.op
            if self.ahead_ps >= now:
                self.uncouple(now, self.place_now())
            went: i64 = self.modify(pair, message.b, message.c, now)
            self.host.send(Message(MODIFIED, pair.index, pair.state, 0, 0, went, 0), now)

    def _begin_later(self, pair: QueuePair, now: i64) -> None:
        """A queue pair that had nothing to send begins after a delay that is drawn."""
        dice = self.dice
        assert dice is not None, self.number
        delay_ps: i64 = dice.below(self.jitter_ps + 1)
        if delay_ps > 0 and not pair.active and not pair.paced:
            pair.paced = True
            self.push_timer(now + delay_ps, SERVE, pair.port, pair.index + 1)

    def modify(self, pair: QueuePair, state: i64, psn: i64, now: i64) -> i64:
        """Bring a queue pair into a state, and return how that went: STATUS_SUCCESS or STATUS_INVALID."""
        before: i64 = pair.state
        if state not in TRANSITIONS[before]:
            return STATUS_INVALID
        if state == ERROR:
            self.flush(pair, STATUS_FLUSHED)
            return STATUS_SUCCESS
        pair.state = state
        if state == RESET:
            pair.forget()
        elif state == READY_TO_RECEIVE:
            pair.expect_from(psn)
        elif state == READY and before == READY_TO_RECEIVE:
            pair.begin_at(psn)
            self.recovery.begin(pair)
        pair.hold()
        if pair.has_packets():
            self.activate(pair, now)
        return STATUS_SUCCESS

    def activate(self, pair: QueuePair, now: i64) -> None:
        self._ports[pair.port].activate(pair, now)

    def cut_off(self, pair: QueuePair) -> bool:
        if self._ports[pair.port].up or pair.state < READY or pair.state == ERROR:
            return False
        return pair.una_psn == pair.high_psn and pair.una_psn < pair.end_psn

    def linked(self, pair: QueuePair) -> bool:
        return self._ports[pair.port].up

    # ---- packets

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self.port_at(port_number)
        port.mix_arrival(frame, now)
        if port.suspect and port.spoilt(frame, now):
            return
        port.received_frames += 1
        size: int = frame.wire_bytes
        port.received_bytes += size
        if frame.payload_bytes > 0:
            port.received_data_frames += 1
            if self.corrupt_every > 0 and self._corrupts(frame, port_number):
                return
        if self.receives_slowly and frame.opcode != ACKNOWLEDGE and frame.opcode != CNP:
            receive = self.receive
            assert receive is not None, self.number
            receive.arrive(frame, port_number, now)
        else:
            self._arrived(frame, port_number, now)

    # ---- trains

    def on_train(self, train: Train, port_number: i64) -> None:
        port = self._ports[port_number]
        qpn: int = train.qpn
        found = self._table[qpn & self._mask]
        if (
            port.couples
            and not port.suspect
            and self.receive is None
            and found is not None
            and found.qpn == qpn
        ):
            if train.opcode == ACKNOWLEDGE:
                if self._acknowledged_whole(found, train, port):
                    return
            elif self._taken_whole(found, train, port):
                return
        self.unroll(train, port_number)

    def _taken_whole(self, pair: QueuePair, train: Train, port: NicPort) -> bool:
        """Take packets of a train, of the middle of a message, if nothing is in the way of their answers."""
        if pair.state < READY_TO_RECEIVE or pair.state == ERROR or train.psn != pair.expected_psn & PSN_MASK:
            return False
        if pair.pending is not None or (pair.held is not None and pair.held.count > 0):
            return False
        now: i64 = self.queue.now_ps
        count: i64 = train.count
        answer: Train | None = None
        if train.ack_request != 0:
            priority: int = pair.ack_priority
            if port.free_ps > now:
                return False
            count = port.may_pass(priority, ACK_WIRE_BYTES, train.gap_ps, count, now)
            if count < 2:
                return False
            if count < train.count:
                self.let_follow(train, count)
            first = pair.acknowledgement(pair.expected_psn, SYNDROME_ACK)
            answer = Train(first, count, train.gap_ps, train.coupling)
        passage = Answers(train, now, port.number, pair, answer)
        port.arrive_ahead(passage)
        self._take_so_many(pair, train, count)
        if answer is not None:
            self.transmit_acks += count
            port.leave_ahead(passage, answer)
        else:
            train.coupling.succeeded()
        self.executed += count - 1
        if passage.last_ps > self.ahead_ps:
            self.ahead_ps = passage.last_ps
        return True

    def _take_so_many(self, pair: QueuePair, train: Train, count: i64) -> None:
        payload: int = train.payload_bytes
        pair.expected_psn += count
        pair.nak_sent = False
        pair.message_bytes += count * payload
        self.delivered_bytes += count * payload
        self.progress += count * payload

    def _acknowledged_whole(self, pair: QueuePair, train: Train, port: NicPort) -> bool:
        """Take a train of acknowledgements, if each is for one packet more and none ends a work request."""
        now: i64 = self.queue.now_ps
        count: i64 = train.count
        una: i64 = pair.una_psn
        head = pair.head
        if pair.state < READY or pair.state == ERROR or train.syndrome != SYNDROME_ACK or head is None:
            return False
        if train.psn != una & PSN_MASK or head.first_psn + head.packets <= una + count:
            return False
        if pair.waits != 0 or pair.limit_psn != UNLIMITED_PSN or not pair.timer_pending or pair.reads > 0:
            return False
        sent: i64 = pair.high_psn
        leaving = port.leaving
        if leaving is not None and leaving.last_ps >= now:
            sent -= leaving.count  # maybe of this queue pair, and ahead of time
        if sent <= una + count or pair.next_psn != pair.high_psn or pair.resend_psn >= 0:
            return False
        passage = Acknowledgements(train, now, port.number, pair)
        port.arrive_ahead(passage)
        self._acknowledge_so_many(passage, una + count, passage.last_ps)
        self.executed += count - 1
        if passage.last_ps > self.ahead_ps:
            self.ahead_ps = passage.last_ps
        train.coupling.succeeded()
        return True

    def _acknowledge_so_many(self, passage: Acknowledgements, una: i64, last_ps: i64) -> None:
        pair = passage.pair
        pair.una_psn = una
        pair.retries = 0
        pair.rnr_retries = 0
        pair.backoff = 0
        pair.deadline_ps = last_ps + self.first_timeout_ps

    def uncouple(self, now: i64, place: i64) -> None:
        self.ahead_ps = -1
        for port in self._ports:
            leaving = port.leaving
            if leaving is not None:
                self._take_apart(leaving, port, now, place)
            coming = port.coming
            if coming is not None:
                self._take_apart(coming, port, now, place)

    def uncouple_port(self, number: i64) -> None:
        port = self._ports[number]
        leaving = port.leaving
        if leaving is not None:
            if leaving.last_ps >= self.queue.now_ps:
                leaving.train.coupling.failed()
            self._take_apart(leaving, port, self.queue.now_ps, self.place_now())

    def _take_apart(self, passage: Passage, port: NicPort, now: i64, place: i64) -> None:
        """Undo what did not happen of a passage before an event now, of this kind and port."""
        if port.leaving is passage:
            port.leaving = None
        if port.coming is passage:
            port.coming = None
        if passage.last_ps < now:
            return
        if isinstance(passage, Departures):
            port.hold_back(passage, now, place)
            return
        arrived: i64 = passage.arrived(now, place)
        if arrived == passage.count:
            return
        train = passage.train
        back: i64 = passage.count - arrived
        self.executed -= back
        self.queue.push(passage.rest(train, arrived))
        port.take_back_arrivals(passage, arrived)
        if isinstance(passage, Answers):
            self._take_so_many(passage.pair, train, -back)
            answer = passage.answer
            if answer is not None:
                self.transmit_acks -= back
                port.take_back_departures(passage, answer, arrived)
        elif isinstance(passage, Acknowledgements):
            last_ps: i64 = passage.first_ps + (arrived - 1) * passage.gap_ps
            self._acknowledge_so_many(passage, passage.pair.una_psn - back, last_ps)

    def _corrupts(self, frame: Frame, port_number: i64) -> bool:
        """Whether the data packet that came now is one to lose (`corrupt_every`)."""
        self.data_packets += 1
        if self.data_packets % self.corrupt_every != 0:
            return False
        self.rx_icrc_encapsulated += 1
        show_refused(self._ports[port_number], frame, BAD_ICRC, self.queue.now_ps)
        self.mix_drop(port_number, ICRC_DROP, frame)
        return True

    def _arrived(self, frame: Frame, port_number: i64, now: i64) -> None:
        """A packet has passed whatever bottleneck there is between link and queue pair."""
        qpn: int = frame.qpn
        slot: i64 = qpn & self._mask
        found = self._table[slot]
        if found is None or found.qpn != qpn:
            self.unknown_qpn += 1
            show_refused(self._ports[port_number], frame, UNKNOWN_PAIR, now)
            self.mix_drop(port_number, UNKNOWN_PAIR_DROP, frame)
            return
        pair: QueuePair = found  # what is narrowed is checked again at each use
        opcode: int = frame.opcode
        if opcode == ACKNOWLEDGE:
            self.acknowledged(pair, frame, now)
            self.queue.spares.keep(frame)
        elif pair.state >= READY_TO_RECEIVE and pair.state != ERROR:  # others drop what arrives, silently
            if opcode == CNP:
                self.notified(pair, now)
                return
            if frame.ecn == ECN_CONGESTED and self.controlled:
                self.notify(pair, self._ports[port_number], now)
            if opcode <= READ_REQUEST:
                self.respond(pair, frame, port_number, now)
            else:
                self.responded(pair, frame, now)

    def on_pause(self, message: Message, port: i64) -> None:
        end = self._ports[port]
        now: i64 = self.queue.now_ps
        if end.taps:
            end.show_heard(message, now)
        pfc = end.pfc
        if pfc is not None:
            pfc.hear(message, now)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        now: i64 = self.queue.now_ps
        if kind == SERVE:
            if subject == 0:
                self._ports[port].on_serve(now)
            else:
                pair = self.pairs[subject - 1]
                pair.paced = False
                if pair.has_packets():
                    self.activate(pair, now)
            return False
        if self.ahead_ps >= now:
            self.uncouple(now, self.place_now())
        if kind == RETRANSMIT:
            return self._pair_timer(self.pairs[subject], port, now)
        if kind == RATE_TIMER:
            return self.rate_timer(self.pairs[subject], now)
        if kind == COPY_DONE:
            receive = self.receive
            assert receive is not None, self.number
            frame = receive.taken(now)
            self._arrived(frame, i64(frame.whence >> 3), now)
            return True
        if kind == LINK_STATE:
            return self._link_changed(port, subject, now)
        if kind == CONFIGURATION:  # the changes themselves were faults
            bond = self.bond
            assert bond is not None, self.number
            bond.route_changed(port, subject, now)
            return False
        pfc = self._ports[port].pfc
        assert pfc is not None and (kind == PAUSE_EXPIRY or kind == PAUSE_REFRESH), kind
        if kind == PAUSE_EXPIRY:
            return pfc.expire(subject, now)
        return pfc.refresh(subject, now)

    def _pair_timer(self, pair: QueuePair, port: i64, now: i64) -> bool:
        """A timer of a queue pair fired; its port says which."""
        if port == RNR_PORT:
            return self.rnr_over(pair, now)
        if port == CNP_PORT:
            return self.cnp_due(pair, now)
        if port == RECOVERY_PORT:
            return self.recovery_timer(pair, now)
        if self.timed_out(pair, now):
            self.mix_timer(RETRANSMIT, 0, pair.index)  # whichever port it was set at, which is no part of it
        return False

    def _link_changed(self, port: i64, subject: i64, now: i64) -> bool:
        """A link has another state, or a debounce time is over. Returns whether the port changed its own."""
        end = self._ports[port]
        before: bool = end.up
        if subject == DEBOUNCED:
            end.debounced(now)
        else:
            end.signal_changed(subject == 1, now)
        if self.bond is not None:
            self.bond.link_changed(port, end.up, now)
        return end.up != before

    # ---- faults

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        if op == HOLD:
            self.on_timer(LINK_STATE, place, 1 if values is None else 0)
        elif op == ROUTE:
            self.on_timer(CONFIGURATION, 0, place * 2 + (1 if values is None else 0))
        elif op == RESET_NIC:
            if values is not None:
                for pair in self.pairs:
                    self._break(pair, STATUS_FLUSHED)
        elif op == PAIR_ERROR:
            if values is not None and place < len(self.pairs):
                self._break(self.pairs[place], STATUS_NOT_SENDING)
        elif op == RECEIVE:
            self._slow_down(values)
        else:
            now: i64 = self.queue.now_ps
            known: bool = apply_port_fault(self._ports[place], op, values, now)
            assert known, (self.number, FAULT_OPERATIONS[op])

    def _break(self, pair: QueuePair, status: i64) -> None:
        if pair.state != ERROR:
            self.flush(pair, status)

    def _slow_down(self, values: list[int] | None) -> None:
        maker = self.make_receive
        assert maker is not None, self.number
        if self.receive is None:
            self.set_receive(maker())
        receive = self.receive
        assert receive is not None, self.number
        if values is not None:
            receive.rate_bps = values[0]
        else:
            receive.rate_bps = receive.built_rate_bps if self.counts_receive else NO_BOTTLENECK_BPS

    # ---- counters and results

    def steady(self) -> bool:
        """Whether no counter of time is going on."""
        return all(port_is_steady(port) for port in self._ports)

    def series(self) -> list[Series]:
        """The counters of a NIC, in the order of `count`: the same list for NICs that count alike."""
        optional = self._optional()
        first = self._ports[0]
        fetches, credited = first.fetch is not None, first.credits is not None
        kind = len(self._ports), fetches, credited, self.counts_receive, tuple(optional)
        known = _KNOWN.get(kind)
        if known is not None:
            return known
        rows = [series_of(one) for one in _PLAIN]
        rows.append(series_of(NIC_RETRANSMITTED_FRAMES))
        rows += [series_of(one) for one in optional]
        if fetches:
            rows.append(series_of(NIC_PCIE_WAIT_PS))
        for port in self._ports:
            rows += port_series(port)
            n: int = port.number
            rows.append(series_of(PORT_DROPPED_FRAMES, n, -1, "receive_overrun"))
            if self.counts_receive:
                rows += by_priority(NIC_RECEIVE_BUFFER_BYTES, n)
                rows += by_priority(NIC_RECEIVE_BUFFER_PEAK_BYTES, n)
        _KNOWN[kind] = rows
        return rows

    def count(self, into: Tally) -> None:
        """Write their values, now."""
        into.add(self.out_of_sequence)
        into.add(self.packet_seq_err)
        into.add(self.local_ack_timeout_err)
        into.add(self.late_naks)
        into.add(self.duplicate_request)
        into.add(self.transmit_acks)
        into.add(self.transmit_naks)
        into.add(self.delivered_bytes)
        into.add(self.posted_bytes)
        into.add(self.unknown_qpn)
        retransmitted: i64 = 0
        for port in self._ports:
            retransmitted += port.retransmitted
        into.add(retransmitted)
        self._count_optional(into)
        fetch = self._ports[0].fetch
        if fetch is not None:
            into.add(fetch.wait_ps)
        for port in self._ports:
            count_port(into, port, self.queue.now_ps)
            receive = self.receive
            n: int = port.number
            into.add(0 if receive is None else receive.dropped_at(n))
            if self.counts_receive and receive is not None:
                for priority in range(PRIORITIES):
                    into.add(receive.held_at(n, priority))
                for priority in range(PRIORITIES):
                    into.add(receive.peak_at(n, priority))

    def _optional(self) -> list[str]:
        names: list[str] = []
        if self.corrupt_every > 0:
            names.append(NIC_RX_ICRC_ENCAPSULATED)
        if self.first_timeout_ps != self.settings.timeout_ps:
            names.append(NIC_ROCE_ADP_RETRANS)
        if len(self._ports) > 1:
            names.append(NIC_BOND_FAILOVERS)
        if self.controlled:
            names += list(_CONTROL)
        if self.settings.receives_run_out:
            names += list(_RECEIVES)
        if self._contexts() is not None:
            names.append(NIC_CONTEXT_MISSES)
        return names

    def _contexts(self) -> ContextCache | None:
        fetch = self._ports[0].fetch
        return None if fetch is None else fetch.contexts

    def _count_optional(self, into: Tally) -> None:
        """Write their values, in the order of `_optional`."""
        if self.corrupt_every > 0:
            into.add(self.rx_icrc_encapsulated)
        if self.first_timeout_ps != self.settings.timeout_ps:
            into.add(self.roce_adp_retrans)
        if len(self._ports) > 1:
            into.add(self.bond_failovers)
        if self.controlled:
            into.add(self.np_cnp_sent)
            into.add(self.np_ecn_marked_roce_packets)
            into.add(self.rp_cnp_handled)
        if self.settings.receives_run_out:
            into.add(self.rnr_nak_retry_err)
            into.add(self.out_of_buffer)
        contexts = self._contexts()
        if contexts is not None:
            into.add(contexts.misses)

    def end_states(self) -> list[int]:
        """State, PSNs acknowledged and expected, and messages received, queue pair after queue pair."""
        values: list[int] = []
        for pair in self.pairs:
            values += [pair.state, pair.una_psn, pair.end_psn, pair.expected_psn, pair.messages]
        return values

    def results(self) -> dict[str, list[list[int]]]:
        """When messages were delivered: queue pair, number of the message, time, size."""
        return {"deliveries": self.deliveries}

    def save(self) -> list[Plain]:
        pairs: list[Plain] = [pair.save() for pair in self.pairs]
        ports: list[Plain] = [port.save() for port in self._ports]
        receive: Plain = None if self.receive is None else self.receive.save()
        fields = save_fields(self, _STATE)
        bond: list[Plain] = [] if self.bond is None else self.bond.save()
        recovery: list[Plain] = self.recovery.save()
        drawn: Plain = 0 if self.dice is None else self.dice.counter
        free: i64 = self.host.free_ps
        return [super().save(), fields, pairs, ports, free, receive, bond, recovery, drawn]

    def load(self, state: list[Plain]) -> None:
        base, counters, pairs, ports, host_free, receive, bond, recovery, drawn = state
        super().load(as_list(base))
        load_fields(self, _STATE, counters)
        for pair, saved in zip(self.pairs, as_list(pairs), strict=True):
            pair.load(saved)
        for port, saved in zip(self._ports, as_list(ports), strict=True):
            port.load_round(saved, self.pairs)
        self.host.free_ps = as_int(host_free)
        if self.bond is not None:
            self.bond.load(as_list(bond))
        self.recovery.load(as_list(recovery))
        if self.dice is not None:
            self.dice.counter = as_int(drawn)
        maker = self.make_receive
        if receive is not None and self.receive is None and maker is not None:
            self.set_receive(maker())
        if self.receive is not None:
            self.receive.load(receive)
        self.reapply_faults()


class CreditNic(Nic):
    """A NIC whose links have credits."""

    def let_defer(self) -> bool:
        """No serve is deferred: what leaves takes credits."""
        return False

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self._ports[port_number]
        lanes = port.credits
        assert lanes is not None, (self.number, port_number)
        lost: bool = port.ever_down and port.was_down(frame.sent_ps, now - port.own_ingress_latency_ps)
        lane: i64 = i64(frame.priority)
        size: i64 = i64(frame.wire_bytes)
        super().on_frame(frame, port_number)
        if not lost:
            lanes.arrived(lane, size, now)

    def on_pause(self, message: Message, port: i64) -> None:
        end = self._ports[port]
        now: i64 = self.queue.now_ps
        if end.taps:
            end.show_heard(message, now)
        lanes = end.credits
        assert lanes is not None, (self.number, port)
        lanes.hear(message, now)
