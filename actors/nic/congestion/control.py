"""The hooks of congestion control: how fast a queue pair may send.

Each queue pair has a control of its own, or none: then it sends whenever the port takes its packets, and
only pauses slow it down. A control says two things, which the port obeys: `rate_bps`, at which packets
are spaced (0: as fast as the port goes), and `window_packets`, the most that may be in flight (0: no
bound). The NIC tells it what happens, through the hooks below, and times one packet in flight at a time
where `wants_rtt`.

With `wants_echo` the responder answers every packet that a switch marked, and every one that overtook others
and is kept, beside those that ask for it. An answer goes back by the UDP source port of the packet that it
answers and repeats its PSN and its mark, as in Ultra Ethernet, so that the control knows the mark, the round
trip and the path of each; no CNPs are sent. With `picks_entropy` the control chooses the UDP source port, and
so the path, of each packet.

A control of one's own is a subclass, in one file, built from the line rate in bit/s, the MTU in bytes and
the values of the knobs that the class lists in `knobs` (`actors.kernel.knobs`). `docs/congestion_control.md`
has a worked example.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs


@mypyc_attr(allow_interpreted_subclasses=True)
class CongestionControl:
    """Base of all controls: sends at line rate, whatever happens."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: object = None) -> None:
        self.line_bps: i64 = line_bps
        self.mtu_bytes: i64 = mtu_bytes
        self.rate_bps: i64 = 0
        self.window_packets: i64 = 0
        self.wants_rtt: bool = False
        self.ecn_capable: bool = True
        """Whether switches may mark its packets."""
        self.wants_telemetry: bool = False
        """Whether its packets collect INT from switches, for `on_telemetry`."""
        self.wants_echo: bool = False
        """Whether marks, paths and round trips of single packets come back with acknowledgements."""
        self.picks_entropy: bool = False
        """Whether `entropy` is asked for each packet."""
        self.telemetry_bytes: i64 = 0
        """What INT adds to its packets, and to their acknowledgements, on the wire."""
        self.timer_ps: i64 = 0
        """When `on_timer` is to be called; 0 for not at all. Set it in any hook."""

    @staticmethod
    def by_packet(knobs: Knobs) -> bool:
        """Whether packets of a queue pair go by different ways. With `picks_entropy` they do."""
        del knobs
        return False

    @staticmethod
    def telemetry_on_wire(knobs: Knobs) -> int | None:
        """What INT adds to packets and acknowledgements, in bytes; None where packets collect none. With
        `wants_telemetry` it is a number."""
        del knobs
        return None

    def on_send(self, wire_bytes: i64, now: i64) -> None:
        """A packet, new or sent again, leaves now."""

    def entropy(self, psn: i64) -> i64:
        """The UDP source port of the packet with this PSN, which leaves now: 16 bits."""
        return 0

    def on_ack(self, packets: i64, rtt_ps: i64, now: i64, marked: bool) -> None:
        """`packets` more are acknowledged. `rtt_ps` is how long the timed packet took, or -1.

        With `wants_echo` it is called for every answer: `marked` and `rtt_ps` are those of the packet that is
        answered (-1 if that was sent twice), and `packets` counts those that are answered for the first time.
        """

    def on_path(self, entropy: i64, marked: bool, now: i64) -> None:
        """A packet that left by this UDP source port was answered (with `wants_echo`), before `on_ack`."""

    def on_cnp(self, now: i64) -> None:
        """The receiver saw packets of ours that a switch had marked."""

    def on_telemetry(self, hops: bytes, acknowledged: i64, following: i64, now: i64) -> None:
        """An acknowledgement brought INT (`actors.wire.telemetry`), before `on_ack` is told of it: everything
        before the PSN `acknowledged` is; `following` is the next that is sent."""

    def on_loss(self, now: i64) -> None:
        """The responder asked for packets again, or a timer ran out."""

    def on_timer(self, now: i64) -> None:
        """`timer_ps` has come; it is 0 again."""

    def marked_share(self) -> i64:
        """How much of what it sends it takes for marked, in 2^-20: DCQCN's and DCTCP's alpha, which a trace
        shows (`run.trace`); -1 where it keeps no such share."""
        return -1

    def save(self) -> list[Plain]:
        """The control's state."""
        return [self.rate_bps, self.window_packets, self.timer_ps]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built control returned."""
        rate, window, timer = [value for value in state[:3] if isinstance(value, int)]
        self.rate_bps, self.window_packets, self.timer_ps = rate, window, timer
