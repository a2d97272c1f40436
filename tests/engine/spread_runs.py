"""A scenario's real devices spread over parts of this process, with what the tests want to do on the way.

As a program, it goes on from snapshots in a fresh interpreter:

    python -m tests.engine.spread_runs SCENARIO:PARTS:SNAPSHOT...

prints each scenario's name and digest.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from emu import api
from emu.counts.digest import run_digest
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import RunPlan, spread
from emu.engine.in_process import InProcess
from emu.engine.live.changes import Changes, all_of
from emu.engine.outcome import Ending
from emu.engine.recovery.snapshots import Snapshot, fingerprint, from_bytes, resume, take_snapshot, to_bytes
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.engine.sync.sync_points import SyncPoint
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from tests.scenarios_run.small import brief, smaller

ENDINGS = (Ending.FINISHED, Ending.STALLED, Ending.TIME_LIMIT)
"""How a scenario may end when it is made brief."""


def plan_of(
    name: str,
    parts: int,
    overrides: Mapping[str, object] | None = None,
    block: int | None = None,
    *,
    trains: bool = True,
) -> RunPlan:
    """A scenario of `scenarios/`, made smaller, spread over parts, each in blocks of so many NICs."""
    changes = smaller(name) | dict(overrides or {})
    scenario = api.load(name, changes).scenario
    return spread(blueprint_of(scenario, build_topology(scenario)), parts, block=block, trains=trains)


class SpreadRun:
    """One run over the parts of a plan; `seed` draws the delays between them."""

    def __init__(self, plan: RunPlan, seed: int = 1) -> None:
        self.plan = plan
        self.seed = seed
        self.snapshot: Snapshot | None = None
        self._acting = 0
        self.logical_processes = [self._logical_process(part) for part in range(plan.workers)]

    def start(self) -> None:
        for logical_process in self.logical_processes:
            logical_process.partition.start()

    def resume(self, snapshot: Snapshot) -> None:
        resume(self.logical_processes, snapshot)

    def snapshot_at(self, time_ps: int) -> None:
        """Take a snapshot at the first possible sync point from then on, and go on."""
        self.logical_processes[0].machine.request_sync(time_ps)

    def run(self, between: Callable[[], bool] = lambda: True) -> Ending | None:
        return InProcess(self.logical_processes, self.seed, between).run()

    def digest(self) -> str:
        return run_digest(record for one in self.logical_processes for record in records_of(one.partition))

    def _logical_process(self, part: int) -> LogicalProcess:
        partition, machine = self.plan.partition(part), self.plan.machine(part)
        changes = Changes(self.plan, part, partition, machine, live=False)
        return LogicalProcess(partition, machine, all_of(changes.act, self._act), changes.busiest)

    def _act(self, sync: SyncPoint) -> None:
        if not sync.requested:
            return
        self._acting += 1
        # Parts act one after the other, and none runs before all have: the last one sees everyone's state.
        if self._acting == len(self.logical_processes):
            self.snapshot = take_snapshot(self.logical_processes, fingerprint(self.plan.scenario))


def between_racks(flows: Sequence[Mapping[str, object]], *, trains: bool, ack_every: int = 1) -> SpreadRun:
    """A run to its end of flows between two hosts, each in a rack of its own, and nothing else: four links of
    400G and 500 ns from one to the other."""
    source = {
        "name": "between_racks",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 1},
        "switch": {"latency": "0s"},
        "nic": {"latency": "0s"},
        "transport": {"ack_every": ack_every},
        "run": {"sample_every": "1s"},
        "jobs": [{"name": "flows", "workload": {"kind": "flows", "flows": list(flows)}}],
    }
    whole = load_mapping(source).scenario
    run = SpreadRun(spread(blueprint_of(whole, build_topology(whole)), 1, trains=trains))
    run.start()
    assert run.run() in ENDINGS
    return run


def in_queue(run: SpreadRun) -> int:
    """How many events went through the queue."""
    return sum(int(one.partition.kernel.events) for one in run.logical_processes)


def seen(run: SpreadRun) -> tuple[str, object, list[int], bytes]:
    """What a run leaves: digest, counters, how many events each device executed, and a snapshot."""
    assert run.snapshot is not None
    devices = [device for one in run.logical_processes for device in one.partition.devices]
    counters = [
        {device.number: tuple(device.counters()) for device in one.partition.devices}
        for one in run.logical_processes
    ]
    return run.digest(), counters, [int(device.executed) for device in devices], to_bytes(run.snapshot)


def main(snapshot: str) -> None:
    """Go on from a snapshot and print the scenario's name and digest."""
    name, parts, file = snapshot.split(":", 2)
    plan = plan_of(name, int(parts), brief(name))
    run = SpreadRun(plan, seed=int(parts))
    run.resume(from_bytes(Path(file).read_bytes(), fingerprint(plan.scenario)))
    assert run.run() in ENDINGS
    sys.stdout.write(f"{name} {run.digest()}\n")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
