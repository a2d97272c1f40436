"""Hybrid: DCQCN's answer to marks, and Swift's to delay, on one rate.

A CNP cuts the rate as in DCQCN. A round trip longer than `target` cuts it in proportion to the excess, at
most by `most_decrease`, and holds DCQCN's steps up until one is shorter again: marks tell at once that a
queue is long, delay tells precisely by how much, and also where nobody marks.

Source: MegaScale (NSDI'24), section 3.6, names the idea ("combining Swift's precise measuring of RTT with the
fast response of DCQCN to ECN") and no formula; these are ours.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.congestion.swift import THOUSANDTHS


class Hybrid(Dcqcn):
    """DCQCN with a target for the round trip."""

    def __init__(
        self,
        line_bps: int,
        mtu_bytes: int,
        gain_bits: int,
        alpha_timer_ps: int,
        increase_timer_ps: int,
        byte_counter_bytes: int,
        fast_recovery: int,
        additive_bps: int,
        hyper_bps: int,
        least_bps: int,
        target_ps: int,
        beta_thousandths: int,
        most_decrease_thousandths: int,
    ) -> None:
        super().__init__(
            line_bps,
            mtu_bytes,
            gain_bits,
            alpha_timer_ps,
            increase_timer_ps,
            byte_counter_bytes,
            fast_recovery,
            additive_bps,
            hyper_bps,
            least_bps,
        )
        self.wants_rtt = True
        self.target_ps: i64 = target_ps
        self.beta: i64 = beta_thousandths
        self.most_decrease: i64 = most_decrease_thousandths

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
