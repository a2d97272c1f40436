"""How do a scenario's sections `nic` and `transport` become the parts of a NIC?"""

from __future__ import annotations

from actors.nic.controls import control_of
from actors.nic.nic import Nic
from actors.nic.recovery import Recovery
from actors.nic.schemes import RECOVERIES
from emu.scenario.nic import GoBackN, SelectiveRepeat, TransportSection
from emu.wire.frame import ECN_CAPABLE


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


def give_control(nic: Nic, transport: TransportSection, line_bps: int) -> None:
    """Give the queue pairs of a NIC, complete with ports, what paces them."""
    section = transport.congestion_control
    if section.algorithm == "none":
        return
    nic.set_control(section.cnp_interval_ps, section.cnp_priority)
    for pair in nic.pairs:
        control = control_of(section, line_bps, transport.mtu_bytes)
        assert control is not None, section.algorithm
        pair.control = control
        if control.ecn_capable:
            pair.ecn = ECN_CAPABLE
        window = control.window_packets
        if window > 0 and pair.una_psn + window < pair.limit_psn:
            pair.limit_psn = pair.una_psn + window
