"""`emu schedule`: jobs that share a cluster, from day to day."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from emu.base.errors import UsageError
from emu.base.records import RefusedError
from emu.base.shipped import JOB_MIXES
from emu.base.units import aligned
from emu.doors.weeks.campaign_file import SPAN, judged, shown_span
from emu.doors.weeks.campaign_reading import course_of, read_mix
from emu.doors.weeks.job_mix import JobMix
from emu.doors.weeks.job_queue import Course, Level, summary_of
from emu.doors.weeks.running_jobs import running_jobs_at
from emu.run_directory.run_directory import write_whole
from emu.scenario.set_options import parse_override
from emu.summary.summary_report import expectation_line
from emu.terminal.scenario_options import file_named, forcing, made, refuse_results
from emu.terminal.terminal import TimeLeft

LEFT_OUT: Final = (("without_gpu_or_length", "without GPUs"), ("too_large", "too large"))
EXAMPLES: Final = """\b
Examples:
  emu schedule pods
  emu schedule pods --set placement.kind=random --set queue=first_come
  emu schedule four_pods --set rank_order.kind=traffic
  emu schedule pods --at 30h --write running.yaml
  emu run running.yaml
"""


@click.command(epilog=EXAMPLES)
@click.argument("mix")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change one value. Can be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write OUT/summary.json, OUT/jobs.csv and OUT/levels.csv."
)
@click.option("--at", metavar="TIME", help="A time in the mix, like 30h: what runs then goes to --write.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A scenario file: the jobs of --at where they are, each with the mix's `traffic`.",
)
@forcing
def command(
    mix: str,
    assignments: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    at: str | None,
    write: Path | None,
    force: bool,
) -> int:
    """Follow the jobs of a cluster: who waits how long, and which racks and pods each job is spread over.

    MIX is a file, or one that comes with emu: four_pods, pods, segments or traced. Exit status: 0; 1 if an
    expectation failed; 2 for bad input.
    """
    if (at is None) != (write is None):
        raise UsageError("--at and --write go together; accepted: both, or neither")
    refuse_results("--out", out, force=force)
    if write is not None and write.exists() and not force:
        raise UsageError(f"--write {write} exists; accepted: another path, or --force")
    if write is not None and not write.parent.is_dir():
        raise UsageError(f"--write {write}: there is no directory {write.parent}; accepted: one that exists")
    overrides = [parse_override(text) for text in assignments]
    ready = read_mix(file_named(mix, JOB_MIXES, "job mix"), overrides)
    found, tree = ready.mix, ready.tree
    made(out)
    left = TimeLeft()
    course = course_of(ready, left.show)
    left.clear()
    summary = summary_of(found, ready.topology, course, ready.traced)
    verdicts = judged(found.expect, summary, tree)
    if at is not None and write is not None:
        write_whole(write, running_jobs_at(found, course.jobs, _time(at, found)))
    if out is not None:
        write_whole(out / "summary.json", json.dumps(summary, indent=2) + "\n")
        write_whole(out / "jobs.csv", _jobs_csv(course))
        write_whole(out / "levels.csv", _csv([Level._fields, *course.levels]))
    click.echo(json.dumps(summary, indent=2) if as_json else "\n".join(_text(summary, found)))
    for one in verdicts:
        click.echo(expectation_line(one), err=as_json)
    return int(any(not one.passed for one in verdicts))


def _time(text: str, mix: JobMix) -> int:
    """The time that --at means. Raises UsageError."""
    try:
        at_ms = SPAN.read(text)
    except RefusedError as error:
        raise UsageError(f"--at: {error.reason}; accepted: {error.accepted}") from error
    assert isinstance(at_ms, int), at_ms
    if at_ms >= mix.lasts_ms:
        raise UsageError(f"--at {text} is past the end; accepted: 0s to {shown_span(mix.lasts_ms - 1)}")
    return at_ms


def _csv(rows: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _jobs_csv(course: Course) -> str:
    tiers = next((list(job.spans) for job in course.jobs if job.spans), [])
    head = ["name", "gpus", "arrives_ms", "begins_ms", "ends_ms", *tiers, *(f"least_{one}" for one in tiers)]
    rows: list[Any] = [head]
    for job in course.jobs:
        spans = [job.spans.get(one) for one in tiers] + [job.least.get(one) for one in tiers]
        rows.append([job.name, job.gpus, job.arrives_ms, job.begins_ms, job.ends_ms, *spans])
    return _csv(rows)


def _text(summary: dict[str, Any], mix: JobMix) -> Iterator[str]:
    """Lines for reading."""
    jobs, wait = summary["jobs"], summary["wait"]
    warm_up = f", counted from {shown_span(mix.warm_up_ms)} on" if mix.warm_up_ms else ""
    yield f"{mix.name}: {summary['gpus']:,} GPUs for {shown_span(mix.lasts_ms)}{warm_up}"
    chosen = ("placement", "rank_order", "queue", "seed")
    yield ", ".join(f"{name.replace('_', ' ')} {summary[name]}" for name in chosen)
    yield ""
    rows = [
        ("jobs", f"{jobs['arrived']:,} came, {jobs['begun']:,} began, {jobs['ended']:,} ended"),
        ("GPUs in use", f"{summary['utilisation']:.1%}"),
        ("stranded beside others", f"{summary['stranded']:.1%}"),
        ("waiting", f"{summary['waiting_jobs']:.2f} jobs in the mean, {jobs['most_waiting']} at most"),
    ]
    if jobs["begun"]:
        waits = (f"{name} {_shown(wait[f'{name}_s'])}" for name in ("mean", "p50", "p95", "max"))
        rows.append(("a job waits", ", ".join(waits)))
    for tier, spans in summary["spans"].items():
        words = f"{spans['mean']:.1f} a job, {spans['least']:.1f} alone"
        rows.append((f"{tier}s", f"{words}; more for {spans['wider_share']:.0%} of GPU time"))
    trace = summary["trace"]
    if trace is not None:
        left = [f"{trace[key]:,} {words}" for key, words in LEFT_OUT if trace[key]]
        came = f"{trace['came']:,} of {trace['recorded']:,} came" + "".join(f"; {one}" for one in left)
        rows.append(("trace", came))
        if trace["recorded_wait"]["mean_s"] is not None:
            waits = (
                f"{name} {_shown(trace['recorded_wait'][f'{name}_s'])}" for name in ("mean", "p50", "p95")
            )
            rows.append(("waited as recorded", ", ".join(waits)))
    yield from aligned(rows, left=2)


def _shown(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
