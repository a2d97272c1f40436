"""A run at flow level: from a blueprint to the records that summaries, metrics and reports are made from.

Records have what flow level knows: rows of operations, flows, steps, calls and deliveries, and the bytes that
every port sent. What it does not know is in no series: frames, queues, pauses, drops, sequence numbers.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Final

from actors.fabric.model import FABRIC, NVLINK, Role, Topology
from actors.flow.pieces import Pieces
from actors.flow.progress import Progress
from actors.flow.queues import SCALE, Buffers
from actors.flow.voqs import Credit
from actors.kernel.device import Series, series_of
from actors.kernel.event import NEVER_PS
from emu.build.buffer_sizes import is_deep, port_pools_bytes, shared_pool_bytes
from emu.build.devices import Blueprint
from emu.build.plan import JobWork, settings_of
from emu.flow.alike import alike, each_alone
from emu.flow.calls import Calls
from emu.flow.crowds import CrowdCalls, CrowdProgress, Crowds, unit_of_crowd
from emu.flow.edges import Edges
from emu.flow.fault_line import FaultLine
from emu.flow.floods import Floods, unit_of_flows
from emu.flow.flow_jobs import FlowRun
from emu.flow.in_step import InStepCalls, InStepProgress, goes_in_step
from emu.flow.messages import capacities_kbps
from emu.flow.outages import Outages
from emu.flow.rehearsals import Rehearsals
from emu.flow.script_jobs import ScriptRun
from emu.flow.storage_jobs import Servers, StorageRun
from emu.flow.wires import Wires
from emu.measure.collected import DeviceRecord, EngineFacts
from emu.measure.digest import run_digest
from emu.runtime.outcome import Ending, Outcome
from emu.runtime.result import ending_message
from emu.scenario.schema import Scenario

MOST_NAMED: Final = 3
"""Pairs of jobs that are named when they meet by rates."""
PLACEMENT: Final = "flow"
"""What engine facts call it."""


def buffers_of(scenario: Scenario, topology: Topology) -> Buffers | None:
    """Of the fabric's switches, by their numbers, and of each port of modular ones; None where no port pauses
    another.
    """
    if not scenario.switch.pfc.enabled:
        return None
    buffer, section = scenario.switch.buffer, scenario.switch.deep_buffer
    buffer_of = [
        end if topology.nodes[end].role is Role.SWITCH else -1
        for link in topology.links
        for end in (link.b, link.a)
    ]
    pools, alphas = [0] * len(topology.nodes), [int(buffer.alpha * SCALE)] * len(topology.nodes)
    behind: list[bool] = []
    for switch in topology.switches:
        if not is_deep(scenario, topology, switch):
            pools[switch] = shared_pool_bytes(scenario, topology, switch) * 8
            continue
        behind = behind or [False] * len(buffer_of)
        own = [pool * 8 for pool in port_pools_bytes(scenario, topology, switch)]
        pools[switch], alphas[switch] = min(own), int(section.alpha * SCALE)
        for end, pool in zip(topology.ports(switch), own, strict=True):
            leaves = 2 * end.link + (topology.links[end.link].a != switch)
            behind[leaves] = True
            buffer_of[leaves ^ 1] = len(pools)
            pools.append(pool)
            alphas.append(alphas[switch])
    sizes = (section.credit_quantum_bytes, section.initial_credit_bytes, section.most_credit_bytes)
    quantum, initial, most = (size * 8 for size in sizes)
    credit = Credit(behind, section.credit_delay_ps, quantum, initial, section.credit_growth, most)
    return Buffers(buffer_of, pools, alphas, buffer.reserve_bytes * 8, credit)


class FlowLevel:
    """One run of a blueprint."""

    def __init__(self, blueprint: Blueprint) -> None:
        scenario, topology, resolved, plan = blueprint
        self.topology = topology
        self.wires = Wires(scenario, topology, plan)
        self._management_ps = scenario.control.management_delay_ps
        self._max_ps = scenario.run.max_time_ps
        self.end_ps = 0
        self.flows: list[FlowRun] = []
        self.scripts: list[ScriptRun] = []
        self.storage: list[StorageRun] = []
        servers = Servers(scenario, topology)
        self.beside = Pieces()
        """Of the front end, which shares nothing with the back end."""
        works = [work for work in plan.jobs if work.enabled and work.start_ps != NEVER_PS]
        self._open = len(works)
        over = partial(self._over)
        self._by_rates: dict[str, Edges | JobWork] = {}
        """By job of the back end that goes by rates, what says on which links it sends."""
        self._rehearsals: Rehearsals | None = None
        self._in_step: InStepCalls | None = None
        self._floods: Floods | None = None
        if len(works) == 1 and works[0].wired is not None and goes_in_step(scenario, works[0].wired):
            (work,) = works
            assert work.wired is not None
            parted = alike(work.wired.script)
            delays = settings_of(scenario, topology, work.job).delays
            in_step = self._in_step = InStepCalls(scenario, work.wired, self.wires, delays, parted)
            self.progress: Progress = InStepProgress(in_step)
            self.scripts.append(ScriptRun(work, in_step, self.progress, self._management_ps, over, parted))
            return
        capacities, buffers = capacities_kbps(topology), buffers_of(scenario, topology)
        crowds: Crowds | None = None
        if resolved.faults and works:
            line = FaultLine(scenario, topology, resolved.faults, self.wires)
            delays = settings_of(scenario, topology, works[0].job).delays
            self.progress = Outages(capacities, buffers, scenario, self.wires, line, delays)
        else:
            self.progress = Progress(capacities, buffers)
            unit = unit_of_crowd(scenario, self.wires, works, buffers)
            if unit.packets:
                assert buffers is not None
                crowds = Crowds(scenario, self.wires, buffers, works, unit)
                self.progress = CrowdProgress(crowds)
            elif (unit := unit_of_flows(self.wires, works, buffers)).packets:
                assert buffers is not None
                self._floods = Floods(scenario, self.wires, buffers, unit.packets)
        rehearsals = self._rehearsals = Rehearsals(scenario, self.wires, self.progress, buffers)
        for work in works:
            delays = settings_of(scenario, topology, work.job).delays
            if work.clients:
                self.storage.append(
                    StorageRun(scenario, work, self.wires, delays, servers, self.beside, over)
                )
            elif work.wired is None:
                if crowds is None and self._floods is None:
                    self._by_rates[work.name] = work
                self.flows.append(
                    FlowRun(work, self.wires, delays, self.progress, over, self._floods, crowds)
                )
            else:
                wired = Edges(scenario, self.wires, delays)
                if crowds is None:
                    self._by_rates[work.name] = wired
                calls = Calls(work.wired, wired, rehearsals, delays)
                each = calls if crowds is None else CrowdCalls(calls, crowds, self.progress)
                alone = each_alone(work.wired.script)
                self.scripts.append(ScriptRun(work, each, self.progress, self._management_ps, over, alone))

    def run(self) -> Ending:
        """Run to the end of every job."""
        for flows in self.flows:
            flows.begin()
        for scripts in self.scripts:
            scripts.begin()
        for storage in self.storage:
            storage.begin()
        if self._floods is not None:
            self.progress.run(self._max_ps)
            self._floods.run()
        ended = [self.progress.run(self._max_ps), self.beside.run(self._max_ps)]
        if not all(ended) and self._open:
            self.end_ps = self._max_ps
            return Ending.TIME_LIMIT
        if self._open:
            self.end_ps = max(self.progress.now_ps, self.beside.now_ps)
            return Ending.STALLED
        return Ending.FINISHED

    def doubts(self) -> list[str]:
        """What may be wrong by more than the bounds, and why."""
        found: list[str] = []
        used = {name: set(self._links_of(one)) for name, one in self._by_rates.items()}
        pairs = list(combinations(used, 2))
        met = [names for names in pairs if not used[names[0]].isdisjoint(used[names[1]])]
        if met and any(isinstance(one, Edges) for one in self._by_rates.values()):
            who = "; ".join(f"{a} and {b}" for a, b in met[:MOST_NAMED])
            more = f"; {len(met) - MOST_NAMED} pairs more" if len(met) > MOST_NAMED else ""
            found.append(
                f"{who}{more}: these jobs share links by their mean rates, since they are too much to go "
                f"through unit by unit, packets spread, or there are faults; bursts that meet take longer"
            )
        if self._in_step is not None and self._in_step.closed:
            found.append(
                "queue pairs take slices by turns, and calls of ranks in step are too much to be rehearsed: "
                "they have closed forms, which are up to a third too fast"
            )
        if self._rehearsals is not None and self._rehearsals.jams:
            link = min(self._rehearsals.jams)
            topology = self.topology
            ends = topology.links[link // 2].a, topology.links[link // 2].b
            here, there = (topology.nodes[end].name for end in (ends[::-1] if link % 2 else ends))
            found.append(
                f"so much waits for {len(self._rehearsals.jams)} links, {here} to {there} among them, that "
                f"ports may be paused; calls are rehearsed without pauses, and take longer then"
            )
        return found

    def _links_of(self, one: Edges | JobWork) -> Iterable[int]:
        if isinstance(one, Edges):
            return one.used
        ways = (self.wires.way(flow.source, index).there for flow in one.flows for index, _ in flow.pairs)
        return (link for paths in ways for path in paths for link in path.links)

    def _over(self, end_ps: int) -> None:
        """A job has ended; the run ends when the controller has heard of the last one, and all of that."""
        self._open -= 1
        self.beside.over = self._open == 0
        self.end_ps = max(self.end_ps, end_ps + 2 * self._management_ps)

    def records(self) -> tuple[DeviceRecord, ...]:
        """Of every device."""
        if self._in_step is not None:
            self._in_step.flush()
        topology = self.topology
        flows: dict[int, list[list[int]]] = {}
        deliveries: dict[int, list[list[int]]] = {}
        for one in self.flows:
            for into, found in ((flows, one.rows), (deliveries, one.deliveries)):
                for device, rows in found.items():
                    into.setdefault(device, []).extend(rows)
        results: dict[int, dict[str, list[list[int]]]] = {}
        for device, rows in flows.items():
            results.setdefault(device, {})["flows"] = sorted(rows)
        for storage in self.storage:
            for host, tables in storage.rows().items():
                for table, reported in tables.items():
                    results.setdefault(host, {}).setdefault(table, []).extend(reported)
        for device, rows in deliveries.items():
            results.setdefault(device, {})["deliveries"] = sorted(rows, key=lambda row: row[2])
        centre = results.setdefault(topology.controller, {})
        centre["operations"] = [row for job in self.scripts for row in job.operations]
        first = topology.hosts[0]
        for name, parts in (
            ("steps", [job.steps for job in self.scripts]),
            ("calls", [job.called for job in self.scripts]),
        ):
            rows = [row for part in parts for row in part]
            if rows:
                results.setdefault(first, {})[name] = rows
        return tuple(self._record(node.number, results.get(node.number, {})) for node in topology.nodes)

    def _record(self, number: int, results: dict[str, list[list[int]]]) -> DeviceRecord:
        series: list[Series] = []
        counters: list[int] = []
        topology = self.topology
        role = topology.nodes[number].role
        if role in (Role.NIC, Role.SWITCH):
            for port, end in enumerate(topology.ports(number)):
                if end.kind == FABRIC:
                    link = 2 * end.link + (topology.links[end.link].a != number)
                    series.append(series_of("port_transmit_payload_bytes", port))
                    counters.append(self.wires.payload_bytes[link])
                    series.append(series_of("port_transmit_bytes", port))
                    counters.append(self.wires.wire_bytes[link])
        elif role is Role.GPU:
            for end in topology.ports(number):
                if end.kind == NVLINK:
                    link = 2 * end.link + (topology.links[end.link].a != number)
                    series.append(series_of("nvlink_transmit_bytes"))
                    counters.append(self.wires.payload_bytes[link])
        return DeviceRecord(number, (), 0, 0, 0, series, counters, results=results)


def run_flow(blueprint: Blueprint) -> Outcome:
    """Run a blueprint at flow level, in this process."""
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    level = FlowLevel(blueprint)
    built_s = time.perf_counter()
    ending = level.run()
    records: Sequence[DeviceRecord] = level.records()
    facts = EngineFacts(
        workers=1,
        placement=PLACEMENT,
        windows=0,
        wall_s=time.perf_counter() - built_s,
        cpu_s=time.process_time() - begin_cpu_s,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        solves=level.progress.solves,
        solved_transfers=level.progress.touched,
        doubts=tuple(level.doubts()),
    )
    return Outcome(
        ending=ending,
        message=ending_message(blueprint.scenario, ending, level.end_ps),
        virtual_ps=level.end_ps,
        digest=run_digest(records),
        devices=tuple(records),
        engine=facts,
        build_s=built_s - begin_s,
    )
