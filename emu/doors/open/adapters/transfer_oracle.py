"""`TransferOracle`: transfers of keys and values for a serving loop, each with its time of arrival.

    oracle = TransferOracle(emu.open("fabric.yaml"))
    oracle.begin("request 7", prefill, decode, kv_bytes, at_ps)
    for request, there_ps in oracle.until(clock_ps):
        ...

A loop that divides bytes by a rate asks this instead: transfers share links, queues and NICs with each other
and with the other jobs of the fabric. `at_ps` may not be before the clock of the last `until`.
"""

from __future__ import annotations

from collections.abc import Hashable

from emu.base.errors import RuntimeFailure
from emu.engine.live.open_run import Completion, OpenRun


class TransferOracle:
    """Transfers between ranks of an open run."""

    def __init__(self, run: OpenRun) -> None:
        self._run = run

    def begin(self, key: Hashable, src: int, dst: int, size_bytes: int, at_ps: int, qp: str = "") -> None:
        """A transfer begins. Those of one source, destination and name `qp` follow one another; others share
        the links.
        """
        self._run.post(src, dst, size_bytes, at_ps, qp, tell="delivered", note=key)

    def until(self, at_ps: int) -> list[tuple[Hashable, int]]:
        """What is there before a time, and since when, in that order. Raises RuntimeFailure if one failed."""
        return [_there(done) for done in self._run.until(at_ps)]

    def all(self) -> list[tuple[Hashable, int]]:
        """Everything that was begun, as it comes. Raises RuntimeFailure if one failed."""
        found = []
        while self._run.outstanding:
            found.append(_there(self._run.next()))
        return found


def _there(done: Completion) -> tuple[Hashable, int]:
    if not done.ok:
        raise RuntimeFailure(f"transfer {done.note}: failed at {done.at_ps} ps, status {done.status}")
    return done.note, done.at_ps
