"""Cubic: TCP's window as a cubic function of the time since the last loss.

With W_max the window before the loss, beta = 0.7, C = 0.4 segments/s^3, and t the time since congestion
avoidance began:

    W(t) = C (t - K)^3 + W_max,    K = cbrt((W_max - W_0) / C),    W_0 the window at t = 0

An acknowledgement of n segments adds n (target - W) / W, target = W(t + RTT), at least W and at most 1.5 W.
Where W(t) is below what Reno would have with the same beta, W_est += n alpha / W with alpha = 3 (1 - beta) /
(1 + beta) = 9/17, and 1 once it is back at the window before the loss, the window is W_est: the Reno-friendly
region, in which a fabric's short round trips always are.

A loss: W_max = W, or W (1 + beta) / 2 if W did not get back to W_max (fast convergence); W = ssthresh =
max(beta W, 2). After a timeout W_max is where congestion avoidance begins, and K is 0.

Integers: windows have 16 binary places, t is microseconds, at most 100 s.

Source: RFC 9438, sections 4.1 to 4.8 (RFC 8312 has the response function).

Not modelled: HyStart++, the spurious-loss undo.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_list, load_fields, save_fields
from actors.optional.tcp_window import LARGEST_WINDOW, ONE_SEGMENT, WINDOW_BITS, TcpWindow

PS_PER_US: Final[i64] = 1_000_000
LONGEST_US: Final[i64] = 100_000_000
_CUBE_UNIT: Final[i64] = 38146973
"""us^3 x 10^-6 for 1/65536 segment, at C = 0.4: 10^12 / (65536 C)."""

_FIELDS: Final = ("most", "before", "estimate", "epoch_ps", "k_us")


@mypyc_attr(allow_interpreted_subclasses=True)
class Cubic(TcpWindow):
    """One connection's window by RFC 9438."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "fast_convergence",
            "flag",
            default=True,
            doc="Whether a window that did not get back to W_max makes room for others (RFC 9438, 4.7).",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        fast: bool = knobs.fast_convergence
        self.fast_convergence: bool = fast
        self.most: i64 = 0
        """W_max; 0 after a timeout, and before any loss."""
        self.before: i64 = LARGEST_WINDOW
        """The window before the last loss."""
        self.estimate: i64 = 0
        """W_est."""
        self.epoch_ps: i64 = -1
        """When congestion avoidance began; -1 if it did not since the last loss."""
        self.k_us: i64 = 0

    def avoid(self, acknowledged: i64, rtt_ps: i64, now: i64) -> None:
        window: i64 = self.window
        if self.epoch_ps < 0:
            self.epoch_ps = now
            self.estimate = window
            if self.most > window:
                self.k_us = rise_us(self.most - window)
            else:
                self.most = window
                self.k_us = 0
        since_us: i64 = (now - self.epoch_ps) // PS_PER_US
        grown: i64 = acknowledged * ONE_SEGMENT * ONE_SEGMENT // window
        self.estimate += grown if self.estimate >= self.before else grown * 9 // 17
        if self.at(since_us) < self.estimate:
            self.set_window(max(window, self.estimate))
            return
        target: i64 = self.at(since_us + rtt_ps // PS_PER_US)
        if target > window + (window >> 1):
            target = window + (window >> 1)
        if target > window:
            self.set_window(window + (target - window) * acknowledged * ONE_SEGMENT // window)

    def at(self, since_us: i64) -> i64:
        """W(t)."""
        away: i64 = since_us - self.k_us
        if away > LONGEST_US:
            away = LONGEST_US
        if away < -LONGEST_US:
            away = -LONGEST_US
        size: i64 = away if away >= 0 else -away
        change: i64 = (size * size // PS_PER_US) * size // _CUBE_UNIT
        return self.most + change if away >= 0 else self.most - change

    def cut(self, in_flight: i64, now: i64) -> None:
        window: i64 = min(self.window, in_flight << WINDOW_BITS)
        self.most = window * 17 // 20 if self.fast_convergence and window < self.most else window
        self.before = window
        self.epoch_ps = -1
        self.lower(window * 7 // 10)

    def collapse(self, in_flight: i64, first: bool, now: i64) -> None:
        super().collapse(in_flight, first, now)
        self.most = 0
        self.epoch_ps = -1

    def restart(self) -> None:
        super().restart()
        self.epoch_ps = -1

    def save(self) -> list[Plain]:
        return [super().save(), save_fields(self, _FIELDS)]

    def load(self, state: list[Plain]) -> None:
        super().load(as_list(state[0]))
        load_fields(self, _FIELDS, state[1])


def rise_us(below: i64) -> i64:
    """K for a window that lies so far below W_max: the cube root, in microseconds, rounded down."""
    wide: int = below
    cube: int = wide * 5 * 10**18 // (2 * 65536)
    low, high = 0, int(LONGEST_US)
    while low < high:
        middle = (low + high + 1) >> 1
        if middle * middle * middle <= cube:
            low = middle
        else:
            high = middle - 1
    return low
