"""`emu torchrun`: unmodified scripts are recorded without GPU and peers; needs torch (`make setup-torch`)."""

import csv
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from emu.api import run
from emu.base.errors import UsageError
from emu.cli.commands import new
from emu.doors.pytorch.commands import torchrun
from emu.doors.pytorch.kernels import GPUS, KernelTimes
from emu.doors.pytorch.record import Call, Kernel, Operation, Record
from emu.doors.pytorch.torchrun import Recording, ScriptError, scenario_of
from emu.doors.pytorch.translate import facts_of
from tests.pytorch import scripts

torch = pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
MEASURED = Path(__file__).with_name("measured_steps")


def recorded(tmp_path: Path, text: str, world: int = 8, *, fake: bool = False, gpu: str = "h100") -> Record:
    script = tmp_path / "train.py"
    script.write_text(text)
    return Recording([str(script)], world, 8, GPUS[gpu], steps=3, fake=fake).play(0)


def calls(record: Record) -> dict[str, int]:
    """Bytes of the last step, by collective, without the few that agree on something."""
    found: dict[str, int] = {}
    for one in list(record.steps())[-1]:
        if isinstance(one, Call) and one.dtype != "int32":
            found[one.op] = found.get(one.op, 0) + one.bytes
    return found


def plain(step: Sequence[Operation]) -> list[object]:
    """Operations, their calls and events numbered from the first."""
    numbers: dict[tuple[str, int], int] = {}
    found: list[object] = []
    for one in step:
        changed: dict[str, Any] = {
            name: numbers.setdefault((name, getattr(one, name)), len(numbers))
            for name in ("event", "number")
            if hasattr(one, name)
        }
        found.append(replace(one, **changed))
    return found


def test_groups_have_the_old_and_the_new_names_that_this_torch_has() -> None:
    versions = importlib.import_module("emu.doors.pytorch.player.torch_versions")
    for module in ("player.recorded_groups", "live_groups"):
        group = importlib.import_module(f"emu.doors.pytorch.{module}").Group
        for name, old in versions.OLD_NAMES.items():
            assert hasattr(versions.GroupBase, name)
            assert hasattr(versions.GroupBase, old)
            assert getattr(group, name) is getattr(group, old) is not getattr(versions.GroupBase, old)


def test_ddp_reduces_every_gradient_once(tmp_path: Path) -> None:
    assert calls(recorded(tmp_path, scripts.DDP)) == {"all_reduce": 4 * scripts.PARAMETERS}


def test_fsdp_gathers_twice_and_scatters_once(tmp_path: Path) -> None:
    record = recorded(tmp_path, scripts.FSDP2)
    assert calls(record) == {"all_gather": 8 * scripts.PARAMETERS, "reduce_scatter": 4 * scripts.PARAMETERS}
    assert record.parameters * 8 == scripts.PARAMETERS
    streams = {one.op: one.stream for one in record.operations if isinstance(one, Call)}
    assert len({0, streams["all_gather"], streams["reduce_scatter"]}) == 3  # FSDP's own streams


def test_scripts_that_ask_for_the_accelerator_and_begin_with_a_mesh_are_recorded(tmp_path: Path) -> None:
    """As PyTorch's own examples: `torch.accelerator`, devices by number, shards that come from meta."""
    found = calls(recorded(tmp_path, scripts.ACCELERATOR))
    assert found == {
        "all_gather": 2 * 4 * 4 * (64 * 64 + 64),
        "reduce_scatter": 4 * 4 * (64 * 64 + 64),
        "all_reduce": found["all_reduce"],
    }
    assert found["all_reduce"] < 4096  # of the norm


@pytest.mark.parametrize("script", ["WIDE_DDP", "LLAMA"])
def test_a_record_without_data_is_that_with_data(tmp_path: Path, script: str) -> None:
    """Kernels, calls and memory; and a layer that is recomputed runs its attention and its products once."""
    text = getattr(scripts, script)
    real, fake = recorded(tmp_path, text, 4), recorded(tmp_path, text, 4, fake=True)
    assert not real.notes
    assert "were read" in fake.notes[0]
    steps = [plain(list(one.steps())[2]) for one in (real, fake)]
    assert steps[0] == steps[1]
    assert fake.peak_bytes == pytest.approx(real.peak_bytes, rel=1e-5)
    if script != "LLAMA":
        return
    ops = [one.op for one in list(real.steps())[-1] if isinstance(one, Kernel)]
    assert ops.count("rms_norm") == 4  # two layers, each once more in backward
    assert ops.count("scaled_dot_product_attention(causal)") == 2
    assert ops.count("mm") == 3 * (2 * 2 + 1)
    found = [one.module for one in list(real.steps())[-1] if isinstance(one, Kernel) and one.flops]
    layer = [["qkv", "", "out"], ["out", "out", "", "qkv", "qkv"]]  # attention is the layer's own
    forward = [f"layers.{n}.{part}".rstrip(".") for n in (0, 1) for part in layer[0]]
    back = [f"backward.layers.{n}.{part}".rstrip(".") for n in (1, 0) for part in layer[1]]
    assert found == [*forward, "head", "backward.head", "backward.head", *back]
    named = {one.op: one.module for one in list(real.steps())[-1] if isinstance(one, Kernel)}
    assert named["_fused_adamw_"] == "AdamW"
    assert named["rms_norm"] == "backward.layers.0.norm"  # recomputed there
    assert named["embedding_dense_backward"] == "backward.words"


def test_hsdp_reduces_its_shard_over_the_replicas(tmp_path: Path) -> None:
    found = calls(recorded(tmp_path, scripts.HSDP))
    assert found["all_reduce"] == 4 * scripts.PARAMETERS // 4
    assert found["all_gather"] == 2 * found["reduce_scatter"] == 8 * scripts.PARAMETERS


def test_a_pipeline_sends_each_microbatch_there_and_its_gradient_back(tmp_path: Path) -> None:
    """Of torch.distributed.pipelining, one rank of each stage; they send one another objects before."""
    script = tmp_path / "train.py"
    script.write_text(scripts.PIPELINE)
    roles = Recording([str(script)], 8, 8, GPUS["h100"], steps=2).roles((), lambda _: None)
    assert [(one.record.rank, one.ranks) for one in roles] == [
        (0, [0, 1]),
        (2, [2, 3]),
        (4, [4, 5]),
        (6, [6, 7]),
    ]
    microbatch = 32 // 8 * 64 * 4
    for stage, role in enumerate(roles):
        sides = (stage > 0) + (stage < 3)
        found = calls(role.record)
        assert (found["send"], found["recv"]) == (8 * microbatch * sides, 8 * microbatch * sides)
        assert found["all_reduce"] == 4 * 2 * (64 * 64 + 64)
    batches = [one.batch for one in list(roles[1].record.steps())[-1] if isinstance(one, Call)]
    assert max(batches.count(one) for one in batches if one) >= 2  # a send and a receive that begin together
    fabric = {"topology": {"kind": "star", "hosts": 1, "gpus_per_host": 8}}
    times = KernelTimes(GPUS["h100"])
    scenario = scenario_of(roles, times, fabric, name="train", host_us=0, steps=1)
    training = run(scenario, local=True, diagnose=False).summary.jobs["train"].training
    assert training is not None
    assert training.step_ps  # nothing hangs
    computing = [facts_of(role.record, times).kernels_us for role in roles]
    assert training.step_ps > 1e6 * max(computing) * (8 + 3) / 8 * 0.9  # fills and drains


def test_tokens_go_to_experts_and_come_back(tmp_path: Path) -> None:
    """As many bytes as all tokens there, back, and back again for the gradient; their counts before."""
    found = calls(recorded(tmp_path, scripts.EXPERTS, 4))
    assert found["all_to_all"] == 3 * 256 * 64 * 4 + 4 * 8


def test_tensor_parallelism_reduces_activations_forward_and_backward(tmp_path: Path) -> None:
    found = calls(recorded(tmp_path, scripts.TENSOR_PARALLEL))
    activations = 16 * 64 * 4
    assert found == {"all_reduce": (4 + 4) * activations}


@pytest.mark.parametrize("name", ["llama-1b", "llama-8b-short"])
def test_kernels_of_a_recorded_step_take_what_the_step_took_on_the_gpu(tmp_path: Path, name: str) -> None:
    """Steps of which kernels, not launches, take the time: within 4 %; memory within 15."""
    deploy = Path(__file__).parents[2] / "deploy"
    text = f"""
import sys
sys.path.insert(0, {str(deploy)!r})
import torch, measure_kernels as m
shape, batch = m.MODELS[{name!r}]
model = m.Decoder(**shape, llama="llama" in {name!r}).cuda()
ids = torch.randint(shape["vocabulary"], (batch, shape["length"] + 1), device="cuda")
step = m.step_of(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), ids)
for _ in range(4):
    step()
"""
    record = recorded(tmp_path, text, world=1, fake=True)
    for gpu in ("h100", "h200"):
        with (MEASURED / f"{gpu}.csv").open(newline="") as file:
            row = next(
                row for row in csv.DictReader(file) if row["model"] == name and row["adamw"] == "fused"
            )
        step = facts_of(record, KernelTimes(GPUS[gpu]))
        assert step.kernels_us / 1e3 == pytest.approx(float(row["ms"]), rel=0.04)
        assert record.peak_bytes / 2**30 == pytest.approx(float(row["gib"]), rel=0.15)
        assert record.parameters == int(row["parameters"])


def test_a_saved_step_runs_without_torch_and_says_what_was_exposed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(scripts.FSDP2)
    job = tmp_path / "job.yaml"
    words = ["--ranks", "16", "--save", str(job), str(script)]
    done = CliRunner().invoke(torchrun.command, words, standalone_mode=False)
    assert done.exception is None, done.output
    result = run(yaml.safe_load(job.read_text()), local=True, diagnose=False)
    training = result.summary.jobs["train"].training
    assert training is not None
    assert set(training.exposed) >= {"world"}


def test_what_if_compares_each_change_with_the_step_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = scripts.DDP.replace("bucket_cap_mb=0.1", "bucket_cap_mb=float(sys.argv[-1])")
    script.write_text(f"import sys\n{text}")
    fabric = tmp_path / "fabric.yaml"
    shape = "racks: 2, hosts_per_rack: 1, gpus_per_host: 2, spines: 2, link: 100G"
    fabric.write_text(f"name: f\ntopology: {{kind: ai_zone, {shape}}}")
    words = ["--ranks", "4", "--fabric", str(fabric), "--local", "--what-if", "topology.spines=1,2"]
    words += ["--what-if", "--bucket-mb=0.1,100"]
    done = CliRunner().invoke(torchrun.command, [*words, str(script), "0.1"], standalone_mode=False)
    assert done.exception is None, done.output
    rows = [line.split() for line in done.output.splitlines() if line.startswith(("as it", "topo", "--b"))]
    base, fewer, same, alike, late = (float(row[3 if row[0] == "as" else 2]) for row in rows)
    assert fewer > base == same == alike != late  # one bucket of 100 MB waits for the last gradient
    words[-1] = "topology.spines"
    wrong = CliRunner().invoke(torchrun.command, [*words, str(script)], standalone_mode=False)
    assert "--what-if topology.spines: accepted" in str(wrong.exception)


def test_the_table_of_a_dry_run_shows_buckets_between_the_kernels_of_backward(tmp_path: Path) -> None:
    """Of the script that `emu new torch` copies."""
    script = tmp_path / "small_gpt.py"
    made = CliRunner().invoke(new.command, ["torch", str(script)], standalone_mode=False)
    assert made.exception is None, made.output
    assert len(script.read_text("utf-8").splitlines()) <= 60
    again = CliRunner().invoke(new.command, ["torch", str(script)], standalone_mode=False)
    assert "is not replaced" in str(again.exception)
    words = ["--ranks", "16", "--dry", str(script), "--layers", "1", "--bucket-mb", "5"]
    shown = CliRunner().invoke(torchrun.command, words, standalone_mode=False).output
    rows = [line.split()[1:3] for line in shown.splitlines() if line[:6].strip().isdigit()]
    kinds = ["all_reduce" if row[0] == "all_reduce" else "kernels" for row in rows if row[0] != "broadcast"]
    first, last = kinds.index("all_reduce"), len(kinds) - kinds[::-1].index("all_reduce")
    assert kinds[0] == "kernels"
    assert "kernels" in kinds[first:last]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nraise ValueError('no data')\n", r"train\.py:2: rank 0 cannot be recorded: ValueError: no"),
        ("import torch\n", "no optimizer made a step"),
        (
            "\nraise RuntimeError('Found no NVIDIA driver on your system')",
            r"train\.py:2: .*: a kernel of the script's own needs a GPU",
        ),
        (
            f"{scripts.HEAD}x = torch.zeros(4, device='cuda')\ndist.recv(x)\n",
            r"train\.py:\d+: .*name the sender",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_one_line_with_the_line_of_the_script(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ScriptError, match=says):
        recorded(tmp_path, text)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("topology: {kind: star, hosts: 1, gpus_per_host: 4}", r"^--ranks 16: .*; accepted: at most 4$"),
        ("topology: {kind: star, host: 1}", r"^.*fabric\.yaml: topology.hosts: is required; accepted: "),
        ("jobs: []", r"^.*fabric\.yaml: has no topology; accepted: "),
    ],
)
def test_a_fabric_that_does_not_fit_is_one_line_before_anything_is_recorded(
    tmp_path: Path, shape: str, says: str
) -> None:
    script, fabric = tmp_path / "train.py", tmp_path / "fabric.yaml"
    script.write_text("raise SystemExit(9)")
    fabric.write_text(shape)
    words = ["--ranks", "16", "--fabric", str(fabric), str(script)]
    done = CliRunner().invoke(torchrun.command, words, standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert re.match(says, str(done.exception))


def test_a_script_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no such script"):
        Recording(["nosuch.py"], 8, 8, GPUS["h100"]).check()


def test_a_record_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    record = recorded(tmp_path, scripts.DDP)
    record.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == record
    assert json.loads((tmp_path / "record.json").read_text())["format"] == 1
