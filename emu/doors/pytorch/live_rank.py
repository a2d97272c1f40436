"""The ranks of a live run: the script runs unmodified, and its process groups lead to the emulator.

    python -m emu.doors.pytorch.live_rank SOCKET

`emu.doors.pytorch.live_job` starts this process, which imports torch and begins one process for each rank of
a job. On the socket come the facts of a job as JSON, with a socket for each rank, or `end`; rank and status
of each that ended go back. With `gloo` among the facts calls go from rank to rank over gloo and take no time:
what a
live run is compared with.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from emu.doors.pytorch.kernels import KernelTimes, gpu_named
from emu.doors.pytorch.live_groups import Groups, Transport, bytes_of, put
from emu.doors.pytorch.live_line import Line, LiveCall, OverError, Wire
from emu.doors.pytorch.live_tape import LiveTape
from emu.doors.pytorch.player import pretended_cuda
from emu.doors.pytorch.player.kernel_log import KernelLog
from emu.doors.pytorch.player.play import watch_steps
from emu.doors.pytorch.player.tape import local
from emu.doors.pytorch.record import Record

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
GLOO = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}

SHARED_STORE = dist.FileStore
"""What ranks meet in over gloo; scripts get a store of their own in its place (`player.everyday`)."""


class GlooTransport:
    """Calls over gloo, which take no time."""

    def __init__(self, rank: int, world: int, folder: Path) -> None:
        self.now_ps = 0
        self._rank, self._folder = rank, folder
        self._groups: dict[tuple[int, ...], Any] = {}
        self._works: list[tuple[Any, torch.Tensor]] = []
        self._world = self._group(tuple(range(world)))
        self._tags: dict[tuple[int, ...], int] = {}

    def _group(self, ranks: tuple[int, ...]) -> Any:
        if ranks not in self._groups:
            name = self._folder / ("gloo-" + hashlib.sha256(repr(ranks).encode()).hexdigest()[:16])
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
            store = SHARED_STORE(str(name), len(ranks))
            self._groups[ranks] = dist.ProcessGroupGloo(store, ranks.index(self._rank), len(ranks), options)
        return self._groups[ranks]

    def post(self, call: LiveCall) -> int:
        """See `Transport`."""
        dtype = DTYPES[call.dtype]
        width = torch.empty(0, dtype=dtype).element_size()
        given = torch.empty(len(call.data) // width, dtype=dtype)
        put(given, call.data)
        whole = torch.empty(call.size // width, dtype=dtype)
        self._works.append(
            self._transfer(call, given, whole) if call.algorithm else self._begin(call, given, whole)
        )
        return len(self._works) - 1

    def _transfer(self, call: LiveCall, given: torch.Tensor, whole: torch.Tensor) -> tuple[Any, torch.Tensor]:
        source, destination = call.ranks
        tag = self._tags[call.ranks] = self._tags.get(call.ranks, 0) + 1
        if self._rank == source:
            return self._world.send([given], destination, tag), given
        return self._world.recv([whole], source, tag), whole

    def _begin(self, call: LiveCall, given: torch.Tensor, whole: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Begin a collective; for reduce_scatter, gather and scatter a larger one, and a part of it."""
        group, members = self._group(call.ranks), len(call.ranks)
        me = call.ranks.index(self._rank)
        if call.op in ("all_reduce", "reduce_scatter", "reduce"):
            reduction = dist.AllreduceOptions()
            reduction.reduceOp = GLOO[call.redop]
            out = given.chunk(members)[me] if call.op == "reduce_scatter" else given
            return group.allreduce([given], reduction), out
        if call.op in ("broadcast", "scatter"):
            source = given if me == call.root else whole
            rooted = dist.BroadcastOptions()
            rooted.rootRank = call.root
            return group.broadcast([source], rooted), source.chunk(members)[
                me
            ] if call.op == "scatter" else source
        if call.op in ("all_gather", "gather"):
            return group.allgather([list(whole.chunk(members))], [given]), whole
        if call.op == "all_to_all":
            return group.alltoall_base(whole, given, [], []), whole
        return group.barrier(), whole[:0]

    def wait(self, number: int) -> tuple[int, int, bytes]:
        """See `Transport`."""
        work, out = self._works[number]
        self._works[number] = (None, out[:0])
        work.wait()
        return 0, 0, bytes_of(out)

    def over_by(self, at_ps: int) -> set[int]:
        """See `Transport`."""
        return {number for number, (work, _) in enumerate(self._works) if work is None or work.is_completed()}


class Rank:
    """What is known of a rank while its script runs, and what is left at its end."""

    def __init__(self, facts: dict[str, Any], script: str) -> None:
        record = Record(facts["rank"], facts["world"], script, torch.__version__)
        times = KernelTimes(gpu_named(facts["gpu"]), None if not facts["times"] else Path(facts["times"]))
        self.facts = facts
        self.tape = LiveTape(record, times, measured=facts["measured"])
        self.line: Line | None = None
        transport: Transport
        if facts["gloo"]:
            transport = GlooTransport(record.rank, record.world, Path(facts["folder"]))
        else:
            transport = self.line = Line(Wire(socket.socket(fileno=facts["socket"])))
        self.groups = Groups(self.tape, transport)
        self.losses: list[float] = []
        self.optimizers: dict[int, torch.optim.Optimizer] = {}

    def install(self) -> KernelLog:
        """Put the groups, the GPU and the watches where torch looks for them."""
        log = KernelLog(self.tape, self.groups.call_by_name)
        gpu = self.tape._times.gpu
        properties = pretended_cuda.Properties(
            gpu.name, *gpu.capability, gpu.memory_bytes, gpu.multiprocessors
        )
        pretended_cuda.install(self.tape, properties, self.facts["gpus_per_host"])
        self.groups.install()
        backward = torch.autograd.backward

        def watched(tensors: Any, *args: Any, **kwargs: Any) -> None:
            first = tensors[0] if isinstance(tensors, list | tuple) else tensors
            if isinstance(first, torch.Tensor) and first.numel() == 1:
                with self.tape.silence(), torch.no_grad():
                    self.losses.append(float(local(first.detach())))
            backward(tensors, *args, **kwargs)

        torch.autograd.backward = watched  # type: ignore[assignment]
        from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415  `torch.optim.optimizer` is no attribute

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.optimizers[id(optimizer)] = optimizer

        register_optimizer_step_post_hook(stepped)
        self.ends = watch_steps(self.tape, self.groups)  # type: ignore[arg-type]
        return log

    def results(self) -> dict[str, Any]:
        """What the rank has done, as plain data; its parameters go to a file."""
        parameters = [
            bytes_of(local(one).float())
            for optimizer in self.optimizers.values()
            for group in optimizer.param_groups
            for one in group["params"]
        ]
        whole = b"".join(parameters)
        Path(self.facts["folder"], f"parameters_{self.facts['rank']}").write_bytes(whole)
        return {
            "rank": self.facts["rank"],
            "losses": self.losses,
            "steps_ps": self.tape.steps_ps,
            "computed_ps": self.tape.computed_ps,
            "end_ps": self.tape.now_ps(0),
            "kernels": self.tape.kernels,
            "calls": sum(group.sequence for group in self.groups._groups.values()),
            "bytes": self.groups.bytes,
            "parameters": hashlib.sha256(whole).hexdigest(),
        }

    def dump(self) -> None:
        """Write the flight recorder's dump, as PyTorch does at a timeout."""
        path = Path(self.facts["dumps"] + str(self.facts["rank"]))
        path.write_bytes(pickle.dumps(self.groups.dump(), protocol=2))


def play(facts: dict[str, Any], script: list[str]) -> int:
    """Run a rank in this process; the exit status."""
    os.environ.update(
        RANK=str(facts["rank"]),
        WORLD_SIZE=str(facts["world"]),
        LOCAL_RANK=str(facts["rank"] % facts["gpus_per_host"]),
        LOCAL_WORLD_SIZE=str(min(facts["gpus_per_host"], facts["world"])),
        GROUP_RANK=str(facts["rank"] // facts["gpus_per_host"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        TORCHELASTIC_RUN_ID="emu",
    )
    torch.set_num_threads(1)
    rank = Rank(facts, script[0])
    log = rank.install()
    sys.argv = list(script)
    sys.path.insert(0, str(Path.cwd()) if facts["module"] else str(Path(script[0]).resolve().parent))
    on_gpu = pretended_cuda.OnTheGpu(rank.tape, log)
    pretended_cuda.follow_backward(on_gpu)
    status = 0
    failed: dict[str, Any] = {}
    try:
        with on_gpu, log:
            run: Any = runpy.run_module if facts["module"] else runpy.run_path
            run(script[0], run_name="__main__", **({"alter_sys": True} if facts["module"] else {}))
            rank.ends()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if status:
            failed = {"reason": f"the script ended with status {end.code}", "line": 0}
    except BaseException as error:  # noqa: BLE001  whatever a script raises is told with its line
        status = 1
        failed = {
            "reason": " ".join(f"{type(error).__name__}: {error}".split()),
            "line": _line(error, script[0]),
        }
        failed["library"] = isinstance(error, dist.DistBackendError | OverError)
        traceback.print_exception(error)
        if failed["library"]:
            rank.dump()
    results = {**rank.results(), "failed": failed}
    Path(facts["folder"], f"rank_{facts['rank']}.json").write_text(json.dumps(results), encoding="utf-8")
    if rank.line is not None:
        try:
            rank.line.end(status)
        except OSError:
            return status or 1
    return status


def _line(error: BaseException, script: str) -> int:
    """The line of the script where an error was raised."""
    path, line = Path(script).resolve(), 0
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).resolve() == path:
            line = frame.lineno or 0
    return line


def begin(facts: dict[str, Any], script: list[str], sockets: list[int]) -> int:
    """Begin the process of a rank; its number."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        for other in sockets:
            if other != facts["socket"]:
                os.close(other)
        output = os.open(
            str(Path(facts["folder"], f"rank_{facts['rank']}.txt")), os.O_WRONLY | os.O_CREAT, 0o644
        )
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, number)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        status = play(facts, script)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)  # threads of gloo and autograd have nothing more to say


def main() -> int:
    """Begin the ranks of jobs as they are asked for, say how each ended, and end those that nobody wants any
    more."""
    control = socket.socket(fileno=int(sys.argv[1]))
    import torch._dynamo  # noqa: F401, PLC0415  what optimizers import: once, and not in each rank

    processes: dict[int, int] = {}
    while True:
        if select.select([control], [], [], 0.02 if processes else None)[0]:
            asked, sockets, _, _ = socket.recv_fds(control, 1 << 20, 4096)
            for process in processes if not asked or asked == b"end" else ():
                os.kill(process, signal.SIGKILL)
            if not asked:
                return 0
            if asked != b"end":
                facts = json.loads(asked)
                for rank in range(facts["world"]):
                    mine = {**facts, "rank": rank, "socket": sockets[rank] if sockets else -1}
                    processes[begin(mine, facts["script"], [*sockets, control.fileno()])] = rank
                for one in sockets:
                    os.close(one)
        for process in list(processes):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                rank = processes.pop(process)
                control.send(json.dumps([rank, os.waitstatus_to_exitcode(status)]).encode())


if __name__ == "__main__":
    sys.exit(main())
