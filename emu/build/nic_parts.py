"""From the sections `nic` and `transport` to the parts of a NIC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.nic.congestion.table import control_of
from actors.nic.nic import Nic
from actors.nic.queue_pair.readiness import ACCESS_READ, ACCESS_WRITE
from actors.nic.receive import ReceiveBuffer, ReceiveGroup
from actors.nic.recovery.scheme import Recovery
from actors.nic.recovery.table import RECOVERIES
from actors.port.link import PRIORITIES
from actors.wire.frame import ECN_CAPABLE
from emu.scenario.sections.congestion import CongestionSection
from emu.scenario.sections.nic import GoBackN, ReceiveSection, SelectiveRepeat, TransportSection


def recovery_of(transport: TransportSection) -> Recovery:
    """The recovery scheme of a NIC."""
    section = transport.recovery
    make = RECOVERIES[section.scheme]
    if isinstance(section, SelectiveRepeat):
        window = section.window_bytes // transport.mtu_bytes
        return make(window, section.reorder, window)
    if isinstance(section, GoBackN) and section.placement == "out_of_order":
        return make(section.window_bytes // transport.mtu_bytes, section.reorder, 0)
    return make(0, 0, 0)


def first_timeout_ps(transport: TransportSection) -> int:
    """How long a queue pair waits for an acknowledgement the first time; 0 for ever."""
    adaptive = transport.adaptive_retransmission
    return adaptive.least_ps if adaptive.enabled and transport.timeout_ps else transport.timeout_ps


ACCESS: Final = {
    "none": 0,
    "write": int(ACCESS_WRITE),
    "read": int(ACCESS_READ),
    "read_write": int(ACCESS_WRITE | ACCESS_READ),
}


def give_receives(nic: Nic, transport: TransportSection) -> None:
    """Post the receives that the queue pairs of a NIC begin with, and say what peers may do."""
    section = transport.receive_queue
    nic.rnr_timer = transport.rnr_timer
    nic.rnr_retry = transport.rnr_retry
    nic.counted = section.depth > 0
    nic.access = ACCESS[transport.remote_access]
    nic.guarded = nic.counted or nic.access != ACCESS["read_write"]
    for pair in nic.pairs:
        pair.receives = section.depth


def give_control(nic: Nic, section: CongestionSection, line_bps: int, mtu_bytes: int) -> None:
    """Give the queue pairs of a NIC, complete with ports, what paces them."""
    if section.algorithm == "none":
        return
    nic.controlled = True
    nic.cnp_interval_ps = section.cnp_interval_ps
    nic.cnp_priority = section.cnp_priority
    if section.collects:
        nic.telemetry_bytes = section.telemetry_bytes
    for pair in nic.pairs:
        control = control_of(section, line_bps, mtu_bytes)
        assert control is not None, section.algorithm
        pair.control = control
        if control.ecn_capable:
            pair.ecn = ECN_CAPABLE
        window = control.window_packets
        if window > 0 and pair.una_psn + window < pair.limit_psn:
            pair.limit_psn = pair.una_psn + window


def thresholds_of(
    section: ReceiveSection, headroom_bytes: int, largest_frame_bytes: int
) -> tuple[int, int] | None:
    """XOFF and XON of a receive buffer; None if `auto` finds no room above the headroom of its port."""
    xoff = section.xoff_bytes
    if xoff is None:
        xoff = section.buffer_bytes - headroom_bytes
        if xoff < largest_frame_bytes:
            return None
    xon = section.xon_bytes
    if xon is None:
        xon = max(xoff - 2 * largest_frame_bytes, 0)
    return xoff, xon


def receive_buffer(
    nic: Nic,
    section: ReceiveSection,
    lossless: Sequence[Sequence[int]],
    headrooms_bytes: Sequence[int],
    largest_frame_bytes: int,
    rate_bps: int,
) -> ReceiveBuffer:
    """A slow way to memory for a NIC that is complete with ports. `lossless` has each port's classes."""
    receive = ReceiveBuffer(nic, rate_bps)
    for classes, headroom in zip(lossless, headrooms_bytes, strict=True):
        thresholds = thresholds_of(section, headroom, largest_frame_bytes)
        xoff, xon = thresholds or (0, 0)
        for priority in range(PRIORITIES):
            receive.add(ReceiveGroup(section.buffer_bytes, xoff, xon, priority in classes))
    return receive
