"""TIMELY: the rate follows the gradient of the round-trip time.

With each round trip, d the mean change from one to the next and g = d / `least_rtt`:

    below `low`:   R += step            beyond `high`:   R (1 - beta (1 - high / rtt))
    g <= 0:        R += N step          else:            R (1 - beta g)

where N is 5 from the fifth completion with g <= 0 in a row on (hyperactive increase), else 1. A g above 1
counts as 1, since the rate would fall below 0.

`PatchedTimely` has another rule between the thresholds, with a fixed point that flows share: with a weight w
that goes from 0 at g = -1/4 to 1 at g = 1/4, and the distance e = rtt / low - 1,

    R (1 - beta w e) + (1 - w) step

so that N flows on a link of rate C settle at C / N each and an RTT of low (1 + N step / (beta C)).

Sources: Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter (SIGCOMM 2015), algorithm 1;
Zhu et al., ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY (CoNEXT 2016), algorithm 2.

Not modelled: segments of 64 KB that are timed whole; one packet in flight is timed at a time.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

ONE = 1 << 16
FIELDS = ("rate_bps", "previous_ps", "change_ps", "calm")


class Timely(CongestionControl):
    """One queue pair's rate."""

    knobs = (
        Knob("low", "ps", "50us", doc="A shorter round trip raises the rate whatever the gradient."),
        Knob("high", "ps", "500us", doc="A longer one lowers it whatever the gradient."),
        Knob(
            "least_rtt", "ps", "20us", "1ps", doc="The unloaded round trip, by which gradients are measured."
        ),
        Knob("step", "bps", "10M", doc="What an increase adds."),
        Knob("beta_thousandths", "number", 800, 1, 1000, "The decrease, in thousandths."),
        Knob(
            "weight_thousandths", "number", 875, 0, 1000, "Of the newest change in the mean, in thousandths."
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_rtt = True
        self.ecn_capable = False
        self.low_ps: int = knobs.low_ps
        self.high_ps: int = knobs.high_ps
        self.least_rtt_ps: int = knobs.least_rtt_ps
        self.step_bps: int = knobs.step_bps
        self.beta: int = knobs.beta_thousandths
        self.weight: int = knobs.weight_thousandths
        self.rate_bps = line_bps
        self.previous_ps = 0
        self.change_ps = 0
        self.calm = 0

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        if rtt_ps <= 0:
            return
        if self.previous_ps:
            change = rtt_ps - self.previous_ps
            self.change_ps += (change - self.change_ps) * self.weight // 1000
        self.previous_ps = rtt_ps
        gradient = self.change_ps * ONE // self.least_rtt_ps
        rate = int(self.rate_bps)
        if rtt_ps < self.low_ps:
            rate += self.step_bps
        elif rtt_ps > self.high_ps:
            rate -= rate * self.beta * (rtt_ps - self.high_ps) // (1000 * rtt_ps)
        else:
            rate += self.between(rate, rtt_ps, gradient)
        if gradient > 0:
            self.calm = 0
        self.rate_bps = min(max(rate, self.step_bps), self.line_bps)

    def between(self, rate: int, rtt_ps: int, gradient: int) -> int:
        """What a completion between the thresholds adds to the rate; the gradient is in parts of `ONE`."""
        if gradient > 0:
            return -(rate * self.beta * min(gradient, ONE) // (1000 * ONE))
        self.calm += 1
        return self.step_bps * (5 if self.calm >= 5 else 1)

    def save(self) -> list[Plain]:
        return save_fields(self, FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, FIELDS, state)


class PatchedTimely(Timely):
    """TIMELY with a fixed point."""

    def between(self, rate: int, rtt_ps: int, gradient: int) -> int:
        weight = min(max(2 * gradient + ONE // 2, 0), ONE)
        beyond_ps = rtt_ps - self.low_ps
        less = rate * self.beta * weight // ONE * beyond_ps // (1000 * self.low_ps)
        return self.step_bps * (ONE - weight) // ONE - less
