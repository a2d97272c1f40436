"""Spans of virtual time over which series are judged, and the lines of a series that are meant.

A span is from one time to another. `within: 2ms of fault 1` begins with the first occurrence of that fault
and ends 2 ms later; `of the end of fault 1` begins where its last occurrence ends. A run samples at both ends
of every span besides its grid, so a span is judged as it is written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from actors.fabric.model import Node, Topology
from actors.kernel.device import Series
from actors.kernel.event import NEVER_PS
from emu.base.errors import Problem, ScenarioError
from emu.base.spelling import did_you_mean, shown_location
from emu.base.units import format_time
from emu.scenario.expect import SeriesExpectation, deadline
from emu.scenario.faults.events import Fault
from emu.scenario.faults.targets import fits
from emu.scenario.schema import Scenario
from emu.topology.fabric_blocks import planes


class FaultTimes(NamedTuple):
    """When a fault of the scenario begins for the first time, and ends for the last; None if it lasts."""

    begin_ps: int
    end_ps: int | None


class Span(NamedTuple):
    """From one time to another, both included."""

    begin_ps: int
    end_ps: int


def fault_times(scenario: Scenario, faults: Iterable[Fault]) -> dict[int, FaultTimes]:
    """By place in the scenario's list; faults that never occur are left out. Repairs have no end."""
    found: dict[int, FaultTimes] = {}
    for one in faults:
        before = found.get(one.entry, FaultTimes(one.begin_ps, 0))
        lasts = before.end_ps is None or one.end_ps == 0
        end_ps = None if lasts else max(before.end_ps or 0, one.end_ps)
        found[one.entry] = FaultTimes(min(before.begin_ps, one.begin_ps), end_ps)
    for entry, section in enumerate(scenario.faults):
        found.setdefault(entry, FaultTimes(section.at_ps, None))
    return found


def span_of(one: SeriesExpectation, faults: Mapping[int, FaultTimes]) -> Span | str:
    """The span, or why there is none."""
    if one.within is None:
        return Span(one.from_ps or 0, NEVER_PS if one.until_ps is None else one.until_ps)
    after_ps, fault, at_end = deadline(one.within)
    times = faults[fault]
    if at_end and times.end_ps is None:
        return f"fault {fault} lasts, so it has no end"
    begin_ps = times.begin_ps if not at_end else times.end_ps or 0
    return Span(begin_ps, begin_ps + after_ps)


def bounds_ps(scenario: Scenario, faults: Sequence[Fault]) -> tuple[int, ...]:
    """Both ends of each span that is judged and known beforehand, and of `run.span`, once, in order."""
    series = [one for one in scenario.expect if isinstance(one, SeriesExpectation)]
    asked = scenario.run.span
    if not series and not asked.for_ps:
        return ()
    times = fault_times(scenario, faults)
    spans = [span for one in series if isinstance(span := span_of(one, times), Span)]
    spans += [Span(asked.at_ps, asked.until_ps)] if asked.for_ps else []
    ends = {time_ps: None for span in spans for time_ps in span if 0 < time_ps < NEVER_PS}
    return tuple(sorted(ends))


def matches(one: SeriesExpectation, series: Series, node: Node, topology: Topology) -> bool:
    """Whether a line of a device is meant."""
    where = one.where
    if series.metric != one.counted_as:
        return False
    if where.device is not None and not fits(node, where.device, topology):
        return False
    if where.port not in (None, series.port) or where.priority not in (None, series.priority):
        return False
    if where.reason is not None:
        reasons = one.reasons
        if not (
            series.reason in reasons if reasons is not None else fnmatchcase(series.reason, where.reason)
        ):
            return False
    if where.peer is None and where.direction is None:
        return True
    peer = topology.nodes[topology.ports(node.number)[series.port].peer]
    if where.peer is not None and not fits(peer, where.peer, topology):
        return False
    return where.direction in (None, direction_of(node, peer))


def plane_names(topology: Topology) -> dict[int, str]:
    """The plane of each switch, where the fabric has several; a NIC's port is in that of its peer."""
    found = planes(topology)
    return {switch: str(plane) for switch, plane in found.items()} if max(found.values(), default=0) else {}


def port_labels(topology: Topology, device: int, port: int, of_switch: Mapping[int, str]) -> tuple[str, ...]:
    """What `emu_port_info` says of a port: device, port, peer, direction, plane (`plane_names`)."""
    own, peer = topology.nodes[device], topology.nodes[topology.ports(device)[port].peer]
    plane = of_switch.get(own.number, of_switch.get(peer.number, ""))
    return own.name, str(port), peer.name, direction_of(own, peer), plane


def direction_of(node: Node, peer: Node) -> str:
    """Where a port leads: a NIC is below every switch."""
    if node.tier == peer.tier:
        return "level"
    return "up" if peer.tier > node.tier else "down"


def check_devices(scenario: Scenario, topology: Topology) -> None:
    """Refuse names that no device of the fabric fits. Raises ScenarioError with every problem."""
    problems = [
        Problem(
            scenario.name,
            0,
            shown_location(("expect", index, "where", label)),
            f"no device is {name!r}{did_you_mean(name, [node.name for node in topology.nodes])}",
            "a name, a pattern or a role",
        )
        for index, label, name in _named(scenario)
        if not any(fits(node, name, topology) for node in topology.nodes)
    ]
    if problems:
        raise ScenarioError(problems)


def _named(scenario: Scenario) -> Iterator[tuple[int, str, str]]:
    for index, one in enumerate(scenario.expect):
        if isinstance(one, SeriesExpectation):
            for label, name in (("device", one.where.device), ("peer", one.where.peer)):
                if name is not None:
                    yield index, label, name


def shown_span(one: SeriesExpectation) -> str:
    """The span as it was written; empty for the whole run."""
    if one.within is not None:
        return f"within {one.within}"
    parts = []
    if one.from_ps is not None:
        parts.append(f"from {format_time(one.from_ps)}")
    if one.until_ps is not None:
        parts.append(f"until {format_time(one.until_ps)}")
    return " ".join(parts)
