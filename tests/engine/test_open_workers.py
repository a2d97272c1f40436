"""An open run on Ray workers is the one in this process, in every placement."""

import os
import signal
from pathlib import Path

import pytest

from emu import api
from emu.base.errors import RuntimeFailure, StallError, UsageError
from emu.cluster.workers.open_workers import RayEngine
from tests.engine.test_open_run import FABRIC, NVLINK, Script

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("kept_workers"),
    # Ray leaves sockets and files to the collector, and warns of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def half_played(workers: int | None) -> Script:
    """A script that was told five things."""
    half = Script(api.open(FABRIC, workers=workers), 5, 14)
    for _ in range(3):
        half.one()
    for _ in range(5):
        half.reported.append(half.run.next())
        half.one()
    return half


def to_its_end(script: Script) -> str:
    while script.run.outstanding:
        script.reported.append(script.run.next())
        if script.left:
            script.one()
    return script.run.close()


@pytest.mark.parametrize(
    ("fabric", "workers", "placement"),
    [(FABRIC, 1, "packed"), (FABRIC, 2, "packed"), (FABRIC, 5, "node"), (NVLINK, 3, "packed")],
)
def test_one_answer_in_this_process_in_parts_and_on_ray(
    fabric: dict[str, object], workers: int, placement: str
) -> None:
    whole = Script(api.open(fabric), 2, 12)
    digest = whole.play()
    there = Script(api.open(fabric, workers=workers, placement=placement), 2, 12)
    assert (there.play(), there.reported) == (digest, whole.reported)
    parts = Script(api.open(fabric, parts=workers), 2, 12)
    assert (parts.play(), parts.reported) == (digest, whole.reported)


@pytest.mark.parametrize(("before", "after"), [(2, None), (None, 2), (2, 2)])
def test_a_run_is_saved_here_and_goes_on_there(tmp_path: Path, before: int | None, after: int | None) -> None:
    whole = Script(api.open(FABRIC), 5, 14)
    digest = whole.play()
    half = half_played(before)
    half.run.save(tmp_path / "run")
    there = Script(api.open(FABRIC, workers=after, resume=tmp_path / "run"), 0, half.left)
    there.dice.setstate(half.dice.getstate())
    assert to_its_end(half) == to_its_end(there) == digest


def test_a_fork_and_a_fault_on_ray_are_those_in_this_process() -> None:
    digests = []
    for workers in (None, 2):
        half = half_played(workers)
        twin = half.run.fork()
        twin.inject({"kind": "degrade", "target": "rtsw-0:nic-0-0", "rate": "100G"})
        while twin.outstanding:
            twin.next()
        digests.append((twin.close(), to_its_end(half)))
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[0][1]


def test_a_stall_and_a_worker_that_dies_are_reported_and_end_the_run() -> None:
    run = api.open(FABRIC, workers=2)
    run.collective("all_reduce", 4096, [0, 2], rank=0, algorithm="ring")
    with pytest.raises(
        StallError, match=r"1 posts are outstanding and nothing moves\nhost-0 waits.*clear-to"
    ):
        run.next()
    engine = run._engine
    assert isinstance(engine, RayEngine)
    os.kill(engine._pids[1], signal.SIGKILL)
    run.collective("all_reduce", 4096, [0, 2], rank=2, algorithm="ring")
    with pytest.raises(RuntimeFailure, match=r"worker 1 \(pid \d+, hosting .*\) died: .*saved goes on"):
        run.next()
    with pytest.raises(RuntimeFailure, match="worker 1"):
        run.close()
    with pytest.raises(UsageError, match="parts are for runs in this process; accepted: workers= alone"):
        api.open(FABRIC, workers=2, parts=2)
