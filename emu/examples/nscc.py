"""NSCC, Ultra Ethernet's network-signalled congestion control: a window by marks and by queueing delay.

Each answer has a mark or none, and the delay of its packet beyond the unloaded round trip:

                     delay below target                    delay above
    not marked       proportional increase, by the room    fair increase
    marked           nothing: the queue is going already    decrease, by the excess of the mean delay, at
                                                           most by half, once a round trip

Increases are collected and put into the window every 8 packets. A window of packets without any delay opens
it faster. Quick adapt: where the delay is beyond four targets, or something was lost, and the last round
trip brought less than an eighth of the largest window, the window is what that brought. The constants scale
with the bandwidth-delay product over that of 100G and 12 us.

Source: Ultra Ethernet Specification 1.0, NSCC; the constants as in its public simulator (htsim).

Not modelled: packet trimming (so `target` is a whole unloaded round trip, not three quarters), the window
penalty that a receiver signals, credits.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

REFERENCE_RTT_PS = 12_000_000
REFERENCE_BYTES = 150_000
FIELDS = (
    *("rate_bps", "window_packets", "window", "base_ps", "mean_ps", "increase", "collected", "added_ps"),
    *("cut_ps", "calm", "achieved", "adapt_ps", "lost", "ignored"),
)


class Nscc(CongestionControl):
    """One queue pair's window, in bytes of payload."""

    knobs = (
        Knob(
            "base_rtt",
            "ps",
            "12us",
            "1ps",
            doc="The longest unloaded round trip. A shorter one that is measured takes its place.",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_echo = True
        product = line_bps * knobs.base_rtt_ps // (8 * 10**12)
        self.step = max(product * mtu_bytes // REFERENCE_BYTES, 1)
        """A packet, scaled."""
        self.target_ps = self.base_ps = knobs.base_rtt_ps
        self.largest = max(product * 3 // 2, mtu_bytes)
        self.window = self.largest
        self.mean_ps = self.increase = self.collected = self.added_ps = self.cut_ps = 0
        self.calm = self.achieved = self.adapt_ps = self.lost = self.ignored = 0
        self.set_window(self.largest)

    def set_window(self, size_bytes: int) -> None:
        self.window = min(max(size_bytes, self.mtu_bytes), self.largest)
        self.window_packets = self.window // self.mtu_bytes

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        size: int = packets * self.mtu_bytes
        self.achieved += size
        delay: int = self.mean_ps
        if rtt_ps > 0:
            self.base_ps = min(self.base_ps, rtt_ps)
            delay = rtt_ps - self.base_ps
            self.mean_ps += (delay - self.mean_ps) // 80
        if self.adapted(delay, now):
            return
        self.ignored = max(self.ignored - size, 0)
        if marked:
            self.calm = 0
            excess = self.mean_ps - self.target_ps
            if (
                delay > self.target_ps
                and excess > 0
                and not self.ignored
                and now - self.cut_ps > self.base_ps
            ):
                # By 0.8 of the excess over the mean delay, by half at most.
                self.set_window(
                    self.window - self.window * min(excess * 8, self.mean_ps * 5) // (self.mean_ps * 10)
                )
                self.cut_ps = now
        elif delay < self.target_ps:
            room = (self.target_ps - delay) * self.target_ps // REFERENCE_RTT_PS
            self.increase += 4 * self.step * size * room // self.target_ps + 5 * self.step * size
            self.calm = self.calm + size if delay < 1_000_000 else 0
            if self.calm > self.window:
                self.set_window(self.window + size * self.step // (4 * self.mtu_bytes))
        else:
            self.calm = 0
            self.increase += 5 * self.step * size
        # Increases are gathered over eight packets: each alone would round to nothing.
        self.collected += size
        if self.collected >= 8 * self.mtu_bytes:
            more = self.increase // self.window
            if now - self.added_ps >= REFERENCE_RTT_PS:
                more += self.step * 3 // 20
                self.added_ps = now
            self.set_window(self.window + more)
            self.increase = self.collected = 0

    def adapted(self, delay: int, now: int) -> bool:
        """Quick adapt, once in an unloaded round trip and a target."""
        if now <= self.adapt_ps:
            return False
        due = self.adapt_ps > 0 and (self.lost > 0 or delay > 4 * self.target_ps)
        due = due and self.achieved < self.largest // 8
        if due:
            self.ignored = self.window
            self.set_window(self.achieved)
            self.increase = self.collected = self.lost = 0
        self.achieved = 0
        self.adapt_ps = now + self.base_ps + self.target_ps
        return due

    def on_loss(self, now: i64) -> None:
        self.lost = 1

    def save(self) -> list[Plain]:
        return save_fields(self, FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, FIELDS, state)
