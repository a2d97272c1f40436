"""A run on real Ray actors survives `kill -9` of any worker at any time, with the answer of a quiet run."""

import ctypes
import errno
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray

from actors.kernel.mixing import Stream
from emu.cluster.workers.idle_workers import worker_pool_of_session
from emu.cluster.workers.worker import Worker
from emu.counts.collected import Changed
from emu.engine.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from tests.conftest import SOAK
from tests.engine.patience import alive, until
from tests.engine.spread_runs import plan_of
from tests.engine.stumbling import stumbling

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("kept_workers"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

KILLS = 200 if SOAK else 5
NAME = "incast"
WORKERS = 2
RECOVERED_WITHIN_S = 10.0 if SOAK else float("inf")
PACED_S = 2
"""A disturbed run takes this long at least, and waits for who watches it, so that what is drawn hits it."""
SLOWED_S = 0.5
FULL_BYTES = 4096
PIDFD_GETFD = 438
"""The number of the system call, on every architecture."""


class Vandal(Observer):
    """Does harm at drawn virtual times, and notes what is heard of the run.

    Until it is `ripe` for harm that is due it looks rarely; the run, which waits for it, hardly moves then.
    """

    def __init__(
        self, damage: Callable[["Vandal"], None], at_ps: list[int], ripe: Callable[[], bool] = lambda: True
    ) -> None:
        self.workers: tuple[WorkerRecord, ...] = ()
        self.pids: list[list[int]] = []
        self.samples: list[int] = []
        self.notes: list[str] = []
        self.recovered_s: list[float] = []
        self.progress: list[int] = []
        self._damage = damage
        self._ripe = ripe
        self._at_ps = at_ps
        self._harmed_s = 0.0

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.workers = workers
        self.pids.append([worker.pid for worker in workers])
        if self._harmed_s:
            self.recovered_s.append(time.monotonic() - self._harmed_s)
            self._harmed_s = 0.0

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress.virtual_ps)
        if not self._at_ps or progress.virtual_ps < self._at_ps[0]:
            return
        if not self._ripe():
            time.sleep(SLOWED_S)
        else:
            while self._at_ps and progress.virtual_ps >= self._at_ps[0]:
                self._at_ps.pop(0)
            self._harmed_s = time.monotonic()
            self._damage(self)

    def sampled(self, sample: Changed, digests: object) -> None:
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


def disturbed(
    vandal: Vandal, sockets: str = "auto", workers: int = WORKERS, paced: bool = True, **others: Any
) -> Outcome:
    plan = plan_of(NAME, 1)
    options = RunOptions(
        workers=workers,
        sockets=sockets,
        pace_ps=quiet()[0].virtual_ps // PACED_S if paced else 0,
        **{"metrics": False, "progress_every_s": 0.01, "snapshot_every_s": 0.05, **others},
    )
    return run_scenario(plan.scenario, plan.topology, options, vandal)


def check(outcome: Outcome, vandal: Vandal) -> None:
    whole, samples = quiet()
    assert (outcome.ending, outcome.message) == (Ending.FINISHED, "")
    assert (outcome.digest, outcome.virtual_ps) == (whole.digest, whole.virtual_ps)
    assert vandal.samples == samples
    assert vandal.progress == sorted(vandal.progress)


@pytest.mark.provokes("a worker is killed")
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


@pytest.mark.provokes("every worker is killed at once")
def test_a_kill_of_every_worker_at_once_changes_nothing() -> None:
    def kill_all(me: Vandal) -> None:
        for worker in me.workers:
            os.kill(worker.pid, signal.SIGKILL)

    vandal = Vandal(kill_all, [quiet()[0].virtual_ps // 3])
    outcome = disturbed(vandal)
    check(outcome, vandal)
    assert outcome.engine.recoveries == len(vandal.notes) == 1
    assert not {*vandal.pids[0]} & {*vandal.pids[1]}


def test_a_worker_that_stands_still_for_ten_seconds_changes_nothing() -> None:
    def stop(me: Vandal) -> None:
        pid = me.workers[1].pid
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(10.0, os.kill, (pid, signal.SIGCONT)).start()

    vandal = Vandal(stop, [quiet()[0].virtual_ps // 3])
    begun_s = time.monotonic()
    check(disturbed(vandal), vandal)
    assert time.monotonic() - begun_s > 10


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_a_kill_while_the_run_goes_back_changes_nothing(seed: int) -> None:
    """Who was left of the first kill dies at a drawn moment while all begin anew: before its devices are
    built, while it connects, or just after."""
    draw = Stream(seed, 1, 6)
    delay_s = draw.below(3000) / 1000 if SOAK else 0.0
    later: list[threading.Timer] = []

    class Restless(Vandal):
        def progressed(self, progress: Progress) -> None:
            super().progressed(progress)
            if later and later[0].is_alive():
                time.sleep(SLOWED_S)

        def noted(self, line: str) -> None:
            super().noted(line)
            if not later:
                later.append(threading.Timer(delay_s, os.kill, (self.pids[0][0], signal.SIGKILL)))
                later[0].start()

    def kill_the_other(me: Vandal) -> None:
        os.kill(me.workers[1].pid, signal.SIGKILL)

    vandal = Restless(kill_the_other, [quiet()[0].virtual_ps // 3])
    outcome = disturbed(vandal)
    (timer,) = later
    timer.join()
    check(outcome, vandal)
    assert outcome.engine.recoveries == len(vandal.notes) == 2
    assert not {*vandal.pids[0]} & {*vandal.pids[-1]}


@pytest.mark.parametrize("worker", range(WORKERS if SOAK else 1))
@pytest.mark.provokes("a worker stands still for longer than `--liveness`")
def test_a_worker_that_stands_still_for_good_is_ended_and_replaced(worker: int) -> None:
    vandal = Vandal(lambda me: os.kill(me.workers[worker].pid, signal.SIGSTOP), [quiet()[0].virtual_ps // 3])
    outcome = disturbed(vandal, liveness_s=3.0)
    check(outcome, vandal)
    (line,) = vandal.notes
    assert f"worker {worker} (pid {vandal.pids[0][worker]}, " in line
    assert " died: it gave no sign of life for 3 s; the run goes back to " in line
    assert vandal.pids[0][1 - worker] == vandal.pids[1][1 - worker]
    until(lambda: not alive(vandal.pids[0][worker]))


@pytest.mark.provokes("there is no room for a snapshot")
def test_a_snapshot_for_which_there_is_no_room_is_reported_once_and_the_one_before_still_counts(
    tmp_path: Path,
) -> None:
    """The disk is full for one worker from a third on; the other dies at two thirds, once that is told."""
    full: list[int] = []

    def ripe() -> bool:
        return bool(vandal.notes) if full else any(tmp_path.glob("snapshots/*/whole"))

    def damage(me: Vandal) -> None:
        if full:
            os.kill(me.workers[0].pid, signal.SIGKILL)
        else:
            full.append(me.workers[1].pid)
            resource.prlimit(full[0], resource.RLIMIT_FSIZE, (FULL_BYTES, resource.RLIM_INFINITY))

    end_ps = quiet()[0].virtual_ps
    vandal = Vandal(damage, [end_ps // 3, end_ps * 2 // 3], ripe)
    outcome = disturbed(vandal, directory=tmp_path)
    # The worker is kept for the next test.
    resource.prlimit(full[0], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    check(outcome, vandal)
    reported, back = vandal.notes[:2]
    standing = re.fullmatch(
        r"a snapshot could not be written: .*/worker-1: File too large; "
        r"the run goes on, and the one of (\S+) still counts",
        reported,
    )
    assert standing is not None, reported
    assert back.endswith(f"; the run goes back to {standing[1]}")


def test_counters_of_a_worker_elsewhere_do_not_fall_though_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was executed since the last snapshot, a tenth of the run and more, is executed again."""
    monkeypatch.setattr("emu.cluster.workers.coordinator.host_identity", lambda: "elsewhere")
    read: list[dict[str, float]] = []
    before: list[int] = []

    class Reader(Vandal):
        def progressed(self, progress: Progress) -> None:
            with suppress(OSError, HTTPException):  # nobody answers while the worker is replaced
                read.append(counters(self.workers[1].metrics_address))
            super().progressed(progress)
            if before and len(read) < before[0] + 3:
                time.sleep(SLOWED_S)

        def noted(self, line: str) -> None:
            super().noted(line)
            before.append(len(read))

    def kill(me: Vandal) -> None:
        os.kill(me.workers[1].pid, signal.SIGKILL)

    vandal = Reader(kill, [quiet()[0].virtual_ps * 2 // 3], lambda: len(read) > 2)
    outcome = disturbed(vandal, metrics=True, snapshot_every_s=0.3)
    check(outcome, vandal)
    assert outcome.engine.recoveries == 1
    assert 2 < before[0] < len(read)
    assert max(read[0].values()) < max(read[-1].values())
    for earlier, later in pairwise(read):
        assert {name: value for name, value in earlier.items() if later[name] < value} == {}


def counters(address: str) -> dict[str, float]:
    """Those of devices, and virtual time; the worker's own begin anew with its process."""
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    lines = re.findall(r"^(emu_virtual_seconds_total|\S+_total\{device=\S+) (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in lines}


@pytest.mark.parametrize("sockets", ["auto", "tcp"])
@pytest.mark.provokes("a connection between workers breaks")
def test_a_connection_that_is_cut_changes_nothing(sockets: str) -> None:
    vandal = Vandal(lambda me: cut(me.workers[0]), [quiet()[0].virtual_ps // 3])
    outcome = disturbed(vandal, sockets=sockets)
    check(outcome, vandal)
    assert outcome.engine.recoveries == 1
    (line,) = vandal.notes
    assert re.search(r"worker [01] \(pid \d+, .* went away: .*; the run goes back to ", line)
    assert vandal.pids[0] == vandal.pids[1]


def cut(worker: WorkerRecord) -> None:
    """Shut a worker's connections to its peers, from outside: its sockets are borrowed by pidfd_getfd(2)."""
    pidfd = os.pidfd_open(worker.pid)
    libc = ctypes.CDLL(None, use_errno=True)
    cuts = 0
    for entry in Path(f"/proc/{worker.pid}/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
        except FileNotFoundError:
            continue  # closed meanwhile
        borrowed = libc.syscall(PIDFD_GETFD, pidfd, int(entry.name), 0)
        if borrowed < 0 and ctypes.get_errno() == errno.EPERM:
            pytest.skip("this machine does not let one process borrow a socket of another")
        if borrowed < 0 and ctypes.get_errno() == errno.EBADF:
            continue
        with socket.socket(fileno=borrowed) as connection:
            names = [str(connection.getsockname())]
            with suppress(OSError):
                names.append(str(connection.getpeername()))
                if named_by_socket(worker.data_address) in names:
                    connection.shutdown(socket.SHUT_RDWR)
                    cuts += 1
    os.close(pidfd)
    assert cuts == len(vandalised_peers(worker)), cuts


def named_by_socket(address: str) -> str:
    """A worker's address as a socket tells it: a path, or a pair of host and port."""
    host, _, port = address.rpartition(":")
    return address if address.startswith("/") else str((host, int(port)))


def vandalised_peers(worker: WorkerRecord) -> list[int]:
    """Who connects to a worker: all that have a higher number."""
    return list(range(worker.worker + 1, WORKERS))


@pytest.mark.parametrize("seed", range(10 if SOAK else 1))
def test_chaos_on_real_workers_changes_nothing(seed: int) -> None:
    """Workers stumble from their first breath, and are started in any order, with hashes of their own each;
    over either kind of socket; with and without a pace."""
    draw = Stream(seed, 1, 2)
    workers = WORKERS + draw.below(2)
    worker_pool = worker_pool_of_session()
    assert worker_pool is not None
    worker_pool.dismiss()
    actors = started_in_any_order(workers, draw)
    pids = [place.pid for place in ray.get([actor.where.remote() for actor in actors])]
    worker_pool.give_back(actors)

    class Patient(Vandal):
        def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
            super().workers_up(workers, discovery_url)
            while set(stumbled) != set(pids):
                time.sleep(0.01)

    vandal = Patient(lambda me: None, [])
    sockets, paced = ("tcp", "auto")[seed % 2], seed // 2 % 2 == 0
    with stumbling(pids, draw) as stumbled:
        outcome = disturbed(vandal, sockets=sockets, workers=workers, paced=paced)
    check(outcome, vandal)
    assert (outcome.engine.recoveries, vandal.notes) == (0, [])
    assert [worker.pid for worker in outcome.workers] == pids
    assert set(stumbled) == set(pids)


def started_in_any_order(workers: int, draw: Stream) -> list[Any]:
    """Actors by worker, started in a drawn order."""
    actors: dict[int, Any] = {}
    left = list(range(workers))
    while left:
        hashes = {"env_vars": {"PYTHONHASHSEED": str(1 + draw.below(1 << 31))}}
        kind = ray.remote(num_cpus=0, runtime_env=hashes)(Worker)
        actors[left.pop(draw.below(len(left)))] = kind.remote()
        time.sleep(draw.below(200) / 1000)
    return [actors[worker] for worker in range(workers)]
