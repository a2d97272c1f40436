"""Two choices: of two uplinks that are drawn, a flowlet takes the one with less before it.

A flow keeps its uplink until it pauses for longer than `gap`; then two are drawn, the emptier is taken.
With n flows on n uplinks the fullest has about ln ln n of them, where one drawn at random would have ln n.

Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (1996); flowlets as in Let It Flow
(NSDI 2017).
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.switch.routing.policy import Group, RoutingPolicy, SwitchView
from actors.wire.frame import Frame


class TwoChoices(RoutingPolicy):
    """The flows of one switch and their uplinks."""

    knobs = (Knob("gap", "ps", "50us", doc="A flow that pauses longer may take another uplink."),)

    def __init__(self, switch: SwitchView, knobs: Knobs) -> None:
        super().__init__(switch, knobs)
        self.gap_ps: int = knobs.gap_ps
        self.flows: dict[tuple[int, int], tuple[int, int]] = {}
        """Queue pair and destination -> member of the group, and when it sent last."""

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        flow = (int(frame.qpn), int(frame.dst))
        member, last = self.flows.get(flow, (-1, 0))
        if member < 0 or member >= group.count or now - last > self.gap_ps:
            one, other = self.switch.stream.below(group.count), self.switch.stream.below(group.count)
            ports = self.switch.ports
            behind = [ports[self.live(group, at)].backlog_bytes() for at in (one, other)]
            member = one if behind[0] <= behind[1] else other
        self.flows[flow] = (member, now)
        return int(self.live(group, member))

    def save(self) -> list[Plain]:
        return [[*flow, *way] for flow, way in self.flows.items()]

    def load(self, state: list[Plain]) -> None:
        self.flows = {(row[0], row[1]): (row[2], row[3]) for row in state}  # type: ignore[index, misc]
