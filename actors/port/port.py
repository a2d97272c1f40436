"""One port of a switch or NIC: what leaves first, what becomes of what arrives, counters, faults.

A port sends one frame at a time. It knows when its wire is free, so an uncongested hop costs one event, the
arrival; a *serve* exists only while something waits. Where more is to leave behind a frame that leaves now,
the device keeps the serve (`Device.defer`), and it is no event of the queue.

There is one way to leave: `send_at_once` where nothing goes before a frame, else `serve`, which asks the
port's scheduler (`actors.port.scheduling`) for the next class; without one the port is strict, the highest
priority number first.

A class that flow control blocks is not served. Flow control is a hook: whoever implements it (PFC or credits)
keeps the `blocked` mask and is notified when frames wait to be sent on its behalf. Down clears its state.

A port keeps the mix of what happened at it, for the digest (`actors.kernel.mixing`): an arrival reads and
writes it beside the port's counters.

A frame that bit errors spoilt is dropped where it arrives (`actors.port.impairments`).

Its counters are read at sync points and at scrapes: integers that the port keeps anyway, and times that go on
while a class is stopped (`count_port`).

Its faults (`apply_port_fault`): its rate (the next frame takes the new one), bits and frames that are spoilt
on the way to it, delay and jitter of what it sends, and its share of priority flow control: it storms, it
does not hear, it has none.

Taps (`actors.port.tap`) see what enters and leaves a port. A port without one pays nothing: arrivals are
shown behind `suspect` and departures behind `measuring`, which are asked anyway.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from actors.kernel.block import Outbox
from actors.kernel.counters import (
    PFC_PAUSED_PS,
    PFC_RECEIVE_TRANSITIONS,
    PFC_RECEIVE_XOFF_FRAMES,
    PFC_RECEIVE_XON_FRAMES,
    PFC_TRANSMIT_PAUSED_PS,
    PFC_TRANSMIT_TRANSITIONS,
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_TRANSMIT_XON_FRAMES,
    PORT_DROPPED_FRAMES,
    PORT_LINK_DOWNED,
    PORT_RECEIVE_BYTES,
    PORT_RECEIVE_FRAMES,
    PORT_TRANSMIT_BYTES,
    PORT_TRANSMIT_FRAMES,
    PORT_TRANSMIT_PAYLOAD_BYTES,
    PORT_UP,
)
from actors.kernel.device import Device, Plain, Series, Tally, by_priority, series_of
from actors.kernel.event import LINK_STATE, SERVE, Event, Message, pack_key, void
from actors.kernel.mixing import DIGEST_MULTIPLIER, ECN_SHIFT, MASK62, TAG_SHIFT, Stream, mix
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.port.credits import Credits, credit_counters, credit_series
from actors.port.impairments import BitErrors
from actors.port.link import PRIORITIES, LinkEnd, Wire
from actors.port.passage import Passage
from actors.port.pfc import ALL_CLASSES, Pfc
from actors.port.scheduling import Scheduler, highest, next_class
from actors.port.tap import CORRUPT, LINK_DOWN, Recorder, Tap
from actors.wire.fault import DEAF, DELAY, ERRORS, PFC_OFF, RATE, STORM
from actors.wire.frame import PSN_SHIFT, QPN_SHIFT, Frame
from actors.wire.train import ALONE, Train

LINK_DOWN_DROP: Final[i64] = 7
CORRUPT_DROP: Final[i64] = 8
"""What the digest calls the losses of a port; those of switches and NICs have other numbers."""
ONE: Final[i64] = -1
"""Answer of `Port.may_pass`: the first goes as a frame of its own, and the others may follow."""
DEBOUNCED: Final[i64] = 2
"""The subject of LINK_STATE that ends a debounce time; the link's own changes have 0 and 1."""
_FIELDS: Final = (
    "rate_bps",
    "free_ps",
    "waiting",
    "blocked",
    "control_pending",
    "up",
    "has_signal",
    "declare_ps",
    "declare_pending",
    "ever_down",
    "downs",
    "serve_pending",
    "sent_frames",
    "sent_bytes",
    "sent_data_bytes",
    "marked_bytes",
    "marked_before_bytes",
    "received_frames",
    "received_bytes",
    "received_data_frames",
    "lost_link_down",
    "suspect",
    "corrupted",
)


@mypyc_attr(allow_interpreted_subclasses=False)
class Port(LinkEnd):
    """One end of a fabric link with the frames that wait there.

    Bit p of `waiting` is set while a frame of priority p could be taken.
    """

    def __init__(self, owner: Device, number: int, wire: Wire, own_ingress_latency_ps: int) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps)
        self._serve_event = Event(0, pack_key(owner.number, SERVE, number, 0))
        self.marked_bytes: i64 = 0
        """What was sent by the last sampling point, where a fault is to hit what is busiest."""
        self.marked_before_bytes: i64 = 0
        """By the one before."""
        self.pfc: Pfc | None = None
        self.credits: Credits | None = None
        self.lost_link_down: i64 = 0
        self.errors: BitErrors | None = None
        self.corrupted: i64 = 0
        """Frames that arrived with a wrong FCS."""
        self.taps: list[Tap] = []
        self._recorded: list[Plain] = []
        """What recorders had at the time of a snapshot, for those that are set up later."""
        self.scheduler: Scheduler | None = None
        self.coming: Passage | None = None
        """Passage of a train that arrives here."""
        self.leaving: Passage | None = None
        """The last train of which packets leave here ahead of time; it may be over."""

    def set_scheduler(self, scheduler: Scheduler) -> None:
        """Let a scheduler choose the next class."""
        self.scheduler = scheduler
        self.shares = True
        scheduler.backlog = self

    def place(self) -> str:
        return f"port {self.number} of device {self.owner.number}"

    def mix_arrival(self, frame: Frame, now: i64) -> None:
        """A frame is here, or its head where the device cuts through: before anything is done with it."""
        # `mix` written out: interpreted, the calls would be an eighth of a run.
        opcode: int = frame.opcode
        ecn: int = frame.ecn
        psn: int = frame.psn
        qpn: int = frame.qpn
        size: int = frame.wire_bytes
        digest: i64 = self.mix ^ now ^ (opcode << TAG_SHIFT) ^ (ecn << ECN_SHIFT)
        digest = (digest * DIGEST_MULTIPLIER) & MASK62
        digest ^= (digest >> 29) ^ (psn << PSN_SHIFT) ^ (qpn << QPN_SHIFT) ^ size
        digest = (digest * DIGEST_MULTIPLIER) & MASK62
        self.mix = digest ^ (digest >> 29)

    def let_couple(self, near: list[Outbox]) -> None:
        """Trains may leave here from now on: within a block, or to one of those whose inboxes are `near`."""
        outbox = self.outbox
        self.couples = self.defers
        if outbox is not None and self.flight_ps > 0 and not self.shares:
            self.couples = any(inbox is outbox for inbox in near)

    def may_pass(self, priority: i64, wire_bytes: i64, gap_ps: i64, count: i64, first_ps: i64) -> i64:
        """How many of so many frames of a priority, so far apart, can leave here ahead of time, from one on
        that is now or the end of the frame that leaves now: all before the first one arrives at the other
        end, and, where that is in another block, before the turn of this one ends. 0 if something is in their
        way; ONE if the first is to go as a frame of its own, and the others may follow."""
        if not self.couples or not self.up or self.uneven or self.measuring or self.control_pending:
            return 0
        discarding: int = self.discarding
        if ((self.blocked | discarding) >> priority) & 1 or self.waiting != 0 or self.serve_pending:
            return 0
        leaving = self.leaving
        if leaving is not None and leaving.last_ps >= self.owner.queue.now_ps:
            return 0
        sending_ps: i64 = wire_bytes * self.ps_per_byte
        if sending_ps == 0 or sending_ps > gap_ps:
            return 0
        until_ps: i64 = first_ps + sending_ps + self.flight_ps
        if self.outbox is not None and self.owner.queue.turn_end_ps < until_ps:
            until_ps = self.owner.queue.turn_end_ps
        if until_ps <= first_ps:
            return ONE
        return min(count, 1 + (until_ps - 1 - first_ps) // gap_ps)

    def arrive_ahead(self, passage: Passage) -> None:
        """All packets of a train arrive here ahead of time."""
        train = passage.train
        passage.mix = self.mix
        self.mix = train.mixed(self.mix, passage.first_ps, passage.count)
        self._received(train, passage.count)
        self.coming = passage

    def take_back_arrivals(self, passage: Passage, arrived: i64) -> None:
        """Only so many of them have arrived."""
        train = passage.train
        self.mix = train.mixed(passage.mix, passage.first_ps, arrived)
        self._received(train, arrived - passage.count)
        self.coming = None

    def _received(self, train: Train, count: i64) -> None:
        size: int = train.wire_bytes
        self.received_frames += count
        self.received_bytes += count * size
        if train.payload_bytes > 0:
            self.received_data_frames += count

    def leave_ahead(self, passage: Passage, train: Train) -> None:
        """All packets of a train leave here ahead of time, each `wait_ps` after it arrived."""
        first_ps: i64 = passage.first_ps + passage.wait_ps
        size: int = train.wire_bytes
        sending_ps: i64 = size * self.ps_per_byte
        self._sent_so_many(train, passage.count)
        self.free_ps = passage.last_ps + sending_ps
        self.marked = False
        self.leaving = passage
        train.sent_ps = first_ps
        train.time_ps = first_ps + sending_ps + self.flight_ps
        train.key = self.peer_key
        train.whence = i32(ALONE)
        if self.outbox is None:
            self.owner.queue.push(train)
        else:
            self.outbox.add_frame(train)

    def take_back_departures(self, passage: Passage, train: Train, left: i64) -> None:
        """Only so many of them have left."""
        self._sent_so_many(train, left - passage.count)
        first_ps: i64 = passage.first_ps + passage.wait_ps
        size: int = train.wire_bytes
        self.free_ps = first_ps
        if left > 0:
            self.free_ps = first_ps + (left - 1) * passage.gap_ps + size * self.ps_per_byte
        train.count = left
        if left == 0:
            if self.outbox is None:
                self.owner.queue.void(train)
            else:
                void(train)
        self.leaving = None

    def _sent_so_many(self, train: Train, count: i64) -> None:
        size: int = train.wire_bytes
        payload: int = train.payload_bytes
        self.sent_frames += count
        self.sent_bytes += count * size
        self.sent_data_bytes += count * payload

    def send_at_once(self, frame: Frame, now: i64) -> bool:
        """Send a frame now if nothing goes before it and nothing forbids it; whether it left."""
        priority: int = frame.priority
        discarding: int = self.discarding
        if (
            (self.waiting & ~self.blocked) == 0
            and self.free_ps <= now
            and ((self.blocked | discarding) >> priority) & 1 == 0
            and self.up
            and not self.control_pending
        ):
            self.transmit(frame, now)
            return True
        return False

    def transmit(self, frame: Frame, now: i64) -> None:
        """Send a frame now; the port is free and the class is not blocked."""
        if self.measuring:
            self.tell(frame, now)
            for tap in self.taps:
                tap.sent(frame, now)
        its: int = frame.wire_bytes
        size: i64 = its
        done: i64 = now + (size * self.ps_per_byte if self.ps_per_byte > 0 else self.serialisation(size))
        self.free_ps = done
        self.sent_frames += 1
        self.sent_bytes += size
        payload: int = frame.payload_bytes
        self.sent_data_bytes += payload
        frame.sent_ps = now
        frame.time_ps = done + self.flight_ps
        self.marked = self.crowded
        frame.whence = 0
        if self.crowded:
            frame.whence = self.as_left
        if self.uneven:
            self._fly(frame, now, done)
        frame.key = self.peer_key
        if not self.outbound:
            self.owner.queue.push(frame)
        elif self.outbox is not None:
            self.outbox.add_frame(frame)

    def _fly(self, frame: Frame, now: i64, done: i64) -> None:
        """When a frame arrives that left now and occupies the link until `done`, where that is uneven."""
        if self.head_ps > 0:
            frame.time_ps = now + self.head_ps + self.flight_ps
        if self.added_delay is not None:
            frame.time_ps = self.added_delay.frame_ps(frame.time_ps, done - now, self.head_ps > 0)

    def tell(self, frame: Frame, now: i64) -> None:
        """A frame leaves now: it costs credits, and a switch's port writes into it what it has to say."""
        if self.credits is not None:
            self.credits.spend(i64(frame.priority), i64(frame.wire_bytes), now)

    def send_control(self, now: i64) -> None:
        """Send what flow control has pending; the wire is free."""
        if self.pfc is not None:
            self.pfc.transmit(now)
        elif self.credits is not None:
            self.credits.transmit(now)

    def take(self, priority: i64, now: i64) -> Frame | None:
        """The next frame of a priority whose `waiting` bit is set; None if it cannot be had after all."""
        raise AssertionError(f"port {self.number} has no frames of priority {priority} at {now}")

    def kick(self, now: i64) -> None:
        """Something may be sendable: serve now if the wire is free, or when it becomes so."""
        if self.serve_pending or self.serving or not self.up:
            return
        if (self.waiting & ~self.blocked) == 0 and not self.control_pending:
            return
        if self.free_ps <= now:
            self.serve(now)
        elif self.marked and self._may_put_off():
            self.put_off()
        else:
            self.crowded = self.defers
            self.arm()

    def break_in(self, now: i64) -> None:
        if self.leaving is not None:
            self.owner.uncouple_port(self.number)
        self.kick(now)

    def arm(self) -> None:
        """Serve when the wire becomes free."""
        self.serve_pending = True
        event = self._serve_event
        event.time_ps = self.free_ps
        self.owner.queue.push(event)

    def let_defer(self) -> bool:
        """It may be deferred from now on when it sends next, if it is known of a frame that leaves here when
        it arrives: what leaves behind it need not be known before. Whether it does that and leads to another
        block or worker, which needs what leaves by the end of the turn."""
        self.defers = self.flight_ps > 0 and not self.shares
        if self.outbound:
            self.crowded = self.defers
        return self.outbound and self.defers

    def _arm_behind(self, frame: Frame) -> None:
        """Serve when the wire becomes free, behind a frame that leaves now."""
        if self.leaving is not None and self._begins(frame):
            return
        if self._may_put_off():
            frame.whence = self.as_left
            self.put_off()
        else:
            self.arm()

    def _may_put_off(self) -> bool:
        """Whether it may be deferred that something leaves as the wire becomes free, if the frame that has
        the wire is marked."""
        if not self.defers or self.uneven or self.measuring or self.control_pending:
            return False
        return self.owner.stopping == 0

    def put_off(self) -> None:
        """Defer to serve until the wire is free."""
        self.serve_pending = True
        self.due_ps = self.free_ps
        self.owner.defer(self)

    def _begins(self, frame: Frame) -> bool:
        """Whether the frame that leaves now is the first of a train that begins here: it serves behind its
        last."""
        leaving = self.leaving
        assert leaving is not None, self.place()
        if leaving.train is not frame or leaving.first_ps != frame.sent_ps:
            self.leaving = None  # it is over
            return False
        self.free_ps = leaving.last_ps + leaving.gap_ps
        self.marked = False
        frame.whence = -self.as_left
        self.put_off()
        return True

    def serve_event(self) -> Event:
        event = self._serve_event
        event.time_ps = self.due_ps
        return event

    def on_serve(self, now: i64) -> None:
        """The serve event fired. A frame that arrived at this instant may have taken the wire meanwhile."""
        self.serve_pending = False
        if self.free_ps <= now and self.up and ((self.waiting & ~self.blocked) != 0 or self.control_pending):
            self.serve(now)
        else:
            self.kick(now)

    def serve(self, now: i64) -> None:
        """Send the next frame, or what flow control has pending; the wire is free."""
        self.serving = True
        if self.control_pending:
            self.send_control(now)
        else:
            ready: i64 = self.waiting & ~self.blocked
            while ready != 0:
                priority: i64 = self._scheduled(ready, now) if self.shares else highest(ready)
                taken = self.take(priority, now)
                if taken is not None:
                    frame: Frame = taken
                    self.transmit(frame, now)
                    if self.shares:
                        self._sent(priority, i64(frame.wire_bytes), now)
                    self.serving = False
                    if (self.waiting & ~self.blocked) != 0 or self.control_pending:
                        self._arm_behind(frame)
                    return
                ready = self.waiting & ~self.blocked
        self.serving = False
        if (self.waiting & ~self.blocked) != 0 or self.control_pending:
            self.arm()

    def _scheduled(self, ready: i64, now: i64) -> i64:
        scheduler = self.scheduler
        assert scheduler is not None, self.place()
        return next_class(scheduler, ready, now)

    def _sent(self, priority: i64, wire_bytes: i64, now: i64) -> None:
        scheduler = self.scheduler
        assert scheduler is not None, self.place()
        scheduler.on_sent(priority, wire_bytes, now)

    def spoilt(self, frame: Frame, now: i64) -> bool:
        """Whether a frame that arrived here, at a port that is suspect, is lost: the link was down at any
        moment of its flight, or bits of it are wrong."""
        if self.ever_down and self.was_down(frame.sent_ps, now - self.own_ingress_latency_ps):
            self._lose_arrived(frame, now, self.cuts)
            return True
        errors = self.errors
        if errors is not None and errors.spoils(i64(frame.wire_bytes)):
            frame.corrupt = 1
        if frame.corrupt != 0 and not self.cuts:  # the FCS comes last: who cuts through knows too late
            self._reject(frame, now)
            return True
        for tap in self.taps:
            tap.saw(frame, now)
        return False

    def set_tap(self, tap: Tap) -> None:
        """Show a tap what enters and leaves; without one a port pays nothing."""
        self.taps.append(tap)
        self.suspect = True
        self.measuring = True
        if isinstance(tap, Recorder):
            for state in self._recorded:
                tap.load(state)

    def show_drop(self, frame: Frame, reason: i64, at_ps: i64, arrived: bool) -> None:
        """A frame is dropped that arrived here at `at_ps`, or that was to leave: show it to the taps."""
        for tap in self.taps:
            tap.dropped(frame, reason, at_ps, arrived=arrived)

    def show_heard(self, message: Message, now: i64) -> None:
        """A PFC frame or an update of credits takes effect here now: show it to the taps."""
        lost: bool = self.ever_down and self.was_down(message.f, now)
        for tap in self.taps:
            tap.controlled(message, now, arrived=True, lost=lost)

    def transmit_pause(self, message: Message, wire_bytes: i64, now: i64) -> None:
        for tap in self.taps:
            tap.controlled(message, now, arrived=False, lost=False)
        super().transmit_pause(message, wire_bytes, now)

    def set_errors(self, errors: BitErrors) -> None:
        """Frames that arrive here come over a link with bit errors."""
        self.errors = errors
        self.check_fcs()

    def check_fcs(self) -> None:
        """Frames that arrive here may have a wrong FCS."""
        self.suspect = True

    def tail_spoilt(self, frame: Frame, now: i64) -> bool:
        """Whether a frame whose head was accepted is lost after all, now that its tail is here."""
        if self.ever_down and self.was_down(frame.sent_ps, now - self.own_ingress_latency_ps):
            self._lose_arrived(frame, now, head=False)
            return True
        if frame.corrupt != 0:
            self._reject(frame, now)
            return True
        return False

    def lose(self, frame: Frame) -> None:
        """A frame that was to leave is lost because the link is down."""
        self.lost_link_down += 1
        self.show_drop(frame, LINK_DOWN, self.owner.queue.now_ps, arrived=False)
        self.owner.mix_drop(self.number, LINK_DOWN_DROP, frame)

    def _lose_arrived(self, frame: Frame, now: i64, head: bool) -> None:
        """A frame is lost because the link was down during its flight."""
        self.lost_link_down += 1
        self.show_drop(frame, LINK_DOWN, self.received_ps(i64(frame.wire_bytes), now, head), arrived=True)
        self.owner.mix_drop(self.number, LINK_DOWN_DROP, frame)

    def _reject(self, frame: Frame, now: i64) -> None:
        """A frame is lost because its FCS is wrong."""
        self.corrupted += 1
        at_ps: i64 = self.received_ps(i64(frame.wire_bytes), now, head=False)
        self.show_drop(frame, CORRUPT, at_ps, arrived=True)
        self.owner.mix_drop(self.number, CORRUPT_DROP, frame)

    def signal_changed(self, up: bool, now: i64) -> None:
        """The link lost its signal or has it back, at both ends at this instant. The port goes down or up
        when that has lasted for its debounce time; what is sent until it goes down is lost."""
        if up == self.has_signal:
            return
        self.has_signal = up
        self.declare_ps = 0
        wait_ps: i64 = self.up_debounce_ps if up else self.down_debounce_ps
        if up == self.up:  # it is as the port has it still
            if up:
                self._came_up(now)
            return
        if wait_ps == 0:
            self.set_link(up, now)
            return
        if not up:
            self.suspect = True
            self._went_down(now)
        self.declare_ps = now + wait_ps
        if not self.declare_pending:
            self.declare_pending = True
            self.owner.push_timer(self.declare_ps, LINK_STATE, self.number, DEBOUNCED)

    def debounced(self, now: i64) -> None:
        """A debounce time may be over: the port takes the state of its link, or waits for a later one."""
        self.declare_pending = False
        if self.declare_ps > now:
            self.declare_pending = True
            self.owner.push_timer(self.declare_ps, LINK_STATE, self.number, DEBOUNCED)
        elif self.declare_ps > 0:
            self.declare_ps = 0
            self.set_link(self.has_signal, now)

    def set_link(self, up: bool, now: i64) -> None:
        """The port goes down or up."""
        if up == self.up:
            return
        self.up = up
        pfc = self.pfc
        if up:
            self._came_up(now)
            if pfc is not None:
                pfc.link_up(now)
            if self.credits is not None:
                self.credits.link_up(now)
            self.link_raised(now)
            self.kick(now)
        else:
            self.suspect = True
            self.downs += 1
            if self.down_debounce_ps == 0:
                self._went_down(now)
            if pfc is not None:
                pfc.link_down(now)
            if self.credits is not None:
                self.credits.link_down(now)
            self.link_lost(now)

    def link_lost(self, now: i64) -> None:
        """What the owner does with frames that wait here when the link goes down."""

    def link_raised(self, now: i64) -> None:
        """What the owner does when the link comes back."""

    def save(self) -> list[Plain]:
        """The port's state."""
        return [
            save_fields(self, _FIELDS),
            list[Plain](self.down_starts),
            list[Plain](self.down_ends),
            None if self.pfc is None else self.pfc.save(),
            None if self.errors is None else self.errors.stream.counter,
            None if self.credits is None else self.credits.save(),
            None if self.added_delay is None else self.added_delay.save(),
            None if self.scheduler is None else self.scheduler.save(),
            self._save_recorders(),
        ]

    def _save_recorders(self) -> list[Plain]:
        return [tap.save() for tap in self.taps if isinstance(tap, Recorder)]

    def load(self, state: Plain) -> None:
        """Take the state that `save` of an equally built port returned."""
        fields, starts, ends, pfc, drawn, lanes, added_delay, scheduler, captured = as_list(state)
        load_fields(self, _FIELDS, fields)
        self.leaving = None
        self.coming = None
        self.marked = False
        taps = self.taps
        self.taps = []
        self._recorded = as_list(captured)
        for tap in taps:
            self.set_tap(tap)
        self.set_rate(self.rate_bps)
        self.down_starts = [as_int(start_ps) for start_ps in as_list(starts)]
        self.down_ends = [as_int(end_ps) for end_ps in as_list(ends)]
        if self.pfc is not None:
            self.pfc.load(pfc)
        if self.credits is not None:
            self.credits.load(lanes)
        if drawn is not None:  # what a fault made gets its dice and numbers when the fault is applied again
            self.errors = self.errors or BitErrors(0, Stream(0, 0, 0))
            self.errors.stream.counter = as_int(drawn)
        if added_delay is not None:
            self.delayed().load(added_delay)
        if self.scheduler is not None:
            self.scheduler.load(as_list(scheduler))


PORT_METRICS: Final = (
    PORT_TRANSMIT_FRAMES,
    PORT_TRANSMIT_BYTES,
    PORT_TRANSMIT_PAYLOAD_BYTES,
    PORT_RECEIVE_FRAMES,
    PORT_RECEIVE_BYTES,
)
PFC_METRICS: Final = (
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_TRANSMIT_XON_FRAMES,
    PFC_RECEIVE_XOFF_FRAMES,
    PFC_RECEIVE_XON_FRAMES,
    PFC_TRANSMIT_TRANSITIONS,
    PFC_RECEIVE_TRANSITIONS,
    PFC_TRANSMIT_PAUSED_PS,
    PFC_PAUSED_PS,
)
"""What is counted of each priority, in the order of `count_port`."""


_KNOWN: Final[dict[tuple[int, bool], list[Series]]] = {}


def port_series(port: Port) -> list[Series]:
    """The counters that every fabric port has, in the order of `count_port`: the same list for each that has
    this number, not to be changed."""
    number: int = port.number
    key = (number, port.credits is not None)
    known = _KNOWN.get(key)
    if known is not None:
        return known
    rows = [series_of(metric, number) for metric in PORT_METRICS]
    rows += [series_of(PORT_DROPPED_FRAMES, number, -1, reason) for reason in ("link_down", "corrupt")]
    rows += [series_of(PORT_UP, number), series_of(PORT_LINK_DOWNED, number)]
    for metric in PFC_METRICS:
        rows += by_priority(metric, number)
    if port.credits is not None:
        rows += credit_series(number)
    _KNOWN[key] = rows
    return rows


def port_is_steady(port: Port) -> bool:
    """Whether none of these is a time that goes on."""
    return port.blocked == 0 and (port.pfc is None or port.pfc.signalled == 0)


def port_mark(port: Port, owners_mix: i64) -> i64:
    """While this is the same and not 0, nothing that is counted of the port changes, except what frames that
    came in here still hold elsewhere: its mix and its owner's (of what concerns no port) have what happened,
    and `sent_frames` what left. 0 where something waits here or is stopped, so that mixes may stay and a
    counter go on."""
    if port.waiting != 0 or port.blocked != 0 or port.control_pending:
        return 0
    if port.cuts or port.credits is not None:
        return 0
    pfc = port.pfc
    if pfc is not None and (pfc.signalled | pfc.stopping) != 0:
        return 0
    return mix(mix(port.mix, port.sent_frames), owners_mix)


PARTS: Final[i64] = 4
"""Parts of a port's counters for `Tally.stands`, whose numbers begin at its own times this: all of a switch's
port, and of that PFC, queues and groups."""


def count_port(into: Tally, port: Port, now: i64) -> None:
    """Write the values of `port_series`, now."""
    into.add(port.sent_frames)
    into.add(port.sent_bytes)
    into.add(port.sent_data_bytes)
    into.add(port.received_frames)
    into.add(port.received_bytes)
    into.add(port.lost_link_down)
    into.add(port.corrupted)
    into.add(1 if port.up else 0)
    into.add(port.downs)
    part: i64 = PARTS * port.number + 1
    pfc = port.pfc
    if pfc is None:
        if not into.stands(part, 1):
            into.add_zeros(len(PFC_METRICS) * PRIORITIES)
            into.keep(part, 1)
        lanes = port.credits
        if lanes is not None:
            into.add_list(credit_counters(lanes, now))
        return
    mark: i64 = 0
    if port.blocked == 0 and pfc.signalled == 0:
        mark = pfc.counted_changes
    if into.stands(part, mark):
        return
    into.add_table(pfc.sent)
    into.add_table(pfc.resumed)
    into.add_table(pfc.received)
    into.add_table(pfc.received_resumes)
    into.add_table(pfc.stops)
    into.add_table(pfc.pauses)
    for priority in range(PRIORITIES):
        into.add(pfc.signalled_time_ps(priority, now))
    for priority in range(PRIORITIES):
        into.add(pfc.paused_time_ps(priority, now))
    into.keep(part, mark)


ERRORS_PURPOSE: Final = 1 << 21
"""Purpose of the random streams of links with bit errors: this, plus the receiving port's number."""
JITTER_PURPOSE: Final = 1 << 22
"""Purpose of the random streams of jitter: this, plus the sending port's number."""


def apply_port_fault(port: Port, op: int, values: list[int] | None, now: i64) -> bool:
    """Let a port be as a fault wants it (None: as it was built). False if `op` is not of ports."""
    pfc = port.pfc
    if op == RATE:
        port.set_rate(port.wire.rate_bps if values is None else values[0])
    elif op == ERRORS:
        _spoil(port, values)
    elif op == DELAY:
        added_delay = port.delayed()
        if values is None:
            added_delay.set(0, 0, None)
        else:
            dice = Stream(values[2], port.owner.number, JITTER_PURPOSE + port.number)
            added_delay.set(values[0], values[1], dice)
    elif op == STORM:
        if pfc is not None:
            pfc.storm(0 if values is None else values[0], now)
    elif op == DEAF:
        if pfc is not None:
            pfc.deaf = values is not None
    elif op == PFC_OFF:
        if pfc is not None:
            _switch_pfc(port, on=values is None, now=now)
    else:
        return False
    return True


def _spoil(port: Port, values: list[int] | None) -> None:
    errors = port.errors
    if values is not None and (errors is None or (errors.rate_fixed == 0 and errors.loss_fixed == 0)):
        drawn: i64 = 0
        if errors is not None:
            drawn = errors.stream.counter
        errors = BitErrors(0, Stream(values[2], port.owner.number, ERRORS_PURPOSE + port.number))
        errors.stream.counter = drawn
        port.set_errors(errors)
    if errors is not None:
        errors.more_fixed = 0 if values is None else values[0]
        errors.loss_fixed = 0 if values is None else values[1]


def _switch_pfc(port: Port, *, on: bool, now: i64) -> None:
    pfc = port.pfc
    assert pfc is not None, port.number
    pfc.silent = not on
    if on:
        pfc.ignored = 0
        return
    priority: i64 = 0
    while priority < 8:
        pfc.resume(priority, now)
        pfc.ignore(priority, now)
        priority += 1
    assert pfc.ignored == ALL_CLASSES, pfc.ignored
    port.kick(now)
