"""How does a READ go?

The requester sends one packet with the address and length of what it wants (RETH); the responder sends that,
in packets whose PSNs begin with that of the request. Responses are the acknowledgement: one with PSN p says
that everything before p was done. So whatever else the responder has to say waits behind the responses it
owes (`actors.nic.queue_pair.owed`), and the requester takes nothing for acknowledged that lies beyond a
response it misses. A request that comes again is answered again, from its own PSN and to its own length.

Missing responses show in three ways. A later response has come: `on_response_gap` of the recovery scheme. An
acknowledgement beyond them has come, and acknowledgements have the priority of data, so that it cannot have
overtaken them (an implied NAK). Or the timer runs out. Go-back-N asks again for everything from there on,
go-back-0 for the whole message, selective repeat for what is missing. Schemes that keep what overtook keep
responses within their window, too.

Responses are paced by the queue pair that sends them, and marked ones bring forth CNPs to it. Nothing
acknowledges them, so controls that live on acknowledgements (Swift) do not govern them.

Source: InfiniBand Architecture Specification volume 1, sections 9.4.4, 9.7.3 and 9.7.5.1.

Not modelled: limits of the responder on READs in progress (it has as many resources as a requester may
use), remote keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.nic.congestion.notification import lost
from actors.nic.queue_pair.owed import owe_acknowledgement, owe_response
from actors.nic.queue_pair.queue_pair import QueuePair, unwrap
from actors.nic.queue_pair.work_request import WorkRequest
from actors.wire.frame import SYNDROME_ACK, Frame
from actors.wire.message import POST_READ

if TYPE_CHECKING:
    from actors.nic.nic import Nic


def asked(nic: Nic, pair: QueuePair, frame: Frame, psn: i64, now: i64) -> i64:
    """The responder got a request, new or again: it owes the responses. Returns the PSN behind them."""
    size: i64 = frame.message_bytes
    packets: i64 = (size + pair.mtu_bytes - 1) // pair.mtu_bytes
    if packets == 0:
        packets = 1
    pair.owed = owe_response(pair.owed, psn, psn + packets, size, pair.mtu_bytes)
    nic.activate(pair, now)
    return psn + packets


def owe(nic: Nic, pair: QueuePair, psn: i64, syndrome: i64) -> bool:
    """Whether an answer waits behind responses; a selective NAK, whose PSN is its own, does not."""
    owed = pair.owed
    if owed is None or (syndrome != SYNDROME_ACK and nic.recovery.selective):
        return False
    if owe_acknowledgement(owed, psn, syndrome):
        nic.counts(syndrome)
    return True


def due(pair: QueuePair) -> WorkRequest | None:
    """The first READ whose responses are not all here; None if none was asked for."""
    request = pair.head
    while request is not None:
        if request.first_psn >= pair.asked_psn:
            return None
        if request.flags & POST_READ and request.first_psn + request.packets > pair.response_psn:
            return request
        request = request.following
    return None


def expected_response(pair: QueuePair, request: WorkRequest) -> i64:
    """The PSN of the response that is next."""
    return max(pair.response_psn, request.first_psn)


def bounded(nic: Nic, pair: QueuePair, una: i64, frame: Frame, now: i64) -> i64:
    """How far an acknowledgement of everything before `una` reaches: not beyond a missing response."""
    request = due(pair)
    if request is None:
        return una
    expected: i64 = expected_response(pair, request)
    if una <= expected:
        return una
    if una > pair.acked_psn:
        pair.acked_psn = una
    if frame.priority == pair.priority and frame.syndrome == SYNDROME_ACK:
        _missing(nic, pair, request.first_psn + request.packets + nic.recovery.reorder_packets, now)
    return request.first_psn if nic.whole_messages else expected


def responded(nic: Nic, pair: QueuePair, frame: Frame, now: i64) -> None:
    """A response came."""
    request = due(pair)
    psn: i64 = unwrap(frame.psn, pair.una_psn)
    if request is None or psn >= pair.asked_psn:
        return
    expected: i64 = expected_response(pair, request)
    if psn < expected:
        return
    frame.tail = None  # what it collected is about the way here, not about the way of requests
    mask: i64 = len(pair.came) - 1
    if psn > expected:
        nic.out_of_sequence += 1
        pair.response_psn = expected
        before: i64 = request.first_psn if nic.whole_messages else expected
        if before > pair.una_psn:
            nic.advance(pair, before, frame, now)
        if mask >= 0 and psn - expected <= mask:
            if pair.came[psn & mask] == psn + 1:
                return
            pair.came[psn & mask] = psn + 1
            _arrived(nic, frame.payload_bytes)
        _missing(nic, pair, psn, now)
        return
    _arrived(nic, frame.payload_bytes)
    pair.asked_again = False
    una: i64 = _taken(nic, pair, request, psn + 1, now)
    if una > pair.una_psn:
        nic.advance(pair, una, frame, now)
    else:
        pair.retries = 0
        pair.deadline_ps = now + nic.first_timeout_ps


def _taken(nic: Nic, pair: QueuePair, request: WorkRequest, psn: i64, now: i64) -> i64:
    """All responses of a READ before `psn` are here: go on over what came before it was expected, to the
    READs that follow too. Returns what is acknowledged by that.
    """
    mask: i64 = len(pair.came) - 1
    whole: bool = nic.whole_messages
    while True:
        end: i64 = request.first_psn + request.packets
        while mask >= 0 and psn < end and pair.came[psn & mask] == psn + 1:
            psn += 1
        pair.response_psn = psn
        if psn < end:
            return request.first_psn if whole else psn
        if whole:
            nic.delivered_bytes += request.size_bytes
            nic.progress += request.size_bytes
        log(nic, pair, request.size_bytes, now)
        following = due(pair)
        if following is None:
            return max(end, pair.acked_psn)
        request = following
        psn = expected_response(pair, request)
        if mask < 0 or pair.came[psn & mask] != psn + 1:
            return max(end, min(psn, pair.acked_psn))


def log(nic: Nic, pair: QueuePair, size_bytes: i64, now: i64) -> None:
    """A message is here whole."""
    if pair.log_deliveries:
        nic.deliveries.append([pair.index, pair.messages, now, size_bytes])
        if len(nic.deliveries) > pair.log_deliveries:
            nic.deliveries = nic.deliveries[len(nic.deliveries) // 2 :]
    pair.messages += 1


def _arrived(nic: Nic, payload_bytes: i64) -> None:
    """Bytes of a READ are here for good."""
    if not nic.whole_messages:
        nic.delivered_bytes += payload_bytes
        nic.progress += payload_bytes


def _missing(nic: Nic, pair: QueuePair, psn: i64, now: i64) -> None:
    """Something at or beyond `psn` has come, and responses before it have not."""
    lost(nic, pair, now)
    nic.recovery.on_response_gap(nic, pair, psn, now)
    if pair.has_packets():
        nic.activate(pair, now)
