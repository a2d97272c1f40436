"""Are Ray and its workers kept from run to run in a session, as new as new ones?"""

import os
import resource
from pathlib import Path

import pytest
import ray

from emu import api
from emu.base.errors import RuntimeFailure, UsageError
from emu.cluster.ray import session
from emu.engine.outcome import Observer, RunOptions, WorkerRecord

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("kept_workers")]
TINY = "tiny_flap"


class Pids(Observer):
    """Notes who the workers are."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.pids = [worker.pid for worker in workers]


def pids_of(workers: int, **overrides: object) -> list[int]:
    heard = Pids()
    result = api.run_prepared(api.prepare(TINY, overrides), RunOptions(workers=workers), heard)
    assert result.summary.ending in ("finished", "time_limit")
    return heard.pids


def test_workers_of_a_run_that_ended_in_order_take_the_next_one() -> None:
    first = pids_of(2)
    assert os.getpid() not in first
    assert pids_of(2) == first
    assert pids_of(1) == first[:1]
    assert pids_of(3)[:2] == first


def test_workers_are_as_nice_as_who_starts_them() -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids_of(2)] == [mine, mine]


def test_a_run_out_of_time_leaves_workers_as_good_as_new() -> None:
    whole = api.run(TINY, workers=2).summary.digest
    pids_of(2, **{"run.max_time": "1us"})
    assert api.run(TINY, workers=2).summary.digest == whole


def test_a_worker_that_is_gone_is_not_kept() -> None:
    class Killer(Pids):
        def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
            super().workers_up(workers, discovery_url)
            os.kill(self.pids[0], 9)

    killer = Killer()
    result = api.run_prepared(api.prepare(TINY), RunOptions(workers=2, recoveries=0), killer)
    assert result.exit_status == 4
    assert not set(killer.pids) & set(pids_of(2))


@pytest.mark.parametrize(("cpus", "needed"), [(2, 64), (16, 120)])
def test_a_limit_of_open_files_that_ray_cannot_start_with_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, cpus: int, needed: int
) -> None:
    limits = [needed, resource.RLIM_INFINITY, needed - 1]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits.pop(0), resource.RLIM_INFINITY))
    session._check_open_files(cpus)
    session._check_open_files(cpus)
    with pytest.raises(RuntimeFailure, match=f"needs {needed} open files .* the limit is {needed - 1}: "):
        session._check_open_files(cpus)


def test_a_session_in_a_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a session is open already"), api.session():
        pass
    assert ray.is_initialized()
