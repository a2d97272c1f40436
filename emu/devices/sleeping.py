"""Devices that are built when their first event comes, and what they are until then.

Most devices of a large fabric do nothing in a run of a few jobs. So of each *kind* of device (the same role,
sections of the scenario, and neighbours at their ports) the first is built with the kernel, and the others
sleep: the kernel hosts them (`actors.kernel.kernel`) and builds each before its first event, or when
somebody asks for all devices. What a device that never woke leaves behind is what the first of its kind was
when it was built. Who has queue pairs, programs or a part in a job never sleeps, and no switch does where
half of the NICs or more have queue pairs: it would wake within the run.

A device is built from the scenario and its number alone, so it does not tell when it was built.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from actors.fabric.model import Role, Topology
from actors.kernel.device import Device
from actors.kernel.kernel import Idle, Sleepers
from emu.devices.plan import Plan
from emu.scenario.fault_schedule import miscabled
from emu.scenario.schema import Scenario
from emu.topology.front_end import METADATA, STORAGE


class IdleKinds:
    """The kinds of the devices of a fabric, by number: devices of one kind count and report the same until
    something happens to them."""

    def __init__(self, scenario: Scenario, topology: Topology, plan: Plan) -> None:
        self._scenario = scenario
        self._topology = topology
        self._busy = busy_devices(scenario, topology, plan)
        captured = bool(scenario.run.capture)
        named = any(one.switch.pfc.silent_to or one.switch.pfc.ignores for one in scenario.every)
        self._alike = not captured and not named and not miscabled(scenario)
        """Whether no device differs from its like by its name, or by who is at the other end of its cables.
        """
        self._known: dict[Hashable, int] = {}

    def of(self, number: int) -> int | None:
        """The kind of a device that may sleep; None where it may not."""
        if not self._alike or number in self._busy:
            return None
        topology, nodes = self._topology, self._topology.nodes
        node = nodes[number]
        ends: list[Hashable] = []
        for link in topology.links_at(number):
            one = topology.links[link]
            peer = nodes[one.b if one.a == number else one.a]
            ends.append((one.kind, one.rate_bps, peer.role, peer.model))
            if self._scenario.overrides:
                ends.append(self._sections(peer.number))
                ends.append(id(self._scenario.link_at(topology, link)))
        server = "" if node.host < 0 else nodes[topology.hosts[node.host]].model
        place = -1 if node.role is Role.SWITCH else node.position
        own = self._sections(number)
        alike = node.role, node.model, node.network, node.tier, place, server, own, tuple(ends)
        return self._known.setdefault(alike, len(self._known))

    def _sections(self, number: int) -> int:
        """The same for devices of which overrides say the same, which share one object."""
        return id(self._scenario.at(self._topology, number))


def busy_devices(scenario: Scenario, topology: Topology, plan: Plan) -> frozenset[int]:
    """The devices that have something to do, or to keep, from the beginning."""
    nodes = topology.nodes
    found = {topology.controller, *plan.inside}
    used = [nic for nic, pairs in plan.pairs.items() if pairs]
    found.update(used)
    if 2 * len(used) >= len(topology.nics):
        found.update(topology.switches)
    for job in plan.jobs:
        if job.wired is not None:
            found.update(job.wired.nodes)
            found.update(job.wired.gpus)
        found.update(job.flows_of)
        found.update(job.clients_of)
    found.update(host for host in topology.hosts if nodes[host].model in (STORAGE, METADATA))
    if plan.operator is not None:
        found.update(plan.operator.racks)
    if scenario.payload == "real":
        found.update(topology.gpus)
    return frozenset(found)


class Sleeping(Sleepers):
    """The devices of one kernel that sleep. `make` builds a device, ready to run."""

    def __init__(self, make: Callable[[int], Device]) -> None:
        self._make = make
        self._first: dict[int, Idle] = {}
        """By kind, once its first device was built."""
        self._idle: dict[int, Idle] = {}
        """By device."""

    def build(self, number: int) -> Device:
        """One of them, as it would have been built before time began."""
        return self._make(number)

    def idle(self, number: int) -> Idle:
        """What one of them leaves behind that never wakes."""
        return self._idle[number]

    def sleeps(self, number: int, kind: int) -> bool:
        """Whether a device sleeps; otherwise it is built as the `first` of its kind."""
        known = self._first.get(kind)
        if known is None or not known.silent:
            return False
        self._idle[number] = known
        return True

    def first(self, number: int, kind: int) -> Device:
        """A device of a kind, built: what it is now, others are until something happens to them."""
        device = self._make(number)
        if kind not in self._first:
            self._first[kind] = Idle(device)
        return device
