"""Which flows go as trains of packets, known before a run.

A train (`actors.wire.train`) passes whole where nothing else leaves by the ports on its way: here, a flow
which shares no direction of any link with another queue pair, there and back, by the hashes of switches.
Whether NICs and switches on this way let trains pass at all is asked of the devices.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology
from actors.kernel.queue import EventQueue
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.wire.frame import ACKNOWLEDGE, WRITE_MIDDLE
from actors.wire.message import POST_READ
from emu.devices.hashed_paths import HashedPaths
from emu.devices.nics import build_nic
from emu.devices.plan import FlowWork, Plan
from emu.devices.switches import build_switch
from emu.scenario.schema import Scenario

FEWEST_PACKETS: Final = 16
"""A flow of fewer ends before a NIC has found out that its packets can go as trains."""
Port = tuple[int, int]
"""A device, and the number of the link by which packets leave it."""


class TrainFlows(NamedTuple):
    """Flows of the jobs of a scenario."""

    flows: int
    in_trains: tuple[FlowWork, ...]


NO_FLOWS: Final = TrainFlows(0, ())


def train_flows(scenario: Scenario, topology: Topology, plan: Plan) -> TrainFlows:
    """The flows of all jobs that are enabled, and those among them that go as trains."""
    running = {work.job for work in plan.jobs if work.enabled}
    flows = [flow for work in plan.jobs if work.enabled for flow in work.flows]
    if not flows or plan.over_ports or scenario.routing.by_packet or scenario.run.capture:
        return TrainFlows(len(flows), ())
    paths = HashedPaths(scenario, topology)
    uses: Counter[Port] = Counter()
    for nic, pairs in plan.pairs.items():
        for pair in pairs:
            if pair.job in running:
                uses.update(_way(paths, nic, pair))
    passes = _Passes(scenario, topology, plan)
    found = []
    for flow in flows:
        if len(flow.pairs) > 1 or flow.flags & POST_READ:
            continue
        if flow.size_bytes < FEWEST_PACKETS * scenario.transport.mtu_bytes:
            continue
        ((at_source, at_destination),) = flow.pairs
        way = _way(paths, flow.source, plan.pairs[flow.source][at_source])
        way += _way(paths, flow.destination, plan.pairs[flow.destination][at_destination])
        if all(uses[port] == 1 for port in way) and all(passes.at(device) for device, _ in way):
            found.append(flow)
    return TrainFlows(len(flows), tuple(found))


def _way(paths: HashedPaths, nic: int, pair: QpPlan) -> list[Port]:
    """What packets of a queue pair leave by: its data, or the acknowledgements of one that only receives."""
    opcode = int(WRITE_MIDDLE if pair.sends else ACKNOWLEDGE)
    remote, priority = pair.remote_qpn, pair.priority
    ends = paths.ends(nic, pair.turn, pair.remote_nic, pair.udp_source, remote, priority, opcode)
    return [(device, end.link) for device, end in ends]


class _Passes:
    """Devices that were asked whether trains pass them, each built once and alone."""

    def __init__(self, scenario: Scenario, topology: Topology, plan: Plan) -> None:
        self._topology = topology
        self._switch = partial(build_switch, scenario, topology)
        self._nic = partial(build_nic, scenario, topology)
        self._plan = plan
        self._known: dict[int, bool] = {}

    def at(self, device: int) -> bool:
        """Whether trains pass this device."""
        if device not in self._known:
            self._known[device] = self._asked(device)
        return self._known[device]

    def _asked(self, device: int) -> bool:
        queue = EventQueue()
        if self._topology.nodes[device].role is Role.NIC:
            nic = self._nic(device, self._plan.pairs.get(device, ()), queue, lambda _: None)
            nic.let_defer()
            nic.let_couple([])
            return all(port.couples for port in nic.ports())
        switch = self._switch(device, queue, lambda _: None)
        switch.let_defer()
        switch.let_couple([])
        # packets wait for the first of their message, which is 16 B longer; one that is marked is no train's
        ports = [port for port in switch.ports if port.couples]
        free = not any(port.apart or port.limited or port.marking for port in ports)
        return bool(ports) and free and switch.passes and switch.classes is None
