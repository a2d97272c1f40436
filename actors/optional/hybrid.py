"""Hybrid: DCQCN's answer to marks, and Swift's to delay, on one rate.

A CNP cuts the rate as in DCQCN. A round trip longer than `target` cuts it in proportion to the excess, at
most by `most_decrease`, and holds DCQCN's steps up until one is shorter again: marks tell at once that a
queue is long, delay tells precisely by how much, and also where nobody marks.

Source: MegaScale (NSDI'24), section 3.6, names the idea ("combining Swift's precise measuring of RTT with the
fast response of DCQCN to ECN") and no formula; these are ours.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64

from actors.kernel.knobs import Knob, Knobs
from actors.nic.congestion.dcqcn import Dcqcn
from actors.optional.swift import THOUSANDTHS


class Hybrid(Dcqcn):
    """DCQCN with a target for the round trip."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("target", "ps", "25us", "1ps", None, "A longer round trip lowers the rate and holds steps up."),
        Knob(
            "beta_thousandths",
            "number",
            800,
            1,
            1000,
            "How much of the excess lowers the rate, in thousandths.",
        ),
        Knob(
            "most_decrease_thousandths",
            "number",
            500,
            1,
            999,
            "The most by which a round trip lowers the rate, in thousandths.",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_rtt = True
        self.target_ps: i64 = knobs.target_ps
        self.beta: i64 = knobs.beta_thousandths
        self.most_decrease: i64 = knobs.most_decrease_thousandths

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        if rtt_ps <= 0:
            return
        self.advance(now)
        self.held = rtt_ps > self.target_ps
        if self.held:
            fall: i64 = self.beta * (rtt_ps - self.target_ps) // rtt_ps
            if fall > self.most_decrease:
                fall = self.most_decrease
            if not self.limited:
                self.alpha_since_ps = now
                self.step_since_ps = now
            self.cut(self.rate_bps * (THOUSANDTHS - fall) // THOUSANDTHS)
