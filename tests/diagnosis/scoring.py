"""How often is a diagnosis right? Runs with a drawn fault, against the same runs without.

A fault *mattered* if the job took 5 % longer or did not end well, or if a counter that an operator is called
for rose by 5 % or more. Those that mattered are to be named; of the others nothing is to be said.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from emu import api
from emu.errors import ScenarioError
from emu.measure.summary.summary import Diagnosed
from tests.diagnosis.draws import Answer, Drawn, base_scenario, drawn

ALARMED = ("nic_out_of_sequence", "nic_local_ack_timeout_err", "pfc_watchdog_storms")
NOTHING = "nothing"


class Run(NamedTuple):
    """What is compared of two runs."""

    span_ps: int
    """Of the job; -1 if it did not end well."""
    alarms: dict[str, int]
    found: list[Diagnosed]


class Scored(NamedTuple):
    """A fault, whether it mattered, and what was said."""

    drawn: Drawn
    mattered: bool
    rank: int
    """Place of the right answer, from 0; -1 where it was not given."""
    said: str
    """The first cause."""
    found: list[Diagnosed]
    why: str


def run(mapping: dict[str, object]) -> Run:
    """A run, seen through what is compared."""
    result = api.run(mapping, local=True)
    job = result.summary.jobs["train"]
    span_ps = -1
    if job.status == "success" and job.start_ps is not None and job.end_ps is not None:
        span_ps = job.end_ps - job.start_ps
    alarms = dict.fromkeys((*ALARMED, "headroom_overrun", "downs"), 0)
    for record in result.outcome.devices:
        alarms["downs"] += len(record.shown.get("downs", ()))
        for series, value in zip(record.series, record.counters, strict=True):
            for name in (series.metric, series.reason):
                if name in alarms:
                    alarms[name] += value
    return Run(span_ps, alarms, result.summary.diagnosis)


@cache
def healthy(base: int) -> Run:
    """A base without faults."""
    return run(base_scenario(base))


def mattered(broken: Run, well: Run) -> str:
    """Why a fault mattered; empty if it did not."""
    if broken.span_ps < 0:
        return "failed"
    if broken.span_ps * 100 >= well.span_ps * 105:
        return f"{(broken.span_ps - well.span_ps) * 100 // well.span_ps}% slower"
    risen = [
        name
        for name, value in broken.alarms.items()
        if value > well.alarms[name] and value * 100 >= well.alarms[name] * 105
    ]
    return ", ".join(risen)


def right(found: Diagnosed, answers: Iterable[Answer]) -> bool:
    """Whether this is a right thing to say."""
    return any(
        found.cause == one.cause and found.place in one.places and one.words in found.sentence
        for one in answers
    )


def scored(seed: int) -> Scored | None:
    """The fault of a seed, and what was said of it; None if it does not fit its fabric."""
    one = drawn(seed, lambda base: healthy(base).span_ps)
    if one is None:
        return None
    try:
        broken = run(base_scenario(one.base) | {"faults": [one.fault]})
    except ScenarioError:
        return None
    answers = one.answers
    if one.fault["kind"] == "link_flap" and broken.alarms["downs"] <= 2:
        answers = (Answer("link_down", answers[0].places),)
    places = [at for at, found in enumerate(broken.found) if right(found, answers)]
    why = mattered(broken, healthy(one.base))
    said = broken.found[0].cause if broken.found else NOTHING
    return Scored(one, bool(why), places[0] if places else -1, said, broken.found, why)


def faults(first_seed: int, count: int) -> list[Scored]:
    """So many drawn faults, from a seed on."""
    found: list[Scored] = []
    seed = first_seed
    while len(found) < count:
        one = scored(seed)
        seed += 1
        if one is not None:
            found.append(one)
    return found


class Figures(NamedTuple):
    """What came of many faults, in per cent."""

    mattered: int
    first: int
    among_three: int
    silent: int
    """Of the others: nothing was said."""


def figures(rows: list[Scored]) -> Figures:
    """The shares, rounded down."""
    named = [one for one in rows if one.mattered]
    others = [one for one in rows if not one.mattered]
    return Figures(
        len(named),
        sum(one.rank == 0 for one in named) * 100 // max(len(named), 1),
        sum(0 <= one.rank < 3 for one in named) * 100 // max(len(named), 1),
        sum(one.said == NOTHING for one in others) * 100 // max(len(others), 1),
    )


def table(rows: list[Scored]) -> str:
    """The confusion table: a row for each kind of fault, what was said of it, and how often."""
    kinds = sorted({one.drawn.fault["kind"] for one in rows})
    lines = [f"{'fault':<18} mattered first three  said first                 others: nothing"]
    for kind in kinds:
        of_kind = [one for one in rows if one.drawn.fault["kind"] == kind]
        hit = [one for one in of_kind if one.mattered]
        missed = [one for one in of_kind if not one.mattered]
        said: dict[str, int] = {}
        for one in hit:
            said[one.said] = said.get(one.said, 0) + 1
        words = ", ".join(
            f"{cause} {count}" for cause, count in sorted(said.items(), key=lambda at: (-at[1], at))
        )
        silent = sum(one.said == NOTHING for one in missed)
        first, three = sum(one.rank == 0 for one in hit), sum(0 <= one.rank < 3 for one in hit)
        lines.append(f"{kind:<18} {len(hit):>8} {first:>5} {three:>5}  {words:<28} {silent} of {len(missed)}")
    return "\n".join(lines)
