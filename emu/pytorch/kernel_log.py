"""Writes down each kernel that a GPU would run: a dispatch mode, and attention as the one kernel it is there.

Below autograd each aten operation comes by once, those of backward too. Views, allocations and metadata run
no kernel. FLOPs are PyTorch's own count (`torch.utils.flop_counter`); bytes are those of all tensors read
or written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from emu.pytorch.tape import Tape, dtype_name, size_of

FREE = frozenset(
    [
        "alias",
        "as_strided",
        "detach",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "new_empty",
        "new_empty_strided",
        "permute",
        "record_stream",
        "resize_",
        "select",
        "set_",
        "size",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "stride",
        "sym_size",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "view",
        "view_as_real",
        "_reshape_alias",
        "_unsafe_view",
        "lift_fresh",
        "_local_scalar_dense",
        "is_same_size",
        "is_pinned",
        "_has_compatible_shallow_copy_type",
        "chunk",
        "narrow",
        "diagonal",
        "swap",
        "real",
        "imag",
    ]
)
"""Operations that run no kernel."""
CPU = torch.device("cpu")
PLAIN = {"Tensor", "Parameter", "FakeTensor"}
"""Subclasses are taken apart first: what DTensor does is operations on local tensors, and calls."""
FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}
"""Collectives of `torch.distributed._functional_collectives`, as nccl-tests has them."""


class KernelLog(TorchDispatchMode):
    """Writes to the tape, and keeps the books of what is on the GPU."""

    def __init__(self, tape: Tape, call: Callable[[str, str, int, str], int]) -> None:
        super().__init__()
        self.tape = tape
        self._call = call
        """Writes down an asynchronous call (op, group, bytes, dtype); the event of its end."""
        self.to_gpu = 0
        """Above 0: what is made now is made on the GPU (`device="cuda"`)."""
        self.waits: dict[int, int] = {}
        """By storage of a functional collective's result: the event of its end."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__name__ not in PLAIN for kind in types):
            return NotImplemented
        packet = func.overloadpacket
        if func.namespace == "_c10d_functional":
            return self._collective(func, args, kwargs)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device = kwargs.get("device")
        made_there = self.to_gpu > 0
        if device is not None and device.type == "cuda":  # asked for below the function mode, by torch itself
            kwargs, made_there = {**kwargs, "device": CPU}, True
        out = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if not made_there and not any(self.tape.is_on_gpu(one) for one in inputs):
            return out
        for one in outputs:
            self.tape.put_on_gpu(one)
        name = packet.__name__
        if not self.tape.quiet and name not in FREE and func.namespace == "aten" and not func.is_view:
            self._kernel(packet, name, inputs, outputs, args, kwargs, out)
        return out

    def _kernel(
        self,
        packet: Any,
        name: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        args: Any,
        kwargs: Any,
        out: Any,
    ) -> None:
        seen: dict[int, int] = {}
        for one in (*inputs, *outputs):
            if self.tape.is_on_gpu(one):
                key = one.untyped_storage()._cdata
                seen[key] = max(
                    seen.get(key, 0), min(size_of(one), one.untyped_storage().nbytes() or size_of(one))
                )
        if not seen or not sum(seen.values()):
            return
        in_place = name.endswith("_") or name.startswith("_fused_adam")
        moved = sum(seen.values())
        if in_place:  # read and written
            moved += sum(size_of(one) for one in outputs) if outputs else 0
        count = flop_registry.get(packet)
        flops = int(count(*args, **kwargs, out_val=out)) if count is not None else 0
        dtypes = [one.dtype for one in (*inputs, *outputs) if one.is_floating_point()] or [torch.int64]
        shapes = tuple(tuple(one.shape) for one in inputs) or tuple(tuple(one.shape) for one in outputs)
        self.tape.kernel(name, dtype_name(dtypes[0]), shapes, flops, moved)

    def _collective(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One of `_c10d_functional`: asynchronous, on its group's own stream, waited for by `wait_tensor`."""
        tape, name = self.tape, func.overloadpacket.__name__
        if name == "wait_tensor":
            event = self.waits.pop(args[0].untyped_storage()._cdata, None)
            if event is not None:
                tape.wait(tape.stream, event)
            with tape.silence():
                return func(*args, **kwargs)
        with tape.silence():
            out = func(*args, **kwargs)
        op = FUNCTIONAL.get(name)
        if op is None and not any(isinstance(leaf, str) for leaf in args):
            return out  # of tensors alone, no call
        if op is None:
            raise NotImplementedError(f"{func} is not recorded")
        group = next(leaf for leaf in reversed(args) if isinstance(leaf, str))
        if op in ("all_reduce", "broadcast") and isinstance(args[1], str) and len(args) > 2:
            group = args[2]
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        given = [leaf for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor)]
        size = sum(size_of(one) for one in (given if op in ("reduce_scatter", "all_to_all") else results))
        event = self._call(op, group, size, dtype_name(given[0].dtype))
        for one in results:
            tape.put_on_gpu(one)
            self.waits[one.untyped_storage()._cdata] = event
        return out


class Fused(torch.autograd.Function):
    """What is one kernel forward and one backward on a GPU, and several here: attention, RMS norm.

    The several run unwritten; what is written down is the one.
    """

    tape: Tape

    @staticmethod
    def forward(ctx: Any, fused: FusedKernel, *tensors: Tensor | None) -> Tensor:
        tape = Fused.tape
        with tape.silence(), torch.enable_grad():
            inside = [
                None if one is None else one.detach().requires_grad_(one.requires_grad) for one in tensors
            ]
            out = fused.call(*inside)
        given = [one for one in tensors if one is not None]
        shapes, dtype = tuple(tuple(one.shape) for one in given), dtype_name(given[0].dtype)
        size = sum(size_of(one) for one in (*given, out))
        tape.kernel(fused.op, dtype, shapes, fused.flops, size)
        ctx.inside, ctx.out = inside, out
        ctx.backward_kernel = (fused.backward_op, dtype, shapes, fused.backward_flops, 2 * size)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        wanted = [one for one in ctx.inside if one is not None and one.requires_grad]
        with Fused.tape.silence():
            found = iter(torch.autograd.grad(ctx.out, wanted, grads[0]))
        Fused.tape.kernel(*ctx.backward_kernel)
        return (None, *(next(found) if one is not None and one.requires_grad else None for one in ctx.inside))


@dataclass(frozen=True)
class FusedKernel:
    """What `Fused` writes down, and how its result is found."""

    op: str
    backward_op: str
    flops: int
    backward_flops: int
    call: Any


def attention_flops(q: Tensor, k: Tensor, *, causal: bool) -> int:
    """Two products of sequence x sequence x head for each head; of a causal mask half."""
    *batch, length, head = q.shape
    return 4 * math.prod(batch) * length * k.shape[-2] * head // (2 if causal else 1)


class Replacements:
    """Functions of PyTorch that are one kernel on a GPU, by what stands for them."""

    def __init__(self) -> None:
        functional = torch.nn.functional
        self._attention, self._rms_norm = functional.scaled_dot_product_attention, torch.rms_norm
        self.by_function: dict[Any, Any] = {
            functional.scaled_dot_product_attention: self.attention,
            functional.rms_norm: self.rms_norm,
            torch.rms_norm: self.rms_norm,
        }

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """In place of `scaled_dot_product_attention`: two products forward, five backward."""
        if torch.is_autocast_enabled(
            "cpu"
        ):  # autocast comes below functions, and casts nothing inside of one
            query, key, value = (one.to(torch.get_autocast_dtype("cpu")) for one in (query, key, value))
        flops, suffix = attention_flops(query, key, causal=is_causal), "(causal)" if is_causal else ""

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                out: Tensor = self._attention(
                    q, k, v, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
                )
                return out

        op = "scaled_dot_product_attention"
        fused = FusedKernel(op + suffix, f"{op}_backward{suffix}", flops, flops * 5 // 2, call)
        return Fused.apply(fused, query, key, value)  # type: ignore[no-any-return]

    def rms_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        """In place of `rms_norm`, which PyTorch fuses on a GPU since 2.8."""
        fused = FusedKernel(
            "rms_norm", "rms_norm_backward", 0, 0, lambda x, w: self._rms_norm(x, normalized_shape, w, eps)
        )
        return Fused.apply(fused, input, weight)  # type: ignore[no-any-return]
