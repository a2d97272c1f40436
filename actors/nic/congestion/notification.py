"""How does a queue pair's congestion control learn what happens?

The receiver's side (notification point): a packet that a switch marked brings forth a CNP to the sender's
queue pair, at most one per queue pair and interval, in a class of its own. The sender's side: CNPs,
acknowledgements, losses and timers are handed to the control, the limit of what may be in flight follows
its window, and one packet at a time is timed for controls that ask for it: the time from its turn until
an acknowledgement covers it. A packet that was sent again is not timed (Karn).

Source: DCQCN (SIGCOMM'15), section 3; CNP as in annex A17 of the InfiniBand Architecture Specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.kernel.event import RATE_TIMER
from actors.nic.congestion.control import CongestionControl
from actors.nic.egress_port import NicPort
from actors.nic.queue_pair.queue_pair import NO_PSN, QueuePair
from actors.wire.frame import CNP, Frame, wire_size

if TYPE_CHECKING:
    from actors.nic.nic import Nic


def notify(nic: Nic, pair: QueuePair, port: NicPort, now: i64) -> None:
    """A marked packet came: tell its sender, unless it was told just now."""
    nic.np_ecn_marked_roce_packets += 1
    if now < pair.cnp_from_ps:
        return
    pair.cnp_from_ps = now + nic.cnp_interval_ps
    nic.np_cnp_sent += 1
    size: i64 = wire_size(CNP, 0)
    cnp = Frame(
        CNP,
        nic.cnp_priority,
        pair.address,
        pair.remote_address,
        pair.udp_source,
        pair.remote_qpn,
        0,
        0,
        size,
    )
    port.send_frame(cnp, now)


def echo(nic: Nic, answer: Frame) -> None:
    """An acknowledgement takes back what switches wrote into the packet that it answers."""
    hops = nic.telemetry
    if hops is not None:
        answer.tail = hops
        answer.wire_bytes += nic.telemetry_bytes


def notified(nic: Nic, pair: QueuePair, now: i64) -> None:
    """A CNP came."""
    control = pair.control
    if control is not None:
        nic.rp_cnp_handled += 1
        control.on_cnp(now)
        set_timer(nic, pair, control)


def progressed(
    nic: Nic, pair: QueuePair, control: CongestionControl, packets: i64, frame: Frame, now: i64
) -> None:
    """So many packets more of a queue pair are acknowledged."""
    rtt_ps: i64 = -1
    if pair.timed_psn != NO_PSN and pair.una_psn > pair.timed_psn:
        rtt_ps = now - pair.timed_ps
        pair.timed_psn = NO_PSN
    hops = frame.tail
    if hops is not None and control.wants_telemetry:
        control.on_telemetry(hops, pair.una_psn, pair.next_psn, now)
    control.on_ack(packets, rtt_ps, now)
    window: i64 = control.window_packets
    if window > 0:
        bound: i64 = nic.recovery.window_packets
        if bound > 0 and bound < window:
            window = bound
        pair.limit_psn = pair.una_psn + window
    set_timer(nic, pair, control)


def lost(nic: Nic, pair: QueuePair, now: i64) -> None:
    """The responder asked for packets again, or a timer ran out."""
    pair.timed_psn = NO_PSN
    control = pair.control
    if control is not None:
        control.on_loss(now)
        set_timer(nic, pair, control)


def timer_came(nic: Nic, pair: QueuePair, now: i64) -> bool:
    """The timer of a queue pair's control fired; one that was set anew meanwhile is not due. Returns whether
    it is."""
    control = pair.control
    assert control is not None, pair.qpn
    pair.control_timer_ps = 0
    due: bool = control.timer_ps > 0 and control.timer_ps <= now
    if due:
        control.timer_ps = 0
        control.on_timer(now)
    set_timer(nic, pair, control)
    return due


def set_timer(nic: Nic, pair: QueuePair, control: CongestionControl) -> None:
    """Make the control's timer pending, unless one is; a later one is looked at when that fires."""
    if control.timer_ps > 0 and pair.control_timer_ps == 0:
        due: i64 = control.timer_ps
        if due <= nic.queue.now_ps:
            due = nic.queue.now_ps + 1
        pair.control_timer_ps = due
        nic.push_timer(due, RATE_TIMER, 0, pair.index)
