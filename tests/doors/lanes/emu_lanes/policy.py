"""The routing policy `own_lane`: a source keeps to one member of a group."""

from actors.switch.routing.policy import Group, RoutingPolicy
from actors.wire.frame import Frame


class OwnLane(RoutingPolicy):
    """The member that the source's number says."""

    def choose(self, frame: Frame, group: Group, ingress: int, now: int) -> int:
        """Its place in the group by the source."""
        return self.live(group, int(frame.src) % int(group.count))
