"""The table of congestion controls, and a warning before the run where DCQCN would recover slowly.

A new control is a class in a file of its own beside `actors.nic.congestion.control`, a line in `MAKERS` and
its knobs in `emu.scenario.sections.congestion`; `module:Class` needs neither.

The warning: R_AI is an absolute rate, and the paper's 40 Mb/s belongs to 40G. How long a flow takes to
recover is asked of the control itself: a flow that was cut to half of the link, and whose target is no
higher, sends at its rate and hears no CNP, until it has nine tenths of the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.congestion.hpcc import ONE, Hpcc
from actors.nic.congestion.hybrid import Hybrid
from actors.nic.congestion.swift import Swift
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.build.plugin_state import load_checked
from emu.scenario.sections import congestion as knobs_of
from emu.scenario.sections.congestion import CongestionSection
from emu.units import format_rate

Maker = Callable[[int, int, CongestionSection], CongestionControl]


def _rates(knobs: knobs_of.Dcqcn) -> tuple[int, int, int, int, int, int, int, int]:
    return (
        knobs.gain_bits,
        knobs.alpha_timer_ps,
        knobs.increase_timer_ps,
        knobs.byte_counter_bytes,
        knobs.fast_recovery,
        knobs.additive_bps,
        knobs.hyper_bps,
        knobs.least_bps,
    )


def _dcqcn(line_bps: int, mtu_bytes: int, knobs: CongestionSection) -> CongestionControl:
    assert isinstance(knobs, knobs_of.Dcqcn), knobs
    return Dcqcn(line_bps, mtu_bytes, *_rates(knobs))


def _swift(line_bps: int, mtu_bytes: int, knobs: CongestionSection) -> CongestionControl:
    assert isinstance(knobs, knobs_of.Swift), knobs
    return Swift(
        line_bps,
        mtu_bytes,
        knobs.target_ps,
        knobs.additive_thousandths,
        knobs.beta_thousandths,
        knobs.most_decrease_thousandths,
        knobs.window_bytes // mtu_bytes,
    )


def _hybrid(line_bps: int, mtu_bytes: int, knobs: CongestionSection) -> CongestionControl:
    assert isinstance(knobs, knobs_of.Hybrid), knobs
    delay = (knobs.target_ps, knobs.beta_thousandths, knobs.most_decrease_thousandths)
    return Hybrid(line_bps, mtu_bytes, *_rates(knobs), *delay)


def _hpcc(line_bps: int, mtu_bytes: int, knobs: CongestionSection) -> CongestionControl:
    assert isinstance(knobs, knobs_of.Hpcc), knobs
    base_rtt_ps = knobs.base_rtt_ps
    assert base_rtt_ps is not None, "auto is worked out by who knows the fabric"
    packet_bytes = int(wire_size(WRITE_MIDDLE, mtu_bytes)) + knobs.int_bytes
    additive = knobs.additive_bytes
    if additive is None:
        spare = (1 - knobs.eta) * line_bps * base_rtt_ps
        additive = max(spare // (8 * 10**12 * knobs.flows), 1)
    eta = int(knobs.eta * int(ONE))
    return Hpcc(
        line_bps, mtu_bytes, packet_bytes, knobs.int_bytes, base_rtt_ps, eta, knobs.max_stage, additive
    )


MAKERS: Final[dict[str, Maker]] = {"dcqcn": _dcqcn, "swift": _swift, "hybrid": _hybrid, "hpcc": _hpcc}


def control_of(section: CongestionSection, line_bps: int, mtu_bytes: int) -> CongestionControl | None:
    """A control for one queue pair on a port of this rate; None for PFC only."""
    if section.kind == "none":
        return None
    make: Maker = MAKERS[section.kind] if section.kind in MAKERS else load_checked(section.kind)
    return make(line_bps, mtu_bytes, section)


PAPER_RATIO = 1000
"""The line rate over R_AI in the paper: 40G over 40 Mb/s."""
LONGEST_PS = 10**12


def recovery_ps(section: knobs_of.Dcqcn, line_bps: int, mtu_bytes: int) -> int | None:
    """Time from half of the link to nine tenths of it; None if it is more than a second."""
    control = control_of(section, line_bps, mtu_bytes)
    assert isinstance(control, Dcqcn), section.kind
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
