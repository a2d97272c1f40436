"""Centralised traffic engineering: the controller gives large flows paths of their own.

Every `interval` the controller asks all switches over the management
network. Leaves answer with the bytes that each of their ports sent to each prefix since the last time, every
switch with its ports that are down. When the last answer is in, demands are placed one after the other, the
largest first (among equals by leaf, port and prefix), by constrained shortest path first:

- a candidate is a member of the leaf's equal-cost group over the links that were reported up; beyond it a
  demand is taken to spread evenly over equal paths;
- its cost is the utilisation of the fullest link on the way, with what was placed before and this demand;
- the least cost wins. A demand stays where it is while that costs at most `hysteresis` more: what moves,
  reorders. Among equals the lowest port wins;
- constraint: no link above `fill` of its rate. A demand without such a path gets no entry, and its bytes
  count as spread by E-ECMP over all members, as does what finds its leaf's table full.

Then the changes are sent, removals first. Entries whose demand fell below the threshold stay as long as the
table has room: the next burst finds them.

The controller knows the fabric's plan (graph, rates, addresses) and what it was told by messages, nothing
else: its picture is one round old, and a round takes two management delays. A round that is not answered
when the next is due is waited for.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.3 (CSPF every
30 s, byte counters and job placement as the traffic matrix).

Not modelled: job placement as a source of demands, time to compute, weighted groups, entries above the
leaves.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from actors.fabric.routes import equal_cost_groups
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.kernel.block import Outbox
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.port.link import MANAGEMENT_PORT, MessagePort
from actors.wire.message import TE_COLLECT, TE_COLLECTED, TE_DEMAND, TE_INSTALL, TE_PORT_DOWN

ONE: Final = 1 << 20
"""A whole demand, or a full link."""
BIT_PS: Final = 8 * 10**12
_FIELDS: Final = ("_awaited", "_down", "rounds", "installs", "unplaced")

PortOf = tuple[int, int]
"""A switch and one of its ports: one direction of a link."""


class EngineeringKnobs(NamedTuple):
    """What a scenario says of traffic engineering."""

    interval_ps: int
    """From one collection of counters to the next."""
    entries: int
    """Size of a leaf's table of entries."""
    threshold_bps: int
    """Least rate that is worth an entry."""
    fill: Fraction
    """Share of a link's rate up to which entries are placed on it."""
    hysteresis: Fraction
    """How much fuller, as a share of a link, the way of an entry may be than the best before it moves."""


class Demand(NamedTuple):
    """What one port of a leaf sends to one prefix. Order is that of placement."""

    negative_bps: int
    leaf: int
    ingress: int
    prefix: int
    entry: int
    """The port of the entry that it has, or -1."""


class Change(NamedTuple):
    """An entry to set, or with port -1 to remove."""

    leaf: int
    ingress: int
    prefix: int
    port: int


class PathFinder:
    """Ways over a fabric with some links down."""

    def __init__(self, topology: Topology, down: frozenset[int]) -> None:
        self._topology = topology
        self._down = down
        self._ways: dict[tuple[int, int], dict[PortOf, int]] = {}

    def members(self, switch: int, prefix: int) -> tuple[int, ...]:
        """The equal-cost group."""
        return equal_cost_groups(self._topology, switch, self._down)[prefix]

    def rate_bps(self, place: PortOf) -> int:
        """The rate of a direction."""
        return self._topology.ports(place[0])[place[1]].rate_bps

    def by_port(self, switch: int, port: int, prefix: int) -> dict[PortOf, int]:
        """Shares, of `ONE`, that each direction carries of what leaves by this port towards a prefix."""
        peer = self._topology.ports(switch)[port].peer
        return {(switch, port): ONE, **self.spread(peer, prefix)}

    def spread(self, switch: int, prefix: int) -> dict[PortOf, int]:
        """The same of what every switch from here on spreads evenly."""
        found = self._ways.get((switch, prefix))
        if found is None:
            found = {}
            members = self.members(switch, prefix)
            for port in members:
                for place, share in self.by_port(switch, port, prefix).items():
                    found[place] = found.get(place, 0) + share // len(members)
            self._ways[switch, prefix] = found
        return found


class Placement:
    """One round's answer: the changes, and how many demands found no path or no room in a table."""

    def __init__(self, finder: PathFinder, knobs: EngineeringKnobs) -> None:
        self._finder = finder
        self._size = knobs.entries
        self._threshold_bps = knobs.threshold_bps
        self._most = int(knobs.fill * ONE)
        self._stay = int(knobs.hysteresis * ONE)
        self._loads: dict[PortOf, int] = {}
        self._tables: dict[int, int] = {}
        self.changes: list[Change] = []
        self.unplaced = 0

    def place(self, demands: list[Demand]) -> None:
        """Place the demands, the largest first."""
        for demand in sorted(demands):
            leaf, ingress, prefix = demand.leaf, demand.ingress, demand.prefix
            used = self._tables.get(leaf, 0)
            port = -1
            if -demand.negative_bps < max(self._threshold_bps, 1):
                port = demand.entry if used < self._size else -1
            elif len(self._finder.members(leaf, prefix)) > 1:
                port = self._path(demand) if used < self._size else -1
                if port < 0:
                    self.unplaced += 1
                self._load(demand, port)
            if port >= 0:
                self._tables[leaf] = used + 1
            if port != demand.entry:
                self.changes.append(Change(leaf, ingress, prefix, port))
        self.changes.sort(key=lambda change: change.port >= 0)

    def _path(self, demand: Demand) -> int:
        """The member with the least utilised way that has room; -1 if none has."""
        best, best_cost, stay_cost = -1, 0, -1
        for port in self._finder.members(demand.leaf, demand.prefix):
            cost = self._cost(self._finder.by_port(demand.leaf, port, demand.prefix), -demand.negative_bps)
            if best < 0 or cost < best_cost:
                best, best_cost = port, cost
            if port == demand.entry:
                stay_cost = cost
        if 0 <= stay_cost <= min(best_cost + self._stay, self._most):
            return demand.entry
        return best if best_cost <= self._most else -1

    def _cost(self, way: dict[PortOf, int], rate_bps: int) -> int:
        """Utilisation, of `ONE`, of the fullest link of a way with a demand more."""
        return max(
            (self._loads.get(place, 0) + rate_bps * share // ONE) * ONE // self._finder.rate_bps(place)
            for place, share in way.items()
        )

    def _load(self, demand: Demand, port: int) -> None:
        """Count a demand on its way, or spread over all members."""
        finder = self._finder
        spread = finder.spread(demand.leaf, demand.prefix)
        way = finder.by_port(demand.leaf, port, demand.prefix) if port >= 0 else spread
        for place, share in way.items():
            self._loads[place] = self._loads.get(place, 0) + -demand.negative_bps * share // ONE


class TrafficEngineer:
    """The controller's side. `switches` are its ends of the management network, by the switch's number."""

    def __init__(self, topology: Topology, switches: dict[int, MessagePort], knobs: EngineeringKnobs) -> None:
        self._topology = topology
        self._switches = switches
        self._knobs = knobs
        self.interval_ps = knobs.interval_ps
        self._awaited = 0
        self._demands: list[Demand] = []
        self._down: list[int] = []
        self.rounds = 0
        self.installs = 0
        self.unplaced = 0

    def tick(self, now: int) -> bool:
        """Ask every switch, unless answers are still due; whether it did."""
        if self._awaited:
            return False
        self.rounds += 1
        self._awaited = len(self._switches)
        self._demands = []
        self._down = []
        for port in self._switches.values():
            port.send(Message(TE_COLLECT, self.rounds, 0, 0, 0, 0, 0), now)
        return True

    def admits(self, message: Message, switch: int) -> bool:
        """Whether a message that another worker sent names a switch, port and prefix that there are."""
        if switch not in self._switches or message.op not in (TE_DEMAND, TE_PORT_DOWN, TE_COLLECTED):
            return False
        ports = len(self._topology.ports(switch))
        if message.op != TE_COLLECTED and not 0 <= message.b < ports:
            return False
        if message.op != TE_DEMAND:
            return True
        known = 0 <= message.c < self._topology.prefixes and -1 <= message.f < ports
        return known and message.d >= 0 and message.e >= 0

    def on_message(self, message: Message, switch: int, now: int) -> None:
        """Take an answer; with the last one, place and install."""
        assert message.a == self.rounds, (message.a, self.rounds)
        if message.op == TE_DEMAND:
            rate_bps = message.d * BIT_PS // message.e if message.e > 0 else 0
            self._demands.append(Demand(-rate_bps, switch, message.b, message.c, message.f))
        elif message.op == TE_PORT_DOWN:
            self._down.append(self._topology.ports(switch)[message.b].link)
        else:
            assert message.op == TE_COLLECTED, message.op
            self._awaited -= 1
            if self._awaited == 0:
                self._install(now)

    def _install(self, now: int) -> None:
        finder = PathFinder(self._topology, frozenset(self._down))
        placement = Placement(finder, self._knobs)
        placement.place(self._demands)
        self.unplaced += placement.unplaced
        for change in placement.changes:
            self.installs += change.port >= 0
            entry = Message(TE_INSTALL, change.ingress, change.prefix, change.port, 0, 0, 0)
            self._switches[change.leaf].send(entry, now)
        self._demands = []

    def save(self) -> list[Plain]:
        """What is known of the round that is under way, and the counters."""
        demands: list[Plain] = [list(demand) for demand in self._demands]
        links: list[Plain] = [port.free_ps for port in self._switches.values()]
        return [save_fields(self, _FIELDS), links, demands]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        fields, links, demands = state
        load_fields(self, _FIELDS, fields)
        for port, free_ps in zip(self._switches.values(), as_list(links), strict=True):
            port.free_ps = as_int(free_ps)
        self._demands = [Demand(*(as_int(value) for value in as_list(row))) for row in as_list(demands)]


def build_engineer(
    topology: Topology,
    knobs: EngineeringKnobs,
    management_delay_ps: int,
    queue: EventQueue,
    outbox_for: Callable[[int], Outbox | None],
) -> TrafficEngineer:
    """The engineer of a fabric; `outbox_for` says where a switch lives."""
    switches = {
        switch: MessagePort(
            queue, MANAGEMENT_RATE_BPS, management_delay_ps, switch, MANAGEMENT_PORT, 0, outbox_for(switch)
        )
        for switch in topology.switches
    }
    return TrafficEngineer(topology, switches, knobs)
