"""Flowlet and adaptive routing.

A *flowlet* is a run of packets of one flow without a gap of `gap` between two. A flow that pauses longer than
paths differ in delay may take another path: what was sent before is already there. A table of the switch,
indexed by the flow's hash, holds for each entry the path and the time of the last packet; flows that share an
entry share its fate. A new flowlet takes a random member (`flowlet`) or the one with the least waiting
(`adaptive` per flowlet).

Load is what waits at the egress port, over all queues, plus the rest of the frame on the wire, as time. A
flowlet takes the least loaded member, the one after the last choice among equals.

`adaptive` per packet chooses for every packet, and compares load in steps of `grade` bytes; among equals a
random member wins. Flows that send at line rate meet each port free at the same phase again and again, so
with exact loads each would keep to a port of its own, and they would collide further on like hashed flows.

A switch knows which of its own links are down, so neither policy chooses such a member, and a flowlet whose
link goes down takes another path with its next packet; groups follow when routing has converged.

Sources: Sinha, Kandula and Katabi (2004) and Let It Flow (NSDI 2017) for flowlets; Meta (SIGCOMM 2024) tried
gaps of 128 to 512 us. Switches compare load in grades: thresholds of queue bytes in FBOSS's
`FlowletSwitchingConfig` and in Huawei's `adaptive-routing buffer`.

Not modelled: load of links beyond the next hop.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_int, as_list, load_integers, save_integers
from actors.kernel.vectors import vec
from actors.switch.routing.policy import Group, RoutingPolicy, SwitchView
from actors.wire.frame import Frame


class LeastLoaded(RoutingPolicy):
    """`adaptive` per packet: the member that would send the frame first."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        super().__init__(switch, knobs)
        self._turn: i64 = 0
        self._grade_bytes: i64 = 0
        """Loads are compared in steps of so much, and equals drawn; 0 for exact loads, and equals in turn."""

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        return self.least(group, now)

    def least(self, group: Group, now: i64) -> i64:
        """The member with the least waiting, in time."""
        count: i64 = group.count
        if self._grade_bytes > 0:
            self._turn = self.switch.stream.below(count)
        best: i64 = -1
        best_ps: i64 = 0
        best_at: i64 = 0
        step: i64 = 0
        while step < count:
            at: i64 = (self._turn + 1 + step) % count
            number: i64 = group.ports[at]
            port = self.switch.ports[number]
            if not port.up:
                step += 1
                continue
            waiting: i64 = port.backlog_bytes()
            load_ps: i64 = port.serialisation(waiting) if waiting > 0 else 0
            if port.free_ps > now:
                load_ps += port.free_ps - now
            if self._grade_bytes > 0:
                load_ps //= port.serialisation(self._grade_bytes)
            if best < 0 or load_ps < best_ps:
                best = number
                best_ps = load_ps
                best_at = at
            step += 1
        if best < 0:
            return group.ports[0]
        self._turn = best_at
        return best

    def save(self) -> list[Plain]:
        return [super().save(), self._turn]

    def load(self, state: list[Plain]) -> None:
        super().load(as_list(state[0]))
        self._turn = as_int(state[1])


class FlowletTable(LeastLoaded):
    """A path for each flowlet: a random member, or the least loaded one."""

    def __init__(
        self, switch: SwitchView, knobs: Knobs, gap_ps: int, entries: int, least_loaded: bool
    ) -> None:
        super().__init__(switch, knobs)
        self._gap_ps: i64 = gap_ps
        self._entries: i64 = entries
        self._least_loaded: bool = least_loaded
        self._paths: vec[i64] = vec[i64]([-1] * entries)
        self._seen_ps: vec[i64] = vec[i64]([0] * entries)

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        entry: i64 = self.switch.hash.of(frame) % self._entries
        path: i64 = self._paths[entry]
        stays: bool = path >= 0 and group.holds(path) and self.switch.ports[path].up
        if not stays or now - self._seen_ps[entry] >= self._gap_ps:
            if self._least_loaded:
                path = self.least(group, now)
            else:
                path = self.live(group, self.switch.stream.below(group.count))
            self._paths[entry] = path
        self._seen_ps[entry] = now
        return path

    def save(self) -> list[Plain]:
        return [super().save(), save_integers(self._paths), save_integers(self._seen_ps)]

    def load(self, state: list[Plain]) -> None:
        super().load(as_list(state[0]))
        self._paths = load_integers(state[1])
        self._seen_ps = load_integers(state[2])


class Flowlet(FlowletTable):
    """A random path for each flowlet."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "gap",
            "ps",
            "128us",
            "1ps",
            doc="Silence after which a flow takes a new path. Meta tried 128 to 512 us.",
        ),
        Knob(
            "entries",
            "number",
            4096,
            1,
            2**20,
            "Size of the flowlet table; flows that share an entry share their path. A choice.",
        ),
    )

    def __init__(self, switch: SwitchView, knobs: Knobs) -> None:
        super().__init__(switch, knobs, knobs.gap_ps, knobs.entries, least_loaded=False)


class Adaptive(FlowletTable):
    """The member with the least waiting, for each packet or each flowlet."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "granularity",
            ("packet", "flowlet"),
            "flowlet",
            doc="Whether every packet chooses, or every flowlet.",
        ),
        Knob("gap", "ps", "128us", "1ps", doc="Silence after which a flow takes a new path; for flowlets."),
        Knob("entries", "number", 4096, 1, 2**20, "Size of the flowlet table."),
        Knob(
            "grade",
            "bytes",
            "64KiB",
            "1B",
            doc="For packets: members whose load differs by less are equals, among which one is drawn. A "
            "choice; FBOSS's profiles hold queues below 1 to 100 KB for equal.",
        ),
        Knob(
            "allow_reordering",
            "flag",
            default=False,
            doc="Run it although the transport takes every overtaking for a loss, to see the collapse.",
        ),
    )

    def __init__(self, switch: SwitchView, knobs: Knobs) -> None:
        packets: bool = knobs.granularity == "packet"
        super().__init__(switch, knobs, knobs.gap_ps, 1 if packets else knobs.entries, least_loaded=True)
        self._packets: bool = packets
        if packets:
            self._grade_bytes = knobs.grade_bytes

    @staticmethod
    def by_packet(knobs: Knobs) -> bool:
        found: bool = knobs.granularity == "packet"
        return found

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        if self._packets:
            return self.least(group, now)
        return super().choose(frame, group, ingress, now)
