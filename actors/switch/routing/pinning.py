"""Path pinning: the destination decides the path.

`path_pinning`: a destination's *slice* is its index among the NICs of its prefix - the downlink of its leaf -
and the slice chooses the member, whatever the flow. A rack that is wholly in one job then loads every uplink
alike; one whose hosts are half idle leaves half of the uplinks idle. Where the pinned member is gone (its
link is down) the frame goes by hash over those that are left, and meets what is pinned there.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.2.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.switch.routing.policy import INDEX_MASK, PREFIX_SHIFT, Group, RoutingPolicy, SwitchView
from actors.wire.frame import Frame


class PathPinning(RoutingPolicy):
    """By destination slice over the group as it is with every link up."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        super().__init__(switch, knobs)
        self._whole: list[Group] = []

    def groups_changed(self, groups: list[Group]) -> None:
        if not self._whole:
            self._whole = groups

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        dst: i64 = frame.dst
        whole = self._whole[dst >> PREFIX_SHIFT]
        if whole.count > 0 and not whole.by_address:
            pinned: i64 = whole.ports[(dst & INDEX_MASK) % whole.count]
            if group is whole or group.holds(pinned):
                return pinned
        return group.ports[self.switch.hash.member(frame, group.count)]
