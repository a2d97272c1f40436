"""An open run: programs outside post transfers, collectives and computing, each at its own virtual time.

    run = emu.open("fabric.yaml")
    run.post(0, 8, "2MiB", at_ps=0)
    run.collective("all_reduce", "64MiB", range(16), at_ps=[0] * 16)
    while run.outstanding:
        done = run.next()
        print(done.number, done.at_ps)

Whoever posts is a *caller*. Time advances only to the earliest promise of any caller: one that waits for a
completion promises to post nothing before it has one, one that waits until a time promises that. So a
completion comes back at its own time, before anything later has happened anywhere, and what is posted then
may be posted for that very time. Posts of one time are taken in the order of callers' names and, of one
caller, in the order in which it posted them. The answer is a function of the posts and their virtual times: a
post that was known long before and one that answers a completion are the same post.

Nothing is pending, or only upkeep, or nothing has moved for `stall_after`, and somebody waits: that is a
stall, and whoever waits is told who waits for whom.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgpack  # type: ignore[import-untyped]  # it ships no types

from actors.gpu.memory import ELEMENT_BYTES, MOST_OFFSET_BYTES
from actors.host.open_posts import TELL_COMPLETED, TELL_DELIVERED
from actors.kernel.event import NEVER_PS
from actors.ncclx.graph import BARRIER_BYTES
from actors.ncclx.operations import (
    ALGORITHMS,
    BLOCKWISE,
    OPERATIONS,
    REDUCTIONS,
    ROOTED,
    TYPES,
    misfit,
)
from actors.ncclx.posted_payload import input_stretches
from emu.base.errors import EmuError, QuantityError, StallError, UsageError
from emu.base.spelling import did_you_mean, listed, shown
from emu.base.units import format_time, parse_size, parse_time
from emu.counts.digest import run_digest
from emu.devices.drawing import Blueprint
from emu.devices.open_site import CALL, COMPUTE, MOVE, Post
from emu.engine.blueprint import RunPlan, spread
from emu.engine.live.open_engine import Engine, LocalEngine, is_change
from emu.engine.recovery.snapshots import BrokenFile, fingerprint, read_file, sealed, write_file
from emu.engine.steering import Steering
from emu.engine.waiting import explain
from emu.scenario.fault_schedule import measured_hits
from emu.scenario.resolve import tuned
from emu.scenario.schema import Scenario
from emu.scenario.sections.graph import AUTO, DEFAULT, able, by_default
from emu.scenario.workloads.jobs import JobSection
from emu.workload.nccl_tuning import Choice

TELLS: Final = {
    "completed": TELL_COMPLETED,
    "delivered": TELL_DELIVERED,
    "both": TELL_COMPLETED | TELL_DELIVERED,
}
MAIN: Final = "main"
NEXT: Final = "next"
NEXT_BEFORE: Final = "next_before"
UNTIL: Final = "until"
LONGEST_PS: Final = 10**15
"""Longest computing, and how far ahead a post may be: 1,000 s."""
MOST_BYTES: Final = 1 << 45
CHUNK_PS: Final = 10**10
"""How often it is looked whether anything moves, unless `stall_after` is shorter."""


MOST_REPEATED: Final = 80
LONGEST_NAME: Final = 200
_KINDS: Final[dict[str, tuple[type, str]]] = {
    "root": (int, "the place of a rank in the group"),
    "each": (bool, "True or False"),
}
"""Types of named arguments that are no texts."""
FORMATS: Final = {
    "f": "fp32",
    "d": "fp64",
    "e": "fp16",
    "i": "int32",
    "q": "int64",
    "l": "int64",
    "b": "int8",
    "B": "uint8",
}
"""Types of elements by the letters of `struct`."""


class PastError(UsageError):
    """A caller posts for a time that is past."""


class FailedCall(EmuError):
    """A collective failed; `done` is its completion."""

    exit_status = 3

    def __init__(self, text: str, done: Completion) -> None:
        super().__init__(text)
        self.done = done


class Completion(NamedTuple):
    """Something that came of a post, at its own time."""

    number: int
    """What `post`, `collective` or `compute` returned."""
    kind: str
    """`completed`, or of a transfer also `delivered`: the last byte is there, and the receiver knows."""
    rank: int
    """Whose; -1 of a collective as a whole."""
    begun_ps: int
    at_ps: int
    status: int
    """0, or the status of the work completion (12: retries exceeded; 100: GPU lost; 101: host lost; 110: the
    watchdog gave up)."""
    data: Any = None
    """With `payload: real` the result of a collective: the bytes of `rank`, or where it is told of as a whole
    those of each rank, in the order of the group."""
    note: Any = None
    """What the caller gave along with the post."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.status == 0


@dataclass
class _Open:
    """A post that is not over."""

    number: int
    caller: Caller
    kind: int
    note: Any
    left: int
    """How many completions are still to come."""
    tell: int = 0
    source: int = -1
    each: bool = False
    begun_ps: int = int(NEVER_PS)
    end_ps: int = 0
    status: int = 0
    applied: int = -1
    """Its number among the posts that were done, once it is."""
    cancelled: bool = False
    """Whether it was taken back before its time."""
    ranks: list[int] = field(default_factory=list)
    """Of a collective, in the order of the group."""
    results: list[Any] = field(default_factory=list)
    """Rank and result of the parts of a collective that are over, where it is told of as a whole."""


_SAVED: Final = (
    "number",
    "kind",
    "left",
    "tell",
    "source",
    "each",
    "begun_ps",
    "end_ps",
    "status",
    "applied",
    "ranks",
    "results",
)
"""What a state has of an `_Open`; the caller and the note are not in it."""


class _Entry(NamedTuple):
    """A post, or the part of one rank, that waits for its time."""

    at_ps: int
    caller: str
    turn: int
    post: Post
    open_post: _Open


Asked = tuple[str, int, str, int, str, str]
"""Operation, bytes, algorithm, root, type, reduction."""


@dataclass
class _Call:
    """A collective of a communicator, of which ranks may post their parts by themselves."""

    number: int
    what: Asked
    choice: Choice
    open_post: _Open


class Caller:
    """One program that posts. A run's own methods are those of its caller `main`."""

    def __init__(self, run: OpenRun, name: str) -> None:
        self.name = name
        self.promise_ps = 0
        """It posts nothing before this time."""
        self._asked = ""
        """What it waits for: with `NEXT` and `NEXT_BEFORE` it posts nothing before it has a completion."""
        self._asked_ps = int(NEVER_PS)
        self.inbox: deque[Completion] = deque()
        """What came and it has not taken."""
        self.unfinished = 0
        """Posts of which something is still to come."""
        self.ended_ps = -1
        """When it ended, or was ended; -1 while it is there."""
        self.posted = 0
        """How many posts, or parts of ranks, it has made."""
        self._run = run

    @property
    def outstanding(self) -> int:
        """Posts of which something is still to come, and what came and was not taken."""
        return self.unfinished + len(self.inbox)

    # ---- posts

    def post(
        self,
        src: int,
        dst: int,
        size: int | str,
        at_ps: int | None = None,
        qp: str = "",
        tell: str = "completed",
        note: Any = None,
    ) -> int:
        """A transfer of so many bytes from one rank to another, at a time, or now. Returns its number.

        Transfers of one name `qp` between two ranks share a queue pair, and go one after another. `tell` is
        which completions come back: `completed` at the sender, `delivered` at the receiver, or `both`.
        """
        run = self._run
        what = f"post({shown(src)}, {shown(dst)}, {_short(size)})"
        _check_types(what, qp=qp, tell=tell)
        at = self._at(what, at_ps)
        for rank in (src, dst):
            run.check_rank(what, rank)
        if src == dst:
            raise UsageError(f"{what}: rank {src} sends to itself; accepted: two ranks")
        bytes_ = _size(what, size)
        if tell not in TELLS:
            raise UsageError(f"{what}: tell={tell!r}; accepted: {listed(tuple(TELLS))}")
        reported = TELLS[tell]
        open_post = self._opened(MOVE, note, 2 if tell == "both" else 1, reported, src)
        self._line_up(at, [MOVE, 0, src, dst, bytes_, str(qp), reported], open_post)
        return open_post.number

    def compute(self, rank: int, duration: int | str, at_ps: int | None = None, note: Any = None) -> int:
        """Computing on the GPU of a rank: so many ps, or a time with its unit. One after another."""
        what = f"compute({shown(rank)}, {_short(duration)})"
        at = self._at(what, at_ps)
        self._run.check_rank(what, rank)
        duration_ps = _time(what, duration)
        open_post = self._opened(COMPUTE, note, 1, 0, rank)
        self._line_up(at, [COMPUTE, 0, rank, duration_ps], open_post)
        return open_post.number

    def collective(
        self,
        op: str,
        size: int | str,
        ranks: Sequence[int],
        at_ps: int | Sequence[int] | None = None,
        *,
        rank: int | None = None,
        on: str = "",
        algorithm: str = AUTO,
        root: int = 0,
        each: bool = False,
        note: Any = None,
        data: Any = None,
        dtype: str = "fp32",
        redop: str = "sum",
    ) -> int:
        """A collective among ranks, each at its own time (or all at one, or now). Returns its number.

        With `rank` only that rank's part is posted: others post theirs, with the same number, and each is
        told of its own end. `on` names one of several communicators of the same ranks. With `each`, every
        rank's end is reported. `data` is the input of each rank, in the order of `ranks` (of `rank`, its
        own), as bytes of elements of `dtype`: a run with `payload: real` sends and reduces them. Without it
        they are zeros.
        """
        run = self._run
        try:
            group = tuple(ranks)
        except TypeError:
            raise UsageError(
                f"collective({shown(op)}, {_short(size)}): ranks={shown(ranks)}; accepted: a list of ranks"
            ) from None
        what = f"collective({shown(op)}, {_short(size)}, {_few(group)})"
        _check_types(what, op=op, on=on, algorithm=algorithm, root=root, each=each, dtype=dtype, redop=redop)
        if op not in OPERATIONS or op in ("sendrecv", "all_to_allv"):
            accepted = listed([one for one in OPERATIONS if one not in ("sendrecv", "all_to_allv")])
            raise UsageError(
                f"{what}: there is no such operation{did_you_mean(op, OPERATIONS)}; accepted: {accepted}"
            )
        for one in group:
            run.check_rank(what, one)
        if len(group) < 2 or len(set(group)) != len(group):
            raise UsageError(f"{what}: accepted: at least two ranks, each once")
        if rank is not None and (not _is_whole(rank) or rank not in group):
            raise UsageError(f"{what}: rank {rank} is not among them; accepted: one of {_few(group)}")
        if not 0 <= root < len(group) or (root and op not in ROOTED):
            accepted = f"0 to {len(group) - 1}" if op in ROOTED else f"none: {op} has no root"
            raise UsageError(f"{what}: root={root}; accepted: {accepted}")
        bytes_ = BARRIER_BYTES if op == "barrier" else _size(what, size)
        choice = run.choice(what, op, bytes_, group, algorithm)
        members = group if rank is None else (rank,)
        inputs = run.inputs(what, op, bytes_, root, group, members, data, dtype, redop)
        if isinstance(at_ps, str | bytes) or not isinstance(at_ps, Sequence):
            times = [self._at(what, at_ps)] * len(members)
        else:
            given = list(at_ps)
            if len(given) != len(members):
                raise UsageError(
                    f"{what}: {len(given)} times; accepted: one for each of {len(members)} ranks"
                )
            times = [self._at(what, one) for one in given]
        asked = (op, bytes_, algorithm, root, dtype, redop)
        call = run.call(self, what, asked, choice, group, on, members, note, each, rank)
        common = [on, op, choice.algorithm, choice.protocol, choice.channels, bytes_, root, list(group)]
        for member, at, brought in zip(members, times, inputs, strict=True):
            self._line_up(at, [CALL, 0, member, *common, dtype, redop, brought], call.open_post)
        return call.open_post.number

    def carry(
        self,
        op: str,
        buffers: Sequence[Any],
        ranks: Sequence[int] | None = None,
        *,
        at_ps: int | Sequence[int] | None = None,
        on: str = "",
        algorithm: str = AUTO,
        root: int = 0,
        dtype: str | None = None,
        redop: str = "sum",
    ) -> list[Any]:
        """Do a collective on these buffers, one for each of `ranks` (all, unless given): post it, go on to
        its end, and return each rank's result. Raises UsageError, and FailedCall.

        The run has `payload: real`. Buffers are bytes (`dtype` says of what; else uint8) or have elements of
        a type: numpy's arrays, `array.array`. Results are bytes, or memoryviews of the same type.
        """
        group = tuple(range(self._run.ranks)) if ranks is None else tuple(ranks)
        what = f"{op} of {len(buffers)} buffers"
        views = [_view(what, one) for one in buffers]
        kinds = {view.format for view in views if view.nbytes} or {"B"}
        if len(kinds) > 1:
            raise UsageError(f"{what}: elements of formats {listed(sorted(kinds))}; accepted: one type")
        layout = kinds.pop()
        kind = dtype or FORMATS.get(layout)
        if kind is None:
            raise UsageError(f"{what}: elements of format {layout!r}; accepted: {listed(tuple(FORMATS))}")
        most = max((view.nbytes for view in views), default=0)
        size = most * len(group) if op in ("all_gather", "gather") else most
        number = self.collective(
            op,
            size or 1,
            group,
            at_ps,
            on=on,
            algorithm=algorithm,
            root=root,
            data=[view.cast("B") if view.nbytes else b"" for view in views],
            dtype=kind,
            redop=redop,
        )
        before: list[Completion] = []
        done = self.next()
        while done.number != number:
            before.append(done)
            done = self.next()
        self.inbox.extendleft(reversed(before))
        if done.status:
            raise FailedCall(f"{what} failed with status {done.status} at {format_time(done.at_ps)}", done)
        plain = layout == "e" or all(isinstance(one, bytes | bytearray) for one in buffers)
        return [one if plain else memoryview(one).cast(layout) for one in done.data]  # type: ignore[call-overload]

    def cancel(self, number: int) -> bool:
        """Take back a post whose time has not come; whether it could be."""
        if not _is_whole(number):
            raise UsageError(f"cancel({shown(number)}): accepted: the number of a post")
        return self._run.take_back(self, number)

    # ---- time

    def promise(self, no_sooner_ps: int) -> None:
        """Nothing is posted for a time before this."""
        self._not_ended("promise")
        if not _is_whole(no_sooner_ps) or no_sooner_ps > NEVER_PS:
            raise UsageError(f"promise({shown(no_sooner_ps)}): accepted: a whole number of ps")
        if no_sooner_ps < self.promise_ps:
            raise UsageError(
                f"promise({no_sooner_ps}): promised no sooner than {self.promise_ps} ps already; "
                f"accepted: {self.promise_ps} or later"
            )
        self.promise_ps = no_sooner_ps

    def next(self) -> Completion:
        """The next completion of this caller's posts, at its own time."""
        done: Completion = self._wait(NEXT)
        return done

    def next_before(self, at_ps: int) -> Completion | None:
        """The next completion before a time, at its own time; None if there is none, at that time."""
        done: Completion | None = self._wait(NEXT_BEFORE, at_ps)
        return done

    def until(self, at_ps: int) -> list[Completion]:
        """Go on to a time: what has come by then and was not taken."""
        found: list[Completion] = self._wait(UNTIL, at_ps)
        return found

    def _wait(self, what: str, *times_ps: int) -> Any:
        self.ask(what, *times_ps)
        try:
            self._run.go(self.answered, self)
        except BaseException:
            self._asked = ""
            raise
        return self.answer()

    def ask(self, what: str, *times_ps: int) -> None:
        """Begin to wait, in one of three ways, for `answer` to be there. Raises UsageError."""
        self._not_ended(what)
        if what == NEXT:
            if times_ps:
                raise UsageError(f"next({times_ps[0]}): accepted: next() alone, or next_before(AT_PS)")
            if not self.outstanding:
                raise UsageError("next(): nothing is outstanding; accepted: after a post")
            self._asked_ps = int(NEVER_PS)
        else:
            if len(times_ps) != 1 or not _is_whole(times_ps[0]) or times_ps[0] > NEVER_PS:
                given = ", ".join(map(shown, times_ps))
                raise UsageError(f"{what}({given}): accepted: a whole number of ps")
            if times_ps[0] < self._run.now_ps:
                now_ps = self._run.now_ps
                raise UsageError(
                    f"{what}({times_ps[0]}): the run is at {now_ps} ps; accepted: {now_ps} ps or later"
                )
            (self._asked_ps,) = times_ps
        if what == UNTIL:
            self.promise_ps = max(self.promise_ps, self._asked_ps)
        self._asked = what

    @property
    def waits(self) -> bool:
        """Whether it waits for something."""
        return bool(self._asked)

    def answered(self) -> bool:
        """Whether what it waits for is there."""
        there = bool(self.inbox) and self._asked != UNTIL
        return bool(self._asked) and (there or self._run.now_ps >= self._asked_ps)

    def answer(self) -> Any:
        """What it waited for: a completion, None, or a list."""
        asked, self._asked = self._asked, ""
        if asked == UNTIL:
            found = list(self.inbox)
            self.inbox.clear()
            return found
        return self.take() if self.inbox and self.inbox[0].at_ps < self._asked_ps else None

    def take(self) -> Completion:
        """The first completion that came; nothing is posted before its time any more."""
        done = self.inbox.popleft()
        self.promise_ps = max(self.promise_ps, done.at_ps)
        return done

    def close(self) -> None:
        """Post nothing any more. What is outstanding goes on, and nobody is notified."""
        if self.ended_ps < 0:
            self.ended_ps = max(self.promise_ps, self._run.now_ps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for the run

    def bound_ps(self) -> int:
        """Up to when nothing comes from it."""
        if self.ended_ps >= 0:
            return int(NEVER_PS)
        return self._asked_ps if self._asked in (NEXT, NEXT_BEFORE) and not self.inbox else self.promise_ps

    def _at(self, what: str, at_ps: Any) -> int:
        self._not_ended(what)
        run = self._run
        soonest_ps = max(self.promise_ps, run.now_ps)
        if at_ps is None:
            return soonest_ps
        if not _is_whole(at_ps):
            raise UsageError(f"{what}: at_ps={shown(at_ps)}; accepted: a whole number of ps")
        if at_ps < soonest_ps:
            raise PastError(f"{what}: {at_ps} ps is in the past; accepted: {soonest_ps} ps or later")
        if at_ps > soonest_ps + LONGEST_PS:
            raise UsageError(
                f"{what}: {at_ps} ps is too far ahead; accepted: up to {soonest_ps + LONGEST_PS} ps"
            )
        return int(at_ps)

    def _not_ended(self, what: str) -> None:
        if self.ended_ps >= 0 or self._run.closed:
            raise UsageError(f"{what}: caller {self.name} is closed; accepted: before close()")

    def _opened(self, kind: int, note: Any, left: int, tell: int = 0, source: int = -1) -> _Open:
        self._run.numbered += 1
        self.unfinished += 1
        return _Open(self._run.numbered, self, kind, note, left, tell, source)

    def _line_up(self, at_ps: int, post: Post, open_post: _Open) -> None:
        self.posted += 1
        self._run.line_up(_Entry(at_ps, self.name, self.posted, post, open_post))


class OpenRun:
    """A run whose open job does what callers post. Its own methods are those of its caller `main`."""

    def __init__(self, plan: RunPlan, engine: Engine, *, begins: bool = True) -> None:
        scenario = plan.scenario
        self._plan = plan
        self._job = open_job(scenario)
        self.gpus = plan.blueprint.resolved.jobs[self._job].gpus
        self._engine = engine
        self._steering = Steering(scenario, plan.topology)
        self._callers: dict[str, Caller] = {}
        self._heap: list[_Entry] = []
        self._waiting: dict[int, _Open] = {}
        """Transfers and computing whose time has not come, by number."""
        self._by_applied: dict[int, _Open] = {}
        """Posts that were done and are not over, by their numbers there."""
        self._applied = 0
        self._ledger: list[tuple[int, Post]] = []
        """What was done, by time, and what changed."""
        self._calls: dict[tuple[str, tuple[int, ...]], list[_Call]] = {}
        self._next_call: dict[tuple[str, tuple[int, ...], int], int] = {}
        """By communicator and rank, which of its calls the rank posts next."""
        self._owners: dict[tuple[int, int], Caller] = {}
        """Who posted the part of a rank, by the number of the collective and the rank."""
        self._chosen: dict[tuple[str, int, tuple[int, ...], str], Choice] = {}
        self.numbered = 0
        self.closed = False
        self._digest = ""
        """Digest of a closed run."""
        every_ps = scenario.stall_after_ps or CHUNK_PS
        self._look_ps = min(every_ps, CHUNK_PS)
        self._moved_ps = 0
        self._progress = -1
        self._stall_after_ps = every_ps
        self._max_time_ps = scenario.run.max_time_ps
        self.main = self._callers[MAIN] = Caller(self, MAIN)
        if begins:
            self._engine.start()

    # ---- what a run is asked

    @property
    def now_ps(self) -> int:
        """Everything before was executed, and nothing after it."""
        return self._engine.now_ps

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.gpus)

    def server_of(self, rank: int) -> int:
        """The number of the server on which a rank is."""
        return self._plan.topology.host_of(self.gpus[rank])

    @property
    def outstanding(self) -> int:
        """See `Caller.outstanding`."""
        return self.main.outstanding

    def caller(self, name: str) -> Caller:
        """A new caller; names order what callers post for one time. Raises UsageError."""
        if self.closed:
            raise UsageError(f"caller({name!r}): the run is closed; accepted: before close()")
        if name in self._callers:
            raise UsageError(f"caller({name!r}): there is one of that name; accepted: another name")
        made = self._callers[name] = Caller(self, name)
        made.promise_ps = self.now_ps
        return made

    def post(self, *args: Any, **keys: Any) -> int:
        """See `Caller.post`."""
        return self.main.post(*args, **keys)

    def collective(self, *args: Any, **keys: Any) -> int:
        """See `Caller.collective`."""
        return self.main.collective(*args, **keys)

    def carry(self, op: str, buffers: Sequence[Any], *args: Any, **keys: Any) -> list[Any]:
        """See `Caller.carry`."""
        return self.main.carry(op, buffers, *args, **keys)

    def all_reduce(self, buffers: Sequence[Any], **keys: Any) -> list[Any]:
        """Every rank's buffer reduced with all others: see `Caller.carry`."""
        return self.carry("all_reduce", buffers, **keys)

    def all_gather(self, buffers: Sequence[Any], **keys: Any) -> list[Any]:
        """All ranks' buffers, one after another, at every rank: see `Caller.carry`."""
        return self.carry("all_gather", buffers, **keys)

    def reduce_scatter(self, buffers: Sequence[Any], **keys: Any) -> list[Any]:
        """Of the reduced buffer one block for each rank: see `Caller.carry`."""
        return self.carry("reduce_scatter", buffers, **keys)

    def all_to_all(self, buffers: Sequence[Any], **keys: Any) -> list[Any]:
        """Block by block what every rank has for the others: see `Caller.carry`."""
        return self.carry("all_to_all", buffers, **keys)

    def broadcast(self, buffer: Any, root: int = 0, **keys: Any) -> list[Any]:
        """A buffer of one rank at every rank: see `Caller.carry`."""
        ranks = self.ranks if keys.get("ranks") is None else len(keys["ranks"])
        buffers = [buffer if place == root else b"" for place in range(ranks)]
        return self.carry("broadcast", buffers, root=root, **keys)

    def send(self, src: int, dst: int, buffer: Any, **keys: Any) -> Any:
        """A buffer from one rank to another; what arrived. See `Caller.carry`."""
        return self.carry("broadcast", [buffer, b""], (src, dst), algorithm="direct", **keys)[1]

    def compute(self, *args: Any, **keys: Any) -> int:
        """See `Caller.compute`."""
        return self.main.compute(*args, **keys)

    def cancel(self, number: int) -> bool:
        """See `Caller.cancel`."""
        return self.main.cancel(number)

    def next(self) -> Completion:
        """See `Caller.next`."""
        return self.main.next()

    def next_before(self, at_ps: int) -> Completion | None:
        """See `Caller.next_before`."""
        return self.main.next_before(at_ps)

    def until(self, at_ps: int) -> list[Completion]:
        """See `Caller.until`."""
        return self.main.until(at_ps)

    def inject(self, fault: Mapping[str, object]) -> int:
        """A fault, with the keys that it has in a scenario but `at`, now: behind all that has happened.
        Returns its number. Raises UsageError.
        """
        return self._change(lambda: self._steering.inject(fault))

    def clear(self, number: int) -> None:
        """End a fault that lasts, now. Raises UsageError."""
        self._steering.virtual_ps = self._engine.through_ps
        self._change(lambda: self._steering.clear(number))

    def _change(self, order: Any) -> int:
        if self.closed:
            raise UsageError("inject(): the run is closed; accepted: before close()")
        asked = order()
        taken = self._steering.take()
        assert taken is not None, asked
        _, text, _ = taken
        if "busiest" in json.loads(text).get("inject", {}).get("target", ""):
            raise UsageError("inject(): an open run measures no load; accepted: the name of a link or device")
        at_ps = self._engine.through_ps
        self._engine.change(text)
        self._ledger.append((at_ps, [text]))
        self._steering.made(at_ps)
        return int(asked.fault)

    def digest(self) -> str:
        """What the devices have done so far, mixed; of a closed run, the run's digest."""
        return self._digest or run_digest(self._engine.records())

    def close(self) -> str:
        """End the run here; its digest. What is outstanding is lost."""
        if not self.closed:
            for caller in self._callers.values():
                caller.close()
            self.closed = True
            try:
                self._digest = self.digest()
            finally:
                self._engine.close()
        return self._digest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fork(self) -> OpenRun:
        """The same run once more, from here on, with the caller `main` and all that it has outstanding."""
        self._check_alone("fork")
        twin = OpenRun(self._plan, self._engine.twin(), begins=False)
        twin._restore(self._state(), self._engine.save(), self._notes())
        return twin

    def save(self, path: str | Path) -> None:
        """Write the run to a file, from which `emu.open(.., resume=path)` goes on. The run itself goes on,
        too. Raises UsageError.
        """
        self._check_alone("save")
        notes = self._notes()
        for number, note in notes.items():
            try:
                msgpack.packb(note)
            except (TypeError, ValueError, OverflowError):
                raise UsageError(
                    f"save(): the note of post {number} is a {type(note).__name__}; accepted: None, numbers, "
                    "texts, bytes, and lists and mappings of these"
                ) from None
        body = {
            "scenario": fingerprint(self._plan.scenario),
            "state": self._state(),
            "devices": self._engine.save(),
            "notes": list(notes.items()),
        }
        try:
            write_file(Path(path), sealed(body))
        except OSError as error:
            raise UsageError(f"save({str(path)!r}): {error.strerror}; accepted: a writable path") from None

    def _check_alone(self, what: str) -> None:
        if self.closed:
            raise UsageError(f"{what}(): the run is closed; accepted: before close()")
        others = [one.name for one in self._callers.values() if one is not self.main and one.ended_ps < 0]
        if others:
            raise UsageError(
                f"{what}(): caller {others[0]} posts too; accepted: a run with caller main alone"
            )

    def _notes(self) -> dict[int, Any]:
        """The notes of what is outstanding, by number."""
        posts = {one.number: one.note for one in self._known()}
        return posts | {done.number: done.note for done in self.main.inbox}

    def _known(self) -> list[_Open]:
        """Every post that a state names."""
        found = {one.number: one for one in self._by_applied.values()}
        found |= {one.open_post.number: one.open_post for one in self._heap if not one.open_post.cancelled}
        for calls in self._calls.values():
            found |= {one.open_post.number: one.open_post for one in calls}
        return list(found.values())

    def _state(self) -> list[Any]:
        """All that the run knows besides its devices and notes, as plain lists."""
        mine = self.main
        return [
            [[at_ps, list(post)] for at_ps, post in self._ledger],
            [self.now_ps, self._engine.through_ps],
            [[one.name, one.ended_ps] for one in self._callers.values() if one is not mine],
            [[one.caller.name, *(getattr(one, name) for name in _SAVED)] for one in self._known()],
            [
                [one.at_ps, one.caller, one.turn, list(one.post), one.open_post.number]
                for one in self._heap
                if not one.open_post.cancelled
            ],
            [[applied, one.number] for applied, one in self._by_applied.items()],
            [
                [on, list(ranks), [[one.number, list(one.what), list(one.choice)] for one in calls]]
                for (on, ranks), calls in self._calls.items()
            ],
            [[on, list(ranks), rank, turn] for (on, ranks, rank), turn in self._next_call.items()],
            [[*key, owner.name] for key, owner in self._owners.items()],
            [self._applied, self.numbered, self._moved_ps, self._progress],
            [mine.promise_ps, mine.unfinished, mine.posted, [list(done[:-1]) for done in mine.inbox]],
        ]

    def _restore(self, state: Sequence[Any], devices: list[Any], notes: Mapping[int, Any]) -> None:
        """Take a state, in place of the start."""
        ledger, now, callers, posts, heap, by_applied, calls, turns, owners, counts, main = state
        self._ledger = [(at_ps, post) for at_ps, post in ledger]
        for at_ps, post in self._ledger:
            if is_change(post):
                self._replay_change(post[0], at_ps)
        self._engine.restore(self._ledger, devices, (now[0], now[1]))
        mine = self.main
        for name, ended_ps in callers:
            self._callers[name] = Caller(self, name)
            self._callers[name].ended_ps = ended_ps
        known: dict[int, _Open] = {}
        for name, *values in posts:
            fields = dict(zip(_SAVED, values, strict=True))
            number = fields["number"]
            known[number] = _Open(caller=self._callers[name], note=notes.get(number), **fields)
        self._heap = [
            _Entry(at_ps, name, turn, post, known[number]) for at_ps, name, turn, post, number in heap
        ]
        heapq.heapify(self._heap)
        for entry in self._heap:
            self._await_time(entry)
        self._by_applied = {applied: known[number] for applied, number in by_applied}
        for on, ranks, made in calls:
            self._calls[on, tuple(ranks)] = [
                _Call(number, (*what,), Choice(*choice), known[number]) for number, what, choice in made
            ]
        self._next_call = {(on, tuple(ranks), rank): turn for on, ranks, rank, turn in turns}
        self._owners = {(number, rank): self._callers[name] for number, rank, name in owners}
        self._applied, self.numbered, self._moved_ps, self._progress = counts
        mine.promise_ps, mine.unfinished, mine.posted, inbox = main
        mine.inbox = deque(Completion(*done)._replace(note=notes.get(done[0])) for done in inbox)

    def _replay_change(self, text: str, at_ps: int) -> None:
        change = json.loads(text)
        if "inject" in change:
            self._steering.inject(change["inject"])
        else:
            self._steering.virtual_ps = at_ps
            self._steering.clear(change["clear"])
        self._steering.take()
        self._steering.made(at_ps)

    # ---- for callers

    def check_rank(self, what: str, rank: int) -> None:
        """Raises UsageError if there is no such rank."""
        if not _is_whole(rank) or not 0 <= rank < len(self.gpus):
            raise UsageError(f"{what}: there is no rank {shown(rank)}; accepted: 0 to {len(self.gpus) - 1}")

    def choice(self, what: str, op: str, size_bytes: int, ranks: tuple[int, ...], algorithm: str) -> Choice:
        """How a collective is done. Raises UsageError."""
        key = op, size_bytes, ranks, algorithm
        known = self._chosen.get(key)
        if known is not None:
            return known
        names = (AUTO, DEFAULT, *able(op))
        if algorithm not in names:
            reason = (
                f"{algorithm!r} does no {op}"
                if algorithm in ALGORITHMS
                else f"there is no algorithm {algorithm!r}"
            )
            raise UsageError(f"{what}: {reason}{did_you_mean(algorithm, names)}; accepted: {listed(names)}")
        topology = self._plan.topology
        gpus = [self.gpus[rank] for rank in ranks]
        if algorithm == DEFAULT:
            found = Choice(by_default(op))
        else:
            found = tuned(self._plan.scenario, self._job, topology, [gpus], op, size_bytes, algorithm)
        wrong = misfit(found.algorithm, [topology.host_of(gpu) for gpu in gpus])
        if wrong is not None:
            raise UsageError(f"{what}: {wrong[0]}; accepted: {wrong[1]}")
        self._chosen[key] = found
        return found

    def inputs(
        self,
        what: str,
        op: str,
        size_bytes: int,
        root: int,
        ranks: tuple[int, ...],
        members: Sequence[int],
        data: Any,
        dtype: str,
        redop: str,
    ) -> list[bytes | None]:
        """The bytes that each of `members` brings to a collective. Raises UsageError."""
        for word, names, key in ((dtype, TYPES, "dtype"), (redop, REDUCTIONS, "redop")):
            if word not in names:
                raise UsageError(
                    f"{what}: {key}={word!r}{did_you_mean(str(word), names)}; accepted: {listed(names)}"
                )
        if self._plan.scenario.payload != "real":
            if data is not None:
                raise UsageError(f"{what}: the run sends sizes only; accepted: no data, or `payload: real`")
            return [None] * len(members)
        width = 1 if op == "barrier" else ELEMENT_BYTES[dtype]
        blocks = len(ranks) if op in BLOCKWISE else 1
        if size_bytes % (width * blocks):
            raise UsageError(f"{what}: {size_bytes} B; accepted: a multiple of {width * blocks} B")
        if size_bytes > MOST_OFFSET_BYTES:
            raise UsageError(f"{what}: {size_bytes} B; accepted: up to {MOST_OFFSET_BYTES} B of real payload")
        if data is None:
            return [None] * len(members)
        given = [data] if len(members) == 1 and not isinstance(data, list | tuple) else list(data)
        if len(given) != len(members):
            raise UsageError(f"{what}: {len(given)} inputs; accepted: one for each of {len(members)} ranks")
        found: list[bytes | None] = []
        for member, one in zip(members, given, strict=True):
            place = ranks.index(member)
            size = sum(row[2] for row in input_stretches(op, len(ranks), size_bytes, root, place))
            held = b"" if one is None else bytes(one)
            if len(held) != size and (held or size):
                raise UsageError(f"{what}: rank {member} brings {len(held)} B; accepted: {size} B")
            found.append(held)
        return found

    def _in_order(self, open_post: _Open) -> list[bytes] | None:
        """The results of a collective that is over, in the order of its group."""
        by_rank = dict(open_post.results)
        return [by_rank.get(rank, b"") for rank in open_post.ranks] if by_rank else None

    def call(
        self,
        caller: Caller,
        what: str,
        asked: Asked,
        choice: Choice,
        ranks: tuple[int, ...],
        on: str,
        members: Sequence[int],
        note: Any,
        each: bool,
        rank: int | None,
    ) -> _Call:
        """The next collective of a communicator for these members: a new one, or one that others posted their
        parts of. Raises UsageError if they disagree."""
        calls = self._calls.setdefault((on, ranks), [])
        turns = [self._next_call.get((on, ranks, member), 0) for member in members]
        for member, turn in zip(members, turns, strict=True):
            if turn < len(calls) and (calls[turn].what != asked or rank is None):
                op, size_bytes, algorithm, root, dtype, redop = calls[turn].what
                mine = (
                    f"collective({op!r}, {size_bytes}, {_few(ranks)}, algorithm={algorithm!r}, root={root}, "
                    f"dtype={dtype!r}, redop={redop!r})"
                )
                raise UsageError(
                    f"{what}: rank {member} disagrees with call {turn} of the communicator; accepted: {mine}"
                )
        if min(turns) != max(turns):
            behind = members[turns.index(min(turns))]
            raise UsageError(
                f"{what}: rank {behind} has not posted call {min(turns)} yet; accepted: rank={behind}"
            )
        turn = turns[0]
        if turn == len(calls):
            open_post = caller._opened(CALL, note, len(ranks))
            open_post.each = rank is not None or each
            open_post.ranks = list(ranks)
            if rank is not None:
                caller.unfinished -= 1  # each part counts by itself
            calls.append(_Call(open_post.number, asked, choice, open_post))
        for member in members:
            self._next_call[on, ranks, member] = turn + 1
            if rank is not None:
                self._owners[calls[turn].open_post.number, member] = caller
                caller.unfinished += 1
        return calls[turn]

    def line_up(self, entry: _Entry) -> None:
        """Let a post wait for its time."""
        heapq.heappush(self._heap, entry)
        self._await_time(entry)

    def _await_time(self, entry: _Entry) -> None:
        if entry.open_post.kind != CALL:
            self._waiting[entry.open_post.number] = entry.open_post

    def take_back(self, caller: Caller, number: int) -> bool:
        """Take back a post whose time has not come, if that is all of it."""
        open_post = self._waiting.get(number)
        if open_post is None or open_post.caller is not caller:
            return False
        del self._waiting[number]
        open_post.cancelled = True  # its entry is dropped when it comes to the top
        caller.unfinished -= 1
        return True

    def _next_post_ps(self) -> int:
        """The time of the first post that waits for its time; NEVER_PS if none does."""
        heap = self._heap
        while heap and heap[0].open_post.cancelled:
            heapq.heappop(heap)
        return heap[0].at_ps if heap else int(NEVER_PS)

    def go(self, ready: Any, caller: Caller) -> None:
        """Advance until a caller has what it waits for. Raises Stalled, and UsageError if another one holds
        it up."""
        while not ready():
            if not self.step():
                holder = min(
                    (one for one in self._callers.values() if one is not caller),
                    key=lambda one: (one.bound_ps(), one.name),
                )
                raise UsageError(
                    f"caller {caller.name} waits, and {holder.name} may still post at {self.now_ps} ps; "
                    f"accepted: its promise(), next(), until() or close() first"
                )

    def step(self) -> bool:
        """Advance a little: to something that is reported, to a post's time, or as far as callers
        promise. False if they promise nothing."""
        limit_ps = min([caller.bound_ps() for caller in self._callers.values()], default=int(NEVER_PS))
        engine, heap = self._engine, self._heap
        while self._next_post_ps() <= engine.now_ps < limit_ps:
            self._apply(heapq.heappop(heap))
        if limit_ps <= engine.now_ps:
            return False
        target_ps = min(limit_ps, self._next_post_ps())
        looks = target_ps > engine.now_ps + self._look_ps
        if looks:
            idle_until_ps = engine.next_ps()
            if idle_until_ps == NEVER_PS or idle_until_ps < engine.now_ps:
                idle_until_ps = engine.now_ps
            target_ps = min(target_ps, idle_until_ps + self._look_ps)
        if target_ps >= self._max_time_ps:
            raise StallError(
                f"run.max_time ({format_time(self._max_time_ps)}) passed with {len(self._by_applied)} posts "
                "outstanding; accepted: a longer run.max_time"
            )
        reported = engine.advance(target_ps)
        if reported:
            self._moved_ps = engine.now_ps
            reported.sort()
            for row in reported:
                self._tell(row)
        elif looks:
            self._look(limit_ps)
        return True

    def _look(self, limit_ps: int) -> None:
        """Look whether anything moves, where somebody waits for a completion. Raises StallError."""
        engine = self._engine
        outlook, posts_wait = engine.outlook(), self._next_post_ps() < NEVER_PS
        if outlook.progress != self._progress or outlook.promises or posts_wait:
            self._progress, self._moved_ps = outlook.progress, engine.now_ps
        idle = outlook.work == 0 or engine.now_ps - self._moved_ps >= self._stall_after_ps
        if idle and limit_ps >= NEVER_PS and not posts_wait:
            raise StallError("\n".join([self._stall_line(), *self.waits()]))

    def _stall_line(self) -> str:
        return (
            f"the fabric stalled: at {format_time(self.now_ps)} {len(self._by_applied)} posts are outstanding"
            " and nothing moves"
        )

    def waits(self) -> list[str]:
        """Who waits for whom, a line each."""
        return explain(sorted(self._engine.waits()), self._plan.topology)

    def _apply(self, entry: _Entry) -> None:
        """Do what was posted for now."""
        open_post = entry.open_post
        if open_post.applied < 0:
            open_post.applied = self._applied
            self._waiting.pop(open_post.number, None)
            self._applied += 1
            self._by_applied[open_post.applied] = open_post
        post = list(entry.post)
        post[1] = open_post.applied
        kept = [*post[:-1], None] if post[0] == CALL else post  # the devices' state has what it carried
        self._ledger.append((self._engine.now_ps, kept))
        self._engine.post(post)

    def _tell(self, row: list[Any]) -> None:
        """Tell a caller what came of a post."""
        applied, rank, begun_ps, end_ps, status, *results = row
        open_post = self._by_applied.get(applied)
        if open_post is None:
            return  # it failed already
        kind = "completed"
        if open_post.kind == MOVE:
            if status == 0 and rank != open_post.source:
                kind = "delivered"
            if status:
                open_post.left = 1
        open_post.left -= 1
        open_post.begun_ps = min(open_post.begun_ps, begun_ps)
        open_post.status = open_post.status or status
        data = results[0] if results else None
        if open_post.kind == CALL and not open_post.each:
            open_post.results += [[rank, one] for one in results]
            if open_post.left:
                return
            data = self._in_order(open_post)
            rank, begun_ps, status = -1, open_post.begun_ps, open_post.status
        owner = self._owners.pop((open_post.number, rank), None)
        caller = owner or open_post.caller
        done = Completion(open_post.number, kind, rank, begun_ps, end_ps, status, data, open_post.note)
        caller.inbox.append(done)
        if owner is not None:
            owner.unfinished -= 1
        elif open_post.left == 0:
            caller.unfinished -= 1
        if open_post.left == 0:
            del self._by_applied[applied]


def opened(blueprint: Blueprint, parts: int = 1, resume: str | Path | None = None) -> OpenRun:
    """An open run in this process. Raises EmuError."""
    check_open(blueprint.scenario)
    plan = spread(blueprint, parts)
    return run_of(plan, LocalEngine(plan, open_job(blueprint.scenario)), resume)


def run_of(plan: RunPlan, engine: Engine, resume: str | Path | None) -> OpenRun:
    """The run of an engine that has not started: from the start, or from a file that `save` wrote. Raises
    UsageError.
    """
    if resume is None:
        return OpenRun(plan, engine)
    try:
        _, body = read_file(Path(resume))
    except BrokenFile as error:
        raise UsageError(f"open: {error}; accepted: a file that save() of an open run wrote") from None
    if not isinstance(body, dict) or set(body) != _KEYS:
        raise UsageError(f"open: {resume}: accepted: a file that save() of an open run wrote")
    if body["scenario"] != fingerprint(plan.scenario):
        raise UsageError(f"open: {resume} is of another scenario; accepted: the one that it was saved of")
    run = OpenRun(plan, engine, begins=False)
    run._restore(body["state"], body["devices"], dict(body["notes"]))
    return run


_KEYS: Final = {"scenario", "state", "devices", "notes"}


def open_job(scenario: Scenario) -> int:
    """The number of the open job."""
    return next(at for at, job in enumerate(scenario.jobs) if _is_open(job))


def check_open(scenario: Scenario) -> None:
    """Refuse what cannot be open. Raises UsageError."""
    refused = [
        (
            not any(_is_open(job) for job in scenario.jobs),
            "no job is open",
            "a job with workload: {kind: open}",
        ),
        (scenario.fidelity == "flow", "fidelity: flow has no open jobs", "fidelity: packet"),
        (
            bool(measured_hits(scenario)),
            "an open run measures no load for faults that hit the busiest",
            "a name",
        ),
        (sum(map(_is_open, scenario.jobs)) > 1, "several jobs are open", "one, with several callers"),
    ]
    for wrong, reason, accepted in refused:
        if wrong:
            raise UsageError(f"open: {reason}; accepted: {accepted}")


def _is_open(job: JobSection) -> bool:
    return job.workload.posted_from_outside and job.enabled


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: object) -> str:
    """An argument, as it is written, and not the whole of a long one."""
    return value if isinstance(value, str) and len(value) < MOST_REPEATED else shown(value)


def _check_types(what: str, **given: object) -> None:
    """Raises UsageError for an argument of another type than its default has."""
    for key, value in given.items():
        kind, accepted = _KINDS.get(key, (str, f"a text of at most {LONGEST_NAME} characters"))
        long = isinstance(value, str) and len(value) > LONGEST_NAME
        if long or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UsageError(f"{what}: {key}={shown(value)}; accepted: {accepted}")


def _view(what: str, buffer: Any) -> memoryview:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise UsageError(
            f"{what}: a buffer is a {type(buffer).__name__}; accepted: bytes, numpy's arrays, array.array"
        ) from None
    if not view.c_contiguous:
        raise UsageError(f"{what}: a buffer is not contiguous; accepted: a copy of it")
    return view


def _few(ranks: Sequence[int]) -> str:
    """Ranks, in short."""
    if len(ranks) > 8:
        return f"{len(ranks)} ranks from {shown(ranks[0])}"
    return f"[{', '.join(map(shown, ranks))}]"


def _size(what: str, size: int | str) -> int:
    try:
        found = parse_size(size) if isinstance(size, str) else size
    except QuantityError as error:
        raise UsageError(f"{what}: {error}") from None
    if not _is_whole(found) or not 0 < found <= MOST_BYTES:
        raise UsageError(f"{what}: accepted: 1 B to {MOST_BYTES} B")
    return found


def _time(what: str, duration: int | str) -> int:
    try:
        found = parse_time(duration) if isinstance(duration, str) else duration
    except QuantityError as error:
        raise UsageError(f"{what}: {error}") from None
    if not _is_whole(found) or not 0 < found <= LONGEST_PS:
        raise UsageError(f"{what}: accepted: 1 to {LONGEST_PS} ps, or a time with its unit")
    return found
