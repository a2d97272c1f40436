"""Does a command load no more than it needs?

Each runs in a process of its own, and says at its end which modules it has.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tracked import ROOT

MODULES_OF = """
import json, sys
from emu.cli.main import main
status = main(sys.argv[2:])
with open(sys.argv[1], "w") as out:
    json.dump([status, sorted(sys.modules)], out)
"""
FOREIGN = {"ray", "trio", "numpy", "asyncio", "multiprocessing", "rich"}
"""Packages that take long to import, and that none of these commands needs."""
RUNNING = {
    "emu.api",
    "emu.launch",
    "emu.cluster.workers.idle_workers",
    "emu.cluster.pages.metrics_page",
    "http",
}
"""What only a run needs."""
READING = {"emu.scenario.schema", "yaml"}
"""What only a scenario needs."""
RARE = {
    "concurrent.futures",
    "difflib",
    "html",
    "logging",
    "pickle",
    "xml.etree",
    "emu.summary.junit",
    "emu.views.captures.pcapng",
    "emu.views.reports.summary_html",
    "emu.resume",
    "emu.cluster.ray.session",
    "emu.engine.live.open_run",
    "emu.scenario.readers.msccl",
    "emu.scenario.readers.topology_files",
    "emu.scenario.readers.tuner_table",
    "emu.scenario.readers.workload_files",
    "emu.scenario.sections.fabrics_large",
    "emu.scenario.sections.fabrics_own",
    "emu.scenario.sections.fabrics_textbook",
}
"""What a run needs that fails, or that reads files of other tools, or has another fabric than the usual."""
RATES = {"actors.flow", "emu.flow"}
"""Rooms of flow level."""
BUILT = {
    "emu.devices.devices",
    "emu.views.diagnosis",
    "emu.summary",
    "emu.engine",
    "emu.scenario.live_changes",
}
"""Rooms and modules that nothing needs but what builds devices, and what comes after."""
APART = {
    "emu.doors",
    "emu.views.captures",
    "emu.views.dashboard",
    "emu.views.perfetto",
    "emu.views.reports.page",
    "actors.optional.cubic",
    "actors.optional.engineered",
    "actors.optional.flowlet",
    "actors.optional.hpcc",
    "actors.optional.hybrid",
    "actors.optional.spray",
    "actors.optional.swift",
    "actors.optional.tcp",
    "actors.optional.tcp_window",
}
"""Doors, views and mechanisms that a plain RoCE fabric does without."""
QUICKSTART = "scenarios/start/quickstart.yaml"


def modules_of(tmp_path: Path, *arguments: str, status: int = 0) -> set[str]:
    """The modules that are loaded after a command, which ends with this status."""
    out = tmp_path / "modules.json"
    subprocess.run(
        [sys.executable, "-c", MODULES_OF, str(out), *arguments],
        cwd=ROOT,
        env={**os.environ, "TERM": "dumb"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    ended, modules = json.loads(out.read_text())
    assert ended == status, (arguments, ended)
    return set(modules)


def below(modules: set[str], rooms: set[str]) -> list[str]:
    """Which of the modules are one of these, or in one of these rooms."""
    return sorted(one for one in modules if any(f"{one}.".startswith(f"{room}.") for room in rooms))


def test_what_is_not_to_be_loaded_exists() -> None:
    every = FOREIGN | RUNNING | READING | RARE | RATES | BUILT | APART
    gone = [name for name in sorted(every) if importlib.util.find_spec(name) is None]
    assert gone == []


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], FOREIGN | RUNNING | READING),
        (["--version"], FOREIGN | RUNNING | READING),
        (["list"], FOREIGN | RUNNING),
        (["validate", QUICKSTART], FOREIGN | RUNNING | RARE | RATES | BUILT | {"subprocess"}),
        (["topo", QUICKSTART], FOREIGN | RUNNING | RATES),
        (["fault", "kinds"], FOREIGN | RUNNING | {"emu.scenario.schema"}),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_a_command_that_runs_nothing_loads_nothing_of_a_run(
    arguments: list[str], unwanted: set[str], tmp_path: Path
) -> None:
    assert below(modules_of(tmp_path, *arguments), unwanted) == []


def test_breaking_a_run_needs_no_scenario(tmp_path: Path) -> None:
    modules = modules_of(tmp_path, "fault", "inject", str(tmp_path), "link_down", "a:b", status=2)
    assert modules & (FOREIGN | RUNNING | {"emu.scenario.schema", "emu.scenario.faults.kinds"}) == set()


def test_a_run_in_packets_that_ends_well_loads_nothing_of_others(tmp_path: Path) -> None:
    arguments = ["run", "scenarios/start/tiny_all_reduce.yaml", "--local", "--out", str(tmp_path / "out")]
    modules = modules_of(tmp_path, *arguments)
    assert below(modules, FOREIGN | RARE | RATES | {"prometheus_client"}) == []
    ours = below(modules, {"emu", "actors"})
    sys.stdout.write(f"{len(ours)} modules of emu in a run of four hosts\n")
    assert below(modules, APART) == []
