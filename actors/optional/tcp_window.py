"""TCP's congestion window: the hooks of its controls, slow start, and Reno.

Below `threshold` a window grows by what is acknowledged, at most two segments for an acknowledgement (slow
start); above it by what congestion avoidance says (`avoid`). A loss closes it (`cut`), a retransmission
timeout closes it to one segment (`collapse`), and after an idle timeout it begins with the first window again
(`restart`). The loss recovery scheme `actors.optional.tcp` calls these hooks: it knows whether a loss is a
new one, and what is in flight.

Reno, with f the segments in flight:  a loss  W = ssthresh = max(f / 2, 2);  a timeout  W = 1;  congestion
avoidance  W += acknowledged / W, or 1 / W for each acknowledgement without `byte_counting`.

Windows are segments with 16 binary places.

Sources: RFC 5681 (slow start, congestion avoidance, restart of an idle connection), RFC 3465 (appropriate
byte counting, L = 2), RFC 6928 (first window), RFC 3168 (a mark closes the window as a loss does, once a
window).

Not modelled: pacing, HyStart, segments in bytes (a short segment counts as a whole one).
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

WINDOW_BITS: Final[i64] = 16
ONE_SEGMENT: Final[i64] = 65536
LARGEST_WINDOW: Final[i64] = ONE_SEGMENT << 20
MOST_ACKNOWLEDGED: Final[i64] = 1024
"""More segments than that count as so many, so that products stay below 63 bits."""

_FIELDS: Final = ("window", "window_packets", "threshold", "marked")


@mypyc_attr(allow_interpreted_subclasses=True)
class TcpWindow(CongestionControl):
    """One connection's window; a control of TCP derives from it and says `avoid` and `cut`."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("initial_window", "number", 10, 1, 65536, "Segments in the first window. 10: RFC 6928."),
        Knob(
            "ecn",
            "flag",
            default=False,
            doc="Whether switches may mark segments (RFC 3168): the mark comes back with an acknowledgement "
            "and closes the window, once a window.",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_rtt = True
        ecn: bool = knobs.ecn
        self.ecn_capable = ecn
        self.initial_packets: i64 = knobs.initial_window
        self.window: i64 = 0
        self.threshold: i64 = LARGEST_WINDOW
        """ssthresh."""
        self.marked: bool = False
        """Whether a mark came back of which the scheme does not know yet."""
        self.set_window(self.initial_packets << WINDOW_BITS)

    def set_window(self, window: i64) -> None:
        """Open or close the window, to at least one segment."""
        if window > LARGEST_WINDOW:
            window = LARGEST_WINDOW
        if window < ONE_SEGMENT:
            window = ONE_SEGMENT
        self.window = window
        self.window_packets = window >> WINDOW_BITS

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        if marked:
            self.marked = True

    def grow(self, acknowledged: i64, rtt_ps: i64, now: i64) -> None:
        """`acknowledged` more segments are, and the window was full. `rtt_ps` is the smoothed one."""
        if acknowledged > MOST_ACKNOWLEDGED:
            acknowledged = MOST_ACKNOWLEDGED
        if self.window < self.threshold:
            step: i64 = min(acknowledged, 2)
            self.set_window(min(self.window + (step << WINDOW_BITS), self.threshold))
        else:
            self.avoid(acknowledged, rtt_ps, now)

    def avoid(self, acknowledged: i64, rtt_ps: i64, now: i64) -> None:
        """Congestion avoidance: so many segments more are acknowledged."""
        raise NotImplementedError

    def cut(self, in_flight: i64, now: i64) -> None:
        """A segment was lost, or marked, and none was since the window before."""
        raise NotImplementedError

    def collapse(self, in_flight: i64, first: bool, now: i64) -> None:
        """The timer ran out; `first` unless it did before and nothing was acknowledged since."""
        if first:
            self.cut(in_flight, now)
        self.set_window(ONE_SEGMENT)

    def restart(self) -> None:
        """Nothing was sent for a timeout."""
        self.set_window(min(self.window, self.initial_packets << WINDOW_BITS))

    def lower(self, window: i64) -> None:
        """Close the window and the threshold, to at least two segments."""
        self.threshold = max(window, 2 * ONE_SEGMENT)
        self.set_window(self.threshold)

    def save(self) -> list[Plain]:
        return save_fields(self, _FIELDS)

    def load(self, state: list[Plain]) -> None:
        load_fields(self, _FIELDS, state)


@mypyc_attr(allow_interpreted_subclasses=True)
class Reno(TcpWindow):
    """Additive increase of a segment a round trip, multiplicative decrease by half."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "byte_counting",
            "flag",
            default=True,
            doc="Whether congestion avoidance counts segments that are acknowledged, as Linux does, or "
            "acknowledgements, which grows half as fast where each covers two.",
        ),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        counting: bool = knobs.byte_counting
        self.byte_counting: bool = counting

    def avoid(self, acknowledged: i64, rtt_ps: i64, now: i64) -> None:
        counted: i64 = acknowledged if self.byte_counting else 1
        self.set_window(self.window + counted * ONE_SEGMENT * ONE_SEGMENT // self.window)

    def cut(self, in_flight: i64, now: i64) -> None:
        self.lower(min(self.window, in_flight << WINDOW_BITS) >> 1)
