"""A scenario's real devices spread over parts of this process, with what the tests want to do on the way.

As a program, it goes on from a snapshot in a fresh interpreter:

    python -m tests.runtime.spread_runs SCENARIO SNAPSHOT PARTS [OVERRIDE=VALUE...]

prints the digest.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from actors.runtime.local import InProcess
from actors.runtime.outcome import Ending
from actors.runtime.participant import Participant, records_of
from actors.runtime.plan import RunPlan, blueprint_of, spread
from actors.runtime.snapshot import Snapshot, fingerprint, from_bytes, resume, take_snapshot
from actors.runtime.sync import SyncPoint
from emu.measure.digest import run_digest
from emu.scenario.load import load
from emu.scenario.overrides import override_with
from emu.scenario.resolve import build_topology

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))

WHOLE = bool(os.environ.get("EMU_SOAK"))
SMALLER: Mapping[str, Mapping[str, object]] = {
    "all_gather": {"jobs[0].workload.sizes": ["256KiB"]},
    "incast": {"jobs[0].workload.size": "1MiB"},
    "permutation": {"jobs[0].workload.size": "512KiB"},
    "quickstart": {"jobs[0].workload.sizes": ["256KiB"]},
    "reduce_scatter": {"jobs[0].workload.sizes": ["256KiB"]},
}
"""What the tests change in scenarios that are large: interpreted, the quickstart as it is takes a minute."""


def plan_of(name: str, parts: int, overrides: Mapping[str, object] | None = None) -> RunPlan:
    """A scenario of `scenarios/`, made smaller, spread over parts."""
    changes = ({} if WHOLE else dict(SMALLER.get(name, {}))) | dict(overrides or {})
    path = ROOT / "scenarios" / f"{name}.yaml"
    scenario = load(path, [override_with(key, value) for key, value in changes.items()]).scenario
    return spread(blueprint_of(scenario, build_topology(scenario)), parts)


class SpreadRun:
    """One run over the parts of a plan; `seed` draws the delays between them."""

    def __init__(self, plan: RunPlan, seed: int = 1) -> None:
        self.plan = plan
        self.seed = seed
        self.snapshot: Snapshot | None = None
        self._acting = 0
        self.participants = [
            Participant(plan.partition(part), plan.machine(part), self._act) for part in range(plan.workers)
        ]

    def start(self) -> None:
        for participant in self.participants:
            participant.partition.start()

    def resume(self, snapshot: Snapshot) -> None:
        resume(self.participants, snapshot)

    def snapshot_at(self, time_ps: int) -> None:
        """Take a snapshot at the first possible sync point from then on, and go on."""
        self.participants[0].machine.request_sync(time_ps)

    def run(self, between: Callable[[], bool] = lambda: True) -> Ending | None:
        return InProcess(self.participants, self.seed, between).run()

    def digest(self) -> str:
        return run_digest(record for one in self.participants for record in records_of(one.partition))

    def _act(self, sync: SyncPoint) -> None:
        if not sync.requested:
            return
        self._acting += 1
        # Parts act one after the other, and none runs before all have: the last one sees everyone's state.
        if self._acting == len(self.participants):
            self.snapshot = take_snapshot(self.participants, fingerprint(self.plan.scenario))


def main(name: str, file: str, parts: str) -> None:
    """Go on from a snapshot and print the digest."""
    plan = plan_of(name, int(parts))
    run = SpreadRun(plan, seed=int(parts))
    run.resume(from_bytes(Path(file).read_bytes(), fingerprint(plan.scenario)))
    assert run.run() in (Ending.FINISHED, Ending.STALLED)
    sys.stdout.write(run.digest() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
