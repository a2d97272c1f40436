"""Scheduling between classes: which class sends next. The seam of schedulers.

Three places ask: a switch port of its egress queues, a NIC's port of its queue pairs
(`actors.nic.arbiter`), and the egress of a modular switch of the credit that it grants
(`actors.optional.deep`). Without a scheduler all three are strict, the highest number first, and pay one
branch for the seam. A scheduler sees what waits (`backlog`), what was sent and the time, and nothing else; so
a run is the same in every placement.

To write one: derive from `Scheduler`, list its knobs in `knobs`, override `choose_class`, `on_sent` if shares
depend on what was sent, and `save` and `load` if it keeps state. An interpreted subclass works in a compiled
install.

`DeficitRoundRobin` lets strict classes go first. The others take turns: when its turn comes a class gets its
quantum on top of what it kept, and sends while the next frame fits. A class with nothing to send, or stopped
by its peer, gets no quantum and forgets its deficit, so that it saves nothing up. A quantum is the largest
frame times the weight of its class over the least weight that shares: a turn is no longer than it has to be,
and weights of 256 and 256 share as 1 and 1 do.

Source: Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round Robin (SIGCOMM 1995).

Not modelled: guaranteed or capped rates per class, hierarchies.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Deferred, Plain
from actors.kernel.errors import RuntimeFailure
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_int, load_integers, save_integers
from actors.kernel.vectors import vec

CLASSES: Final = 8


class Backlog(Deferred):
    """What waits to be sent, as a scheduler sees it.

    Bit p of `waiting` is set while class p has something, whether or not its peer stops it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: i64 = 0

    def head_bytes(self, priority: i64) -> i64:
        """The size on the wire of what a class would send first; it has something.

        A NIC builds a packet when its turn comes and does not know.
        """
        raise NotImplementedError

    def place(self) -> str:
        """Where it waits, for messages."""
        return "nowhere"


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Base of schedulers: strict, the highest number first. Each backlog has one of its own."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

    def __init__(self, largest_frame_bytes: int, knobs: object = None) -> None:
        self.largest_frame_bytes: i64 = largest_frame_bytes
        self.backlog: Backlog = Backlog()

    def choose_class(self, ready: i64, now: i64) -> i64:
        """The class that sends next; bit p of `ready`, which is not 0, is set if class p could."""
        return highest(ready)

    def on_sent(self, priority: i64, wire_bytes: i64, now: i64) -> None:
        """A frame of a class left, or credit for it was granted."""

    def save(self) -> list[Plain]:
        """The scheduler's state."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built scheduler returned."""


class DeficitRoundRobin(Scheduler):
    """Strict classes first, the others by weight."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "strict",
            "priorities",
            (0, 1, 2, 3, 4, 5, 6, 7),
            doc="Priorities that go before all others, the highest number first. The rest share by weight.",
        ),
        Knob(
            "weights",
            "weights",
            (1, 1, 1, 1, 1, 1, 1, 1),
            1,
            256,
            "Share of each priority in what the strict ones leave (deficit round robin).",
        ),
    )

    def __init__(self, largest_frame_bytes: int, knobs: Knobs) -> None:
        super().__init__(largest_frame_bytes, knobs)
        strict: int = class_mask(knobs.strict)
        self.strict: i64 = strict
        self.quantum_bytes: vec[i64] = vec[i64](
            quanta_bytes(largest_frame_bytes, strict, list(knobs.weights))
        )
        self.deficit_bytes: vec[i64] = vec[i64]([0] * CLASSES)
        self.turn: i64 = 0
        """The class whose turn it is."""

    def choose_class(self, ready: i64, now: i64) -> i64:
        first: i64 = ready & self.strict
        if first != 0:
            return highest(first)
        backlog = self.backlog
        turn: i64 = self.turn
        while True:
            if (ready >> turn) & 1:
                if backlog.head_bytes(turn) <= self.deficit_bytes[turn]:
                    self.turn = turn
                    return turn
            else:
                self.deficit_bytes[turn] = 0
            turn = (turn + 1) & 7
            if (ready >> turn) & 1:
                self.deficit_bytes[turn] += self.quantum_bytes[turn]

    def on_sent(self, priority: i64, wire_bytes: i64, now: i64) -> None:
        if (self.strict >> priority) & 1 == 0:
            self.deficit_bytes[priority] -= wire_bytes

    def save(self) -> list[Plain]:
        return [save_integers(self.deficit_bytes), self.turn]

    def load(self, state: list[Plain]) -> None:
        self.deficit_bytes = load_integers(state[0])
        self.turn = as_int(state[1])


def highest(classes: i64) -> i64:
    """The highest class of a mask that is not 0."""
    priority: i64 = 0
    if classes >= 16:
        priority = 4
        classes >>= 4
    if classes >= 4:
        priority += 2
        classes >>= 2
    return priority + (classes >> 1)


def class_mask(classes: tuple[int, ...]) -> int:
    """These classes as a mask."""
    mask: int = 0
    for priority in classes:
        mask |= 1 << priority
    return mask


def quanta_bytes(largest_frame_bytes: int, strict: int, weights: list[int]) -> list[int]:
    """What each class gets a turn: the largest frame times its weight, over the least weight that shares."""
    assert len(weights) == CLASSES and min(weights) > 0, weights
    least = min([weight for at, weight in enumerate(weights) if (strict >> at) & 1 == 0], default=1)
    return [weight * largest_frame_bytes // least for weight in weights]


def next_class(scheduler: Scheduler, ready: i64, now: i64) -> i64:
    """The class that a scheduler chooses, which may be somebody's own. RuntimeFailure if it is not ready."""
    priority: i64 = scheduler.choose_class(ready, now)
    if priority < 0 or priority > 7 or (ready >> priority) & 1 == 0:
        who = f"{type(scheduler).__name__} of {scheduler.backlog.place()}"
        raise RuntimeFailure(f"{who} chose class {priority}, of {ready:#04x} that are ready")
    return priority
