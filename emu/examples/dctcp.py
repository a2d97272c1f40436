"""DCTCP: the window follows the share of packets that switches mark.

Once a window, with F the share of its packets that came back marked, alpha = (1 - g) alpha + g F. The first
mark cuts W by alpha / 2, and those of the next window do not; W grows by a packet a window. Where switches
mark everything beyond K (`ecn`: kmin = kmax = K, pmax 1), N flows that share a link of C packets a second
hold a queue between K + N - A and K + N, with A = sqrt(N (C RTT + K) / 2).

Source: Alizadeh et al., Data Center TCP (SIGCOMM 2010), sections 3.1 and 3.3.

Not modelled: slow start; a queue pair begins with the largest window, as NICs do.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

ONE = 1 << 16
"""1.0 of alpha, and a packet of the window."""
FIELDS = ("rate_bps", "window_packets", "window", "alpha", "round", "answered", "marked", "spared")


class Dctcp(CongestionControl):
    """One queue pair's window."""

    knobs = (
        Knob("gain_bits", "number", 4, 1, 16, "g is 2^-gain_bits: 4 is 1/16, the paper's."),
        Knob("window", "bytes", "1MB", "mtu", doc="The largest window, and the first."),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_echo = True
        self.gain_bits = knobs.gain_bits
        self.largest = knobs.window_bytes // mtu_bytes * ONE
        self.window = self.largest
        self.alpha = ONE
        self.round = self.largest // ONE
        """Packets of the present window."""
        self.answered = 0
        self.marked = 0
        self.spared = 0
        """Packets to be answered before the next cut."""
        self.window_packets = self.round

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        self.answered += packets
        self.marked += marked
        self.spared = max(self.spared - packets, 0)
        self.window = min(self.window + packets * ONE * ONE // self.window, self.largest)
        if marked and not self.spared:
            self.spared = self.window // ONE
            self.window = max(self.window - self.window * self.alpha // (2 * ONE), ONE)
        if self.answered >= self.round:
            share = self.marked * ONE // self.answered
            self.alpha += (share >> self.gain_bits) - (self.alpha >> self.gain_bits)
            self.round = self.window // ONE
            self.answered = self.marked = 0
        self.window_packets = self.window // ONE

    def on_loss(self, now: i64) -> None:
        self.window = max(self.window // 2, ONE)
        self.window_packets = self.window // ONE

    def save(self) -> list[Plain]:
        return save_fields(self, FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, FIELDS, state)
