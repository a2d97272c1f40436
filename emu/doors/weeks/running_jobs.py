"""A moment of a cluster as a scenario: every job that runs then, where it is, doing a collective."""

from __future__ import annotations

from collections.abc import Sequence

from emu.base.errors import UsageError
from emu.base.spelling import listed
from emu.base.units import counted
from emu.doors.weeks.campaign_file import shown_span
from emu.doors.weeks.job_mix import JobMix
from emu.doors.weeks.job_queue import Job
from emu.scenario.dump import mapping_to_yaml


def running_jobs_at(mix: JobMix, jobs: Sequence[Job], at_ms: int) -> str:
    """The text of the scenario. UsageError if no job of two GPUs or more runs then."""
    running = [
        job
        for job in jobs
        if job.begins_ms is not None and job.begins_ms <= at_ms < job.begins_ms + job.lasts_ms
    ]
    talking = [job for job in running if job.gpus > 1]
    when = shown_span(at_ms)
    if not talking:
        raise UsageError(f"no job of two GPUs or more runs at {when}; accepted: a time at which one does")
    scenario: dict[str, object] = {
        "name": mix.name,
        "description": f"The cluster of {mix.name} at {when}, placement {mix.placement.kind}.",
        "seed": mix.seed,
        "topology": mix.topology.model_dump(by_alias=True),
        "jobs": [
            {
                "name": job.name,
                "ranks": [gpu for _, gpus in job.place for gpu in gpus],
                "workload": job.workload,
            }
            for job in talking
        ],
    }
    alone = len(running) - len(talking)
    kinds = dict.fromkeys(getattr(job.traffic, "op", job.traffic.kind) for job in talking)
    question = (
        f"# What does {listed(kinds, len(kinds))} get on this cluster at {when}, with all jobs at once?\n"
    )
    if alone:
        question += f"# {counted(alone, 'job')} of a single GPU left out: nothing to send.\n"
    return question + mapping_to_yaml(scenario)
