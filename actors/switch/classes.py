"""QoS maps: the queue and the priority group of a packet.

A switch with maps trusts the packet's DSCP and nothing that the last switch made of it: DSCP to traffic
class, traffic class to egress queue and to ingress priority group. A pause names a priority of PFC, and stops
the queue that its map says. The maps are composed into one look-up by DSCP; a switch without maps has none of
this and takes the frame's priority for all.

Source: the QoS maps of SONiC (DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, TC_TO_PRIORITY_GROUP_MAP,
MAP_PFC_PRIORITY_TO_QUEUE).

Not modelled: maps per port, PFC_PRIORITY_TO_PRIORITY_GROUP_MAP (a group pauses the priority of its number),
rewriting of DSCPs.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.vectors import vec


class Classes:
    """The maps of one switch."""

    def __init__(
        self,
        dscp_to_tc: list[int],
        tc_to_queue: list[int],
        tc_to_priority_group: list[int],
        pfc_priority_to_queue: list[int],
    ) -> None:
        assert len(dscp_to_tc) == 64, len(dscp_to_tc)
        self.queue_of: vec[i64] = vec[i64]([tc_to_queue[tc] for tc in dscp_to_tc])
        """By DSCP."""
        self.group_of: vec[i64] = vec[i64]([tc_to_priority_group[tc] for tc in dscp_to_tc])
        """By DSCP."""
        self.built_queue_of: list[int] = list(self.queue_of)
        self.built_group_of: list[int] = list(self.group_of)
        self._stops: vec[i64] = vec[i64](pfc_priority_to_queue)
        self.moved: i64 = 0
        """Frames whose queue or group is not the class selector of their DSCP."""

    def move(self, dscp: int, queue: int, group: int) -> None:
        """Give packets of a DSCP this queue and group from now on."""
        self.queue_of[dscp] = queue
        self.group_of[dscp] = group

    def queues(self, priorities: i64) -> i64:
        """The queues (a mask) that these priorities (a mask) of PFC stop."""
        found: i64 = 0
        priority: i64 = 0
        while priority < 8:
            if (priorities >> priority) & 1:
                found |= 1 << self._stops[priority]
            priority += 1
        return found


def class_selectors() -> Classes:
    """The map of a switch that has none of its own: a DSCP's upper three bits are queue and group."""
    identity = list(range(8))
    return Classes([dscp >> 3 for dscp in range(64)], identity, identity, identity)
