"""Campaigns and job mixes made ready: the file with its overrides, checked, and what it names read.

`emu campaign`, `emu schedule`, `emu sweep` and the table of published figures all read them here. A file that
another one names is looked for beside that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from emu.base.errors import FormatError, Problem, ScenarioError
from emu.base.spelling import did_you_mean, listed
from emu.doors.weeks.campaign_file import UNITS_MS, checked, read_tree
from emu.doors.weeks.failure_log import FailureLog, read_log
from emu.doors.weeks.job_mix import JobMix
from emu.doors.weeks.job_queue import Course as Jobs
from emu.doors.weeks.job_queue import followed
from emu.doors.weeks.job_trace import MOST_TRACE_BYTES, TracedJobs, chosen, read_trace
from emu.doors.weeks.measured import Measurement, put_in_place
from emu.doors.weeks.optimum import settled
from emu.doors.weeks.sections import MOST_STRIKES, Campaign, measurements
from emu.doors.weeks.weeks import Course
from emu.scenario.dump import mapping_to_yaml
from emu.scenario.expect import path_steps
from emu.scenario.load import load_text, read_file
from emu.scenario.resolve import build_topology
from emu.scenario.set_options import Override
from emu.scenario.yaml.document import Node, decode

CACHE: Final = Path("runs") / "measured"
MOST_LOG_BYTES: Final = 64 * 2**20


class ReadyCampaign(NamedTuple):
    """A campaign, and what it goes by."""

    campaign: Campaign
    course: Course
    tree: Node
    measured: tuple[Measurement, ...] = ()
    warnings: tuple[str, ...] = ()


class ReadyMix(NamedTuple):
    """A job mix on its fabric."""

    mix: JobMix
    topology: Topology
    tree: Node
    file: str
    traced: TracedJobs | None


def read_campaign(
    path: Path,
    overrides: Iterable[Override] = (),
    cache: Path = CACHE,
    say: Callable[[str], None] = lambda _: None,
) -> ReadyCampaign:
    """The campaign of a file, after the runs that it measures. Raises ScenarioError."""
    tree, file = read_tree(path, "a campaign", overrides)
    measured = put_in_place(tree, file, measurements(tree, file), cache, say)
    found = checked(Campaign, tree, file)
    log = None if found.failures.log is None else _log(found, found.failures.log, tree, file)
    warnings = []
    if log is None and not found.failures.drawn():
        accepted = "failures.table, failures.log or failures.causes"
        warnings.append(f"{file}: failures: nothing interrupts this job; accepted: {accepted}")
    return ReadyCampaign(found, settled(found, log), tree, tuple(measured), tuple(warnings))


def read_mix(path: Path, overrides: Iterable[Override] = ()) -> ReadyMix:
    """The job mix of a file and its fabric. Raises ScenarioError."""
    tree, file = read_tree(path, "a job mix", overrides)
    found = checked(JobMix, tree, file)
    bare = mapping_to_yaml({"name": found.name, "topology": found.topology.model_dump(by_alias=True)})
    topology = build_topology(load_text(bare, file, jobless=True).scenario)
    traced = None
    if found.trace is not None:
        text = _text(found.trace.file, ("trace", "file"), tree, file, MOST_TRACE_BYTES)
        named = str(Path(file).parent / found.trace.file)
        try:
            jobs = read_trace(text)
        except FormatError as error:
            raise ScenarioError([Problem(named, error.line, "", error.reason, error.accepted)]) from error
        traced = chosen(jobs, found, topology)
        if not traced.jobs:
            first, last = (f"{at_ms / UNITS_MS['d']:.2f}d" for at_ms in traced.recorded_ms)
            reason = (
                f"no job of the trace is submitted in this window; the trace has jobs from {first} to {last}"
            )
            accepted = "another trace.from, or a longer lasts"
            raise ScenarioError([Problem(*tree.find(("trace",)), "trace", reason, accepted)])
    return ReadyMix(found, topology, tree, file, traced)


def course_of(ready: ReadyMix, reached: Callable[[int, int], None] = lambda _now, _end: None) -> Jobs:
    """What happens on the cluster. ScenarioError names the line of the file, or the `--set`."""
    try:
        return followed(ready.mix, ready.topology, ready.file, traced=ready.traced, reached=reached)
    except ScenarioError as error:
        raise ScenarioError(_placed(one, ready.tree) for one in error.problems) from error


def _placed(problem: Problem, tree: Node) -> Problem:
    """A problem of a value, with the place that the value is from: a line of the file, or `--set`."""
    place = tree.find(path_steps(problem.key))
    return problem._replace(file=place.file, line=place.line)


def _text(named: str, key: Sequence[str], tree: Node, file: str, most_bytes: int) -> str:
    path = Path(file).parent / named
    try:
        raw = read_file(path, most_bytes)
    except ScenarioError as error:
        where = ".".join(key)
        problems = (
            Problem(*tree.find(tuple(key)), where, f"{path} {one.reason}", one.accepted)
            for one in error.problems
        )
        raise ScenarioError(list(problems)) from error
    return decode(raw, str(path), most_bytes)


def _log(campaign: Campaign, named: str, tree: Node, file: str) -> FailureLog:
    """The log of a campaign, held against what the campaign says of it."""
    text = _text(named, ("failures", "log"), tree, file, MOST_LOG_BYTES)
    try:
        log = read_log(text)
    except FormatError as error:
        place = str(Path(file).parent / named)
        raise ScenarioError([Problem(place, error.line, "", error.reason, error.accepted)]) from error
    failures = campaign.failures
    problems: list[Problem] = []

    def refuse(key: tuple[str | int, ...], shown: str, reason: str, accepted: str) -> None:
        problems.append(Problem(*tree.find(("failures", *key)), f"failures.{shown}", reason, accepted))

    hosts = len(log.hosts)
    if failures.log_hosts is not None and failures.log_hosts < hosts:
        refuse(("log_hosts",), "log_hosts", f"the log names {hosts} hosts", f"at least {hosts}")
    if failures.log_lasts_ms is not None and failures.log_lasts_ms < log.lasts_ms:
        least = f"{-(-log.lasts_ms * 100 // UNITS_MS['d']) / 100:g}d"
        refuse(("log_lasts",), "log_lasts", "the log has later failures", f"at least {least}")
    if failures.log_use == "replayed" and hosts > campaign.hosts:
        reason = f"the log names {hosts} hosts, and the job has {campaign.hosts}"
        refuse(("log_use",), "log_use", reason, "resampled, or more gpus")
    drawn = {one.name for one in failures.drawn()}
    for at, cause in enumerate(failures.causes):
        key = ("causes", at, "name")
        if cause.per_hour is None and cause.name not in log.causes:
            hint = did_you_mean(cause.name, log.causes)
            reason = f"has no per_hour, and the log has no cause {cause.name!r}{hint}"
            refuse(key, f"causes[{at}].name", reason, listed(log.causes))
    both = [name for name in log.causes if name in drawn]
    if both:
        refuse(
            ("log",), "log", f"{both[0]!r} is a cause of the log and one with a rate", "names of their own"
        )
    if not problems and failures.log_use == "resampled":
        share = Fraction(campaign.hosts, failures.log_hosts or max(campaign.hosts, hosts)) * failures.times
        periods = Fraction(campaign.lasts_ms, failures.log_lasts_ms or log.lasts_ms)
        if len(log.records) * share * periods > MOST_STRIKES:
            refuse(("log",), "log", "strikes too often", f"at most {MOST_STRIKES:,} times in the campaign")
    if problems:
        raise ScenarioError(problems)
    return log
