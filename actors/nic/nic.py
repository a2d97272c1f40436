"""What does the NIC do with verbs from the host and packets from the fabric?

A POST joins its queue pair; packets leave as the port takes them. As responder the NIC accepts packets in
order, logs when a message was *delivered* (its last byte is here), tells the host of messages with immediate,
and acknowledges as the requester asks (`ack_every` packets and at the end of a message). As requester it
completes work requests when acknowledged; after `retry_count` timeouts without progress the queue pair is in
error, its requests are flushed, and the host is told. What is done about packets that are lost, doubled or
out of order is the recovery scheme's (`actors.nic.recovery.scheme`). `corrupt_every` loses every so many-th
data packet here, as if its ICRC were wrong. Not modelled: atomics, memory keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Device, Plain, Series
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
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.tally import Tally
from actors.kernel.vectors import vec
from actors.nic.bond import Bond, rebond, route_changed
from actors.nic.congestion.notification import echo, lost, notified, notify, progressed, timer_came
from actors.nic.counting import STATE, count_nic, nic_is_steady, nic_series, pair_states
from actors.nic.egress_port import NicPort
from actors.nic.faults import afflict_nic, corrupts
from actors.nic.queue_pair.numbers import slots_for
from actors.nic.queue_pair.queue_pair import (
    ERROR,
    READY,
    READY_TO_RECEIVE,
    SEND_ERROR,
    SEND_QUEUE_DRAINED,
    UNLIMITED_PSN,
    QueuePair,
    unwrap,
)
from actors.nic.queue_pair.read import bounded, owe, responded
from actors.nic.queue_pair.readiness import RNR_PORT, rnr_over, told_not_ready
from actors.nic.queue_pair.responder import respond
from actors.nic.queue_pair.states import managed
from actors.nic.queue_pair.timeout import fail, timed_out
from actors.nic.receive import ReceiveBuffer
from actors.nic.recovery.scheme import Recovery
from actors.port.host_link import MessagePort
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    ECN_CONGESTED,
    READ_REQUEST,
    SYNDROME_ACK,
    SYNDROME_NAK_INVALID,
    SYNDROME_NAK_SEQUENCE,
    Frame,
)
from actors.wire.message import (
    COMPLETED_SEND,
    COMPLETION,
    POST,
    STATUS_FLUSHED,
    STATUS_NOT_SENDING,
    STATUS_REMOTE_INVALID,
    STATUS_SUCCESS,
)

UNKNOWN_PAIR_DROP: Final[i64] = 11


class Nic(Device):
    """One RDMA NIC; its fabric ports are one bond."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        timeout_ps: int,
        retry_count: int,
        ack_priority: int,
        recovery: Recovery,
        first_timeout_ps: int,
        corrupt_every: int,
    ) -> None:
        super().__init__(number, queue)
        self.recovery: Recovery = recovery
        self.whole_messages: bool = recovery.whole_messages
        self.first_timeout_ps: i64 = first_timeout_ps
        self.corrupt_every: i64 = corrupt_every
        self.data_packets: i64 = 0
        """Data packets that came, the corrupt ones included."""
        self.bond_failovers: i64 = 0
        """Queue pairs that went on through another port because theirs was down."""
        self.controlled: bool = False
        """Whether queue pairs have congestion control."""
        self.telemetry_bytes: i64 = -1
        """What INT adds to an acknowledgement on the wire; below 0 where packets collect none."""
        self.telemetry: bytes | None = None
        """What the packet that is answered now has collected."""
        self.cnp_interval_ps: i64 = 0
        self.cnp_priority: i64 = 0
        self.np_cnp_sent: i64 = 0
        self.np_ecn_marked_roce_packets: i64 = 0
        self.rp_cnp_handled: i64 = 0
        self.roce_adp_retrans: i64 = 0
        self.guarded: bool = False
        """Whether a request may be refused: receives run out (`counted`), or not everything is allowed."""
        self.counted: bool = False
        self.access: i64 = 3
        """What peers may do here: ACCESS_* of `actors.nic.queue_pair.readiness`."""
        self.rnr_timer: i64 = 0
        self.rnr_retry: i64 = 7
        self.rnr_nak_retry_err: i64 = 0
        self.out_of_buffer: i64 = 0
        self.rx_icrc_encapsulated: i64 = 0
        self.host: MessagePort = host
        self.timeout_ps: i64 = timeout_ps
        self.retry_count: i64 = retry_count
        self.ack_priority: i64 = ack_priority
        self.pairs: list[QueuePair] = []
        self.out_of_sequence: i64 = 0
        self.packet_seq_err: i64 = 0
        self.local_ack_timeout_err: i64 = 0
        self.duplicate_request: i64 = 0
        self.transmit_acks: i64 = 0
        self.transmit_naks: i64 = 0
        self.delivered_bytes: i64 = 0
        self.posted_bytes: i64 = 0
        self.unknown_qpn: i64 = 0
        self.deliveries: list[list[int]] = []
        self.bond: Bond | None = None
        """Of several ports; None where there is one."""
        self.receive: ReceiveBuffer | None = None
        """Where packets wait for a slow way to memory."""
        self.make_receive: Callable[[], ReceiveBuffer] | None = None
        """Builds one, for memory that becomes slow."""
        self.counts_receive: bool = False
        self._ports: vec[NicPort] = vec[NicPort]()
        self._table: vec[QueuePair | None] = vec[QueuePair | None]()
        self._mask: i64 = 0

    def set_ports(self, ports: list[NicPort]) -> None:
        """The NIC's fabric ports in order."""
        self._ports = vec[NicPort](ports)
        for port in ports:
            port.ack_priority = self.ack_priority

    def set_pairs(self, pairs: list[QueuePair]) -> None:
        """The NIC's queue pairs by index."""
        slots = slots_for(len(pairs))
        table: list[QueuePair | None] = [None] * slots
        for pair in pairs:
            slot: int = pair.qpn & (slots - 1)
            assert table[slot] is None, (self.number, pair.qpn)
            table[slot] = pair
            self.recovery.prepare(pair)
        self.pairs = pairs
        self._table = vec[QueuePair | None](table)
        self._mask = slots - 1

    def ports(self) -> list[NicPort]:
        """The NIC's fabric ports in order."""
        return list(self._ports)

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        return 0 <= message.a < len(self.pairs)

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        pair = self.pairs[message.a]
        if message.op != POST:
            managed(self, pair, message)
            return
        if pair.state != READY and pair.state != SEND_QUEUE_DRAINED:
            status: i64 = STATUS_FLUSHED if pair.state >= SEND_ERROR else STATUS_NOT_SENDING
            self.complete(pair, message.b, message.c, status)
            return
        self.posted_bytes += message.c
        pair.post(message.b, message.c, message.d, message.e).data = message.data
        self.activate(pair, self.queue.now_ps)

    def activate(self, pair: QueuePair, now: i64) -> None:
        """A queue pair has packets to send."""
        self._ports[pair.port].activate(pair, now)

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self._ports[port_number]
        if port.suspect and port.spoilt(frame, now):
            return
        port.received_frames += 1
        port.received_bytes += frame.wire_bytes
        self.frames_received += 1
        if frame.payload_bytes > 0:
            self.data_frames_received += 1
            if self.corrupt_every > 0 and corrupts(self, frame, port_number):
                return
        receive = self.receive
        if receive is not None and frame.opcode != ACKNOWLEDGE and frame.opcode != CNP:
            receive.arrive(frame, port_number, now)
        else:
            self.arrived(frame, port, now)

    def arrived(self, frame: Frame, port: NicPort, now: i64) -> None:
        """A packet has passed whatever bottleneck there is between link and queue pair."""
        pair = self._table[frame.qpn & self._mask]
        if pair is None or pair.qpn != frame.qpn:
            self.unknown_qpn += 1
            self.mix_drop(port.number, UNKNOWN_PAIR_DROP, frame)
            return
        opcode: i64 = frame.opcode
        if opcode == ACKNOWLEDGE:
            self._acknowledged(pair, frame, now)
        elif pair.state >= READY_TO_RECEIVE and pair.state != ERROR:  # others drop what arrives, silently
            if opcode == CNP:
                notified(self, pair, now)
                return
            if frame.ecn == ECN_CONGESTED and self.controlled:
                notify(self, pair, port, now)
            if opcode <= READ_REQUEST:
                if self.telemetry_bytes >= 0:
                    self.telemetry = frame.tail
                respond(self, pair, frame, port, now)
            else:
                responded(self, pair, frame, now)

    def answer(
        self, pair: QueuePair, psn: i64, syndrome: i64, selective: i64, port: NicPort, now: i64
    ) -> None:
        """Send an acknowledgement or a NAK for `psn`; what is selective travels in AETH's 24 bits."""
        if pair.owed is not None and owe(self, pair, psn, syndrome):
            return
        self.counts(syndrome)
        answer = pair.acknowledgement(psn, syndrome, self.ack_priority)
        answer.immediate = selective
        if self.telemetry_bytes >= 0:
            echo(self, answer)
        port.send_frame(answer, now)

    def counts(self, syndrome: i64) -> None:
        """An acknowledgement or NAK is on its way."""
        if syndrome == SYNDROME_ACK:
            self.transmit_acks += 1
        else:
            self.transmit_naks += 1

    def _acknowledged(self, pair: QueuePair, frame: Frame, now: i64) -> None:
        """An ACK covers everything up to its PSN; a NAK everything before it, and asks for it again."""
        psn: i64 = unwrap(frame.psn, pair.una_psn)
        nak: bool = frame.syndrome != SYNDROME_ACK
        una: i64 = psn if nak else psn + 1
        if una > pair.high_psn or pair.state < READY or pair.state == ERROR:
            return
        if pair.reads > 0:
            una = bounded(self, pair, una, frame, now)
        if una > pair.una_psn:
            self.advance(pair, una, frame, now)
        if nak and frame.syndrome != SYNDROME_NAK_SEQUENCE:
            if frame.syndrome < SYNDROME_NAK_SEQUENCE:
                told_not_ready(self, pair, frame.syndrome & 0x1F, now)
            else:  # 0x61 to 0x63 are fatal, and in the order of the statuses
                fail(self, pair, STATUS_REMOTE_INVALID + frame.syndrome - SYNDROME_NAK_INVALID)
        elif nak and (una == pair.una_psn or self.recovery.selective):
            self.packet_seq_err += 1
            lost(self, pair, now)
            self.recovery.on_nak(self, pair, frame, now)
            if pair.has_packets():
                self.activate(pair, now)

    def advance(self, pair: QueuePair, una: i64, frame: Frame, now: i64) -> None:
        """Everything before `una` is acknowledged, by this frame."""
        packets: i64 = una - pair.una_psn
        pair.una_psn = una
        pair.retries = 0
        pair.rnr_retries = 0
        pair.backoff = 0
        pair.deadline_ps = now + self.first_timeout_ps
        head = pair.head
        while head is not None and head.first_psn + head.packets <= una:
            pair.drop_head()
            self.complete(pair, head.number, head.size_bytes, STATUS_SUCCESS)
            head = pair.head
        if pair.next_psn < una:
            pair.go_back(una)
        held_back: bool = pair.limit_psn != UNLIMITED_PSN or pair.waits != 0
        if pair.waits != 0:
            pair.hold()
        if pair.limit_psn != UNLIMITED_PSN:
            self.recovery.on_progress(self, pair, now)
        control = pair.control
        if control is not None:
            progressed(self, pair, control, packets, frame, now)
        if held_back and pair.has_packets():
            self.activate(pair, now)

    def complete(self, pair: QueuePair, number: i64, size_bytes: i64, status: i64) -> None:
        """Tell the host that a work request ended."""
        self.tell(pair, number, size_bytes, COMPLETED_SEND, status)

    def tell(self, pair: QueuePair, number: i64, size_bytes: i64, kind: i64, status: i64) -> None:
        """Tell the host that a work request or a receive ended."""
        done = Message(COMPLETION, pair.index, number, size_bytes, kind, status, 0)
        self.host.send(done, self.queue.now_ps)

    def on_pause(self, message: Message, port: i64) -> None:
        pfc = self._ports[port].pfc
        if pfc is not None:
            pfc.hear(message, self.queue.now_ps)

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
        if kind == RETRANSMIT:
            if port == RNR_PORT:
                return rnr_over(self, self.pairs[subject], now)
            if timed_out(self, self.pairs[subject], now):
                self.mix_timer(RETRANSMIT, 0, subject)  # whichever port it was set at, which is no part of it
            return False
        if kind == RATE_TIMER:
            return timer_came(self, self.pairs[subject], now)
        if kind == COPY_DONE:
            receive = self.receive
            assert receive is not None, self.number
            receive.taken(now)
            return True
        if kind == LINK_STATE:
            changed: bool = self._ports[port].up != (subject == 1)
            self._ports[port].set_link(subject == 1, now)
            rebond(self, now)
            return changed
        if kind == CONFIGURATION:  # the changes themselves were faults
            route_changed(self, port, subject, now)
            return False
        pfc = self._ports[port].pfc
        assert pfc is not None and (kind == PAUSE_EXPIRY or kind == PAUSE_REFRESH), kind
        if kind == PAUSE_EXPIRY:
            return pfc.expire(subject, now)
        return pfc.refresh(subject, now)

    def afflict(self, op: int, place: int, values: list[int] | None) -> None:
        afflict_nic(self, op, place, values)

    def series(self) -> list[Series]:
        return nic_series(self)

    def steady(self) -> bool:
        return nic_is_steady(self)

    def count(self, into: Tally) -> None:
        count_nic(self, into)

    def end_states(self) -> list[int]:
        """Of every queue pair: state, PSNs acknowledged and expected, messages received."""
        return pair_states(self)

    def results(self) -> dict[str, list[list[int]]]:
        """When messages were delivered: queue pair, number of the message, time, size."""
        return {"deliveries": self.deliveries}

    def save(self) -> list[Plain]:
        pairs: list[Plain] = [pair.save() for pair in self.pairs]
        ports: list[Plain] = [port.save() for port in self._ports]
        deliveries: list[Plain] = [[*row] for row in self.deliveries]
        receive: Plain = None if self.receive is None else self.receive.save()
        fields = save_fields(self, STATE)
        down: list[Plain] = []
        if self.bond is not None:
            down += self.bond.down
        return [super().save(), fields, pairs, ports, deliveries, self.host.free_ps, receive, down]

    def load(self, state: list[Plain]) -> None:
        base, counters, pairs, ports, deliveries, host_free, receive, down = state
        super().load(as_list(base))
        load_fields(self, STATE, counters)
        for pair, saved in zip(self.pairs, as_list(pairs), strict=True):
            pair.load(saved)
        for port, saved in zip(self._ports, as_list(ports), strict=True):
            port.load_round(saved, self.pairs)
        self.deliveries = [[as_int(value) for value in as_list(row)] for row in as_list(deliveries)]
        self.host.free_ps = as_int(host_free)
        if self.bond is not None:
            self.bond.down = [as_int(link) for link in as_list(down)]
            self.bond.converge(self)
        maker = self.make_receive
        if receive is not None and self.receive is None and maker is not None:
            self.receive = maker()
        if self.receive is not None:
            self.receive.load(receive)
        self.suffer()
