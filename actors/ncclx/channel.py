"""What is one channel of a rank while an operation runs?

A channel takes its share of every operation. It walks the rank's part of the algorithm and gives the GPU each
slice whose data is here and whose send slot is free; how slices then travel is the business of the ends of
its connections (`actors.ncclx.ends`). There are two walkers: one that computes a ring's sequence as it goes
(`actors.ncclx.ring_channel`), and one that follows a send/receive graph. Both work with the same ends, and
which of them serves is chosen for each operation.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.host.host import Host
from actors.ncclx.ends import ReceiveEnd, SendEnd
from emu.kernel.device import Plain
from emu.wire.event import Message


class Channel:
    """Base of the walkers. `gpu_port` is the host's port to the rank's GPU."""

    def __init__(self, number: int, gpu_port: int) -> None:
        self.number: i64 = number
        self.program: i64 = 0
        """Number of the rank's program at its host."""
        self.gpu_port: i64 = gpu_port
        self.priority: i64 = 0
        """Of its copies among those of the GPU; higher ones are done first."""
        self.copies: i64 = 0
        """GPU operations under way."""
        self.unacknowledged: i64 = 0
        """Slices in send slots."""

    def begin(self, host: Host, operation: i64) -> None:
        """Start an operation of the job: expect what it brings, give the GPU what it can do."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def walked(self) -> bool:
        """Whether every slice of the operation was given to the GPU."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def on_room(self, host: Host, end: SendEnd) -> None:
        """A slot of a send end is free."""
        raise AssertionError(f"channel {self.number} sends nothing")

    def on_ready(self, host: Host, end: ReceiveEnd) -> None:
        """A slice is here."""
        raise AssertionError(f"channel {self.number} receives nothing")

    def on_copied(self, host: Host, message: Message) -> None:
        """The GPU finished the oldest copy under way."""
        raise AssertionError(f"channel {self.number} copies nothing")

    def waits_for(self) -> str:
        """What holds it up, in words, or nothing."""
        return ""

    def copied_all(self) -> bool:
        """Whether the GPU has done its last copy of the operation."""
        return self.copies == 0 and self.walked()

    def drained(self) -> bool:
        """Whether every slice sent was acknowledged as well."""
        return self.unacknowledged == 0 and self.copied_all()

    def save(self) -> list[Plain]:
        """The channel's state, without that of its ends."""
        return [self.copies, self.unacknowledged]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        copies, unacknowledged = state
        assert isinstance(copies, int) and isinstance(unacknowledged, int), state
        self.copies = copies
        self.unacknowledged = unacknowledged
