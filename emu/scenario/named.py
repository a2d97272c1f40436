"""Which names of a scenario does its fabric not have?

Links and devices that sections name are looked up on the fabric that was built; what is not there, or is
something else, is a problem of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from actors.fabric.model import FABRIC, Role, Topology, TopologyError
from actors.fabric.model import Fault as Flaw
from emu.errors import Problem
from emu.scenario.schema import Scenario
from emu.scenario.sections.buffer import GroupProfile, PoolProfile
from emu.scenario.sections.qos import QosException
from emu.scenario.sections.section import Location
from emu.scenario.sections.switch import OneWayPfc, QueueMarking, StaticRoute
from emu.scenario.yaml.tree import shown_location
from emu.scenario.yaml.values import WILD, names


def unknown_names(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Links and devices that sections name and the fabric does not have."""
    links = [
        (("routing", "link_weights", at, "link"), one.link)
        for at, one in enumerate(scenario.routing.link_weights)
    ]
    links += [
        (("link", "bit_errors", at, "link"), one.link) for at, one in enumerate(scenario.link.bit_errors)
    ]
    for location, name in links:
        yield from _flaws(scenario, location, topology.links_named, name)
    for index, name in enumerate(scenario.switch.pfc.off):
        yield from _flaws(scenario, ("switch", "pfc", "off", index), topology.node_named, name)
    for index, name in enumerate(scenario.switch.deep_buffer.switches):
        yield from _wrong_role(
            scenario, topology, ("switch", "deep_buffer", "switches", index), name, Role.SWITCH
        )
    for index, half in enumerate(scenario.switch.pfc.one_way):
        yield from _wrong_half(scenario, topology, index, half)
    listed: tuple[
        tuple[Location, Sequence[QosException | PoolProfile | GroupProfile | QueueMarking]], ...
    ] = (
        (("switch", "qos", "exceptions"), scenario.switch.qos.exceptions),
        (("switch", "buffer", "pools"), scenario.switch.buffer.pools),
        (("switch", "buffer", "profiles"), scenario.switch.buffer.profiles),
        (("switch", "ecn", "profiles"), scenario.switch.ecn.profiles),
    )
    for where, entries in listed:
        for index, entry in enumerate(entries):
            for at, name in enumerate(entry.switches):
                spot = (*where, index, "switches", at)
                if not WILD.search(name):
                    yield from _wrong_role(scenario, topology, spot, name, Role.SWITCH)
                elif not any(names((name,), topology.nodes[switch].name) for switch in topology.switches):
                    first = topology.nodes[topology.switches[0]].name
                    yield problem_at(scenario, spot, f"no switch is called {name!r}", f"names like {first}")
    for index, name in enumerate(scenario.nic.receive.nics):
        yield from _wrong_role(scenario, topology, ("nic", "receive", "nics", index), name, Role.NIC)
    for index, name in enumerate(scenario.host.pcie.nics):
        yield from _wrong_role(scenario, topology, ("host", "pcie", "nics", index), name, Role.NIC)
    for index, route in enumerate(scenario.switch.static_routes):
        yield from _wrong_route(scenario, topology, index, route)


def _flaws(
    scenario: Scenario, location: Location, look_up: Callable[[str], object], name: str
) -> Iterator[Problem]:
    """What is wrong with a name, if it cannot be looked up."""
    try:
        look_up(name)
    except TopologyError as error:
        for flaw in error.faults:
            yield of_flaw(scenario, location, flaw)


def _wrong_role(
    scenario: Scenario, topology: Topology, location: Location, name: str, role: Role
) -> Iterator[Problem]:
    """What is wrong with a name that should be a device of this role."""
    unknown = list(_flaws(scenario, location, topology.node_named, name))
    yield from unknown
    if not unknown:
        node = topology.node_named(name)
        if node.role is not role:
            yield problem_at(scenario, location, f"{name} is a {node.role.value}", f"a {role.value}")


def _wrong_half(scenario: Scenario, topology: Topology, index: int, half: OneWayPfc) -> Iterator[Problem]:
    """What of a port with half of PFC the fabric does not have."""
    base: Location = ("switch", "pfc", "one_way", index)
    wrong = list(_flaws(scenario, (*base, "device"), topology.node_named, half.device))
    if half.peer is not None:
        wrong += _flaws(scenario, (*base, "peer"), topology.node_named, half.peer)
    yield from wrong
    if not wrong and half.peer is not None:
        yield from _no_link(scenario, topology, (*base, "peer"), half.device, half.peer)


def _no_link(
    scenario: Scenario, topology: Topology, location: Location, one: str, other: str
) -> Iterator[Problem]:
    """What is wrong with two devices that should be joined by a link of the fabric."""
    peer = topology.node_named(other).number
    ends = topology.ports(topology.node_named(one).number)
    if not any(end.kind == FABRIC and end.peer == peer for end in ends):
        yield problem_at(scenario, location, f"{one} has no link to {other}", f"a neighbour of {one}")


def _wrong_route(scenario: Scenario, topology: Topology, index: int, route: StaticRoute) -> Iterator[Problem]:
    """What of a static route the fabric does not have."""
    base: Location = ("switch", "static_routes", index)
    wrong = list(_wrong_role(scenario, topology, (*base, "switch"), route.switch, Role.SWITCH))
    wrong += _wrong_role(scenario, topology, (*base, "destination"), route.destination, Role.NIC)
    wrong += _flaws(scenario, (*base, "via"), topology.node_named, route.via)
    yield from wrong
    if not wrong:
        yield from _no_link(scenario, topology, (*base, "via"), route.switch, route.via)


def problem_at(scenario: Scenario, location: Location, reason: str, accepted: str) -> Problem:
    """A problem of a key, for who has the scenario's lines."""
    return Problem(scenario.name, 0, shown_location(location), reason, accepted)


def of_flaw(scenario: Scenario, base: Location, flaw: Flaw) -> Problem:
    """What a fabric was refused for, as a problem of the key below `base`."""
    location = (*base, *flaw.path)
    if flaw.accepted.startswith("did you mean"):
        return problem_at(scenario, location, f"{flaw.reason}; {flaw.accepted}", "")
    return problem_at(scenario, location, flaw.reason, flaw.accepted)
