"""DCQCN: the sender's rate follows what switches mark.

The reaction point. alpha estimates how much is marked, 1 at first. On a CNP, with RC the rate and RT the
target:

    RT = RC;  RC = RC (1 - alpha / 2);  alpha = (1 - g) alpha + g

and both counters of increases and their clocks begin anew. Every `alpha_timer` without a CNP alpha = (1 -
g) alpha. A period of `increase_timer`, or `byte_counter` bytes sent, is a step: RC = (RT + RC) / 2, and
before that, once either counter has passed `fast_recovery`, RT += R_AI, once both have, RT += R_HAI.
Flows begin at line rate. The constants are the paper's at 40G, but for `hyper` and `least`.

Rates are integers, and a mean is rounded up, so that a rate reaches its target; alpha has 20 binary
places. No clock costs an event: what is due is worked out when the next packet leaves or the next CNP
comes, as nothing else looks at the rate.

Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM'15), section 3 and figure 7.

Not modelled: mlx5's clamps of the target rate (`rpg_clamp_tgt_rate`) beyond what is described, DCQCN-rev.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

ALPHA_BITS: Final[i64] = 20
ALPHA_ONE: Final[i64] = 1048576

_FIELDS: Final = (
    "rate_bps",
    "target_bps",
    "alpha",
    "limited",
    "alpha_since_ps",
    "step_since_ps",
    "timer_steps",
    "byte_steps",
    "bytes_sent",
    "held",
)


class Dcqcn(CongestionControl):
    """The reaction point of one queue pair."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("gain_bits", "number", 8, 1, 16, "g is 2^-gain_bits: 8 is 1/256."),
        Knob("alpha_timer", "ps", "55us", "1ps", None, "Without a CNP for so long, alpha falls."),
        Knob("increase_timer", "ps", "55us", "1ps", None, "Distance of the steps up by time."),
        Knob("byte_counter", "bytes", "10MB", "1B", None, "Distance of the steps up by bytes sent."),
        Knob("fast_recovery", "number", 5, 0, 1000, "Steps that only halve the distance to the target rate."),
        Knob(
            "additive",
            "bps",
            "40M",
            doc="R_AI: what a step adds to the target rate after that. The paper's value, at 40G; at 400G it "
            "recovers very slowly.",
        ),
        Knob(
            "hyper",
            "bps",
            "400M",
            doc="R_HAI: what a step adds once both counters have passed `fast_recovery`. A choice: ten times "
            "R_AI.",
        ),
        Knob("least", "bps", "10M", doc="The least rate. A choice."),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.gain_bits: i64 = knobs.gain_bits
        self.alpha_timer_ps: i64 = knobs.alpha_timer_ps
        self.increase_timer_ps: i64 = knobs.increase_timer_ps
        self.byte_counter_bytes: i64 = knobs.byte_counter_bytes
        self.fast_recovery: i64 = knobs.fast_recovery
        self.additive_bps: i64 = knobs.additive_bps
        self.hyper_bps: i64 = knobs.hyper_bps
        self.least_bps: i64 = knobs.least_bps
        self.rate_bps = line_bps
        self.target_bps: i64 = line_bps
        self.alpha: i64 = ALPHA_ONE
        self.limited: bool = False
        """Whether the rate is below the line's."""
        self.alpha_since_ps: i64 = 0
        self.step_since_ps: i64 = 0
        self.timer_steps: i64 = 0
        self.byte_steps: i64 = 0
        self.bytes_sent: i64 = 0
        self.held: bool = False
        """Whether steps are to leave the rate alone; for controls that build on this one."""

    def on_cnp(self, now: i64) -> None:
        self.advance(now)
        self.target_bps = self.rate_bps
        self.cut(self.rate_bps - ((self.rate_bps * self.alpha) >> (ALPHA_BITS + 1)))
        self.alpha += (ALPHA_ONE >> self.gain_bits) - (self.alpha >> self.gain_bits)
        self.alpha_since_ps = now
        self.step_since_ps = now
        self.timer_steps = 0
        self.byte_steps = 0
        self.bytes_sent = 0

    def cut(self, rate_bps: i64) -> None:
        """Go down to a rate, or to the least."""
        self.rate_bps = rate_bps
        if rate_bps < self.least_bps:
            self.rate_bps = self.least_bps
        self.limited = True

    def on_send(self, wire_bytes: i64, now: i64) -> None:
        if not self.limited:
            return
        self.advance(now)
        self.bytes_sent += wire_bytes
        while self.bytes_sent >= self.byte_counter_bytes:
            self.bytes_sent -= self.byte_counter_bytes
            self.byte_steps += 1
            self.step()

    def advance(self, now: i64) -> None:
        """Take the steps of both clocks that are due by now."""
        period: i64 = self.alpha_timer_ps
        due: i64 = (now - self.alpha_since_ps) // period
        self.alpha_since_ps += due * period
        while due > 0 and self.alpha >> self.gain_bits > 0:
            self.alpha -= self.alpha >> self.gain_bits
            due -= 1
        period = self.increase_timer_ps
        due = (now - self.step_since_ps) // period
        self.step_since_ps += due * period
        while due > 0 and self.limited:
            self.timer_steps += 1
            self.step()
            due -= 1

    def step(self) -> None:
        """One step up; the counter that led to it was raised."""
        if self.held:
            return
        timer: bool = self.timer_steps > self.fast_recovery
        sent: bool = self.byte_steps > self.fast_recovery
        if timer and sent:
            self.target_bps += self.hyper_bps
        elif timer or sent:
            self.target_bps += self.additive_bps
        if self.target_bps > self.line_bps:
            self.target_bps = self.line_bps
        self.rate_bps = (self.target_bps + self.rate_bps + 1) >> 1
        self.limited = self.rate_bps < self.line_bps

    def marked_share(self) -> i64:
        return self.alpha

    def save(self) -> list[Plain]:
        return save_fields(self, _FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, _FIELDS, state)
