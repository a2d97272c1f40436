"""A run whose driver was killed, interrupted or out of disk goes on; one forks under another condition."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.cli.main import main
from emu.run_directory.run_directory import RunDirectory
from tests.scenarios_run.small import ROOT

SCENARIO = """\
name: warm
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 1, spines: 2}
transport: {timeout: 2}
run: {sample_every: 10us}
jobs:
  - {name: shuffle, workload: {kind: permutation, size: 4MiB}}
"""
FAULT = '{"at": "160us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "20us"}'

DRIVER = """
import os, resource, signal, sys
from pathlib import Path
from emu.engine.recovery.saving import Saving
from emu import api
from emu.run_directory.run_directory import RunDirectory

class Doomed(api.Observer):
    whole = 0
    samples = 0
    ends = False

    def settle(self):
        self.whole += 1

    def sampled(self, sample, digests):
        self.samples += 1

    def progressed(self, progress):
        if self.whole >= int(sys.argv[3]) and self.samples and not self.ends:
            self.ends = True
            os.kill(os.getpid(), getattr(signal, sys.argv[4]))

drain = Saving.drain

def drain_when_written(saving):  # so that virtual time does not run out before the disk has it
    saving.finish()
    return drain(saving)

Saving.drain = drain_when_written
if most_bytes := int(sys.argv[6]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
prepared = api.prepare(sys.argv[1])
options = api.RunOptions(
    local=True, parts=2, metrics=False, progress_every_s=0.0, snapshot_every_s=0.05 if most_bytes else 1e-6
)
if sys.argv[5] == "ray":  # at a pace of ten seconds for all of it, and it waits for who looks
    options = api.RunOptions(
        workers=2, metrics=False, progress_every_s=0.02, snapshot_every_s=0.1, pace_ps=20_000_000
    )
with RunDirectory.create("warm", Path(sys.argv[2])) as directory:
    try:
        result = api.run_prepared(prepared, options, Doomed(), directory)
    except api.Interrupted as error:
        result = error.result
sys.exit(result.exit_status)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the scenario, and the run that nothing disturbed, with a snapshot of 150 us."""
    place = tmp_path_factory.mktemp("runs")
    (place / "warm.yaml").write_text(SCENARIO, encoding="utf-8")
    assert emu("run", place / "warm.yaml", "--local", "--out", place / "whole", "--snapshot-at=150us") == 0
    return place


def emu(*words: object) -> int:
    return main([*map(str, words), "--quiet"])


def summary(directory: Path) -> dict[str, object]:
    read: dict[str, object] = json.loads((directory / "summary.json").read_text("utf-8"))
    return read


def drive(
    place: Path, out: str, ends: int, number: str, where: str = "here", file_bytes: int = 0
) -> "subprocess.CompletedProcess[str]":
    """A driver that ends as soon as it has looked after so many whole snapshots and a sample."""
    words = [str(place / "warm.yaml"), str(place / out), str(ends), number, where, str(file_bytes)]
    return subprocess.run(
        [sys.executable, "-c", DRIVER, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def same_results(place: Path, out: str) -> None:
    """Every table and line file of a run that went on is that of the run that nothing disturbed."""
    whole, again = place / "whole", place / out
    assert summary(again)["digest"] == summary(whole)["digest"] != ""
    for name in ("samples.jsonl", "digests.jsonl", "ports.csv", "flows.csv", "collectives.csv"):
        assert (again / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize(
    ("ends", "number", "status"), [(1, "SIGKILL", -9), (4, "SIGKILL", -9), (2, "SIGINT", 130)]
)
def test_run_goes_on_where_its_driver_left_it(place: Path, ends: int, number: str, status: int) -> None:
    out = f"ended-{ends}-{number}"
    assert drive(place, out, ends, number).returncode == status
    snapshots = sorted(path.name for path in (place / out / "snapshots").iterdir())
    assert 1 <= len(snapshots) <= 3
    assert emu("run", "--local", "--parts=3", "--resume", place / out) == 0
    same_results(place, out)
    assert not (place / out / "snapshots").exists()
    kinds = [json.loads(line)["kind"] for line in (place / out / "journal.jsonl").read_text().splitlines()]
    assert kinds == ["begin", "resume", "end"]


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_run_on_ray_goes_on_after_its_driver_was_killed(place: Path) -> None:
    assert drive(place, "on-ray", 2, "SIGKILL", where="ray").returncode == -9
    assert list((place / "on-ray" / "snapshots").glob("*/whole"))
    assert emu("run", "--workers=2", "--resume", place / "on-ray") == 0
    same_results(place, "on-ray")


def test_run_goes_on_from_the_older_snapshot_if_the_newer_one_is_spoilt(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drive(place, "spoilt", 3, "SIGKILL").returncode == -9
    newest = max((place / "spoilt" / "snapshots").glob("*/whole"))
    content = bytearray(newest.with_name("worker-1").read_bytes())
    content[len(content) // 2] ^= 1
    newest.with_name("worker-1").write_bytes(content)
    assert emu("run", "--local", "--resume", place / "spoilt") == 0
    assert "worker-1: not as it was written" in capsys.readouterr().err
    same_results(place, "spoilt")


def test_full_disk_is_one_line_and_leaves_whole_lines_that_the_run_goes_on_behind(place: Path) -> None:
    header, *samples = (place / "whole" / "samples.jsonl").read_text().splitlines(keepends=True)
    room = len(header) + sum(map(len, samples)) * 2 // 3
    done = drive(place, "full", 1000, "SIGKILL", file_bytes=room)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        f"RuntimeFailure: {place}/full/samples.jsonl: File too large; what was written before is whole"
    )
    lines = (place / "full" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["virtual_ps"] for line in lines[1:]][:2] == [10_000_000, 20_000_000]
    assert (place / "whole" / "samples.jsonl").read_text().startswith("\n".join(lines) + "\n")
    assert not list((place / "full").glob("**/*.part"))
    assert emu("run", "--local", "--resume", place / "full") == 0
    same_results(place, "full")


def test_fork_without_a_change_is_the_run_itself(place: Path) -> None:
    for at in ("150us", "40us"):
        assert emu("fork", place / "whole", "--at", at, "--local", "--out", place / f"fork-{at}") == 0
        assert summary(place / f"fork-{at}")["digest"] == summary(place / "whole")["digest"]


def test_fork_with_a_fault_is_the_run_that_had_it_from_the_start(place: Path) -> None:
    fault = f"faults=[{FAULT}]"
    assert emu("run", place / "warm.yaml", "--local", "--out", place / "had", "--set", fault) == 0
    out = place / "forked"
    words = ("fork", place / "whole", "--at=150us", "--local", "--parts=2", "--out", out)
    assert emu(*words, "--set", fault) == 0
    assert summary(out)["digest"] == summary(place / "had")["digest"] != summary(place / "whole")["digest"]
    parent = json.loads((out / "parent.json").read_text())
    assert parent == {
        "run": str(place / "whole"),
        "at_ps": 150_000_000,
        "at": "150us",
        "changed": ["faults"],
    }
    # And back: a fork of the disturbed run, before its fault, without it.
    back = place / "back"
    assert emu("fork", place / "had", "--at=155us", "--local", "--out", back, "--set", "faults=[]") == 0
    assert summary(back)["digest"] == summary(place / "whole")["digest"]


def test_fork_under_another_threshold_is_another_run_in_any_number_of_parts(place: Path) -> None:
    digests = set()
    for parts in (1, 3):
        out = place / f"alpha-{parts}"
        words = ("fork", place / "whole", "--at=60us", "--local", f"--parts={parts}", "--out", out)
        assert emu(*words, "--set", "switch.buffer.alpha=1/64") == 0
        digests.add(summary(out)["digest"])
    assert len(digests) == 1
    assert digests != {summary(place / "whole")["digest"]}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--at=150us", "--set", "seed=3"], "emu: seed: cannot change in a fork, since state depends on it"),
        (["--at=150us", "--set", "topology.spines=3"], "emu: topology.spines: cannot change in a fork"),
        (
            ["--at=170us", "--set", f"faults=[{FAULT}]"],
            "emu: faults: what happens at 160us is past: the fork",
        ),
        (["--at=1s"], "emu: --at 1s: the run came to its end at "),
        (["--at=0s"], "emu: --at 0s: must be more than 0"),
    ],
)
def test_fork_that_cannot_be_is_refused_by_name(
    place: Path, words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert emu("fork", place / "whole", "--local", "--out", place / "refused", *words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(line)
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--resume", "whole"], "whole: the run came to its end (finished); there is nothing to go on with"),
        (["--resume", "nowhere"], "nowhere: holds no run; accepted: a directory that `emu run` made"),
        (["--resume", "whole", "--seed=3"], "--resume goes on with a run as it was begun"),
        (["--resume", "live"], "live: a live run cannot be resumed; emu replay live repeats it"),
        ([], "emu run needs a SCENARIO, or --resume"),
    ],
)
def test_resume_that_cannot_be_is_refused_in_one_line(
    place: Path,
    words: list[str],
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    (place / "live").mkdir(exist_ok=True)
    (place / "live" / "journal.jsonl").write_bytes((place / "whole" / "journal.jsonl").read_bytes())
    (place / "live" / "scenario.yaml").write_text(SCENARIO.replace("run: {", "run: {repeat: true, "))
    assert emu("run", "--local", *words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"emu: {line}")


@pytest.mark.provokes("another run writes into `--out`")
def test_a_directory_in_which_a_run_writes_is_not_taken(place: Path) -> None:
    with RunDirectory.create("warm", place / "held"), pytest.raises(UsageError, match="is writing here"):
        RunDirectory.create("warm", place / "held")
    RunDirectory.create("warm", place / "held").close()
