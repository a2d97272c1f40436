"""The blueprint of a run: what every worker works out for itself before time begins.

The blueprint decides, with the placement, which worker hosts which device, how far apart in time the
workers are, and where the sync points lie. Each worker works this out for itself from the same text, so
nothing of it is shipped, and nothing of it changes an answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from actors.fabric.model import FABRIC, Topology
from actors.kernel.event import NEVER_PS
from actors.port.link import MANAGEMENT_PORT
from actors.wire.batch import BatchReader
from emu.devices.devices import build_kernel, crossings
from emu.devices.drawing import Blueprint
from emu.devices.lookahead import Crossing, close_lookaheads, neighbours_of
from emu.engine.sync.partition import Partition
from emu.engine.sync.placement import Assignment, Placement, assign, cut_into_blocks, traffic_of, workers_of
from emu.engine.sync.sync_points import SyncGrid
from emu.engine.sync.window import WindowMachine
from emu.scenario.fault_schedule import measured_hits, miscabled
from emu.scenario.schema import Scenario
from emu.scenario.spans import bounds_ps


class RunPlan(NamedTuple):
    """A scenario spread over workers."""

    blueprint: Blueprint
    assignment: Assignment
    """The worker of each device, by number."""
    crossings: tuple[Crossing, ...]
    lookahead: tuple[tuple[int, ...], ...]
    """See `emu.devices.lookahead.close_lookaheads`."""
    moves: tuple[tuple[int, int], ...] = ()
    """Devices that do not live where the placement puts them, and the workers that host them."""
    block: int | None = None
    """NICs in a block (`emu.engine.sync.placement`); None for what suits the fabric."""
    trains: bool = True
    """Whether packets that follow one another go as trains (`actors.wire.train`)."""

    @property
    def scenario(self) -> Scenario:
        """What is run."""
        return self.blueprint.scenario

    @property
    def topology(self) -> Topology:
        """Its fabric."""
        return self.blueprint.topology

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return workers_of(self.assignment)

    @property
    def grid(self) -> SyncGrid:
        """The sync points that everyone knows. While a job may wait to be begun, nothing is a stall."""
        run = self.scenario.run
        waits = self.scenario.operator is not None or any(job.attended for job in self.scenario.jobs)
        stall_after_ps = 0 if waits else self.scenario.stall_after_ps
        also_ps = bounds_ps(self.scenario, self.blueprint.resolved.faults)
        measure_times_ps = tuple(one.at_ps for one in measured_hits(self.scenario))
        return SyncGrid(
            run.sample_every_ps, stall_after_ps, run.max_time_ps, also_ps, measure_times_ps, run.repeat
        )

    def machine(self, worker: int, end_ps: int = NEVER_PS) -> WindowMachine:
        """One worker's side of the window protocol; the run ends at `end_ps`, if not before."""
        grid = self.grid
        if end_ps < grid.max_time_ps:  # somebody ended it then
            grid = grid._replace(max_time_ps=end_ps, open_ended=True)
        return WindowMachine(worker, self.lookahead, neighbours_of(worker, self.crossings), grid)

    def partition(self, worker: int) -> Partition:
        """One worker's devices, built."""
        blocks = cut_into_blocks(self.blueprint, self.assignment, worker, self.block)
        kernel, outboxes = build_kernel(self.blueprint, self.assignment, worker, blocks, self.trains)
        ports = [
            len(self.topology.ports(device)) if host == worker else -1
            for device, host in enumerate(self.assignment)
        ]
        fabric = [
            sum(end.kind == FABRIC for end in self.topology.ports(device)) if host == worker else -1
            for device, host in enumerate(self.assignment)
        ]
        nics = [len(self.topology.prefix_nics(prefix)) for prefix in range(self.topology.prefixes)]
        mtu_bytes = max(one.mtu_bytes for one in self.scenario.transports)
        telemetry = max(one.congestion_control.telemetry_bytes for one in self.scenario.transports)
        loaded = self.scenario.payload == "real"
        reader = BatchReader(ports, int(MANAGEMENT_PORT), mtu_bytes, telemetry, fabric, nics, loaded)
        partition = Partition(worker, kernel, outboxes, reader)
        partition.miscabled = miscabled(self.scenario)
        return partition

    def names_of(self, worker: int) -> tuple[str, ...]:
        """The names of the devices that a worker hosts, in device order."""
        nodes = self.topology.nodes
        return tuple(nodes[device].name for device, host in enumerate(self.assignment) if host == worker)


def spread(
    blueprint: Blueprint,
    workers: int,
    placement: Placement = "packed",
    moves: Sequence[tuple[int, int]] = (),
    block: int | None = None,
    trains: bool = True,
) -> RunPlan:
    """Spread a run over workers; `moves` are (device, worker) and come last. `block` is NICs in a block.

    Raises UsageError if there are more workers than devices.
    """
    planned = traffic_of(blueprint, workers, placement)
    assignment = assign(blueprint.topology, workers, placement, planned=planned)
    if moves:
        moved = dict(moves)
        assignment = tuple(moved.get(device, worker) for device, worker in enumerate(assignment))
    ways = [*crossings(blueprint, assignment), *_announcements(blueprint, assignment)]
    lookahead = close_lookaheads(workers_of(assignment), ways)
    rows = tuple(tuple(row) for row in lookahead)
    return RunPlan(blueprint, assignment, tuple(ways), rows, tuple(moves), block, trains)


def _announcements(blueprint: Blueprint, assignment: Assignment) -> list[Crossing]:
    """The announced end reaches every worker, also one without a host, after the management delay."""
    centre = assignment[blueprint.topology.controller]
    delay_ps = blueprint.scenario.control.management_delay_ps
    return [
        Crossing(centre, worker, delay_ps) for worker in range(workers_of(assignment)) if worker != centre
    ]
