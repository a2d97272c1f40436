"""How a run reaches `emu.views.diagnosis`: at its end, or from its directory years later.

Here the scenario's faults are taken out, and the fabric is built as it was meant to be, so that a diagnosis
sees what an operator sees. Where it takes that to tell whether something mattered, the intended fabric is
emulated as well: the measure that `emu.views.diagnosis.impact` compares with. It is kept in the summary, so
that a run directory that is read later says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.counters import PORT_TRANSMIT_PAYLOAD_BYTES
from actors.kernel.device import Series
from actors.kernel.event import NEVER_PS
from emu.base.errors import UsageError
from emu.base.foreseen import Foreseen
from emu.counts.collected import JobPlan
from emu.counts.counts import Counts
from emu.counts.device_state import Shown, read_shown, shown_of, tables_of
from emu.devices.buffer_sizes import headroom_foreseen, late_marking_foreseen
from emu.devices.drawing import blueprint_of
from emu.devices.job_plans import job_plans
from emu.devices.nics import receive_foreseen
from emu.engine.outcome import Ending, Outcome
from emu.results.summary import Counterfactual, Diagnosed, Judged, Reference, Summary
from emu.run_directory.comparison import load_summary
from emu.run_directory.samples import SampleReader
from emu.scenario.fault_schedule import MeasuredTargets, miscabled
from emu.scenario.faults.events import Fault
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.scenario.traffic_classes import class_foreseen
from emu.stored_run import StoredRun, stored_run
from emu.summary.fabric import other_group_rows, uplink_rows
from emu.summary.jobs import SUCCESS, job_rows
from emu.views.diagnosis.causes import Compared, broke_off, diagnose, findings, undecided
from emu.views.diagnosis.configuration import changes
from emu.views.diagnosis.finding import MEANT
from emu.views.diagnosis.healing import Emulate, Run
from emu.views.diagnosis.impact import SlowOperation, failed_jobs, loads_of, slow_operations
from emu.views.diagnosis.view import Moves, View, alarmed, cut_of, times_of
from emu.views.repairs.counterfactual import (
    LONGER,
    NONE_MEASURED,
    Counterfactuals,
    Stretch,
    Stretched,
    as_intended,
    emulated,
    stretch_around,
)

MOST_EVENTS: Final = 20_000_000
"""A run that takes more is not run again for comparison: some 20 s of compiled code."""
MOST_EVENTS_LIVE: Final = 4_000_000
"""The same where somebody waits for the end of a live run."""
ROUNDS: Final = 4
"""Rounds of jobs that repeat that are emulated for comparison, at least."""


def diagnosed(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    outcome: Outcome,
    moves: Moves,
    live: bool,
    measured: MeasuredTargets,
    summary: Summary,
    counts: Counts,
) -> Judged:
    """What a run suffered from, at its end, and what it was compared with; nothing of one that did not come
    to it. `topology` is the fabric as it was run, `measured` has the targets of faults on the busiest. Of a
    `live` run somebody waits for the end. `summary` and `counts` are the run's.
    """
    if not outcome.digest:
        return Judged([])
    intended, cabled = as_intended(scenario), topology
    if miscabled(scenario):
        topology = build_topology(intended)
    series = {record.number: record.series for record in outcome.devices if not record.idle}
    if any("silent" in record.shown for record in outcome.devices):  # nobody sees what these have counted
        devices = [shown_of(record) for record in outcome.devices]
        view = _view(intended, topology, plans, summary, devices, moves, series)
    else:
        devices = [Shown(record.number, {}, tables_of(record)) for record in outcome.devices]
        view = _view(intended, topology, plans, summary, devices, moves, series, counts)
    whole = sum(record.executed for record in outcome.devices)
    most = MOST_EVENTS_LIVE if live else MOST_EVENTS
    span_ps = _span_ps(view, whole, most)
    events = whole * min(span_ps or view.end_ps, view.end_ps) // max(view.end_ps, 1)
    suspects = findings(view)
    compares = scenario.faults or any(one.cause in MEANT for one in suspects)
    changed = tuple(changes(view))
    if not suspects or not compares or any(job.attended for job in scenario.jobs):
        return Judged(diagnose(view), changes=changed)
    runs = _runs(scenario, cabled, view, whole, most, measured)
    reference = None
    if scenario.faults and undecided(view) and events <= most:
        reference = reference_of(intended, topology, plans, span_ps, runs)
    stretches: list[Compared] = []
    if whole * (len(suspects) + 1) > most and not broke_off(view):
        stretches = _stretches(scenario, cabled, view, whole, most, measured)
    found = diagnose(view, reference, runs if runs.affordable else None, stretches)
    kept = tuple(runs.kept) + tuple(one for stretch in stretches for one in _kept(stretch))
    if any(one.around and one.healed for one in kept):
        return Judged(found, reference, kept, None, changed)
    uncompared = None
    if scenario.faults and undecided(view) and reference is None:
        uncompared = events
    elif runs.exhausted or not runs.affordable:
        uncompared = runs.events
    return Judged(found, reference, kept, uncompared, changed)


def _runs(
    scenario: Scenario,
    cabled: Topology,
    view: View,
    events: int,
    most: int,
    measured: MeasuredTargets = NONE_MEASURED,
) -> Counterfactuals:
    """The runs that a diagnosis may ask for."""
    end_ps = int(NEVER_PS)
    if scenario.run.repeat:
        end_ps = view.end_ps
    elif broke_off(view):
        end_ps, events = LONGER * view.end_ps, LONGER * events
    own = Counterfactual(healed=[], jobs=view.times(), failed=failed_jobs(view), alarms=view.alarmed())
    return Counterfactuals(
        scenario, cabled, view.plans, own, events, most, end_ps, measured, _loads(view), view.end_ps
    )


def _loads(view: View) -> dict[tuple[int, int], int]:
    """What each fabric port sent."""
    return {
        (node, port): view.total(PORT_TRANSMIT_PAYLOAD_BYTES, node, port)
        for node in view.networked()
        for port, _ in view.fabric_ports(node)
    }


FEWEST_RUNS: Final = 2
"""Runs of a stretch that there has to be room for: with everything that happened, and with one suspect
healed."""
MOST_STRETCHES: Final = 3
"""Slow operations around which a run is compared that is too large to be compared as a whole."""


def _stretches(
    scenario: Scenario,
    cabled: Topology,
    view: View,
    events: int,
    most: int,
    measured: MeasuredTargets,
) -> list[Compared]:
    """Stretches around the slowest operations that are as slow where they are emulated by themselves, as far
    as so many events allow: of several that share them equally, or the first alone.
    """
    chosen = _slowest(view)
    each = [events * stretch.permille // 1000 for _, stretch in chosen]
    share = most // max(len(chosen), 1)
    if each and max(each) * FEWEST_RUNS > share:
        chosen, share = chosen[:1], most
    found: list[Compared] = []
    for (slow, stretch), one in zip(chosen, each, strict=False):
        runs = Stretched(
            scenario, cabled, view.plans, stretch, one, share, measured, _loads(view), view.end_ps
        )
        own = runs(()) if one * FEWEST_RUNS <= share else None
        if own is not None and own.jobs.get(slow.label, 0) >= slow.quick_ps + slow.excess_ps // 2:
            found.append(Compared(slow, _run_of(own), runs))
    return found


def _slowest(view: View) -> list[tuple[SlowOperation, Stretch]]:
    """The slowest operations that did not overlap, and the stretches around them."""
    found: list[tuple[SlowOperation, Stretch]] = []
    for slow in slow_operations(view):
        done = slow.done
        if any(one.done.start_ps < done.end_ps and done.start_ps < one.done.end_ps for one, _ in found):
            continue
        stretch = stretch_around(view, slow)
        if stretch is not None:
            found.append((slow, stretch))
        if len(found) == MOST_STRETCHES:
            break
    return found


def _run_of(own: Counterfactual) -> Run:
    """What a stretch came to with everything that happened."""
    return Run(own.jobs, own.failed, own.alarms, own.under_way, own.until_ps)


def _stored_stretches(view: View, kept: Sequence[Counterfactual]) -> list[Compared]:
    """The stretches whose runs were kept."""
    slow = {one.label: one for one in slow_operations(view)}
    owns = [one for one in kept if one.around in slow and not one.healed and not one.nudge_ns]
    return [Compared(slow[own.around], _run_of(own), _reported_by(kept, own.around)) for own in owns]


def _kept(stretch: Compared) -> list[Counterfactual]:
    assert isinstance(stretch.emulate, Stretched)
    return stretch.emulate.kept


def _span_ps(view: View, events: int, most: int) -> int | None:
    """For how long jobs that repeat are to run for comparison: as long as the run, since a few rounds are no
    measure of the longest of many. Where that takes too many events, as long as those allow, but until each
    has done some rounds, as far as is known when that was. None where jobs do not repeat.
    """
    if not view.scenario.run.repeat:
        return None
    if events <= most:
        return view.end_ps
    ends_ps = [0]
    for plan in view.plans:
        last = ROUNDS * (len(plan.collectives) or 1) - 1
        own = [row for row in view.rows(view.topology.controller, "operations") if row[0] == plan.job]
        ends_ps += [row[3] - (own[0][2] if own[0][1] else 0) for row in own if row[1] == own[0][1] + last]
    rounds_ps = max(ends_ps) + view.scenario.control.management_delay_ps * 2 if any(ends_ps) else view.end_ps
    return min(max(rounds_ps, view.end_ps * most // events), view.end_ps)


def reference_of(
    intended: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    span_ps: int | None = None,
    runs: Counterfactuals | None = None,
) -> Reference | None:
    """The same jobs on the intended fabric; None if they came to no end there. Those that repeat do so for
    `span_ps`. A run that is as long as those of `runs` need not be done again there.
    """
    outcome = emulated(intended, topology, int(NEVER_PS) if span_ps is None else span_ps)
    if outcome.ending is not Ending.FINISHED:
        return None
    if runs is not None and span_ps in (None, runs.end_ps):
        runs.remember(outcome)
    jobs, counts = job_rows(plans, outcome.devices), Counts(outcome.devices)
    operations = [row for record in outcome.devices for row in record.results.get("operations", ())]
    return Reference(
        jobs=times_of(jobs, plans, operations, cut_of(intended, outcome.virtual_ps)),
        alarms=alarmed(counts, (record.shown for record in outcome.devices)),
        imbalance=loads_of([*uplink_rows(topology, counts), *other_group_rows(topology, counts)]),
        span_ps=None if span_ps is None else outcome.virtual_ps,
    )


def alone_times(
    scenario: Scenario, topology: Topology, plans: Sequence[JobPlan], faults: tuple[Fault, ...]
) -> dict[str, int]:
    """How long each job takes by itself that ends well there, with the same queue pairs, paths and faults."""
    found: dict[str, int] = {}
    names = [job.name for job in scenario.jobs if job.enabled]
    for name in names if len(names) > 1 else ():
        jobs = tuple(
            job if job.name == name else job.model_copy(update={"enabled": False}) for job in scenario.jobs
        )
        lone = as_intended(scenario.model_copy(update={"jobs": jobs}))
        plan = next(plan for plan in plans if plan.name == name)
        if scenario.fidelity == "flow":
            from emu.flow.level import run_flow  # noqa: PLC0415 - not of a run in packets

            blueprint = blueprint_of(lone, topology)
            outcome = run_flow(blueprint._replace(resolved=blueprint.resolved._replace(faults=faults)))
        else:
            outcome = emulated(lone, topology, faults=faults)
        job = job_rows([plan], outcome.devices)[name]
        if job.status == SUCCESS and job.start_ps is not None and job.end_ps is not None:
            found[name] = job.end_ps - job.start_ps
    return found


def reference_in(path: Path) -> Reference:
    """What the run in a directory came to, for others to be compared with. UsageError as below."""
    _, view, summary = _view_of(path)
    return Reference(
        jobs=view.times(),
        alarms=view.alarmed(),
        imbalance=loads_of([*summary.fabric.uplinks, *summary.fabric.groups]),
        span_ps=view.end_ps if view.scenario.run.repeat else None,
    )


def diagnose_directory(
    path: Path, baseline: Path | None = None, *, emulate: bool = False
) -> tuple[Summary, list[Diagnosed]]:
    """What the run in a directory suffered from, compared with that in another if there is one, or with the
    intended fabric, emulated now however long that takes. UsageError if a directory does not hold a whole
    run.
    """
    run, view, summary = _view_of(path)
    if summary.fidelity == "flow":
        raise UsageError(f"{path}: a run at flow level has no causes; accepted: one with fidelity: packet")
    reference = summary.reference if baseline is None else reference_in(baseline)
    kept = summary.counterfactuals
    known: Emulate | None = _reported_by(kept) if any(not one.around for one in kept) else None
    stretches = _stored_stretches(view, kept)
    if emulate:
        cabled = build_topology(run.scenario)
        known = _runs(run.scenario, cabled, view, summary.engine.events, int(NEVER_PS), run.measured)
        span_ps = _span_ps(view, summary.engine.events, int(NEVER_PS))
        reference = reference_of(view.scenario, view.topology, view.plans, span_ps)
        stretches = []
    return summary, diagnose(view, reference, known, stretches)


def _reported_by(counterfactuals: Sequence[Counterfactual], around: str = "") -> Emulate:
    """The answers that were kept, of the whole run or of a stretch around an operation."""
    known = {(tuple(one.healed), one.nudge_ns): one for one in counterfactuals if one.around == around}
    return lambda suspects, nudge_ns=0: known.get((tuple(one.key for one in suspects), nudge_ns))


def _view_of(path: Path) -> tuple[StoredRun, View, Summary]:
    """The run in a directory with every live change, what an operator sees of it, and its summary."""
    summary = load_summary(path)
    for name in ("scenario.yaml", "shown.jsonl", "samples.jsonl"):
        if not (path / name).is_file():
            accepted = "accepted: the directory of a run that `emu run` brought to its end"
            raise UsageError(f"{path / name}: not found; {accepted}")
    run = stored_run(path)
    intended = as_intended(run.scenario)
    topology = build_topology(intended)
    plans = job_plans(blueprint_of(intended, topology).plan, topology)
    moves = Moves()
    reader = SampleReader(path / "samples.jsonl")
    for changed in reader.changes():
        moves.add(changed)
    devices = read_shown(path / "shown.jsonl")
    if devices[-1].number != topology.controller:
        raise UsageError(
            f"{path / 'shown.jsonl'}: damaged: ends with device {devices[-1].number}; "
            f"accepted: one that ends with the controller, {topology.controller}"
        )
    return run, _view(intended, topology, plans, summary, devices, moves, reader.series), summary


def _view(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    summary: Summary,
    devices: Sequence[Shown],
    moves: Moves,
    series: Mapping[int, Sequence[Series]],
    counts: Counts | None = None,
) -> View:
    unseen: dict[str, list[str]] = {"faults": [], "never_fired": [], "expectations": []}
    seen = summary.model_copy(update=unseen)

    def foreseen() -> list[Foreseen]:
        return [
            *class_foreseen(scenario, topology),
            *headroom_foreseen(scenario, topology),
            *receive_foreseen(scenario, topology),
            *late_marking_foreseen(scenario, topology),
        ]

    return View(scenario, topology, plans, seen, devices, moves, series, counts, foreseen)
