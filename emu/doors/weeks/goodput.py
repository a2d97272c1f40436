"""What came of a campaign over its seeds: goodput, where time went, what struck, what would change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple

from emu.doors.weeks.campaign_file import UNITS_MS
from emu.doors.weeks.optimum import daly_ms, expected_goodput, young_ms
from emu.doors.weeks.weeks import PHASES, Course, Weeks, weeks
from emu.many_runs import HERE, answers


class Knob(NamedTuple):
    """What a sensitivity is about, and how a course is changed by a factor."""

    name: str
    change: Any


def _times(field: str) -> Any:
    def change(course: Course, factor: Fraction) -> Course:
        return replace(course, **{field: max(round(getattr(course, field) * factor), 0)})

    return change


def _failures(course: Course, factor: Fraction) -> Course:
    causes = tuple(replace(one, per_ms=one.per_ms * factor) for one in course.causes)
    log = None if course.log is None else course.log._replace(times=course.log.times * factor)
    return replace(course, causes=causes, log=log)


def _noticing(course: Course, factor: Fraction) -> Course:
    changed = (replace(one, noticed_ms=round(one.noticed_ms * factor)) for one in course.causes)
    return replace(course, causes=tuple(changed))


def _interval(course: Course, factor: Fraction) -> Course:
    return replace(course, steps_between=max(round(course.steps_between * factor), 1))


KNOBS: Final = (
    Knob("failures", _failures),
    Knob("checkpoint.every", _interval),
    Knob("checkpoint.stalls", _times("stalls_ms")),
    Knob("checkpoint.written_after", _times("written_ms")),
    Knob("checkpoint.loads", _times("loads_ms")),
    Knob("detection", _noticing),
    Knob("recovery.self_check", _times("self_check_ms")),
    Knob("recovery.replace", _times("replace_ms")),
    Knob("recovery.init", _times("init_ms")),
    Knob("recovery.repaired_after", _times("repaired_ms")),
    Knob("spare_hosts", _times("spare_hosts")),
)
FACTORS: Final = (Fraction(1, 3), Fraction(3))


@dataclass(frozen=True, slots=True)
class Seed:
    """One seed's figures."""

    kept_ms: int
    steps: int
    shares_ms: dict[str, int]
    struck: Counter[str]
    hosts: Counter[str]
    """How often each host was struck."""
    noticed_ms: tuple[int, ...]
    recovered_ms: tuple[int, ...]


def figures(one: Weeks, course: Course) -> Seed:
    """What is added up over seeds."""
    planned = {cause.name for cause in course.causes if cause.shows == "planned"}
    return Seed(
        one.kept_ms(),
        one.rows[-1].steps_to if one.rows else 0,
        one.shares_ms(),
        Counter(strike.cause for strike in one.strikes),
        Counter(strike.host for strike in one.strikes if strike.host),
        one.noticed_ms,
        tuple(one.recovered_ms(planned)),
    )


def simulated(course: Course, seeds: Iterable[int], done: Callable[[], None] = lambda: None) -> list[Seed]:
    """The campaign with each seed, some seeds at a time on each core; `done` is called after each."""
    wanted = list(seeds)
    parts = [wanted[at : at + AT_ONCE] for at in range(0, len(wanted), AT_ONCE)]
    found: list[Seed] = []
    for several in answers(HERE, partial(_of_seeds, course), parts):
        for one in several:
            found.append(one)
            done()
    return found


AT_ONCE: Final = 10
"""Seeds that a process follows, since each takes some milliseconds."""


def _of_seeds(course: Course, seeds: Sequence[int]) -> list[Seed]:
    return [figures(weeks(course, seed), course) for seed in seeds]


def _mean_s(values_ms: Sequence[int]) -> float | None:
    return round(sum(values_ms) / len(values_ms) / 1000, 3) if values_ms else None


def goodput(course: Course, seeds: Sequence[Seed]) -> float:
    """The mean share of time whose work counts."""
    return sum(one.kept_ms for one in seeds) / (len(seeds) * course.lasts_ms)


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summary_of(name: str, seed: int, course: Course, seeds: Sequence[Seed]) -> dict[str, Any]:
    """Plain values: means over seeds unless a name says otherwise. Times in seconds, shares of the time."""
    count = len(seeds)
    planned = {one.name for one in course.causes if one.shows == "planned"}
    struck: Counter[str] = sum((one.struck for one in seeds), Counter())
    total = sum(struck.values())
    unplanned = sum(many for cause, many in struck.items() if cause not in planned)
    goods = [one.kept_ms / course.lasts_ms for one in seeds]
    every_ms = course.steps_between * course.step_ms
    rate = course.stops_per_ms
    mean_ms = float(1 / rate) if rate else None
    whole_ms = count * course.lasts_ms
    every_s = {
        name: round(whole_ms / many / 1000, 3) if many else None
        for name, many in (("any", total), ("unplanned", unplanned), ("planned", total - unplanned))
    }
    shares = {
        phase: round(sum(one.shares_ms[phase] for one in seeds) / whole_ms, 6)
        for phase in ("kept", "redone", "slowed", *PHASES[2:])
    }
    gpu_hours = course.lasts_ms * course.gpus / UNITS_MS["h"]
    return {
        "name": name,
        "seed": seed,
        "seeds": count,
        "lasts_s": course.lasts_ms / 1000,
        "goodput": round(sum(goods) / count, 6),
        "goodput_p5": round(_percentile(goods, 0.05), 6),
        "goodput_p95": round(_percentile(goods, 0.95), 6),
        "steps": sum(one.steps for one in seeds) // count,
        "interruptions": round(total / count, 3),
        "unexpected": round(unplanned / count, 3),
        "mtbf_s": every_s["unplanned"],
        "planned_every_s": every_s["planned"],
        "interrupted_every_s": every_s["any"],
        "mttd_s": _mean_s([ms for one in seeds for ms in one.noticed_ms]),
        "mttr_s": _mean_s([ms for one in seeds for ms in one.recovered_ms]),
        "gpu_hours": {
            "all": round(gpu_hours, 1),
            "kept": round(gpu_hours * shares["kept"], 1),
            "lost": round(gpu_hours * (1 - shares["kept"]), 1),
        },
        "hosts": {
            "struck": round(sum(len(one.hosts) for one in seeds) / count, 3),
            "struck_again": round(sum(sum(n > 1 for n in one.hosts.values()) for one in seeds) / count, 3),
        },
        "causes": {one.name: round(struck[one.name] / count, 3) for one in course.causes},
        "shares": shares,
        "checkpoint": {
            "every_s": every_ms / 1000,
            "young_s": None if mean_ms is None else round(young_ms(course.stalls_ms, mean_ms) / 1000, 3),
            "daly_s": None if mean_ms is None else round(daly_ms(course.stalls_ms, mean_ms) / 1000, 3),
            "expected_goodput": None
            if mean_ms is None
            else round(expected_goodput(every_ms, course.stalls_ms, mean_ms, float(course.restart_ms())), 6),
        },
    }


def sensitivities(
    course: Course, seeds: Sequence[int], base: float, done: Callable[[], None] = lambda: None
) -> list[tuple[str, list[float]]]:
    """By knob: what a third of it, and three times of it, change of the goodput, with the same seeds."""
    return [
        (
            knob.name,
            [
                goodput(course, simulated(knob.change(course, factor), seeds, done)) - base
                for factor in FACTORS
            ],
        )
        for knob in KNOBS
        if not (knob.name == "failures" and course.log is not None and course.log.replayed)
    ]
