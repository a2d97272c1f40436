"""What does a program on a host have to say?

A program is a state machine over tables: one rank of a collective job, or one host's share of a job of
flows. The host calls it when its job begins an operation, when a NIC or a GPU reports that something it
asked for is done, and when a timer it set runs out; the program answers by asking the host for posts,
copies, timers and reports. It never waits and never polls, and its state is plain, so that it can be saved
between any two events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.event import Message

if TYPE_CHECKING:
    from actors.host.host import Host

LIBRARY_SERIES: Final = (
    "host_cts_received",
    "host_cts_wait_ps",
    "host_held_slices",
    "host_deferred_segments",
    "host_direct_slices",
    "host_slower_compute_ps",
    "host_sm_wait_ps",
    "host_overtaken_calls",
    "host_cts_wait_peak_ps",
)
"""What a rank of a collective counts. The last is a peak, the others add up over the ranks of a host."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Program:
    """Base of what runs on a host. `number` is its place there, given when the host takes it in."""

    def __init__(self, job: int, start_ps: int) -> None:
        self.job: i64 = job
        self.start_ps: i64 = start_ps
        """When the job's first operation begins."""
        self.number: i64 = 0

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        """An operation of the job begins."""
        raise AssertionError(f"program {self.number} has no operation {operation}")

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        """A NIC completed something on a queue pair that was bound with `context`."""
        raise AssertionError(f"program {self.number} has no queue pair: context {context}")

    def on_modified(self, host: Host, context: i64, message: Message, now: i64) -> None:
        """A queue pair is in state `b`; `e` says whether that is what was asked for."""

    def copies(self, channel: i64) -> bool:
        """Whether there is such a channel; asked of what another worker sent."""
        return True

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        """A GPU finished a copy that this program asked for."""
        raise AssertionError(f"program {self.number} copies nothing: channel {message.a}")

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        """A timer that this program set ran out; its subject is above zero. Returns whether it had an effect,
        as `Device.on_timer` does."""
        raise AssertionError(f"program {self.number} has no timer {subject}")

    def stirred(self, host: Host, now: i64) -> bool:
        """SMs of its GPU changed hands elsewhere, perhaps; whether it went on."""
        return False

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        """The GPU behind a port of the host is gone, or (below zero) the host was, and all it remembered."""

    def flow_rows(self) -> list[list[int]]:
        """Rows for the table `flows`: job, flow, start_ps, completed_ps, status."""
        return []

    def step_rows(self) -> list[list[int]]:
        """Rows for the table `steps`: job, rank, step, begin_ps, end_ps, compute_ps, waits by reason."""
        return []

    def call_rows(self) -> list[list[int]]:
        """Rows for the table `calls`: job, rank, step, label, begun_ps, end_ps."""
        return []

    def counters(self) -> list[int]:
        """The values of `LIBRARY_SERIES`; nothing where the program is no rank of a collective."""
        return []

    def flight_rows(self) -> list[list[int]]:
        """Rows for the table `flights`: job, rank, call, group, call of the group, operation, bytes,
        begun_ps, end_ps (-1 while it runs).
        """
        return []

    def called_rows(self) -> list[list[int]]:
        """Rows for the table `called`: job, rank, group, calls begun, calls ended."""
        return []

    def payload_rows(self) -> list[list[int]]:
        """Rows for the table `payload`, of which `actors.gpu.memory` tells."""
        return []

    def failure_rows(self) -> list[list[int]]:
        """Rows for the table `failures`: job, rank, group, call of the group, status, what it waited for,
        peer, host's port, queue pair's number, at_ps.
        """
        return []

    def cts_rows(self) -> list[list[int]]:
        """Rows for the table `cts_waits`: job, operation, wait_ps, how many clear-to-sends."""
        return []

    def save(self) -> list[Plain]:
        """The program's state, except what it was built from."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built program returned."""
        assert not state, (self.number, state)
