"""What faults change by rates, and when: routes, rates of links, slow GPUs.

The events are those that devices get at packet level (`emu.scenario.faults.events`), so a switch forwards by
what became of a link exactly when it does there: after local convergence and convergence, or hop by hop. What
loses packets is rejected before the run (`emu.flow.refusals`).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology
from actors.kernel.event import NEVER_PS
from actors.wire.fault import BEGIN_FAULT, COMPUTE, RATE, REPAIR_FAULT, ROUTE, SLOW
from emu.flow.queue_pair_paths import FlowFabric
from emu.scenario.faults.convergence import Convergence
from emu.scenario.faults.events import Fault, all_events
from emu.scenario.schema import Scenario

KNOWN: Final = ("degrade", "switch_drain", "gpu_slow")
"""Kinds that lose nothing; of `degrade` the rate."""
_OPERATIONS: Final = (int(RATE), int(SLOW), int(COMPUTE))
_USUAL: Final = 1000


def is_known(fault: Fault) -> bool:
    """Whether rates have all that an occurrence changes."""
    return (
        fault.kind in KNOWN and not fault.down and all(change.op in _OPERATIONS for change in fault.changes)
    )


class Event(NamedTuple):
    """Something changes. What begins comes before what ends."""

    at_ps: int
    late: int
    op: int
    """An operation of `actors.wire.fault`."""
    device: int
    place: int
    fault: int
    phase: int
    value: int


class FaultLine:
    """The faults of a run, in the order of their times."""

    def __init__(
        self, scenario: Scenario, topology: Topology, faults: Sequence[Fault], fabric: FlowFabric
    ) -> None:
        self._topology = topology
        self._fabric = fabric
        convergence = Convergence(scenario, topology)
        self.events = sorted(_of_devices(faults, convergence))
        self._faults = faults
        self._avoided: dict[int, dict[int, list[int]]] = {}
        """By switch and link: the faults for which it is out of use."""
        self._in_force: dict[tuple[int, int, int], dict[int, int]] = {}
        """By operation, device and port: values by fault, the newest last."""
        self._slow = _slow_spans(topology, faults)

    def apply(self, events: Sequence[Event]) -> list[int]:
        """Let these events of one time change the links; returns the directed links with other rates."""
        rated: list[int] = []
        routed: dict[int, None] = {}
        for one in events:
            if one.op == ROUTE:
                self._route(one)
                routed[one.device] = None
            elif one.op == RATE:
                rated.append(self._rate(one))
            elif one.op == SLOW:
                values = self._newest(one)
                self._fabric.slow(one.device, values or _USUAL)
        for switch in routed:
            avoided = [link for link, holds in self._avoided[switch].items() if holds]
            self._fabric.route(switch, avoided)
        return rated

    def present(self, now_ps: int) -> tuple[Fault, ...]:
        """The faults of this time, as if they had been there from the beginning."""
        return tuple(
            one._replace(begin_ps=0, end_ps=0)
            for one in self._faults
            if one.begin_ps <= now_ps and (not one.end_ps or now_ps < one.end_ps)
        )

    def computed_ps(self, gpu: int, begin_ps: int, duration_ps: int) -> int:
        """How long a GPU computes on something that usually takes so long."""
        left, now_ps = duration_ps * _USUAL, begin_ps
        for until_ps, thousandths in self._slow.get(gpu, ()):
            if until_ps <= now_ps:
                continue
            if left <= (until_ps - now_ps) * _USUAL * _USUAL // thousandths:
                return now_ps - begin_ps + left * thousandths // (_USUAL * _USUAL)
            left -= (until_ps - now_ps) * _USUAL * _USUAL // thousandths
            now_ps = until_ps
        return now_ps - begin_ps + left // _USUAL

    def _route(self, one: Event) -> None:
        holds = self._avoided.setdefault(one.device, {}).setdefault(one.place, [])
        if one.phase == REPAIR_FAULT:
            holds.clear()
        elif one.phase == BEGIN_FAULT:
            holds.append(one.fault)
        elif one.fault in holds:
            holds.remove(one.fault)

    def _rate(self, one: Event) -> int:
        end = self._topology.ports(one.device)[one.place]
        link = 2 * end.link + (self._topology.links[end.link].a != one.device)
        self._fabric.set_rate(link, self._newest(one) or end.rate_bps)
        return link

    def _newest(self, one: Event) -> int:
        """The value that rules now; 0: none."""
        values = self._in_force.setdefault((one.op, one.device, one.place), {})
        values.pop(one.fault, None)
        if one.phase == BEGIN_FAULT:
            values[one.fault] = one.value
        return next(reversed(values.values()), 0)


def _of_devices(faults: Sequence[Fault], convergence: Convergence) -> Iterator[Event]:
    """Events that change routes, rates and GPUs."""
    for one in all_events(tuple(faults), convergence):
        if one.op in (ROUTE, RATE, SLOW):
            late = int(one.phase != BEGIN_FAULT)
            yield Event(one.at_ps, late, one.op, one.device, one.place, one.fault, one.phase, one.values[0])


def _slow_spans(topology: Topology, faults: Sequence[Fault]) -> dict[int, list[tuple[int, int]]]:
    """By GPU: until when it takes so many thousandths of the usual time, in order; of several the newest."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for fault in faults:
        for change in fault.changes:
            if change.op == SLOW and topology.nodes[change.device].role is Role.GPU:
                end_ps = fault.end_ps or int(NEVER_PS)
                found.setdefault(change.device, []).append((fault.begin_ps, end_ps, change.values[0]))
    lines: dict[int, list[tuple[int, int]]] = {}
    for gpu, spans in found.items():
        times = sorted({0, *(time for begin, end, _ in spans for time in (begin, end))})
        line = lines[gpu] = []
        for begin_ps, end_ps in pairwise(times):
            in_force = [one for one in spans if one[0] <= begin_ps < one[1]]
            line.append((end_ps, max(in_force)[2] if in_force else _USUAL))
    return lines
