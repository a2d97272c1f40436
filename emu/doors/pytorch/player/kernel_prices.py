"""What is known of the price of an operation on a GPU: FLOPs, or that the bytes it moves decide.

An operation is one of three kinds:

- **FLOPs are counted**: by PyTorch (`torch.utils.flop_counter`), or by a formula of this file where PyTorch
  has none.
- **Bytes decide**: element by element, reductions, copies, gathers, losses, norms, optimizers. PyTorch tags
  some of them; `BY_BYTES` names the rest.
- **Everything else** has no price here: decompositions of matrices, Fourier transforms, products of sparse
  matrices, kernels that only a CPU has, operations of other libraries. They are counted as the bytes that
  they move, and a note names them, since a GPU may take longer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from emu.doors.pytorch.player.tape import size_of

aten = torch.ops.aten
BY_BYTES: Final = re.compile(
    r"_?(adaptive_)?(avg|max|fractional_max)_(un)?pool.*|_?upsample_.*|.*_pad[123]?d?(_backward)?|pad|.*loss.*"
    r"|_foreach_(?!mm).*|_fused_(ada|sgd|dropout|rms_norm|moving).*|_amp_.*|_?(log_)?softmax.*|_safe_softmax"
    r"|_?(native_|cudnn_)?(batch|layer|group)_norm.*|_?native_batch_norm.*|_batch_norm.*|native_norm|renorm|_weight_norm.*"
    r"|_?embedding.*|_?index.*|_?unsafe_(index|masked).*|_unsafe_.*|gather|scatter.*|take|put|masked_.*|_masked_.*|select.*|slice.*|diag.*|as_strided.*"
    r"|expand.*|permute_copy|transpose.*|t_?|squeeze.*|unsqueeze.*|unfold.*|split.*|unsafe_split.*|view.*|_?reshape.*|narrow.*|unbind.*"
    r"|(nan)?median|mode|kthvalue|topk|sort|cum(sum|prod|max|min)|_cum(max|min)_helper|_?logcumsumexp|searchsorted|bucketize|histc|bincount"
    r"|_?unique.*|nonzero.*|isin|multinomial|randperm|rand.*|random|uniform|(log_)?normal|normal_functional|bernoulli|poisson|exponential|cauchy|geometric|binomial|_philox.*"
    r"|.*dropout.*|rrelu.*|glu.*|_?prelu.*|.*(elu|sigmoid|tanh|swish|shrink|softplus|mish|threshold)(_backward(_data)?|_forward)?"
    r"|_?copy.*|clone|_to_copy|fill|zeros?(_like)?|ones(_like)?|full(_like)?|eye|arange|range|linspace|logspace|.*_window|empty.*|new_.*|scalar_tensor|complex|polar"
    r"|cat|_?chunk_cat|stack|_stack|block_diag|repeat|roll|flip|rot90|tril.*|triu.*|trace|channel_shuffle|pixel_.*|im2col|col2im|grid_sampler.*|affine_grid.*|constant_pad_nd"
    r"|mv|addmv|dot|vdot|addr|dist|linalg_vector_norm|linalg_cross|heaviside|copysign|gcd|lcm|hardswish|abs|eq|ne|lt|le|gt|ge|gelu|floor_divide"
    r"|fake_quantize.*|_fake_quantize.*|quantize_per.*|dequantize|_pack_padded_sequence|_assert.*|_is_(all|any)_true|allclose|equal|_nested_.*|.*jagged.*|to_padded_tensor|resize.*|set|set_data|values|_values|lift.*"
)
"""Names, without the `_` of what works in place, of operations whose time on a GPU is that of their bytes."""
DECIDED_BY_BYTES: Final = (torch.Tag.pointwise, torch.Tag.reduction)


OTHERS_BY_BYTES: Final = frozenset({"fsdp"})
"""Libraries of operations that copy: FSDP2's, into the buffer of a gather and out of it."""
WITHOUT_KERNEL: Final = frozenset({"prim", "c10d", "_dtensor", "profiler"})
"""Libraries whose operations are facts about a tensor, or calls that the process group records."""


def _grouped(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Products of groups: a row of `a` meets one matrix of `b`, or a column of `b` one matrix of `a`."""
    rows = a.shape[1:] if a.dim() == 3 and b.dim() == 2 else a.shape
    return int(2 * math.prod(rows) * int(b.shape[-1]))


def _recurrent(given: Tensor, weight: Tensor, hidden: Tensor, *_: Any, **__: Any) -> int:
    """A product of the input and one of the state, in each step of each sequence."""
    steps = math.prod(given.shape[:-1])
    return int(2 * steps * int(weight.numel() + hidden.numel()))


def _recurrent_backward(given: Tensor, weight: Tensor, hidden: Tensor, *_: Any, **__: Any) -> int:
    return int(2 * _recurrent(given, weight, hidden))


def _foreach(left: list[Tensor], right: list[Tensor], **_: Any) -> int:
    return sum(2 * int(a.shape[0] * a.shape[1] * b.shape[1]) for a, b in zip(left, right, strict=True))


def _batches(_: Tensor, a: Tensor, b: Tensor, **__: Any) -> int:
    return int(2 * math.prod(a.shape) * int(b.shape[-1]))


def _plain(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    return int(2 * math.prod(a.shape) * int(b.shape[-1]))


FORMULAS: Final[dict[Any, tuple[str, Callable[..., int]]]] = {
    aten._grouped_mm: ("_grouped_mm", _grouped),
    aten._int_mm: ("_int_mm", _plain),
    aten._foreach_mm: ("_foreach_mm", _foreach),
    aten.addbmm: ("addbmm", _batches),
    aten._addmm_activation: ("addmm", _batches),
    aten.mkldnn_rnn_layer: ("_cudnn_rnn", _recurrent),
    aten.mkldnn_rnn_layer_backward: ("_cudnn_rnn_backward", _recurrent_backward),
}
"""By operation: its name on a GPU, and the FLOPs of a call, where PyTorch counts none."""


def flops_of(packet: Any, args: Any, kwargs: Any, out: Any) -> tuple[str, int] | None:
    """Name and FLOPs of an operation whose FLOPs are counted; None of another."""
    count = flop_registry.get(packet)
    if count is not None:
        return packet.__name__, int(count(*args, **kwargs, out_val=out))
    found = FORMULAS.get(packet)
    return None if found is None else (found[0], found[1](*args, **kwargs))


def is_decided_by_bytes(operation: Any) -> bool:
    """Whether the bytes that an operation moves say how long a GPU takes."""
    if operation.namespace in OTHERS_BY_BYTES:
        return True
    name = operation.overloadpacket.__name__
    plain = name if name.endswith("__") else name.rstrip("_")
    return any(tag in operation.tags for tag in DECIDED_BY_BYTES) or BY_BYTES.fullmatch(plain) is not None


def moved_bytes(operation: Any, args: Any) -> int | None:
    """The bytes that an operation moves, where they are not those of its tensors; None: they are."""
    if str(operation) == "fsdp.all_gather_copy_in.default":  # into this rank's part of a buffer of all ranks
        return int(2 * sum(size_of(one) for one in args[0]))
    return None
