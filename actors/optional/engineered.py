"""Centralised traffic engineering: the part of the switch.

`traffic_engineering`: a leaf counts bytes by (ingress port, destination prefix), and hands the counts to the
controller when asked over the management network. The controller sends back exact-match entries on the same
two: what matches an entry leaves by the entry's port, everything else by E-ECMP. The table is small; an
install into a full one, or by a port that is no way to the prefix, is refused and counted.

An entry goes away with its link: at once where the link is the switch's own, and when routing has converged
where it is one further on. It comes back only when the controller installs it again.

Only leaves (tier 1) count and hold entries; other switches tell the controller which of their ports are down,
and forward by E-ECMP. What the controller makes of it is in `actors.control.traffic_engineering`.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.3: entries on
(source port, destination prefix) on the RTSW override the routing table, E-ECMP is the fallback.

Not modelled: the time that the chip takes to program an entry, entries on switches above the leaves.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64

from actors.kernel.counters import TE_ENTRIES, TE_ENTRIES_REFUSED, TE_ENTRIES_WITHDRAWN, TE_MATCHED_FRAMES
from actors.kernel.device import Plain, Series
from actors.kernel.event import Message
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.port.link import MessagePort
from actors.switch.routing.policy import PREFIX_SHIFT, Group, RoutingPolicy, SwitchView
from actors.wire.frame import Frame
from actors.wire.message import TE_COLLECT, TE_COLLECTED, TE_DEMAND, TE_INSTALL, TE_PORT_DOWN

LEAF_TIER = 1
_FIELDS: Final = ("exits", "bytes", "collected_ps", "used", "matched", "withdrawn", "refused")


class EngineeredRouting(RoutingPolicy):
    """Entries by (ingress port, prefix), and the hash for what has none."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "interval",
            "ps",
            "500us",
            "1ps",
            doc="From one collection of counters to the next. Meta: 30 s, for jobs that run for weeks.",
        ),
        Knob("entries", "number", 1024, 0, 65536, "Size of a leaf's table of entries. A choice."),
        Knob("threshold", "bps", "10G", doc="Least rate that is worth an entry. A choice."),
        Knob("fill", "fraction", 1, None, 1, "Share of a link's rate up to which entries are placed on it."),
        Knob(
            "hysteresis",
            "fraction",
            "1/20",
            doc="How much fuller, as a share of a link, the way of an entry may be than the best before it "
            "moves.",
        ),
    )
    controlled: ClassVar[bool] = True

    def __init__(self, switch: SwitchView, knobs: Knobs) -> None:
        super().__init__(switch, knobs)
        management = switch.management
        assert management is not None, switch.number
        self.management: MessagePort = management
        self.size: i64 = knobs.entries
        self.threshold_bps: int = knobs.threshold_bps
        self.leaf: bool = switch.tier == LEAF_TIER
        self.prefixes: i64 = 0
        self.groups: vec[Group] = vec[Group]()
        self.exits: vec[i64] = vec[i64]()
        """By ingress port and prefix: the entry's port, or -1."""
        self.bytes: vec[i64] = vec[i64]()
        """The same: bytes since the last collection."""
        self.collected_ps: i64 = 0
        self.used: i64 = 0
        self.matched: i64 = 0
        self.withdrawn: i64 = 0
        self.refused: i64 = 0

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        if self.leaf:
            prefix: i64 = i64(frame.dst) >> PREFIX_SHIFT
            row: i64 = ingress * self.prefixes + prefix
            size: int = frame.wire_bytes
            self.bytes[row] += size
            taken: i64 = self.exits[row]
            if taken >= 0 and group is self.groups[prefix]:
                self.matched += 1
                return taken
        return group.ports[self.switch.hash.member(frame, group.count)]

    def groups_changed(self, groups: list[Group]) -> None:
        self.groups = vec[Group](groups)
        if self.prefixes == 0:
            self.prefixes = len(groups)
            rows: int = len(groups) * len(self.switch.ports) if self.leaf else 0
            without_entry: list[int] = [-1] * rows
            without_bytes: list[int] = [0] * rows
            self.exits = vec[i64](without_entry)
            self.bytes = vec[i64](without_bytes)
        if self.used > 0:
            row: i64 = 0
            while row < len(self.exits):
                taken: i64 = self.exits[row]
                if taken >= 0 and not self._leads(taken, row % self.prefixes):
                    self._withdraw(row)
                row += 1

    def link_changed(self, port: i64, up: bool) -> None:
        if up or self.used == 0:
            return
        row: i64 = 0
        while row < len(self.exits):
            if self.exits[row] == port:
                self._withdraw(row)
            row += 1

    def admits(self, message: Message) -> bool:
        if message.op != TE_INSTALL:
            return message.op == TE_COLLECT
        ports: i64 = len(self.switch.ports)
        if not self.leaf or message.a < 0 or message.a >= ports:
            return False
        return 0 <= message.b < self.prefixes and -1 <= message.c < ports

    def on_message(self, message: Message, now: i64) -> None:
        if message.op == TE_COLLECT:
            self._report(message.a, now)
        else:
            assert message.op == TE_INSTALL, message.op
            self._install(message.a * self.prefixes + message.b, message.b, message.c)

    def _leads(self, port: i64, prefix: i64) -> bool:
        """Whether an entry may send to a prefix by a port."""
        group = self.groups[prefix]
        return not group.by_address and group.holds(port) and self.switch.ports[port].up

    def _withdraw(self, row: i64) -> None:
        self.exits[row] = -1
        self.used -= 1
        self.withdrawn += 1

    def _install(self, row: i64, prefix: i64, port: i64) -> None:
        before: i64 = self.exits[row]
        if port < 0:
            if before >= 0:
                self.exits[row] = -1
                self.used -= 1
        elif not self._leads(port, prefix) or (before < 0 and self.used >= self.size):
            self.refused += 1
        else:
            if before < 0:
                self.used += 1
            self.exits[row] = port

    def _report(self, turn: i64, now: i64) -> None:
        """Answer a collection: demands worth an entry or with one, ports that are down, the end."""
        elapsed: int = now - self.collected_ps
        least: int = elapsed * self.threshold_bps // (8 * 10**12)
        self.collected_ps = now
        row: i64 = 0
        while row < len(self.bytes):
            count: int = self.bytes[row]
            taken: i64 = self.exits[row]
            if taken >= 0 or (count > 0 and count >= least):
                ingress: i64 = row // self.prefixes
                prefix: i64 = row % self.prefixes
                self.management.send(Message(TE_DEMAND, turn, ingress, prefix, count, elapsed, taken), now)
            self.bytes[row] = 0
            row += 1
        number: i64 = 0
        while number < len(self.switch.ports):
            if not self.switch.ports[number].up:
                self.management.send(Message(TE_PORT_DOWN, turn, number, 0, 0, 0, 0), now)
            number += 1
        self.management.send(Message(TE_COLLECTED, turn, 0, 0, 0, 0, 0), now)

    def series(self) -> list[Series]:
        if not self.leaf:
            return []
        return [
            Series(TE_ENTRIES),
            Series(TE_MATCHED_FRAMES),
            Series(TE_ENTRIES_WITHDRAWN),
            Series(TE_ENTRIES_REFUSED),
        ]

    def counters(self) -> list[int]:
        return [self.used, self.matched, self.withdrawn, self.refused] if self.leaf else []

    def save(self) -> list[Plain]:
        return [super().save(), self.management.free_ps, save_fields(self, _FIELDS)]

    def load(self, state: list[Plain]) -> None:
        base, free_ps, fields = state
        super().load(as_list(base))
        self.management.free_ps = as_int(free_ps)
        load_fields(self, _FIELDS, fields)
