"""Does a training recipe of Megatron's or torchtitan's become the job that it describes?"""

import re
from pathlib import Path
from typing import Any

import pytest

from emu.cli.main import main
from emu.doors.foreign.training_recipe import read_megatron, read_torchtitan, with_ranks
from emu.scenario.load import load

MEGATRON = """#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-16}  # --nnodes 99
TP=8
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
export NCCL_IB_TC=41

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr localhost
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    # --swiglu
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --train-iters 500000
    --lr 6.0e-5
    --fp16
    --fp8-format hybrid
    --recompute-activations
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} \\
    --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size 16 --sequence-parallel "--vocab-size 51200"
"""
LLAMA = """
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
--num-query-groups 8 --seq-length 8192 --swiglu --micro-batch-size 2 --global-batch-size 128
"""
TITAN = """
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
steps = 1000
mixed_precision_param = "bfloat16"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
[compile]
enable = false
[float8]
filter_fqns = ["output"]
"""


def imported(tmp_path: Path, name: str, text: str, *options: str) -> tuple[str, Any]:
    (tmp_path / name).write_text(text, "utf-8")
    out = tmp_path / "out.yaml"
    assert main(["import", str(tmp_path / name), "--output", str(out), *options]) == 0
    return out.read_text("utf-8"), load(out).scenario


def test_megatrons_arguments_of_sixteen_servers_are_a_job_on_sixteen_servers(tmp_path: Path) -> None:
    text, scenario = imported(tmp_path, "job.sh", MEGATRON)
    (job,) = scenario.jobs
    work = job.workload
    assert (scenario.topology.hosts, scenario.topology.gpus_per_host, job.ranks) == (16, 8, 128)
    assert (work.tp, work.pp, work.micro_batch, work.micro_batches) == (8, 16, 1, 1536)
    assert (work.own.layers, work.own.hidden, work.own.kv_heads, work.own.ffn) == (96, 12288, 96, 4 * 12288)
    assert (work.own.gated, work.own.vocab, work.sequence) == (False, 51200, None)
    assert (work.data, work.overlap.fsdp_prefetch, work.recompute) == ("ddp", False, "selective")
    assert work.order == ("tp", "cp", "dp", "pp")
    assert scenario.transport.data_priority == 1
    assert "# Not modelled: --fp8-format.\n" in text
    fitted = work.fitted(128)
    assert fitted.model.layers * (
        fitted.model.attention_parameters() + fitted.model.experts * fitted.model.expert_parameters()
    ) == pytest.approx(173.9e9, rel=0.001)


def test_every_option_of_a_script_is_a_key_or_is_named() -> None:
    script = re.sub(r"#.*", "", MEGATRON)
    named = set(re.findall(r"(--[a-z][\w-]*)", script))
    recipe = read_megatron(MEGATRON)
    rest = named - set(recipe.without_effect) - set(recipe.not_modelled)
    of_keys = {
        "num-layers",
        "hidden-size",
        "num-attention-heads",
        "seq-length",
        "micro-batch-size",
        "global-batch-size",
    }
    of_keys |= {
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "vocab-size",
        "nnodes",
        "nproc_per_node",
    }
    assert rest == {f"--{one}" for one in of_keys} | {"--recompute-activations"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {"data": "ddp", "own.gated": True, "own.kv_heads": 8, "micro_batches": 4}),
        (
            "--use-distributed-optimizer --overlap-grad-reduce",
            {"data": "fsdp", "reshard": None, "overlap": None},
        ),
        ("--use-torch-fsdp2", {"data": "fsdp", "reshard": True, "reduce_each": True}),
        ("--ddp-bucket-size 1000", {"bucket": "4000B"}),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 8",
            {"recompute_every": 4},
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            {"recompute": "full"},
        ),
        (
            "--tensor-model-parallel-size 4 --tp-comm-overlap",
            {"overlap": {"fsdp_prefetch": False, "tp_chunks": 4}},
        ),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2", {"virtual_stages": 4}),
        ("--use-tp-pp-dp-mapping", {"order": ["tp", "cp", "pp", "dp"]}),
        ("--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4", {"ep": 4, "own.experts": 8}),
        ("--context-parallel-size 2", {"cp": 2, "micro_batches": 8}),
        ("--num-layers 16", {"own.layers": 16}),
    ],
)
def test_an_option_of_megatrons_is_its_key(options: str, expected: dict[str, Any]) -> None:
    keys = with_ranks(read_megatron(f"{LLAMA} {options}"), 16).keys
    found = {**keys, **{f"own.{name}": value for name, value in keys["own"].items()}}
    found.setdefault("own.gated", True)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        ("torchrun --nnodes=4 --nproc-per-node=8", 32),
        ("torchrun --nnodes 1:4 --nproc_per_node 4", 16),
        ("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun", 16),
        ("#SBATCH -N 3 --ntasks-per-node 4\nsrun", 12),
        ("torchrun --nnodes $SLURM_NNODES", 0),
    ],
)
def test_ranks_are_the_launchers(launcher: str, ranks: int) -> None:
    assert read_megatron(f"{launcher} pretrain.py {LLAMA}").ranks == ranks


def test_a_toml_of_torchtitan_is_its_job_on_as_many_servers_as_asked(tmp_path: Path) -> None:
    text, scenario = imported(tmp_path, "llama3_70b.toml", TITAN, "--hosts", "32")
    (job,) = scenario.jobs
    work = job.workload
    assert (job.ranks, scenario.topology.hosts) == (256, 32)
    assert (work.model, work.tp, work.micro_batch, work.micro_batches) == ("llama3-70b", 8, 8, 1)
    assert (work.data, work.reshard, work.recompute, work.sequence) == ("fsdp", True, "full", 8192)
    assert "training.steps" in text
    assert "# Not modelled: training.mixed_precision_param, float8.filter_fqns.\n" in text


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (('[activation_checkpoint]\nmode = "full"', ""), {"recompute": None}),
        (
            ('mode = "full"', 'mode = "selective"\nselective_ac_option = "op"'),
            {"recompute": "full", "recompute_every": 2},
        ),
        (('mode = "full"', 'mode = "selective"\nselective_ac_option = "1"'), {"recompute_every": None}),
        (
            ("local_batch_size = 8", "local_batch_size = 8\nglobal_batch_size = 1024"),
            {"micro_batches": 4, "reduce_each": True},
        ),
        (("replicate_degree = 1", "replicate_degree = 4"), {"replicas": 4}),
        (
            ("tensor_parallel_degree = 8", "tensor_parallel_degree = 8\npipeline_parallel_degree = 4"),
            {"pp": 4, "micro_batch": 1, "micro_batches": 8, "reshard": None},
        ),
        (
            ("tensor_parallel_degree = 8", 'fsdp_reshard_after_forward = "never"'),
            {"tp": None, "reshard": None},
        ),
    ],
)
def test_a_key_of_torchtitans_is_its_key(changed: tuple[str, str], expected: dict[str, Any]) -> None:
    keys = with_ranks(read_torchtitan(TITAN.replace(*changed)), 256).keys
    assert {name: keys.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.sh",
            LLAMA.replace("32", "$LAYERS", 1),
            "--num-layers '$LAYERS' is not known without running the script",
        ),
        (
            "a.sh",
            LLAMA.replace("--seq-length 8192", ""),
            "there is no --seq-length; accepted: Megatron's arguments",
        ),
        (
            "a.sh",
            f"{LLAMA} --recompute-granularity some",
            "--recompute-granularity 'some'; accepted: selective or full",
        ),
        (
            "a.sh",
            f"{LLAMA} --tensor-model-parallel-size 3 --nnodes 1",
            "tp x cp x pp is 3, which does not divide 8",
        ),
        (
            "a.sh",
            f"{LLAMA} --nnodes 3",
            "a batch of 128 is not made of micro-batches of 2 on 24 data-parallel ranks",
        ),
        (
            "a.toml",
            TITAN.replace("llama3", "flux"),
            "a.toml:1: model flux 70B is no preset; accepted: llama3 with",
        ),
        ("a.toml", TITAN.replace("seq_len = 8192", 'seq_len = "long"'), "training.seq_len is 'long'"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused_in_a_line(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert main(["import", str(tmp_path / name), "--output", str(tmp_path / "out.yaml")]) == 2
    assert said in capsys.readouterr().err


def test_a_script_whose_arguments_are_not_known_still_gives_its_variables(tmp_path: Path) -> None:
    text, scenario = imported(
        tmp_path, "job.sh", f"export NCCL_IB_TC=41\n{LLAMA.replace('32', '$LAYERS', 1)}"
    )
    assert "# No job is read of Megatron's arguments: --num-layers '$LAYERS'" in text
    assert scenario.transport.data_priority == 1
