"""Runs on real Ray actors and real sockets: over TCP, with workers that die, with users who lose patience."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import EmuError, RuntimeFailure, UsageError
from emu.counts.collected import Changed
from emu.engine.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from tests.engine.patience import PATIENCE_S, alive, fetched, until
from tests.engine.spread_runs import plan_of
from tests.scenarios_run.small import ROOT

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("kept_workers"),
    # Ray leaves sockets and files to the collector, and warns of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

LONG: Mapping[str, object] = {"jobs[0].workload.size": "64GiB", "jobs[0].workload.message": "1GiB"}


class Notes(Observer):
    """Keeps what is heard; `act` is called at the first progress at which something has moved."""

    def __init__(self, act: Any = None) -> None:
        self.workers: tuple[WorkerRecord, ...] = ()
        self.samples: list[tuple[Changed, dict[int, Sequence[int]]]] = []
        self.progress: list[Progress] = []
        self.metrics: list[str] = []
        self.act = act

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self.workers = workers
        for worker in workers:
            if worker.metrics_address:
                self.metrics.append(fetched(f"http://{worker.metrics_address}/metrics").decode())

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)
        if not progress.virtual_ps:
            return
        act, self.act = self.act, None
        if act is not None:
            act(self)

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        self.samples.append((sample, dict(mixes)))


def run(
    name: str, overrides: Mapping[str, object] | None = None, notes: Notes | None = None, **options: Any
) -> Outcome:
    plan = plan_of(name, 1, overrides)
    options.setdefault("metrics", False)
    return run_scenario(plan.scenario, plan.topology, RunOptions(**options), notes or Notes())


@pytest.mark.parametrize(
    ("name", "workers", "sockets"),
    [
        ("incast_lossy", 2, "tcp"),
        ("incast_lossy", 2, "streams"),
        ("tiny_flap", 6, "tcp"),
    ],
)
def test_workers_on_tcp_give_the_answer_of_one_process(name: str, workers: int, sockets: str) -> None:
    notes = Notes()
    outcome = run(name, notes=notes, workers=workers, sockets=sockets)
    assert (outcome.ending, outcome.digest) == (Ending.FINISHED, run(name, local=True).digest)
    assert all(worker.data_address.startswith("127.0.0.1:") for worker in notes.workers)


@pytest.mark.parametrize(("size", "chosen"), [("64KiB", "packet"), ("8GiB", "flow")])
def test_auto_chooses_and_answers_alike_in_one_process_on_one_worker_and_on_two(
    tmp_path: Path, size: str, chosen: str
) -> None:
    changes = {"fidelity": "auto", "jobs[0].workload.sizes": [size], "expect": []}
    digests, written = set(), set()
    for workers in (None, 1, 2):
        out = tmp_path / str(workers)
        result = api.run(
            "tiny_all_reduce",
            overrides=changes,
            local=workers is None,
            workers=workers,
            out=out,
            diagnose=False,
        )
        digests.add(result.summary.digest)
        written.add((out / "scenario.yaml").read_text("utf-8"))
    assert (len(digests), len(written)) == (1, 1)
    assert f"fidelity: {chosen}" in written.pop()


def test_workers_say_where_they_are_and_samples_are_whole(tmp_path: Path) -> None:
    notes, local = Notes(), Notes()
    outcome = run("tiny_flap", notes=notes, workers=2, metrics=True, directory=tmp_path)
    run("tiny_flap", notes=local, local=True)
    assert notes.samples == local.samples
    assert (tmp_path / "workers.json").exists()
    assert len({worker.pid for worker in notes.workers} | {os.getpid()}) == 3
    names = [name for worker in notes.workers for name in worker.devices]
    assert sorted(names) == sorted(node.name for node in plan_of("tiny_flap", 1).topology.nodes)
    for worker, page in zip(notes.workers, notes.metrics, strict=True):
        (nic,) = (name for name in worker.devices if name.startswith("nic-"))
        assert f'emu_port_receive_frames_total{{device="{nic}",port="0"}} 0\n' in page
        assert Path(worker.data_address).name == "peers"
        assert not Path(worker.data_address).parent.exists()
    assert outcome.workers == notes.workers


def test_pages_of_workers_on_another_host_are_served_on_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is told that it is on another host than its workers, and sees none of their files."""
    monkeypatch.setattr("emu.cluster.workers.coordinator.host_identity", lambda: "elsewhere")
    notes = Notes()
    outcome = run("tiny_flap", notes=notes, workers=2, metrics=True, directory=tmp_path)
    assert outcome.digest == run("tiny_flap", local=True).digest
    listed = json.loads((tmp_path / "targets.json").read_text())
    assert len({target for one in listed for target in one["targets"]}) == 1
    paths = [one["labels"]["__metrics_path__"] for one in listed]
    assert paths == ["/workers/0/metrics", "/workers/1/metrics"]
    assert len(notes.metrics) == 2
    for worker, page in zip(notes.workers, notes.metrics, strict=True):
        (nic,) = (name for name in worker.devices if name.startswith("nic-"))
        assert f'emu_port_receive_frames_total{{device="{nic}",port="0"}} 0\n' in page


def test_killed_worker_is_named_and_the_rest_is_kept() -> None:
    notes = Notes(lambda me: os.kill(me.workers[1].pid, signal.SIGKILL))
    outcome = run("permutation", LONG, notes, workers=3, recoveries=0)
    assert (outcome.ending, outcome.exit_status, outcome.digest) == (Ending.FAILED, 4, "")
    killed = notes.workers[1]
    assert outcome.message.startswith(f"worker 1 (pid {killed.pid}, hosting {killed.devices[0]}, ")
    assert "died" in outcome.message
    kept = len(notes.workers[0].devices) + len(notes.workers[2].devices)
    assert len(outcome.devices) == kept


def test_interrupt_leaves_what_there_is() -> None:
    notes = Notes(lambda me: os.kill(os.getpid(), signal.SIGINT))
    outcome = run("permutation", LONG, notes, workers=2)
    assert (outcome.ending, outcome.exit_status, outcome.digest) == (Ending.INTERRUPTED, 130, "")
    assert len(outcome.devices) == len(plan_of("permutation", 1).topology.nodes)
    assert outcome.virtual_ps > 0


def test_scenario_that_does_not_fit_is_refused_before_any_worker_starts() -> None:
    with pytest.raises(UsageError, match="1000 workers for"):
        run("tiny_flap", workers=1000)
    with pytest.raises(EmuError, match="leave no shared pool"):
        run("tiny_flap", {"switch.buffer.pool": "10KB"}, workers=2)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", "no Ray cluster at ray://127.0.0.1:1: Connection refused"),
        ("nowhere", "'nowhere' is no address of a Ray cluster; accepted: auto, HOST:PORT"),
        ("127.0.0.1:99999", "'127.0.0.1:99999' is no address"),
    ],
)
def test_cluster_that_cannot_be_reached_is_one_clear_line(address: str, reason: str) -> None:
    with pytest.raises(RuntimeFailure if reason.startswith("no Ray") else UsageError, match=reason):
        run("tiny_flap", address=address)


ALONE = """
import os
from emu.launch import run_scenario
from emu.engine.outcome import Observer, RunOptions
from tests.engine.spread_runs import plan_of

class Up(Observer):
    def workers_up(self, workers, discovery_url):
        print(" ".join(str(worker.pid) for worker in workers), flush=True)

    def progressed(self, progress):
        print("running", flush=True)

plan = plan_of("permutation", 1, {"jobs[0].workload.size": "64GiB", "jobs[0].workload.message": "1GiB"})
outcome = run_scenario(plan.scenario, plan.topology, RunOptions(workers=2), Up())
print(outcome.ending, outcome.exit_status, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_was_ended_from_outside(number: signal.Signals) -> None:
    # A short name, so that sockets fit into it.
    place = Path(tempfile.mkdtemp(prefix="t"))
    environment = dict(os.environ) | {"TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", ALONE],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        assert process.stdout.readline() == "running\n"
        if number == signal.SIGINT:
            # As a terminal does it: the whole foreground group is told.
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        rest, errors = process.communicate(timeout=PATIENCE_S)
    until(lambda: not any(map(alive, pids)))
    if number == signal.SIGINT:
        assert (process.returncode, rest.splitlines()[-1]) == (0, "interrupted 130"), errors
    until(lambda: not list(place.iterdir()) and not processes_of(place))
    place.rmdir()


def processes_of(place: Path) -> list[str]:
    """Processes that were started with this temporary directory, or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                reported = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if os.fsencode(place) in reported:
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()!r}")
    return found
