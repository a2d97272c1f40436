"""A run in one process: what it tells while it goes on, and how it ends."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import UsageError
from emu.counts.collected import Changed
from emu.counts.digest import run_digest
from emu.engine.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from emu.run_directory.samples import add_changes
from tests.conftest import SOAK
from tests.engine.patience import fetched
from tests.engine.spread_runs import plan_of
from tests.scenarios_run.small import ROOT


class Notes(Observer):
    """Writes everything down; `scrape` reads the metrics page at the first progress."""

    def __init__(self, scrape: bool = False) -> None:
        self.workers: tuple[WorkerRecord, ...] = ()
        self.progress: list[Progress] = []
        self.samples: list[Changed] = []
        self.digests: list[dict[int, int]] = []
        self.discovered: Any = None
        self.scrape = scrape

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.workers = workers
        if discovery_url:
            self.discovered = json.loads(fetched(discovery_url))

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)

    def sampled(self, sample: Changed, digests: Any) -> None:
        self.samples.append(sample)
        self.digests.append(dict(digests))


def run_local(name: str, notes: Notes | None = None, **options: Any) -> Outcome:
    plan = plan_of(name, 1)
    return run_scenario(plan.scenario, plan.topology, RunOptions(local=True, **options), notes or Notes())


@pytest.mark.parametrize("parts", [1, 3])
def test_local_run_tells_who_hosts_what_and_samples_in_order(parts: int, tmp_path: Path) -> None:
    notes = Notes()
    outcome = run_local("tiny_flap", notes, parts=parts, directory=tmp_path, progress_every_s=0.0)
    assert (outcome.ending, outcome.message, outcome.exit_status) == (Ending.FINISHED, "", 0)
    (worker,) = notes.workers
    assert worker.pid == os.getpid()
    written = json.loads((tmp_path / "workers.json").read_text())
    assert [one["devices"] for one in written["workers"]] == [list(worker.devices)]
    assert notes.discovered[0]["targets"] == [worker.metrics_address]
    assert [record.number for record in outcome.devices] == list(range(len(worker.devices)))
    times_ps = [sample.virtual_ps for sample in notes.samples]
    assert times_ps[:2] == [2 * 10**6, 4 * 10**6]
    assert times_ps == sorted(times_ps)
    assert times_ps[-1] < outcome.virtual_ps
    assert notes.digests[0] != notes.digests[1]
    assert [one.virtual_ps for one in notes.progress] == sorted(one.virtual_ps for one in notes.progress)
    assert notes.progress[-1].delivered_bytes > 0
    assert outcome.engine.workers == parts
    assert outcome.digest == run_digest(outcome.devices)


def test_a_sample_says_what_changed_since_the_one_before_and_nothing_else() -> None:
    notes = Notes()
    outcome = run_local("tiny_flap", notes, metrics=False)
    values: dict[int, dict[int, int]] = {}
    for sample in notes.samples:
        for number, flat in sample.changed.items():
            before = values.setdefault(number, {})
            assert all(
                before.get(place, 0) != value for place, value in zip(flat[::2], flat[1::2], strict=True)
            )
        add_changes(values, sample.changed)
    quiet = {record.number for record in outcome.devices if not any(record.counters)}
    assert quiet
    assert not quiet & set(values)
    delivered = [
        (values[record.number].get(place, 0), record.counters[place])
        for record in outcome.devices
        for place, one in enumerate(record.series)
        if one.metric == "nic_delivered_bytes" and record.counters[place]
    ]
    assert all(0 < then <= at_the_end for then, at_the_end in delivered)


@pytest.mark.parametrize("name", ["tiny_flap", "incast"])
def test_parts_and_blocks_take_samples_that_equal_those_of_one(name: str) -> None:
    # In the incast, ports are paused at a sampling point: how long so far is counted up to that point.
    one, three, blocks = Notes(), Notes(), Notes()
    run_local(name, one, metrics=False)
    run_local(name, three, parts=3, metrics=False)
    run_local(name, blocks, block=1, metrics=False)
    assert one.samples
    assert one.samples == three.samples == blocks.samples
    assert one.digests == three.digests == blocks.digests


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parts": 0}, "--parts 0"),
        ({"block": 0}, "--block 0: a block has at least one NIC"),
        ({"workers": 0}, "--workers 0"),
        ({"placement": "nearby"}, "placement 'nearby'; accepted: packed, node, device"),
        ({"parts": 1000}, "1000 workers for"),
        ({"parts": 2, "local": False}, "--parts is for one process; on Ray it is --workers"),
    ],
)
def test_option_that_cannot_be_meant_is_refused(options: dict[str, Any], reason: str) -> None:
    plan = plan_of("tiny_flap", 1)
    with pytest.raises(UsageError, match=reason):
        run_scenario(plan.scenario, plan.topology, RunOptions(**({"local": True} | options)))


def test_unfinished_job_at_the_time_limit_ends_the_run_as_out_of_time() -> None:
    plan = plan_of("tiny_flap", 1, {"run.max_time": "50us"})
    for parts in (1, 2):
        outcome = run_scenario(
            plan.scenario, plan.topology, RunOptions(local=True, parts=parts, metrics=False)
        )
        assert (outcome.ending, outcome.exit_status) == (Ending.TIME_LIMIT, 3)
        assert outcome.virtual_ps == 50_000_000
        first, *waits = outcome.message.splitlines()
        assert first == "run.max_time (50us) passed with a job unfinished"
        assert all(line.startswith(("nic-0-0 waits for nic-1-0", "nic-1-0 waits")) for line in waits)
        assert len(outcome.digest) == 64


LONG_RUN = """
from emu.launch import run_scenario
from emu.engine.outcome import Observer, RunOptions
from tests.engine.spread_runs import plan_of

class Ready(Observer):
    def progressed(self, progress):
        if progress.virtual_ps:
            print("running", flush=True)

plan = plan_of("permutation", 1, {"jobs[0].workload.size": "64GiB", "jobs[0].workload.message": "1GiB"})
outcome = run_scenario(plan.scenario, plan.topology, RunOptions(local=True, progress_every_s=0.1), Ready())
print(outcome.ending, outcome.exit_status, len(outcome.devices), repr(outcome.digest), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_a_run_at_once_with_what_there_is(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG_RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        begun_s = time.monotonic()
        lines = process.stdout.readlines()
        took_s = time.monotonic() - begun_s
        assert process.wait() == 0
    devices = len(plan_of("permutation", 1).topology.nodes)
    assert lines[-1] == f"interrupted 130 {devices} ''\n"
    if SOAK:  # Collecting and the interpreter's own end come on top of half a second.
        assert took_s < 1.5


def test_the_collector_keeps_away_from_what_is_built_and_added_up() -> None:
    """Python's own collector looks at the young once for every 700 objects, and a fabric has thousands."""
    prepared = api.prepare(ROOT / "scenarios/start/permutation.yaml", {"run.max_time": "2us"})
    seen: list[int] = []

    def note(phase: str, found: dict[str, int]) -> None:
        if phase == "start":
            seen.append(found["generation"])

    gc.callbacks.append(note)
    try:
        api.run_prepared(prepared, RunOptions(local=True, metrics=False))
    finally:
        gc.callbacks.remove(note)
    assert len(seen) <= 8, seen
