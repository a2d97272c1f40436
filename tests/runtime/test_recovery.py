"""A run on real Ray actors survives `kill -9` of any worker at any time, with the answer of a quiet run."""

import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from actors.runtime.launch import run_scenario
from actors.runtime.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from emu.kernel.mixing import Stream
from emu.measure.collected import Sample
from tests.conftest import SOAK
from tests.runtime.spread_runs import plan_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("kept_workers"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

KILLS = 200 if SOAK else 5
NAME = "incast"
WORKERS = 2
RECOVERED_WITHIN_S = 10.0


class Vandal(Observer):
    """Does harm at drawn virtual times, and notes what is heard of the run."""

    def __init__(self, harm: Callable[["Vandal"], None], at_ps: list[int]) -> None:
        self.workers: tuple[WorkerRecord, ...] = ()
        self.samples: list[int] = []
        self.notes: list[str] = []
        self.recovered_s: list[float] = []
        self.progress: list[int] = []
        self._harm = harm
        self._at_ps = at_ps
        self._harmed_s = 0.0

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.workers = workers
        if self._harmed_s:
            self.recovered_s.append(time.monotonic() - self._harmed_s)
            self._harmed_s = 0.0

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress.virtual_ps)
        if self._at_ps and progress.virtual_ps >= self._at_ps[0]:
            while self._at_ps and progress.virtual_ps >= self._at_ps[0]:
                self._at_ps.pop(0)
            self._harmed_s = time.monotonic()
            self._harm(self)

    def sampled(self, sample: Sample, digests: object) -> None:
        self.samples.append(sample.virtual_ps)

    def noted(self, line: str) -> None:
        self.notes.append(line)


@cache
def quiet() -> tuple[Outcome, list[int]]:
    """The same run in one process, where nobody disturbs it."""
    heard = Vandal(lambda me: None, [])
    plan = plan_of(NAME, 1)
    options = RunOptions(local=True, metrics=False, snapshot_every_s=0.0)
    return run_scenario(plan.scenario, plan.topology, options, heard), heard.samples


def disturbed(vandal: Vandal, directory: Path | None = None) -> Outcome:
    plan = plan_of(NAME, 1)
    options = RunOptions(
        workers=WORKERS,
        metrics=False,
        progress_every_s=0.01,
        snapshot_every_s=0.05,
        directory=directory,
    )
    return run_scenario(plan.scenario, plan.topology, options, vandal)


def check(outcome: Outcome, vandal: Vandal) -> None:
    whole, samples = quiet()
    assert (outcome.ending, outcome.message) == (Ending.FINISHED, "")
    assert (outcome.digest, outcome.virtual_ps) == (whole.digest, whole.virtual_ps)
    assert vandal.samples == samples
    assert vandal.progress == sorted(vandal.progress)


def test_kills_at_drawn_points_change_nothing() -> None:
    end_ps = quiet()[0].virtual_ps
    draw = Stream(41, 1, 1)
    done = 0
    while done < KILLS:
        at_ps = sorted(draw.below(end_ps * 9 // 10) for _ in range(min(3, KILLS - done)))
        vandal = Vandal(lambda me: os.kill(me.workers[draw.below(WORKERS)].pid, signal.SIGKILL), list(at_ps))
        outcome = disturbed(vandal)
        check(outcome, vandal)
        kills = outcome.engine.recoveries
        assert 1 <= kills <= len(at_ps)
        assert kills == len(vandal.notes) == len(vandal.recovered_s)
        assert all(" died: " in line and "; the run goes back to " in line for line in vandal.notes)
        assert max(vandal.recovered_s) < RECOVERED_WITHIN_S
        done += kills
