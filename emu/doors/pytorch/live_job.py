"""Live runs: rank processes of a real script, whose collectives are those of an open run.

Each rank is a process and a caller of the run. Virtual time goes on only while every rank waits for something
or has ended; what ranks called meanwhile is then posted, rank by rank, each call at its own time. So the
order in which processes come by changes nothing.

A rank that ends while others wait for it leaves them waiting until the library's watchdog gives up
(`ncclx.watchdog`), as with NCCL. A rank that calls something else than the others has not called what they
did. Either way every rank that waits is told, raises what c10d raises, and dumps its flight recorder; who was
missing is said in one line.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from actors.wire.message import (
    STATUS_GPU_LOST,
    STATUS_HOST_LOST,
    STATUS_RETRY_EXCEEDED,
    STATUS_RNR_RETRY_EXCEEDED,
    STATUS_TIMED_OUT,
)
from emu.base.errors import EmuError, RuntimeFailure, StallError, UsageError
from emu.base.units import shown_time
from emu.doors.pytorch.live_line import LiveCall, Wire
from emu.engine.live.open_run import NEXT, UNTIL, Caller, OpenRun
from emu.scenario.sections.graph import AUTO

GRACE_S: Final = 20.0
"""For ranks to end by themselves once the job has failed."""
LOOK_S: Final = 0.5
STATUSES: Final = {
    int(STATUS_RETRY_EXCEEDED): "failed: its queue pair ran out of retries",
    int(STATUS_RNR_RETRY_EXCEEDED): "failed: its queue pair ran out of RNR retries",
    int(STATUS_TIMED_OUT): "timed out",
    int(STATUS_GPU_LOST): "failed: its GPU is lost",
    int(STATUS_HOST_LOST): "failed: its server is lost",
}


class LiveError(EmuError):
    """The job failed: what the library, or a rank, ended it with."""

    exit_status = 3


@dataclass
class Rank:
    """One rank of the job, as the emulating process sees it."""

    number: int
    wire: Wire
    caller: Caller
    output: Path
    asked: tuple[str, int] | None = None
    """What it waits for: a call, or a time; None while it runs."""
    ended: bool = False
    numbers: dict[int, int] = field(default_factory=dict)
    """Its own number of a call, by the run's."""
    done: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    """Calls that are over and were not asked for, by its own number: when, status, result."""
    over: set[int] = field(default_factory=set)
    line: deque[tuple[int, LiveCall]] = field(default_factory=deque)
    """Calls to post once nobody runs."""
    silent_since: float = 0.0


@dataclass
class Job:
    """What to run: a script, in so many processes."""

    script: Sequence[str]
    ranks: int
    gpu: str
    folder: Path
    """Where results of ranks and their output go."""
    kernel_times: Path | None = None
    measured: bool = False
    module: bool = False
    """Whether the script is a module, as after `python -m`."""
    gpus_per_host: int = 8
    timeout_s: float = 600.0
    """For a rank that says nothing, by the wall clock."""
    say: Callable[[str], None] = lambda _: None

    def facts(self, folder: Path, *, gloo: bool) -> dict[str, Any]:
        """The job, as the processes of its ranks read it."""
        return {
            "script": list(self.script),
            "module": self.module,
            "world": self.ranks,
            "gpu": self.gpu,
            "times": "" if self.kernel_times is None else str(self.kernel_times),
            "measured": self.measured,
            "gpus_per_host": self.gpus_per_host,
            "folder": str(folder),
            "dumps": str(folder / "nccl_trace_rank_"),
            "gloo": gloo,
        }


class Processes:
    """A process that has imported torch, and begins the ranks of one job after another as its children."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._parent = subprocess.Popen(  # noqa: S603  this interpreter
                [sys.executable, "-m", "emu.doors.pytorch.live_rank", str(theirs.fileno())],
                env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._statuses: dict[int, int] = {}
        self._begun = 0

    def begin(self, facts: Mapping[str, Any], sockets: Sequence[socket.socket] = ()) -> None:
        """Begin the ranks of a job, each with its socket, if they have any."""
        self._statuses.clear()
        self._begun = facts["world"]
        numbers = [one.fileno() for one in sockets]
        socket.send_fds(self._control, [json.dumps(facts).encode()], numbers)

    def status(self, rank: int, wait_s: float) -> int | None:
        """The status with which a rank ended; None if it has not within so many seconds."""
        deadline = time.monotonic() + wait_s
        while rank not in self._statuses:
            ready, _, _ = select.select([self._control], [], [], max(deadline - time.monotonic(), 0))
            told = self._control.recv(1 << 16) if ready else b""
            if not told:
                return None
            number, status = json.loads(told)
            self._statuses[number] = status
        return self._statuses[rank]

    def end(self) -> None:
        """End the ranks of the job that are left."""
        if len(self._statuses) < self._begun:
            self._control.send(b"end")
            for rank in range(self._begun):
                self.status(rank, GRACE_S)

    def close(self) -> None:
        """End everything."""
        self.end()
        self._control.close()
        self._parent.kill()
        self._parent.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LiveServer:
    """Serves the ranks of a job until all have ended."""

    def __init__(self, run: OpenRun, job: Job, processes: Processes) -> None:
        if job.ranks > run.ranks:
            raise UsageError(
                f"--nproc {job.ranks}: the fabric has {run.ranks} GPUs; accepted: up to {run.ranks}"
            )
        self._run, self._job = run, job
        self._called: dict[tuple[str, tuple[int, ...]], dict[int, list[str]]] = {}
        """By communicator and rank, what it has called."""
        self._selector = selectors.DefaultSelector()
        self.ranks: list[Rank] = []
        self.reason = ""
        """Why the job failed."""
        self._chain: list[str] = []
        """Who waited for whom then."""
        self._shown = 0
        """Bytes of rank 0's output that were said."""
        callers = [run.caller(f"rank{rank:06}") for rank in range(job.ranks)]
        run.main.close()
        pairs = [socket.socketpair() for _ in callers]
        self._processes = processes
        processes.begin(job.facts(job.folder, gloo=False), [theirs for _, theirs in pairs])
        for rank, (caller, (mine, theirs)) in enumerate(zip(callers, pairs, strict=True)):
            theirs.close()
            one = Rank(rank, Wire(mine), caller, job.folder / f"rank_{rank}.txt")
            one.silent_since = time.monotonic()
            self.ranks.append(one)
            self._selector.register(mine, selectors.EVENT_READ, one)

    def serve(self) -> str:
        """Until all ranks have ended; the run's digest. Raises LiveError."""
        try:
            while not all(one.ended for one in self.ranks):
                self._listen()
                if self._runs() or all(one.ended for one in self.ranks):
                    continue
                self._post()
                if not self._answer():
                    self._advance()
            digest = self._run.close()
        except StallError as error:
            self.reason = self.reason or self._who_is_missing() or str(error).splitlines()[0]
            self._tell_all(self.reason)
            raise LiveError("\n".join([self.reason, *str(error).splitlines()[1:]])) from None
        finally:
            self._end()
            self._show()
        if self.reason:
            raise LiveError("\n".join([self.reason, *self._chain]))
        return digest

    # ---- ranks

    def _listen(self) -> None:
        """Hear of the ranks that run."""
        for key, _ in self._selector.select(LOOK_S if self._runs() else 0):
            one: Rank = key.data
            try:
                there = one.wire.feed()
            except ConnectionError:
                there = False
            one.silent_since = time.monotonic()
            while not one.ended and (value := one.wire.frame()) is not None:
                self._take(one, value)
            if not there and not one.ended:
                self._left(one)
        self._show()
        for one in self.ranks:
            silent_s = time.monotonic() - one.silent_since
            if one.asked is None and not one.ended and silent_s > self._job.timeout_s:
                raise LiveError(
                    f"rank {one.number} has called nothing for {self._job.timeout_s:g} s of wall time; "
                    "accepted: a longer --timeout, where it computes for so long"
                )

    def _show(self) -> None:
        """Say what rank 0 has printed since."""
        output = self.ranks[0].output
        if output.exists() and output.stat().st_size > self._shown:
            with output.open("rb") as file:
                file.seek(self._shown)
                lines, end, _ = file.read().rpartition(b"\n")
            self._shown += len(lines) + len(end)
            for line in lines.decode("utf-8", "replace").splitlines():
                self._job.say(line)

    def _runs(self) -> bool:
        return any(one.asked is None and not one.ended for one in self.ranks)

    def _take(self, one: Rank, value: Any) -> None:
        kind, *values = value
        if kind == "call":
            number, fields = values
            fields[2] = tuple(fields[2])
            one.line.append((number, LiveCall(*fields)))
        elif kind in ("wait", "until"):
            one.asked = kind, values[0]
        else:
            self._close(one)

    def _left(self, one: Rank) -> None:
        """A rank is gone without a word."""
        status = self._processes.status(one.number, GRACE_S)
        self._close(one)
        raise LiveError(f"rank {one.number} ended with status {status}: {last_line(one.output)}")

    def _close(self, one: Rank) -> None:
        one.ended = True
        one.asked = None
        self._selector.unregister(one.wire.socket)
        for number, call in one.line:
            self._post_one(one, number, call)
        one.line.clear()
        one.caller.close()
        failed = failure_of(self._job.folder, one.number)
        if failed and not failed.get("library") and not self.reason:
            where = f":{failed['line']}" if failed["line"] else ""
            raise LiveError(f"{self._job.script[0]}{where}: rank {one.number} failed: {failed['reason']}")

    # ---- the run

    def _post(self) -> None:
        """Post what ranks have called, rank by rank."""
        for one in self.ranks:
            while one.line:
                self._post_one(one, *one.line.popleft())

    def _post_one(self, one: Rank, number: int, call: LiveCall) -> None:
        key = call.on, call.ranks
        said = self._called.setdefault(key, {})
        said.setdefault(one.number, []).append(call.what)
        turn = len(said[one.number])
        others = {each: what[turn - 1] for each, what in said.items() if len(what) >= turn}
        if any(what != call.what for what in others.values()):
            one.caller.unfinished += 1  # it waits for what nobody else has called
            self.reason = self.reason or self._mismatch(call, turn, others)
            return
        at_ps = max(call.at_ps, self._run.now_ps, one.caller.promise_ps)
        mine = one.caller.collective(
            call.op,
            call.size,
            call.ranks,
            at_ps,
            rank=one.number,
            on=call.on,
            algorithm=call.algorithm or AUTO,
            root=call.root,
            data=call.data if call.op != "barrier" else None,
            dtype=call.dtype,
            redop=call.redop,
        )
        one.numbers[mine] = number

    def _mismatch(self, call: LiveCall, turn: int, others: Mapping[int, str]) -> str:
        """Who called what, those who agree with fewer first."""
        counts = Counter(others.values())
        ranks = {what: [rank for rank in sorted(others) if others[rank] == what] for what in counts}
        ordered = sorted(ranks, key=lambda what: (len(ranks[what]), ranks[what]))
        told = "; ".join(f"{_named(ranks[what])} called {what}" for what in ordered)
        return f"ranks disagree about call {turn} of {_group(call)}: {told}"

    def _advance(self) -> None:
        """Step the run until a rank has an answer."""
        for one in self.ranks:
            if one.asked is not None and not one.caller._asked:
                kind, value = one.asked
                one.caller.ask(*((NEXT,) if kind == "wait" else (UNTIL, max(value, self._run.now_ps))))
        while not self._take_answers():
            if not self._run.step():
                raise RuntimeFailure("the ranks of a live run wait, and the run does not go on")

    def _take_answers(self) -> bool:
        """Take the answers to ranks; whether there were any."""
        found = False
        for one in self.ranks:
            if not one.ended and one.caller.answered():
                found = True
                answer = one.caller.answer()
                for done in answer if isinstance(answer, list) else [answer]:
                    self._note(one, done)
                while one.caller.inbox:
                    self._note(one, one.caller.take())
                if isinstance(answer, list):
                    one.wire.send(["by then", sorted(one.over)])
                    self._runs_again(one)
        return found

    def _note(self, one: Rank, done: Any) -> None:
        number = one.numbers.pop(done.number)
        one.done[number] = done.at_ps, done.status, b"" if done.data is None else done.data
        one.over.add(number)
        if done.status and not self.reason:
            why = STATUSES.get(done.status, f"failed with status {done.status}")
            missing = self._who_is_missing() if done.status == STATUS_TIMED_OUT else ""
            self.reason = f"{missing or f'a call of rank {one.number} {why}'}, at {shown_time(done.at_ps)}"
            self._chain = self._run.waits()

    def _answer(self) -> bool:
        """Answer ranks whose call is over; whether there were any."""
        found = False
        for one in self.ranks:
            if one.asked is not None and one.asked[0] == "wait" and one.asked[1] in one.done:
                one.wire.send(["done", *one.done.pop(one.asked[1])])
                self._runs_again(one)
                found = True
        return found

    def _runs_again(self, one: Rank) -> None:
        one.asked = None
        one.silent_since = time.monotonic()

    def _who_is_missing(self) -> str:
        """Which ranks have not called what others wait for, of the communicator that is furthest behind."""
        for (on, ranks), said in self._called.items():
            most = max(len(what) for what in said.values())
            behind = [rank for rank in ranks if len(said.get(rank, [])) < most]
            if behind:
                what = next(said[rank][most - 1] for rank in ranks if len(said.get(rank, [])) == most)
                ended = [rank for rank in behind if self.ranks[rank].ended]
                why = f", and {_named(ended)} {'has' if len(ended) == 1 else 'have'} ended" if ended else ""
                waits = [rank for rank in ranks if rank not in behind]
                wait = "waits" if len(waits) == 1 else "wait"
                return (
                    f"{_named(behind)} never called {what} (call {most} of {_name(on, ranks)}); "
                    f"{_named(waits)} {wait}{why}"
                )
        return ""

    def _tell_all(self, reason: str) -> None:
        """The last word to every rank that waits."""
        for one in self.ranks:
            if not one.ended:
                try:
                    one.wire.send(["over", reason])
                except OSError:
                    continue
        deadline = time.monotonic() + GRACE_S
        for one in self.ranks:
            self._processes.status(one.number, deadline - time.monotonic())

    def _end(self) -> None:
        """End what is left."""
        self._run.close()
        if all(one.ended for one in self.ranks):
            for one in self.ranks:
                self._processes.status(one.number, GRACE_S)
        self._processes.end()
        for one in self.ranks:
            one.wire.socket.close()
        self._selector.close()


def over_gloo(job: Job, processes: Processes, folder: Path) -> None:
    """The same script in processes that talk over gloo. Raises LiveError."""
    processes.begin(job.facts(folder, gloo=True))
    deadline = time.monotonic() + job.timeout_s
    try:
        for rank in range(job.ranks):
            status = processes.status(rank, deadline - time.monotonic())
            failed = [one for one in range(job.ranks) if failure_of(folder, one)]
            if status or failed:
                one = failed[0] if failed else rank
                raise LiveError(f"over gloo: rank {one} failed: {last_line(folder / f'rank_{one}.txt')}")
            if status is None:
                raise LiveError(
                    f"over gloo: the script was not over within {job.timeout_s:g} s; accepted: a longer "
                    "--timeout"
                )
    finally:
        processes.end()


def failure_of(folder: Path, rank: int) -> dict[str, Any]:
    """What a rank failed with; nothing if it did not."""
    file = folder / f"rank_{rank}.json"
    failed: dict[str, Any] = json.loads(file.read_text("utf-8"))["failed"] if file.exists() else {}
    return failed


def last_line(output: Path) -> str:
    """The last line that a rank printed."""
    lines = [line for line in output.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def _group(call: LiveCall) -> str:
    return _name(call.on, call.ranks)


def _name(on: str, ranks: Sequence[int]) -> str:
    if " " in on:
        return f"rank {ranks[0]} to rank {ranks[1]}"
    return (
        f"the group of ranks {', '.join(map(str, ranks))}"
        if len(ranks) <= 16
        else f"a group of {len(ranks)} ranks"
    )
