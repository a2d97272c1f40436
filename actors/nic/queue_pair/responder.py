"""What does the responder do with a request packet?

Packets are taken in order. The last of a message makes it *delivered*; the host hears of a SEND and of a
WRITE with immediate; a packet that asks for it is acknowledged. What is out of order is the recovery
scheme's, a READ's request that comes again is answered again, and a message that needs a receive waits for
one (`actors.nic.queue_pair.readiness`).

Source: InfiniBand Architecture Specification volume 1, section 9.7.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.kernel.event import Message
from actors.nic.queue_pair.queue_pair import QueuePair, unwrap
from actors.nic.queue_pair.read import asked, log
from actors.nic.queue_pair.readiness import refused
from actors.wire.frame import (
    LAST_OPCODES,
    PSN_MASK,
    READ_REQUEST,
    SYNDROME_ACK,
    TOLD_OPCODES,
    WRITE_MIDDLE,
    Frame,
)
from actors.wire.message import COMPLETED_RECEIVE, COMPLETION, STATUS_SUCCESS

if TYPE_CHECKING:
    from actors.nic.egress_port import NicPort
    from actors.nic.nic import Nic


def respond(nic: Nic, pair: QueuePair, frame: Frame, port: NicPort, now: i64) -> None:
    """A request packet: take it if it is the one expected, with what is held behind it, and answer."""
    expected: i64 = pair.expected_psn
    if frame.psn != expected & PSN_MASK:
        strayed(nic, pair, frame, port, now)
        return
    asks: bool = frame.ack_request != 0
    while not (nic.guarded and refused(nic, pair, frame, port, now)):
        pair.expected_psn = expected + 1
        pair.nak_sent = False
        payload: i64 = frame.payload_bytes
        data = frame.data
        if data is not None:
            placed(pair, data)
        pair.message_bytes += payload
        if not nic.whole_messages:
            nic.delivered_bytes += payload
            nic.progress += payload
        opcode: i64 = frame.opcode
        if opcode != WRITE_MIDDLE:
            if opcode == READ_REQUEST:
                pair.expected_psn = asked(nic, pair, frame, expected, now)
                pair.message_psn = pair.expected_psn
            elif (LAST_OPCODES >> opcode) & 1:
                delivered(nic, pair, frame, now)
        held = pair.held
        following: Frame | None = None
        if held is not None and held.count > 0:
            asks = True
            following = held.take(pair.expected_psn)
        if following is None:
            if asks:
                nic.answer(pair, pair.expected_psn - 1, SYNDROME_ACK, 0, port, now)
            return
        frame = following
        expected = pair.expected_psn


def strayed(nic: Nic, pair: QueuePair, frame: Frame, port: NicPort, now: i64) -> None:
    """A request packet that is not the one expected: beyond it, or one that came before."""
    expected: i64 = pair.expected_psn
    psn: i64 = unwrap(frame.psn, expected)
    if psn > expected:
        nic.out_of_sequence += 1
        nic.recovery.on_gap(nic, pair, frame, psn, port, now)
    elif frame.opcode == READ_REQUEST:
        nic.duplicate_request += 1
        asked(nic, pair, frame, psn, now)
    else:
        nic.recovery.on_duplicate(nic, pair, frame, psn, port, now)


def placed(pair: QueuePair, data: bytes) -> None:
    """The next bytes of a message are here; the first of one that begins anew take the place of what was."""
    if pair.message_bytes == 0:
        pair.pieces = []
    pair.pieces.append(data)


def delivered(nic: Nic, pair: QueuePair, frame: Frame, now: i64) -> None:
    """The last packet of a message was taken."""
    size: i64 = pair.message_bytes
    if nic.whole_messages:
        nic.delivered_bytes += size
        nic.progress += size
    log(nic, pair, size, now)
    pair.message_bytes = 0
    pair.receive_taken = False
    pair.message_psn = pair.expected_psn
    if (TOLD_OPCODES >> frame.opcode) & 1:
        done = Message(COMPLETION, pair.index, frame.immediate, size, COMPLETED_RECEIVE, STATUS_SUCCESS, 0)
        if frame.data is not None:
            done.data = b"".join(pair.pieces)
            pair.pieces = []
        nic.host.send(done, now)
