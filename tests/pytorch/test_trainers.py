"""Trainers of others, unmodified: torchtitan, and models and the Trainer of transformers.

FLOPs and parameters are those of hand formulas. Where the packages are not installed, the tests are skipped:
`pip install torchtitan==0.2.2 transformers accelerate triton`.
"""

import importlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from emu.doors.pytorch.kernels import GPUS
from emu.doors.pytorch.record import Call, Kernel, Record
from emu.doors.pytorch.torchrun import Recording

pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None,
    reason="transformers and accelerate are not installed",
)
needs_torchtitan = pytest.mark.skipif(
    importlib.util.find_spec("torchtitan") is None or importlib.util.find_spec("triton") is None,
    reason="torchtitan and triton are not installed",
)
BATCH, LENGTH = 4, 128
WIDTH, INNER, HEADS, GROUPS, LAYERS, WORDS = 256, 688, 8, 4, 2, 1024
CONFIG = f"""
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(
    vocab_size={WORDS}, hidden_size={WIDTH}, intermediate_size={INNER}, num_hidden_layers={LAYERS},
    num_attention_heads={HEADS}, num_key_value_heads={GROUPS}, max_position_embeddings={LENGTH},
    attn_implementation=IMPLEMENTATION, tie_word_embeddings=False)
model = LlamaForCausalLM(config)
"""
PLAIN = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
CONFIG
model.cuda()
WRAPPED
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(2):
    ids = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WRAPPED = {
    "ddp": "model = DistributedDataParallel(model)",
    "fsdp": "[fully_shard(one) for one in model.model.layers]; fully_shard(model)",
}
TRAINER = """
import torch
from transformers import Trainer, TrainingArguments
CONFIG
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, at):
        ids = torch.randint(WORDS, (LENGTH,))
        return {"input_ids": ids, "labels": ids}
arguments = TrainingArguments(
    output_dir="out", max_steps=2, report_to=[], save_strategy="no", per_device_train_batch_size=BATCH)
Trainer(model=model, args=arguments, train_dataset=Data()).train()
"""


def recorded(tmp_path: Path, text: str, implementation: str, *, fake: bool = False) -> Record:
    given = {"CONFIG": CONFIG, "IMPLEMENTATION": repr(implementation)}
    given |= {"WORDS": str(WORDS), "BATCH": str(BATCH), "LENGTH": str(LENGTH)}
    for name, value in given.items():
        text = text.replace(name, value)
    script = tmp_path / "train.py"
    script.write_text(text)
    return Recording([str(script)], 8, 8, GPUS["h100"], steps=2, fake=fake).play(0)


def flops(records: Sequence[Record]) -> int:
    return sum(one.flops for record in records for one in list(record.steps())[-1] if isinstance(one, Kernel))


def llama_parameters(
    width: int, inner: int, key_width: int, layers: int, words: int, *, embedded: bool = True
) -> int:
    """Of products alone, or with the table of words and the norms."""
    layer = 2 * width * width + 2 * width * key_width + 3 * width * inner
    products = layers * layer + width * words
    return products + (width * words + (2 * layers + 1) * width if embedded else 0)


def llama_flops(tokens: int, products: int, attention: float) -> float:
    """Six FLOPs a token and weight; attention forward, and what backward is of it."""
    return 6 * tokens * products + attention


PRODUCTS = llama_parameters(WIDTH, INNER, WIDTH // 2, LAYERS, WORDS, embedded=False)
SCORES = 4 * BATCH * LENGTH * LENGTH * WIDTH * LAYERS


@needs_transformers
@pytest.mark.parametrize(
    ("how", "implementation", "fake", "attention"),
    [("ddp", "sdpa", True, 3.5 * SCORES / 2), ("fsdp", "eager", False, 3 * SCORES)],
)
def test_a_model_of_transformers_has_the_flops_of_the_hand_formula(
    tmp_path: Path, how: str, implementation: str, fake: bool, attention: float
) -> None:
    record = recorded(tmp_path, PLAIN.replace("WRAPPED", WRAPPED[how]), implementation, fake=fake)
    assert flops([record]) == pytest.approx(llama_flops(BATCH * LENGTH, PRODUCTS, attention), rel=0.01)
    assert record.model_parameters == llama_parameters(WIDTH, INNER, WIDTH // 2, LAYERS, WORDS)


@needs_transformers
def test_the_trainer_of_transformers_is_recorded_with_its_defaults(tmp_path: Path) -> None:
    record = recorded(tmp_path, TRAINER, "sdpa", fake=True)
    assert flops([record]) == pytest.approx(llama_flops(BATCH * LENGTH, PRODUCTS, 3.5 * SCORES / 2), rel=0.01)
    reduced = sum(
        one.bytes
        for one in list(record.steps())[-1]
        if isinstance(one, Call) and one.op == "all_reduce" and one.bytes > 4096
    )
    assert reduced == pytest.approx(4 * llama_parameters(WIDTH, INNER, WIDTH // 2, LAYERS, WORDS), rel=0.01)


TITAN = """
[job]
dump_folder = "out"
[profiling]
enable_profiling = false
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "tokenizer"
[training]
local_batch_size = 8
seq_len = 2048
steps = 4
dataset = "c4_test"
[checkpoint]
enable = false
[activation_checkpoint]
mode = "none"
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
context_parallel_degree = 2
"""


@needs_torchtitan
def test_torchtitan_on_64_ranks_by_tensor_pipeline_context_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Llama 3 of 6 layers of 256: both stages together have a quarter of the model's FLOPs."""
    tokenizers = importlib.import_module("tokenizers")
    words = {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<unk>": 2} | {f"w{n}": n + 3 for n in range(2000)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    for folder in ("tokenizer", "tests/assets/c4_test"):
        (tmp_path / folder).mkdir(parents=True)
    made.save(str(tmp_path / "tokenizer/tokenizer.json"))
    special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    settings = {**special, "add_bos_token": True, "add_eos_token": True}
    (tmp_path / "tokenizer/tokenizer_config.json").write_text(json.dumps(settings))
    text = " ".join(f"w{n * 13 % 2000}" for n in range(3000))
    (tmp_path / "tests/assets/c4_test/data.json").write_text((json.dumps({"text": text}) + "\n") * 100)
    (tmp_path / "job.toml").write_text(TITAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    script = ["torchtitan.train", "--job.config_file", "job.toml"]
    recording = Recording(script, 64, 8, GPUS["h100"], steps=2, fake=True, module=True)
    roles = recording.roles((), lambda _: None)
    assert [(role.record.rank, len(role.ranks or ())) for role in roles] == [(0, 32), (32, 32)]
    products = llama_parameters(256, 768, 256, 6, 2048, embedded=False)
    attention = 3.5 * 4 * 8 * 2048 * 2048 * 256 * 6 / 2
    whole = llama_flops(8 * 2048, products, attention)
    assert flops([role.record for role in roles]) == pytest.approx(whole / 4, rel=0.01)
    parameters = sum(role.record.model_parameters for role in roles)
    assert parameters == pytest.approx(llama_parameters(256, 768, 256, 6, 2048), rel=0.01)
