"""What the script sees of CUDA: one GPU, its streams and events, and tensors that claim to be on it.

The tensors are on the CPU. A function mode turns `cuda` into `cpu` in every argument and keeps the books of
what claims to be on the GPU; `torch.cuda`'s own functions are replaced by some that answer for the GPU of
the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, cast

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from emu.doors.pytorch.player import everyday, gpu_kernels
from emu.doors.pytorch.player.kernel_log import KernelLog
from emu.doors.pytorch.player.tape import Tape, local

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Properties:
    """As `torch.cuda.get_device_properties` returns them."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


class Stream:
    """In place of `torch.cuda.Stream`."""

    tape: Tape

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        number = kwargs.get("number")
        self.number = Stream.tape.new_stream() if number is None else number
        index = Stream.tape.device_index
        self.priority, self.device = priority, torch.device("cuda", index)
        self.device_index, self.device_type, self.stream_id = index, 1, self.number
        self.cuda_stream = self.number

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        Stream.tape.wait(self.number, Stream.tape.mark(stream.number))

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        Stream.tape.host_waits(self.number)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:  # noqa: PYI034  as torch's own does
        self._before = Stream.tape.stream
        Stream.tape.stream = self.number
        return self

    def __exit__(self, *_: object) -> None:
        Stream.tape.stream = self._before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


class Event:
    """In place of `torch.cuda.Event`."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        self.number: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        tape = Stream.tape
        self.number = tape.mark(tape.stream if stream is None else stream.number)

    def wait(self, stream: Stream | None = None) -> None:
        if self.number is not None:
            tape = Stream.tape
            tape.wait(tape.stream if stream is None else stream.number, self.number)

    def synchronize(self) -> None:
        if self.number is not None:
            Stream.tape.wait(-1, self.number)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds: nobody knows them while a script is recorded."""
        return 1.0


class Generator:
    """The GPU's random numbers: a seed and an offset, of which each pair begins other numbers of the CPU's.

    DTensor sets the offset before and after each of its random operations, and puts the CPU's numbers back.
    """

    def __init__(self) -> None:
        self._state = (0, 0)

    def seed(self, seed: int) -> None:
        self._state = ((int(seed) + 2**63) % 2**64 - 2**63, 0)  # a GPU has 64 bits without sign

    def get(self, device: Any = None) -> Tensor:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            return torch.tensor(self._state, dtype=torch.int64).view(torch.uint8)

    def set(self, new_state: Tensor, device: Any = None) -> None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            seed, offset = (int(one) for one in new_state.view(torch.int64))
            self._state = (seed, offset)
            torch.default_generator.manual_seed((seed * 1_000_003 + offset) % 2**63)


class StreamContext:
    """In place of `torch.cuda.stream(s)`; of None, nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


class NoContext:
    """A context, or a device, that changes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def is_cuda(value: Any) -> bool:
    """Whether an argument names the GPU."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def by_number(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The same arguments of `to` with `cuda:N` for a device that is a number."""

    def named(one: Any) -> Any:
        return torch.device("cuda", one) if isinstance(one, int) and not isinstance(one, bool) else one

    more = {**kwargs, "device": named(kwargs["device"])} if "device" in kwargs else kwargs
    return tuple(named(one) for one in args), more


class OnTheGpu(TorchFunctionMode):
    """Turns what is asked of the GPU into the same on the CPU."""

    def __init__(self, tape: Tape, log: KernelLog) -> None:
        super().__init__()
        self.tape, self.log = tape, log
        tape.mode = self
        self._claims = {
            Tensor.is_cuda.__get__: lambda tensor: True,
            Tensor.is_cpu.__get__: lambda tensor: False,
            Tensor.device.__get__: lambda tensor: torch.device("cuda", tape.device_index),
            Tensor.get_device: lambda tensor: tape.device_index,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # From the narrowest rule to the widest: what a tensor claims of itself; what makes the host wait for
        # a value; what moves a tensor; at last any operator that names the GPU, which then runs on the CPU.
        kwargs = kwargs or {}
        if kwargs.get("pin_memory"):
            kwargs = {name: one for name, one in kwargs.items() if name != "pin_memory"}
        claim = self._claims.get(func)
        if claim is not None:
            return claim(args[0]) if self.tape.is_on_gpu(local(args[0])) else func(*args, **kwargs)
        if func in (
            Tensor.item,
            Tensor.tolist,
            Tensor.__float__,
            Tensor.__int__,
            Tensor.__bool__,
            Tensor.numpy,
        ):
            if self.tape.is_on_gpu(local(args[0])):
                self.tape.host_waits()
            return self._value(func, args, kwargs)
        if func is Tensor.cuda:
            return self._moved(args[0], lambda: args[0])
        if func is Tensor.cpu:
            return self._brought_back(args[0], blocking=True)
        if func in (Tensor.to, torch._C._nn._parse_to):
            args, kwargs = by_number(args, kwargs)
        to_gpu = any(is_cuda(one) for one in args) or is_cuda(kwargs.get("device"))
        if func is Tensor.to and args and not to_gpu and self._names_cpu(args, kwargs):
            kept = [one for one in args[1:] if isinstance(one, torch.dtype | Tensor)]
            more = {name: one for name, one in kwargs.items() if name != "device"}
            back = self._brought_back(args[0], blocking=not more.pop("non_blocking", False))
            return back.to(*kept, **more) if kept or more else back
        if not to_gpu or func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **kwargs)
        mapped = [CPU if is_cuda(one) else one for one in args]
        more = {name: CPU if is_cuda(one) else one for name, one in kwargs.items()}
        if func is Tensor.to:
            return self._moved(args[0], lambda: func(*mapped, **more))
        self.log.to_gpu += 1  # while the CPU makes it, the log takes it for a kernel on the GPU
        try:
            out = func(*mapped, **more)
        finally:
            self.log.to_gpu -= 1
        if isinstance(out, Tensor):
            self.tape.put_on_gpu(local(out))
        return out

    @staticmethod
    def _names_cpu(args: Any, kwargs: Any) -> bool:
        return kwargs.get("device") in ("cpu", CPU) or any(
            isinstance(one, str | torch.device) and one in ("cpu", CPU) for one in args[1:]
        )

    def _value(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def _moved(self, tensor: Tensor, copy: Any) -> Tensor:
        """To the GPU: a copy over PCIe, unless it is there already."""
        there = self.tape.is_on_gpu(local(tensor))
        with self.tape.silence():
            self.log.to_gpu += not there
            try:
                out: Tensor = copy()
            finally:
                self.log.to_gpu -= not there
        if not there:
            inner = local(out)
            size = inner.numel() * inner.element_size()
            if inner.device.type != "meta":
                self.tape.put_on_gpu(inner)
                self.tape.kernel("memcpy_host_to_device", "uint8", ((size,),), 0, size)
        elif out is not tensor:
            self.log._kernel(
                torch.ops.aten._to_copy.default, "_to_copy", [local(tensor)], [local(out)], (), {}, out
            )
        return out

    def _brought_back(self, tensor: Tensor, *, blocking: bool) -> Tensor:
        if not self.tape.is_on_gpu(local(tensor)):
            return tensor
        inner = local(tensor)
        self.tape.kernel(
            "memcpy_device_to_host", "uint8", ((inner.numel(),),), 0, inner.numel() * inner.element_size()
        )
        if blocking:
            self.tape.host_waits()
        with self.tape.silence():
            copy = tensor.detach().clone() if not tensor.requires_grad else tensor.clone()
        self.tape._on_gpu.pop(local(copy).untyped_storage()._cdata, None)
        return copy


def follow_backward(mode: OnTheGpu) -> None:
    """Python that runs in backward meets the mode too: recomputed layers, and backwards of functions.

    Whatever starts the engine is a function itself, in which the mode is off.
    """
    engine: Any = torch.autograd
    run = engine._engine_run_backward

    def follow(*args: Any, **kwargs: Any) -> Any:
        if mode in _get_current_function_mode_stack():
            return run(*args, **kwargs)
        with mode:
            return run(*args, **kwargs)

    engine._engine_run_backward = follow


def install(tape: Tape, properties: Properties, gpus: int) -> None:
    """`torch.cuda`, `torch.accelerator` and `torch.autocast` answer for the GPU of the run."""
    cuda: Any = torch.cuda
    Stream.tape = tape
    tape.device_index = int(os.environ.get("LOCAL_RANK", "0"))
    default = Stream(number=0)
    generator = Generator()
    on: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: gpus,
        "current_device": lambda: tape.device_index,
        "synchronize": lambda device: tape.host_waits(),
        "get_device_properties": lambda device: properties,
        "get_device_name": lambda device: properties.name,
        "get_device_capability": lambda device: (properties.major, properties.minor),
        "is_bf16_supported": lambda: True,
        "current_stream": lambda device: default if tape.stream == 0 else Stream(number=tape.stream),
        "default_stream": lambda device: default,
        "set_stream": lambda stream: setattr(tape, "stream", stream.number),
        "stream": StreamContext,
        "memory_allocated": lambda device: tape.held_bytes,
        "memory_reserved": lambda device: tape.held_bytes,
        "max_memory_allocated": lambda device: tape.record.peak_bytes,
        "max_memory_reserved": lambda device: tape.record.peak_bytes,
        "memory_stats": lambda device: _MemoryStats(tape),
        "memory_summary": lambda: "",
        "mem_get_info": lambda device: (
            properties.total_memory - tape.held_bytes,
            properties.total_memory,
        ),
        "manual_seed": generator.seed,
        "manual_seed_all": generator.seed,
        "seed": lambda: None,
        "get_rng_state": generator.get,
        "set_rng_state": generator.set,
        "get_rng_state_all": lambda: [generator.get()],
        "set_rng_state_all": lambda new_states: generator.set(new_states[0]),
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda: True,
    }
    everyday.put(cuda, on)
    cuda._lazy_init = lambda: None
    cuda.Stream = cuda.ExternalStream = Stream
    cuda.Event, cuda.device, cuda.device_of = Event, NoContext, NoContext
    cuda.get_stream_from_external = lambda data_ptr, device=None: Stream()
    everyday.install(tape)
    _accelerator()
    cuda.streams.Stream, cuda.streams.Event = Stream, Event
    torch.Stream, torch.Event = Stream, Event  # type: ignore[misc, assignment]
    torch.backends.cuda.is_built = lambda: True
    cuda.nccl.version = lambda: (2, 28, 9)
    _claim_of_fakes(tape)
    _parts_on_one_device(tape)
    gpu_kernels.install(tape)
    torch.compile = partial(_left_as_it_is, tape)  # type: ignore[assignment]
    _autocast()
    # checkpointing compares the devices of what it saved (where the mode is off) and of what it recomputed
    checks: Any = torch.utils.checkpoint._allowed_determinism_checks_to_fns
    checks["default"] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        found = resize(storage, size)
        tape.resized(storage)
        return found

    torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign]
    torch.utils.swap_tensors = _taking_over(torch.utils.swap_tensors)


def _left_as_it_is(tape: Tape, model: Any = None, **options: Any) -> Any:
    """In place of `torch.compile`: nothing is compiled."""
    tape.note("torch.compile was left out: the kernels are those of eager PyTorch")
    return partial(_left_as_it_is, tape, **options) if model is None else model


def _parts_on_one_device(tape: Tape) -> None:
    """Results of collectives that nobody waited for yet are on the CPU, as all tensors are below.

    They are made with the device of what they hold, which is the GPU's or the CPU's by who asks, and PyTorch
    refuses a storage of another device.
    """
    kind: Any = AsyncCollectiveTensor
    new = kind.__new__

    def made(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with tape.computing(), torch._C.DisableTorchFunction():
            return new(cls, *args, **kwargs)

    kind.__new__ = made


def _claim_of_fakes(tape: Tape) -> None:
    """Fake tensors are taken for those of a GPU.

    Their device is a property of Python, which the mode does not see. An optimizer asks for their type.
    """
    device: Any = FakeTensor.__dict__["device"]

    def claimed(tensor: Any) -> torch.device:
        true: torch.device = device.__get__(tensor)
        if tape.inside or true.type != "cpu" or not torch._C._is_torch_function_mode_enabled():
            return true
        with torch._C.DisableTorchFunction():
            return torch.device("cuda", tape.device_index) if tape.is_on_gpu(tensor) else true

    from torch.optim.optimizer import _foreach_supported_types  # noqa: PLC0415  `torch.optim.optimizer` is no attribute

    for kinds in (_foreach_supported_types, torch.utils._foreach_utils._foreach_supported_types):
        kinds.append(FakeTensor)
    FakeTensor.__deepcopy__ = _copied_without_data  # type: ignore[method-assign]
    FakeTensor.device = property(claimed)  # type: ignore[method-assign, assignment]


def _copied_without_data(tensor: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a tensor without data, which has none either.

    PyTorch's own copies the mode of the tensor as well, so that the copy belongs to a mode that nobody knows.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    with torch.no_grad():
        copied: Any = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
    for name, value in tensor.__dict__.items():
        if name not in copied.__dict__:
            copied.__dict__[name] = deepcopy(value, memo)
    memo[id(tensor)] = copied
    return copied


def _accelerator() -> None:
    """`torch.accelerator` answers as `torch.cuda` does, under its own names."""
    accelerator, cuda = torch.accelerator, torch.cuda
    equal = ("is_available", "device_count", "synchronize", "set_stream", "empty_cache")
    asked = ("current_stream", "get_device_capability", "memory_stats", "reset_peak_memory_stats")
    kept = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    answers: dict[str, Any] = {
        "current_accelerator": lambda: torch.device("cuda"),
        "current_device_index": cuda.current_device,
        "current_device_idx": cuda.current_device,
        "set_device_index": lambda: None,
        "set_device_idx": lambda: None,
        "get_memory_info": partial(_nobody_in_particular, "mem_get_info"),
        "set_stream": cuda.set_stream,
    }
    for name in (*equal, *asked, *kept):
        if name not in answers:
            answers[name] = partial(_nobody_in_particular, name)
    everyday.put(cast(ModuleType, accelerator), answers)
    setattr(accelerator, "device_index", NoContext)  # noqa: B010


def _nobody_in_particular(name: str) -> Any:
    """What `torch.cuda` answers for the one GPU."""
    return getattr(torch.cuda, name)()


def _taking_over(swap: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """In place of `torch.utils.swap_tensors`, with which modules move fake parameters and shards.

    The original refuses tensors that anybody refers to weakly, and the fake mode does.
    """

    def take_over(parameter: Tensor, applied: Tensor) -> None:
        if parameter is applied:
            return
        try:
            parameter.data = applied.data
        except RuntimeError:  # of another kind: from the meta device to memory
            swap(parameter, applied)

    return take_over


class _MemoryStats(dict[str, int]):
    """`torch.cuda.memory_stats`: what is asked and not known is 0."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        held, peak = tape.held_bytes, tape.record.peak_bytes
        for pool in ("allocated_bytes", "active_bytes", "reserved_bytes"):
            self[f"{pool}.all.current"], self[f"{pool}.all.peak"] = held, peak

    def __missing__(self, key: str) -> int:
        return 0


def _autocast() -> None:
    """`torch.autocast("cuda")` is that of the CPU, which casts the same products and attention."""
    before = torch.autocast.__init__

    def begin(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        before(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = begin  # type: ignore[method-assign]
    is_on, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    torch.is_autocast_enabled = lambda kind="cpu": is_on("cpu" if kind == "cuda" else kind)  # type: ignore[assignment]
    torch.get_autocast_dtype = lambda kind: dtype_of("cpu" if kind == "cuda" else kind)
    torch.cuda.amp.autocast.__init__ = (  # type: ignore[method-assign]
        lambda self, enabled=True, dtype=torch.float16, cache_enabled=True: begin(
            self, "cuda", dtype, enabled=enabled, cache_enabled=cache_enabled
        )
    )
