"""Scores of the diagnosis: by symptoms alone, and after healing.

    python -m tests.diagnosis.scores [--share 1/10] [--seed 500000] [KIND ...]

Eight tables: single faults, pairs of faults, pairs of faults that each suffice, pairs with a harmless oddity
beside them, contention between jobs, healthy runs with a harmless oddity and without, and live runs that are
broken from outside. What is right to say is
worked out from what was done to a run, by leaving it out; the diagnosis does not see that. `--share` is of
the counts that docs/diagnosis.md gives.

A line for each run in which something was missed, or an innocent accused, follows each table. Rules are made
with the seeds from `RULES_SEEDS` on; scores are of those that follow from the hash of the last commit that
changed the diagnosis (`first_seed`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from math import comb
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import emu.views.diagnosis.finding
import emu.views.repairs.counterfactual
import emu.views.repairs.run_diagnosis
from emu import api
from emu.base.cores import usable_cores
from emu.base.errors import ScenarioError
from emu.results.summary import Diagnosed
from tests.diagnosis import healthy
from tests.diagnosis.draws import Answer, Drawn, base_of, base_scenario, drawn
from tests.diagnosis.live_runs import live
from tests.diagnosis.scoring import Run, answers_of, begins_ps, mattered, right, run, span_ps
from tests.diagnosis.scoring import healthy as well
from tests.scenario.plain import plain

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


def first_seed() -> int:
    """The first seed of the runs that are scored: it follows from the hash of the last commit that changed
    the diagnosis, so that no rule can have been made after a look at one of them.
    """
    diagnosis = Path(emu.views.diagnosis.finding.__file__).parent
    places = [
        str(diagnosis),
        emu.views.repairs.counterfactual.__file__,
        emu.views.repairs.run_diagnosis.__file__,
    ]
    words = ["git", "log", "-1", "--format=%H", "--", *places]
    found = subprocess.run(words, cwd=diagnosis, capture_output=True, text=True, check=True).stdout.strip()
    return 2_000_000 + int(found[:8], 16) % 1_000_000 * 1_000


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


def patient(broken: Run, mapping: dict[str, Any]) -> tuple[Answer, ...]:
    """That timers are too short may be said where longer ones alone let the failed job end."""
    if not broken.failed:
        return ()
    longer = mapping | {"transport": mapping.get("transport", {}) | {"timeout": 20}}
    if set(broken.failed) <= set(run(longer).failed):
        return ()
    nics = tuple(node.name for node in api.prepare(mapping).topology.nodes if node.name.startswith("nic-"))
    return (Answer("timeout_short", nics),)


def single(seed: int) -> Case | None:
    """A run with one fault; None if that does not fit its fabric."""
    one = drawn(seed, span_ps)
    if one is None:
        return None
    mapping = base_scenario(one.base) | {"faults": [one.fault]}
    try:
        broken = run(mapping)
    except ScenarioError:
        return None
    answers = [answers_of(one)] if mattered(broken, well(one.base)) else []
    what = f"seed {seed}, base {one.base}, {one.fault}"
    return Case(what, answers, broken.symptoms, broken.found, patient(broken, mapping))


def pair_of(seed: int) -> tuple[Drawn, Drawn] | None:
    """Two faults of different kinds on one fabric."""
    first = drawn(seed, span_ps)
    for other in range(seed * 100, seed * 100 + 200):
        second = drawn(other, span_ps) if first and base_of(other) == first.base else None
        if first and second and second.fault["kind"] != first.fault["kind"]:
            return first, second
    return None


def alike(seed: int) -> tuple[Drawn, Drawn] | None:
    """Two faults of one kind, as large and at the same time, at two places of one fabric: mostly each of them
    is enough to cost what both do.
    """
    first = drawn(seed, span_ps)
    if first is None or first.fault["kind"] not in ALIKE:
        return None
    for other in range(seed * 100, seed * 100 + 400):
        second = drawn(other, span_ps) if base_of(other) == first.base else None
        if second and second.fault["kind"] == first.fault["kind"] and not _same(first, second):
            target = {"target": second.fault["target"]}
            if "sender" in second.fault:
                target["sender"] = second.fault["sender"]
            left = {key: value for key, value in first.fault.items() if key != "sender"}
            return first, second._replace(fault=left | target)
    return None


ALIKE = (
    "link_down",
    "degrade",
    "delay",
    "port_down",
    "slow_receiver",
    "gpu_slow",
    "straggler",
    "switch_reboot",
)
"""Kinds of which two may each be enough."""


def _same(first: Drawn, second: Drawn) -> bool:
    """Whether two faults hit the same."""
    return any(one == other for one in first.answers for other in second.answers)


def suffice(seed: int) -> Case | None:
    """A run with two faults that each suffice: together they cost time or end a job, and leaving out either
    alone gives back less than half of that. Both are to be named with the time.
    """
    two = alike(seed)
    if two is None:
        return None
    base = base_scenario(two[0].base)
    meant_ps = _took_ps(well(two[0].base))
    try:
        broken = run(base | {"faults": [one.fault for one in two]})
        alone = [run(base | {"faults": [one.fault]}) for one in two]
    except ScenarioError:
        return None
    if not all(begins_ps(one) < broken.end_ps for one in two):
        return None
    cost_ps = _took_ps(broken) - meant_ps
    if cost_ps * 20 < meant_ps or any(2 * (_took_ps(broken) - _took_ps(one)) >= cost_ps for one in alone):
        return None
    answers = [tuple(one._replace(time=True) for one in answers_of(one)) for one in two]
    what = f"seed {seed}, base {two[0].base}, {' and '.join(str(one.fault) for one in two)}"
    return Case(what, answers, broken.symptoms, broken.found, patient(broken, base))


def _took_ps(one: Run) -> int:
    """How long the job took; for ever where it failed."""
    return 10**15 if one.failed else one.spans_ps["train"]


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
    also = patient(broken, base_scenario(two[0].base) | {"faults": [one.fault for one in two]})
    also += tuple(answer for one in by_themselves if one not in harmful for answer in answers_of(one))
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


def sound(seed: int) -> Case:
    """A healthy run; of several jobs, that they keep each other waiting may be said."""
    mapping = healthy.scenario(seed)
    found = run(mapping)
    names = tuple(job["name"] for job in mapping["jobs"])
    also = (Answer("contention", names),) if len(names) > 1 else ()
    return Case(f"seed {seed}", [], found.symptoms, found.found, also)


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
    "suffice": Kind(100, suffice),
    "odd_pairs": Kind(30, odd_pair),
    "contention": Kind(100, contention),
    "oddities": Kind(200, odd),
    "healthy": Kind(100, sound),
    "live": Kind(20, broken_live),
}


def cases_of(kind: Kind, count: int, seed: int, cores: int = 1) -> list[Case]:
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
    words.add_argument("--seed", type=int, default=None, help="the first; otherwise that of the last commit")
    words.add_argument("--cores", type=int, default=usable_cores())
    words.add_argument("names", nargs="*", metavar="KIND", help=", ".join(KINDS))
    given = words.parse_args()
    chosen = first_seed() if given.seed is None else given.seed
    sys.stdout.write(f"seeds from {chosen} on\n")
    main(given.share, chosen, given.cores, given.names)
