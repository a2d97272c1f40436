"""A sweep over three nodes of a Ray cluster on this machine, one of which is lost half way.

Run as a program by `test_sweep_on_nodes`; prints a line of JSON: what was found. Three raylets with a CPU and
little memory each. The third is killed with all that it started once ten rows are there.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from emu.api import run_prepared
from emu.api import sweep as sweep_here
from emu.base.side_by_side import Ended
from emu.cluster.ray.tasks import AGAIN
from emu.many_runs import Machines, each_as_it_ends
from emu.sweeps.kept_rows import KeptRows
from emu.sweeps.subjects import Asked, scenario_subject
from emu.sweeps.sweep_table import SweepTable
from emu.sweeps.sweeping import Heard, Progress, Sweep, Values, plan_of
from tests.engine.patience import PATIENCE_S, until
from tests.system.ray_program import place_of_nodes

MEMORY_BYTES = 64 << 20
SMALL: dict[str, object] = {
    "name": "small",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 2},
    "jobs": [
        {"name": "one", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "64KiB"}]}}
    ],
}
SIZE = "jobs[0].workload.flows[0].size"
LARGE = {"kind": "ai_zone", "racks": 64, "hosts_per_rack": 32, "gpus_per_host": 1, "spines": 2}
PLACES = ("jobs.one.end_ps", "drops.total")


def worked_out(item: str) -> str:
    """What a node is asked of an item."""
    if item == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    assert item != "asserts", "no such item"
    return item.upper()


def ends(address: str) -> dict[str, list[object]]:
    """How items end that are worked out on the cluster."""
    items = ["one", "dies", "asserts", "two"]
    found: list[Ended] = list(each_as_it_ends(Machines(address=address), worked_out, items))
    return {items[one.number]: [one.answer, str(one.failure).partition("\n")[0], one.lost] for one in found}


def main() -> None:
    warnings.simplefilter("ignore")
    with place_of_nodes() as directory, tempfile.TemporaryDirectory() as out:
        common: dict[str, Any] = {
            "num_cpus": 1,
            "object_store_memory": 80 << 20,
            "include_dashboard": False,
            "memory": MEMORY_BYTES,
        }
        cluster = Cluster(
            initialize_head=True, head_node_args={**common, "temp_dir": directory, "node_name": "first"}
        )
        try:
            nodes = [cluster.add_node(**common, node_name=name, wait=False) for name in ("second", "third")]
            cluster.wait_for_nodes(PATIENCE_S)
            os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "3"
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            subject = scenario_subject(SMALL)
            axes = [Values.given(SIZE, ["64KiB", "16KiB"])]
            plan = plan_of(subject, axes, 10, PLACES, "", no_expect=False)
            heard: list[Progress] = []

            def progressed(progress: Progress) -> None:
                heard.append(progress)
                if progress.done == 10:
                    cluster.remove_node(nodes[1], allow_graceful=False)

            machines, place = Machines(address=cluster.address), Path(out) / "kept"
            asked = Asked(run_prepared, PLACES, place, force=True)
            kept = KeptRows.begun(place, plan, force=False)
            sweep = Sweep(subject, asked, axes, 10, machines, kept, Heard(progress=progressed))
            table = SweepTable((SIZE,), PLACES, tuple(sweep.rows()), 10)
            kept.close()
            here = sweep_here(SMALL, {SIZE: ["64KiB", "16KiB"]}, PLACES, seeds=10, at_once=1).table
            until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)  # type: ignore[no-untyped-call]
            large = scenario_subject({**SMALL, "topology": LARGE})
            refused = list(Sweep(large, Asked(run_prepared, PLACES), machines=machines).rows())
            found = {
                "equal": table.csv_text() == here.csv_text(),
                "rows": len(table.rows),
                "last": list(heard[-1]),
                "kept": len(list(place.glob("run-*/summary.json"))),
                "lines": len((place / "rows.jsonl").read_text("utf-8").splitlines()),
                "refused": [[row.exit_status, row.message] for row in refused],
                "ends": ends(cluster.address),
                "again": AGAIN,
            }
        finally:
            ray.shutdown()
            cluster.shutdown()  # type: ignore[no-untyped-call]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
