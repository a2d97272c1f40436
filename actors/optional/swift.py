"""Swift: the window follows the round-trip time.

A round trip shorter than `target` opens the window by `additive` packets; a longer one closes it in
proportion to the excess, by `beta` (target excess / round trip), at most by `most_decrease`. Either
happens once a round trip, since one packet at a time is timed. Below one packet, packets are spaced by
round trip / window.

Source: Kumar et al., Swift: Delay is Simple and Effective for Congestion Control in the Datacenter
(SIGCOMM'20), algorithm 1. It raises the window in shares with every ACK, which is `additive` a round
trip.

Not modelled: scaling of the target with hops and flows, the separate window for the end host's delay.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import MTU, Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

WINDOW_BITS: Final[i64] = 16
ONE_PACKET: Final[i64] = 65536
THOUSANDTHS: Final[i64] = 1000

_FIELDS: Final = ("rate_bps", "window_packets", "window")


class Swift(CongestionControl):
    """One queue pair's window, in packets with 16 binary places."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "target",
            "ps",
            "25us",
            "1ps",
            doc="The target round trip. A choice; deep-buffer spines alone take 22 us.",
        ),
        Knob(
            "additive_thousandths",
            "number",
            1000,
            1,
            1_000_000,
            "Packets by which a short round trip opens the window, in thousandths.",
        ),
        Knob(
            "beta_thousandths",
            "number",
            800,
            1,
            1000,
            "How much of the excess closes the window, in thousandths.",
        ),
        Knob(
            "most_decrease_thousandths",
            "number",
            500,
            1,
            999,
            "The most by which a round trip closes the window, in thousandths.",
        ),
        Knob("window", "bytes", "1MB", MTU, None, "The largest window, and the first: 20 us at 400G."),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        largest_packets: i64 = knobs.window_bytes // mtu_bytes
        additive_thousandths: i64 = knobs.additive_thousandths
        self.wants_rtt = True
        self.ecn_capable = False
        self.target_ps: i64 = knobs.target_ps
        self.additive: i64 = additive_thousandths * ONE_PACKET // THOUSANDTHS
        self.beta: i64 = knobs.beta_thousandths
        self.most_decrease: i64 = knobs.most_decrease_thousandths
        self.largest: i64 = largest_packets * ONE_PACKET
        self.window: i64 = self.largest
        self.window_packets = largest_packets

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        if rtt_ps <= 0:
            return
        if rtt_ps < self.target_ps:
            self._set(self.window + self.additive, rtt_ps)
        else:
            fall: i64 = self.beta * (rtt_ps - self.target_ps) // rtt_ps
            if fall > self.most_decrease:
                fall = self.most_decrease
            self._set(self.window * (THOUSANDTHS - fall) // THOUSANDTHS, rtt_ps)

    def on_loss(self, now: i64) -> None:
        self._set(self.window * (THOUSANDTHS - self.most_decrease) // THOUSANDTHS, self.target_ps)

    def _set(self, window: i64, rtt_ps: i64) -> None:
        """Open or close the window, between 1/1024 packet and the largest."""
        least: i64 = ONE_PACKET >> 10
        if window > self.largest:
            window = self.largest
        if window < least:
            window = least
        self.window = window
        if window >= ONE_PACKET:
            self.window_packets = window >> WINDOW_BITS
            self.rate_bps = 0
        else:
            self.window_packets = 1
            share_ps: i64 = (rtt_ps << WINDOW_BITS) // window
            self.rate_bps = self.mtu_bytes * 8 * 1_000_000_000_000 // share_ps + 1

    def save(self) -> list[Plain]:
        return save_fields(self, _FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, _FIELDS, state)
