"""`emu campaign`: weeks of a training run, and what is left of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from emu.base.shipped import CAMPAIGNS
from emu.base.units import aligned
from emu.doors.weeks.campaign_file import judged, shown_span
from emu.doors.weeks.campaign_reading import CACHE, read_campaign
from emu.doors.weeks.goodput import FACTORS, KNOBS, Seed, figures, sensitivities, simulated, summary_of
from emu.doors.weeks.measured import Measurement
from emu.doors.weeks.timeline import timeline
from emu.doors.weeks.weeks import PHASES, Course, Row, weeks
from emu.run_directory.run_directory import write_whole
from emu.scenario.set_options import parse_override
from emu.summary.summary_report import expectation_line
from emu.terminal.columns import say
from emu.terminal.scenario_options import file_named, forcing, made, refuse_results
from emu.terminal.terminal import Counted

EXAMPLES: Final = """\b
Examples:
  emu campaign llama3
  emu campaign llama3 --set checkpoint.every=30min --seeds 100
  emu campaign llama3 --sensitivity --out campaign
"""
HEAD: Final = ("begin_ms", "end_ms", "phase", "cause", "steps_from", "steps_to", "stalled_ms", "host")
WORDS: Final = {
    "kept": "work that counts",
    "redone": "work lost, done again",
    "slowed": "slower than it should be",
    "checkpoint": "standing still for checkpoints",
    "noticing": "until somebody notices",
    "self_check": "self-check",
    "waiting_for_spares": "waiting for spare hosts",
    "replacing": "replacing hosts",
    "init": "init",
    "loading": "loading a checkpoint",
    "planned": "planned work",
}


@click.command(epilog=EXAMPLES)
@click.argument("campaign")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change one value. Can be repeated."
)
@click.option("--seeds", type=click.IntRange(1, 100_000), default=20, help="Seeds, from the file's on.  [20]")
@click.option("--sensitivity", is_flag=True, help="Repeat with a third and three times of each knob.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write OUT/summary.json, and events.csv and timeline.svg of the first seed.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=CACHE,
    help=f"Directory for results of measuring runs.  [{CACHE}]",
)
@forcing
def command(
    campaign: str,
    assignments: tuple[str, ...],
    seeds: int,
    sensitivity: bool,
    as_json: bool,
    out: Path | None,
    cache: Path,
    force: bool,
) -> int:
    """Follow one training job for weeks, from failure to failure, and print its goodput.

    CAMPAIGN is a file, or one of those that come with emu: llama3, measured, megascale, own_log. Times of
    steps, of detection and of recovery may be measured by runs of scenarios first. Exit status: 0; 1 if an
    expectation failed; 2 for bad input.
    """
    refuse_results("--out", out, force=force)
    overrides = [parse_override(text) for text in assignments]
    path = file_named(campaign, CAMPAIGNS, "campaign")
    ready = read_campaign(path, overrides, cache, lambda line: click.echo(f"emu: {line}", err=True))
    found, course, tree, measured = ready.campaign, ready.course, ready.tree, ready.measured
    for warning in ready.warnings:
        click.echo(f"emu: warning: {warning}", err=True)
    numbers = range(found.seed, found.seed + seeds)
    first = weeks(course, found.seed)
    made(out)
    left = Counted(seeds * (1 + len(KNOBS) * len(FACTORS) if sensitivity else 1))
    every = [figures(first, course), *simulated(course, numbers[1:], left.done)]
    summary = summary_of(found.name, found.seed, course, every)
    summary["measured"] = [one._asdict() for one in measured]
    verdicts = judged(found.expect, summary, tree)
    if sensitivity:
        rows = sensitivities(course, numbers, float(summary["goodput"]), left.done)
        summary["sensitivity"] = {name: [round(one, 6) for one in changes] for name, changes in rows}
    left.clear()
    if out is not None:
        write_whole(out / "summary.json", json.dumps(summary, indent=2) + "\n")
        write_whole(out / "events.csv", events_csv(first.rows))
        share = f"{every[0].kept_ms / course.lasts_ms:.1%} of {shown_span(course.lasts_ms)}"
        write_whole(out / "timeline.svg", timeline(first, f"{found.name}, seed {found.seed}: {share}"))
    lines = [json.dumps(summary, indent=2)] if as_json else [*_text(summary, course, every, measured)]
    say("\n".join(lines))
    for one in verdicts:
        click.echo(expectation_line(one), err=as_json)
    return int(any(not one.passed for one in verdicts))


def events_csv(rows: Iterable[Row]) -> str:
    """The rows of one seed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(rows)
    return out.getvalue()


def _text(
    summary: dict[str, Any], course: Course, seeds: Sequence[Seed], measured: Sequence[Measurement]
) -> list[str]:
    """Lines for reading."""
    many = len(seeds) > 1
    of_seeds = f"{len(seeds)} seeds from {summary['seed']}" if many else f"seed {summary['seed']}"
    lasts, step = shown_span(course.lasts_ms), shown_span(course.step_ms)
    lines = [f"{summary['name']}: {lasts}, steps of {step}, {of_seeds}"]
    for one in measured:
        kept = f", kept in {one.kept_in}" if one.kept_in else ""
        value = shown_span(one.value_ms)
        lines.append(f"  {one.key} {value}: measured, {one.scenario} ({one.digest[:12]}{kept})")
    spread = f" (P5 {summary['goodput_p5']:.2%}, P95 {summary['goodput_p95']:.2%})" if many else ""
    struck = f"interruptions {_count(summary['interruptions'])}"
    if summary["mtbf_s"]:
        struck += (
            f", {_count(summary['unexpected'])} of them unexpected; MTBF {summary['mtbf_s'] / 3600:.3g} h"
        )
    lines += ["", f"goodput {summary['goodput']:.2%}{spread}; {summary['steps']:,} steps", struck]
    times = [
        f"{name} {summary[key] / 60:.3g} min"
        for name, key in (("to notice a failure", "mttd_s"), ("to train again", "mttr_s"))
        if summary[key] is not None
    ]
    hours = summary["gpu_hours"]
    lines += [", ".join(times)] if times else []
    lines.append(f"GPU-hours {hours['all']:,.0f}, of them {hours['lost']:,.0f} lost")
    if summary["hosts"]["struck"]:
        hosts = summary["hosts"]
        lines.append(
            f"hosts struck {_count(hosts['struck'])}, more than once {_count(hosts['struck_again'])}"
        )
    lines += ["", "where time went"]
    shares = [(phase, share) for phase, share in summary["shares"].items() if share]
    lines += aligned([[WORDS[phase], f"{share:.2%}"] for phase, share in shares])
    causes = [[name, _count(many)] for name, many in summary["causes"].items() if many]
    if causes:
        lines += ["", "what interrupted it, each seed", *aligned(causes)]
    point = summary["checkpoint"]
    if point["daly_s"] is not None:
        known = f"Young's interval {point['young_s']:g}s, Daly's {point['daly_s']:g}s"
        lines += ["", f"a checkpoint each {point['every_s']:g}s of computing; {known}"]
    if "sensitivity" in summary:
        head = ["goodput, in points", *(f"x {factor}" for factor in FACTORS)]
        found = summary["sensitivity"].items()
        rows = [[name, *(f"{100 * one:+.2f}" for one in changes)] for name, changes in found]
        lines += ["", *aligned([head, *rows])]
    return lines


def _count(many: float) -> str:
    return f"{many:.3g}" if many < 100 else f"{many:.0f}"


assert set(WORDS) == {"kept", "redone", "slowed", *PHASES[2:]}, PHASES
