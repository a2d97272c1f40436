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

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.vectors import vec

ANSWERED: Final[i64] = -1
"""In place of the time at which a packet left: it was answered already."""
LEFT_AGAIN: Final[i64] = -2
"""In place of that time: it left more than once, or never."""


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
        # What the NIC keeps of the queue pair, and saves.
        self.pending_ps: i64 = 0
        """For when a timer is pending; 0 if none is."""
        self.timed_psn: i64 = -1
        self.timed_ps: i64 = 0
        """Which packet in flight is timed (-1 for none), and since when."""
        self.left_ps: vec[i64] = vec[i64]()
        """With `wants_echo`: when the packet with the PSN of a slot left, or LEFT_AGAIN, or ANSWERED."""
        self.cnp_from_ps: i64 = 0
        """As receiver: when the next CNP may go out."""
        self.cnp_port: i64 = -1
        """As receiver: through which port the CNP leaves that waits for its delay; below 0 for none."""

    def time_each(self, packets: int) -> None:
        """Remember when the last packets left; `packets` is a power of two."""
        never: int = LEFT_AGAIN
        self.left_ps = vec[i64]([never] * packets)

    def leaves(self, psn: i64, left_ps: i64) -> None:
        """A packet leaves, for the first time at `left_ps`, or (LEFT_AGAIN) once more."""
        slot: i64 = psn & (len(self.left_ps) - 1)
        if left_ps >= 0 or self.left_ps[slot] != ANSWERED:
            self.left_ps[slot] = left_ps

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
