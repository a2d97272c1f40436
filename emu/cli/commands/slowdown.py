"""`emu slowdown`: run the jobs of a scenario together and each by itself: what they cost one another.

A job's time is from its first begin to its last end. Its slowdown is the time beside the others over the time
by itself, with the same seed, placement, queue pairs and (where routing is static) paths. A link is shared,
per direction, if two jobs or more put payload on it when each runs by itself; the bytes are those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import click

from emu.api import prepare, run_prepared
from emu.base.errors import UsageError
from emu.base.units import about_size, about_time, aligned
from emu.engine.outcome import RunOptions
from emu.many_runs import Machines, answers
from emu.results.summary import Summary
from emu.terminal.columns import say
from emu.terminal.run_options import placed, session_of
from emu.terminal.scenario_options import NO_EXPECT, load_scenario, overriding
from emu.terminal.terminal import RunLeft

MOST_LINKS = 12


class JobCost(NamedTuple):
    """One job. Times are None where it did not end, `why` says why not."""

    name: str
    ranks: int
    together_ps: int | None
    alone_ps: int | None
    why: str

    @property
    def slowdown(self) -> float | None:
        """Time beside the others over time by itself."""
        if not self.together_ps or not self.alone_ps:
            return None
        return round(self.together_ps / self.alone_ps, 4)


class SharedLink(NamedTuple):
    """One direction of a link, and what each job that uses it puts on it by itself."""

    source: str
    destination: str
    job_bytes: Mapping[str, int]


def costs(together: Summary, alone: Mapping[str, Summary]) -> list[JobCost]:
    """Every job's, in the order of the scenario."""
    found: list[JobCost] = []
    for name, summary in alone.items():
        times = [_time_ps(together, name), _time_ps(summary, name)]
        states = [together.jobs[name].status, summary.jobs[name].status]
        why = "; ".join(
            f"{what}: {state}"
            for what, state in zip(("together", "alone"), states, strict=True)
            if state != "success"
        )
        found.append(JobCost(name, together.jobs[name].ranks, times[0], times[1], why))
    return found


def _time_ps(summary: Summary, name: str) -> int | None:
    job = summary.jobs[name]
    return job.end_ps - job.start_ps if job.end_ps is not None and job.start_ps is not None else None


def shared_links(alone: Mapping[str, Summary]) -> list[SharedLink]:
    """The links that two jobs or more use, the most used first."""
    on_link: dict[tuple[str, str, str], dict[str, int]] = {}
    for name, summary in alone.items():
        for link in summary.fabric.links:
            if link.data_bytes:
                on_link.setdefault((link.source, link.destination, link.name), {})[name] = link.data_bytes
    found = [SharedLink(key[0], key[1], jobs) for key, jobs in on_link.items() if len(jobs) > 1]
    return sorted(found, key=lambda one: (-sum(one.job_bytes.values()), one.source, one.destination))


def text(jobs: Sequence[JobCost], links: Sequence[SharedLink]) -> list[str]:
    """Two tables."""
    rows = [("job", "ranks", "together", "alone", "slowdown", "shares links with", "")]
    for one in jobs:
        others: dict[str, int] = {}
        for link in links:
            if one.name in link.job_bytes:
                for other in link.job_bytes:
                    if other != one.name:
                        others[other] = others.get(other, 0) + 1
        rows.append(
            (
                one.name,
                str(one.ranks),
                about_time(one.together_ps) if one.together_ps is not None else "-",
                about_time(one.alone_ps) if one.alone_ps is not None else "-",
                f"{one.slowdown:.3f}" if one.slowdown is not None else "-",
                ", ".join(f"{other} ({count})" for other, count in others.items()) or "nobody",
                one.why,
            )
        )
    lines = aligned(rows)
    if not links:
        return [*lines, "", "no link carries payload of two jobs"]
    shown = [("shared link", "payload of each job by itself")]
    shown += [
        (
            f"{link.source} -> {link.destination}",
            "  ".join(f"{name} {about_size(size)}" for name, size in link.job_bytes.items()),
        )
        for link in links[:MOST_LINKS]
    ]
    left = len(links) - MOST_LINKS
    return [*lines, "", *aligned(shown), *([f"and {left} more"] if left > 0 else [])]


def json_text(jobs: Sequence[JobCost], links: Sequence[SharedLink]) -> str:
    """The same as JSON, every link listed."""
    value: dict[str, Any] = {
        "jobs": [
            {
                "name": one.name,
                "ranks": one.ranks,
                "together_ps": one.together_ps,
                "alone_ps": one.alone_ps,
                "slowdown": one.slowdown,
                "why": one.why,
            }
            for one in jobs
        ],
        "shared_links": [
            {"from": one.source, "to": one.destination, "bytes": dict(one.job_bytes)} for one in links
        ],
    }
    return json.dumps(value, indent=2) + "\n"


def _run(
    scenario: str,
    assignments: Sequence[str],
    seed: str | None,
    variant: str,
    options: RunOptions,
    changes: Sequence[str],
    *,
    here: bool = False,
) -> tuple[int, str, str, Summary]:
    """One of the runs: exit status, message, ending and summary; `here`: in one process, beside others."""
    prepared = prepare(load_scenario(scenario, [*assignments, *changes], seed, variant))
    if here:
        options = options._replace(local=True, chooses=False)
    with nullcontext() if here else RunLeft(prepared.jobs) as left:
        result = run_prepared(prepared, options, left)
    return result.exit_status, result.outcome.message, result.outcome.ending.value, result.summary


@click.command()
@click.argument("scenario")
@overriding
@placed
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every shared link listed.")
@click.option("--quiet", is_flag=True, help="Print only failures on standard error.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO's jobs together, then each by itself, and print each job's slowdown and the shared links.

    A job that does not run keeps its queue pairs, so the others have the same paths. Faults happen in every
    run; `expect` is not judged. Exit status: the worst of the runs', as of `emu run`.
    """
    options = where._replace(metrics=False)
    names = [
        job.name for job in load_scenario(scenario, assignments, seed, variant).scenario.jobs if job.enabled
    ]
    if len(names) < 2:
        raise UsageError(f"{scenario} has one job; accepted: a scenario with two jobs or more")
    loaded = load_scenario(scenario, [*assignments, NO_EXPECT], seed, variant)
    changed = [()] + [
        tuple(
            f"jobs[{index}].enabled=false"
            for index, job in enumerate(loaded.scenario.jobs)
            if job.name != name
        )
        for name in names
    ]
    one_run = partial(_run, scenario, [*assignments, NO_EXPECT], seed, variant, options)
    many = Machines() if (where.local or where.chooses) and where.parts == 1 else Machines(1)
    summaries: list[Summary] = []
    worst = 0
    with session_of(where):
        if many == Machines():
            one_run = partial(one_run, here=True)
        said = ["together", *(f"{name} alone" for name in names)]
        for told, (status, message, ending, summary) in zip(
            said, answers(many, one_run, changed), strict=True
        ):
            worst = max(worst, status)
            summaries.append(summary)
            if message:
                click.echo(f"emu: {told}: {message}", err=True)
            elif not quiet:
                click.echo(f"{told}: {ending}", err=True)
    together, alone = summaries[0], dict(zip(names, summaries[1:], strict=True))
    jobs, links = costs(together, alone), shared_links(alone)
    if as_json:
        click.echo(json_text(jobs, links), nl=False)
    else:
        say("\n".join(text(jobs, links)))
    return worst
