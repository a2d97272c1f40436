"""A Ray cluster of three nodes on this machine, and one run on it: run as a program by `test_three_nodes`.

Three raylets, each with a CPU, so that each gets a worker; on the last the packet path runs interpreted.
Prints a line of JSON: what was found.
"""

import json
import os
import sys
import tempfile
import warnings
from typing import Any

from ray.cluster_utils import Cluster

from actors.runtime.launch import run_scenario
from actors.runtime.outcome import RunOptions
from tests.runtime.spread_runs import plan_of


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="emu-", dir="/tmp") as directory:
        common: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        cluster = Cluster(
            initialize_head=True, head_node_args={**common, "temp_dir": directory, "node_name": "first"}
        )
        try:
            cluster.add_node(**common, node_name="second")
            cluster.add_node(**common, node_name="third", env_vars={"EMU_INTERPRETED": "1"})
            os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "3"
            plan = plan_of("tiny_flap", 1)
            options = RunOptions(
                address=cluster.address, sockets="tcp", metrics=False, pins=("nic-0-0=third",)
            )
            outcome = run_scenario(plan.scenario, plan.topology, options)
            alone = run_scenario(plan.scenario, plan.topology, RunOptions(local=True, metrics=False))
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]
    found = {
        "ending": outcome.ending,
        "agree": outcome.digest == alone.digest,
        "nodes": len({worker.ray_node for worker in outcome.workers}),
        "workers": [[worker.compiled, list(worker.devices)] for worker in outcome.workers],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
