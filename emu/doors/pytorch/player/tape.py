"""Where the player writes down what the script does: the operations, the current stream, what is on the GPU.

Tensors are on the CPU whatever the script says. Which of them the script believes to be on the GPU is known
by their storage: an operation's results are where its arguments are, and `.to("cuda")` marks the storage of
its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from emu.doors.pytorch.record import DEFAULT_STREAM, HOST, Call, Kernel, Mark, Operation, Record, Step, Wait


class EnoughError(BaseException):
    """As many steps as were asked for are recorded; not an Exception, so that no script catches it."""


class Tape:
    """The record in the making."""

    def __init__(self, record: Record, steps: int, fake: FakeTensorMode | None = None) -> None:
        self.record = record
        self.fake = fake
        """In which tensors without data are computed; None: there are none."""
        self._steps = steps
        """Steps that end the script."""
        self.stream = DEFAULT_STREAM
        """The current stream."""
        self.streams = 1
        self.events = 0
        self.calls = 0
        self.part: Callable[[], str] = str
        """What a kernel belongs to now (`play.ModuleNames`); empty unless that is followed."""
        self.mode: AbstractContextManager[object] = nullcontext()
        """In which `cuda` names the GPU (`pretended_cuda.OnTheGpu`); off inside a function of PyTorch."""
        self.device_index = 0
        """The number of the one GPU that the script uses."""
        self.alone = True
        """No other rank runs: what it would hold is nowhere."""
        self.quiet = 0
        """Nothing is written while it is above 0: what happens inside is one operation on a GPU."""
        self.inside = 0
        """Above 0: an operation is computed, and devices are what they are."""
        self._unpriced: dict[str, int] = {}
        """How often each operation ran that has no price."""
        self._on_gpu: dict[int, StorageWeakRef] = {}
        self._held_bytes: dict[int, int] = {}
        self._held = 0

    def add(self, operation: Operation) -> None:
        if not self.quiet:
            self.record.operations.append(operation)

    def note(self, text: str) -> None:
        """Write down, once, what could not be done as a GPU does it."""
        if text not in self.record.notes:
            self.record.notes.append(text)

    def unpriced(self, op: str) -> None:
        """A kernel runs whose time on a GPU is unknown: only the bytes that it moves count."""
        self._unpriced[op] = self._unpriced.get(op, 0) + 1

    def end(self) -> None:
        """Write down what holds for the whole record."""
        if self._unpriced:
            named = ", ".join(f"{op} ({count})" for op, count in sorted(self._unpriced.items()))
            self.note(f"operations without a price on a GPU, which count as the bytes they move: {named}")

    def kernel(self, op: str, dtype: str, shapes: tuple[tuple[int, ...], ...], flops: int, size: int) -> None:
        """Record a kernel of the current stream."""
        self.add(Kernel(self.stream, op, dtype, shapes, flops, size, self.part()))

    def call(
        self,
        op: str,
        group: str,
        size: int,
        dtype: str,
        *,
        stream: int,
        peer: int = -1,
        counts: tuple[int, ...] = (),
        batch: int = 0,
    ) -> int:
        """A collective on a stream; its number."""
        self.calls += 1
        self.add(Call(stream, op, group, size, dtype, self.calls, peer, counts, self.part(), batch))
        return self.calls

    def repeat(self, operations: Sequence[Operation]) -> None:
        """Add the same operations again, with events and numbers of their own."""
        events: dict[int, int] = {}
        for one in operations:
            if isinstance(one, Mark):
                events[one.event] = self.mark(one.stream)
            elif isinstance(one, Wait):
                self.wait(one.stream, events.get(one.event, one.event))
            elif isinstance(one, Call):
                self.calls += 1
                self.add(replace(one, number=self.calls))
            else:
                self.add(one)

    def new_stream(self) -> int:
        self.streams += 1
        return self.streams - 1

    def mark(self, stream: int) -> int:
        """Record a new event on a stream."""
        self.events += 1
        self.add(Mark(stream, self.events))
        return self.events

    def wait(self, stream: int, event: int) -> None:
        self.add(Wait(stream, event))

    def host_waits(self, stream: int | None = None) -> None:
        """The host waits for all that a stream has (the current one unless given): a synchronisation."""
        self.wait(HOST, self.mark(self.stream if stream is None else stream))

    def step_done(self) -> None:
        """The optimizer returned. Raise EnoughError after the last step asked for."""
        self.add(Step())
        self._steps -= 1
        if not self._steps:
            raise EnoughError

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Write nothing down inside."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Devices are what they are inside."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    # ---------------------------------------------------------------------------- what is on the GPU

    def put_on_gpu(self, tensor: Tensor) -> None:
        """The script believes that the tensor's storage is on the GPU from now on."""
        if tensor.device.type == "meta" or (
            isinstance(tensor, FakeTensor) and tensor.fake_mode is not self.fake
        ):
            return
        self._put(tensor.untyped_storage())

    def _put(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        held = self._on_gpu.get(key)
        if held is None or held.expired():
            if held is not None:
                self._held -= self._held_bytes.pop(key, 0)
            self._on_gpu[key] = StorageWeakRef(storage)
            self._held_bytes[key] = storage.nbytes()
            self._held += storage.nbytes()
            self._peak()

    def put_storage(self, storage: torch.UntypedStorage) -> None:
        """A storage that is read from a file is on the GPU."""
        self._put(storage)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage has another size: FSDP frees gathered parameters so, and allocates them again."""
        key = storage._cdata
        held = self._on_gpu.get(key)
        if held is not None and not held.expired():
            self._held += storage.nbytes() - self._held_bytes[key]
            self._held_bytes[key] = storage.nbytes()
            self._peak()

    def _peak(self) -> None:
        if self._held > self.record.peak_bytes:
            self._forget_freed()
            self.record.peak_bytes = max(self.record.peak_bytes, self._held)

    def is_on_gpu(self, tensor: Tensor) -> bool:
        held = self._on_gpu.get(tensor.untyped_storage()._cdata)
        return held is not None and not held.expired()

    @property
    def held_bytes(self) -> int:
        """What tensors on the GPU hold now."""
        self._forget_freed()
        return self._held

    def _forget_freed(self) -> None:
        for key in [key for key, held in self._on_gpu.items() if held.expired()]:
            del self._on_gpu[key]
            self._held -= self._held_bytes.pop(key)


def size_of(tensor: Tensor) -> int:
    """Its bytes."""
    return tensor.numel() * tensor.element_size()


def dtype_name(dtype: torch.dtype) -> str:
    """Its name without `torch.`."""
    return str(dtype).removeprefix("torch.")


def local(tensor: Any) -> Tensor:
    """The rank's own part of a DTensor; a plain tensor itself."""
    inner = getattr(tensor, "_local_tensor", None)
    return tensor if inner is None else inner
