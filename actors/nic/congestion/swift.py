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

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

WINDOW_BITS: Final[i64] = 16
ONE_PACKET: Final[i64] = 65536
THOUSANDTHS: Final[i64] = 1000

_FIELDS: Final = ("rate_bps", "window_packets", "window")


class Swift(CongestionControl):
    """One queue pair's window, in packets with 16 binary places."""

    def __init__(
        self,
        line_bps: int,
        mtu_bytes: int,
        target_ps: int,
        additive_thousandths: int,
        beta_thousandths: int,
        most_decrease_thousandths: int,
        largest_packets: int,
    ) -> None:
        super().__init__(line_bps, mtu_bytes)
        self.wants_rtt = True
        self.ecn_capable = False
        self.target_ps: i64 = target_ps
        self.additive: i64 = additive_thousandths * ONE_PACKET // THOUSANDTHS
        self.beta: i64 = beta_thousandths
        self.most_decrease: i64 = most_decrease_thousandths
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
