"""The public Python API: what the `emu` command does, as functions.

    import emu

    result = emu.run("scenarios/start/quickstart.yaml", overrides={"ncclx.channels": 2})
    print(result.summary.jobs["bench"].collectives[-1].busbw, result.passed)

`load` reads a scenario, `prepare` fits it to its fabric, `run` runs it and judges its expectations. In a
`with emu.session():` Ray and its workers are kept from run to run. A `Program` is a job written in Python.

Everything that a user can get wrong raises an `EmuError` that says what to do; for a scenario,
`ScenarioError` with file, line and key. How a run ended is data: see `Result`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import emu
from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from emu.base.cores import usable_cores
from emu.base.errors import INTERRUPTED_STATUS, EmuError, Problem, ScenarioError, UsageError
from emu.cluster.workers.idle_workers import session, worker_pool_of_session
from emu.counts.collected import CapturedRows, Changed, Layouts, Sample, layouts_of
from emu.counts.counts import Counts
from emu.counts.digest import KIND
from emu.devices.flow_counts import flow_counts
from emu.engine.blueprint import spread
from emu.engine.distributing import settled
from emu.engine.live.stepping import Stepped
from emu.engine.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from emu.engine.steering import Steering
from emu.engine.sync.garbage import no_collection
from emu.launch import check_options, run_blueprint
from emu.preparing import Prepared, ScenarioSource, load, prepare
from emu.results.summary import Diagnosed, Judged, Summary
from emu.results.summary import json_schema as summary_schema
from emu.run_directory.flight_recorder import flight_files
from emu.run_directory.run_directory import RunDirectory, collectives_csv, flows_csv, write_whole
from emu.run_directory.sample_rows import (
    COLUMNS,
    csv_frame,
    data_frame,
    recorded,
    tidy_rows,
)
from emu.run_directory.samples import Counted, LatestSample, SampleSpool, sample_before
from emu.scenario.dump import to_mapping
from emu.scenario.dump import to_yaml as effective
from emu.scenario.expect import Expectation, SeriesExpectation
from emu.scenario.live_changes import Change
from emu.scenario.load import Loaded, load_mapping
from emu.scenario.schema import Scenario
from emu.scenario.sections.capture import ports_named
from emu.stored_run import breaking
from emu.summary.fabric import SPAN_METRICS
from emu.summary.recoveries import operator_entries, operator_rows
from emu.summary.summarise import summarise
from emu.summary.summary_report import closing_lines, lost_jobs, wrong_jobs
from emu.summary.verdict import of_diagnosis
from emu.views.diagnosis.view import Moves
from emu.views.repairs.run_diagnosis import alone_times, diagnose_directory, diagnosed

if TYPE_CHECKING:
    from emu.engine.live.open_run import Completion, OpenRun
    from emu.sweeps.sweeping import Swept
    from emu.workload.composing import Program

__all__ = [
    "Completion",
    "Diagnosed",
    "EmuError",
    "Interrupted",
    "Loaded",
    "Observer",
    "OpenRun",
    "Outcome",
    "Prepared",
    "Problem",
    "Program",
    "Result",
    "RunOptions",
    "Scenario",
    "ScenarioError",
    "Steering",
    "Stepped",
    "Summary",
    "Topology",
    "UsageError",
    "as_loaded",
    "diagnose",
    "effective",
    "load",
    "open",
    "prepare",
    "report",
    "run",
    "run_prepared",
    "scenario_schema",
    "session",
    "stepped",
    "summary_schema",
    "sweep",
]

JOB_FAILED_STATUS: Final = 3


_LATER: Final = {
    "Completion": "emu.engine.live.open_run",
    "OpenRun": "emu.engine.live.open_run",
    "Program": "emu.workload.composing",
}
"""Classes that most runs do not load -> where each is."""


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario, with every description and default."""
    from emu.scenario.reference import json_schema  # noqa: PLC0415 - reads sources, which no run needs

    return json_schema()


def __getattr__(name: str) -> object:
    """The classes of `_LATER`. AttributeError for other names."""
    if name not in _LATER:
        raise AttributeError(f"module 'emu.api' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended, and what came of it. `directory` holds it on disk, if one was asked for."""

    summary: Summary
    outcome: Outcome
    directory: Path | None
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended the run or its diagnosis; a `Result` of `Interrupted` only."""

    @property
    def passed(self) -> bool:
        """Whether the run came to its end and every expectation holds."""
        return self.exit_status == 0

    @property
    def verdict(self) -> str:
        """How it ended, in a few words."""
        if self.passed:
            return "passed"
        if self.interrupted:
            return "interrupted"
        failed = sum(not one.passed for one in self.summary.expectations)
        if self.exit_status == 1 and failed:
            return "1 expectation failed" if failed == 1 else f"{failed} expectations failed"
        return self.outcome.message.partition("\n")[0] or f"exit status {self.exit_status}"

    def __repr__(self) -> str:
        name, digest = self.summary.scenario.name, self.summary.digest[:12]
        return f"<Result of {name}: {self.verdict}, digest {digest or 'none'}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from emu.views.reports.summary_html import summary_html  # noqa: PLC0415 - only for a notebook

        return summary_html(self.summary, self.verdict)

    def show(self) -> None:
        """Print what `emu run` prints at the end: jobs, fabric, diagnosis, expectations, digest."""
        print("\n".join(closing_lines(self.summary)))  # noqa: T201  asked for

    def frame(self, table: Literal["flows", "collectives", "ports", "samples", "trace"]) -> Any:
        """A table of the run as a pandas DataFrame, or polars' without pandas.

        Columns are those of the CSV files, for samples of `emu export csv`. `ports`, `samples` and `trace`
        (of a scenario with `run.trace`) need a run with `out`. Raises UsageError.
        """
        if table in ("flows", "collectives"):
            jobs = self.summary.jobs
            return csv_frame(flows_csv(jobs) if table == "flows" else collectives_csv(jobs))
        if self.directory is None:
            raise UsageError(f"frame({table!r}) reads the run's directory; accepted: a run with out=DIR")
        if table == "samples":
            names, reader = recorded(self.directory)
            return data_frame(COLUMNS, tidy_rows(reader, names))
        file = self.directory / f"{table}.csv"
        if not file.exists():
            raise UsageError(f"{file}: not found; accepted: a run of a scenario with run.trace")
        return csv_frame(file.read_text("utf-8"))

    @property
    def exit_status(self) -> int:
        """As the command's: 0, 1 if an expectation failed or a result is wrong, 3 stalled or a job failed, 4
        failed, 130 interrupted. A stall that an expectation on `ending` asks for is no failure.
        """
        if self.interrupted:
            return INTERRUPTED_STATUS
        if self.outcome.exit_status and not self.stalled_as_expected:
            return self.outcome.exit_status
        if not self.summary.passed() or self.wrong_jobs():
            return 1
        return JOB_FAILED_STATUS if self.lost_jobs() and not self.stalled_as_expected else 0

    @property
    def stalled_as_expected(self) -> bool:
        """Whether the run came to no end, and an expectation holds that says so."""
        asked = any(one.value == "ending" and one.passed for one in self.summary.expectations)
        return asked and self.outcome.exit_status == JOB_FAILED_STATUS

    def wrong_jobs(self) -> list[str]:
        """Jobs with elements that came out wrong, unless an expectation is about that job's."""
        return wrong_jobs(self.summary)

    def lost_jobs(self) -> list[str]:
        """Jobs that did not succeed, unless an expectation asks for that job's status."""
        return lost_jobs(self.summary)


def _drawing(topology: Topology) -> str:
    """What a notebook shows of a fabric."""
    from emu.topology.svg import draw, to_svg  # noqa: PLC0415  only for a drawing

    return to_svg(draw(topology))


# A notebook asks the object, and the emulated world does not import the tool that draws it.
Topology._repr_html_ = _drawing  # type: ignore[attr-defined]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a run or its diagnosis. `result` is what there is, in its directory too."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


def as_loaded(scenario: Scenario) -> Loaded:
    """A scenario that is there already, to be prepared or run like one that was read."""
    return load_mapping(to_mapping(scenario))


def run(
    source: ScenarioSource,
    overrides: Mapping[str, object] | None = None,
    *,
    local: bool = False,
    parts: int = 1,
    workers: int | None = None,
    placement: str = "packed",
    address: str | None = None,
    block: int | None = None,
    trains: bool = True,
    out: str | Path | None = None,
    force: bool = False,
    diagnose: bool = True,
    observer: Observer | None = None,
) -> Result:
    """Run a scenario: in this process if `local` or with `parts`; on Ray with `workers`, another `placement`
    or an `address` (without one Ray is started for the run), and in an open `session`. Else in this process,
    unless workers on its cores would end the run at least 20 % sooner.

    Nothing but `overrides` changes the answer. A diagnosis emulates the run again with suspects as built:
    `diagnose=False` spares many runs in a row that, and leaves `diagnosis` of the summary empty, unless the
    scenario expects something of it. With `out` the results are also written there, in place of those of an
    earlier run if `force`. Raises EmuError if the run cannot begin, and Interrupted (a KeyboardInterrupt)
    where Ctrl-C or SIGTERM ended it or its diagnosis: what there is by then is in `out`.
    """
    prepared = prepare(source, overrides)
    asked = local or parts > 1 or workers is not None or address is not None or placement != "packed"
    options = RunOptions(
        local=local or (parts > 1 and workers is None),
        chooses=not asked and worker_pool_of_session() is None,
        parts=parts,
        workers=workers,
        placement=placement,
        address=address,
        block=block,
        trains=trains,
        metrics=False,
    )
    if out is None:
        return run_prepared(prepared, options, observer, diagnose=diagnose)
    with RunDirectory.create(prepared.scenario.name, Path(out), force=force) as directory:
        return run_prepared(prepared, options, observer, directory, diagnose=diagnose)


def stepped(
    source: ScenarioSource, overrides: Mapping[str, object] | None = None, *, parts: int = 1
) -> Stepped:
    """A run in this process that goes on when it is told to; its `submitted` jobs do what is submitted."""
    prepared = prepare(source, overrides)
    return Stepped(spread(prepared.blueprint, parts))


def open(  # noqa: A001  as `open` of files is: what comes back is read from and written to
    source: ScenarioSource,
    overrides: Mapping[str, object] | None = None,
    *,
    parts: int = 1,
    workers: int | None = None,
    placement: str = "packed",
    address: str | None = None,
    resume: str | Path | None = None,
) -> OpenRun:
    """A run whose open job does what is posted, each post at its own virtual time: in this process, in so
    many `parts`, or with `workers` on Ray (started for the run unless `address` is given).

    A scenario without a job of kind `open` gets one, of all ranks, beside the jobs that it has. With `resume`
    it goes on from a file that `OpenRun.save` wrote. Only the posts and `overrides` change the answer. Raises
    EmuError.
    """
    loaded = source if isinstance(source, Loaded) else load(source, overrides, opens=True)
    prepared = prepare(loaded)
    if workers is None:
        if address is not None:
            raise UsageError("open: address is for runs on Ray; accepted: workers=, too")
        from emu.engine.live.open_run import opened  # noqa: PLC0415 - of a run with an open job alone

        return opened(prepared.blueprint, parts, resume)
    check_options(RunOptions(workers=workers, placement=placement))
    if parts != 1:
        raise UsageError("open: parts are for runs in this process; accepted: workers= alone")
    from emu.cluster.workers.open_workers import opened_on_ray  # noqa: PLC0415  Ray only where it is needed

    return opened_on_ray(prepared.blueprint, workers, placement, address, resume=resume)


def sweep(
    source: str | Path | Mapping[str, object],
    axes: Mapping[str, Sequence[object]] | None = None,
    show: Sequence[str] = (),
    *,
    seeds: int = 1,
    overrides: Mapping[str, object] | None = None,
    largest: str = "",
    at_once: int | None = None,
    address: str | None = None,
    wheel: str | Path | None = None,
    unprotected: bool = False,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
) -> Swept:
    """Run a scenario, a campaign or a job mix once for each combination of values, side by side; a row for
    each run.

    `axes` maps keys to values, the last turning fastest; the key `variant` takes names of variants. `show`
    are places in the summary, as of `emu sweep --show`; without it what says most of such a run. A row has
    `set`, `seed`, `values` by place (None where there is none), `exit_status`, `digest` and `message`: what
    goes wrong with a run is in its row. `mean()` and `quantiles()` of what is returned are rows over seeds.
    With `largest`, KEY=LOW..HIGH in place of axes, the largest value is looked for at which every expectation
    holds: `best`.

    `at_once` runs go at a time, by default one for each core; with `address` one for each core of that Ray
    cluster. With `out` each run is kept in `out/run-N` as soon as it has ended, and `resume` carries out only
    those that are missing there. Answers depend on none of these. Raises EmuError.
    """
    from emu.sweeps.sweeping import swept  # noqa: PLC0415 - only of several runs

    return swept(
        run_prepared,
        source,
        axes,
        show,
        seeds=seeds,
        overrides=overrides,
        largest=largest,
        at_once=at_once,
        address=address,
        wheel=wheel,
        unprotected=unprotected,
        out=out,
        force=force,
        resume=resume,
    )


def report(*runs: Result | str | Path, out: str | Path | None = None) -> Path:
    """Write the HTML page of a run, of two compared (the second against the first) or of a sweep's directory,
    and return its path, by default in the directory of the last.

    A run is its directory, or a `Result` that has one. Raises UsageError.
    """
    from emu.views.reports.compared import compared_page  # noqa: PLC0415  a page costs nothing until it is asked for
    from emu.views.reports.page import page  # noqa: PLC0415
    from emu.views.reports.recording import read_recording  # noqa: PLC0415
    from emu.views.reports.sweep_page import is_sweep, sweep_page  # noqa: PLC0415

    if len(runs) not in (1, 2):
        raise UsageError(f"{len(runs)} runs; accepted: one run, two runs to compare, or one sweep")
    places = [_place_of(one) for one in runs]
    name = "report.html"
    if len(places) == 2:
        name = f"report_against_{places[0].name}.html"
        text = compared_page(*places)
    else:
        text = sweep_page(places[0]) if is_sweep(places[0]) else page(read_recording(places[0]))
    file = places[-1] / name if out is None else Path(out)
    write_whole(file, text)
    return file


def diagnose(
    result: Result | str | Path, baseline: Result | str | Path | None = None, *, emulate: bool = False
) -> list[Diagnosed]:
    """The causes that explain a run, the likeliest first, each with `cause`, `place`, `sentence`, `evidence`.

    A run is its directory, or a `Result`: without a directory, the diagnosis that the run made at its end.
    With `baseline` the effects are measured against that run; with `emulate`, against the intended fabric,
    which is emulated now. Raises UsageError.
    """
    if emulate and baseline is not None:
        raise UsageError("diagnose: emulate and baseline exclude each other; accepted: one of them")
    if isinstance(result, Result) and result.directory is None and not emulate and baseline is None:
        return list(result.summary.diagnosis)
    against = None if baseline is None else _place_of(baseline)
    return diagnose_directory(_place_of(result), against, emulate=emulate)[1]


def _place_of(run_of: Result | str | Path) -> Path:
    """The directory of a run."""
    if not isinstance(run_of, Result):
        return Path(run_of)
    if run_of.directory is None:
        raise UsageError("the run has no directory; accepted: a run with out=DIR")
    return run_of.directory


def settled_for(prepared: Prepared, options: RunOptions) -> RunOptions:
    """The options with one process or workers chosen, where they leave that open."""
    cost = prepared.cost if options.chooses else None
    return settled(options, prepared.blueprint, cost, usable_cores())


def run_prepared(
    prepared: Prepared,
    options: RunOptions,
    observer: Observer | None = None,
    directory: RunDirectory | None = None,
    *,
    diagnose: bool = True,
) -> Result:
    """Run what was prepared, write it into `directory`, judge its expectations, and diagnose it. Raises
    Interrupted once what there is was written.
    """
    record = _Record(prepared, observer or Observer(), directory, options.steering)
    with closing(record):
        return _run_recorded(prepared, options, directory, record, diagnose)


def _run_recorded(
    prepared: Prepared, options: RunOptions, directory: RunDirectory | None, record: _Record, diagnose: bool
) -> Result:
    scenario, topology = prepared.scenario, prepared.topology
    steering = options.steering
    if directory is not None:
        if options.resume_ps < 0 or not directory.resumed:
            _begin(directory, prepared)
        directory.name_devices(topology)
        options = options._replace(directory=directory.path)
    options = settled_for(prepared, options)
    flows = scenario.fidelity == "flow"
    diagnose = diagnose or of_diagnosis(one.value for one in scenario.expect if isinstance(one, Expectation))
    try:
        if flows:
            from emu.flow.level import run_flow  # noqa: PLC0415 - not of a run in packets

            outcome = run_flow(prepared.blueprint, record, options.progress_every_s)
        else:
            outcome = run_blueprint(prepared.blueprint, options, record)
    except ScenarioError as error:
        raise prepared.source.located(error) from error
    finally:
        if steering is not None:
            steering.close()
    outcome = outcome._replace(engine=outcome.engine._replace(choice=options.why))
    # Faults and captures may have been changed meanwhile: results are those of the scenario as it became.
    scenario = scenario if steering is None else steering.scenario
    live = steering is not None or options.end_ps != NEVER_PS
    interrupted = outcome.ending is Ending.INTERRUPTED

    def judged(summary: Summary, counts: Counts) -> Judged:
        """A diagnosis; where that is interrupted, how many events were not compared."""
        nonlocal interrupted
        try:
            return diagnosed(
                scenario,
                topology,
                prepared.jobs,
                outcome,
                record.moves,
                live,
                record.measured,
                summary,
                counts,
            )
        except KeyboardInterrupt:
            interrupted = True
            return Judged([], uncompared_events=sum(one.executed for one in outcome.devices))

    kpis = scenario.run.kpis
    with no_collection():
        summary = summarise(
            scenario,
            topology,
            prepared.jobs,
            outcome.devices,
            outcome.engine,
            version=emu.__version__,
            compiled=emu.is_compiled(),
            digest=outcome.digest,
            ending=outcome.ending.value,
            virtual_ps=outcome.virtual_ps,
            samples=record.kept(outcome),
            history=record.history,
            measured=record.measured,
            flow_counts=flow_counts(scenario, topology, prepared.plan) if "flow_counts" in kpis else None,
            alone_ps=alone_times(scenario, topology, prepared.jobs, prepared.resolved.faults)
            if "interference" in kpis and outcome.digest
            else {},
            diagnose=judged if diagnose and not flows else None,
        )
    if directory is not None:
        flights = flight_files(scenario, prepared.jobs, summary, outcome.devices)
        captures: dict[int, Iterator[bytes]] = {}
        if scenario.run.capture:
            from emu.views.captures.pcapng import capture_files  # noqa: PLC0415 - of packets

            captures = capture_files(scenario, topology, outcome.devices, record.written)
        if outcome.devices and not record.counts:
            record.counted(layouts_of({one.number: one.series for one in outcome.devices}))
        record.note_operator(operator_rows(outcome.devices))
        directory.write_results(summary, topology, outcome.devices, flights, captures)
    result = Result(summary, outcome, directory.path if directory is not None else None, interrupted)
    if interrupted:
        raise Interrupted(result)
    return result


class _Record(Observer):
    """Hears of a run for the caller's observer and the run directory, and keeps what the summary needs.

    That is, for each fault, the last sample before it: it tells the losses of successive faults of a link
    apart. Of a live run it writes down what was done to it.
    """

    def __init__(
        self,
        prepared: Prepared,
        observer: Observer,
        directory: RunDirectory | None,
        steering: Steering | None = None,
    ) -> None:
        self._observer = observer
        self._steering = steering
        if steering is not None:
            steering.listener = self.changed
        self._directory = directory
        self._before: dict[int, Sample | None] = {fault.at_ps: None for fault in prepared.scenario.faults}
        if (span := prepared.scenario.run.span).for_ps:
            self._before |= {span.at_ps: None, span.until_ps: None}
        self._widths: dict[int, int] = {}
        """How much each device counts."""
        self._latest = LatestSample(directory.earlier if directory is not None else ())
        """Kept where a sample before something is asked for, or may be."""
        self._open = [at_ps for at_ps in self._before if at_ps >= self._latest.virtual_ps]
        """Times of those of which no later sample was heard of."""
        self._scenario, self._topology = prepared.scenario, prepared.topology
        self._jobs = prepared.jobs
        self._tended = directory.operated() if directory is not None and directory.resumed else set()
        """What the journal says of the operator, as texts."""
        self._captured: dict[int, dict[tuple[int, int], CapturedRows]] = {}
        """Captures that are not written, by number: what there is of each port."""
        self.written: set[int] = set()
        """Captures that are."""
        self.measured: dict[tuple[int, int], str] = {}
        """What faults that hit the busiest were found to hit, by fault and occurrence."""
        if directory is not None and directory.resumed:
            self.measured = directory.measured()
        if steering is not None:
            steering.measured = self.measured
        follows = any(isinstance(one, SeriesExpectation) for one in prepared.scenario.expect)
        follows = follows or not {"convergence", "loss_time"}.isdisjoint(prepared.scenario.run.kpis)
        self._spool = SampleSpool() if directory is None and follows else None
        self.moves = Moves()
        """When counters first moved."""
        self.counts = False
        """Whether it is known what is counted."""
        for one in directory.earlier if directory is not None else ():
            self.moves.add(one)

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Pass it on."""
        self._observer.workers_up(workers, discovery_url)

    def progressed(self, progress: Progress) -> None:
        """Pass it on."""
        if self._steering is not None:
            self._steering.virtual_ps = max(self._steering.virtual_ps, progress.virtual_ps)
        for at_ps, entry, place, target in progress.measured:
            if (entry, place) not in self.measured:
                self.measured[entry, place] = target
                if self._directory is not None:
                    self._directory.journal("target", at_ps, fault=entry, occurrence=place, target=target)
        self.note_operator(progress.operator)
        self._observer.progressed(progress)

    def note_operator(self, rows: Iterable[Sequence[int]]) -> None:
        """Write what the operator did since the last time into the journal."""
        if self._directory is None:
            return
        new = []
        for entry in operator_entries(self._jobs, self._topology, rows):
            if (text := repr(entry)) not in self._tended:
                self._tended.add(text)
                new.append(entry)
        if new:
            self._directory.journal_all(new)

    def changed(self, change: Change, fault: int, at_ps: int, scenario: Scenario) -> None:
        """Write it down before anybody is notified, keep the sample before it, pass it on."""
        if self._directory is not None:
            about = {"capture": len(scenario.run.capture) - 1} if "capture" in change else {"fault": fault}
            self._directory.journal("change", at_ps, **about, change=dict(change))
        self._write_captures()
        self._before[at_ps] = None
        if self._latest.virtual_ps <= at_ps:
            self._open.append(at_ps)
        self._observer.changed(change, fault, at_ps, scenario)

    def counted(self, layouts: Layouts) -> None:
        """Write it, pass it on."""
        self.counts = True
        self._widths = {number: len(layouts.layouts[at]) for number, at in layouts.of_device.items()}
        if self._directory is not None:
            expected = [one.counted_as for one in self._scenario.expect if isinstance(one, SeriesExpectation)]
            expected += SPAN_METRICS if self._scenario.run.span.for_ps else ()  # for a resumed run
            self._directory.counted(Counted.of(layouts, self._scenario.run.sample_series, expected))
        self._observer.counted(layouts)

    def sampled(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Keep it, write it, pass it on."""
        self.moves.add(changed)
        self._settle(changed.virtual_ps)
        if self._open or self._steering is not None:
            self._latest.add(changed)
        if self._directory is not None:
            self._directory.sample(changed, mixed)
        elif self._spool is not None:
            self._spool.add(changed)
        self._observer.sampled(changed, mixed)

    def _settle(self, until_ps: int) -> None:
        """No sample is to come before a time: what was asked for before it is what there is now."""
        passed = [at_ps for at_ps in self._open if at_ps < until_ps]
        if passed:
            sample = self._latest.sample(self._widths)
            self._before |= dict.fromkeys(passed, sample)
            self._open = [at_ps for at_ps in self._open if at_ps >= until_ps]

    def captured(self, rows: Sequence[tuple[int, CapturedRows]]) -> None:
        """Keep them until the capture is whole, and write it."""
        for device, one in rows:
            self._captured.setdefault(one.capture, {})[device, one.port] = one
        self._write_captures()
        self._observer.captured(rows)

    def _write_captures(self) -> None:
        """Write the captures of which every port is over, once the scenario with them is known."""
        steering = self._steering
        scenario = self._scenario if steering is None else steering.scenario
        for number, captured in sorted(self._captured.items()):
            if number < len(scenario.run.capture):
                ports = ports_named(self._topology, scenario.run.capture[number].ports)
                if all((spot.node, spot.port) in captured for spot in ports):
                    self.written.add(number)
                    del self._captured[number]
                    if self._directory is not None:
                        from emu.views.captures.pcapng import pcapng  # noqa: PLC0415 - as above

                        pieces = pcapng(scenario, self._topology, number, captured)
                        self._directory.write_captures({number: pieces})

    def noted(self, line: str) -> None:
        """Pass it on."""
        self._observer.noted(line)

    def settle(self) -> None:
        """What was written is to outlive the machine."""
        if self._directory is not None:
            self._directory.sync()
        self._observer.settle()

    def history(self) -> Iterator[Changed]:
        """Every sample of the run so far, as what changed."""
        if self._spool is not None:
            yield from self._spool
        elif self._directory is not None:
            yield from self._directory.samples()

    def close(self) -> None:
        """Forget the samples."""
        if self._spool is not None:
            self._spool.close()

    def kept(self, outcome: Outcome) -> Sequence[Sample]:
        """The samples that the summary is made with, each once, by time."""
        self._widths = {record.number: len(record.counters) for record in outcome.devices}
        self._settle(NEVER_PS)
        missed = [at_ps for at_ps, sample in self._before.items() if sample is None]
        if missed and self._directory is not None:
            # Of a run that is gone on with, and of a change that was heard of after samples behind it.
            for at_ps in missed:
                self._before[at_ps] = sample_before(self._directory.samples(), at_ps, self._widths)
        found = {sample.virtual_ps: sample for sample in self._before.values() if sample is not None}
        return [found[at_ps] for at_ps in sorted(found)]


def _begin(directory: RunDirectory, prepared: Prepared) -> None:
    """The effective scenario, and a journal that begins with what breaks."""
    scenario = prepared.scenario
    facts = {"scenario": scenario.name, "seed": scenario.seed, "digest_kind": KIND}
    directory.begin(effective(scenario), prepared.topology, **facts)
    directory.journal_all(breaking(prepared.resolved, prepared.topology))
