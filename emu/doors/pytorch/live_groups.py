"""Process groups of a live run: the bytes of tensors go to the emulator, and come back reduced or moved.

A call with `async_op=False` has its result when it returns; its stream's clock is then at its end. One with
`async_op=True` has it when somebody waits for it, or asks for its future: C++ waits where nobody sees it, so
DistributedDataParallel's buckets are waited for when they are posted, while the clock of what computes goes
on until backward ends. Calls of one communicator follow one another, so that costs no time.

ReduceOp.AVG multiplies by 1/n and adds up, as NCCL does with floating point.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from emu.doors.pytorch.live_line import LiveCall
from emu.doors.pytorch.live_tape import LiveTape
from emu.doors.pytorch.player.tape import dtype_name, size_of
from emu.doors.pytorch.player.torch_versions import GroupBase, WorkBase, take_over_groups, with_old_names
from emu.doors.pytorch.record import HOST

BACKEND: Final = "emulated"
TYPES: Final = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "uint8",
}
REDUCTIONS: Final = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
SUCCESS: Final = 0
TIMED_OUT: Final = 110


class Transport(Protocol):
    """Where calls go: to the emulator, or to gloo for comparison."""

    now_ps: int

    def post(self, call: LiveCall) -> int:
        """Begin a call; its number."""

    def wait(self, number: int) -> tuple[int, int, bytes]:
        """When it was over, its status and its result."""

    def over_by(self, at_ps: int) -> set[int]:
        """The calls that are over at a time."""


def bytes_of(tensor: Tensor) -> bytes:
    """The elements, one after another."""
    whole = tensor.detach().contiguous()
    return ctypes.string_at(whole.data_ptr(), size_of(whole)) if whole.numel() else b""


def put(tensor: Tensor, data: bytes) -> None:
    """Fill a tensor with elements."""
    if tensor.numel():
        tensor.copy_(torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(tensor.shape))


class Pending(WorkBase):
    """A call, or several that are waited for together."""

    def __init__(
        self,
        group: Group,
        numbers: Sequence[int],
        take: Callable[[list[bytes]], None],
        result: Any,
        stream: int,
    ) -> None:
        super().__init__()
        self._group, self._numbers, self._take, self._result = group, list(numbers), take, result
        self._stream = stream
        """Which it is on, HOST for tensors that are not on the GPU."""
        self._is_over = False

    def finish(self) -> None:
        """Wait for the results, and put them where they belong."""
        if self._is_over:
            return
        self._is_over = True
        groups = self._group.groups
        found = [groups.wait(self._group, number, self._stream) for number in self._numbers]
        with groups.tape.silence(), torch.no_grad():
            self._take(found)

    def wait(self, timeout: Any = None) -> bool:
        self.finish()
        tape = self._group.groups.tape
        if self._stream not in (HOST, tape.stream):
            tape.wait(tape.stream, tape.mark(self._stream))
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        groups = self._group.groups
        if not self._is_over and set(self._numbers) <= groups.over_by(groups.tape.now_ps()):
            self.finish()
        return self._is_over

    def is_success(self) -> bool:
        return self._is_over

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Any:
        self.finish()
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        if self._stream != HOST:
            self._group.groups.awaited_in_backward.append(self._group.groups.tape.mark(self._stream))
        return future


@with_old_names
class Group(GroupBase):
    """One group; named by torch."""

    def __init__(self, groups: Groups, rank: int, size: int, ranks: list[int]) -> None:
        super().__init__(rank, size)
        self.groups, self.place, self.members, self.ranks = groups, rank, size, tuple(ranks)
        self.own_stream: int | None = None
        self.sequence = 0
        """Calls so far."""

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self.groups.made(name, self)

    # ---- calls

    def _begin(
        self,
        op: str,
        given: Sequence[Tensor],
        into: Sequence[Tensor],
        result: Any,
        opts: Any,
        *,
        size: int = -1,
        root: int = 0,
        redop: Any = None,
        data: bytes | None = None,
    ) -> Pending:
        """One collective: `given` one after another are the input, `into` the result."""
        tape = self.groups.tape
        at_once = bool(tape.quiet)  # a functional collective, whose wait nobody calls
        with tape.silence(), torch.no_grad():
            first = (*given, *into)[0]
            reduction, given = self._prepared(op, given, redop)
            if data is None:
                data = b"".join(map(bytes_of, given))
            kind = TYPES.get(first.dtype, "uint8")
            stream = self._stream_of(first, opts)
            what = f"{op} of {first.numel()} x {dtype_name(first.dtype)}"
            size = len(data) if size < 0 else size
            alone = self.members == 1 or not size
            numbers = (
                []
                if alone
                else [
                    self._post(
                        op,
                        size,
                        self.ranks,
                        "",
                        root,
                        kind,
                        "sum" if reduction == "avg" else reduction,
                        "",
                        stream,
                        data,
                        what + (f", root rank {self.ranks[root]}" if root else ""),
                        (given, into),
                    )
                ]
            )

        def spread(found: list[bytes]) -> None:
            at, (whole,) = 0, found or [data]
            for tensor in into if size else ():
                put(tensor, whole[at : at + size_of(tensor)])
                at += size_of(tensor)
                if reduction == "avg" and not tensor.is_floating_point():
                    tensor.floor_divide_(self.members)

        work = Pending(self, numbers, spread, result, stream)
        if at_once or stream == tape.stream or not getattr(opts, "asyncOp", True):
            work.finish()
        return work

    def _prepared(self, op: str, given: Sequence[Tensor], redop: Any) -> tuple[str, Sequence[Tensor]]:
        """The name of a reduction, and what is brought to it."""
        if redop is None:
            return "sum", given
        reduction = REDUCTIONS.get(redop.op if hasattr(redop, "op") else redop)
        if reduction is None:
            raise NotImplementedError(
                f"{op} with {redop} is not emulated: sum, avg, product, min and max are"
            )
        if given and given[0].dtype not in TYPES:
            raise NotImplementedError(f"{op} of {dtype_name(given[0].dtype)} is not emulated")
        if reduction == "avg" and given[0].is_floating_point():
            return reduction, [one * (1.0 / self.members) for one in given]
        return reduction, given

    def _stream_of(self, tensor: Tensor, opts: Any) -> int:
        """The stream of a call: the current one, or behind it the group's; HOST for tensors of the CPU."""
        tape = self.groups.tape
        if not tape.is_on_gpu(tensor):
            return HOST
        if not getattr(opts, "asyncOp", True):
            return tape.stream
        if self.own_stream is None:
            self.own_stream = tape.new_stream()
        tape.wait(self.own_stream, tape.mark(tape.stream))
        return self.own_stream

    def _post(
        self,
        op: str,
        size: int,
        ranks: tuple[int, ...],
        on: str,
        root: int,
        dtype: str,
        redop: str,
        algorithm: str,
        stream: int,
        data: bytes,
        what: str,
        tensors: tuple[Sequence[Tensor], Sequence[Tensor]],
    ) -> int:
        self.sequence += 1
        at_ps = self.groups.tape.now_ps(0 if stream == HOST else stream)
        name = f"{self.given_name}{on}"
        call = LiveCall(op, size, ranks, name, root, dtype, redop, algorithm, at_ps, data, what)
        return self.groups.post(self, call, tensors)

    # ---- what torch calls

    def allreduce(self, tensors: Any, opts: Any = None) -> Pending:
        return self._begin("all_reduce", tensors, tensors, tensors, opts, redop=_redop(opts))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any = None) -> Pending:
        into = tensors if opts.rootRank == self.place else []
        return self._begin("reduce", tensors, into, tensors, opts, root=opts.rootRank, redop=_redop(opts))

    def broadcast(self, tensors: Any, opts: Any = None) -> Pending:
        root = opts.rootRank if opts else 0
        size = sum(map(size_of, tensors))
        given = tensors if root == self.place else []
        return self._begin("broadcast", given, tensors, tensors, opts, size=size, root=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        (into,), (one,) = outputs, inputs
        if any(part.shape != one.shape or part.dtype != one.dtype for part in into):
            raise NotImplementedError("an all_gather of unequal tensors is not emulated: pad them")
        return self._begin("all_gather", [one], into, outputs, opts, size=size_of(one) * self.members)

    def all_gather_single(self, output: Tensor, one: Tensor, opts: Any = None) -> Pending:
        return self._begin("all_gather", [one], [output], output, opts, size=size_of(output))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        return self._several(
            [self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)], outputs
        )

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        (output,), (parts,) = outputs, inputs
        if any(part.shape != output.shape for part in parts):
            raise NotImplementedError("a reduce_scatter of unequal tensors is not emulated: pad them")
        return self._begin("reduce_scatter", parts, [output], outputs, opts, redop=_redop(opts))

    def reduce_scatter_single(self, output: Tensor, one: Tensor, opts: Any = None) -> Pending:
        return self._begin("reduce_scatter", [one], [output], output, opts, redop=_redop(opts))

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        return self._several(
            [self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)], outputs
        )

    def all_to_all_single(
        self, output: Tensor, one: Tensor, out_sizes: Any, in_sizes: Any, opts: Any = None
    ) -> Pending:
        if not out_sizes and not in_sizes:
            return self._begin("all_to_all", [one], [output], output, opts)
        rows = [int(n) for n in in_sizes] or [one.shape[0] // self.members] * self.members
        back = [int(n) for n in out_sizes] or [output.shape[0] // self.members] * self.members
        with self.groups.tape.silence(), torch.no_grad():
            parts, into = list(one.split(rows)), list(output.split(back))
        return self._exchange(into, parts, output, opts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        sizes = {size_of(one) for one in (*outputs, *inputs)}
        if len(sizes) == 1:
            return self._begin("all_to_all", inputs, outputs, outputs, opts)
        return self._exchange(outputs, inputs, outputs, opts)

    def _exchange(self, into: Any, parts: Any, result: Any, opts: Any) -> Pending:
        """An all_to_all whose parts differ: a transfer between every two ranks that have something."""
        me = self.place
        with self.groups.tape.silence(), torch.no_grad():
            into[me].copy_(parts[me])
        works = []
        for turn in range(1, self.members):
            there, back = (me + turn) % self.members, (me - turn) % self.members
            if parts[there].numel():
                works.append(self._transfer(parts[there], me, there, opts))
            if into[back].numel():
                works.append(self._transfer(into[back], back, me, opts))
        return self._several(works, result, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        into = outputs[0] if opts.rootRank == self.place else []
        size = size_of(inputs[0]) * self.members
        return self._begin("gather", inputs, into, outputs, opts, size=size, root=opts.rootRank)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Pending:
        given = inputs[0] if opts.rootRank == self.place else []
        size = size_of(outputs[0]) * self.members
        return self._begin("scatter", given, outputs, outputs, opts, size=size, root=opts.rootRank)

    def barrier(self, opts: Any = None) -> Pending:
        token = torch.zeros(1)
        work = self._begin("barrier", [token], [], [], opts, size=4, data=b"")
        work.finish()
        tape = self.groups.tape
        tape.reach(HOST, self.groups.transport.now_ps)
        return work

    monitored_barrier = barrier

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Pending:
        sent = [self._transfer(one, self.place, peer, None) for one in tensors if one.numel()]
        return self._several(sent, tensors)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Pending:
        received = [self._transfer(one, peer, self.place, None) for one in tensors if one.numel()]
        return self._several(received, tensors)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> NoReturn:
        raise NotImplementedError("a receive from any rank is not emulated: name the sender")

    def _transfer(self, tensor: Tensor, source: int, destination: int, opts: Any) -> Pending:
        tape = self.groups.tape
        sends = source == self.place
        with tape.silence(), torch.no_grad():
            data = bytes_of(tensor) if sends else b""
            stream = self._stream_of(tensor, None)
            pair = self.ranks[source], self.ranks[destination]
            what = f"send of {tensor.numel()} x {dtype_name(tensor.dtype)} from rank {pair[0]} to {pair[1]}"
            number = self._post(
                "broadcast",
                size_of(tensor),
                pair,
                f" {pair[0]}>{pair[1]}",
                0,
                TYPES.get(tensor.dtype, "uint8"),
                "sum",
                "direct",
                stream,
                data,
                what,
                ([tensor] if sends else [], [] if sends else [tensor]),
            )

        def take(found: list[bytes]) -> None:
            if not sends:
                put(tensor, found[0])

        return Pending(self, [number], take, [tensor], stream)

    def _several(self, works: Sequence[Pending], result: Any, opts: Any = None) -> Pending:
        """Calls that are waited for together."""
        if len(works) == 1:
            works[0]._result = result
            return works[0]

        def take(_: list[bytes]) -> None:
            for work in works:
                work.finish()

        together = Pending(self, [], take, result, works[-1]._stream if works else HOST)
        if opts is not None and not getattr(opts, "asyncOp", True):
            together.wait()
        return together

    def _start_coalescing(self, device: Any = None) -> None:
        """Calls between here and `_end_coalescing` begin together."""

    def _end_coalescing(self, device: Any = None) -> Pending:
        return self._several([], [])

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

    def _set_sequence_number_for_group(self) -> None:
        """Numbers are the group's own."""

    def shutdown(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Do nothing: nothing is open."""


def _redop(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


class Groups:
    """All groups of one rank."""

    def __init__(self, tape: LiveTape, transport: Transport) -> None:
        self.tape, self.transport = tape, transport
        self.awaited_in_backward: list[int] = []
        """Events of calls whose future C++ holds: what DistributedDataParallel waits for as backward ends."""
        self.entries: list[dict[str, Any]] = []
        """What the flight recorder has."""
        self._flights: dict[int, dict[str, Any]] = {}
        """By number, what is not over."""
        self._groups: dict[str, Group] = {}
        self.bytes = 0
        """Of all inputs."""

    def install(self) -> None:
        """Every back end of `init_process_group` and `new_group` is this one from now on."""
        record = self.tape.record
        take_over_groups(BACKEND, partial(Group, self), record.rank, record.world)

    def made(self, name: str, group: Group) -> None:
        self._groups[name] = group

    def call_by_name(self, op: str, name: str, size: int, dtype: str, counts: tuple[int, ...] = ()) -> int:
        """The event at the end of the functional collective that was just called."""
        group = self._groups[name]
        return self.tape.mark(self.tape.stream if group.own_stream is None else group.own_stream)

    def post(self, group: Group, call: LiveCall, tensors: tuple[Sequence[Tensor], Sequence[Tensor]]) -> int:
        """Begin a call; its number."""
        self.bytes += len(call.data)
        number = self.transport.post(call)
        given, into = tensors
        transfer = " " in call.on
        entry = {
            "record_id": len(self.entries),
            "pg_id": list(self._groups).index(group.group_name),
            "process_group": (group.group_name, group.group_desc),
            "collective_seq_id": 0 if transfer else group.sequence,
            "p2p_seq_id": group.sequence if transfer else 0,
            "op_id": group.sequence,
            "profiling_name": _profiled(call, group),
            "time_created_ns": call.at_ps // 1000,
            "input_sizes": [list(one.shape) for one in given],
            "input_dtypes": [_scalar(one.dtype) for one in given],
            "output_sizes": [list(one.shape) for one in into],
            "output_dtypes": [_scalar(one.dtype) for one in into],
            "state": "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": False,
            "is_p2p": transfer,
        }
        self.entries.append(entry)
        del self.entries[:-2000]
        self._flights[number] = entry
        return number

    def wait(self, group: Group, number: int, stream: int) -> bytes:
        """The result of a call, whose stream's clock is then at its end. Raises DistBackendError."""
        entry = self._flights.pop(number)
        at_ps, status, data = self.transport.wait(number)
        if status != SUCCESS:
            self._flights[number] = entry
            raise dist.DistBackendError(self._failure(group, entry, at_ps, status))
        entry["state"], entry["retired"] = "completed", True
        entry["time_discovered_completed_ns"] = at_ps // 1000
        self.tape.reach(stream, at_ps)
        return data

    def over_by(self, at_ps: int) -> set[int]:
        """The calls that are over at a time."""
        return self.transport.over_by(at_ps)

    def _failure(self, group: Group, entry: dict[str, Any], at_ps: int, status: int) -> str:
        """What c10d says of it."""
        ran_ms = (at_ps - entry["time_created_ns"] * 1000) // 10**9
        op = str(entry["profiling_name"]).removeprefix("nccl:").replace("_", "").upper()
        numels = [
            sum(torch.Size(one).numel() for one in entry[f"{end}_sizes"]) for end in ("input", "output")
        ]
        what = f"WorkNCCL(SeqNum={entry['op_id']}, OpType={op}, NumelIn={numels[0]}, NumelOut={numels[1]})"
        who = f"[Rank {self.tape.record.rank}]"
        if status == TIMED_OUT:
            return (
                f"{who} Watchdog caught collective operation timeout: {what} ran for {ran_ms} milliseconds "
                "before timing out."
            )
        return f"{who} NCCL error: unhandled system error in {what}: status {status} of its queue pair or GPU"

    def dump(self) -> dict[str, Any]:
        """What PyTorch's flight recorder dumps."""
        return {
            "version": "2.10",
            "pg_config": {
                name: {"name": name, "desc": one.group_desc, "ranks": str(list(one.ranks))}
                for name, one in self._groups.items()
            },
            "pg_status": {},
            "entries": list(self.entries),
        }

    def backward_ends(self) -> None:
        """What C++ waits for as backward ends."""
        for event in self.awaited_in_backward:
            self.tape.wait(self.tape.stream, event)
        self.awaited_in_backward.clear()


def _profiled(call: LiveCall, group: Group) -> str:
    """The name of a call in the flight recorder."""
    if " " in call.on:
        mine = group.ranks.index(call.ranks[0]), group.ranks.index(call.ranks[1])
        me = group.place
        return f"nccl:send {mine[0]}->{mine[1]}" if me == mine[0] else f"nccl:recv {mine[1]}<-{mine[0]}"
    names = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
    return f"nccl:{names.get(call.op, call.op)}"


def _scalar(dtype: torch.dtype) -> str:
    """As c10 names a type."""
    return {
        torch.float32: "Float",
        torch.float64: "Double",
        torch.float16: "Half",
        torch.bfloat16: "BFloat16",
        torch.int64: "Long",
        torch.int32: "Int",
        torch.int16: "Short",
        torch.int8: "Char",
        torch.uint8: "Byte",
        torch.bool: "Bool",
    }.get(dtype, "Byte")
