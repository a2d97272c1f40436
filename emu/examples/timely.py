"""TIMELY: the rate follows the gradient of the round-trip time.

With each round trip, d the mean change from one to the next and g = d / `least_rtt`:

    below `low`:   R += step            beyond `high`:   R (1 - beta (1 - high / rtt))
    g <= 0:        R += N step          else:            R (1 - beta g)

where N is 5 after five completions with g <= 0 in a row (hyperactive increase), else 1.

Source: Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter (SIGCOMM 2015), algorithm 1.

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
        elif gradient <= 0:
            self.calm += 1
            rate += self.step_bps * (5 if self.calm >= 5 else 1)
        else:
            rate -= rate * self.beta * min(gradient, ONE) // (1000 * ONE)
        if gradient > 0:
            self.calm = 0
        self.rate_bps = min(max(rate, self.step_bps), self.line_bps)

    def save(self) -> list[Plain]:
        return save_fields(self, FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, FIELDS, state)
