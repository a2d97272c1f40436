"""How does a run come before `emu.diagnosis`, at its end or years later?

Here the scenario's faults are taken out, and the fabric is built as it was meant to be, so that a diagnosis
sees what an operator sees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from actors.ncclx.listing import job_plans
from actors.runtime.outcome import Outcome
from actors.runtime.plan import blueprint_of
from emu.diagnosis.moves import Moves
from emu.diagnosis.verdict import diagnose
from emu.diagnosis.view import View
from emu.errors import UsageError
from emu.kernel.device import Series
from emu.measure.collected import JobPlan
from emu.measure.parting import load_run
from emu.measure.samples import SampleReader
from emu.measure.shown import Shown, read_shown, shown_of
from emu.measure.summary import Summary
from emu.measure.summary_diagnosis import Diagnosed
from emu.scenario.fault_links import Miscabling
from emu.scenario.load import load
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.topology.model import Topology


def diagnosed(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    outcome: Outcome,
    moves: Moves,
    summary: Summary,
) -> list[Diagnosed]:
    """What a run suffered from, at its end; nothing of one that did not come to it. `topology` is the fabric
    as it was run.
    """
    if not outcome.digest:
        return []
    intended = as_intended(scenario)
    if any(isinstance(fault, Miscabling) for fault in scenario.faults):
        topology = build_topology(intended)
    devices = [shown_of(record) for record in outcome.devices]
    series = {record.number: record.series for record in outcome.devices}
    return _diagnosed(intended, topology, plans, summary, devices, moves, series)


def as_intended(scenario: Scenario) -> Scenario:
    """The scenario without what is scripted to go wrong, and what is expected of that."""
    return scenario.model_copy(update={"faults": (), "expect": ()})


def diagnose_directory(path: Path) -> tuple[Summary, list[Diagnosed]]:
    """What the run in a directory suffered from. UsageError if the directory does not hold a whole run."""
    summary = load_run(path).summary
    for name in ("scenario.yaml", "shown.jsonl", "samples.jsonl"):
        if not (path / name).is_file():
            accepted = "accepted: the directory of a run that `emu run` brought to its end"
            raise UsageError(f"{path / name}: not found; {accepted}")
    intended = as_intended(load(path / "scenario.yaml").scenario)
    topology = build_topology(intended)
    plans = job_plans(blueprint_of(intended, topology).plan, topology)
    moves = Moves()
    reader = SampleReader(path / "samples.jsonl")
    with (path / "samples.jsonl").open(encoding="ascii") as lines:
        for text in lines:
            record = json.loads(text)
            if "changed" in record:
                moves.add_record(record)
    devices = read_shown(path / "shown.jsonl")
    return summary, _diagnosed(intended, topology, plans, summary, devices, moves, reader.series)


def _diagnosed(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    summary: Summary,
    devices: Sequence[Shown],
    moves: Moves,
    series: Mapping[int, Sequence[Series]],
) -> list[Diagnosed]:
    seen = summary.model_copy(update={"faults": [], "never_fired": [], "expectations": []})
    return diagnose(View(scenario, topology, plans, seen, devices, moves, series))
