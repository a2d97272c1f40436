"""What is compared of two runs, to tell whether a fault mattered, and whether the right thing was said.

A fault *mattered* if the job took 5 % longer or did not end well, or if a counter that an operator is called
for rose by 5 % or more. Those that mattered are to be named; of the others nothing is to be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

from emu import api
from emu.base.units import parse_time
from emu.results.summary import Diagnosed
from emu.views.diagnosis.causes import diagnose
from emu.views.diagnosis.finding import EVIDENCE
from emu.views.diagnosis.view import View
from emu.views.repairs import run_diagnosis
from tests.diagnosis.draws import Answer, Drawn, base_scenario

TIMELY = re.compile(r" would (take|not fail|come to an end)| did not fail within ")
"""What a repair gives back of time, or of a job."""
ALARMED = ("nic_out_of_sequence", "nic_local_ack_timeout_err", "pfc_watchdog_storms")


class Run(NamedTuple):
    """What is compared of two runs, and what is said of one."""

    spans_ps: dict[str, int]
    """Of jobs that ended well."""
    failed: tuple[str, ...]
    alarms: dict[str, int]
    end_ps: int
    symptoms: list[Diagnosed]
    """What is said where nothing may be emulated."""
    found: list[Diagnosed]


@contextmanager
def heard() -> Iterator[list[list[Diagnosed]]]:
    """What would be said of each run by its symptoms alone."""
    said: list[list[Diagnosed]] = []

    def listen(view: View, *more: Any) -> list[Diagnosed]:
        said.append(diagnose(view))
        return diagnose(view, *more)

    with patch.object(run_diagnosis, "diagnose", listen):
        yield said


def run(mapping: dict[str, Any]) -> Run:
    """A run, seen through what is compared."""
    with heard() as said:
        result = api.run(mapping, local=True)
    spans_ps, failed = {}, []
    for name, job in result.summary.jobs.items():
        if job.status == "success" and job.start_ps is not None and job.end_ps is not None:
            spans_ps[name] = job.end_ps - job.start_ps
        elif job.status != "disabled":
            failed.append(name)
    alarms = dict.fromkeys((*ALARMED, "headroom_overrun", "downs"), 0)
    for record in result.outcome.devices:
        alarms["downs"] += len(record.shown.get("downs", ()))
        for series, value in zip(record.series, record.counters, strict=True):
            for name in (series.metric, series.reason):
                if name in alarms:
                    alarms[name] += value
    end_ps = result.summary.virtual_ps
    symptoms, found = (
        [one for one in reported if one.cause not in EVIDENCE]  # what accuses nobody
        for reported in (said[-1] if said else [], result.summary.diagnosis)
    )
    return Run(spans_ps, tuple(failed), alarms, end_ps, symptoms, found)


@cache
def healthy(base: int) -> Run:
    """A base without faults."""
    return run(base_scenario(base))


def span_ps(base: int) -> int:
    """How long the job of a base takes."""
    return healthy(base).spans_ps["train"]


def mattered(broken: Run, well: Run) -> str:
    """Why what is in the first run and not in the second mattered; empty if it did not."""
    if any(name not in well.failed for name in broken.failed):
        return "failed"
    for name, took_ps in broken.spans_ps.items():
        meant_ps = well.spans_ps.get(name, took_ps)
        if took_ps * 100 >= meant_ps * 105:
            return f"{(took_ps - meant_ps) * 100 // meant_ps}% slower"
    risen = [
        name
        for name, value in broken.alarms.items()
        if value > well.alarms[name] and value * 100 >= well.alarms[name] * 105
    ]
    return ", ".join(risen)


def right(found: Diagnosed, answers: Iterable[Answer]) -> bool:
    """Whether this is a right thing to say."""
    return any(
        found.cause == one.cause
        and found.place in one.places
        and one.words in found.sentence
        and (not one.time or TIMELY.search(found.sentence) is not None)
        for one in answers
    )


def answers_of(one: Drawn) -> tuple[Answer, ...]:
    """What is right to say of a fault that mattered. A flap that came once is a link that was down."""
    if one.fault["kind"] == "link_flap":
        return (*one.answers, Answer("link_down", one.answers[0].places))
    return one.answers


def begins_ps(one: Drawn) -> int:
    """When a fault begins."""
    return parse_time(one.fault.get("at", "0ns"))
