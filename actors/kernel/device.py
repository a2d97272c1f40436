"""The base of every device: ports, keys of its events, digest, faults, counters, snapshots.

A device is a machine without a clock or a socket. The kernel hands it a frame, a message or a timer; it
answers through its ports and by pushing timers of its own. It never calls another device: what one device
knows of another arrived as an event. Its state is plain (integers, lists, records), so `save` is a list that
msgpack can carry and `load` builds the same state again, in another process and another placement.

Tallies. A fabric of 512 hosts has 200,000 counters, and a run may be scraped twice a second. So devices write
what they count one after the other into one table of native integers (`Tally`): compiled, a few ns each, and
no object is made for any of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from actors.kernel.block import Outbox
from actors.kernel.event import (
    NEVER_PS,
    PLACE_MASK,
    PORT_BITS,
    PORT_KINDS,
    PORT_MASK,
    PORT_SHIFT,
    SERVE,
    Event,
    Message,
    pack_key,
)
from actors.kernel.event_log import EventLog
from actors.kernel.mixing import (
    DIGEST_MULTIPLIER,
    DROP_TAG,
    ECN_SHIFT,
    KIND_TAG,
    MASK62,
    TAG_SHIFT,
    mix,
)
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import append, vec
from actors.wire.fault import BEGIN_FAULT, END_FAULT, LOGGED, SETTINGS
from actors.wire.frame import Frame, packet_word
from actors.wire.train import ALONE, Train


class Tally:
    """Numbers, one behind the other."""

    def __init__(self) -> None:
        self.numbers: vec[i64] = vec[i64]()

    def add(self, number: i64) -> None:
        """One more."""
        self.numbers = append(self.numbers, number)

    def add_table(self, table: vec[i64]) -> None:
        """All of a table."""
        numbers = self.numbers
        count: i64 = len(table)
        at: i64 = 0
        while at < count:
            numbers = append(numbers, table[at])
            at += 1
        self.numbers = numbers

    def add_list(self, values: Sequence[int]) -> None:
        """All of a list."""
        for value in values:
            self.add(value)

    def add_zeros(self, count: i64) -> None:
        """Write this many zeros."""
        at: i64 = 0
        while at < count:
            self.add(0)
            at += 1

    def stands(self, part: i64, mark: i64) -> bool:
        """Whether the next part of the numbers, which the device calls so, stands as it was when it was kept
        under this mark: then it is passed over, and not written again."""
        return False

    def keep(self, part: i64, mark: i64) -> None:
        """The part that did not stand was written: it does not change as long as it has this mark. With 0 it
        is written next time in any case."""

    def zero(self, count: i64) -> None:
        """Hold this many zeros and nothing else, in place of what there was."""
        if len(self.numbers) != count:
            nothing: list[int] = [0] * count
            self.numbers = vec[i64](nothing)
        numbers = self.numbers
        at: i64 = 0
        while at < count:
            numbers[at] = 0
            at += 1

    def increase(self, place: i64, number: i64) -> None:
        """What stands at a place is so much more."""
        numbers = self.numbers
        numbers[place] += number

    def reach(self, place: i64, number: i64) -> None:
        """What stands at a place is at least this."""
        numbers = self.numbers
        if numbers[place] < number:
            numbers[place] = number

    def __len__(self) -> int:
        return len(self.numbers)

    def listed(self) -> list[int]:
        """All of them."""
        return list(self.numbers)


def tally_of(rows: Iterable[Sequence[int]]) -> Tally:
    """The numbers of all rows."""
    tally = Tally()
    for row in rows:
        tally.add_list(row)
    return tally


Plain = int | str | bytes | bool | None | list["Plain"]
"""What a snapshot is made of."""
LOG_ROWS: Final = 256
"""What a device's log holds."""


class Series:
    """One counter of a device: the metric it belongs to and what tells it from its siblings.

    `metric` is the name of a counter of `actors.kernel.counters`; `port` is -1 and `priority` is -1 where
    they do not apply.
    """

    __slots__ = ("metric", "place", "port", "priority", "reason")

    def __init__(self, metric: str, port: int = -1, priority: int = -1, reason: str = "") -> None:
        self.metric = metric
        self.port = port
        self.priority = priority
        self.reason = reason
        self.place: tuple[str, int, int, str] = (metric, port, priority, reason)
        """All of it: what other processes and files know it by."""


_KNOWN: Final[dict[tuple[str, int, int, str], Series]] = {}
_BY_PRIORITY: Final[dict[tuple[str, int], list[Series]]] = {}
_PRIORITIES: Final = 8


def series_of(metric: str, port: int = -1, priority: int = -1, reason: str = "") -> Series:
    """A counter: the same object each time, since ports are alike and a fabric has millions of them."""
    key = (metric, port, priority, reason)
    found = _KNOWN.get(key)
    if found is None:
        found = Series(metric, port, priority, reason)
        _KNOWN[key] = found
    return found


def by_priority(metric: str, port: int) -> list[Series]:
    """The counters of a metric at a port, one a priority: the same list each time, not to be changed."""
    found = _BY_PRIORITY.get((metric, port))
    if found is None:
        found = [series_of(metric, port, priority) for priority in range(_PRIORITIES)]
        _BY_PRIORITY[(metric, port)] = found
    return found


class Deferred:
    """A port, as its device knows it that keeps when it sends next.

    A port's fields stand by cache line. Those of the first, for what arrives, stand here.
    """

    def __init__(self) -> None:
        self.mix: i64 = 0
        """Mix of what happened here: the device's mix at the place of this port."""
        self.received_frames: i64 = 0
        self.received_bytes: i64 = 0
        self.received_data_frames: i64 = 0
        self.suspect: bool = False
        """Whether a frame that arrives needs a look: the link was down once, has bit errors, or is tapped."""
        self.apart: bool = False
        """Whether frames that come in here take the switch's other path: cut-through, or virtual output
        queues."""
        self.cuts: bool = False
        """Whether their heads come in: cut-through."""
        self.ever_down: bool = False
        self.has_signal: bool = True
        """Whether there is a signal on the link; the port's state follows after a debounce time."""
        self.couples: bool = False
        """Whether trains may leave here."""
        self.limited: bool = False
        """Whether queues have limits of their own, or lossy ones an AQM that drops."""
        self.marks: bool = False
        """Whether a queue has an AQM."""
        # The second cache line.
        self.due_ps: i64 = 0
        self.number: i64 = 0
        self.due_next: Deferred | None = None
        """The next one of the device, by time and number."""

    def on_serve(self, now: i64) -> None:
        """It is time to send."""
        raise NotImplementedError

    def serve_event(self) -> Event:
        """The event that it would be."""
        raise NotImplementedError


class Notes:
    """What a device is seldom asked for. It stands apart, so that what every event reads is in fewer cache
    lines."""

    def __init__(self) -> None:
        self.mixing_ports: i64 = 0
        """How many ports, from port 0 on, keep their mixes themselves."""
        self.fault_states: list[list[int]] = []
        self.log: list[list[int]] = []
        self.events: EventLog | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Device:
    """Base of switches, NICs, hosts, GPUs and control-plane devices.

    A device keeps 62-bit mixes of what happened here, in order: at place 0 what concerns no port, at place
    p + 1 what happened at port p (`actors.kernel.mixing` says what counts). A `Port` keeps its own: `mix_at`,
    `set_mix` and `all_mixes` find it there. `executed` counts events; `progress` counts what the stall check
    looks at: payload bytes delivered, or compute done.
    """

    def __init__(self, number: int, queue: EventQueue) -> None:
        # What every event reads comes first.
        self.number: i64 = number
        self.queue: EventQueue = queue
        self.executed: i64 = 0
        self.due_ps: i64 = NEVER_PS
        """When the first of the deferred serves is due; NEVER_PS if there is none."""
        self._deferred: Deferred | None = None
        self._last_deferred: Deferred | None = None
        self._among: Deferred | None = None
        """The last one that was put before others, if it is deferred still: the next one mostly comes behind
        it."""
        self.stopping: i64 = 0
        """At how many ports a peer is to be stopped. Nothing is deferred meanwhile."""
        self.ahead_ps: i64 = -1
        """Up to when it has handled packets of trains ahead of time (`actors.port.passage`)."""
        self.progress: i64 = 0
        self._mixes: vec[i64] = vec[i64]([0])
        self.notes: Notes = Notes()

    @property
    def fault_states(self) -> list[list[int]]:
        """What faults have changed, in the order in which they began: op, place, fault, since_ps, values."""
        return self.notes.fault_states

    @property
    def log(self) -> list[list[int]]:
        """Its last `LOG_ROWS` notes, oldest first: at_ps, op of `actors.wire.fault`, place, three values.
        Changes of routes and configuration are noted (values of -1: as built), queue pairs that go into
        error, GPUs that are gone."""
        return self.notes.log

    @property
    def events(self) -> EventLog | None:
        """What took from when to when, where `run.event_log` asks for it."""
        return self.notes.events

    def start(self) -> None:
        """Push the first events; called once, before time begins."""

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        """A frame arrived: its last bit has passed the port's ingress pipeline now.

        The device mixes it into the digest first: by `Port.mix_arrival`, or its own where there is no `Port`.
        """
        raise AssertionError(f"device {self.number} takes no frames: port {port_number}")

    def on_train(self, train: Train, port_number: i64) -> None:
        """The first packet of a train arrived now; the others follow."""
        self.unroll(train, port_number)

    def unroll(self, train: Train, port_number: i64) -> None:
        """Let the packets of a train arrive one by one, the first of them now."""
        count: i64 = train.count
        if count > 1:
            train.coupling.failed()
        number: i64 = 1
        while number < count:
            self.queue.push(train.packet(number))
            number += 1
        self.on_frame(train, port_number)

    def let_follow(self, train: Train, number: i64) -> None:
        """Let the packets of a train that has come arrive as another one, from a number on."""
        rest = train.rest(number)
        train.count = number
        rest.whence = i32(ALONE)
        self.queue.push(rest)

    def uncouple(self, now: i64, place: i64) -> None:
        """Take back what was done ahead of time about packets of trains and had not happened before an event
        now, of this kind and port."""

    def uncouple_port(self, number: i64) -> None:
        """Uncouple what leaves through one port, before the event that is executed now."""

    def place_now(self) -> i64:
        """Kind and port of the event that is executed now."""
        return (self.queue.now_key >> PORT_SHIFT) & PLACE_MASK

    def frames_received(self) -> int:
        """Frames other than PFC that arrived over fabric links: packet-hops."""
        return 0

    def data_frames_received(self) -> int:
        """Frames with payload among those received."""
        return 0

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        """A message arrived over a host link or the management network."""
        raise AssertionError(f"device {self.number} takes no messages: op {message.op}, port {port}")

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        """Whether a message that came from another worker names only what there is here: queue pairs, jobs.

        Asked before it becomes pending, so that numbers beyond a table's end are the sender's fault and not a
        broken device.
        """
        return True

    def on_pause(self, message: Message, port: i64) -> None:
        """A PFC frame arrived and the response time has passed: a stops classes, b resumes, c is quanta."""
        raise AssertionError(f"device {self.number} takes no pauses: port {port}")

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        """A timer that this device pushed, or link state and configuration from the journal.

        Returns whether it had an effect of the model's, which the digest keeps: not where nothing was due any
        more, and not where the device merely turned to what waits (SERVE), which shows as what it then sends.
        """
        raise AssertionError(f"device {self.number} has no timer of kind {kind}")

    def on_fault(self, message: Message) -> None:
        """Something of this device breaks or is mended: `actors.wire.fault` says what a message means."""
        if self.due_ps < NEVER_PS:  # whether a port may be deferred can change
            self.hurry()
        op: int = message.op
        place: int = message.c
        now: int = self.queue.now_ps
        if message.b == BEGIN_FAULT:
            self.fault_states.append([op, place, message.a, now, message.d, message.e, message.f])
        else:
            number: int = -1
            if message.b == END_FAULT:
                number = message.a
            kept = [
                row
                for row in self.fault_states
                if row[0] != op or row[1] != place or (row[2] != number if number >= 0 else row[3] >= now)
            ]
            if len(kept) == len(self.fault_states):
                return
            self.notes.fault_states = kept
        values = self.fault_state(op, place)
        self.apply_fault(op, place, values)
        if op in LOGGED:
            self.note(op, place, [-1, -1, -1] if values is None else values)

    def note(self, op: int, place: int, values: list[int]) -> None:
        """Write into the device's log what happened now."""
        if len(self.log) == LOG_ROWS:
            self.log.pop(0)
        now: int = self.queue.now_ps
        self.log.append([now, op, place, values[0], values[1], values[2]])

    def fault_state(self, op: int, place: int) -> list[int] | None:
        """The three values that rule over something of this device now; None if nothing ails it."""
        for row in reversed(self.fault_states):
            if row[0] == op and row[1] == place:
                return row[4:]
        return None

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        """Something that a fault may change has these values from now on; None: those it was built with."""
        raise AssertionError(f"device {self.number} has no {op} at {place} to break: {values}")

    def reapply_faults(self) -> None:
        """After a snapshot was loaded: set again what faults had changed and the snapshot does not hold."""
        for op, place in dict.fromkeys([(row[0], row[1]) for row in self.fault_states]):
            if op in SETTINGS:
                self.apply_fault(op, place, self.fault_state(op, place))

    def mix_at(self, place: i64) -> i64:
        """The mix of a place: 0 is what concerns no port, p + 1 is port p."""
        if place < len(self._mixes):
            return self._mixes[place]
        return 0

    def set_mix(self, place: i64, digest: i64) -> None:
        """The mix of a place is this from now on."""
        mixes = self._mixes
        while len(mixes) <= place:
            mixes = append(mixes, 0)
        mixes[place] = digest
        self._mixes = mixes

    def write_mixes(self, into: Tally) -> None:
        """Write the mixes by place; what lies beyond the end is 0."""
        into.add_table(self._mixes)

    def all_mixes(self) -> list[int]:
        """The mixes by place."""
        tally = Tally()
        self.write_mixes(tally)
        return tally.listed()

    def mix_in(self, port: i64, tag: i64, word: i64) -> None:
        """Something happened now at a port (-1, or the management network: at none of them)."""
        place: i64 = (port + 1) & PORT_MASK
        self.set_mix(place, mix(mix(self.mix_at(place), self.queue.now_ps ^ (tag << TAG_SHIFT)), word))

    def mix_arrival(self, port: i64, frame: Frame) -> None:
        """A frame arrived now at a port that is no `Port`."""
        tag: i64 = i64(frame.opcode) | (i64(frame.ecn) << (ECN_SHIFT - TAG_SHIFT))
        self.mix_in(port, tag, packet_word(frame))

    def mix_timer(self, kind: i64, port: i64, subject: i64) -> None:
        """A timer had an effect."""
        at: i64 = -1
        if (PORT_KINDS >> kind) & 1:
            at = port
        self.mix_in(at, KIND_TAG + kind, (port << PORT_SHIFT) | subject)

    def mix_drop(self, port: i64, reason: i64, frame: Frame) -> None:
        """A frame is lost, and this port counts it; `reason` is from 1 to 15."""
        self.mix_in(port, DROP_TAG + reason, packet_word(frame))

    def mix_message(self, kind: i64, port: i64, subject: i64, message: Message) -> None:
        """A message, pause or fault is here: all that it says."""
        place: i64 = (port + 1) & PORT_MASK
        mixes = self._mixes
        here: bool = place > self.notes.mixing_ports and place < len(mixes)
        before: i64 = mixes[place] if here else self.mix_at(place)
        # `mix` written out: interpreted, the calls would be up to a tenth of a run.
        h: i64 = before ^ self.queue.now_ps ^ ((KIND_TAG + kind) << TAG_SHIFT)
        h = (h * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ ((message.op << PORT_SHIFT) | subject)) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.a) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.b) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.c) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.d) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.e) * DIGEST_MULTIPLIER) & MASK62
        h = ((h ^ (h >> 29) ^ message.f) * DIGEST_MULTIPLIER) & MASK62
        digest: i64 = h ^ (h >> 29)
        data = message.data
        if data is not None:
            digest = mix(mix(digest, len(data)), zlib.crc32(data))
        if here:
            mixes[place] = digest
        else:
            self.set_mix(place, digest)

    def let_defer(self) -> bool:
        """Its ports may defer what they send next from now on. Whether some do that lead to other blocks or
        workers: what is due there has to be sent before a turn ends (`send_due`)."""
        return False

    def let_couple(self, near: list[Outbox]) -> None:
        """It may make trains and let them pass from now on, also to blocks of this kernel, whose inboxes are
        `near`; its ports may defer already, if they may at all."""

    def defer(self, sender: Deferred) -> None:
        """Keep here, and not in the queue, which costs more, when a port sends next: at `sender.due_ps`. That
        is done before whatever else happens to this device later, and at the latest when the frame arrives
        behind which it sends (`Frame.whence`). Until then nobody can tell the difference.
        """
        due_ps: i64 = sender.due_ps
        before = self._last_deferred
        if before is None:
            self._deferred = sender
            self.due_ps = due_ps
            self._last_deferred = sender
        elif before.due_ps < due_ps or (before.due_ps == due_ps and before.number < sender.number):
            before.due_next = sender
            self._last_deferred = sender
        else:
            self._defer_among(sender)

    def _defer_among(self, sender: Deferred) -> None:
        """Put a port before others that are deferred."""
        due_ps: i64 = sender.due_ps
        number: i64 = sender.number
        before: Deferred | None = self._among
        first = self._deferred
        if before is not None:
            known: Deferred = before
            if known.due_ps < due_ps or (known.due_ps == due_ps and known.number < number):
                first = known.due_next
            else:
                before = None
        assert first is not None, self.number
        other: Deferred = first
        while other.due_ps < due_ps or (other.due_ps == due_ps and other.number < number):
            before = other
            following = other.due_next
            assert following is not None, self.number
            other = following
        self._among = sender
        sender.due_next = other
        if before is None:
            self._deferred = sender
            self.due_ps = due_ps
        else:
            before.due_next = sender

    def catch_up(self, now: i64, place: i64) -> None:
        """Let deferred ports send that are due before an event of a kind and port that is executed now."""
        queue = self.queue
        while self.due_ps <= now:
            first = self._deferred
            assert first is not None, self.number
            sender: Deferred = first  # what is narrowed is checked again at each use
            due_ps: i64 = sender.due_ps
            if due_ps == now and (SERVE << PORT_BITS) | sender.number > place:
                break
            if self._among is sender:
                self._among = None
            if sender.due_next is None:
                self._deferred = None
                self._last_deferred = None
                self.due_ps = NEVER_PS
            else:
                following: Deferred = sender.due_next
                sender.due_next = None
                self._deferred = following
                self.due_ps = following.due_ps
            queue.now_ps = due_ps
            self.executed += 1
            sender.on_serve(due_ps)
        queue.now_ps = now

    def send_due(self, until_ps: i64) -> None:
        """Let deferred ports send that are due before a time, where nothing else happens here until then. The
        clock stands at the last one's."""
        while self.due_ps < until_ps:
            self.catch_up(self.due_ps, PLACE_MASK)

    def hurry(self) -> None:
        """Put what is deferred into the queue after all: what it does must be known elsewhere in time."""
        for event in self.deferred():
            self.queue.push(event)
        self.forget_deferred()

    def deferred(self) -> list[Event]:
        """The serves that are deferred, in order."""
        events: list[Event] = []
        sender = self._deferred
        while sender is not None:
            events.append(sender.serve_event())
            sender = sender.due_next
        return events

    def undefer(self, sender: Deferred) -> None:
        """Keep a port no longer that is deferred."""
        before: Deferred | None = None
        other = self._deferred
        while other is not None and other is not sender:
            before = other
            other = other.due_next
        assert other is not None, (self.number, sender.number)
        following = sender.due_next
        sender.due_next = None
        self._among = None
        if before is None:
            self._deferred = following
            self.due_ps = NEVER_PS if following is None else following.due_ps
        else:
            before.due_next = following
        if following is None:
            self._last_deferred = before

    def forget_deferred(self) -> None:
        """Nothing is deferred any more."""
        sender = self._deferred
        while sender is not None:
            following = sender.due_next
            sender.due_next = None
            sender = following
        self._deferred = None
        self._last_deferred = None
        self._among = None
        self.due_ps = NEVER_PS

    def push_timer(self, time_ps: i64, kind: i64, port: i64, subject: i64) -> None:
        """Make a timer of this device pending."""
        event = Event(time_ps, pack_key(self.number, kind, port, subject))
        watch = self.queue.watch
        if watch is not None:
            watch.note(time_ps, event.key, leaves=False)
        self.queue.push(event)

    def series(self) -> list[Series]:
        """The device's counters, in a fixed order; devices that count alike may have the same list, not to be
        changed."""
        return []

    def count(self, into: Tally) -> None:
        """Write the value of each counter of `series`, now."""

    def counters(self) -> list[int]:
        """The value of each counter of `series`, now."""
        tally = Tally()
        self.count(tally)
        return tally.listed()

    def steady(self) -> bool:
        """Whether the counters stand still while the device executes nothing: no time is being counted."""
        return True

    def end_states(self) -> list[int]:
        """What else the run's digest covers: queue pairs' sequence numbers, job results."""
        return []

    def results(self) -> dict[str, list[list[int]]]:
        """Rows of integers for the summary, by table."""
        return {}

    def save(self) -> list[Plain]:
        """The device's whole state, except what it was built from."""
        fault_states: list[Plain] = [list[Plain](row) for row in self.fault_states]
        notes: list[Plain] = [list[Plain](row) for row in self.log]
        events = self.events
        mixes: list[Plain] = list[Plain](self.all_mixes())
        return [
            mixes,
            self.executed,
            self.progress,
            fault_states,
            notes,
            None if events is None else list[Plain](events.save()),
        ]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built device returned."""
        self.ahead_ps = -1
        for place, digest in enumerate(_integers(state[0])):
            self.set_mix(place, digest)
        self.executed, self.progress = _integers(state[1:3])
        self.notes.fault_states = _rows(state[3])
        self.notes.log = _rows(state[4])
        events = self.events
        if events is not None and state[5] is not None:
            events.load(_integers(state[5]))


def _integers(saved: Plain) -> list[int]:
    """A list of integers, as `save` put it."""
    assert isinstance(saved, list), saved
    return [value for value in saved if isinstance(value, int)]


def _rows(saved: Plain) -> list[list[int]]:
    """Lists of integers, as `save` put them."""
    assert isinstance(saved, list), saved
    return [_integers(row) for row in saved]


def counts_of(devices: list[Device]) -> Tally:
    """The counters of devices, now, in their order."""
    tally = Tally()
    for device in devices:
        device.count(tally)
    return tally
