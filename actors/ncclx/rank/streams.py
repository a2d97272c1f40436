"""Streams of a script: where each is, and which computing or call it comes to next.

A plain state machine, without device, host or clock. `Streams.step` takes a stream as far as recorded events
let it go, and says what it has come to: computing or a call, which the owner begins, or nothing, because the
stream waits for an event or is at its end. The owner says when computing or a call is over (`over`). The
instructions are those of `actors.ncclx.script`.

A stream that waits for one thing alone (`waits_for`) need not be looked at until that happens. An event that
is recorded lets the others look again (`moved`): the order of the list decides who is first.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_list, load_fields, load_integers, save_fields, save_integers
from actors.kernel.vectors import append, vec

# As in actors.ncclx.script.
COMPUTE: Final[i64] = 0
CALL: Final[i64] = 1
WAIT: Final[i64] = 2
RECORD: Final[i64] = 3

NOTHING: Final[i64] = -1
"""What `step` says of a stream that has nothing to begin."""

ANYTHING: Final[i64] = 0
COMPUTING: Final[i64] = -1
"""What a stream may wait for, besides the channels of a group: those are its number + 1."""

_STREAMS_FIELDS: Final = ("recorded", "waited_ps", "waiting_since_ps", "operation")
_FIELDS: Final = ("place", "busy", "left_ps", "piece_ps", "from_ps", "turn")


class Line:
    """The instructions of a stream: kind, a and b of each, one behind the other."""

    def __init__(self, instructions: list[tuple[int, int, int]]) -> None:
        self.count: i64 = len(instructions)
        self.code: vec[i64] = vec[i64]([number for one in instructions for number in one])
        self.computes: bool = COMPUTE in [one[0] for one in instructions]

    def grow(self, kind: i64, a: i64, b: i64) -> None:
        """One more instruction at the end."""
        self.code = append(append(append(self.code, kind), a), b)
        self.count += 1


class Stream:
    """One stream: its place in the list, and its computing."""

    def __init__(self, number: int, instructions: list[tuple[int, int, int]]) -> None:
        self.number: i64 = number
        """Its place among the streams of its script."""
        self.line: Line = Line(instructions)
        self.place: i64 = 0
        """Its instruction."""
        self.busy: bool = False
        """Whether that was begun and is not over."""
        self.waits_for: i64 = ANYTHING
        """What it was found to wait for. No state of a snapshot: `ANYTHING` is never wrong."""
        self.left_ps: i64 = 0
        """What is left of its computing after the present piece, at full pace."""
        self.piece_ps: i64 = 0
        """The present piece of its computing, at full pace."""
        self.from_ps: i64 = 0
        """When the present piece began."""
        self.turn: i64 = 0
        """Which of its timers counts: another one since the pace changed during a piece."""

    def a(self) -> i64:
        """The first operand of its instruction."""
        return self.line.code[3 * self.place + 1]

    def b(self) -> i64:
        """The second operand."""
        return self.line.code[3 * self.place + 2]

    def over(self) -> None:
        """Its computing or call is over; it goes on behind that."""
        self.busy = False
        self.place += 1

    def save(self) -> Plain:
        """State for a snapshot."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        load_fields(self, _FIELDS, state)
        self.waits_for = ANYTHING


class Streams:
    """All streams of a script, and the events between them."""

    def __init__(
        self, instructions: list[list[tuple[int, int, int]]], events: int, reasons: int, single: bool
    ) -> None:
        self.each: vec[Stream] = vec[Stream]([Stream(number, one) for number, one in enumerate(instructions)])
        self.recorded: list[bool] = [False] * events
        self.single: bool = single
        """Whether an operation is one instruction, the one at its place, and not a run through all."""
        self.operation: i64 = 0
        self.moved: bool = False
        """Whether an event was recorded since the owner set this to False."""
        self.waiting_since_ps: i64 = -1
        """Since when stream 0 waits for an event; -1 while it does not."""
        self.waited_ps: vec[i64] = vec[i64]([0] * reasons)
        """How long stream 0 has waited in this operation, by reason."""
        self.computes: bool = any(stream.line.computes for stream in self.each)
        self.grows: bool = False
        """Whether the first stream's instructions come one by one, so that it is never at its end."""

    def take(self, instructions: list[list[tuple[int, int, int]]]) -> None:
        """Go through other lists, of another membership, from the next operation on."""
        for stream, line in zip(list(self.each), instructions, strict=True):
            stream.line = Line(line)
            stream.waits_for = ANYTHING
        self.computes = any(stream.line.computes for stream in self.each)

    def begin(self, operation: i64) -> None:
        """Go through the lists from their beginning."""
        self.operation = operation
        first: i64 = 0
        if self.single:
            first = operation
        for stream in self.each:
            stream.place = first
        self.recorded = [False] * len(self.recorded)
        self.waited_ps = vec[i64]([0] * len(self.waited_ps))

    def last(self, stream: Stream) -> i64:
        """The place at which a stream is at its end in this operation."""
        if self.single:
            return self.operation + 1
        return stream.line.count

    def done(self) -> bool:
        """Whether all are at their end."""
        if self.grows:
            return False
        number: i64 = 0
        while number < len(self.each):
            stream = self.each[number]
            if stream.place < self.last(stream):
                return False
            number += 1
        return True

    def wake(self) -> None:
        """Something happened for which any stream may wait."""
        for stream in self.each:
            stream.waits_for = ANYTHING

    def wake_for(self, happened: i64) -> None:
        """Something happened for which only those streams wait that are known to."""
        for stream in self.each:
            if stream.waits_for == happened:
                stream.waits_for = ANYTHING

    def computing(self, stream: Stream) -> bool:
        """Whether a stream's computing was begun and is not over."""
        if not stream.busy or stream.place >= self.last(stream):
            return False
        return stream.line.code[3 * stream.place] == COMPUTE

    def step(self, stream: Stream, now: i64) -> i64:
        """Pass what needs no time. Returns `COMPUTE` or `CALL` at such an instruction, else `NOTHING`."""
        code = stream.line.code
        last: i64 = self.last(stream)
        while stream.place < last:
            at: i64 = 3 * stream.place
            kind: i64 = code[at]
            if kind == COMPUTE or kind == CALL:
                return kind
            event: i64 = code[at + 1]
            if kind == RECORD:
                self.recorded[event] = True
                self.moved = True
            else:
                if not self.recorded[event]:
                    if stream.number == 0 and self.waiting_since_ps < 0:
                        self.waiting_since_ps = now
                    return NOTHING
                if stream.number == 0 and self.waiting_since_ps >= 0:
                    self.waited_ps[code[at + 2]] += now - self.waiting_since_ps
                    self.waiting_since_ps = -1
            stream.place += 1
        return NOTHING

    def save(self) -> Plain:
        """State for a snapshot."""
        streams: list[Plain] = [stream.save() for stream in self.each]
        grown: Plain = save_integers(self.each[0].line.code) if self.grows else None
        found: list[Plain] = [save_fields(self, _STREAMS_FIELDS), streams, grown]
        return found

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        fields, streams, grown = as_list(state)
        load_fields(self, _STREAMS_FIELDS, fields)
        if self.grows:
            line = self.each[0].line
            line.code = load_integers(grown)
            line.count = len(line.code) // 3
        for stream, saved in zip(list(self.each), as_list(streams), strict=True):
            stream.load(saved)
