"""A Ray cluster of three nodes on this machine, and one run on it: run as a program by `test_three_nodes`.

Three raylets, each with a CPU, so that each gets a worker; on the last the packet path runs interpreted. Each
worker has hashes of its own, and all stumble while they run. Somebody else has a CPU until the run says that
it waits for one. Prints a line of JSON: what was found.
"""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from ray.cluster_utils import Cluster

from actors.kernel.mixing import Stream
from emu.base.errors import EmuError
from emu.engine.outcome import Observer, RunOptions, WorkerRecord
from emu.launch import run_scenario
from tests.engine.patience import PATIENCE_S, until
from tests.engine.spread_runs import plan_of
from tests.engine.stumbling import stumbling
from tests.system.ray_program import default_address, place_of_nodes


class Stumblers(Observer):
    """Has the workers stumble from before they begin until the run is over; `relieved` once it says that it
    waits."""

    def __init__(self, relieved: Callable[[], object]) -> None:
        self.ended = ExitStack()
        self._relieved = relieved
        self.stumbled: list[int] = []
        self.notes: list[str] = []

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        pids = [worker.pid for worker in workers]
        self.stumbled = self.ended.enter_context(stumbling(pids, Stream(3, 1, 5)))
        until(lambda: self.stumbled)

    def noted(self, line: str) -> None:
        self.notes.append(line)
        self._relieved()


class Other:
    """Has a CPU."""

    def there(self) -> None:
        """Answers once it has."""


def refusals(cluster: Cluster, common: dict[str, Any], directory: str) -> list[str]:
    """What is told of nodes that run other sources, and of one on which something is not installed."""

    def refusal(workers: int) -> str:
        options = RunOptions(address=cluster.address, sockets="tcp", metrics=False, workers=workers)
        try:
            return run_scenario(plan.scenario, plan.topology, options).ending
        except EmuError as error:
            return str(error)

    plan = plan_of("tiny_flap", 1)
    with patch("emu.cluster.workers.worker_group.edition", lambda: "another"):
        of_another = refusal(3)
    lacking = Path(directory, "lacking")
    lacking.mkdir()
    (lacking / "trio.py").write_text("raise ModuleNotFoundError('No module named trio')\n", encoding="utf-8")
    add(cluster, common, "bare", PYTHONPATH=str(lacking))
    return [of_another, refusal(4)]


def add(cluster: Cluster, common: dict[str, Any], name: str, **environment: str) -> None:
    """One node more."""
    cluster.add_node(**common, node_name=name, env_vars=environment, wait=False)
    cluster.wait_for_nodes(PATIENCE_S)


def main() -> None:
    warnings.simplefilter("ignore")
    with place_of_nodes() as directory:
        common: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        cluster = Cluster(
            initialize_head=True, head_node_args={**common, "temp_dir": directory, "node_name": "first"}
        )
        its_own = default_address() == cluster.address
        try:
            add(cluster, common, "second", PYTHONHASHSEED="2")
            add(cluster, common, "third", PYTHONHASHSEED="3", EMU_INTERPRETED="1")
            os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "3"
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            other: Any = ray.remote(num_cpus=1)(Other).remote()
            ray.get(other.there.remote())
            until(lambda: ray.available_resources().get("CPU") == 2)  # type: ignore[no-untyped-call]
            plan = plan_of("tiny_flap", 1)
            options = RunOptions(
                address=cluster.address, sockets="tcp", metrics=False, pins=("nic-0-0=third",)
            )
            stumblers = Stumblers(lambda: ray.kill(other))
            # What a run tells after 10 s without a worker, this one tells at once.
            with stumblers.ended, patch("emu.cluster.workers.worker_group.PATIENCE_S", 0.0):
                outcome = run_scenario(plan.scenario, plan.topology, options, stumblers)
            alone = run_scenario(plan.scenario, plan.topology, RunOptions(local=True, metrics=False))
            refused = refusals(cluster, common, directory)
        finally:
            ray.shutdown()
            cluster.shutdown()  # type: ignore[no-untyped-call]
    found = {
        "its_own": its_own,
        "ending": outcome.ending,
        "agree": outcome.digest == alone.digest,
        "nodes": len({worker.ray_node for worker in outcome.workers}),
        "stumbled": len(set(stumblers.stumbled)),
        "refused": refused,
        "notes": stumblers.notes,
        "workers": [[worker.compiled, list(worker.devices)] for worker in outcome.workers],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
