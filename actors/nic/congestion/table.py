"""Which class is which congestion control, and how is a queue pair given one?

The one table of algorithms. A new one is a class in a file of its own, a line in `MAKERS` and its knobs in
`emu.scenario.sections.congestion`; one from outside needs neither.
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
from emu.scenario.plugins import load_plugin
from emu.scenario.sections import congestion as knobs_of
from emu.scenario.sections.congestion import CongestionSection

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
    if section.algorithm == "none":
        return None
    make: Maker = MAKERS[section.algorithm] if section.algorithm in MAKERS else load_plugin(section.algorithm)
    return make(line_bps, mtu_bytes, section)
