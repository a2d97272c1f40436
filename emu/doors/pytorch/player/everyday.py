"""Everyday calls of PyTorch that need a GPU, a store or a profiler: recorded, no-ops, or refused by name.

A public name of `torch.cuda`, `torch.accelerator`, `torch.distributed`, `torch.utils.data`,
`torch.distributed.checkpoint`, `torch.profiler` and `torch.optim` is one of three:

- **recorded**: it answers for the GPU of the run, or is PyTorch's own code, which comes by;
- **no-op**: it changes neither what is computed nor what is sent (marks, profiles, allocators);
- **refused**: it does, and is not modelled. The call ends the recording with its name and the script's line.

A stand-in has the signature of what it stands for: `like` takes it from PyTorch, and binds arguments to it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from types import ModuleType
from typing import Any, Final

import torch
import torch.cuda.comm
import torch.cuda.nvtx
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.utils.data
from torch import Tensor

from emu.doors.pytorch.player.tape import Tape, local
from emu.doors.pytorch.record import NotRecordedError, Operation, Step

NO_OPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "torch.cuda": {
        "caching_allocator_enable": None,
        "change_current_allocator": None,
        "check_error": None,
        "empty_cache": None,
        "get_allocator_backend": "native",
        "get_arch_list": ["sm_80", "sm_90", "sm_100"],
        "get_gencode_flags": "",
        "get_per_process_memory_fraction": 1.0,
        "get_sync_debug_mode": 0,
        "host_memory_stats": {},
        "host_memory_stats_as_nested_dict": {},
        "init": None,
        "ipc_collect": None,
        "list_gpu_processes": "no processes are running",
        "memory_snapshot": [],
        "memory_usage": 0,
        "reset_accumulated_host_memory_stats": None,
        "reset_accumulated_memory_stats": None,
        "reset_max_memory_allocated": None,
        "reset_max_memory_cached": None,
        "reset_peak_host_memory_stats": None,
        "reset_peak_memory_stats": None,
        "set_device": None,
        "set_per_process_memory_fraction": None,
        "set_sync_debug_mode": None,
        "temperature": 40,
        "power_draw": 0,
        "clock_rate": 0,
        "utilization": 0,
    },
    "torch.cuda.nvtx": {"range_push": 0, "range_pop": 0, "range_start": 0, "range_end": None, "mark": None},
    "torch.cuda.memory": {"_record_memory_history": None, "_dump_snapshot": None, "_snapshot": {}},
    "torch.accelerator": {
        "empty_host_cache": None,
        "reset_accumulated_memory_stats": None,
    },
}
"""By module: what each call of no effect returns."""
REFUSED: Final[Mapping[str, Mapping[str, str]]] = {
    "torch.cuda": {
        "caching_allocator_alloc": "it gives out memory of a GPU by address",
        "caching_allocator_delete": "it takes back memory of a GPU by address",
        "CUDAPluggableAllocator": "it loads an allocator of one's own",
        "current_blas_handle": "it is for kernels of one's own",
        "current_solver_handle": "it is for kernels of one's own",
        "GreenContext": "it gives kernels some of the multiprocessors",
        "jiterator": "it compiles kernels of one's own",
    },
    "torch.cuda.nccl": dict.fromkeys(
        ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"),
        "it sends between GPUs of one process; a rank has one",
    ),
    "torch.cuda.comm": dict.fromkeys(
        ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather"),
        "it sends between GPUs of one process; a rank has one",
    ),
    "torch.distributed": {
        "all_gather_coalesced": "groups of NCCL do not have it",
        "breakpoint": "a recording has no terminal",
        "register_rendezvous_handler": "ranks do not meet while one is recorded",
        "rendezvous": "ranks do not meet while one is recorded",
        "shrink_group": "the ranks of a recording do not fail",
    },
    "torch.distributed.rpc": dict.fromkeys(
        ("init_rpc", "rpc_sync", "rpc_async", "remote"), "it runs code on other ranks, which are not there"
    ),
}
"""By module: what a call would do that is not modelled."""
CUDA_VERSION: Final = "13.0"
"""Of the measured kernels."""
TYPED: Final = {
    f"{name}Tensor": kind
    for name, kind in {
        "BFloat16": torch.bfloat16, "Bool": torch.bool, "Byte": torch.uint8, "Char": torch.int8,
        "Double": torch.float64, "Float": torch.float32, "Half": torch.float16, "Int": torch.int32,
        "Long": torch.int64, "Short": torch.int16,
    }.items()
}  # fmt: skip
"""Types of tensors of the GPU by their old names."""


def like(original: Any, answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the signature of `original` that returns what `answer` does.

    `answer` takes by name those of the arguments that it needs. Raises TypeError for arguments that the
    original does not take.
    """
    signature = inspect.signature(original)
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    needed = [name for name, one in inspect.signature(answer).parameters.items() if one.kind not in variable]

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return answer(**{name: bound.arguments[name] for name in needed})

    stand_in.__name__ = stand_in.__qualname__ = getattr(original, "__name__", "stand_in")
    stand_in.__doc__ = original.__doc__
    setattr(stand_in, "__signature__", signature)  # noqa: B010  a function has no such attribute for mypy
    setattr(stand_in, "stands_for", original)  # noqa: B010
    return stand_in


def put(module: ModuleType, answers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer calls of a module, where it has them."""
    for name, answer in answers.items():
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, like(original, answer))


def refusing(module: str, name: str, why: str) -> Callable[..., Any]:
    """A function that ends the recording by its name."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotRecordedError(f"{module}.{name} is not recorded: {why}")

    setattr(refuse, "refused", why)  # noqa: B010
    return refuse


class OwnStore(dist.Store):
    """A store of one rank: in place of those that ranks share. What another rank would set is refused."""

    _kept: Final[list[OwnStore]] = []
    """C++ keeps a store without its half in Python, which has the methods."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        OwnStore._kept.append(self)
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._values[key] = _as_bytes(value)

    def get(self, key: str) -> bytes:
        if key not in self._values:
            raise NotRecordedError(f"the store has no {key!r}: another rank would set it")
        return self._values[key]

    def add(self, key: str, value: int) -> int:
        found = int(self._values.get(key, b"0")) + value
        self._values[key] = str(found).encode()
        return found

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        expected, desired = _as_bytes(expected), _as_bytes(desired)
        if self._values.get(key, expected if not expected else None) == expected:
            self._values[key] = desired
        return self._values.get(key, _as_bytes(expected))

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        for key in keys:
            self.get(key)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def set_timeout(self, timeout: Any) -> None:
        """Nothing is waited for."""


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Graph:
    """In place of `torch.cuda.CUDAGraph`: what is captured runs at each replay, and not before."""

    tape: Tape

    def __init__(self, keep_graph: bool = False) -> None:
        self._begin = 0
        self._operations: list[Operation] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self._begin = len(Graph.tape.record.operations)

    def capture_end(self) -> None:
        operations = Graph.tape.record.operations
        self._operations = [one for one in operations[self._begin :] if not isinstance(one, Step)]
        del operations[self._begin :]

    def instantiate(self) -> None:
        """A recording is ready to be replayed."""

    def replay(self) -> None:
        """Run it again: its events and calls are new ones."""
        Graph.tape.repeat(self._operations)

    def reset(self) -> None:
        self._operations = []

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def enable_debug_mode(self) -> None:
        """There is nothing to look at."""

    def debug_dump(self, debug_path: str) -> None:
        """There is nothing to look at."""


class GraphCapture:
    """In place of `torch.cuda.graph`."""

    def __init__(
        self, cuda_graph: Graph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


class Nothing:
    """An object whose every call has no effect: profilers, pools of memory, CUDA's runtime."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Nothing:  # noqa: PYI034  as contexts of torch do
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _typed(kind: torch.dtype) -> Any:
    """A type of tensors on the GPU, as `torch.cuda.FloatTensor` is one."""

    class Checked(type):
        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, Tensor) and one.dtype is kind and one.is_cuda

    class Typed(metaclass=Checked):
        dtype = kind

        def __new__(cls, *given: Any) -> Any:
            if given and not isinstance(given[0], int):
                return torch.tensor(given[0], dtype=kind, device="cuda")
            return torch.empty(given, dtype=kind, device="cuda")

    return Typed


def _generator() -> Any:
    """In place of `torch.Generator`: one of the GPU is one of the CPU."""
    made = torch.Generator

    class Checked(type):
        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, made)

    class OfAny(metaclass=Checked):
        def __new__(cls, device: Any = "cpu") -> Any:  # noqa: ARG004  torch's signature
            return made()

    return OfAny


def _loaded(tape: Tape, storage: Any, location: str) -> Any:
    """A storage that is loaded to the GPU; None: another place."""
    if not location.startswith("cuda"):
        return None
    tape.put_storage(storage)
    return storage


def _split(split_ranks: Any, group_desc: Any) -> Any:
    """Groups of parts of another: each rank has the one that it is in."""
    mine = None
    for ranks in split_ranks:
        made = dist.new_group(ranks, group_desc=group_desc)
        if dist.get_rank() in ranks:
            mine = made
    return mine


def install(tape: Tape) -> None:
    """Calls of no effect have none, and what is not modelled is refused, from now on."""
    import torch.distributed.rpc  # noqa: PLC0415  only with torch

    modules: dict[str, Any] = {
        "torch.cuda": torch.cuda,
        "torch.cuda.nvtx": torch.cuda.nvtx,
        "torch.cuda.nccl": torch.cuda.nccl,
        "torch.cuda.comm": torch.cuda.comm,
        "torch.cuda.memory": torch.cuda.memory,
        "torch.accelerator": torch.accelerator,
        "torch.distributed": dist,
        "torch.distributed.rpc": torch.distributed.rpc,
    }
    for name, returned in NO_OPS.items():
        put(modules[name], {call: _returning(value) for call, value in returned.items()})
    for name, reasons in REFUSED.items():
        for call, why in reasons.items():
            if hasattr(modules[name], call):
                setattr(modules[name], call, refusing(name, call, why))
    cuda = modules["torch.cuda"]
    Graph.tape = tape
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = Graph
    cuda.graph = cuda.graphs.graph = GraphCapture
    modules["torch.accelerator"].Graph = Graph
    put(cuda, {
        "graph_pool_handle": lambda: (0, 1),
        "cudart": Nothing,
        "make_graphed_callables": lambda callables: _as_they_are(tape, callables),
        "memory_cached": lambda device: tape.held_bytes,
        "max_memory_cached": lambda device: tape.record.peak_bytes,
        "memory_stats_as_nested_dict": lambda device: {},
        "device_memory_used": lambda device: tape.held_bytes,
        "initial_seed": lambda: 0,
        "seed_all": lambda: None,
        "is_tf32_supported": lambda: True,
        "caching_allocator_disabled": _nothing,
    })  # fmt: skip
    cuda.MemPool, cuda.use_mem_pool = Nothing, _nothing
    for name, kind in TYPED.items():
        setattr(cuda, name, _typed(kind))
    torch.Generator = _generator()
    torch.version.cuda = CUDA_VERSION
    torch.serialization.register_package(0, lambda _: None, partial(_loaded, tape))
    put(modules["torch.distributed"], {"split_group": _split})
    torch.distributed.distributed_c10d.split_group = dist.split_group
    cuda.nvtx.range = _nothing
    cuda.profiler.start = cuda.profiler.stop = lambda: None
    cuda.profiler.profile = _nothing
    for name in ("TCPStore", "FileStore", "HashStore"):
        setattr(dist, name, OwnStore)
    kinds: Any = Tensor
    kinds.pin_memory, kinds.is_pinned = _pinned, lambda tensor, device=None: False
    kinds.record_stream = lambda tensor, stream: None
    _hooks_in_mode(tape)
    _profiles(tape)
    if tape.alone:
        _checkpoints(tape)


def _returning(value: Any) -> Callable[..., Any]:
    return lambda: value


def _pinned(tensor: Tensor, device: Any = None) -> Tensor:
    return tensor


def _as_they_are(tape: Tape, callables: Any) -> Any:
    tape.note("make_graphed_callables was left out: launches are those of eager PyTorch")
    return callables


def _hooks_in_mode(tape: Tape) -> None:
    """Hooks of saved tensors run inside of functions, in which `cuda` names no GPU: there it does again."""
    kind: Any = torch.autograd.graph.saved_tensors_hooks
    begin = kind.__init__

    def inside(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(given: Any) -> Any:
            with tape.mode:
                return hook(given)

        return run

    def init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        begin(self, inside(pack_hook), inside(unpack_hook))

    setattr(init, "__signature__", inspect.signature(begin))  # noqa: B010
    kind.__init__ = init


def _profiles(tape: Tape) -> None:
    """A profile has nothing to measure: the kernels of a recording take the time of a CPU."""

    class Profile(Nothing):
        step_num = 0

        def __init__(self, *_: Any, **__: Any) -> None:
            tape.note("torch.profiler was left out: nothing that it measures is that of a GPU")

        def __enter__(self) -> Profile:  # noqa: PYI034  as contexts of torch do
            return self

        def step(self) -> None:
            self.step_num += 1

        def key_averages(self, *_: Any, **__: Any) -> Any:
            return Nothing()

    profiler: Any = torch.profiler
    for module in (profiler, profiler.profiler):
        module.profile = Profile
    torch.autograd.profiler.profile = Profile
    torch.autograd.profiler.emit_nvtx = Nothing


def _checkpoints(tape: Tape) -> None:
    """A sharded checkpoint is not written: the shards of the other ranks are nowhere.

    Tensors without data can be neither saved nor loaded.
    """

    def skipped() -> None:
        tape.note("checkpoints were not written: this rank's part alone would be of no use")

    def skipped_later() -> Future[None]:
        skipped()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    checkpoint: Any = torch.distributed.checkpoint
    for module in (checkpoint, checkpoint.state_dict_saver):
        put(module, {"save": skipped, "async_save": skipped_later})
    if tape.fake is not None:
        put(checkpoint, {"load": skipped})
        torch.save = like(torch.save, skipped)


def across(tape: Tape, into: Tensor, given: Tensor) -> str:
    """The kernel of a copy between the host and the GPU; empty for one on one side."""
    there, here = tape.is_on_gpu(local(into)), tape.is_on_gpu(local(given))
    if there == here:
        return ""
    return "memcpy_host_to_device" if there else "memcpy_device_to_host"
