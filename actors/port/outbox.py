"""What has one partition for another?

Where a link leaves the worker, frames and messages go to an outbox instead of the queue; nothing
else differs.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.event import NEVER_PS, Message
from actors.kernel.vectors import append, vec
from actors.wire.frame import Frame


class Outbox:
    """What one partition has for another: the frames and messages of a window that cross between them."""

    def __init__(self) -> None:
        self.frames: vec[Frame] = vec[Frame]()
        self.messages: vec[Message] = vec[Message]()
        self.least_ps: i64 = NEVER_PS
        """The earliest arrival among them; NEVER_PS if there is none."""

    def add_frame(self, frame: Frame) -> None:
        """A frame whose time and key are those of its arrival."""
        self.frames = append(self.frames, frame)
        if frame.time_ps < self.least_ps:
            self.least_ps = frame.time_ps

    def add_message(self, message: Message) -> None:
        """A message (or the content of a PFC frame) whose time and key are those of its arrival."""
        self.messages = append(self.messages, message)
        if message.time_ps < self.least_ps:
            self.least_ps = message.time_ps

    def clear(self) -> None:
        """Empty the outbox after its content was sent."""
        self.frames = vec[Frame]()
        self.messages = vec[Message]()
        self.least_ps = NEVER_PS
