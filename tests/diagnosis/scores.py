"""Scores of the diagnosis: by symptoms alone, and after healing.

    python -m tests.diagnosis.scores [--share 1/10] [--seed 500000] [KIND ...]

Six tables: single faults, pairs of faults, pairs with a harmless oddity beside them, contention between jobs,
healthy runs with a harmless oddity, and live runs that are broken from outside. What is right to say is
worked out from what was done to a run, by leaving it out; the diagnosis does not see that. `--share` is of
the counts that docs/diagnosis.md gives.

A line for each run in which something was missed, or an innocent accused, follows each table. Rules are made
with the seeds from `RULES_SEEDS` on; those from `FIRST_SEED` on are only for scores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from math import comb
from random import Random
from typing import Any, NamedTuple

from emu.base.cores import usable_cores
from emu.base.errors import ScenarioError
from emu.results.summary import Diagnosed
from tests.diagnosis import healthy
from tests.diagnosis.draws import Answer, Drawn, base_of, base_scenario, drawn
from tests.diagnosis.live_runs import live
from tests.diagnosis.scoring import Run, answers_of, begins_ps, mattered, right, run, span_ps
from tests.diagnosis.scoring import healthy as well
from tests.scenario.plain import plain

FIRST_SEED = 1_700_000
"""Of the runs that are scored. No rule was made, or changed, after a look at one of them."""
RULES_SEEDS = (500_000, 900_000, 1_300_000)
"""The first of runs that were looked at while rules were made."""
NOTHING: dict[str, Any] = {}


class Case(NamedTuple):
    """One run that is scored."""

    what: str
    """What was done to it."""
    answers: list[tuple[Answer, ...]]
    """Of each thing that did harm, what is right to say."""
    symptoms: list[Diagnosed]
    healed: list[Diagnosed]
    also: tuple[Answer, ...] = ()
    """What may be said besides."""

    def named(self, said: list[Diagnosed]) -> bool:
        """Whether all that did harm is named; if it is one, first."""
        within = said[:1] if len(self.answers) == 1 and not self.also else said
        return all(any(right(one, wanted) for one in within) for wanted in self.answers)

    def accused(self, said: list[Diagnosed]) -> bool:
        """Whether something else is named too."""
        return any(not any(right(one, wanted) for wanted in (*self.answers, self.also)) for one in said)

    def fault(self) -> str:
        """What is wrong with what is said after healing; empty if nothing is."""
        wrong = [] if self.named(self.healed) else ["missed"]
        wrong += ["accused"] if self.accused(self.healed) else []
        if not wrong:
            return ""
        asked = " and ".join(
            "|".join(f"{one.cause} {one.places[0]}" for one in wanted) for wanted in self.answers
        )
        said = ", ".join(f"{one.cause} {one.place}" for one in self.healed)
        return f"{' and '.join(wrong)}: {self.what}; asked {asked or 'nothing'}; said {said or 'nothing'}"


class Score(NamedTuple):
    """Of many runs."""

    runs: int
    asked: int
    """Runs with something to name."""
    named: int
    """Those in which all of it was named, or, of one, named first."""
    accused: int
    """Runs in which something else was named too."""

    def __str__(self) -> str:
        """Shares, and what they show of other runs: named at least, accused at most, at 95 % confidence."""
        named = " " * 30
        if self.asked:
            least = 100 - at_most_percent(self.asked - self.named, self.asked)
            named = (
                f"{self.named:>4} of {self.asked:<4} {100 * self.named / self.asked:5.1f} % ({least:4.1f} %)"
            )
        accused = f"{self.accused:>5} of {self.runs:<4} {100 * self.accused / max(self.runs, 1):4.1f} %"
        return f"{named} {accused} ({at_most_percent(self.accused, self.runs):4.1f} %)"


def at_most_percent(count: int, runs: int) -> float:
    """The largest share at which so few of these runs would be seen once in twenty times (Clopper and
    Pearson, 1934); of none about 300 / runs.
    """
    low, high = count / max(runs, 1), 1.0
    for _ in range(40):
        share = (low + high) / 2
        seen = sum(comb(runs, at) * share**at * (1 - share) ** (runs - at) for at in range(count + 1))
        low, high = (share, high) if seen > 0.05 else (low, share)
    return 100 * high


def scores(cases: list[Case]) -> tuple[Score, Score]:
    """By symptoms alone, and after healing."""
    asked = [one for one in cases if one.answers]
    return (
        Score(
            len(cases),
            len(asked),
            sum(one.named(one.symptoms) for one in asked),
            sum(one.accused(one.symptoms) for one in cases),
        ),
        Score(
            len(cases),
            len(asked),
            sum(one.named(one.healed) for one in asked),
            sum(one.accused(one.healed) for one in cases),
        ),
    )


def single(seed: int) -> Case | None:
    """A run with one fault; None if that does not fit its fabric."""
    one = drawn(seed, span_ps)
    if one is None:
        return None
    try:
        broken = run(base_scenario(one.base) | {"faults": [one.fault]})
    except ScenarioError:
        return None
    answers = [answers_of(one)] if mattered(broken, well(one.base)) else []
    return Case(f"seed {seed}, base {one.base}, {one.fault}", answers, broken.symptoms, broken.found)


def pair_of(seed: int) -> tuple[Drawn, Drawn] | None:
    """Two faults of different kinds on one fabric."""
    first = drawn(seed, span_ps)
    for other in range(seed * 100, seed * 100 + 200):
        second = drawn(other, span_ps) if first and base_of(other) == first.base else None
        if first and second and second.fault["kind"] != first.fault["kind"]:
            return first, second
    return None


def pair(seed: int, odd: dict[str, Any] = NOTHING) -> Case | None:
    """A run with two faults, and with what is `odd` beside them. One that came after its end is none of it.
    Each is to be named that gives back something where it is left out, or both where only leaving out both
    does. One that would have done harm without the other may be named.
    """
    two = pair_of(seed)
    if two is None:
        return None

    def with_faults(found: list[Drawn]) -> Run:
        more = {"faults": [*(one.fault for one in found), *odd.get("faults", ())]}
        return run(base_scenario(two[0].base) | odd | more)

    try:
        sound = with_faults([]) if odd else well(two[0].base)
        broken = with_faults([*two])
        happened = [one for one in two if begins_ps(one) < broken.end_ps]
        alone = [with_faults([one]) for one in happened]
    except ScenarioError:
        return None
    if mattered(sound, well(two[0].base)):
        return None  # not harmless there
    others = reversed(alone) if len(happened) > 1 else [sound]
    harmful = [one for one, other in zip(happened, others, strict=True) if mattered(broken, other)]
    if not harmful and mattered(broken, sound):
        harmful = happened
    by_themselves = [one for one, own in zip(happened, alone, strict=True) if mattered(own, sound)]
    what = f"seed {seed}, base {two[0].base}, {' and '.join(str(one.fault) for one in two)}"
    what += f", {odd}" if odd else ""
    also = tuple(answer for one in by_themselves if one not in harmful for answer in answers_of(one))
    if odd and mattered(broken, run(base_scenario(two[0].base) | {"faults": [one.fault for one in two]})):
        also += answers_of_oddity(odd)  # harmless alone, and not beside these
    return Case(what, [answers_of(one) for one in harmful], broken.symptoms, broken.found, also)


def contending(seed: int) -> dict[str, Any]:
    """A collective, and flows beside it."""
    random = Random(9000 + seed)
    star = {"kind": "star", "hosts": 8, "link": "100G"}
    noise = random.choice(
        [
            {"kind": "incast", "size": random.choice(["256KiB", "2MiB"]), "fan_in": 3},
            {"kind": "permutation", "size": random.choice(["256KiB", "4MiB"])},
        ]
    )
    ring = {"kind": "collective", "op": "all_reduce", "sizes": ["512KiB"], "iterations": 8}
    return plain(
        {
            "name": "contending",
            "seed": seed,
            "topology": random.choice([star, healthy.FABRICS[0]]),
            "jobs": [
                {"name": "train", "ranks": random.sample(range(8), 4), "workload": ring},
                {"name": "noise", "ranks": random.sample(range(8), 4), "workload": noise},
            ],
        }
    )


def contention(seed: int) -> Case | None:
    """A run of two jobs; one is to be named if the other is quicker without it. Ports are known only by
    healing.
    """
    mapping = contending(seed)
    together = run(mapping)
    guilty: list[str] = []
    for name in ("train", "noise"):
        jobs = [one | {"enabled": one["name"] != name} for one in mapping["jobs"]]
        alone = run(mapping | {"jobs": jobs})
        if mattered(together._replace(alarms=alone.alarms), alone):
            guilty.append(name)
    answers = [tuple(Answer("contention", (name,), "they meet at") for name in guilty)] if guilty else []
    return Case(f"seed {seed}", answers, together.symptoms, together.found)


def oddity(random: Random) -> dict[str, Any]:
    """Something that is not as everywhere else, and costs nothing worth telling."""
    return random.choice(
        [
            {"overrides": [{"devices": "nic-1-0", "transport": {"ack_every": 2}}]},
            {"overrides": [{"devices": "gpu-1-0", "gpu": {"copy_latency": "2us"}}]},
            {"faults": [{"kind": "gpu_slow", "target": "gpu-0-0", "factor": "101/100"}]},
            {"faults": [{"kind": "delay", "target": "any nic:switch", "added": "10ns"}]},
            {"faults": [{"kind": "straggler", "target": "host-1", "factor": "101/100", "at": "20us"}]},
        ]
    )


def answers_of_oddity(what: dict[str, Any]) -> tuple[Answer, ...]:
    """What is right to say of an oddity that does harm."""
    found = [Answer("odd_configuration", (one["devices"],)) for one in what.get("overrides", ())]
    found += [Answer(one["kind"], (one["target"],)) for one in what.get("faults", ())]
    return tuple(found)


def odd_pair(seed: int) -> Case | None:
    """A run with two faults and a harmless oddity; None where that costs 5 % or more."""
    return pair(seed, oddity(Random(seed)))


def odd(seed: int) -> Case | None:
    """A healthy run with an oddity that costs less than 5 %; None where it costs more."""
    mapping = healthy.scenario(seed)
    if len(mapping["jobs"]) > 1:
        return None
    what = oddity(Random(seed))
    try:
        found = run(mapping | what)
    except ScenarioError:
        return None
    if mattered(found, run(mapping)):
        return None
    return Case(f"seed {seed}, {what}", [], found.symptoms, found.found)


def broken_live(seed: int) -> Case | None:
    """A live run into which a fault was injected."""
    found = live(seed)
    if found is None:
        return None
    answers = [answers_of(found.drawn)] if mattered(found.broken, found.well) else []
    what = f"seed {seed}, base {found.drawn.base}, {found.drawn.fault}"
    return Case(what, answers, found.broken.symptoms, found.broken.found)


class Kind(NamedTuple):
    """One table: how many runs, and the case of a seed."""

    runs: int
    case: Callable[[int], Case | None]


KINDS = {
    "single": Kind(300, single),
    "pairs": Kind(200, pair),
    "odd_pairs": Kind(30, odd_pair),
    "contention": Kind(100, contention),
    "oddities": Kind(200, odd),
    "live": Kind(20, broken_live),
}


def cases_of(kind: Kind, count: int, seed: int = FIRST_SEED, cores: int = 1) -> list[Case]:
    """So many cases, in the order of their seeds from `seed` on, whatever ran beside what."""
    found: list[Case] = []
    with ProcessPoolExecutor(cores) as beside:
        while len(found) < count:
            seeds = range(seed, seed + count - len(found))
            seed = seeds.stop
            found += [one for one in (beside.map if cores > 1 else map)(kind.case, seeds) if one is not None]
    return found


def main(share: Fraction, seed: int, cores: int, names: list[str]) -> None:
    """Print all, or those of some names."""
    sys.stdout.write(f"{'':<21} {'named (at least)':<29} {'innocents accused (at most)':>28}\n")
    for name, kind in KINDS.items():
        if names and name not in names:
            continue
        begun = time.perf_counter()
        cases = cases_of(kind, int(kind.runs * share), seed, cores)
        for what, score in zip(("symptoms", "healed"), scores(cases), strict=True):
            sys.stdout.write(f"{name:<11} {what:<9} {score}\n")
        for line in filter(None, (one.fault() for one in cases)):
            sys.stdout.write(f"    {line}\n")
        sys.stdout.write(f"    {time.perf_counter() - begun:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("--share", type=Fraction, default=Fraction(1))
    words.add_argument("--seed", type=int, default=FIRST_SEED)
    words.add_argument("--cores", type=int, default=usable_cores())
    words.add_argument("names", nargs="*", metavar="KIND", help=", ".join(KINDS))
    given = words.parse_args()
    main(given.share, given.seed, given.cores, given.names)
