"""How do a scenario's sections `nic` and `transport` become the parts of a NIC?"""

from __future__ import annotations

from actors.nic.recovery import Recovery
from actors.nic.schemes import RECOVERIES
from emu.scenario.nic import GoBackN, SelectiveRepeat, TransportSection


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
