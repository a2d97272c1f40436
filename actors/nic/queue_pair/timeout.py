"""What happens when a queue pair hears nothing?

The retransmission timer is one pending event per queue pair, pushed when a packet goes out and looked at
again when it fires, so that an acknowledgement costs no timer operation. After `retry_count` timeouts
without progress the queue pair is in error and everything posted is flushed.

With adaptive retransmission the first timeout is short and each that follows twice as long, up to the
configured one; only those of full length count as retries. A long timer that is under way when progress
is made runs out first.

Source: InfiniBand Architecture Specification volume 1, section 9.7.6; adaptive retransmission as
MegaScale (NSDI'24) describes its use; the doubling is a choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.kernel.event import RETRANSMIT
from actors.nic.congestion.notification import lost
from actors.nic.queue_pair.queue_pair import ERROR, NO_PSN, QueuePair
from actors.wire.fault import PAIR_ERROR
from actors.wire.message import COMPLETED_RECEIVE, STATUS_FLUSHED, STATUS_RETRY_EXCEEDED

if TYPE_CHECKING:
    from actors.nic.nic import Nic


def timed_out(nic: Nic, pair: QueuePair, now: i64) -> bool:
    """A queue pair's timer fired: nothing outstanding, or early, or the acknowledgement is overdue.
    Returns whether it is."""
    pair.timer_pending = False
    if pair.una_psn == pair.high_psn or pair.state == ERROR:
        return False
    overdue: bool = now >= pair.deadline_ps
    if overdue:
        timeout_ps: i64 = nic.timeout_ps
        if nic.first_timeout_ps << pair.backoff < timeout_ps:
            nic.roce_adp_retrans += 1
            pair.backoff += 1
            if nic.first_timeout_ps << pair.backoff < timeout_ps:
                timeout_ps = nic.first_timeout_ps << pair.backoff
        else:
            pair.retries += 1
            nic.local_ack_timeout_err += 1
        if pair.retries > nic.retry_count:
            fail(nic, pair, STATUS_RETRY_EXCEEDED)
            return True
        pair.deadline_ps = now + timeout_ps
    pair.timer_pending = True
    nic.push_timer(pair.deadline_ps, RETRANSMIT, 0, pair.index)
    if overdue:
        lost(nic, pair, now)
        nic.recovery.on_timeout(nic, pair, now)
        nic.activate(pair, now)
    return overdue


def fail(nic: Nic, pair: QueuePair, status: i64) -> None:
    """The oldest work request ends with this status, which is fatal."""
    flush(nic, pair, status)


def flush(nic: Nic, pair: QueuePair, status: i64) -> None:
    """The queue pair is in error. The oldest work request ends with this status; what else is posted is
    flushed, in order, and after it the receives.
    """
    pair.state = ERROR
    nic.note(int(PAIR_ERROR), int(pair.index), [int(pair.qpn), int(status), 0])
    pair.sending = None
    pair.resend_psn = NO_PSN
    pair.owed = None
    pair.waits = 0
    while pair.head is not None:
        request = pair.drop_head()
        pair.sending = None
        nic.complete(pair, request.number, request.size_bytes, status)
        status = STATUS_FLUSHED
    while pair.receives > 0:
        pair.receives -= 1
        nic.tell(pair, 0, 0, COMPLETED_RECEIVE, STATUS_FLUSHED)
