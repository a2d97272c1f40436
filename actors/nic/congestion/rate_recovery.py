"""How long does DCQCN take to give a flow back what it lost?

Asked before a run: R_AI is an absolute rate, and the paper's 40 Mb/s belongs to 40G. The answer comes from
the control itself: a flow that was cut to half of the link, and whose target is no higher, sends at its
rate and hears no CNP, until it has nine tenths of the link.
"""

from __future__ import annotations

from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.congestion.table import control_of
from emu.scenario.sections import congestion as knobs_of
from emu.scenario.sections.congestion import CongestionSection
from emu.units import format_rate

PAPER_RATIO = 1000
"""The line rate over R_AI in the paper: 40G over 40 Mb/s."""
LONGEST_PS = 10**12


def recovery_ps(section: knobs_of.Dcqcn, line_bps: int, mtu_bytes: int) -> int | None:
    """Time from half of the link to nine tenths of it; None if it is more than a second."""
    control = control_of(section, line_bps, mtu_bytes)
    assert isinstance(control, Dcqcn), section.algorithm
    control.rate_bps = control.target_bps = line_bps // 2
    control.limited = True
    now = 0
    while control.rate_bps * 10 < line_bps * 9:
        now += section.increase_timer_ps
        if now > LONGEST_PS:
            return None
        control.on_send(int(control.rate_bps) * section.increase_timer_ps // (8 * 10**12), now)
    return now


def recovery_warnings(section: CongestionSection, line_bps: int, mtu_bytes: int) -> list[str]:
    """A line if R_AI is small for the rate of the links: how slowly a flow recovers."""
    if not isinstance(section, knobs_of.Dcqcn) or section.additive_bps * PAPER_RATIO >= line_bps:
        return []
    took_ps = recovery_ps(section, line_bps, mtu_bytes)
    took = "more than a second" if took_ps is None else f"{took_ps // 10**9} ms"
    rates = f"{format_rate(section.additive_bps)} at {format_rate(line_bps)}"
    return [
        (
            f"transport.congestion_control.additive: {rates}: a flow at half of the link has nine tenths"
            f" of it after {took} without a CNP; the paper's ratio is {format_rate(line_bps // PAPER_RATIO)}"
        )
    ]
