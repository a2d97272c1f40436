"""Readers of training recipes: Megatron-LM's arguments in a launch script, and torchtitan's TOML.

A recipe becomes a job of kind `training`: every option is a key of it, has no effect on traffic and times
here, or is not modelled, and then it is named. Of a script nothing is executed: variables that it sets itself
(`NAME=value`, `${NAME:-value}`, `$((A * B))`) are put in place, arguments of arrays count like others, and
the last value of an option counts.

Ranks are `--nnodes` times `--nproc_per_node` of torchrun, or `--nodes` and `--gpus-per-node` (or
`--ntasks-per-node`) of Slurm. Where a file does not say them, whoever reads it does.

Sources: NVIDIA/Megatron-LM, `megatron/training/arguments.py`, `megatron/core/parallel_state.py` (order of
ranks); pytorch/torchtitan, `torchtitan/config/job_config.py`, `train_configs/*.toml` (2025).
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple

from emu.base.errors import FormatError
from emu.base.spelling import listed

MOST: Final = 1 << 24
_ASSIGNED: Final = re.compile(
    r"(?:^|[\s;])(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\$\(\([^)]*\)\)|[^\s;()]*)"
)
LONGEST_EXPANDED: Final = 1 << 20
_USED: Final = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_SUM: Final = re.compile(r"\$\(\(([\w\s*/+$(){}-]*)\)\)")
_SLURM: Final = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_STARTS: Final = re.compile(r"--tensor-model-parallel-size|--num-layers\b")

WITHOUT_EFFECT: Final = re.compile(
    r"(lr|min-lr|decoupled|weight-decay|adam|optimizer|init-method|clip-grad|train-|exit-|data|vocab-file|merge-file|"
    r"tokenizer|split|seed|save|load|ckpt|eval|log|tensorboard|wandb|mlflow|profile|timing|distributed-timeout|"
    r"distributed-backend|master|node|rdzv|rendezvous|nproc|nnodes|gpus-per|ntasks|nodes|job-name|time|partition|"
    r"mock-data|num-workers|no-mmap|manual-gc|empty-unused|attention-dropout|hidden-dropout|position-embedding|"
    r"rotary|use-rope|use-rotary|rope|max-position|normalization|norm-epsilon|apply-layernorm|untie|disable-bias|"
    r"add-qkv-bias|qk-layernorm|no-position|make-vocab|bf16|fp16|use-mcore|use-legacy|transformer-impl|"
    r"attention-backend|use-flash-attn|reset-|eod-|create-attention|no-create|tiktoken|cross-entropy|"
    r"calculate-per|check-for|no-check|no-masked|no-bias|no-gradient|no-async|loss-scale|initial-loss|hysteresis|"
    r"squared-relu|openai-gelu|kv-channels|sequence-parallel|group-query-attention|override|finetune|no-load|"
    r"no-save|use-checkpoint|dist-ckpt|async-save|auto-detect|non-persistent|moe-aux|moe-z|moe-router-(load|dtype|"
    r"pre|score|group|num|bias|enable|scaling)|moe-token|module|local-rank|start|monitor|tee|role|max-restarts)"
)
"""Megatron's and launchers' options that change neither bytes nor durations here, by how they begin."""


class RecipeError(FormatError):
    """A recipe that cannot be read."""


class Recipe(NamedTuple):
    """A training job."""

    keys: dict[str, Any]
    """Keys of the workload, as a scenario has them."""
    ranks: int
    """0: the file does not say them."""
    per_server: int
    without_effect: tuple[str, ...]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...]
    batch: tuple[int, int] = (0, 0)
    """Sequences of a step and of a micro-batch, where the ranks are needed to tell micro-batches."""


def is_megatron(text: str) -> bool:
    """Whether a script has Megatron's arguments."""
    return _STARTS.search(_uncommented(text)) is not None


def is_torchtitan(text: str) -> bool:
    """Whether that is a TOML of torchtitan's."""
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return isinstance(tables.get("model"), dict) and isinstance(tables.get("training"), dict)


def with_ranks(recipe: Recipe, ranks: int) -> Recipe:
    """The recipe on so many ranks: its micro-batches. Raises RecipeError if it does not fit them."""
    keys = dict(recipe.keys)
    rest = prod(int(keys.get(name, 1)) for name in ("tp", "cp", "pp"))
    if ranks % rest:
        raise RecipeError(
            1, f"tp x cp x pp is {rest}, which does not divide {ranks} ranks", "ranks that it divides"
        )
    total, each = recipe.batch
    if total and each:
        dp = ranks // rest
        if total % (each * dp):
            reason = f"a batch of {total} is not made of micro-batches of {each} on {dp} data-parallel ranks"
            raise RecipeError(1, reason, "ranks that divide the batch")
        keys["micro_batches"] = total // (each * dp)
    if keys.get("micro_batches", 1) == 1:
        keys.pop("reduce_each", None)
    return recipe._replace(keys=keys, ranks=ranks)


# ---- Megatron


def read_megatron(text: str) -> Recipe:
    """The job of a launch script. Raises RecipeError."""
    given, order = _options(text)
    numbers = {name: _whole(name, given[name][0]) for name in _NUMBERS if given.get(name)}
    taken = set(numbers)
    notes: list[str] = []

    def number(name: str, default: int = 0) -> int:
        return numbers.get(name, default)

    def flag(name: str) -> bool:
        taken.add(name)
        return name in given

    for name in ("num-layers", "hidden-size", "num-attention-heads", "seq-length"):
        if name not in numbers:
            raise RecipeError(1, f"there is no --{name}", "Megatron's arguments of a GPT model, spelled out")
    hidden, heads, layers = number("hidden-size"), number("num-attention-heads"), number("num-layers")
    gated = flag("swiglu")
    experts = number("num-experts", 1)
    ffn = number("ffn-hidden-size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    if experts > 1:
        ffn = number("moe-ffn-hidden-size", ffn)
    own: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": number("num-query-groups", heads),
        "ffn": ffn,
        "vocab": number("vocab-size"),
        "sequence": number("seq-length"),
    }
    if not number("vocab-size"):
        notes.append("The vocabulary is the tokenizer's, and not said: logits are left out")
    own |= {} if gated else {"gated": False}
    own |= {"experts": experts, "top_k": number("moe-router-topk", 2)} if experts > 1 else {}
    tp, cp, pp = (
        number("tensor-model-parallel-size", 1),
        number("context-parallel-size", 1),
        number("pipeline-model-parallel-size", 1),
    )
    keys: dict[str, Any] = {"kind": "training", "model": "own", "own": own}
    keys |= {name: value for name, value in (("tp", tp), ("cp", cp), ("pp", pp)) if value > 1}
    if number("expert-model-parallel-size", 1) > 1:
        keys["ep"] = number("expert-model-parallel-size")
    keys["order"] = ["tp", "cp", "pp", "dp"] if flag("use-tp-pp-dp-mapping") else ["tp", "cp", "dp", "pp"]
    virtual = number("num-virtual-stages-per-pipeline-rank", 1)
    if number("num-layers-per-virtual-pipeline-stage"):
        virtual = max(layers // pp // number("num-layers-per-virtual-pipeline-stage"), 1)
    keys |= {"virtual_stages": virtual} if virtual > 1 else {}
    keys["micro_batch"] = number("micro-batch-size", 1)
    keys |= _megatron_data(given, taken, number, notes)
    keys |= _megatron_overlap(given, taken, tp)
    keys |= _megatron_recompute(given, taken, number, layers // pp)
    if number("window-size"):
        keys["window"] = number("window-size")
    if tp > 1 and "sequence-parallel" not in given:
        notes.append(
            "Without --sequence-parallel activations are all-reduced; here they are gathered and scattered"
        )
    nodes, per_node = _launched(text, given, taken)
    others = [name for name in order if name not in taken]
    idle = tuple(f"--{name}" for name in others if WITHOUT_EFFECT.match(name))
    missing = tuple(f"--{name}" for name in others if not WITHOUT_EFFECT.match(name))
    batch = (number("global-batch-size"), keys["micro_batch"])
    return Recipe(keys, nodes * per_node, per_node or 8, idle, missing, tuple(notes), batch)


_NUMBERS: Final = (
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "num-query-groups",
    "ffn-hidden-size",
    "moe-ffn-hidden-size",
    "seq-length",
    "vocab-size",
    "num-experts",
    "moe-router-topk",
    "tensor-model-parallel-size",
    "context-parallel-size",
    "pipeline-model-parallel-size",
    "expert-model-parallel-size",
    "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage",
    "micro-batch-size",
    "global-batch-size",
    "recompute-num-layers",
    "ddp-bucket-size",
    "window-size",
)


def _megatron_data(
    given: Mapping[str, list[str]], taken: set[str], number: Any, notes: list[str]
) -> dict[str, Any]:
    """How data-parallel ranks share: Megatron's distributed optimizer gathers parameters and scatters
    gradients once a step, as `fsdp` does without `reshard`."""
    taken |= {
        "use-distributed-optimizer",
        "use-torch-fsdp2",
        "use-megatron-fsdp",
        "use-custom-fsdp",
        "data-parallel-sharding-strategy",
    }
    whole = given.get("data-parallel-sharding-strategy", [""])[0] == "optim_grads_params"
    if whole or "use-torch-fsdp2" in given:
        return {"data": "fsdp", "reshard": True, "reduce_each": True}
    if "use-distributed-optimizer" in given or "use-megatron-fsdp" in given or "use-custom-fsdp" in given:
        if number("ddp-bucket-size"):
            notes.append("--ddp-bucket-size is each layer's with the distributed optimizer")
        return {"data": "fsdp"}
    bucket = number("ddp-bucket-size")
    return {"data": "ddp"} | ({"bucket": f"{4 * bucket}B"} if bucket else {})


def _megatron_overlap(given: Mapping[str, list[str]], taken: set[str], tp: int) -> dict[str, Any]:
    taken |= {
        "overlap-grad-reduce",
        "overlap-param-gather",
        "tp-comm-overlap",
        "no-overlap-p2p-communication",
        "overlap-p2p-communication",
    }
    overlap: dict[str, Any] = {}
    if not {"overlap-grad-reduce", "overlap-param-gather"} & given.keys():
        overlap["fsdp_prefetch"] = False
    if "no-overlap-p2p-communication" in given:
        overlap["decoupled_pipeline"] = False
    if "tp-comm-overlap" in given and tp > 1:
        overlap["tp_chunks"] = tp
    return {"overlap": overlap} if overlap else {}


def _megatron_recompute(
    given: Mapping[str, list[str]], taken: set[str], number: Any, layers: int
) -> dict[str, Any]:
    taken |= {"recompute-granularity", "recompute-activations", "recompute-method"}
    how = given.get("recompute-granularity", ["selective" if "recompute-activations" in given else "none"])[0]
    if how not in ("none", "selective", "full"):
        raise RecipeError(1, f"--recompute-granularity {how[:40]!r}", "selective or full")
    again: dict[str, Any] = {} if how == "none" else {"recompute": how}
    some = number("recompute-num-layers")
    if how == "full" and given.get("recompute-method", [""])[0] == "block" and 0 < some < layers:
        again["recompute_every"] = max(round(layers / some), 1)
    return again


def _launched(text: str, given: Mapping[str, list[str]], taken: set[str]) -> tuple[int, int]:
    """Servers and GPUs of each, as the launcher has them; 0 where it does not say."""
    slurm = shlex.split(" ".join(_SLURM.findall(text)).replace("=", " "), comments=True)
    of_slurm = dict(pairwise(slurm))

    def known(*names: str) -> int:
        for name in names:
            taken.add(name)
            for value in (*given.get(name, ())[:1], of_slurm.get(f"--{name}", "")):
                last = value.rpartition(":")[2]
                if last.isdecimal():
                    return int(last)
        return 0

    nodes = known("nnodes", "nodes") or (int(of_slurm["-N"]) if of_slurm.get("-N", "").isdecimal() else 0)
    each = known("nproc_per_node", "nproc-per-node", "gpus-per-node", "ntasks-per-node", "gres")
    return nodes, each or (8 if nodes else 0)


def _uncommented(text: str) -> str:
    return re.sub(r"(^|\s)#[^\n]*", r"\1", text)


def _options(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """Options of a script with the words that follow each, the last time that it is given; and their
    order."""
    plain = _uncommented(text).replace("\\\n", " ")
    variables: dict[str, str] = {}
    for found in _ASSIGNED.finditer(plain):
        variables[found[1]] = _expanded(found[2].strip("\"'"), variables)
    given: dict[str, list[str]] = {}
    name = ""
    for word in re.split(r"\s+", re.sub(r"[\"'()]", " ", _expanded(plain, variables))):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            given.pop(name, None)
            given[name] = [value] if equals else []
        elif name and word and not word.startswith("-"):
            given[name].append(word)
    return given, list(given)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text with its variables put in. RecipeError if that makes it long: each may double the one before."""
    length = 0

    def value(found: re.Match[str]) -> str:
        nonlocal length
        put = variables.get(found[1] or found[3], found[2] if found[2] is not None else found[0])
        length += len(put)
        if length > LONGEST_EXPANDED:
            line = text.count("\n", 0, found.start()) + 1
            reason = f"with its variables put in, the script is longer than {LONGEST_EXPANDED} characters"
            raise RecipeError(line, reason, "a script that is shorter")
        return put

    def product(found: re.Match[str]) -> str:
        words = re.split(r"\s*([*/])\s*", re.sub(r"[${}()]", "", found[1]).strip())
        numbers = [variables.get(word, word) for word in words[::2]]
        if not all(one.isdecimal() for one in numbers):
            return found[0]
        total = int(numbers[0])
        for sign, one in zip(words[1::2], numbers[1:], strict=True):
            total = total * int(one) if sign == "*" else total // max(int(one), 1)
        return str(total)

    return _USED.sub(value, _SUM.sub(product, text))


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST:
        reason = f"--{name} {text[:40]!r} is not known without running the script"
        raise RecipeError(1, reason, "a number, or a variable that the script sets itself")
    return int(text)


# ---- torchtitan

PRESETS: Final = {"8b": "llama3-8b", "70b": "llama3-70b", "405b": "llama3-405b"}
_TITAN_IDLE: Final = (
    "job",
    "dataloader",
    "loss",
    "profiler",
    "validator",
    "profiling",
    "metrics",
    "optimizer",
    "lr_scheduler",
    "checkpoint",
    "validation",
    "comm",
    "debug",
    "experimental",
    "fault_tolerance",
)
"""Tables that change neither bytes nor durations here."""
_TITAN_IDLE_KEYS: Final = (
    "model.name",
    "model.flavor",
    "model.hf_assets_path",
    "model.tokenizer_path",
    "model.norm_type",
    "model.print_after_conversion",
    "training.max_norm",
    "training.steps",
    "training.dataset",
    "training.dataset_path",
    "training.seed",
    "training.deterministic",
    "training.gc_freq",
    "training.gc_debug",
    "training.enable_cpu_offload",
    "training.warmup_steps",
    "activation_checkpoint.early_stop",
)


def read_torchtitan(text: str) -> Recipe:
    """The job of a TOML; its ranks are the launcher's. Raises RecipeError."""
    tables = tomllib.loads(text)
    return read_torchtitan_keys(
        {
            f"{table}.{key}": value
            for table, rows in tables.items()
            if isinstance(rows, dict)
            for key, value in rows.items()
        }
    )


def read_torchtitan_keys(flat: Mapping[str, Any]) -> Recipe:
    """The same of keys with the names of their tables."""
    taken: set[str] = set()

    def get(key: str, default: Any) -> Any:
        taken.add(key)
        return flat.get(key, default)

    def whole(keys: tuple[str, ...], default: int) -> int:
        for key in keys:
            value = get(key, None)
            if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= MOST:
                return value
            if value is not None:
                raise RecipeError(1, f"{key} is {str(value)[:40]!r}", "a whole number")
        return default

    flavor = str(get("model.flavor", "")).lower()
    if not str(get("model.name", "")).startswith("llama3") or flavor not in PRESETS:
        named = f"model {get('model.name', '')} {get('model.flavor', '')}"[:60]
        raise RecipeError(1, f"{named} is no preset", f"llama3 with flavor {listed(['8B', '70B', '405B'])}")
    degrees = {
        "tp": whole(("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"), 1),
        "cp": whole(("parallelism.context_parallel_degree", "experimental.context_parallel_degree"), 1),
        "pp": whole(("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"), 1),
    }
    keys: dict[str, Any] = {"kind": "training", "model": PRESETS[flavor]}
    keys |= {name: value for name, value in degrees.items() if value > 1}
    keys["order"] = ["tp", "cp", "dp", "pp"]
    shard = whole(("parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"), -1)
    replicas = whole(
        ("parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"), 1
    )
    keys |= _titan_data(
        shard, replicas, degrees["pp"], str(get("parallelism.fsdp_reshard_after_forward", "default"))
    )
    keys["sequence"] = whole(("training.seq_len",), 2048)
    local = max(whole(("training.local_batch_size", "training.batch_size"), 8), 1)
    total = whole(("training.global_batch_size",), -1)
    piped = degrees["pp"] > 1
    each = max(whole(("parallelism.pipeline_parallel_microbatch_size",), 1), 1) if piped else local
    keys |= {"micro_batch": each, "micro_batches": local // each}
    schedule = str(get("parallelism.pipeline_parallel_schedule", "1F1B"))
    if piped and "interleaved" in schedule.lower():
        keys["virtual_stages"] = 2
    async_tp = get("parallelism.enable_async_tensor_parallel", False) or get(
        "experimental.enable_async_tensor_parallel", False
    )
    if async_tp and degrees["tp"] > 1:
        keys["overlap"] = {"tp_chunks": degrees["tp"]}
    keys |= _titan_recompute(
        str(get("activation_checkpoint.mode", "none")),
        str(get("activation_checkpoint.selective_ac_option", "2")),
    )
    others = [key for key in flat if key not in taken]
    idle = [key for key in others if key.partition(".")[0] in _TITAN_IDLE or key in _TITAN_IDLE_KEYS]
    off = [key for key in others if key not in idle and flat[key] in (False, [], "", "default", "none")]
    missing = [key for key in others if key not in idle and key not in off]
    ranks = prod(max(one, 1) for one in (*degrees.values(), replicas, shard)) if shard > 0 else 0
    batch = (total, each) if total > 0 else (0, 0)
    return Recipe(keys, ranks, 8, (*idle, *off), tuple(missing), (), batch)


def _titan_data(shard: int, replicas: int, pp: int, reshard: str) -> dict[str, Any]:
    if shard == 1 and replicas != 1:
        return {"data": "ddp"}
    again = reshard == "always" or (reshard == "default" and pp == 1)
    data: dict[str, Any] = {"data": "fsdp", "reduce_each": True}
    return data | ({"reshard": True} if again else {}) | ({"replicas": replicas} if replicas > 1 else {})


def _titan_recompute(mode: str, option: str) -> dict[str, Any]:
    """`selective` with `op` keeps every second matrix product, which is near to every second layer."""
    if mode == "full":
        return {"recompute": "full"}
    if mode != "selective":
        return {}
    every = int(option) if option.isdecimal() and int(option) > 0 else 2
    return {"recompute": "full"} | ({"recompute_every": every} if every > 1 else {})
