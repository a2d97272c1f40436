"""`emu torchrun --live`: ranks of a script talk through the emulated fabric; needs torch."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from emu import api
from emu.base.errors import UsageError
from emu.doors.pytorch import live_torch
from emu.doors.pytorch.commands import torchrun
from emu.doors.pytorch.flight_dumps import dump_of
from emu.doors.pytorch.live_job import Job, LiveError, LiveServer, Processes, over_gloo
from emu.doors.pytorch.live_results import Live, Outcome, outcome_of
from emu.doors.pytorch.record import Call
from tests.pytorch import scripts

torch = pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
TOPOLOGY = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2}
FABRIC: dict[str, Any] = {
    "name": "live",
    "payload": "real",
    "topology": TOPOLOGY,
    "ncclx": {"watchdog": "600s"},
    "run": {"max_time": "100000s", "stall_after": "1200s"},
}
FAULTS = [
    {"kind": "degrade", "target": "rtsw-*:ctsw-*", "loss": "1/500"},
    {"kind": "link_down", "target": "rtsw-0:ctsw-0", "at": "1ms"},
]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """One process that has imported torch begins the ranks of all tests."""
    with Processes() as found:
        yield found


class Runner:
    def __init__(self, processes: Processes, place: Path, text: str, *words: str) -> None:
        self.processes, self.place = processes, place
        script = place / "train.py"
        script.write_text(text)
        self.script = [str(script), *words]
        self.runs = 0

    def job(self) -> Job:
        self.runs += 1
        folder = self.place / f"run{self.runs}"
        folder.mkdir()
        return Job(self.script, 4, "h100", folder, gpus_per_host=1, timeout_s=300)

    def live(self, parts: int = 1, **more: Any) -> tuple[str, Outcome]:
        job = self.job()
        digest = LiveServer(api.open({**FABRIC, **more}, parts=parts), job, self.processes).serve()
        return digest, outcome_of(job.folder, 4)

    def gloo(self) -> Outcome:
        job = self.job()
        over_gloo(job, self.processes, job.folder)
        return outcome_of(job.folder, 4)


def test_every_call_of_every_type_has_the_result_that_it_has_by_nccl(
    processes: Processes, tmp_path: Path
) -> None:
    runner = Runner(processes, tmp_path, scripts.EVERY_CALL)
    runner.live(faults=FAULTS[:1])
    runner.gloo()
    for output in tmp_path.glob("run*/rank_*.txt"):
        assert output.read_text().endswith("all as it should be\n"), output


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_training_over_a_lossy_fabric_ends_where_gloo_does_with_the_same_bits_in_any_parts(
    processes: Processes, tmp_path: Path, mode: str
) -> None:
    runner = Runner(processes, tmp_path, scripts.SMALL_GPT, mode)
    digest, first = runner.live(faults=FAULTS)
    again, second = runner.live(parts=2, faults=FAULTS)
    assert again == digest
    assert [one["steps_ps"] for one in first.ranks] == [one["steps_ps"] for one in second.ranks]
    assert [one["parameters"] for one in first.ranks] == [one["parameters"] for one in second.ranks]
    assert len({one["parameters"] for one in first.ranks}) == (1 if mode == "ddp" else 4)
    result = Live("live", "", first, digest, gloo=runner.gloo())
    assert all(len(one["losses"]) == len(one["steps_ps"]) == 20 for one in first.ranks)
    assert first.losses[-1] < 0.5 * first.losses[0]
    apart = result.apart()
    assert apart is not None
    assert apart < 1e-6
    assert result.left() is None
    stop_ps = first.ranks[0]["end_ps"]
    assert stop_ps > 10**12  # the link that went down cost a timeout of 4 s; without it steps are below 1 ms


def test_a_bit_that_flips_in_a_gpu_takes_the_loss_off_its_curve(processes: Processes, tmp_path: Path) -> None:
    runner = Runner(processes, tmp_path, scripts.SMALL_GPT)
    flip = {"kind": "bit_flip", "target": "gpu-1-0", "at": "950us", "bit": 30}  # while it computes step 4
    digest, emulated = runner.live(faults=[flip], ncclx={"watchdog": "600s", "protocol": "simple"})
    result = Live(
        "live", "", emulated, digest, gloo=runner.gloo(), faults=[("bit_flip gpu-1-0", 950 * 10**6)]
    )
    left = result.left()
    assert left is not None
    struck = sum(at_ps < 950 * 10**6 for at_ps in emulated.ranks[0]["steps_ps"])
    assert left[0] in (struck, struck + 1)  # the gradients of that step are wrong, and the next loss
    page = result.page()
    assert f"the loss leaves that over gloo at step {left[0]}" in page
    assert "<td>bit_flip gpu-1-0</td>" in page


CALLS = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
x, rank = torch.ones(1000, device="cuda"), dist.get_rank()
dist.all_reduce(x)
{}
dist.all_reduce(x)
"""
DOWN = {
    "faults": [{"kind": "link_down", "target": "rtsw-0:ctsw-*", "at": "1us"}],
    "transport": {"timeout": 10, "retry_count": 2},
}


@pytest.mark.parametrize(
    ("line", "more", "reason", "dumps"),
    [
        ("if rank == 2: exit()", {}, r"rank 2 never called all_reduce of 1000 x float32 \(call 2 of", 3),
        (
            "if rank == 2: x = x[:500]",
            {},
            "ranks disagree about call 2 of .*: rank 2 called all_reduce of 500 x float32; ranks 0, 1, 3",
            4,
        ),
        ("", DOWN, r"a call of rank \d failed: its queue pair ran out of retries, at .*\n.* waits", 4),
        ("assert rank != 1, 'unwell'", {}, r"train.py:6: rank 1 failed: AssertionError: unwell$", 0),
        ("if rank == 3: os.kill(os.getpid(), 9)", {}, r"rank 3 ended with status -9: it printed nothing$", 0),
        (
            "if rank == 1: dist.all_reduce(x, dist.ReduceOp.BOR)",
            {},
            r"train.py:6: .*sum, avg, product, min",
            0,
        ),
    ],
    ids=["never comes", "mismatch", "link lost", "raises", "killed", "refused"],
)
def test_a_job_that_cannot_go_on_ends_as_with_the_library_and_says_why(
    processes: Processes, tmp_path: Path, line: str, more: dict[str, Any], reason: str, dumps: int
) -> None:
    runner = Runner(processes, tmp_path, CALLS.format(line))
    with pytest.raises(LiveError, match=reason):
        runner.live(**more)
    written = sorted(tmp_path.glob("run1/nccl_trace_rank_*"))
    assert len(written) == dumps
    for file in written:
        calls = [one for one in dump_of(file.read_bytes(), file.name).operations if isinstance(one, Call)]
        assert [one.op for one in calls][:1] == ["all_reduce"]
        said = (tmp_path / "run1" / f"rank_{file.name[-1]}.txt").read_text()
        assert any(words in said for words in ("Watchdog caught", "NCCL error", "ranks disagree")), said


def test_the_command_prints_what_came_of_it_and_writes_a_page(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_torch, "Processes", lambda: nullcontext(processes))
    script, scenario = tmp_path / "train.py", tmp_path / "four.yaml"
    script.write_text(CALLS.format("print('so far')"))
    scenario.write_text(yaml.safe_dump({"name": "four", "topology": TOPOLOGY}))
    words = ["--live", "--nproc", "4", "--out", str(tmp_path / "out"), str(scenario), str(script)]
    done = CliRunner().invoke(torchrun.command, words, catch_exceptions=False)
    assert done.output.startswith("so far\n4 ranks, 0 steps")
    digest = json.loads((tmp_path / "out" / "live.json").read_text())["digest"]
    assert f"digest {digest}" in done.output
    assert (tmp_path / "out" / "page.html").exists()
    with pytest.raises(UsageError, match="is not empty; accepted: another --out, or --force"):
        CliRunner().invoke(torchrun.command, words, catch_exceptions=False)
    again = ["--force", "--compute", "measured", *words]
    done = CliRunner().invoke(torchrun.command, again, catch_exceptions=False)
    assert "digest" not in done.output  # CPU time is never twice the same


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--live", "--nproc", "4", "{scenario}"], "accepted: a scenario and a script"),
        (["--live", "{scenario}", "{script}"], "accepted: --nproc N, how many ranks"),
        (["--live", "--nproc", "5", "{scenario}", "{script}"], "has 4 GPUs for them; accepted: up to 4"),
        (["--live", "--nproc", "4", "{scenario}", "nowhere.py"], "nowhere.py: there is no such script"),
        (["--live", "--nproc", "4", "--fake", "{scenario}", "{script}"], "--fake means nothing with --live"),
        (["--nproc", "4", "--ranks", "4", "{script}"], "--nproc means nothing without --live"),
        (["{script}"], "accepted: --ranks N, the world size of the script"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, words: list[str], reason: str) -> None:
    script, scenario = tmp_path / "train.py", tmp_path / "four.yaml"
    script.write_text("")
    scenario.write_text(yaml.safe_dump({"name": "four", "topology": TOPOLOGY}))
    given = [one.format(script=script, scenario=scenario) for one in words]
    with pytest.raises(UsageError, match=reason) as refused:
        CliRunner().invoke(torchrun.command, given, catch_exceptions=False)
    assert "\n" not in str(refused.value)
