"""Runs side by side on the cores of this machine, each in a process of its own.

A run in one process uses one core, so several that do not depend on each other are worked through as many at
a time as there are cores. A process is a fork: what was imported and read is there. What a run answers
depends on nothing but the run.

`as_they_end` tells of each run once it has ended, `side_by_side` answers in the order of the items.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from emu.base.errors import INTERRUPTED_STATUS, EmuError, RuntimeFailure

Item = TypeVar("Item")
Answer = TypeVar("Answer")

DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
PATIENCE_S: Final = 10.0
"""How long a process that was told to end may take before it is killed."""


class Ended(NamedTuple):
    """An item that was worked out: its place among the items, and its answer or why there is none."""

    number: int
    answer: Any = None
    failure: EmuError | None = None
    lost: bool = False
    """Whether the process ended without a word, or its machine did: nothing is known of the item itself."""
    interrupted: bool = False
    """Whether the process ended so because Ctrl-C or SIGTERM ended its run."""


class Ready(NamedTuple):
    """An item that can be sent to a node of a cluster, and how much memory its run needs."""

    item: Any
    memory_bytes: int = 0
    files: tuple[tuple[str, bytes], ...] = ()
    """Paths by which the function reads files, and what is in them: there, they lie in its directory."""


def side_by_side(
    function: Callable[[Item], Answer], items: Sequence[Item], at_once: int
) -> Generator[Answer, None, None]:
    """What the function makes of each item, in order; of one at a time in this very process.

    Raises what the function raised, an interruption too, and RuntimeFailure where a process ended without an
    answer. Whoever stops asking ends them all.
    """
    if at_once <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    yield from in_order(as_they_end(function, items, at_once))


def in_order(found: Generator[Ended, None, None]) -> Generator[Any, None, None]:
    """The answers in the order of the items; whoever stops asking ends them all.

    Raises the first failure, and KeyboardInterrupt where a run was interrupted: as one in this process does.
    """
    answers: dict[int, Any] = {}
    wanted = 0
    try:
        for one in found:
            if one.interrupted:
                raise KeyboardInterrupt
            if one.failure is not None:
                raise one.failure
            answers[one.number] = one.answer
            while wanted in answers:
                yield answers.pop(wanted)
                wanted += 1
    finally:
        found.close()


def as_they_end(
    function: Callable[[Item], Answer], items: Iterable[Item], at_once: int
) -> Generator[Ended, None, None]:
    """Each item once it was worked out; one at a time in this very process. An item whose process is killed
    is not tried again: on one machine that is what a lack of memory looks like.

    Whoever stops asking ends them all.
    """
    to_start = enumerate(items)
    if at_once <= 1:
        for number, item in to_start:
            yield ended(number, function, item)
        return
    context = multiprocessing.get_context("fork")
    started: dict[Connection, tuple[int, ForkProcess]] = {}
    more = True
    try:
        while more or started:
            while more and len(started) < at_once:
                following = next(to_start, None)
                more = following is not None
                if following is not None:
                    number, item = following
                    mine, its = context.Pipe(duplex=False)
                    process = context.Process(target=_answer, args=(its, os.getpid(), number, function, item))
                    process.start()
                    its.close()
                    started[mine] = number, process
            for ready in wait(list(started)) if started else ():
                assert isinstance(ready, Connection)
                number, process = started.pop(ready)
                yield _received(ready, number, process)
    finally:
        _end([process for _, process in started.values()])


def ended(number: int, function: Callable[[Item], Answer], item: Item) -> Ended:
    """Work an item out here. What it raises is told, but for an interruption."""
    try:
        return Ended(number, function(item))
    except EmuError as error:
        return Ended(number, failure=error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with the item
        return Ended(number, failure=failure_of(error))


def failure_of(error: Exception) -> RuntimeFailure:
    """What went wrong in a run: a line, and below it where."""
    if isinstance(error, MemoryError):
        return RuntimeFailure("the run got no more memory; accepted: fewer at a time, --jobs 1")
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__} {error}".split())
    head = f"a run failed by a bug, {what}, in {Path(where.filename).name}:{where.lineno}"
    return RuntimeFailure(f"{head}\n{''.join(traceback.format_exception(error))}")


def _answer(
    out: Connection, parent: int, number: int, function: Callable[[Item], Answer], item: Item
) -> None:
    """In the process: work it out and send it. Ctrl-C reaches the whole group; whoever asked decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent(parent)
    try:
        out.send(ended(number, function, item))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED_STATUS)
    except Exception as error:  # noqa: BLE001 - an answer that cannot be sent
        out.send(Ended(number, failure=failure_of(error)))
    out.close()
    os._exit(0)


def _end_with_parent(parent: int) -> None:
    """Have the kernel end this process when that one ends, however it does: nobody would take the answer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(INTERRUPTED_STATUS)


def _received(ready: Connection, number: int, process: ForkProcess) -> Ended:
    try:
        found = ready.recv()
    except EOFError:
        process.join()
        reason = (
            f"a run beside others ended with status {process.exitcode}"
            " (-9 is what a machine out of memory does); accepted: fewer at a time, --jobs 1"
        )
        interrupted = process.exitcode == INTERRUPTED_STATUS
        return Ended(number, failure=RuntimeFailure(reason), lost=True, interrupted=interrupted)
    finally:
        ready.close()
    process.join()
    assert isinstance(found, Ended)
    return found


def _end(processes: Sequence[ForkProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
