"""How long is a round trip on an empty fabric, at most?

A full packet out and its acknowledgement back, over the longest way between two NICs: both are serialised on
every link and fly over it, both pass the pipelines of all switches and of the NIC at their end, and the
credit of modular ones. What hosts do, and acknowledgements that wait for others (`ack_every`), is not in it.

HPCC has it as its T where `base_rtt` is `auto`: rounded up to a whole microsecond, since T is "a little
greater than" it, and within what HPCC can count.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from actors.fabric.model import Attachment, Topology
from actors.kernel.units import serialisation_ps
from actors.wire.frame import ACKNOWLEDGE, WRITE_ONLY, wire_size
from emu.build.deep_buffers import is_deep
from emu.errors import Problem, ScenarioError
from emu.scenario.schema import Scenario
from emu.scenario.sections.congestion import CongestionSection, Hpcc
from emu.topology.longest import longest_way
from emu.units import format_time

US_PS: Final = 10**6

_KNOWN: Final[WeakKeyDictionary[Topology, tuple[Scenario, int]]] = WeakKeyDictionary()
"""Of a fabric: for whom it was worked out last, and what came out; every NIC asks."""


def longest_round_trip_ps(scenario: Scenario, topology: Topology) -> int:
    """The longest unloaded round trip of a full packet between two NICs; 0 if there are no two."""
    known = _KNOWN.get(topology)
    if known is not None and known[0] is scenario:
        return known[1]
    transport = scenario.transport
    more = transport.congestion_control.telemetry_bytes
    packet = int(wire_size(WRITE_ONLY, transport.mtu_bytes)) + more
    answer = int(wire_size(ACKNOWLEDGE, 0)) + more

    def link_ps(end: Attachment) -> int:
        both = serialisation_ps(packet, end.rate_bps) + serialisation_ps(answer, end.rate_bps)
        return both + 2 * end.delay_ps

    def switch_ps(switch: int) -> int:
        credit_ps = scenario.switch.deep_buffer.credit_delay_ps if is_deep(scenario, topology, switch) else 0
        return 2 * (scenario.switch.latency_ps + 2 * credit_ps)

    way_ps = longest_way(topology, link_ps, switch_ps)
    found = way_ps + 2 * scenario.nic.latency_ps if way_ps else 0
    _KNOWN[topology] = scenario, found
    return found


def settled(scenario: Scenario, topology: Topology) -> CongestionSection:
    """The section of congestion control with what is `auto` worked out. Raises ScenarioError."""
    section = scenario.transport.congestion_control
    if not isinstance(section, Hpcc) or section.base_rtt_ps is not None:
        return section
    found_ps = longest_round_trip_ps(scenario, topology)
    rounded_ps = max(-(-found_ps // US_PS), 1) * US_PS
    if rounded_ps > Hpcc.LONGEST_RTT_PS:
        key = "transport.congestion_control.base_rtt"
        reason = f"the longest round trip takes {format_time(found_ps)}, longer than HPCC can count"
        raise ScenarioError([Problem(scenario.name, 0, key, reason, "1us to 100us")])
    return section.model_copy(update={"base_rtt_ps": rounded_ps})
