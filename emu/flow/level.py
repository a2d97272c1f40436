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
from actors.flow.switch_queues import SCALE, Buffers
from actors.kernel.counters import NVLINK_TRANSMIT_BYTES, PORT_TRANSMIT_BYTES, PORT_TRANSMIT_PAYLOAD_BYTES
from actors.kernel.device import Series, series_of
from actors.kernel.event import NEVER_PS
from emu.counts.collected import DeviceRecord, EngineFacts
from emu.counts.digest import run_digest
from emu.devices.buffer_sizes import is_deep, port_pools_bytes, shared_pool_bytes
from emu.devices.drawing import Blueprint
from emu.devices.plan import JobWork, settings_of
from emu.engine.outcome import Ending, Observer, Outcome
from emu.engine.outcome import Progress as Reached
from emu.engine.result import ending_message
from emu.flow.calls import PACKETS, Calls
from emu.flow.changing_fabric import ChangingProgress
from emu.flow.connections import Connections
from emu.flow.equal_ranks import each_alone, equal_ranks
from emu.flow.fault_line import FaultLine
from emu.flow.flow_jobs import FlowRun
from emu.flow.in_step import InStepCalls, InStepProgress, goes_in_step
from emu.flow.isolated import IsolatedRuns
from emu.flow.messages import capacities_kbps
from emu.flow.queue_pair_paths import FlowFabric
from emu.flow.requests import Requests
from emu.flow.script_jobs import ScriptRun
from emu.flow.storage_jobs import Servers, StorageRun
from emu.scenario.schema import Scenario

MOST_SHARED: Final = 0.1
"""By how much longer than alone transfers may take where max-min shares are right within the bounds."""
MOST_NAMED: Final = 3
"""Pairs of jobs that are named when they meet by rates."""
PLACEMENT: Final = "flow"
"""What engine facts call it."""


def buffers_of(scenario: Scenario, topology: Topology) -> Buffers | None:
    """The buffers of switches, by their numbers, and of each port of modular ones; None where no port pauses
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
    return Buffers(buffer_of, pools, alphas, buffer.reserve_bytes * 8, behind)


FIRST_SLICE_PS: Final = 10**6
"""Virtual time of the first slice, until the speed of the run is known."""


class FlowLevel:
    """One run of a blueprint."""

    def __init__(self, blueprint: Blueprint) -> None:
        scenario, topology, resolved, plan = blueprint
        self.topology = topology
        self.fabric = FlowFabric(scenario, topology, plan)
        self._management_ps = scenario.control.management_delay_ps
        self._max_ps = scenario.run.max_time_ps
        self.end_ps = 0
        self.flows: list[FlowRun] = []
        self.scripts: list[ScriptRun] = []
        self.storage: list[StorageRun] = []
        servers = Servers(scenario, topology)
        self.beside = Pieces()
        """The pieces of the front end, which shares no link with the back end."""
        works = [work for work in plan.jobs if work.enabled and work.start_ps != NEVER_PS]
        self._open = len(works)
        over = partial(self._over)
        self._by_rates: dict[str, Connections | JobWork] = {}
        """By job of the back end that goes by rates, what says on which links it sends."""
        self._in_step: InStepCalls | None = None
        self._requests: Requests | None = None
        runs = IsolatedRuns(blueprint, self.fabric)
        if len(works) == 1 and works[0].wired is not None and goes_in_step(scenario, works[0].wired):
            (work,) = works
            assert work.wired is not None
            parted = equal_ranks(work.wired.script)
            delays = settings_of(scenario, topology, work.job).delays
            in_step = self._in_step = InStepCalls(scenario, work.wired, self.fabric, delays, parted)
            self.progress: Progress = InStepProgress(in_step)
            self._requests = Requests(runs, self.progress, lambda: self.fabric.epoch)
            in_step.run_with(self._requests)
            self.scripts.append(ScriptRun(work, in_step, self.progress, self._management_ps, over, parted))
            return
        capacities, buffers = capacities_kbps(topology), buffers_of(scenario, topology)
        if resolved.faults and works:
            line = FaultLine(scenario, topology, resolved.faults, self.fabric)
            mtu_bytes = scenario.transport.mtu_bytes
            self.progress = ChangingProgress(capacities, buffers, self.fabric, line, runs, mtu_bytes)
        else:
            self.progress = Progress(capacities, buffers)
        requests = self._requests = Requests(runs, self.progress, lambda: self.fabric.epoch)
        for work in works:
            delays = settings_of(scenario, topology, work.job).delays
            if work.clients:
                self.storage.append(
                    StorageRun(scenario, work, self.fabric, delays, servers, self.beside, over)
                )
            elif work.wired is None:
                self._by_rates[work.name] = work
                self.flows.append(FlowRun(work, self.fabric, delays, self.progress, over))
            else:
                wired = Connections(scenario, self.fabric, delays)
                self._by_rates[work.name] = wired
                calls = Calls(work.wired, wired, requests, delays)
                alone = each_alone(work.wired.script)
                self.scripts.append(ScriptRun(work, calls, self.progress, self._management_ps, over, alone))

    def run(self, observer: Observer | None = None, every_s: float = 1.0) -> Ending:
        """Run to the end of every job; an observer hears how far it is every so often."""
        for flows in self.flows:
            flows.begin()
        for scripts in self.scripts:
            scripts.begin()
        for storage in self.storage:
            storage.begin()
        ended = [
            self._by_slices(one, observer or Observer(), every_s) for one in (self.progress, self.beside)
        ]
        if not all(ended) and self._open:
            self.end_ps = self._max_ps
            return Ending.TIME_LIMIT
        if self._open:
            self.end_ps = max(self.progress.now_ps, self.beside.now_ps)
            return Ending.STALLED
        return Ending.FINISHED

    def _by_slices(self, clock: Progress | Pieces, observer: Observer, every_s: float) -> bool:
        """Run a clock in slices of virtual time of `every_s` or so. Where it is cut changes nothing."""
        slice_ps, until_ps = FIRST_SLICE_PS, clock.now_ps
        begun_s = time.perf_counter()
        while True:
            until_ps = min(until_ps + slice_ps, self._max_ps)
            if clock.run(until_ps):
                return True
            if until_ps == self._max_ps:
                return False
            took_s = time.perf_counter() - begun_s
            if took_s < every_s:
                slice_ps += slice_ps // 4
                continue
            slice_ps = max(slice_ps // 2, FIRST_SLICE_PS)
            begun_s = time.perf_counter()
            moved_bytes = sum(one.moved_bytes() for one in self.storage)
            operations = tuple(tuple(row) for job in self.scripts for row in job.operations)
            observer.progressed(Reached(until_ps, moved_bytes, operations))

    def doubts(self) -> list[str]:
        """What may be wrong by more than the bounds, and why."""
        found: list[str] = []
        used = {name: set(self._links_of(one)) for name, one in self._by_rates.items()}
        pairs = list(combinations(used, 2))
        met = [names for names in pairs if not used[names[0]].isdisjoint(used[names[1]])]
        if met and any(isinstance(one, Connections) for one in self._by_rates.values()):
            who = "; ".join(f"{a} and {b}" for a, b in met[:MOST_NAMED])
            more = f"; {len(met) - MOST_NAMED} pairs more" if len(met) > MOST_NAMED else ""
            found.append(
                f"{who}{more}: these jobs share links by their mean rates, and bursts that meet delay each "
                f"other; {PACKETS} says by how much"
            )
        flows = max((one.sharing.most for one in self.flows), default=0.0)
        if flows > MOST_SHARED:
            found.append(
                f"flows share links, and one takes {flows:.0%} longer than alone: which packet is first in a "
                f"queue, and which port is paused, only {PACKETS} says"
            )
        if self.fabric.spread == "adaptive" and any(one.rows for one in self.flows):
            found.append(f"switches choose ports by load, which rates take for even; {PACKETS} says more")
        if self.fabric.pathed:
            found.append(self._about_paths())
        calls = max((one.sharing.mean for one in self.scripts), default=0.0)
        if calls > MOST_SHARED:
            found.append(
                f"transfers of calls share links, and take {calls:.0%} longer than alone: rates take their "
                f"bursts for even; {PACKETS} says how they meet"
            )
        if self._requests is not None and self._requests.broken_off:
            found.append(
                "calls are known from how they begin, which is up to 5 % off, and up to 20 where ranks "
                "fall out of lockstep later"
            )
        if self.closed:
            found.append(
                "calls are too large to run alone and have closed forms, which are up to 6 % too fast, and "
                "up to a third where queue pairs take turns"
            )
        return found

    def _about_paths(self) -> str:
        """What is doubtful of queue pairs over several paths: hashes say by which each goes."""
        topology, seen = self.topology, set[int]()
        shared = False
        for job in self.flows:
            for flow in job.work.flows:
                ways = [self.fabric.way(flow.source, index).there for index, _ in flow.pairs]
                links = {link for paths in ways for path in paths for link in path.links[1:-1]}
                least = topology.ports(flow.source)[0].rate_bps
                shared |= not links.isdisjoint(seen)
                shared |= any(topology.links[link // 2].rate_bps < least for link in links)
                seen |= links
        late = "flows over the same switches may take a third longer, and " if shared else ""
        return (
            f"bytes are even over ports and equal paths, which hashes and free ports choose: {late}a link or "
            f"plane may carry twice as much or nothing; {PACKETS} says more"
        )

    @property
    def closed(self) -> bool:
        """Whether a call had a closed form."""
        if self._in_step is not None and self._in_step.closed:
            return True
        return self._requests is not None and self._requests.rejected > 0

    def _links_of(self, one: Connections | JobWork) -> Iterable[int]:
        if isinstance(one, Connections):
            return one.used
        ways = (self.fabric.way(flow.source, index).there for flow in one.flows for index, _ in flow.pairs)
        return (link for paths in ways for path in paths for link in path.links)

    def _over(self, end_ps: int) -> None:
        """A job has ended; the run ends when the controller has heard of the last one, and all of that."""
        self._open -= 1
        self.beside.over = self._open == 0
        self.end_ps = max(self.end_ps, end_ps + 2 * self._management_ps)

    def records(self) -> tuple[DeviceRecord, ...]:
        """The record of every device."""
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
                    series.append(series_of(PORT_TRANSMIT_PAYLOAD_BYTES, port))
                    counters.append(self.fabric.payload_bytes[link])
                    series.append(series_of(PORT_TRANSMIT_BYTES, port))
                    counters.append(self.fabric.wire_bytes[link])
        elif role is Role.GPU:
            for end in topology.ports(number):
                if end.kind == NVLINK:
                    link = 2 * end.link + (topology.links[end.link].a != number)
                    series.append(series_of(NVLINK_TRANSMIT_BYTES))
                    counters.append(self.fabric.payload_bytes[link])
        return DeviceRecord(number, (), 0, 0, 0, series, counters, results=results)


def run_flow(blueprint: Blueprint, observer: Observer | None = None, every_s: float = 1.0) -> Outcome:
    """Run a blueprint at flow level, in this process."""
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    level = FlowLevel(blueprint)
    built_s = time.perf_counter()
    ending = level.run(observer, every_s)
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
