"""How long do the kernels of a training step take on this GPU?

    python measure_kernels.py --out DIR [--quick]

needs torch with CUDA and one GPU that nobody else uses; nothing of emu. It writes into DIR

    kernels.csv   op, dtype, shapes, us: the median time that the kernels of one call run, by the profiler,
    with the
                  second-level cache overwritten before each call (a step's next kernel rarely finds its
                  input there)
    steps.csv     whole training steps of small models, eager, by CUDA events: what a sum of kernels is held
    against machine.json  GPU, driver, versions, date, and what a launch costs the host *.trace.json  one
    step of DDP and of FSDP2 in a group of one rank as torch.profiler writes it

`emu torchrun --kernel-times kernels.csv` takes the first file; the shipped tables in `emu/torch/kernels`
are such files. Shapes are written as aten writes them: the sizes of each tensor argument,
`4096x4096;4096x11008`.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import gc
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
import torch.utils._python_dispatch
from torch import Tensor, nn

Row = tuple[str, str, str, float]
"""op, dtype, shapes, microseconds."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CACHE_BYTES = 256 << 20
"""Written before each timed call: five times the second-level cache of an H100."""


class Clock:
    """Times calls on the GPU: the time that their kernels run, each call with a cold cache."""

    def __init__(self, *, repeats: int) -> None:
        self.repeats = repeats
        self.cold = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")

    def us(self, call: Callable[[], object], *, warm_ups: int = 3) -> float:
        """Median over the calls of the sum over a call's kernels; gaps between kernels are the host's."""
        for _ in range(warm_ups):
            call()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(self.repeats):
                self.cold.fill_(1)
                call()
            torch.cuda.synchronize()
        kernels = [one for one in profile.events() if one.device_type == torch.autograd.DeviceType.CUDA]
        sums: list[float] = []
        for one in sorted(kernels, key=lambda one: one.time_range.start):
            if "FillFunctor<signed char>" in one.name:
                sums.append(0.0)
            elif sums:
                sums[-1] += one.time_range.elapsed_us()
        assert len(sums) == self.repeats, (len(sums), self.repeats)
        return statistics.median(sums)

    def event_us(self, call: Callable[[], object]) -> float:
        """Between two events around a call: what a short kernel costs with its launch."""
        call()
        took = []
        for _ in range(self.repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.cold.fill_(1)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            took.append(1e3 * begin.elapsed_time(end))
        return statistics.median(took)

    def host_us(self, call: Callable[[], object], *, calls: int = 2000) -> float:
        """What a call costs the host, which never waits for the GPU."""
        for _ in range(100):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - begin
        torch.cuda.synchronize()
        return 1e6 * took / calls


def sizes(*tensors: Tensor) -> str:
    return ";".join("x".join(str(n) for n in tensor.shape) for tensor in tensors)


def drawn(*shape: int, dtype: torch.dtype, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=torch.float32, device="cuda").to(dtype).requires_grad_(grad)


def matrix_products(clock: Clock, *, quick: bool) -> Iterator[Row]:
    """Forward, and both products of backward: `mm` with either operand transposed as autograd has it."""
    widths = [(768, 768), (768, 3072), (1024, 4096), (2048, 2048), (4096, 1024), (4096, 4096), (4096, 14336),
              (8192, 8192), (8192, 28672), (4096, 32000), (2048, 128256)]  # fmt: skip
    tokens = [128, 512, 1024, 2048, 4096, 8192, 16384]
    for name, dtype in DTYPES.items():
        for rows in tokens[1:4:2] if quick or name == "fp16" else tokens:
            for inner, outer in widths[::4] if quick or name == "fp16" else widths:
                if rows * outer > 1 << 30 or (name == "fp32" and rows * inner * outer > 1 << 39):
                    continue
                x, w = drawn(rows, inner, dtype=dtype), drawn(outer, inner, dtype=dtype)
                y = drawn(rows, outer, dtype=dtype)
                for a, b in ((x, w.t()), (y, w), (y.t(), x)):  # y = x w', dx = dy w, dw = dy' x
                    yield "mm", name, sizes(a, b), clock.us(lambda a=a, b=b: torch.mm(a, b))
    drawing = random.Random(1)
    for _ in range(
        10 if quick else 200
    ):  # shapes that no table of layers has: what a model of kernels is held against
        m, k, n = (int(2 ** drawing.uniform(7, 13.6)) // 8 * 8 for _ in range(3))
        a, b = drawn(m, k, dtype=torch.bfloat16), drawn(n, k, dtype=torch.bfloat16).t()
        yield "mm", "bf16", sizes(a, b), clock.us(lambda a=a, b=b: torch.mm(a, b))
    for batch, m, n, k in (
        (96, 1024, 1024, 64),
        (256, 512, 512, 64),
        (128, 2048, 128, 2048),
        (32, 2048, 2048, 128),
    ):
        for name in ("bf16", "fp32"):
            a, b = drawn(batch, m, k, dtype=DTYPES[name]), drawn(batch, k, n, dtype=DTYPES[name])
            yield "bmm", name, sizes(a, b), clock.us(lambda a=a, b=b: torch.bmm(a, b))


def attention(clock: Clock, *, quick: bool) -> Iterator[Row]:
    """Causal flash attention, (batch, heads, sequence, head size)."""
    shapes = [(8, 12, 1024, 64), (4, 16, 2048, 64), (16, 16, 512, 64), (2, 32, 4096, 128), (1, 32, 8192, 128),
              (4, 32, 2048, 128), (1, 64, 8192, 128), (1, 32, 16384, 128)]  # fmt: skip
    for shape in shapes[:3] if quick else shapes:
        q, k, v = (drawn(*shape, dtype=torch.bfloat16, grad=True) for _ in range(3))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            yield (
                "scaled_dot_product_attention(causal)",
                "bf16",
                sizes(q, k, v),
                clock.us(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
            )
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        to = torch.randn_like(out)
        yield (
            "scaled_dot_product_attention_backward(causal)",
            "bf16",
            sizes(q, k, v),
            clock.us(lambda o=out, i=(q, k, v), g=to: torch.autograd.grad(o, i, g, retain_graph=True)),
        )


def pointwise(clock: Clock, *, quick: bool) -> Iterator[Row]:
    """Kernels that memory bounds: norms, activations, sums, casts, losses, embeddings."""
    unary: dict[str, Callable[[Tensor], Tensor]] = {
        "gelu": F.gelu,
        "silu": F.silu,
        "relu": F.relu,
        "mul": lambda x: x * 1.5,
        "to_fp32": lambda x: x.float(),
        "clone": torch.clone,
        "softmax": lambda x: F.softmax(x, dim=-1),
        "sum": lambda x: x.sum(),
        "dropout": lambda x: F.dropout(x, 0.1, training=True),
    }
    shapes = [(512, 768), (4096, 768), (8192, 1024), (8192, 4096), (8192, 14336), (16384, 8192)]
    for name, dtype in DTYPES.items():
        if name == "fp16":
            continue
        for shape in shapes[::2] if quick else shapes:
            x = drawn(*shape, dtype=dtype)
            for op, call in unary.items():
                yield op, name, sizes(x), clock.us(lambda call=call, x=x: call(x))
            y = drawn(*shape, dtype=dtype)
            yield "add", name, sizes(x, y), clock.us(lambda x=x, y=y: x + y)
            for op, norm in (("layer_norm", nn.LayerNorm), ("rms_norm", nn.RMSNorm)):
                module = norm(shape[-1], device="cuda", dtype=dtype)
                leaf = x.detach().requires_grad_()
                yield op, name, sizes(x), clock.us(lambda m=module, x=leaf: m(x))
                out, inputs = module(leaf), (leaf, *module.parameters())
                yield (
                    f"{op}_backward",
                    name,
                    sizes(x),
                    clock.us(lambda o=out, i=inputs, g=y: torch.autograd.grad(o, i, g, retain_graph=True)),
                )
            leaf = x.detach().requires_grad_()
            for op in ("gelu", "silu", "relu"):
                out = unary[op](leaf)
                yield (
                    f"{op}_backward",
                    name,
                    sizes(x),
                    clock.us(lambda o=out, i=leaf, g=y: torch.autograd.grad(o, i, g, retain_graph=True)),
                )
    for tokens, vocabulary in ((2048, 50304), (8192, 32000), (8192, 128256)):
        logits = drawn(tokens, vocabulary, dtype=torch.float32, grad=True)
        labels = torch.randint(vocabulary, (tokens,), device="cuda")
        yield (
            "cross_entropy",
            "fp32",
            sizes(logits),
            clock.us(lambda a=logits, b=labels: F.cross_entropy(a, b)),
        )
        loss = F.cross_entropy(logits, labels)
        yield (
            "cross_entropy_backward",
            "fp32",
            sizes(logits),
            clock.us(lambda o=loss, i=logits: torch.autograd.grad(o, i, retain_graph=True)),
        )
        del logits, loss
    for vocabulary, width, tokens in ((50304, 768, 8192), (128256, 4096, 8192)):
        table = drawn(vocabulary, width, dtype=torch.bfloat16, grad=True)
        labels = torch.randint(vocabulary, (tokens,), device="cuda")
        yield (
            "embedding",
            "bf16",
            f"{vocabulary}x{width};{tokens}",
            clock.us(lambda a=labels, b=table: F.embedding(a, b)),
        )
        out = F.embedding(labels, table)
        to = torch.randn_like(out)
        yield (
            "embedding_backward",
            "bf16",
            f"{vocabulary}x{width};{tokens}",
            clock.us(lambda o=out, i=table, g=to: torch.autograd.grad(o, i, g, retain_graph=True)),
        )


def optimizers(clock: Clock, *, quick: bool) -> Iterator[Row]:
    """One step of AdamW over a model's parameters, foreach (the default) and fused; of SGD with momentum."""
    for count, width in ((16, 1024), (24, 2048), (48, 4096)):
        if quick and count > 16:
            continue
        parameters = [drawn(width, width, dtype=torch.float32, grad=True) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        for op, optimizer in (
            ("adamw_foreach", torch.optim.AdamW(parameters, 1e-3)),
            ("adamw_fused", torch.optim.AdamW(parameters, 1e-3, fused=True)),
            ("sgd_momentum", torch.optim.SGD(parameters, 1e-3, momentum=0.9)),
        ):
            yield op, "fp32", f"{count}x{width}x{width}", clock.us(optimizer.step)
            optimizer.state.clear()
        yield (
            "clip_grad_norm",
            "fp32",
            f"{count}x{width}x{width}",
            clock.us(lambda p=parameters: nn.utils.clip_grad_norm_(p, 1.0)),
        )


class Block(nn.Module):
    """A layer of a decoder: pre-norm, causal attention, MLP of two products (GPT) or three (Llama)."""

    def __init__(self, width: int, heads: int, hidden: int, *, llama: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=not llama),
            nn.Linear(width, width, bias=not llama),
        )
        self.up, self.down = (
            nn.Linear(width, hidden, bias=not llama),
            nn.Linear(hidden, width, bias=not llama),
        )
        self.gate = nn.Linear(width, hidden, bias=False) if llama else None
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y) if self.gate else F.gelu(self.up(y)))


class Decoder(nn.Module):
    """Token embedding, blocks, norm, logits; positions are learned (their cost is an addition)."""

    def __init__(
        self, *, vocabulary: int, width: int, heads: int, hidden: int, layers: int, length: int, llama: bool
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, llama=llama) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


MODELS = {
    "gpt2-small": (dict(vocabulary=50304, width=768, heads=12, hidden=3072, layers=12, length=1024), 8),
    "gpt2-medium": (dict(vocabulary=50304, width=1024, heads=16, hidden=4096, layers=24, length=1024), 8),
    "llama-1b": (dict(vocabulary=32000, width=2048, heads=16, hidden=5632, layers=16, length=2048), 4),
    "llama-8b-short": (
        dict(vocabulary=32000, width=4096, heads=32, hidden=14336, layers=4, length=8192),
        1,
    ),
    "llama-tiny-deep": (dict(vocabulary=1024, width=256, heads=4, hidden=1024, layers=24, length=128), 8),
    "tiny": (dict(vocabulary=1024, width=256, heads=4, hidden=1024, layers=4, length=128), 8),
}
"""Shapes, and sequences a step. A name with `llama` has its layers, any other GPT-2's."""


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Count(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the aten operations that run a kernel, or may: all but views and allocations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not (func.is_view or "empty" in func.name() or "detach" in func.name())
        return func(*args, **(kwargs or {}))


def operations(step: Callable[[], None]) -> int:
    with Count() as counted:
        step()
    return counted.count


def steps(*, quick: bool) -> Iterator[dict[str, object]]:
    """Whole steps, eager, parameters in fp32 under bf16 autocast, AdamW: fp32 parameters or bf16 whole."""
    for name, (shape, batch) in MODELS.items():
        if quick and name != "tiny":
            continue
        gc.collect()  # a closure and its optimizer may still hold the last model
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = Decoder(**shape, llama="llama" in name).cuda()
        ids = torch.randint(shape["vocabulary"], (batch, shape["length"] + 1), device="cuda")
        for fused in (False, True):
            step = step_of(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=fused), ids)
            for _ in range(3):
                step()
            torch.cuda.synchronize()
            took = []
            for _ in range(10):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                step()
                end.record()
                torch.cuda.synchronize()
                took.append(begin.elapsed_time(end))
            yield {
                "model": name, "batch": batch, "adamw": "fused" if fused else "foreach", **shape,
                "aten_ops": operations(step), "parameters": sum(p.numel() for p in model.parameters()),
                "ms": round(statistics.median(took), 3),
                "gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
            }  # fmt: skip


def traces(out: Path) -> None:
    """One step of DDP, and of FSDP2, in a group of one rank over NCCL, as torch.profiler writes it."""
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.parallel import DistributedDataParallel

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("nccl")
    shape = dict(vocabulary=1024, width=256, heads=4, hidden=1024, layers=3, length=128, llama=False)
    for kind in ("ddp", "fsdp2"):
        model: nn.Module = Decoder(**shape).cuda()
        if kind == "ddp":
            model = DistributedDataParallel(model, bucket_cap_mb=2)
        else:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model.blocks:
                fully_shard(block, mp_policy=policy)
            fully_shard(model, mp_policy=policy)
        step = step_of(
            model, torch.optim.AdamW(model.parameters(), 1e-4), torch.randint(1024, (8, 129), device="cuda")
        )
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
            for _ in range(2):
                step()
                profile.step()
            torch.cuda.synchronize()
        profile.export_chrome_trace(str(out / f"{kind}.trace.json.gz"))
    dist.destroy_process_group()


def machine(clock: Clock) -> dict[str, object]:
    """What was measured, on what, and what a launch costs."""
    gpu = torch.cuda.get_device_properties(0)
    small, large = torch.ones(16, device="cuda"), torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    copy_us = clock.event_us(large.clone)
    leaf = torch.ones(16, device="cuda", requires_grad=True)
    driver = os.popen("nvidia-smi --query-gpu=driver_version --format=csv,noheader").read().strip()  # noqa: S605, S607
    return {
        "gpu": gpu.name,
        "memory_gib": round(gpu.total_memory / 2**30, 1),
        "multiprocessors": gpu.multi_processor_count,
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(str(n) for n in torch.cuda.nccl.version()),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "copy_gb_per_s": round(2 * large.numel() / copy_us / 1e3, 1),
        "kernel_floor_us": round(clock.event_us(lambda: small.add_(1)), 3),
        "launch_host_us": round(clock.host_us(lambda: small.add_(1)), 3),
        "launch_autograd_host_us": round(clock.host_us(lambda: (leaf * 2).sum().backward()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the kernels of training steps on this GPU.")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="a tenth of the shapes: does it run here?")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "measure_kernels: torch sees no CUDA GPU here\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    clock = Clock(repeats=7 if arguments.quick else 25)
    about = machine(clock)
    (arguments.out / "machine.json").write_text(json.dumps(about, indent=1) + "\n")
    print(about)
    rows = []  # before anything is timed by the profiler, which makes each launch slower for good
    for row in steps(quick=arguments.quick):
        print(row)
        rows.append(row)
    with (arguments.out / "steps.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    with (arguments.out / "kernels.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("op", "dtype", "shapes", "us"))
        for part in (matrix_products, attention, pointwise, optimizers):
            begin, count = time.monotonic(), 0
            for op, dtype, shapes, us in part(clock, quick=arguments.quick):
                if not us:  # no kernel: a cast to the type that it has already
                    continue
                writer.writerow((op, dtype, shapes, f"{us:.2f}"))
                count += 1
            print(f"{part.__name__}: {count} rows in {time.monotonic() - begin:.0f} s")
            torch.cuda.empty_cache()
    traces(arguments.out)


if __name__ == "__main__":
    main()
