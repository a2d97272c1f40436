"""DistributedDataParallel's reducer for tensors without data: PyTorch's own is C++ that reads them.

It puts gradients into the same buckets in the same order (PyTorch computes them), reduces a bucket when its
last gradient is there, and builds the buckets anew for the second step, in the order of the first backward.
With `find_unused_parameters` it follows the graph from the model's outputs: parameters that are not in it are
ready at once, the ranks agree on which were used, and the buckets stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from emu.doors.pytorch.record import NotRecordedError


class _Bucket:
    """Gradients that are reduced together."""

    def __init__(self, parameters: Sequence[Tensor], indices: Sequence[int]) -> None:
        self.indices = list(indices)
        first = parameters[indices[0]]
        sizes = [parameters[one].numel() for one in indices]
        self.whole = torch.zeros(sum(sizes), dtype=first.dtype, device="cuda")
        parts = self.whole.split(sizes)
        self.views = {one: part.view(parameters[one].shape) for one, part in zip(indices, parts, strict=True)}
        self.pending = len(self.indices)


class _Handed:
    """A bucket as a communication hook sees it: in place of `torch.distributed.GradBucket`."""

    def __init__(self, bucket: _Bucket, number: int, is_last: bool, parameters: list[Tensor]) -> None:
        self._bucket, self._number, self._is_last, self._parameters = bucket, number, is_last, parameters

    def index(self) -> int:
        return self._number

    def buffer(self) -> Tensor:
        return self._bucket.whole

    def set_buffer(self, buffer: Tensor) -> None:
        self._bucket.whole.copy_(buffer)

    def gradients(self) -> list[Tensor]:
        return list(self._bucket.views.values())

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def is_last(self) -> bool:
        return self._is_last


def _parameters_behind(outputs: Sequence[Tensor]) -> set[int]:
    """Ids of the parameters that a gradient of the outputs reaches."""
    found: set[int] = set()
    nodes = [one.grad_fn for one in outputs if one.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node: Any = nodes.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return found


class Reducer:
    """In place of `torch.distributed.Reducer`."""

    def __init__(
        self, parameters: Sequence[Tensor], buckets: Sequence[Sequence[int]], limits: Any, group: Any,
        sparse: Any, cap_bytes: int, unused: bool, views: bool, names: Any, first_cap_bytes: int, *_: Any,
    ) -> None:  # fmt: skip
        self._finds_unused = bool(unused)
        self._hook: Callable[[Any], Any] | None = None
        self._parameters, self._group, self._as_views = list(parameters), group, views
        self._caps = [first_cap_bytes, cap_bytes]
        self._build(buckets)
        self._expecting = self._rebuilt = False
        self._order: list[int] = []
        for index, one in enumerate(self._parameters):
            one.register_post_accumulate_grad_hook(lambda _, index=index: self._ready(index))

    def _build(self, buckets: Sequence[Sequence[int]]) -> None:
        self._buckets = [_Bucket(self._parameters, one) for one in buckets]
        self._bucket_of = {index: bucket for bucket in self._buckets for index in bucket.indices}

    def prepare_for_forward(self) -> None:
        """Do nothing: no time is measured."""

    def prepare_for_backward(self, outputs: Sequence[Tensor]) -> None:
        self._expecting, self._next = True, 0
        for bucket in self._buckets:
            bucket.pending = len(bucket.indices)
        if self._finds_unused and outputs:
            used = _parameters_behind(outputs)
            for index, one in enumerate(self._parameters):
                if id(one) not in used:
                    self._is_there(index)

    def register(self, hook: Callable[[Any], Any]) -> None:
        """A hook takes a bucket in place of the all_reduce, and returns the future of what becomes of it."""
        self._hook = hook

    def _ready(self, index: int) -> None:
        """A gradient is there."""
        if not self._expecting:
            return
        if not self._rebuilt:
            self._order.append(index)
        bucket, parameter = self._bucket_of[index], self._parameters[index]
        grad: Any = parameter.grad
        with torch.no_grad():
            if self._as_views and grad.untyped_storage()._cdata == bucket.whole.untyped_storage()._cdata:
                grad.div_(self._group.size())
            else:
                torch.mul(grad, 1 / self._group.size(), out=bucket.views[index])
                if self._as_views:
                    parameter.grad = bucket.views[index]
        self._is_there(index)

    def _is_there(self, index: int) -> None:
        """Nothing more comes for a parameter. What is complete is reduced, in the order of buckets."""
        self._bucket_of[index].pending -= 1
        while self._next < len(self._buckets) and not self._buckets[self._next].pending:
            self._reduce(self._next)
            self._next += 1
        if self._next == len(self._buckets) and self._expecting:
            self._expecting = False
            if self._finds_unused:  # which parameters any rank used
                used = torch.zeros(len(self._parameters), dtype=torch.int32, device="cuda")
                self._group.allreduce([used]).get_future()
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)

    def _reduce(self, number: int) -> None:
        bucket = self._buckets[number]
        if self._hook is None:
            self._group.allreduce([bucket.whole]).get_future()
            return
        parameters = [self._parameters[index] for index in bucket.indices]
        made = self._hook(_Handed(bucket, number, number + 1 == len(self._buckets), parameters)).value()
        whole = made[0] if isinstance(made, list | tuple) else made
        if whole is not bucket.whole:
            with torch.no_grad():
                bucket.whole.copy_(whole)

    def _finish(self) -> None:
        """Give each parameter its part of what was reduced."""
        if self._as_views:
            return
        with torch.no_grad():
            for bucket in self._buckets:
                for index in bucket.indices:
                    grad: Any = self._parameters[index].grad
                    grad.copy_(bucket.views[index])

    def _rebuild_buckets(self) -> bool:
        if self._finds_unused or self._rebuilt or len(self._order) != len(self._parameters):
            return False
        ordered = [self._parameters[index] for index in self._order]
        found, _ = dist._compute_bucket_assignment_by_size(
            ordered, self._caps, [False] * len(ordered), self._order
        )
        for size in (sum(len(one) for one in found) + 1, len(found)):  # rank 0 says which buckets there are
            self._group.broadcast([torch.zeros(size, dtype=torch.int32, device="cuda")]).wait()
        self._build(found)
        self._rebuilt = True
        return True

    def __getattr__(self, name: str) -> Any:
        if name in ("set_logger", "_set_forward_pass_work_handle", "_set_ddp_runtime_logging_sample_rate"):
            return lambda *_: None
        raise NotRecordedError(f"{name} of DistributedDataParallel's reducer is not recorded with --fake")


class Logger:
    """In place of `torch.distributed.Logger`: logs nothing."""

    def __init__(self, _: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def install() -> None:
    """DistributedDataParallel uses the reducer of this file from now on."""

    def register(reducer: Reducer, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        reducer.register(lambda bucket: hook(state, bucket))

    def refuse(*_: Any) -> None:
        raise NotRecordedError("built-in communication hooks of C++ are not recorded with --fake")

    replaced: Any = dist
    replaced.Reducer, replaced.Logger = Reducer, Logger
    replaced._register_comm_hook, replaced._register_builtin_comm_hook = register, refuse
