"""A Ray cluster of three nodes on this machine that loses two of them under one run.

Run as a program by `test_lost_node`; prints a line of JSON: what was found. Three raylets, the coordinator's
without a CPU. Each is killed with every process that it started:

* at a third of the run, once a snapshot counts, the third; a share of each on disk is spoilt as well;
* at two thirds, the second, which has the copies of the snapshots: then no node has a CPU, until the run says
  that it waits for one, and gets one.

Then another run loses the head of the cluster, and a worker, which can be replaced no more.
"""

import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from emu.base.errors import RuntimeFailure
from emu.counts.collected import Changed
from emu.engine.outcome import Observer, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from tests.engine.patience import children_of
from tests.engine.spread_runs import plan_of

PACED_S = 4
SLOWED_S = 0.5


class Witness(Observer):
    """Does harm at virtual times, and notes what is heard of the run.

    Until it is `ripe` for harm that is due it looks rarely; the run, which waits for it, hardly moves then.
    """

    def __init__(
        self,
        has_impact: Sequence[tuple[int, Callable[[], None]]],
        relief: Callable[[], object],
        ripe: Callable[[], bool] = lambda: True,
    ) -> None:
        self.nodes: list[list[str]] = []
        self.pids: list[int] = []
        self.samples: list[int] = []
        self.notes: list[str] = []
        self.took_s: list[float] = []
        self._damages = list(has_impact)
        self._relief = relief
        self._ripe = ripe
        self._harmed_s = 0.0

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.pids = [worker.pid for worker in workers]
        if ray.is_initialized():
            names = {one["NodeID"]: one["NodeName"] for one in ray.nodes()}  # type: ignore[no-untyped-call]
            self.nodes.append([names[worker.ray_node] for worker in workers])
        if self._harmed_s:
            self.took_s.append(round(time.monotonic() - self._harmed_s, 1))

    def progressed(self, progress: Progress) -> None:
        if not self._damages or progress.virtual_ps < self._damages[0][0]:
            return
        if not self._ripe():
            time.sleep(SLOWED_S)
        else:
            _, damage = self._damages.pop(0)
            self._harmed_s = time.monotonic()
            damage()

    def sampled(self, sample: Changed, digests: object) -> None:
        self.samples.append(sample.virtual_ps)

    def noted(self, line: str) -> None:
        self.notes.append(line)
        if "the run waits" in line:
            self._relief()


def kill(raylet: int) -> None:
    """Kill a raylet and every process that it started."""
    for pid in [raylet, *children_of(raylet)]:
        with suppress(ProcessLookupError):  # Ray ends idle workers by itself
            os.kill(pid, signal.SIGKILL)


def spoil(snapshots: Path) -> None:
    """Change a byte of a share of every snapshot that counts."""
    for whole in snapshots.glob("*/whole"):
        share = whole.with_name("worker-0")
        content = bytearray(share.read_bytes())
        content[len(content) // 2] ^= 1
        share.write_bytes(content)


def main() -> None:
    """Run a scenario alone, and then on the cluster that loses nodes."""
    warnings.simplefilter("ignore")
    plan = plan_of("incast", 1)
    quiet = Witness((), lambda: None)
    alone = run_scenario(plan.scenario, plan.topology, RunOptions(local=True, metrics=False), quiet)
    end_ps = alone.virtual_ps
    with tempfile.TemporaryDirectory(prefix="emu-", dir="/tmp") as directory:
        common: dict[str, Any] = {"object_store_memory": 80 << 20, "include_dashboard": False}
        head = {**common, "num_cpus": 0, "temp_dir": directory, "node_name": "first"}
        cluster = Cluster(initialize_head=True, head_node_args=head)

        def add(name: str) -> int:
            node = cluster.add_node(**common, num_cpus=1, node_name=name, wait=False)
            return int(node.all_processes["raylet"][0].process.pid)

        try:
            second, third = add("second"), add("third")
            cluster.wait_for_nodes(timeout=300)
            os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "3"
            options = RunOptions(
                address=cluster.address,
                sockets="tcp",
                metrics=False,
                directory=Path(directory),
                progress_every_s=0.02,
                snapshot_every_s=0.2,
                pace_ps=end_ps // PACED_S,
            )

            snapshots = Path(directory) / "snapshots"

            def first_damage() -> None:
                spoil(snapshots)
                kill(third)

            has_impact = [(end_ps // 3, first_damage), (end_ps * 2 // 3, lambda: kill(second))]
            witness = Witness(has_impact, lambda: add("fourth"), lambda: any(snapshots.glob("*/whole")))
            outcome = run_scenario(plan.scenario, plan.topology, options, witness)
            lead: Any = cluster.head_node
            (head,) = lead.all_processes["gcs_server"]

            def behead() -> None:
                os.kill(head.process.pid, signal.SIGKILL)
                os.kill(last.pids[0], signal.SIGKILL)

            last = Witness([(end_ps // 3, behead)], lambda: None)
            headless = ""
            try:
                run_scenario(plan.scenario, plan.topology, options._replace(directory=None), last)
            except RuntimeFailure as error:
                headless = str(error)
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]
    found = {
        "ending": outcome.ending,
        "message": outcome.message,
        "agree": outcome.digest == alone.digest,
        "samples": witness.samples == quiet.samples,
        "recoveries": outcome.engine.recoveries,
        "nodes": witness.nodes,
        "took_s": witness.took_s,
        "notes": witness.notes,
        "headless": headless,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
