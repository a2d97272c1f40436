"""Scores of the diagnosis: by symptoms alone, and after healing (`python -m tests.diagnosis.scores [SHARE]`).

Four tables: single faults, pairs of faults, contention between jobs, healthy runs with a harmless oddity.
What is right to say is worked out from what was scripted, by leaving it out; the diagnosis does not see that.
`SHARE` is of the counts that docs/diagnosis.md gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

from emu import api, run_diagnosis
from emu.errors import ScenarioError
from emu.measure.summary.summary import Diagnosed, Summary
from tests.diagnosis import healthy
from tests.diagnosis.draws import Answer, Drawn, base_scenario, drawn
from tests.diagnosis.scoring import Run, faults, mattered, right, run
from tests.diagnosis.scoring import healthy as well

COUNTS = {"single": 300, "pairs": 200, "contention": 100, "oddities": 200}
FIRST_SEED = 500_000


Rows = Iterator[tuple[list[tuple[Answer, ...]], list[Diagnosed], list[Diagnosed]]]
"""Of a run: what is right to say of each that did harm, what symptoms say, and what is said after healing."""


class Score(NamedTuple):
    """Of many runs."""

    runs: int
    asked: int
    """Runs with something to name."""
    named: int
    """Those in which all of it was named, or, of one, named first."""
    innocent: int
    """Runs in which something else was named too."""

    def __str__(self) -> str:
        share = 100 * self.named / max(self.asked, 1)
        innocent = f"innocents accused in {self.innocent} of {self.runs}"
        return f"{self.named:>4} of {self.asked:<4} ({share:5.1f} %)  {innocent}"


def unhealed(mapping: dict[str, Any]) -> list[Diagnosed]:
    """What is said where nothing may be emulated."""
    most = run_diagnosis.MOST_EVENTS
    try:
        run_diagnosis.MOST_EVENTS = -1  # type: ignore[misc]
        return api.run(mapping, local=True).summary.diagnosis
    finally:
        run_diagnosis.MOST_EVENTS = most  # type: ignore[misc]


def both(rows: Rows) -> tuple[Score, Score]:
    """The two scores of runs."""
    found = [[0, 0, 0, 0], [0, 0, 0, 0]]
    for answers, *said in rows:
        for at, diagnosis in enumerate(said):
            found[at][0] += 1
            found[at][1] += bool(answers)
            within = diagnosis[:1] if len(answers) == 1 else diagnosis
            hit = all(any(right(one, wanted) for one in within) for wanted in answers)
            found[at][2] += bool(answers) and hit
            found[at][3] += any(not any(right(one, wanted) for wanted in answers) for one in diagnosis)
    symptoms, healed = (Score(*one) for one in found)
    return symptoms, healed


def worse(broken: Run, other: Run) -> bool:
    """Whether a run suffered beside another, which may have failed too."""
    if broken.span_ps < 0 and other.span_ps < 0:
        return bool(mattered(broken._replace(span_ps=1), other._replace(span_ps=1)))
    return other.span_ps >= 0 and bool(mattered(broken, other))


def singles(count: int) -> Rows:
    """Runs with one fault."""
    for one in faults(FIRST_SEED, count):
        mapping = base_scenario(one.drawn.base) | {"faults": [one.drawn.fault]}
        answers = one.drawn.answers
        if one.drawn.fault["kind"] == "link_flap":
            answers = (*answers, Answer("link_down", answers[0].places))
        yield [answers] if one.mattered else [], unhealed(mapping), one.found


def pair_of(seed: int) -> tuple[Drawn, Drawn] | None:
    """Two faults of different kinds on one fabric."""
    first = drawn(seed, lambda base: well(base).span_ps)
    for other in range(seed * 100, seed * 100 + 200) if first else ():
        second = drawn(other, lambda base: well(base).span_ps)
        if first and second and second.base == first.base and second.fault["kind"] != first.fault["kind"]:
            return first, second
    return None


def pairs(count: int) -> Rows:
    """Runs with two faults."""
    seed = FIRST_SEED
    while count:
        seed += 1
        drawn_pair = pair_of(seed)
        if drawn_pair is None:
            continue
        base = base_scenario(drawn_pair[0].base)
        try:
            broken = run(base | {"faults": [one.fault for one in drawn_pair]})
            alone = [run(base | {"faults": [one.fault]}) for one in drawn_pair]
        except ScenarioError:
            continue
        count -= 1
        others = zip(drawn_pair, reversed(alone), strict=True)
        harmful = [one for one, other in others if worse(broken, other)]
        if not harmful and mattered(broken, well(drawn_pair[0].base)):
            harmful = list(drawn_pair)
        answers = [
            (*one.answers, Answer("link_down", one.answers[0].places))
            if one.fault["kind"] == "link_flap"
            else one.answers
            for one in harmful
        ]
        yield answers, unhealed(base | {"faults": [one.fault for one in drawn_pair]}), broken.found


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
    return {
        "name": "contending",
        "seed": seed,
        "topology": random.choice([star, healthy.FABRICS[0]]),
        "jobs": [
            {"name": "train", "ranks": random.sample(range(8), 4), "workload": ring},
            {"name": "noise", "ranks": random.sample(range(8), 4), "workload": noise},
        ],
    }


def took(summary: Summary, name: str) -> int:
    """How long a job took."""
    job = summary.jobs[name]
    return (job.end_ps or 0) - (job.start_ps or 0)


def contention(count: int) -> Rows:
    """Runs of two jobs."""
    for seed in range(count):
        mapping = contending(seed)
        together = api.run(mapping, local=True).summary
        guilty: list[str] = []
        for name, other in (("train", "noise"), ("noise", "train")):
            jobs = [one | {"enabled": one["name"] != name} for one in mapping["jobs"]]
            alone = api.run(mapping | {"jobs": jobs}, local=True).summary
            if took(together, other) * 100 >= took(alone, other) * 105:
                guilty.append(name)
        answers = [tuple(Answer("contention", (name,), "they meet at") for name in guilty)] if guilty else []
        symptoms = [
            one.model_copy(update={"sentence": "they meet at"}) for one in unhealed(mapping)
        ]  # ports are known only by healing
        yield answers, symptoms, together.diagnosis


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


def oddities(count: int) -> Rows:
    """Healthy runs with an oddity that costs less than 5 %."""
    seed = 0
    while count:
        seed += 1
        mapping = healthy.scenario(seed)
        if len(mapping["jobs"]) > 1:
            continue
        odd = mapping | oddity(Random(seed))
        try:
            found = api.run(odd, local=True).summary
        except ScenarioError:
            continue
        count -= 1
        name = mapping["jobs"][0]["name"]
        if took(found, name) * 100 < took(api.run(mapping, local=True).summary, name) * 105:
            yield [], unhealed(odd), found.diagnosis


KINDS = {"single": singles, "pairs": pairs, "contention": contention, "oddities": oddities}


def main(share: Fraction) -> None:
    """Print all."""
    for name, rows in KINDS.items():
        for what, score in zip(("symptoms", "healed"), both(rows(int(COUNTS[name] * share))), strict=True):
            sys.stdout.write(f"{name:<11} {what:<9} {score}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Fraction(sys.argv[1]) if len(sys.argv) > 1 else Fraction(1))
