"""Writes down each kernel that a GPU would run: a dispatch mode.

Below autograd each aten operation comes by once, those of backward too. Views, allocations and metadata run
no kernel. FLOPs are those of `kernel_prices`; bytes are those of all tensors read or written. An operation
without a price on a GPU is named in a note.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from emu.doors.pytorch.player.everyday import across
from emu.doors.pytorch.player.gpu_kernels import PARTS, STAND_INS
from emu.doors.pytorch.player.kernel_prices import WITHOUT_KERNEL, flops_of, is_decided_by_bytes, moved_bytes
from emu.doors.pytorch.player.tape import Tape, dtype_name, size_of
from emu.doors.pytorch.record import NotRecordedError

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
COPY = torch.ops.aten.copy_.default
FAKE_ELEMENTS = 2**20
"""With `--fake`, tensors of as many elements and more have no data, nor what is computed of them."""
READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
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


@cache
def _is_taken_apart(func: Any) -> bool:
    """Whether an operation is the sum of others for the dispatcher, and no kernel of its own."""
    if func.namespace != "aten" or not func._can_decompose():
        return False
    return not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU)


class KernelLog(TorchDispatchMode):
    """Writes to the tape, and keeps the books of what is on the GPU."""

    def __init__(self, tape: Tape, call: Callable[[str, str, int, str, tuple[int, ...]], int]) -> None:
        super().__init__()
        self.tape, self._fake = tape, tape.fake
        self._call = call
        """Writes down an asynchronous call (op, group, bytes, dtype, parts); the event of its end."""
        self._met: set[Any] = set()
        """Classes of tensors that hold local ones."""
        self.to_gpu = 0
        """Above 0: what is made now is made on the GPU (`device="cuda"`)."""
        self.waits: dict[int, int] = {}
        """By storage of a functional collective's result: the event of its end."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__name__ not in PLAIN for kind in types):
            for kind in types:
                self._meet(kind)
            return NotImplemented
        if func.namespace == "_c10d_functional":
            return self._collective(func, args, kwargs)
        if _is_taken_apart(func):  # in inference mode operations come by that autograd takes apart otherwise
            with self:
                return PARTS.get(func, func.decompose)(*args, **kwargs)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        device = kwargs.get("device")
        made_there = self.to_gpu > 0
        if device is not None and device.type == "cuda":  # asked for below the function mode, by torch itself
            kwargs, made_there = {**kwargs, "device": CPU}, True
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            with self.tape.computing():  # DTensor asks with tensors of its own what shape a result will have
                return func(*args, **kwargs)
        crossing = across(self.tape, args[0], args[1]) if func is COPY and len(inputs) > 1 else ""
        with self.tape.computing():
            out = self._run(func, inputs, args, kwargs)
        if crossing:
            self.tape.kernel(crossing, "uint8", ((size_of(args[0]),),), 0, size_of(args[0]))
            return out
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if not made_there and not any(self.tape.is_on_gpu(one) for one in inputs):
            return out
        for one in outputs:
            self.tape.put_on_gpu(one)
        name = func.overloadpacket.__name__
        if (
            not self.tape.quiet
            and name not in FREE
            and func.namespace not in WITHOUT_KERNEL
            and not func.is_view
        ):
            self._kernel(func, name, inputs, outputs, args, kwargs, out)
        return out

    def _meet(self, kind: Any) -> None:
        """A DTensor comes by. What it makes of local tensors inside of its own operations is on the GPU."""
        if "from_local" not in vars(kind) or kind in self._met:
            return
        self._met.add(kind)
        made = kind.from_local

        def from_local(*args: Any, **kwargs: Any) -> Any:
            with self.tape.mode:
                return made(*args, **kwargs)

        kind.from_local = staticmethod(from_local)

    def _run(self, func: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        """The operation; with `--fake`, large tensors and what is computed of them have no data."""
        stand_in = STAND_INS.get(func)
        func = func if stand_in is None else stand_in.call
        if self._fake is None:
            return func(*args, **kwargs)
        if not any(isinstance(one, FakeTensor) for one in inputs):
            if inputs:
                return func(*args, **kwargs)
            with self._fake:
                made = func(*args, **kwargs)
            large = isinstance(made, Tensor) and made.numel() >= FAKE_ELEMENTS
            return made if large else func(*args, **kwargs)
        if func in READS:
            self.tape.note("values of tensors without data were read: 1, or False, in place of each")
            return 1.0 if inputs[0].dtype.is_floating_point else int(inputs[0].dtype is not torch.bool)
        with self._fake:
            out = func(*args, **kwargs)
        if stand_in is not None:
            return out
        returned = func._schema.returns
        in_place = (
            len(returned) == 1 and returned[0].alias_info is not None and returned[0].alias_info.is_write
        )
        return inputs[0] if in_place and isinstance(args[0], Tensor) else out

    def _kernel(
        self,
        func: Any,
        name: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        args: Any,
        kwargs: Any,
        out: Any,
    ) -> None:
        stand_in = STAND_INS.get(func)
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
        given = moved_bytes(func, args)
        moved = moved if given is None else given
        if stand_in is not None:
            name, flops, shapes = stand_in.facts(*args, **kwargs)
            self.tape.kernel(name, dtype_name(outputs[0].dtype), shapes, flops, moved)
            return
        counted = flops_of(func.overloadpacket, args, kwargs, out)
        name, flops = (name, 0) if counted is None else counted
        if counted is None and not is_decided_by_bytes(func):
            self.tape.unpriced(name if func.namespace == "aten" else f"{func.namespace}::{name}")
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
            return args[0]
        if name == "_wrap_tensor_autograd":  # what PyTorch has for tensors without data forgets the wait
            return AsyncCollectiveTensor(args[0])
        with tape.silence():
            out = func(*args, **kwargs)
        op = FUNCTIONAL.get(name)
        if op is None and not any(isinstance(leaf, str) for leaf in args):
            return out  # of tensors alone, no call
        if op is None:
            raise NotRecordedError(f"{func} is not recorded")
        group = next(leaf for leaf in reversed(args) if isinstance(leaf, str))
        if op in ("all_reduce", "broadcast") and isinstance(args[1], str) and len(args) > 2:
            group = args[2]
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        given = [leaf for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor)]
        size = sum(size_of(one) for one in (given if op in ("reduce_scatter", "all_to_all") else results))
        counts = _counts(args, given[0]) if op == "all_to_all" else ()
        event = self._call(op, group, size, dtype_name(given[0].dtype), counts)
        for one in results:
            tape.put_on_gpu(one)
            self.waits[one.untyped_storage()._cdata] = event
        return out


def _counts(args: Any, given: Tensor) -> tuple[int, ...]:
    """Bytes for each place, of an all_to_all that says how many rows each has; empty: all have as many."""
    rows = args[2] if len(args) > 3 else None
    if not rows or not given.dim():
        return ()
    row = size_of(given) // max(given.shape[0], 1)
    return tuple(row * int(one) for one in rows)
