"""What waits where the ingress cards of a modular switch hold frames, and how much of it may cross?

A *virtual output queue* (VOQ) holds what came in at one port for one egress and class. Frames cross only on
credit that the egress has granted, so that a busy or stopped egress holds up nobody who is bound for
another. Credit is bytes on the wire:

* the VOQ *reports* what has joined it, one report under way at a time; a report takes the credit delay;
* the egress *grants* what was reported, at the rate of its link, classes by strict priority (the highest
  number first) and the VOQs of a class in turn; a grant takes the credit delay too. A class that the peer
  has stopped is granted nothing;
* granted and not yet used may be no more than the VOQ's *window*. It begins at the initial credit, grows by
  a factor each time a window's worth has crossed, up to a limit, and falls back when the VOQ is empty.

So an unloaded crossing takes two credit delays more than a shared-memory switch, and a VOQ reaches the full
rate of its egress once its window covers rate x credit delay.

Source: credit-scheduled VOQ fabrics of modular chassis, as Meta's spines have them (SIGCOMM 2024: unloaded
round trip of about 22 us); how vendors size and grow credit is not public, so window and growth are knobs.

Not modelled: cells, the fabric's own capacity between cards, loss of credit.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, load_fields, load_frame, save_event, save_fields
from actors.wire.frame import Frame

_FIELDS: Final = (
    "queued_bytes",
    "unreported_bytes",
    "reporting_bytes",
    "report_pending",
    "wanted_bytes",
    "unused_bytes",
    "credit_bytes",
    "window_bytes",
    "crossed_bytes",
)


class Voq:
    """One virtual output queue, with what its ingress and its egress know of it."""

    def __init__(self, place: i64, egress: i64, window_bytes: i64) -> None:
        self.place: i64 = place
        """Ingress port x 8 + class."""
        self.egress: i64 = egress
        self.priority: i64 = place & 7
        """The class: the egress queue that its frames go to."""
        self.queued_bytes: i64 = 0
        self.unreported_bytes: i64 = 0
        self.reporting_bytes: i64 = 0
        self.report_pending: bool = False
        self.wanted_bytes: i64 = 0
        """Reported and not granted, as the egress knows it."""
        self.unused_bytes: i64 = 0
        """Granted and not crossed, as the egress knows it."""
        self.credit_bytes: i64 = 0
        """Granted and not used, as the ingress knows it."""
        self.window_bytes: i64 = window_bytes
        self.crossed_bytes: i64 = 0
        self.standing: bool = False
        """Whether it stands in line at its egress."""
        self.grants: list[int] = []
        """Under way from the egress, in order."""
        self.head: Frame | None = None
        self._tail: Frame | None = None

    def append(self, frame: Frame) -> None:
        """A frame joins."""
        tail = self._tail
        if tail is None:
            self.head = frame
        else:
            tail.queue_next = frame
        self._tail = frame
        self.queued_bytes += frame.wire_bytes

    def pop(self) -> Frame:
        """The first frame, which there is."""
        frame = self.head
        assert frame is not None, (self.place, self.egress)
        self.head = frame.queue_next
        if self.head is None:
            self._tail = None
        frame.queue_next = None
        self.queued_bytes -= frame.wire_bytes
        return frame

    def grantable(self) -> i64:
        """How much the egress may grant now: all that is wanted, or half a window at least; else 0."""
        room: i64 = self.window_bytes - self.unused_bytes
        if room >= self.wanted_bytes:
            return self.wanted_bytes
        if 2 * room >= self.window_bytes:
            return room
        return 0

    def grow(self, size_bytes: i64, growth: i64, most_bytes: i64) -> None:
        """So much has crossed on credit."""
        self.crossed_bytes += size_bytes
        if self.crossed_bytes >= self.window_bytes:
            self.crossed_bytes = 0
            self.window_bytes *= growth
            if self.window_bytes > most_bytes:
                self.window_bytes = most_bytes

    def forget(self, window_bytes: i64) -> None:
        """Nothing waits any more, and what is under way is worth nothing: its link went down."""
        self.unreported_bytes = 0
        self.reporting_bytes = 0
        self.wanted_bytes = 0
        self.unused_bytes = 0
        self.credit_bytes = 0
        self.window_bytes = window_bytes
        self.crossed_bytes = 0
        self.grants = [0] * len(self.grants)

    def frames(self) -> list[Frame]:
        """What waits, in order."""
        found: list[Frame] = []
        frame = self.head
        while frame is not None:
            found.append(frame)
            frame = frame.queue_next
        return found

    def save(self) -> list[Plain]:
        """The queue and both sides' knowledge of it."""
        frames: list[Plain] = [save_event(frame) for frame in self.frames()]
        grants: list[Plain] = list(self.grants)
        return [self.place, self.egress, save_fields(self, _FIELDS), grants, frames]

    def load(self, state: list[Plain]) -> None:
        """Take what `save` returned."""
        for frame in as_list(state[4]):
            self.append(load_frame(frame))
        load_fields(self, _FIELDS, state[2])
        self.grants = [as_int(amount) for amount in as_list(state[3])]
