"""The outcome of a run with its digest, and the files that tell where its workers are.

A run has a digest if it came to its end. `workers.json` says which worker hosts what, and where, as soon as
the workers are up. Where they serve metrics, `targets.json` beside it lists them as the page of
`emu.cluster.pages.server` does, for `file_sd_configs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from emu.base.units import format_time
from emu.counts.collected import DeviceRecord, EngineFacts
from emu.counts.digest import run_digest
from emu.engine.blueprint import RunPlan
from emu.engine.outcome import Ending, Outcome, WorkerRecord
from emu.engine.waiting import Wait, explain
from emu.run_directory.run_directory import TARGETS, write_whole
from emu.scenario.schema import Scenario

UNFINISHED: Final = (Ending.STALLED, Ending.TIME_LIMIT)
"""The run came to its end, and a job did not."""


def outcome_of(
    plan: RunPlan,
    ending: Ending,
    virtual_ps: int,
    records: Sequence[DeviceRecord],
    facts: EngineFacts,
    workers: tuple[WorkerRecord, ...],
    build_s: float,
    message: str = "",
    waits: Sequence[Wait] = (),
) -> Outcome:
    """What is left of a run, with its digest if it came to its end.

    `waits` are what was found where a job was unfinished.
    """
    whole = ending is Ending.FINISHED or ending in UNFINISHED
    assert not whole or len(records) == len(plan.topology.nodes), (len(records), len(plan.topology.nodes))
    return Outcome(
        ending=ending,
        message="\n".join(
            [message or ending_message(plan.scenario, ending, virtual_ps), *explain(waits, plan.topology)]
        ),
        virtual_ps=virtual_ps,
        digest=run_digest(records) if whole else "",
        devices=tuple(records),
        engine=facts,
        workers=workers,
        build_s=build_s,
    )


def ending_message(scenario: Scenario, ending: Ending, virtual_ps: int) -> str:
    """Why a run ended, in a line; empty if every job is done."""
    when = format_time(virtual_ps)
    if ending is Ending.STALLED:
        after = format_time(scenario.stall_after_ps)
        return f"the fabric stalled: at {when} a job was unfinished and nothing moved (stall_after {after})"
    if ending is Ending.TIME_LIMIT:
        return f"run.max_time ({when}) passed with a job unfinished"
    return "interrupted" if ending is Ending.INTERRUPTED else ""


NAME: Final = "workers.json"


def write_workers(directory: Path, workers: Sequence[WorkerRecord], run: str) -> None:
    """Write the files whole, or leave the old ones; `run` is the scenario's name. Raises RuntimeFailure."""
    text = json.dumps({"workers": [worker._asdict() for worker in workers]}, indent=1) + "\n"
    write_whole(directory / NAME, text)
    served = [(worker.worker, worker.metrics_address) for worker in workers if worker.metrics_address]
    if served:
        write_whole(directory / TARGETS, target_list(run, served) + "\n")


def target_list(run: str, targets: Iterable[tuple[int, str]]) -> str:
    """What Prometheus reads of a run's workers, from a page or a file: JSON.

    An address is HOST:PORT, or HOST:PORT/PATH where the page is PATH/metrics there.
    """
    listed = []
    for worker, address in targets:
        server, slash, path = address.partition("/")
        labels = {"run": run, "role": "worker", "worker": str(worker)}
        if slash:
            labels["__metrics_path__"] = f"/{path}/metrics"
        listed.append({"targets": [server], "labels": labels})
    return json.dumps(listed)
