"""The responder: what a NIC does with request packets, and how it answers them.

Packets are taken in order. The last of a message makes it *delivered*; the host hears of a SEND and of a
WRITE with immediate; a packet that asks for it is acknowledged. What is out of order is the recovery
scheme's.

READs. A request is answered with the data, in packets whose PSNs begin with that of the request; whatever
else the responder has to say waits behind the responses it owes (`actors.nic.queue_pair.pending_answers`). A
request that comes again is answered again, from its own PSN and to its own length.

Receives. A SEND takes a receive with its first packet, a WRITE with immediate with its last. If none is
posted, the responder answers that packet with an RNR NAK (receiver not ready) that carries a timer code,
counts `out_of_buffer`, and takes nothing until the packet comes again. Receives are posted by the host; every
completion of a receive makes it post another (`actors.host.host`). With a depth of 0 there is always one.

Access. A WRITE or a READ that the queue pair's access flags forbid is answered with a fatal NAK (remote
access error), and both ends are in error.

Congestion (notification point). A packet that a switch marked brings forth a CNP to the sender's queue pair,
at most one per queue pair and interval, in a class of its own. With `cnp_delay_ps` it leaves that much later;
the interval counts from the mark. An acknowledgement takes back the telemetry (INT) that the packet collected
which it answers. With `echoes` it repeats that packet's PSN (in AETH's 24
bits), mark and UDP source port, and every packet is answered that is marked, or kept beyond a gap.

Source: InfiniBand Architecture Specification volume 1, sections 9.7.3, 9.7.4, 9.7.5.1, 9.7.5.2.4 and
9.7.5.2.8, and annex A17 (CNP); DCQCN (SIGCOMM'15), section 3.

Not modelled: limits of the responder on READs in progress (it has as many resources as a requester may use),
remote keys, shared receive queues, end-to-end credits in acknowledgements (which would keep a requester from
sending what nobody waits for), receives that are too small for a message.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i16, i64, u8

from actors.kernel.event import RETRANSMIT, Message
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import vec
from actors.nic.egress_port import NicPort
from actors.nic.loss_recovery import Recovery
from actors.nic.queue_pair.endpoint import CNP_PORT, EndpointSettings
from actors.nic.queue_pair.pending_answers import add_acknowledgement, add_response
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair, unwrap
from actors.nic.queue_pair.requester import Requester
from actors.port.link import MessagePort
from actors.wire.frame import (
    CNP,
    ECN_CONGESTED,
    ECN_NOT_CAPABLE,
    LAST_OPCODES,
    PSN_MASK,
    READ_REQUEST,
    REPORTED_OPCODES,
    SEND_ONLY_IMM,
    SYNDROME_ACK,
    SYNDROME_NAK_ACCESS,
    SYNDROME_RNR,
    WRITE_FIRST,
    WRITE_MIDDLE,
    Frame,
    Load,
    wire_size,
)
from actors.wire.message import COMPLETED_RECEIVE, COMPLETION, STATUS_FLUSHED, STATUS_SUCCESS

ACCESS_WRITE: Final[i64] = 1
ACCESS_READ: Final[i64] = 2
_TAKES: Final[i64] = 0xA31
"""A bit for each opcode that takes a receive: SEND_FIRST, SEND_ONLY with and without immediate,
WRITE_LAST_IMM and WRITE_ONLY_IMM."""


class Responder(Requester):
    """A NIC's requester with the responder's half of all its queue pairs."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        settings: EndpointSettings,
        recovery: Recovery,
    ) -> None:
        super().__init__(number, queue, host, settings, recovery)
        self.guarded = settings.receives_run_out or settings.access != ACCESS_WRITE | ACCESS_READ
        self.transmit_naks: i64 = 0
        self.out_of_buffer: i64 = 0
        self.np_cnp_sent: i64 = 0
        self.np_ecn_marked_roce_packets: i64 = 0
        self.cnp_interval_ps: i64 = 0
        self.cnp_priority: i64 = 0
        self.cnp_delay_ps: i64 = 0
        """From a marked packet until its CNP leaves; less than the interval, so a queue pair owes one."""
        self._came: Frame | None = None
        """The packet that is answered now, where answers repeat something of it."""
        self._ports: vec[NicPort] = vec[NicPort]()
        """The NIC's fabric ports: an answer leaves where the request came in."""

    def port_at(self, number: i64) -> NicPort:
        """A port by its number."""
        first = self.first_port
        if number == 0 and first is not None:
            return cast("NicPort", first)
        return self._ports[number]

    # ---- requests

    def respond(self, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        """A request packet: take it if it is the one expected, with what is held behind it, and answer."""
        if self.repeating:
            self._came = frame
        expected: i64 = pair.expected_psn
        if frame.psn != expected & PSN_MASK:
            self._out_of_order(pair, frame, port, now)
            return
        asks: bool = frame.ack_request != 0 or (self.echoes and frame.ecn == ECN_CONGESTED)
        while not (self.guarded and self._not_taken(pair, frame, port, now)):
            pair.expected_psn = expected + 1
            pair.nak_sent = False
            payload: int = frame.payload_bytes
            carried = frame.carried
            if isinstance(carried, Load):
                _place(pair, carried.payload)
            pair.message_bytes += payload
            if not self.whole_messages:
                self.delivered_bytes += payload
                self.progress += payload
            opcode: int = frame.opcode
            if opcode != WRITE_MIDDLE:
                if opcode == READ_REQUEST:
                    pair.expected_psn = self._asked(pair, frame, expected, now)
                    pair.message_psn = pair.expected_psn
                elif (LAST_OPCODES >> opcode) & 1:
                    self._whole(pair, frame, now)
            following: Frame | None = None
            if pair.held is not None and pair.held.count > 0:
                asks = True
                following = pair.held.take(pair.expected_psn)
            if following is None:
                if asks:
                    spare: Frame | None = None
                    if not self.repeating and frame.carried is None:
                        spare = frame
                    self.answer(pair, pair.expected_psn - 1, SYNDROME_ACK, 0, port, now, spare)
                return
            frame = following
            expected = pair.expected_psn

    def _out_of_order(self, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        """A request packet that is not the one expected: beyond it, or one that came before."""
        expected: i64 = pair.expected_psn
        psn: i64 = unwrap(i64(frame.psn), expected)
        if psn > expected:
            self.out_of_sequence += 1
            naks: i64 = self.transmit_naks
            self.recovery.on_gap(self, pair, frame, psn, port, now)
            held = pair.held
            if self.echoes and naks == self.transmit_naks and held is not None and held.holds(psn):
                self.answer(pair, expected - 1, SYNDROME_ACK, 0, port, now)
        elif frame.opcode == READ_REQUEST:
            self.duplicate_request += 1
            self._asked(pair, frame, psn, now)
        else:
            self.recovery.on_duplicate(self, pair, frame, psn, port, now)

    def _asked(self, pair: QueuePair, frame: Frame, psn: i64, now: i64) -> i64:
        """A READ's request came, new or again: the responses are owed. Returns the PSN behind them."""
        size: i64 = frame.message_bytes
        packets: i64 = (size + pair.mtu_bytes - 1) // pair.mtu_bytes
        if packets == 0:
            packets = 1
        pair.pending = add_response(pair.pending, psn, psn + packets, size, pair.mtu_bytes)
        self.activate(pair, now)
        return psn + packets

    def _whole(self, pair: QueuePair, frame: Frame, now: i64) -> None:
        """The last packet of a message was taken."""
        size: i64 = pair.message_bytes
        if self.whole_messages:
            self.delivered_bytes += size
            self.progress += size
        self.delivered(pair, size, now)
        pair.message_bytes = 0
        pair.receive_taken = False
        pair.message_psn = pair.expected_psn
        if (REPORTED_OPCODES >> i64(frame.opcode)) & 1:
            done = Message(
                COMPLETION, pair.index, frame.immediate, size, COMPLETED_RECEIVE, STATUS_SUCCESS, 0
            )
            if frame.payload is not None:
                done.data = b"".join(pair.pieces)
                pair.pieces = []
            self.host.send(done, now)

    def _not_taken(self, pair: QueuePair, frame: Frame, port: i64, now: i64) -> bool:
        """Whether the packet that is expected is not taken; else it has taken a receive if it needs one."""
        opcode: int = frame.opcode
        if opcode >= WRITE_FIRST:
            needed: i64 = ACCESS_READ if opcode == READ_REQUEST else ACCESS_WRITE
            if self.settings.access & needed == 0:
                self.transmit_naks += 1
                nak = pair.acknowledgement(pair.expected_psn, SYNDROME_NAK_ACCESS)
                self._ports[port].send_frame(nak, now)
                self.flush(pair, STATUS_FLUSHED)
                return True
        if not self.settings.receives_run_out:
            return False
        if (_TAKES >> opcode) & 1 == 0 or pair.receive_taken:
            return False
        if pair.receives > 0:
            pair.receives -= 1
            pair.receive_taken = opcode <= SEND_ONLY_IMM
            return False
        self.out_of_buffer += 1
        if self.whole_messages:
            pair.expected_psn = pair.message_psn
            pair.message_bytes = 0
        pair.nak_sent = True  # what follows is out of order, and needs no NAK
        self.answer(pair, pair.expected_psn, SYNDROME_RNR | self.settings.rnr_timer, 0, port, now)
        return True

    # ---- answers

    def answer(
        self,
        pair: QueuePair,
        psn: i64,
        syndrome: i64,
        selective: i64,
        port: i64,
        now: i64,
        spare: Frame | None = None,
    ) -> None:
        """Send an acknowledgement or a NAK for `psn`; what is selective travels in AETH's 24 bits. A packet
        that nobody needs any more may become the answer."""
        if pair.pending is not None and self._waits(pair, psn, syndrome):
            return
        if self.self_clocked:
            own = self.recovery.acknowledgement(self, pair, psn, syndrome, port, now)
            if own is not None:
                self._count(i64(own.syndrome))
                self._ports[port].send_frame(own, now)
            return
        self._count(syndrome)
        answer = pair.acknowledgement(psn, syndrome, spare)
        if selective != 0:
            answer.immediate = selective
        if self.repeating and self._came is not None:
            came = self._came
            if self.echoes:
                answer.immediate = i64(came.psn)
                answer.ecn = came.ecn if came.ecn == ECN_CONGESTED else ECN_NOT_CAPABLE
                answer.udp_source = came.udp_source
            if self.telemetry_bytes >= 0:
                tail = came.tail
                if tail is not None:
                    answer.carried = tail
                    answer.wire_bytes += i16(self.telemetry_bytes)
        self.port_at(port).send_frame(answer, now)

    def notify(self, pair: QueuePair, port: NicPort, now: i64) -> None:
        """A marked packet came: notify its sender, unless it was notified within the interval."""
        self.np_ecn_marked_roce_packets += 1
        if self.self_clocked:
            self.recovery.on_mark(pair)
            return
        control = pair.control
        assert control is not None, pair.qpn
        if self.echoes or now < control.cnp_from_ps:
            return
        control.cnp_from_ps = now + self.cnp_interval_ps
        if self.cnp_delay_ps > 0:
            control.cnp_port = port.number
            self.push_timer(now + self.cnp_delay_ps, RETRANSMIT, CNP_PORT, pair.index)
        else:
            self._send_cnp(pair, port, now)

    def cnp_due(self, pair: QueuePair, now: i64) -> bool:
        """The delay of a CNP is over. Returns whether the queue pair still owed it."""
        control = pair.control
        assert control is not None, pair.qpn
        port: i64 = control.cnp_port
        if port < 0 or pair.state == ERROR:
            return False
        control.cnp_port = -1
        self._send_cnp(pair, self._ports[port], now)
        return True

    def _send_cnp(self, pair: QueuePair, port: NicPort, now: i64) -> None:
        self.np_cnp_sent += 1
        cnp = Frame(
            CNP,
            u8(self.cnp_priority),
            pair.address,
            pair.remote_address,
            pair.udp_source,
            pair.remote_qpn,
            0,
            0,
            wire_size(CNP, 0),
        )
        port.send_frame(cnp, now)

    def _waits(self, pair: QueuePair, psn: i64, syndrome: i64) -> bool:
        """Whether an answer waits behind responses; a selective NAK, whose PSN is its own, does not."""
        pending = pair.pending
        if pending is None or (syndrome != SYNDROME_ACK and self.recovery.selective):
            return False
        if add_acknowledgement(pending, psn, syndrome):
            self._count(syndrome)
        return True

    def _count(self, syndrome: i64) -> None:
        if syndrome == SYNDROME_ACK:
            self.transmit_acks += 1
        else:
            self.transmit_naks += 1


def _place(pair: QueuePair, data: bytes) -> None:
    """The next bytes of a message are here; the first of one that begins anew take the place of what was."""
    if pair.message_bytes == 0:
        pair.pieces = []
    pair.pieces.append(data)
