"""The longest unloaded round trip of a fabric.

A full packet out and its acknowledgement back, over the longest way between two NICs: both are serialised on
every link and fly over it, both pass the pipelines of all switches and of the NIC at their end, and the
credit of modular ones. What hosts do, and acknowledgements that wait for others (`ack_every`), is not in it.

HPCC has it as its T where `base_rtt` is `auto`: rounded up to a whole microsecond, since T is "a little
greater than" it, and within what HPCC can count.

Longest way. Packets take ways of fewest switches (`actors.fabric.routes`); of those between any two NICs the
dearest counts, by costs that the caller gives to links and switches. One search from the leaves of a prefix
gives it for all others, level by level: a switch costs what the dearest of its neighbours on the level before
does, and the link to it.

The generated fabrics look alike from everywhere, so of many prefixes `SEARCHES`, evenly spread, are enough;
up to so many the answer is exact for any fabric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from actors.fabric.model import FABRIC, Attachment, Link, Role, Topology
from actors.fabric.routes import routes
from actors.kernel.units import serialisation_ps
from actors.wire.frame import ACKNOWLEDGE, WRITE_ONLY, wire_size
from emu.base.errors import Problem, ScenarioError
from emu.base.units import format_time
from emu.devices.buffer_sizes import is_deep
from emu.scenario.schema import Scenario
from emu.scenario.sections.nic import CongestionSection

US_PS: Final = 10**6
LONGEST_PS: Final = 100 * US_PS
"""What HPCC can count."""

_KNOWN: Final[WeakKeyDictionary[Topology, tuple[Scenario, int]]] = WeakKeyDictionary()
"""The fabric for which it was worked out last, and the result; every NIC asks."""


class _Costs:
    """What a full packet and its acknowledgement take together on links, in switches and in NICs."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        more = scenario.transport.congestion_control.telemetry_bytes
        self._packet = int(wire_size(WRITE_ONLY, max(one.mtu_bytes for one in scenario.transports))) + more
        self._answer = int(wire_size(ACKNOWLEDGE, 0)) + more

    def link_ps(self, end: Attachment | Link) -> int:
        """Of a link, or an end of it."""
        both = serialisation_ps(self._packet, end.rate_bps) + serialisation_ps(self._answer, end.rate_bps)
        return both + 2 * end.delay_ps

    def switch_ps(self, switch: int) -> int:
        """Of a switch."""
        scenario, topology = self._scenario, self._topology
        section = scenario.at(topology, switch).switch
        credit_ps = section.deep_buffer.credit_delay_ps if is_deep(scenario, topology, switch) else 0
        return 2 * (section.latency_ps + 2 * credit_ps)

    def nic_ps(self) -> int:
        """Of the slowest NIC, at one end."""
        scenario, topology = self._scenario, self._topology
        if not scenario.overrides:
            return scenario.nic.latency_ps
        return max(scenario.at(topology, nic).nic.latency_ps for nic in topology.nics)


def longest_round_trip_ps(scenario: Scenario, topology: Topology) -> int:
    """The longest unloaded round trip of a full packet between two NICs; 0 if there are no two."""
    known = _KNOWN.get(topology)
    if known is not None and known[0] is scenario:
        return known[1]
    costs = _Costs(scenario, topology)
    way_ps = longest_way(topology, costs.link_ps, costs.switch_ps)
    found = way_ps + 2 * costs.nic_ps() if way_ps else 0
    _KNOWN[topology] = scenario, found
    return found


def round_trip_bound_ps(scenario: Scenario, topology: Topology) -> int:
    """What no unloaded round trip takes longer than, without a search: as if every link and switch on the way
    were the slowest."""
    costs = _Costs(scenario, topology)
    kinds = {(link.rate_bps, link.delay_ps): link for link in topology.links if link.kind == FABRIC}
    link_ps = max(map(costs.link_ps, kinds.values()), default=0)
    switch_ps = max(map(costs.switch_ps, topology.switches), default=0)
    switches = routes(topology).most_switches()
    return (switches + 1) * link_ps + switches * switch_ps + 2 * costs.nic_ps()


QUEUED_PS: Final = 16 * US_PS
"""How long a queue at the default Kmin (800 KB at 400G) holds a packet, at any rate."""


def loaded_round_trip_ps(scenario: Scenario, topology: Topology, enough_ps: int = 0) -> int:
    """The longest round trip behind a queue at which senders are not slowed down yet; where none takes longer
    than `enough_ps`, a bound."""
    if (bound_ps := round_trip_bound_ps(scenario, topology) + QUEUED_PS) <= enough_ps:
        return bound_ps
    return longest_round_trip_ps(scenario, topology) + QUEUED_PS


def settled(scenario: Scenario, topology: Topology, nic: int) -> CongestionSection:
    """The section of congestion control of a NIC with what is `auto` worked out. Raises ScenarioError."""
    section = scenario.at(topology, nic).transport.congestion_control
    if section.kind != "hpcc" or section.base_rtt_ps is not None:
        return section
    found_ps = longest_round_trip_ps(scenario, topology)
    rounded_ps = max(-(-found_ps // US_PS), 1) * US_PS
    if rounded_ps > LONGEST_PS:
        key = scenario.key_at(topology, nic, "transport.congestion_control.base_rtt")
        reason = f"the longest round trip takes {format_time(found_ps)}, longer than HPCC can count"
        raise ScenarioError([Problem(scenario.name, 0, key, reason, "1us to 100us")])
    return section.model_copy(update={"base_rtt_ps": rounded_ps})


SEARCHES: Final = 32

LinkCost = Callable[[Attachment], int]
SwitchCost = Callable[[int], int]


def longest_way(topology: Topology, link_cost: LinkCost, switch_cost: SwitchCost) -> int:
    """The cost of the dearest way between two NICs; 0 where no two NICs meet."""
    below = [_last_links(topology, prefix, link_cost) for prefix in range(topology.prefixes)]
    longest = max(
        (one + other + switch_cost(at) for links in below for at, (one, other) in links.items() if other),
        default=0,
    )
    ways: dict[int, list[tuple[int, int]]] = {
        switch: [
            (end.peer, link_cost(end))
            for end in topology.ports(switch)
            if end.kind == FABRIC and topology.nodes[end.peer].role is Role.SWITCH
        ]
        for switch in topology.switches
    }
    costs = {switch: switch_cost(switch) for switch in topology.switches}
    for target in range(0, topology.prefixes, -(-topology.prefixes // SEARCHES)):
        found = {switch: last + costs[switch] for switch, (last, _) in below[target].items()}
        level = dict(found)
        while level:
            further: dict[int, int] = {}
            for switch, cost in level.items():
                for peer, link in ways[switch]:
                    if peer not in found:
                        further[peer] = max(further.get(peer, 0), cost + link)
            level = {switch: cost + costs[switch] for switch, cost in further.items()}
            found |= level
        for prefix, links in enumerate(below):
            if prefix != target:
                ends = [found[at] + last for at, (last, _) in links.items() if at in found]
                longest = max([longest, *ends])
    return longest


def _last_links(topology: Topology, prefix: int, link_cost: LinkCost) -> dict[int, tuple[int, int]]:
    """The two dearest links from each switch of a prefix to a NIC, the second 0 where there is one."""
    found: dict[int, tuple[int, int]] = {}
    for nic in topology.prefix_nics(prefix):
        for end in topology.ports(nic):
            if end.kind == FABRIC and topology.nodes[end.peer].role is Role.SWITCH:
                first, second = found.get(end.peer, (0, 0))
                cost = link_cost(end)
                found[end.peer] = (cost, first) if cost > first else (first, max(second, cost))
    return found
