"""Passages: what a device has done ahead of time about a train, and how much of it it has to take back.

A device handles all packets of a train (`actors.wire.train`) as the first one arrives, or leaves. Whatever
touches the ports of a passage before its last packet has left takes it apart first (`Device.uncouple`): what
packets that had not arrived by then changed is undone, and they arrive as a train of their own; what had
arrived and not left waits as it would have. What happens at one instant is distinguished by the order of
events.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from actors.kernel.event import ARRIVAL, PORT_BITS, SERVE
from actors.wire.train import ALONE, Train

_ARRIVAL: Final[i64] = ARRIVAL << PORT_BITS
_SERVE: Final[i64] = SERVE << PORT_BITS


class Passage:
    """A train at one device: `count` packets that arrive `gap_ps` apart from `first_ps` on, and each leave
    `wait_ps` later; or, where it begins, leave from `first_ps` on."""

    def __init__(self, train: Train, first_ps: i64, source: i64, exit_port: i64) -> None:
        self.train: Train = train
        """The one that came; where it only passes, it goes on as it is."""
        self.first_ps: i64 = first_ps
        self.gap_ps: i64 = train.gap_ps
        self.count: i64 = train.count
        self.wait_ps: i64 = 0
        self.source: i64 = source
        """The port at which it arrives; -1 where it begins."""
        self.exit: i64 = exit_port
        """The port through which it leaves; -1 where it ends."""
        self.key: i64 = train.key
        """Key of its arrival here."""
        self.sent_ps: i64 = train.sent_ps
        """When the first left the device before."""
        self.mix: i64 = 0
        """Mix of the port at which it arrives, before it did."""
        self.last_ps: i64 = first_ps + (self.count - 1) * self.gap_ps
        """When the last packet leaves."""

    def happened(self, first_ps: i64, place: i64, now: i64, now_place: i64) -> i64:
        """How many of the packets that do something, from a time on, have done so before an event now.
        `place` and `now_place` are the kinds and ports of what they do and of that event."""
        if now < first_ps:
            return 0
        passed: i64 = now - first_ps
        whole: i64 = passed // self.gap_ps
        if whole >= self.count:
            return self.count
        if whole * self.gap_ps == passed and place >= now_place:
            return whole
        return whole + 1

    def rest(self, train: Train, arrived: i64) -> Train:
        """The packets of the train that came that have not arrived yet; `train` goes on, or is that one."""
        rest = train.rest(arrived)
        rest.time_ps = self.first_ps + arrived * self.gap_ps
        rest.sent_ps = self.sent_ps + arrived * self.gap_ps
        rest.key = self.key
        rest.whence = i32(ALONE)
        return rest

    def arrived(self, now: i64, now_place: i64) -> i64:
        """How many packets have arrived before an event now; the first one has in any case."""
        many: i64 = self.happened(self.first_ps, _ARRIVAL | self.source, now, now_place)
        return many if many > 0 else 1

    def left(self, now: i64, now_place: i64) -> i64:
        """How many have left before an event now, of those that wait for their turn or begin here."""
        return self.happened(self.first_ps + self.wait_ps, _SERVE | self.exit, now, now_place)
