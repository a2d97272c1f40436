"""The modular switch: deep buffers, virtual output queues, and credit from egress to ingress.

Every port has a static buffer of its own for what comes in there (`DeepBuffer`); nothing is shared between
ports, so a threshold is the port's own affair. A frame is admitted to it and joins a *virtual output queue*
(VOQ), which holds what came in at one port for one egress and class. It crosses to its egress queue only on
credit that the egress has granted, so that a busy or stopped egress holds up nobody who is bound for another.
It counts at its ingress until its transmission begins. Routing, classes, PFC, scheduling and drops are those
of every switch.

Credit is bytes on the wire:

* the VOQ *reports* what has joined it, one report under way at a time; a report takes the credit delay;
* the egress *grants* what was reported, a *quantum* of a few KB at a time, at the rate of its link: classes
  as the port's scheduler has it (by strict priority without one), the VOQs of a class in turn. So a frame of
  a class of its own waits for one quantum at most, however large the windows of others are. A grant takes
  the credit delay too. A class that the peer has stopped is granted nothing;
* granted and not yet used may be no more than the VOQ's *window*. It begins at the initial credit, grows by
  a factor each time a window's worth has crossed, up to a limit, and falls back when the VOQ is empty.

So an unloaded crossing takes two credit delays more than a shared-memory switch, and a VOQ reaches the full
rate of its egress once its window covers rate x credit delay.

The egress queue is short, so congestion shows in the VOQs: RED marks a frame as it leaves its VOQ, by that
VOQ's depth; adaptive routing, telemetry (INT) and the watchdog see what waits in all VOQs of an egress with
what waits in its queues. What a watchdog drops, it drops there too.

Timers of credit are serve events of the egress port, distinguished by their subject.

Source: credit-scheduled VOQ fabrics of modular chassis, as Meta's spines have them (SIGCOMM 2024: unloaded
round trip of about 22 us); how vendors size and grow credit is not public, so window and growth are knobs.

Not modelled: cut-through, cells, the fabric's own capacity between cards, loss of credit.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i32, i64

from actors.kernel.cache import fetch_behind
from actors.kernel.counters import CREDIT_GRANTS, VOQ_BYTES, VOQ_PEAK_BYTES
from actors.kernel.device import Plain, Series, Tally, series_of
from actors.kernel.event import LINK_STATE, SERVE, WATCHDOG, Message
from actors.kernel.queue import EventQueue
from actors.kernel.state import (
    as_int,
    as_list,
    load_fields,
    load_frames,
    load_integers,
    save_fields,
    save_frames,
    save_integers,
)
from actors.kernel.vectors import append, vec
from actors.port.link import PRIORITIES
from actors.port.pfc import ALL_CLASSES
from actors.port.port import LINK_DOWN_DROP
from actors.port.scheduling import Backlog, Scheduler, highest, next_class
from actors.switch.buffer import ADMITTED, Buffer, PriorityGroup
from actors.switch.egress import AQM_DROP, WATCHDOG_DROP, SwitchPort
from actors.switch.routing.policy import Routes
from actors.switch.switch import Switch
from actors.wire.fault import CREDITS
from actors.wire.frame import PREAMBLE_GAP_BYTES, Frame

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
    "grants",
)
_BUFFER_FIELDS: Final = ("shared_used_bytes", "held_bytes", "peak_bytes")
_GRANTER_FIELDS: Final = ("next_grant_ps", "pacing", "grants")


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
        self.in_line: bool = False
        """Whether it stands in line at its egress."""
        self.behind: Voq | None = None
        """Who stands behind it there."""
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
            tail.chain = frame
        self._tail = frame
        size: int = frame.wire_bytes
        self.queued_bytes += size

    def pop(self) -> Frame:
        """The first frame, which there is."""
        frame = self.head
        assert frame is not None, (self.place, self.egress)
        following = cast("Frame | None", frame.chain)
        self.head = following
        if following is None:
            self._tail = None
        else:
            fetch_behind(following)
            frame.chain = None
        size: int = frame.wire_bytes
        self.queued_bytes -= size
        return frame

    def grantable(self, quantum_bytes: i64) -> i64:
        """How much the egress may grant now: a quantum, half a window or all that is wanted, whichever is
        least; 0 if the window has no room for it."""
        amount: i64 = quantum_bytes
        if 2 * amount > self.window_bytes:
            amount = self.window_bytes >> 1
        if amount > self.wanted_bytes:
            amount = self.wanted_bytes
        return amount if self.window_bytes - self.unused_bytes >= amount else 0

    def grow(self, size_bytes: i64, growth: i64, most_bytes: i64) -> None:
        """`size_bytes` more have crossed on credit."""
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
            frame = cast("Frame | None", frame.chain)
        return found

    def save(self) -> list[Plain]:
        """The queue and both sides' knowledge of it."""
        return [self.place, self.egress, save_fields(self, _FIELDS), save_frames(self.head)]

    def load(self, state: list[Plain]) -> None:
        """Take what `save` returned."""
        for frame in load_frames(state[3]):
            self.append(frame)
        load_fields(self, _FIELDS, state[2])


_OPERATION_SHIFT: Final[i64] = 14
_PLACE_MASK: Final[i64] = 0x3FFF
_REPORT: Final[i64] = 0
_GRANT: Final[i64] = 1
_PACE: Final[i64] = 2


class DeepBuffer(Buffer):
    """A static buffer for each port: a part that knows its own eight groups and nothing of the others."""

    def __init__(self, parts: list[Buffer], alpha_fixed: int, xon_offset_bytes: int) -> None:
        super().__init__(sum([int(part.pool_bytes) for part in parts]), alpha_fixed, xon_offset_bytes)
        self.parts: list[Buffer] = parts

    def add(self, group: PriorityGroup) -> None:
        port: i64 = len(self.groups) >> 3
        self.parts[port].add(group)
        group.port = port
        self.groups = append(self.groups, group)

    def all_parts(self) -> list[Buffer]:
        return self.parts

    def admit(self, number: i64, size_bytes: i64, now: i64) -> i64:
        part = self.parts[number >> 3]
        shared: i64 = part.shared_used_bytes
        verdict: i64 = part.admit(number & 7, size_bytes, now)
        self.shared_used_bytes += part.shared_used_bytes - shared
        if verdict == ADMITTED:
            self.held_bytes += size_bytes
            if self.held_bytes > self.peak_bytes:
                self.peak_bytes = self.held_bytes
        return verdict

    def release(self, number: i64, size_bytes: i64, now: i64) -> None:
        part = self.parts[number >> 3]
        shared: i64 = part.shared_used_bytes
        self.held_bytes -= size_bytes
        part.release(number & 7, size_bytes, now)
        self.shared_used_bytes += part.shared_used_bytes - shared

    def save(self) -> list[Plain]:
        parts: list[Plain] = [part.save() for part in self.parts]
        return [save_fields(self, _BUFFER_FIELDS), parts]

    def load(self, state: Plain) -> None:
        fields, parts = as_list(state)
        load_fields(self, _BUFFER_FIELDS, fields)
        for part, saved in zip(self.parts, as_list(parts), strict=True):
            part.load(saved)


class Line:
    """The VOQs of one class that could be granted credit of one egress, in the order in which they came."""

    def __init__(self) -> None:
        self.first: Voq | None = None
        self._last: Voq | None = None

    def join(self, voq: Voq) -> None:
        """A VOQ that stands nowhere comes to the end."""
        last = self._last
        if last is None:
            self.first = voq
        else:
            last.behind = voq
        self._last = voq
        voq.in_line = True

    def leave(self) -> Voq:
        """The first one, which there is, steps out."""
        voq = self.first
        assert voq is not None
        self.first = voq.behind
        if voq.behind is None:
            self._last = None
        else:
            voq.behind = None
        voq.in_line = False
        return voq

    def places(self) -> list[Plain]:
        """Where they come from, in order."""
        found: list[Plain] = []
        voq = self.first
        while voq is not None:
            found.append(voq.place)
            voq = voq.behind
        return found


class Granter(Backlog):
    """One egress as it grants credit: who stands in line, by class, and whose turn it is.

    It schedules by the discipline of the port's egress queues, with a scheduler of its own. A class is
    backlogged (`waiting`) while anything of it is reported and has not crossed; it could be granted something
    (`ready`) while a VOQ of it stands in line. A class whose windows are full is passed over,
    and saves nothing up.
    """

    def __init__(self, egress: i64, quantum_bytes: i64) -> None:
        super().__init__()
        self.egress: i64 = egress
        self.quantum_bytes: i64 = quantum_bytes
        """The largest grant."""
        self.ready: i64 = 0
        self.lines: vec[Line] = vec[Line]([Line() for _ in range(PRIORITIES)])
        self.uncrossed_bytes: vec[i64] = vec[i64]([0] * PRIORITIES)
        """Reported and not crossed, by class."""
        self.next_grant_ps: i64 = 0
        self.pacing: bool = False
        """Whether an event will say that the next grant may go out."""
        self.grants: i64 = 0
        self.scheduler: Scheduler | None = None

    def set_scheduler(self, scheduler: Scheduler) -> None:
        """Let a scheduler choose the next class."""
        self.scheduler = scheduler
        scheduler.backlog = self

    def head_bytes(self, priority: i64) -> i64:
        """What the first in line of a class would be granted."""
        voq = self.lines[priority].first
        assert voq is not None, (self.egress, priority)
        return voq.grantable(self.quantum_bytes)

    def place(self) -> str:
        return f"the credit of port {self.egress}"

    def line_up(self, voq: Voq) -> None:
        """A queue that can be granted something stands in line, once."""
        if not voq.in_line and voq.wanted_bytes > 0 and voq.grantable(self.quantum_bytes) > 0:
            self._stand(voq)

    def _stand(self, voq: Voq) -> None:
        self.lines[voq.priority].join(voq)
        self.ready |= 1 << voq.priority

    def next_voq(self, priority: i64) -> Voq:
        """Who is first in the line of a class; it steps out."""
        line = self.lines[priority]
        voq = line.leave()
        if line.first is None:
            self.ready &= ~(1 << priority)
        return voq

    def owe(self, priority: i64, size_bytes: i64) -> None:
        """More of a class was reported and has not crossed; less than 0: crossed."""
        left: i64 = self.uncrossed_bytes[priority] + size_bytes
        self.uncrossed_bytes[priority] = left
        if left > 0:
            self.waiting |= 1 << priority
        else:
            self.waiting &= ~(1 << priority)

    def forget(self, priority: i64) -> None:
        """Nothing of a class waits any more."""
        line = self.lines[priority]
        while line.first is not None:
            line.leave()
        self.ready &= ~(1 << priority)
        self.owe(priority, -self.uncrossed_bytes[priority])

    def save(self) -> list[Plain]:
        """Who stands in line, and the state of scheduler and pace."""
        lines: list[Plain] = [line.places() for line in self.lines]
        scheduler = self.scheduler
        return [
            save_fields(self, _GRANTER_FIELDS),
            lines,
            None if scheduler is None else scheduler.save(),
        ]

    def load(self, state: list[Plain], voqs: dict[int, Voq]) -> None:
        """Take what `save` returned; the VOQs, by place, are loaded."""
        fields, lines, scheduler = state
        load_fields(self, _GRANTER_FIELDS, fields)
        for voq in voqs.values():
            self.owe(voq.priority, voq.wanted_bytes + voq.unused_bytes)
        for places in as_list(lines):
            for place in as_list(places):
                self._stand(voqs[as_int(place)])
        if self.scheduler is not None:
            self.scheduler.load(as_list(scheduler))


class DeepSwitch(Switch):
    """One modular switch."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        buffer: Buffer,
        routes: Routes,
        policy: int,
        hash_seed: int,
        credit_delay_ps: int,
        initial_credit_bytes: int,
        credit_growth: int,
        most_credit_bytes: int,
        credit_quantum_bytes: int,
    ) -> None:
        super().__init__(number, queue, buffer, routes, policy, hash_seed)
        self.credit_delay_ps: i64 = credit_delay_ps
        self.initial_credit_bytes: i64 = initial_credit_bytes
        self.built_credit_bytes: list[int] = [initial_credit_bytes, most_credit_bytes]
        self.credit_growth: i64 = credit_growth
        self.most_credit_bytes: i64 = most_credit_bytes
        self.credit_quantum_bytes: i64 = credit_quantum_bytes
        self.voqs: dict[int, Voq] = {}
        """By egress and place, in the order in which they were first used."""
        self.granters: vec[Granter] = vec[Granter]()
        """By egress."""
        self.voq_peak_bytes: vec[i64] = vec[i64]()

    def add_port(self, port: SwitchPort) -> None:
        super().add_port(port)
        port.apart = True
        port.behind_voqs = True
        self.granters = append(self.granters, Granter(port.number, self.credit_quantum_bytes))
        self.voq_peak_bytes = append(self.voq_peak_bytes, 0)

    def let_defer(self) -> bool:
        """No serve is deferred: what leaves grants credit."""
        return False

    def forward_apart(self, frame: Frame, port: SwitchPort, out: SwitchPort, place: i64, now: i64) -> None:
        """A frame came in: into its ingress' buffer and its VOQ, or dropped."""
        priority: i64 = i64(frame.priority)
        if not out.up:
            out.lose(frame)
            return
        discarding: int = out.discarding
        if (discarding >> priority) & 1:
            out.drop(frame, WATCHDOG_DROP)
            return
        if out.limited and not self.buffer.groups[place].lossless:
            depth: i64 = self._voq(out.number, (port.number << 3) | priority).queued_bytes
            if out.dropped_early(frame, depth, now):
                port.drop(frame, AQM_DROP)
                return
        size: int = frame.wire_bytes
        verdict: i64 = self.buffer.admit(place, size - PREAMBLE_GAP_BYTES, now)
        if verdict != ADMITTED:
            port.drop(frame, verdict)
            return
        frame.whence = i32(place)
        voq = self._voq(out.number, (port.number << 3) | priority)
        voq.append(frame)
        out.voq_bytes[priority] += size
        if voq.queued_bytes > self.voq_peak_bytes[out.number]:
            self.voq_peak_bytes[out.number] = voq.queued_bytes
        voq.unreported_bytes += size
        if not voq.report_pending:
            self._report(voq, now)

    def _voq(self, egress: i64, place: i64) -> Voq:
        """The queue of an ingress port and class, `place`, towards an egress."""
        key: int = (egress << _OPERATION_SHIFT) | place
        voq = self.voqs.get(key)
        if voq is None:
            voq = Voq(place, egress, self.initial_credit_bytes)
            self.voqs[key] = voq
        return voq

    def _report(self, voq: Voq, now: i64) -> None:
        """The ingress tells the egress what has joined a queue."""
        voq.reporting_bytes = voq.unreported_bytes
        voq.unreported_bytes = 0
        voq.report_pending = True
        subject: i64 = 1 + ((_REPORT << _OPERATION_SHIFT) | voq.place)
        self.push_timer(now + self.credit_delay_ps, SERVE, voq.egress, subject)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        if kind != SERVE:
            effect: bool = super().on_timer(kind, port, subject)
            now: i64 = self.queue.now_ps
            out = self.ports[port]
            if kind == LINK_STATE and not out.up:
                self._drop_for(port, ALL_CLASSES, LINK_DOWN_DROP, now)
            elif kind == WATCHDOG and out.discarding != 0:
                self._drop_for(port, i64(out.discarding), WATCHDOG_DROP, now)
            self._grant(port, now)
            return effect
        if subject == 0:
            return super().on_timer(kind, port, subject)
        return self._credit_event(port, (subject - 1) >> _OPERATION_SHIFT, (subject - 1) & _PLACE_MASK)

    def on_pause(self, message: Message, port: i64) -> None:
        super().on_pause(message, port)
        self._grant(port, self.queue.now_ps)

    def _credit_event(self, egress: i64, operation: i64, place: i64) -> bool:
        """A report or a grant has come over the backplane; whether it says anything. Or time for a grant."""
        now: i64 = self.queue.now_ps
        if operation == _PACE:
            self.granters[egress].pacing = False
            self._grant(egress, now)
            return False
        voq = self.voqs[(egress << _OPERATION_SHIFT) | place]
        if operation == _REPORT:
            reported_bytes: i64 = voq.reporting_bytes
            granter = self.granters[egress]
            voq.wanted_bytes += reported_bytes
            granter.owe(voq.priority, reported_bytes)
            voq.reporting_bytes = 0
            voq.report_pending = False
            if voq.unreported_bytes > 0:
                self._report(voq, now)
            granter.line_up(voq)
            self._grant(egress, now)
        else:
            reported_bytes = voq.grants.pop(0)
            voq.credit_bytes += reported_bytes
            self._cross(voq, now)
        return reported_bytes > 0

    def _grant(self, egress: i64, now: i64) -> None:
        """The egress grants credit to who stands in line, at the rate of its link."""
        granter = self.granters[egress]
        out = self.ports[egress]
        if granter.pacing or not out.up:
            return
        while True:
            ready: i64 = granter.ready & ~out.blocked
            if ready == 0:
                return
            if granter.next_grant_ps > now:
                granter.pacing = True
                self.push_timer(granter.next_grant_ps, SERVE, egress, 1 + (_PACE << _OPERATION_SHIFT))
                return
            scheduler = granter.scheduler
            priority: i64 = highest(ready) if scheduler is None else next_class(scheduler, ready, now)
            voq = granter.next_voq(priority)
            amount: i64 = voq.grantable(granter.quantum_bytes)
            if amount > 0:
                voq.wanted_bytes -= amount
                voq.unused_bytes += amount
                voq.grants.append(amount)
                granter.grants += 1
                granter.next_grant_ps = now + out.serialisation(amount)
                grant: i64 = 1 + ((_GRANT << _OPERATION_SHIFT) | voq.place)
                self.push_timer(now + self.credit_delay_ps, SERVE, egress, grant)
                if scheduler is not None:
                    scheduler.on_sent(priority, amount, now)
                granter.line_up(voq)

    def _cross(self, voq: Voq, now: i64) -> None:
        """Frames go over to the egress queue as far as credit reaches."""
        out = self.ports[voq.egress]
        crossed: i64 = 0
        head = voq.head
        while head is not None and i64(head.wire_bytes) <= voq.credit_bytes:
            depth: i64 = voq.queued_bytes
            frame = voq.pop()
            its: int = frame.wire_bytes
            size: i64 = its
            out.voq_bytes[voq.priority] -= size
            if (out.marking >> voq.priority) & 1:
                out.mark(frame, voq.priority, depth, now)
            voq.credit_bytes -= size
            voq.unused_bytes -= size
            crossed += size
            out.enqueue(frame)
            head = voq.head
        if crossed == 0:
            return
        if head is None:
            voq.window_bytes = self.initial_credit_bytes
            voq.crossed_bytes = 0
        else:
            voq.grow(crossed, self.credit_growth, self.most_credit_bytes)
        granter = self.granters[voq.egress]
        granter.owe(voq.priority, -crossed)
        granter.line_up(voq)
        self._grant(voq.egress, now)
        if not out.serve_pending:
            out.kick(now)

    def _drop_for(self, egress: i64, classes: i64, reason: i64, now: i64) -> None:
        """Drop what waits for an egress in VOQs of these classes (a mask)."""
        out = self.ports[egress]
        for voq in self.voqs.values():
            if voq.egress == egress and (classes >> voq.priority) & 1:
                while voq.head is not None:
                    frame = voq.pop()
                    self.buffer.release(i64(frame.whence), i64(frame.wire_bytes) - PREAMBLE_GAP_BYTES, now)
                    if reason == LINK_DOWN_DROP:
                        out.lose(frame)
                    else:
                        out.drop(frame, reason)
                voq.forget(self.initial_credit_bytes)
        for priority in range(PRIORITIES):
            if (classes >> priority) & 1:
                self.granters[egress].forget(priority)
                out.voq_bytes[priority] = 0

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        if op == CREDITS:
            self.initial_credit_bytes = self.built_credit_bytes[0] if values is None else values[0]
            self.most_credit_bytes = self.built_credit_bytes[1] if values is None else values[1]
        else:
            super().apply_fault(op, place, values)

    def series(self) -> list[Series]:
        rows = super().series().copy()
        for port in self.ports:
            n: int = port.number
            rows += [series_of(CREDIT_GRANTS, n), series_of(VOQ_BYTES, n), series_of(VOQ_PEAK_BYTES, n)]
        return rows

    def count(self, into: Tally) -> None:
        super().count(into)
        for port in self.ports:
            into.add(self.granters[port.number].grants)
            into.add(sum([int(held) for held in port.voq_bytes]))
            into.add(self.voq_peak_bytes[port.number])

    def save(self) -> list[Plain]:
        voqs: list[Plain] = [voq.save() for voq in self.voqs.values()]
        granters: list[Plain] = [granter.save() for granter in self.granters]
        return [super().save(), voqs, granters, save_integers(self.voq_peak_bytes)]

    def load(self, state: list[Plain]) -> None:
        base, voqs, granters, peaks = state
        super().load(as_list(base))
        self.voqs = {}
        of_egress: list[dict[int, Voq]] = [{} for _ in self.ports]
        for saved in as_list(voqs):
            values = as_list(saved)
            place, egress = as_int(values[0]), as_int(values[1])
            voq = self._voq(egress, place)
            voq.load(values)
            of_egress[egress][place] = voq
            self.ports[egress].voq_bytes[voq.priority] += voq.queued_bytes
        for at, saved in enumerate(as_list(granters)):
            self.granters[at].load(as_list(saved), of_egress[at])
        self.voq_peak_bytes = load_integers(peaks)
