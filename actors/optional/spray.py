"""Packet spraying.

`spray`: each packet takes the next member of its destination prefix's group (`round_robin`) or a random one
(`random`); a member whose link is down is passed over at once. Links are loaded evenly and packets overtake
each other, so the transport must place what arrives out of order, or treats every overtaking as a loss.

Round robin begins at a random member in every switch, so that switches do not march in step.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_list, load_integers, save_integers
from actors.kernel.vectors import vec
from actors.switch.routing.policy import PREFIX_SHIFT, Group, RoutingPolicy, SwitchView
from actors.wire.frame import Frame


class Spray(RoutingPolicy):
    """The next member for every packet to a prefix, or a random one."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "order",
            ("round_robin", "random"),
            "round_robin",
            doc="In turn for each destination prefix, or at random.",
        ),
        Knob(
            "allow_reordering",
            "flag",
            default=False,
            doc="Run it although the transport takes every overtaking for a loss, to see the collapse.",
        ),
    )

    def __init__(self, switch: SwitchView, knobs: Knobs) -> None:
        super().__init__(switch, knobs)
        self._random: bool = knobs.order == "random"
        self._next: vec[i64] = vec[i64]()

    @staticmethod
    def by_packet(knobs: Knobs) -> bool:
        del knobs
        return True

    def groups_changed(self, groups: list[Group]) -> None:
        if len(self._next) == 0 and not self._random:
            self._next = vec[i64]([self.switch.stream.below(1 << 20) for _ in groups])

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        if self._random:
            return self.live(group, self.switch.stream.below(group.count))
        prefix: i64 = i64(frame.dst) >> PREFIX_SHIFT
        turn: i64 = self._next[prefix]
        self._next[prefix] = (turn + 1) & 0x3FFFFFFF
        return self.live(group, turn % group.count)

    def save(self) -> list[Plain]:
        return [super().save(), save_integers(self._next)]

    def load(self, state: list[Plain]) -> None:
        super().load(as_list(state[0]))
        self._next = load_integers(state[1])
