"""One channel of a rank while an operation runs.

A channel takes its share of every operation. It walks the rank's part of the algorithm and gives the GPU each
slice whose data is here and whose send slot is free; how slices then travel is the business of the ends of
its connections (`actors.ncclx.transport.clear_to_send`). There are two walkers: one that computes a ring's
sequence as it goes (`actors.ncclx.algorithms.ring`), and one that follows a send/receive graph
(`actors.ncclx.transport.graph_channel`). Where a communicator calls both, they work with the same ends, and
which of them serves is chosen for each call; an end knows who works with it now (`channel`).

Zero-copy. Buffers of the user are registered, and NICs read and write them: the CTS carries the address of
the receiver's, into which the WRITE goes. What is only moved needs no GPU then: it is sent from where it is,
and is where it belongs when it arrives. What is reduced is the GPU's still. The operations of a channel keep
their order either way, so that one that needs no GPU waits for those before it that do.

Where payload is real as well, what NICs read and write has no message of the GPU's to ride in: the rank's
memory is then kept beside its channels (`actors.ncclx.gpu_orders`), orders are carried out on it as they are
given, and what goes on waits here for its turn. What the GPU reduces takes its time there all the same.

Source: NCCLX (CTRAN), zero-copy; NCCL 2.30, user buffer registration (`ncclCommRegister`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.gpu.instruction import read_order
from actors.gpu.memory import RankMemory
from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.state import as_bytes, as_int, as_list
from actors.ncclx.transport.clear_to_send import ReceiveEnd, SendEnd
from actors.wire.message import COPY_PLAIN

BY_GPU: Final[i64] = -1


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
        self.sent: i64 = 0
        """Slices that took a send slot, since the job began."""
        self.zero_copy: bool = False
        """Whether what is only moved needs no GPU."""
        self.direct: i64 = 0
        """Slices that needed none."""
        self.line: list[int] = []
        """With zero-copy, operations under way in their order: the note of one that needs no GPU, else
        BY_GPU."""
        self.memory: RankMemory | None = None
        """Of the rank, with zero-copy and real payload."""
        self.moved: list[bytes | None] = []
        """What of each operation in `line` goes on to other ranks, where payload is real."""

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

    def finish(self, host: Host, note: i64, data: bytes | None) -> None:
        """What `give` was asked for with that note is done; `data` goes on, where payload is real."""
        raise AssertionError(f"channel {self.number} copies nothing")

    def give(self, host: Host, size: i64, kind: i64, note: i64, order: bytes | None = None) -> None:
        """Let the GPU copy or reduce a slice, or nobody where that is not needed."""
        self.copies += 1
        if self.zero_copy:
            memory = self.memory
            if memory is not None and order is not None:
                self.moved.append(memory.carry_out(read_order(order)))
                order = None
            if kind == COPY_PLAIN:
                self.direct += 1
                self.line.append(note)
                self._advance(host)
                return
            self.line.append(BY_GPU)
        host.copy(self.program, self.gpu_port, self.number, size, kind, note, self.priority, order)

    def on_copied(self, host: Host, message: Message) -> None:
        """The GPU finished the oldest copy under way."""
        self.copies -= 1
        if not self.zero_copy:
            self.finish(host, message.e, message.data)
            return
        self.line.pop(0)
        self.finish(host, message.e, self._next_moved())
        self._advance(host)

    def _advance(self, host: Host) -> None:
        """Finish what needs no GPU and waits for none."""
        while self.line and self.line[0] != BY_GPU:
            note: i64 = self.line.pop(0)
            self.copies -= 1
            self.finish(host, note, self._next_moved())

    def _next_moved(self) -> bytes | None:
        """What goes on of the oldest operation under way."""
        return self.moved.pop(0) if self.moved else None

    def waits_for(self) -> str:
        """What holds it up, in words, or nothing."""
        return ""

    def copied_all(self) -> bool:
        """Whether the GPU has done its last copy of the operation."""
        return self.copies == 0 and self.walked()

    def save(self) -> list[Plain]:
        """The channel's state, without that of its ends."""
        line: list[Plain] = [list[Plain](self.line), list[Plain](self.moved)]
        return [self.copies, self.sent, self.direct, line]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        copies, sent, direct, line = state
        self.copies = as_int(copies)
        self.sent = as_int(sent)
        self.direct = as_int(direct)
        notes, moved = as_list(line)
        self.line = [as_int(note) for note in as_list(notes)]
        self.moved = [None if one is None else as_bytes(one) for one in as_list(moved)]
