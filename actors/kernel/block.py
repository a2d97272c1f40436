"""A block: devices of one process whose events run in turn, while the devices are in the cache.

A hop through a fabric of thousands of devices is a chain of cache misses, one through thirty is not. So a
process cuts its devices into blocks, each with a queue of its own, and runs them in turn in short windows
(`actors.kernel.kernel`). Frames and messages between blocks wait by reference in the receiver's inbox until
its next turn. Between workers they wait in an outbox, to be encoded.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.compiled.finder import is_compiled
from actors.kernel.cache import AHEAD, fetch_event
from actors.kernel.errors import ProtocolError
from actors.kernel.event import NEVER_PS, Event, Message, describe_key
from actors.kernel.queue import SLOTS, EventQueue
from actors.kernel.vectors import append, vec
from actors.wire.frame import Frame, Spares
from actors.wire.frame_columns import WORDS, FrameColumns, Rows


def new_queue(slots: int = int(SLOTS)) -> EventQueue:
    """The queue that suits how this process runs; both give one order."""
    if is_compiled():
        return EventQueue(slots)
    from actors.kernel.heap_queue import HeapQueue  # noqa: PLC0415  an interpreted class, which compiled code cannot import

    return HeapQueue()


class Outbox:
    """The frames and messages of a window that leave for another worker."""

    def __init__(self) -> None:
        self.frames: FrameColumns = FrameColumns()
        self.messages: vec[Message] = vec[Message]()
        self.least_ps: i64 = NEVER_PS
        """The earliest arrival among them; NEVER_PS if there is none."""

    def add_frame(self, frame: Frame) -> None:
        """A frame whose time and key are those of its arrival; nobody has it any more."""
        if frame.time_ps < self.least_ps:
            self.least_ps = frame.time_ps
        self.frames.add(frame)

    def add_message(self, message: Message) -> None:
        """A message (or the content of a PFC frame) whose time and key are those of its arrival."""
        self.messages = append(self.messages, message)
        if message.time_ps < self.least_ps:
            self.least_ps = message.time_ps

    def clear(self) -> None:
        """Empty the outbox after its content was sent."""
        self.frames.forget()
        if len(self.messages) > 0:
            self.messages = vec[Message]()
        self.least_ps = NEVER_PS


class Inbox(Outbox):
    """Those that come from other blocks of the process, and from other workers. Its tables keep their places:
    growing anew for each turn would cost more than all else that is done here."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: vec[Event | None] = vec[Event | None]()
        """Frames in the first `_count` places; the others are empty, for what comes."""
        self._count: i64 = 0
        self.rows: Rows = Rows()
        """What other workers have sent."""
        self.spares: Spares = Spares()
        """What these frames are made of."""

    def add_frame(self, frame: Frame) -> None:
        at: i64 = self._count
        if at < len(self._waiting):
            self._waiting[at] = frame
        else:
            self._waiting = append(self._waiting, frame)
        self._count = at + 1
        if frame.time_ps < self.least_ps:
            self.least_ps = frame.time_ps

    def clear(self) -> None:
        super().clear()
        self._waiting = vec[Event | None]()
        self._count = 0
        self.rows.forget()

    def empty_into(self, queue: EventQueue) -> None:
        """Make pending what is here."""
        waiting = self._waiting
        count: i64 = self._count
        at: i64 = 0
        while at < count:
            fetch_event(waiting, at + AHEAD)
            found = waiting[at]
            assert found is not None, at
            frame: Event = found
            waiting[at] = None
            queue.push(frame)
            at += 1
        self._count = 0
        rows = self.rows
        spares = self.spares
        used: i64 = rows.used
        at = 0
        while at < used:
            queue.push(rows.frame(at, spares))
            at += WORDS
        rows.forget()
        if len(self.messages) > 0:
            for message in self.messages:
                queue.push(message)
            self.messages = vec[Message]()
        self.least_ps = NEVER_PS

    def events(self) -> list[Event]:
        """What is here."""
        rows = [self.rows.frame(at, Spares()) for at in range(0, self.rows.used, WORDS)]
        return [*[frame for frame in self._waiting if frame is not None], *rows, *self.messages]


class Block:
    """The queue of some devices, and what other blocks of the process and other workers have sent them."""

    def __init__(self, slots: int) -> None:
        self.queue: EventQueue = new_queue(slots)
        self.inbox: Inbox = Inbox()
        """What other blocks and workers have sent; in the queue at a sync point, a snapshot and the end."""
        self.lookahead_ps: i64 = NEVER_PS
        """The least time from an event here to its effect on another block; NEVER_PS where there is none."""
        self.next_ps: i64 = 0
        """When the next event in the queue is, as of the end of its last turn."""
        self.reached_ps: i64 = 0
        """Events before this time have been executed, and none at or after it."""
        self.last_time_ps: i64 = -1
        self.last_key: i64 = -1
        """Key of the last event that was executed."""

    def take_in(self, until_ps: i64) -> None:
        """Make pending what is due in a turn until then, also what others have sent.

        Raises ProtocolError if the block has passed its time.
        """
        self.queue.take_turn(until_ps)
        self.unpack()

    def unpack(self) -> None:
        """Make pending what others have sent. Raises ProtocolError if the block has passed its time."""
        queue = self.queue
        inbox = self.inbox
        if inbox.least_ps == NEVER_PS:
            return
        if inbox.least_ps < self.reached_ps:
            self._refuse()
        inbox.empty_into(queue)

    def _refuse(self) -> None:
        """Raise ProtocolError for the first event in the inbox that comes too late."""
        late = min(self.inbox.events(), key=time_of)
        raise ProtocolError(
            f"{describe_key(late.key)}: sent by another block for {late.time_ps} ps, and everything before "
            f"{self.reached_ps} ps was executed: the lookahead between blocks is too long"
        )


def time_of(event: Event) -> int:
    """When an event is due."""
    return int(event.time_ps)
