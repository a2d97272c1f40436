"""What a user waits for: whole commands, from the start of Python to the last file that is written.

`emu bench` times the engine alone, which of a short run is the smaller part. Here each run is
`emu run FILE --local`, and CPU time and memory are those of its process and all that it started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from emu.base.errors import RuntimeFailure
from emu.cli.bench.cases import HOSTS_PER_LEAF, SPINES

WHOLE_POD_HOSTS: Final = 3072
CLUSTER_PODS: Final = 8
"""Pods of Llama 3's cluster: 24,576 GPUs."""


Scenario = Callable[[], dict[str, Any]]
"""Makes a scenario as a mapping with the keys of YAML."""


class WholeCase(NamedTuple):
    """One command: what it is, and the scenario that it runs, as a mapping with the keys of YAML."""

    name: str
    title: str
    scenario: Scenario | None = None
    """None: the scenario `shipped`."""
    shipped: str = ""


class Waited(NamedTuple):
    """One run of one case."""

    cpu_s: float
    wall_s: float
    engine_cpu_s: float
    """CPU time of the run alone: without start, plan, building and results."""
    peak_rss_bytes: int
    packet_hops: int
    digest: str


def _file(hosts: int, workload: Mapping[str, Any], sections: Mapping[str, Any] | None = None) -> Scenario:
    """What a user writes: a fabric and a job, and all else by default."""

    def made() -> dict[str, Any]:
        return {
            "name": f"{workload['kind']}-{hosts}",
            "topology": {
                "kind": "ai_zone",
                "racks": hosts // HOSTS_PER_LEAF,
                "hosts_per_rack": HOSTS_PER_LEAF,
                "gpus_per_host": 1,
                "spines": SPINES,
            },
            **(sections or {}),
            "jobs": [{"name": "all", "workload": dict(workload)}],
        }

    return made


def _permutation(hosts: int, size: str, sections: Mapping[str, Any] | None = None) -> Scenario:
    return _file(hosts, {"kind": "permutation", "size": size}, sections)


def _idle() -> dict[str, Any]:
    flow = {"src": 0, "dst": 1, "size": "64KiB"}
    return {
        "name": "idle-24576",
        "topology": {"kind": "llama3", "pods": CLUSTER_PODS},
        "jobs": [{"name": "one", "ranks": 2, "workload": {"kind": "flows", "flows": [flow]}}],
    }


WHOLE: Final = {
    case.name: case
    for case in (
        WholeCase("tiny", "tiny_all_reduce, as it is shipped", shipped="tiny_all_reduce"),
        WholeCase("perm-64-whole", "64-host permutation of 8MiB", _permutation(64, "8MiB")),
        WholeCase(
            "incast-16-whole",
            "16:1 incast of 16MiB",
            _file(64, {"kind": "incast", "fan_in": 16, "destination": 0, "size": "16MiB"}),
        ),
        WholeCase(
            "perm-1024-whole",
            "1,024-host permutation of 2MiB",
            _permutation(1024, "2MiB", {"switch": {"buffer": {"pool": "256MB"}}}),
        ),
        WholeCase(
            "perm-3072-whole",
            "3,072-host permutation of 512KiB",
            _permutation(WHOLE_POD_HOSTS, "512KiB"),
        ),
        WholeCase("idle-24576", "one flow of 64KiB on Llama 3's 24,576 GPUs", _idle),
    )
}
"""By name, in the order in which they are run."""


def wait_for(case: WholeCase) -> Waited:
    """Run one case and wait for it. RuntimeFailure if it fails."""
    with TemporaryDirectory(prefix="emu-bench-") as place:
        out = Path(place, "run")
        if case.scenario is None:
            path = case.shipped
        else:
            path = os.path.join(place, f"{case.name}.yaml")  # noqa: PTH118 - an argument of a command
            Path(path).write_text(json.dumps(case.scenario()), encoding="utf-8")  # which is YAML
        command_line = [sys.executable, "-m", "emu.cli.main", "run", path, "--local", "--out", str(out)]
        begun_s = time.perf_counter()
        with subprocess.Popen(  # noqa: S603 - this interpreter, a module of this package
            command_line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - begun_s
        if process.returncode != 0:
            raise RuntimeFailure(f"bench {case.name}: `emu run` ended with status {process.returncode}")
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return Waited(
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=wall_s,
        engine_cpu_s=summary["engine"]["cpu_s"],
        peak_rss_bytes=used.ru_maxrss * 1024,
        packet_hops=summary["engine"]["packet_hops"],
        digest=summary["digest"],
    )
