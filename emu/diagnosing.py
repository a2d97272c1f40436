"""How does a run come before `emu.diagnosis`, at its end or years later?

Here the scenario's faults are taken out, and the fabric is built as it was meant to be, so that a diagnosis
sees what an operator sees. Where it takes that to tell whether something mattered, the intended fabric is
emulated as well: the measure that `emu.diagnosis.reference` compares with. It is kept in the summary, so that
a run directory that is read later says the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from actors.ncclx.listing import job_plans
from actors.runtime.launch import run_scenario
from actors.runtime.outcome import Ending, Outcome, RunOptions
from actors.runtime.plan import blueprint_of
from emu.diagnosis.balance import loads_of
from emu.diagnosis.moves import Moves
from emu.diagnosis.reference import time_of
from emu.diagnosis.verdict import diagnose, undecided
from emu.diagnosis.view import View, alarmed
from emu.errors import UsageError
from emu.kernel.device import Series
from emu.measure.collected import Counts, JobPlan
from emu.measure.fabric import other_group_rows, uplink_rows
from emu.measure.jobs import job_rows
from emu.measure.parting import load_run
from emu.measure.samples import SampleReader
from emu.measure.shown import Shown, read_shown, shown_of
from emu.measure.summary import Summary
from emu.measure.summary_diagnosis import Diagnosed, Reference
from emu.scenario.fault_links import Miscabling
from emu.scenario.load import load
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.topology.model import Topology

QUIET_S: Final = 3600.0
MOST_EVENTS: Final = 20_000_000
"""A run that executed more is not run again for comparison: some 20 s of compiled code."""


def diagnosed(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    outcome: Outcome,
    moves: Moves,
    live: bool,
    summary: Summary,
) -> tuple[list[Diagnosed], Reference | None]:
    """What a run suffered from, at its end, and what it was compared with; nothing of one that did not come
    to it. `topology` is the fabric as it was run. A `live` run, which ends when somebody says so, is not
    compared.
    """
    if not outcome.digest:
        return [], None
    intended = as_intended(scenario)
    if any(isinstance(fault, Miscabling) for fault in scenario.faults):
        topology = build_topology(intended)
    devices = [shown_of(record) for record in outcome.devices]
    series = {record.number: record.series for record in outcome.devices}
    view = _view(intended, topology, plans, summary, devices, moves, series)
    reference = None
    small = sum(record.executed for record in outcome.devices) <= MOST_EVENTS
    if scenario.faults and small and not live and not scenario.run.repeat and undecided(view):
        reference = reference_of(intended, topology, plans)
    return diagnose(view, reference), reference


def reference_of(intended: Scenario, topology: Topology, plans: Sequence[JobPlan]) -> Reference | None:
    """The same jobs on the intended fabric; None if they came to no end there."""
    options = RunOptions(local=True, metrics=False, progress_every_s=QUIET_S, snapshot_every_s=0.0)
    outcome = run_scenario(intended, topology, options)
    if outcome.ending is not Ending.FINISHED:
        return None
    jobs, counts = job_rows(plans, outcome.devices), Counts(outcome.devices)
    times = {name: time_of(job) for name, job in jobs.items()}
    return Reference(
        jobs={name: time_ps for name, time_ps in times.items() if time_ps is not None},
        alarms=alarmed([shown_of(record) for record in outcome.devices]),
        imbalance=loads_of([*uplink_rows(topology, counts), *other_group_rows(topology, counts)]),
    )


def reference_in(path: Path) -> Reference:
    """What the run in a directory came to, for others to be compared with. UsageError as below."""
    summary = load_run(path).summary
    times = {name: time_of(job) for name, job in summary.jobs.items()}
    return Reference(
        jobs={name: time_ps for name, time_ps in times.items() if time_ps is not None},
        alarms=alarmed(read_shown(path / "shown.jsonl")),
        imbalance=loads_of([*summary.fabric.uplinks, *summary.fabric.groups]),
    )


def as_intended(scenario: Scenario) -> Scenario:
    """The scenario without what is scripted to go wrong, and what is expected of that."""
    return scenario.model_copy(update={"faults": (), "expect": ()})


def diagnose_directory(path: Path, baseline: Path | None = None) -> tuple[Summary, list[Diagnosed]]:
    """What the run in a directory suffered from, compared with that in another if there is one. UsageError if
    a directory does not hold a whole run.
    """
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
    view = _view(intended, topology, plans, summary, devices, moves, reader.series)
    reference = summary.reference if baseline is None else reference_in(baseline)
    return summary, diagnose(view, reference)


def _view(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    summary: Summary,
    devices: Sequence[Shown],
    moves: Moves,
    series: Mapping[int, Sequence[Series]],
) -> View:
    unseen: dict[str, list[str]] = {"faults": [], "never_fired": [], "expectations": []}
    return View(scenario, topology, plans, summary.model_copy(update=unseen), devices, moves, series)
