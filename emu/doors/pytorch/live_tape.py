"""Virtual time of a rank that really computes: a clock for each stream, as kernels and calls move it.

A kernel takes the time that it has on the GPU of the run (`KernelTimes`), and its stream's clock goes on by
that. An event has the clock of its stream, a wait for it takes the later of two. A call begins at the clock
of its stream and ends when the emulator says so. The host costs nothing: its clock moves where it waits.

With `measured`, computing takes the CPU time of this thread in place of kernels.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from emu.doors.pytorch.kernels import KernelTimes
from emu.doors.pytorch.player.tape import Tape
from emu.doors.pytorch.record import HOST, Kernel, Mark, NotRecordedError, Operation, Record, Wait


class LiveTape(Tape):
    """The streams of one rank. Nothing is kept of what they did but their clocks."""

    def __init__(self, record: Record, times: KernelTimes, *, measured: bool = False) -> None:
        super().__init__(record, 0)
        self.alone = False
        self._times = times
        self._known: dict[tuple[object, ...], int] = {}
        self._clocks_ps: dict[int, int] = {}
        self._marks_ps: dict[int, int] = {}
        self._host_ps = 0
        self._measured = measured
        self._cpu_ns = time.thread_time_ns()
        self.kernels = 0
        self.computed_ps = 0
        self.steps_ps: list[int] = []
        """When each step of an optimizer was over."""

    def now_ps(self, stream: int | None = None) -> int:
        """The clock of a stream (the current one unless given)."""
        if self._measured:
            before, self._cpu_ns = self._cpu_ns, time.thread_time_ns()
            self._host_ps += (self._cpu_ns - before) * 1000
            self.computed_ps += (self._cpu_ns - before) * 1000
        return max(self._clocks_ps.get(self.stream if stream is None else stream, 0), self._host_ps)

    def reach(self, stream: int, at_ps: int) -> None:
        """Nothing goes on on a stream before a time."""
        if stream == HOST:
            self._host_ps = max(self._host_ps, at_ps)
        else:
            self._clocks_ps[stream] = max(self._clocks_ps.get(stream, 0), at_ps)

    def add(self, operation: Operation) -> None:
        if isinstance(operation, Kernel):
            if not self.quiet and not self._measured:
                self._compute(operation)
        elif isinstance(operation, Mark):
            self._marks_ps[operation.event] = self.now_ps(operation.stream)
        elif isinstance(operation, Wait):
            self.reach(operation.stream, self._marks_ps.get(operation.event, 0))

    def repeat(self, operations: Sequence[Operation]) -> None:
        raise NotRecordedError("CUDA graphs are not run live: their kernels compute when they are captured")

    def _compute(self, kernel: Kernel) -> None:
        key = (kernel.op, kernel.dtype, kernel.shapes, kernel.flops, kernel.bytes)
        takes_ps = self._known.get(key)
        if takes_ps is None:
            takes_ps = self._known[key] = round(self._times.us(kernel) * 1e6)
        self.kernels += 1
        self.computed_ps += takes_ps
        self._clocks_ps[kernel.stream] = self.now_ps(kernel.stream) + takes_ps

    def step_done(self) -> None:
        self.steps_ps.append(self.now_ps(0))
