"""Operations that are one kernel on a GPU and several on a CPU: attention, RMS norm, recurrent layers.

PyTorch's dispatcher takes them apart on its way from a function to the kernels of a device, and on a CPU it
arrives at kernels that no GPU has. `install` registers functions of this file with the dispatcher, at the key
that comes before. Every caller meets them: a script, a composite of PyTorch in Python or in C++
(`nn.MultiheadAttention`, `nn.TransformerEncoderLayer`), and autocast, which casts above that key.

Attention is then called by the names that it has on a GPU (`_scaled_dot_product_flash_attention`), so that
DTensor, checkpointing by operation and autograd do with it what they do there. Below them all, the dispatch
mode computes it by the stand-ins of this file and records one kernel.

`flex_attention` is priced as the fused kernel that `torch.compile` makes of it: it computes the blocks of its
mask that are not empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.attention.flex_attention
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from emu.doors.pytorch.player.tape import Tape, dtype_name, local, size_of

aten = torch.ops.aten
ATTENTION = "scaled_dot_product_attention"


class StandIn(NamedTuple):
    """How an operation is computed on a CPU, and what its kernel is on a GPU."""

    call: Callable[..., Any]
    facts: Callable[..., tuple[str, int, tuple[tuple[int, ...], ...]]]
    """Name, FLOPs and shapes."""


def attention_flops(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> int:
    """Two products of sequence x sequence x head for each head; of a causal mask half.

    A head of the values may be narrower than one of queries and keys (latent attention).
    """
    *batch, length, head = q.shape
    heads = head + v.shape[-1]
    return 2 * math.prod(batch) * length * k.shape[-2] * heads // (2 if causal else 1)


def _facts(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, backward: bool) -> Any:
    flops = attention_flops(q, k, v, causal=causal)
    name = f"{ATTENTION}{'_backward' if backward else ''}{'(causal)' if causal else ''}"
    return name, flops * 5 // 2 if backward else flops, tuple(tuple(one.shape) for one in (q, k, v))


def _heads(q: Tensor, one: Tensor) -> Tensor:
    """Keys or values of groups of heads, for each head."""
    repeats = q.shape[1] // one.shape[1] if q.dim() == 4 else 1
    return one if repeats == 1 else one.repeat_interleave(repeats, 1)


def _groups(one: Tensor, like: Tensor) -> Tensor:
    """The gradient of `_heads`."""
    if one.shape == like.shape:
        return one
    return one.unflatten(1, (like.shape[1], -1)).sum(2)


def _forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float | None) -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu(
        q, _heads(q, k), _heads(q, v), 0.0, causal, attn_mask=bias, scale=scale
    )


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, bias: Tensor | None,
    causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, _heads(q, k), _heads(q, v), out, sums, 0.0, causal, attn_mask=bias, scale=scale
    )
    return dq, _groups(dk, k), _groups(dv, v)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, mask: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    out, sums = _forward(q, k, v, None, causal, scale)
    seed = torch.empty((), dtype=torch.int64)
    return out, sums, None, None, q.shape[-2], k.shape[-2], seed, seed.clone(), q.new_empty(0)


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, _q: Any, _k: Any,
    length_q: int, length_k: int, dropout: float, causal: bool, *_: Any, scale: float | None = None,
) -> Any:  # fmt: skip
    return _backward(grad, q, k, v, out, sums, None, causal, scale)


def _efficient(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sums_too: bool, dropout: float = 0.0,
    causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    seed = torch.empty((), dtype=torch.int64)
    return *_forward(q, k, v, bias, causal, scale), seed, seed.clone()


def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, sums: Tensor, _seed: Any,
    _offset: Any, dropout: float, wanted: Any, causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return *_backward(grad, q, k, v, out, sums, bias, causal, scale), torch.zeros_like(bias) if wanted[
        3
    ] else None


STAND_INS: dict[Any, StandIn] = {
    aten._scaled_dot_product_flash_attention.default: StandIn(
        _flash,
        lambda q, k, v, dropout=0.0, causal=False, *_, **__: _facts(q, k, v, causal=causal, backward=False),
    ),
    aten._scaled_dot_product_flash_attention_backward.default: StandIn(
        _flash_backward,
        lambda grad, q, k, v, *rest, **__: _facts(q, k, v, causal=rest[7], backward=True),
    ),
    aten._scaled_dot_product_efficient_attention.default: StandIn(
        _efficient,
        lambda q, k, v, bias, sums, dropout=0.0, causal=False, **__: _facts(
            q, k, v, causal=causal, backward=False
        ),
    ),
    aten._scaled_dot_product_efficient_attention_backward.default: StandIn(
        _efficient_backward,
        lambda grad, q, k, v, *rest, **__: _facts(q, k, v, causal=len(rest) > 7 and rest[7], backward=True),
    ),
}
"""By operation as it is called on a GPU."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """In place of `scaled_dot_product_attention`: flash in half precision without mask, else the other."""
    if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16):
        found = aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, is_causal, False, scale=scale
        )
    else:
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -math.inf)
        grads = torch.is_grad_enabled()
        found = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, grads, 0.0, is_causal, scale=scale
        )
    out: Tensor = found[0]
    return out


class RmsNorm(torch.autograd.Function):
    """One kernel forward and one backward; what they consist of here runs unwritten."""

    tape: Tape

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, dims: int, eps: float) -> Tensor:
        given = [one for one in (x, weight) if one is not None]
        with RmsNorm.tape.silence():
            scale = torch.rsqrt(x.float().square().mean(tuple(range(-dims, 0)), keepdim=True) + eps)
            out = (x * scale).to(x.dtype)
            out = out if weight is None else out * weight
        ctx.save_for_backward(x, weight, scale)
        ctx.dims = dims
        RmsNorm._write("rms_norm", given, (*given, out))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        given = [one for one in (x, weight) if one is not None]
        with RmsNorm.tape.silence():
            normed = x.float() * scale
            grad = grads[0].float()
            inner = grad if weight is None else grad * weight
            last = tuple(range(-ctx.dims, 0))
            dx = (scale * (inner - normed * (inner * normed).mean(last, keepdim=True))).to(x.dtype)
            rest = tuple(range(x.dim() - ctx.dims))
            dw = None if weight is None else (grad * normed).sum(rest).to(weight.dtype)
        RmsNorm._write("rms_norm_backward", given, (*given, dx, *given, grads[0]))
        return dx, dw, None, None

    @staticmethod
    def _write(op: str, given: list[Tensor], moved: tuple[Tensor, ...]) -> None:
        shapes = tuple(tuple(one.shape) for one in given)
        RmsNorm.tape.kernel(op, dtype_name(given[0].dtype), shapes, 0, sum(size_of(one) for one in moved))


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """In place of `rms_norm`, which PyTorch fuses on a GPU since 2.8."""
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    dims = len(tuple(normalized_shape)) if not isinstance(normalized_shape, int) else 1
    if not hasattr(input, "_local_tensor"):
        return RmsNorm.apply(input, weight, dims, eps)  # type: ignore[no-any-return]
    with RmsNorm.tape.mode:
        return _rms_norm_of_rows(input, weight, dims, eps)


def _rms_norm_of_rows(input: Any, weight: Any, dims: int, eps: float) -> Tensor:
    """Of a DTensor: each rank norms its own rows; the gradient of the weight is a part of the sum."""
    from torch.distributed.tensor import DTensor, Partial, Replicate  # noqa: PLC0415  slow to import

    mesh, placements = input.device_mesh, input.placements
    if weight is not None and hasattr(weight, "_local_tensor"):
        summed = [Partial() if one.is_shard() else Replicate() for one in placements]
        weight = weight.to_local(grad_placements=summed)
    out = RmsNorm.apply(input.to_local(), weight, dims, eps)
    return DTensor.from_local(out, mesh, placements, run_check=False)


class FlexAttention(torch.autograd.Function):
    """`flex_attention` as one kernel forward and one backward; what they consist of here runs unrecorded."""

    tape: Tape

    @staticmethod
    def forward(
        ctx: Any, score: Callable[..., Any], mask: tuple[Any, ...], scale: float, q: Tensor, k: Tensor,
        v: Tensor, *learned: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        with FlexAttention.tape.silence(), torch.no_grad():
            if isinstance(q, FakeTensor):
                shape = q.shape[:-1]
                sums = q.new_empty(shape, dtype=torch.float32)
                found = q.new_empty((*shape, v.shape[-1])), sums, torch.empty_like(sums)
            else:
                with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                    found = _flex(q, k, v, score, mask, scale)
        ctx.save_for_backward(q, k, v, *learned)
        ctx.given = score, mask, scale
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(found[2])
        FlexAttention._write(q, k, v, mask, backward=False)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        score, mask, scale = ctx.given
        saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        FlexAttention._write(*saved[:3], mask, backward=True)
        with FlexAttention.tape.silence(), torch.enable_grad():
            if isinstance(saved[0], FakeTensor):
                return None, None, None, *(torch.empty_like(one) for one in saved)
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                q, k, v = (one.detach().requires_grad_() for one in saved[:3])
                found = _flex(q, k, v, score, mask, scale)
                seen = [
                    (out, grad) for out, grad in zip(found[:2], grads[:2], strict=True) if grad is not None
                ]
                of = [one for one, asked in zip([q, k, v, *saved[3:]], wanted, strict=True) if asked]
                outs, into = [out for out, _ in seen], [grad for _, grad in seen]
                made = iter(torch.autograd.grad(outs, of, into, allow_unused=True))
        return None, None, None, *(next(made) if asked else None for asked in wanted)

    @staticmethod
    def _write(q: Tensor, k: Tensor, v: Tensor, mask: tuple[Any, ...], *, backward: bool) -> None:
        flops = round(attention_flops(q, k, v, causal=False) * kept_share(q, k, mask))
        op = f"{ATTENTION}{'_backward' if backward else ''}"
        moved = (2 if backward else 1) * (2 * size_of(q) + size_of(k) + size_of(v))
        shapes = tuple(tuple(one.shape) for one in (q, k, v))
        tape = FlexAttention.tape
        tape.kernel(op, dtype_name(q.dtype), shapes, flops * 5 // 2 if backward else flops, moved)


def kept_share(q: Tensor, k: Tensor, mask: tuple[Any, ...]) -> float:
    """The share of the products that the blocks of a mask leave."""
    _, _, partly, _, whole = mask[:5]
    rows, columns = mask[-3:-1]
    blocks = partly if whole is None else partly + whole
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        kept = float(blocks.double().mean()) * blocks.shape[-1]
    tiles = math.ceil(q.shape[-2] / rows) * math.ceil(k.shape[-2] / columns)
    return min(kept / tiles, 1.0)


def _flex(
    q: Tensor, k: Tensor, v: Tensor, score: Callable[..., Any], mask: tuple[Any, ...], scale: float
) -> Any:
    from torch._higher_order_ops.flex_attention import math_attention  # noqa: PLC0415  slow to import

    out, sums, most = math_attention(q, k, v, score, mask, scale, {})
    return out.to(q.dtype), sums, most


def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Callable[..., Any],
    mask: tuple[Any, ...],
    scale: float,
    options: Any,
    *_: Any,
) -> Any:
    """In place of the operation of higher order behind `torch.nn.attention.flex_attention`."""
    FlexAttention.tape.note("flex_attention is priced as the fused kernel that torch.compile makes")
    cells = [cell.cell_contents for cell in getattr(score, "__closure__", None) or ()]
    learned = [one for one in cells if isinstance(one, Tensor) and one.requires_grad]
    return FlexAttention.apply(score, mask, scale, q, k, v, *learned)


RECURRENT = ("gru.input", "rnn_tanh.input", "rnn_relu.input", "lstm.input")
"""Layers that cuDNN computes in one kernel."""


def _recurrent(tape: Tape, name: str) -> Callable[..., Any]:
    packet, overload = name.split(".")
    operation = getattr(getattr(aten, packet), overload)

    def run(given: Tensor, *args: Any) -> Any:
        if tape.is_on_gpu(local(given)):
            tape.note(f"{packet} is one kernel on a GPU: here the kernels of its steps are priced one by one")
        return operation.decompose(given, *args)

    return run


def _on_gpu_only(tape: Tape, name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Our function for what is on the GPU, and PyTorch's own parts for the rest."""
    operation = getattr(aten, name).default

    def run(*args: Any, **kwargs: Any) -> Any:
        if tape.is_on_gpu(local(args[0])):
            return ours(*args, **kwargs)
        return operation.decompose(*args, **kwargs)

    return run


PARTS: dict[Any, Callable[..., Any]] = {}
"""By operation that the dispatcher takes apart: what is called in its place. Filled by `install`."""
_library: list[Any] = []


def install(tape: Tape) -> None:
    """Every operation of this file is the kernel of a GPU from now on, whoever calls it."""
    RmsNorm.tape = FlexAttention.tape = tape
    library = torch.library.Library("aten", "IMPL")
    _library.append(library)  # what is registered lasts as long as this object
    found = {
        "scaled_dot_product_attention": _on_gpu_only(tape, "scaled_dot_product_attention", attention),
        "rms_norm": _on_gpu_only(tape, "rms_norm", rms_norm),
        **{name: _recurrent(tape, name) for name in RECURRENT},
    }
    for name, run in found.items():
        library.impl(name, run, "AutogradCPU")
        packet, _, overload = name.partition(".")
        PARTS[getattr(getattr(aten, packet), overload or "default")] = run
    torch.backends.mha.set_fastpath_enabled(False)  # one operation that computes what the layer's parts do
    flex: Any = torch.nn.attention.flex_attention
    flex.flex_attention_hop = flex_attention
