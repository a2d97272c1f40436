"""What if a message comes that the responder cannot take, or may not?

A SEND takes a receive with its first packet, a WRITE with immediate with its last. If none is posted, the
responder answers that packet with an RNR NAK (receiver not ready) that carries a timer code, counts
`out_of_buffer`, and takes nothing until the packet comes again. The requester waits the time that the code
stands for, and goes on from there; after `rnr_retry` such waits without progress (7: any number) the queue
pair is in error.

Receives are posted by the host; every completion of a receive makes it post another (`actors.host.host`).
With a depth of 0 there is always one, and none of this happens.

A WRITE or a READ that the queue pair's access flags forbid is answered with a fatal NAK (remote access
error), and both ends are in error.

Source: InfiniBand Architecture Specification volume 1, sections 9.7.5.2.4 and 9.7.5.2.8, and table 46 (timer
codes).

Not modelled: shared receive queues, end-to-end credits in acknowledgements (which would keep a requester from
sending what nobody waits for), receives that are too small for a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from actors.kernel.event import RETRANSMIT
from actors.nic.queue_pair.queue_pair import ERROR, NO_PSN, WAIT_RNR, QueuePair
from actors.nic.queue_pair.timeout import fail, flush
from actors.wire.frame import (
    READ_REQUEST,
    SEND_ONLY_IMM,
    SYNDROME_NAK_ACCESS,
    SYNDROME_RNR,
    WRITE_FIRST,
    Frame,
)
from actors.wire.message import STATUS_FLUSHED, STATUS_RNR_RETRY_EXCEEDED

if TYPE_CHECKING:
    from actors.nic.egress_port import NicPort
    from actors.nic.nic import Nic

ACCESS_WRITE: Final[i64] = 1
ACCESS_READ: Final[i64] = 2
RNR_PORT: Final[i64] = 2047
"""The port number of the timer that ends a wait, which no port has."""
FOR_EVER: Final[i64] = 7
"""The value of `rnr_retry` that never gives up."""
_TAKES: Final[i64] = 0xA31
"""A bit for each opcode that takes a receive: SEND_FIRST, SEND_ONLY with and without immediate,
WRITE_LAST_IMM and WRITE_ONLY_IMM."""
_UNITS: Final = (
    *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152),
)
"""Of 10 us, by timer code."""


def rnr_wait_ps(code: i64) -> i64:
    """How long a requester waits that was told this timer code."""
    wait: i64 = _UNITS[code]
    return wait * 10_000_000


def refused(nic: Nic, pair: QueuePair, frame: Frame, port: NicPort, now: i64) -> bool:
    """Whether the packet that is expected is not taken; else it has taken a receive if it needs one."""
    opcode: i64 = frame.opcode
    if opcode >= WRITE_FIRST:
        needed: i64 = ACCESS_READ if opcode == READ_REQUEST else ACCESS_WRITE
        if nic.access & needed == 0:
            nic.counts(SYNDROME_NAK_ACCESS)
            port.send_frame(
                pair.acknowledgement(pair.expected_psn, SYNDROME_NAK_ACCESS, nic.ack_priority), now
            )
            flush(nic, pair, STATUS_FLUSHED)
            return True
    if not nic.counted:
        return False
    if (_TAKES >> opcode) & 1 == 0 or pair.receive_taken:
        return False
    if pair.receives > 0:
        pair.receives -= 1
        pair.receive_taken = opcode <= SEND_ONLY_IMM
        return False
    nic.out_of_buffer += 1
    if nic.whole_messages:
        pair.expected_psn = pair.message_psn
        pair.message_bytes = 0
    pair.nak_sent = True  # what follows is out of order, and needs no NAK
    nic.answer(pair, pair.expected_psn, SYNDROME_RNR | nic.rnr_timer, 0, port, now)
    return True


def told_not_ready(nic: Nic, pair: QueuePair, code: i64, now: i64) -> None:
    """The requester got an RNR NAK for `una_psn`: wait, or give up."""
    if pair.waits & WAIT_RNR:
        return
    if nic.rnr_retry < FOR_EVER and pair.rnr_retries >= nic.rnr_retry:
        fail(nic, pair, STATUS_RNR_RETRY_EXCEEDED)
        return
    nic.rnr_nak_retry_err += 1
    pair.rnr_retries += 1
    pair.waits |= WAIT_RNR
    pair.resend_psn = NO_PSN
    until_ps: i64 = now + rnr_wait_ps(code)
    pair.deadline_ps = until_ps + nic.timeout_ps
    nic.push_timer(until_ps, RETRANSMIT, RNR_PORT, pair.index)


def rnr_over(nic: Nic, pair: QueuePair, now: i64) -> bool:
    """The wait is over: send again from what was refused. Returns whether the queue pair still waited."""
    pair.waits &= ~WAIT_RNR
    if pair.state == ERROR:
        return False
    if pair.una_psn < pair.high_psn:
        nic.recovery.on_timeout(nic, pair, now)
    if pair.has_packets():
        nic.activate(pair, now)
    return True
