"""Runs side by side on the cores of this machine, each in a process of its own.

A run in one process uses one core, so several that do not depend on each other are worked through as many at
a time as there are cores. A process is a fork: what was imported and read is there. Answers come in the order
of the items, whatever ended first; what a run answers depends on nothing but the run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Final, TypeVar

from emu.base.errors import INTERRUPTED_STATUS, EmuError, RuntimeFailure

Item = TypeVar("Item")
Answer = TypeVar("Answer")

PATIENCE_S: Final = 10.0
"""How long a process that was told to end may take before it is killed."""


def side_by_side(
    function: Callable[[Item], Answer], items: Sequence[Item], at_once: int
) -> Generator[Answer, None, None]:
    """What the function makes of each item, in order; of one at a time in this very process.

    Raises what the function raised, and RuntimeFailure where a process ended without an answer. Whoever
    stops asking ends them all.
    """
    if at_once <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("fork")
    started: dict[Connection, tuple[int, ForkProcess]] = {}
    answers: dict[int, Answer] = {}
    to_start = list(enumerate(items))[::-1]
    try:
        for place in range(len(items)):
            while place not in answers:
                while to_start and len(started) < at_once:
                    number, item = to_start.pop()
                    mine, its = context.Pipe(duplex=False)
                    process = context.Process(target=_answer, args=(its, function, item))
                    process.start()
                    its.close()
                    started[mine] = number, process
                for ready in wait(list(started)):
                    assert isinstance(ready, Connection)
                    number, process = started.pop(ready)
                    answers[number] = _received(ready, process)
            yield answers.pop(place)
    finally:
        _end([process for _, process in started.values()])


def _answer(out: Connection, function: Callable[[Item], Answer], item: Item) -> None:
    """In the process: work it out and send it. Ctrl-C reaches the whole group; whoever asked decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        out.send((function(item), None))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED_STATUS)
    except EmuError as error:
        out.send((None, error))
    except Exception:  # noqa: BLE001 - whatever it is, the process that asked is to tell of it
        out.send((None, RuntimeFailure(f"a run beside others failed:\n{traceback.format_exc()}")))
    out.close()
    os._exit(0)


def _received(ready: Connection, process: ForkProcess) -> Any:
    try:
        answer, failure = ready.recv()
    except EOFError:
        process.join()
        raise RuntimeFailure(
            f"a run beside others ended with status {process.exitcode}"
            " (-9 is what a machine out of memory does); accepted: fewer at a time, --jobs 1"
        ) from None
    finally:
        ready.close()
    process.join()
    if failure is not None:
        assert isinstance(failure, EmuError)
        raise failure
    return answer


def _end(processes: Sequence[ForkProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
