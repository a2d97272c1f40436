"""Events, and their total order: time, device, kind, port, subject.

An event is a record with a time and a *key*. The key packs the device that executes the event, the event's
kind, the port it concerns and its subject (the number of a queue pair, priority, flow or copy) into one
non-negative 63-bit integer, so that the total order of a run is two integer compares:

    time, then device, then kind, then port, then subject.

At most one pending event has a given (time, key); the kernel asserts it. Nothing in the order depends on
placement, on creation order or on the identity of an object, which is why one run gives one answer however
its devices are spread over workers.

The record that waits in the queue is the record that crosses a link: a frame in flight *is* its own arrival
event, and a message over a host link likewise. That is why this module sits with the wire and not with the
kernel. Kinds are numbered in the order in which they happen at one instant: state of links and configuration
first, then what arrives, then what a device does of its own accord.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

PORT_BITS: Final[i64] = 11
PORT_SHIFT: Final[i64] = 28
KIND_SHIFT: Final[i64] = 39
DEVICE_SHIFT: Final[i64] = 44
"""From the lowest bit of a key on: subject 28 bits, port 11, kind 5, device 18. Written out and not added up,
since mypyc puts only literals in place of a name."""

SUBJECT_MASK: Final[i64] = 0xFFFFFFF
PORT_MASK: Final[i64] = 0x7FF
KIND_MASK: Final[i64] = 0x1F
PLACE_MASK: Final[i64] = 0xFFFF
"""Kind and port together."""

MAX_DEVICES: Final = 1 << 18
MAX_PORTS: Final = 1 << 11
MAX_SUBJECTS: Final = 1 << 28

NEVER_PS: Final[i64] = 0x3FFFFFFFFFFFFFFF
"""Later than any event: 2**62 - 1 ps, about 53 days of virtual time."""

# Kinds, in their order at one instant of one device.
FAULT: Final[i64] = 0
"""What breaks or is mended, and whatever else is changed from outside: see `actors.wire.fault`."""
LINK_STATE: Final[i64] = 1
CONFIGURATION: Final[i64] = 2
ARRIVAL: Final[i64] = 3
PAUSE: Final[i64] = 4
MESSAGE: Final[i64] = 5
SERVE: Final[i64] = 6
PAUSE_EXPIRY: Final[i64] = 7
RETRANSMIT: Final[i64] = 8
COPY_DONE: Final[i64] = 9
PROXY: Final[i64] = 10
JOB: Final[i64] = 11
RATE_TIMER: Final[i64] = 12
PAUSE_REFRESH: Final[i64] = 13
WATCHDOG: Final[i64] = 14
COLLECTION: Final[i64] = 15

KIND_NAMES: Final = (
    "fault",
    "link_state",
    "configuration",
    "arrival",
    "pause",
    "message",
    "serve",
    "pause_expiry",
    "retransmit",
    "copy_done",
    "proxy",
    "job",
    "rate_timer",
    "pause_refresh",
    "watchdog",
    "collection",
)

FIRST_UPKEEP: Final[i64] = 12
"""Kinds from here on keep themselves alive for ever and move no payload: upkeep. The others are work."""

TIMER_KINDS: Final[i64] = 0xFFC6
"""A bit for each kind that is a timer: what is neither an arrival nor a message, pause or fault."""

PORT_KINDS: Final[i64] = 0x60C2
"""A bit for each kind of timer whose port is one of the device's: LINK_STATE, SERVE, PAUSE_*, WATCHDOG."""


def pack_key(device: i64, kind: i64, port: i64, subject: i64) -> i64:
    """The key of an event; each part must fit its field (18, 5, 11 and 28 bits)."""
    assert 0 <= device < 0x40000, device
    assert 0 <= kind < 0x20, kind
    assert 0 <= port < 0x800, port
    assert 0 <= subject < 0x10000000, subject
    return (device << DEVICE_SHIFT) | (kind << KIND_SHIFT) | (port << PORT_SHIFT) | subject


def key_device(key: i64) -> i64:
    """The device that executes the event."""
    return key >> DEVICE_SHIFT


def key_kind(key: i64) -> i64:
    """The event's kind, one of the numbers above."""
    return (key >> KIND_SHIFT) & KIND_MASK


def key_port(key: i64) -> i64:
    """The port of the device that the event concerns."""
    return (key >> PORT_SHIFT) & PORT_MASK


def key_subject(key: i64) -> i64:
    """The queue pair, priority, flow or copy that the event concerns."""
    return key & SUBJECT_MASK


def describe_key(key: int) -> str:
    """The key in words, for assertions and for a device's story."""
    kind = key_kind(key)
    name = KIND_NAMES[kind] if kind < len(KIND_NAMES) else str(kind)
    return f"device {key_device(key)} {name} port {key_port(key)} subject {key_subject(key)}"


def untrack(record: Event) -> None:
    """Keep the cycle collector from looking at a record that can be in no circle.

    Python has no words for this: compiled, the build gives it a body (`actors.compiled.build`). Interpreted,
    records stay where they are.
    """


def void(event: Event) -> None:
    """Give an event at which nothing happens any more another subject, 1 in place of 0, so that what does
    happen at its time may have its key."""
    assert event.key & SUBJECT_MASK == 0, describe_key(event.key)
    event.key |= 1


class Event:
    """A timer, and the base of whatever else happens: when (ps) and what (the packed key).

    Records keep the header that the cycle collector adds although no cycle goes through them: a long chain is
    freed without recursion only if the interpreter can defer the freeing, for which it needs that header.
    Declared `acyclic`, records lack it, and what lies before them in memory is overwritten. Those of which
    there are many are kept out of the collector's lists instead (`untrack`).
    """

    __slots__ = ("chain", "key", "time_ps")

    def __init__(self, time_ps: i64, key: i64) -> None:
        self.time_ps: i64 = time_ps
        self.key: i64 = key
        self.chain: Event | None = None
        """The next event of the same slot of the queue's wheel, or of a queue in which it waits until it is
        made pending."""


@mypyc_attr(free_list_len=1)
class Message(Event):
    """A record between devices of one server, or to and from the control plane: an operation and six
    integers.

    `op` is one of the operations of `actors.wire.message`; what `a` to `f` mean is said there, and what
    `data` is where payload is real.

    Compiled, the message that was freed last is used again for the next one, as with frames.
    """

    __slots__ = ("a", "b", "c", "d", "data", "e", "f", "op")

    def __init__(self, op: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> None:
        super().__init__(0, 0)
        self.op: i64 = op
        self.a: i64 = a
        self.b: i64 = b
        self.c: i64 = c
        self.d: i64 = d
        self.e: i64 = e
        self.f: i64 = f
        self.data: bytes | None = None
        untrack(self)  # last: a field that is set after `self` was passed on is checked at each use
