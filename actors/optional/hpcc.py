"""HPCC: the window follows what the links on the way say of themselves.

Switches write into each data packet how long their queue is and how much they have sent; the acknowledgement
brings it back. From two of them the sender knows, for each link, how much is in flight there relative to
bandwidth x base RTT, and takes the fullest link:

    u = min(queue now, queue before) / (rate x T) + (bytes sent in between) / (time in between x rate)
    U = (1 - tau / T) U + (tau / T) u,   tau = that time, at most T

    U >= eta, or `max_stage` additive steps were taken:  W = Wc / (U / eta) + W_AI, and no step counts
    otherwise:                                           W = Wc + W_AI, and a step more

W is worked out with every acknowledgement, from a reference window Wc that takes W over once a round trip:
with the first acknowledgement of a packet that was sent after the last time. Packets are spaced at W / T,
and at most W is in flight. It begins with W = rate x T. W_AI is (1 - eta) W / `flows`, or as configured.

Integers: U and eta have 16 binary places, windows are bytes on the wire. Where the path changed, the first
acknowledgement of the new one only begins a measurement.

Source: Li et al., HPCC: High Precision Congestion Control (SIGCOMM'19), algorithm 1. Its text has maxStage 5;
its experiments are said to have run with 0.

Not modelled: the table that replaces divisions in the NIC.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import AUTO, Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl
from actors.wire.frame import WRITE_MIDDLE, wire_size
from actors.wire.telemetry import PLACE, QUEUE, RATE, RECORD_BYTES, SENT, TIME, field_of

ONE: Final[i64] = 65536
"""1.0 of U and eta."""
_LARGEST_BYTES: Final[i64] = 4194304
"""A count of bytes above this is halved with its time, so that products stay below 63 bits."""
_LONGEST_PS: Final[i64] = 1099511627776

_FIELDS: Final = (
    "rate_bps",
    "window_packets",
    "window_bytes",
    "reference_bytes",
    "utilisation",
    "stage",
    "update_psn",
    "last",
)


class Hpcc(CongestionControl):
    """One queue pair's window, in bytes on the wire."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "base_rtt",
            "ps",
            AUTO,
            "1us",
            "100us",
            "T: a little more than the longest unloaded round trip, 1 us to 100 us. The paper has 13 us at "
            "100G. `auto`: that of the fabric, worked out from its links and latencies and rounded up to a "
            "whole microsecond.",
        ),
        Knob("eta", "fraction", "19/20", None, 1, "The target utilisation (0.95)."),
        Knob(
            "max_stage",
            "number",
            5,
            0,
            1000,
            "Additive steps, of a round trip each, before the next one that follows the measurement.",
        ),
        Knob(
            "flows",
            "number",
            100,
            1,
            1_000_000,
            "How many flows are to fit into what `eta` leaves: W_AI is (1 - eta) x rate x T / flows.",
        ),
        Knob("additive", "bytes", AUTO, "1B", None, "W_AI. `auto`: by `flows`."),
        Knob(
            "int",
            "bytes",
            "42B",
            None,
            "512B",
            "What INT adds to a packet and its acknowledgement on the wire: 2 B and 8 B for each of five "
            "hops. 0: as if it took no room.",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        telemetry_bytes: int = knobs.int_bytes
        base_rtt_ps: int = knobs.base_rtt_ps
        self.wants_telemetry = True
        self.telemetry_bytes = telemetry_bytes
        self.ecn_capable = False
        self.packet_bytes: i64 = wire_size(WRITE_MIDDLE, mtu_bytes) + telemetry_bytes
        self.base_rtt_ps: i64 = base_rtt_ps
        self.eta: i64 = int(knobs.eta * 65536)
        self.max_stage: i64 = knobs.max_stage
        self.additive_bytes: i64 = _additive_bytes(line_bps, knobs)
        self.largest_bytes: i64 = line_bps * base_rtt_ps // (8 * 10**12)
        self.window_bytes: i64 = self.largest_bytes
        self.reference_bytes: i64 = self.largest_bytes
        self.utilisation: i64 = ONE
        self.stage: i64 = 0
        self.update_psn: i64 = -1
        """An acknowledgement beyond this PSN takes W over into Wc; -1 before the first."""
        self.last: bytes = b""
        """What the acknowledgement before said."""
        self._set(self.largest_bytes)

    @staticmethod
    def telemetry_on_wire(knobs: Knobs) -> int | None:
        found: int = knobs.int_bytes
        return found

    def on_telemetry(self, hops: bytes, acknowledged: i64, following: i64, now: i64) -> None:
        last = self.last
        self.last = hops
        if self.update_psn < 0 or not self._same_path(last, hops):
            if self.update_psn < 0:
                self.update_psn = following
            return
        self._measure(last, hops)
        update: bool = acknowledged > self.update_psn
        window: i64 = self.reference_bytes + self.additive_bytes
        if self.utilisation >= self.eta or self.stage >= self.max_stage:
            window = self.reference_bytes * self.eta // self.utilisation + self.additive_bytes
            if update:
                self.stage = 0
        elif update:
            self.stage += 1
        self._set(window)
        if update:
            self.reference_bytes = self.window_bytes
            self.update_psn = following

    def _same_path(self, last: bytes, hops: bytes) -> bool:
        """Whether two acknowledgements tell of the same links, the second later than the first."""
        if len(last) != len(hops) or len(hops) == 0:
            return False
        count: i64 = len(hops) // RECORD_BYTES
        hop: i64 = 0
        while hop < count:
            if field_of(last, hop, PLACE) != field_of(hops, hop, PLACE):
                return False
            if field_of(last, hop, TIME) >= field_of(hops, hop, TIME):
                return False
            hop += 1
        return True

    def _measure(self, last: bytes, hops: bytes) -> None:
        """Bring U up to date with the fullest link."""
        most: i64 = -1
        tau: i64 = 0
        count: i64 = len(hops) // RECORD_BYTES
        hop: i64 = 0
        while hop < count:
            since: i64 = field_of(hops, hop, TIME) - field_of(last, hop, TIME)
            sent: i64 = field_of(hops, hop, SENT) - field_of(last, hop, SENT)
            queue: i64 = field_of(hops, hop, QUEUE)
            before: i64 = field_of(last, hop, QUEUE)
            if before < queue:
                queue = before
            rate_mbps: i64 = field_of(hops, hop, RATE) // 1_000_000
            used: i64 = _share(queue, self.base_rtt_ps, rate_mbps) + _share(sent, since, rate_mbps)
            if used > most:
                most = used
                tau = since
            hop += 1
        if tau > self.base_rtt_ps:
            tau = self.base_rtt_ps
        self.utilisation += (most * tau - self.utilisation * tau) // self.base_rtt_ps
        if self.utilisation < 1:
            self.utilisation = 1

    def _set(self, window: i64) -> None:
        """A new window, between a byte and the first one: its packets, and its rate."""
        if window > self.largest_bytes:
            window = self.largest_bytes
        if window < 1:
            window = 1
        self.window_bytes = window
        self.window_packets = (window + self.packet_bytes - 1) // self.packet_bytes
        self.rate_bps = window * 8_000_000_000 // self.base_rtt_ps * 1000 + 1000

    def save(self) -> list[Plain]:
        return save_fields(self, _FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, _FIELDS, state)


def _additive_bytes(line_bps: int, knobs: Knobs) -> int:
    """W_AI: as configured, or what `eta` leaves of rate x T, for so many flows."""
    configured: int | None = knobs.additive_bytes
    if configured is not None:
        return configured
    return max(int((1 - knobs.eta) * line_bps * knobs.base_rtt_ps // (8 * 10**12 * knobs.flows)), 1)


def _share(size_bytes: i64, time_ps: i64, rate_mbps: i64) -> i64:
    """Bytes over what a link carries in a time, with 16 binary places."""
    while size_bytes > _LARGEST_BYTES or time_ps > _LONGEST_PS:
        size_bytes >>= 1
        time_ps >>= 1
    capacity: i64 = time_ps * rate_mbps
    if capacity <= 0:
        return ONE
    return size_bytes * 8_000_000 * ONE // capacity
