"""Priority flow control (PFC): both halves of one port.

Priority flow control, IEEE 802.1Qbb: a MAC control frame names classes and, for each, quanta of 512 bit times
for which the other end must not send it; quanta of zero resume. The two halves:

* stopped by the peer: `hear` blocks or releases classes of our port. A pause lapses by itself when its
  quanta end;
* stopping the peer: `stop` and `resume` come from the buffer. The frame goes ahead of everything that
  waits, but waits for the frame in progress, and one frame carries all classes that changed meanwhile.
  While a class stays stopped its pause is sent again at half its quanta.

A stop that was never sent is taken back silently. When the link goes down both halves forget what was said;
when it comes back, the pause of classes that are still stopped is sent again. Headroom may still hold what
came before, and has no room for a second flight: so who sends *holds* the lossless classes after link-up,
until whatever the peer has to say is here (one frame in progress there, the pause frame, propagation,
response). A hold is nobody's pause: neither a watchdog nor `paused_ps` counts it.

A port may have half of it: it tells and does not obey (`ignored` is all classes), or it obeys and tells
nothing (`silent`).

Not modelled: link-level (802.3x) pause, negotiation by DCBX.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.event import PAUSE_EXPIRY, PAUSE_REFRESH, Message
from actors.kernel.event_log import PAUSED
from actors.kernel.state import as_list, load_fields, load_integers, save_fields, save_integers
from actors.kernel.vectors import vec
from actors.port.link import LinkEnd
from actors.wire.frame import PAUSE_WIRE_BYTES
from actors.wire.message import PAUSE_FRAME

QUANTUM_BITS: Final = 512
ALL_CLASSES: Final = 0xFF
HOLD_END: Final[i64] = 8
"""In the place of a priority in the subject of PAUSE_EXPIRY: a hold may end."""
_FIELDS: Final = (
    "signalled",
    "stopping",
    "pending_stop",
    "pending_resume",
    "_expiring",
    "_refreshing",
    "ignored",
    "held",
    "_held_until_ps",
    "_hold_timed",
    "wanted",
    "storming",
    "deaf",
    "missed",
)


class Pfc:
    """Priority flow control at one port; also the port's flow-control hook."""

    def __init__(self, port: LinkEnd, quanta: int) -> None:
        assert 0 < quanta <= 65535, quanta
        self.port: LinkEnd = port
        self.quanta: i64 = quanta
        self.quantum_ps: i64 = -(-QUANTUM_BITS * 10**12 // port.wire.rate_bps)
        self.counted_changes: i64 = 1
        """One more than how often anything changed that is counted, apart from time that goes on: a version,
        by which `count_port` passes over what it has written already."""
        self.signalled: i64 = 0
        """Classes that the last pause frame stopped at the peer."""
        self.stopping: i64 = 0
        """Classes that the buffer wants stopped, or a fault."""
        self.wanted: i64 = 0
        """Classes that the buffer wants stopped."""
        self.storming: i64 = 0
        """Classes that a fault keeps stopped."""
        self.deaf: bool = False
        """Whether what the peer says is lost."""
        self.missed: i64 = 0
        """Stops of one class that were lost so."""
        self.pending_stop: i64 = 0
        self.pending_resume: i64 = 0
        self.ignored: i64 = 0
        """Classes whose pauses are not obeyed (a watchdog saw a storm)."""
        self.silent: bool = False
        """Whether no pause frame is ever sent to the peer."""
        self.lossless: i64 = 0
        """Classes that the peer promises to lose nothing of: held after link-up."""
        self._largest_wire_bytes: i64 = 0
        self._fixed_ps: i64 = 0
        self.held: i64 = 0
        """Classes that are blocked by a hold and by no pause."""
        self._held_until_ps: i64 = 0
        self._hold_timed: bool = False
        self._expiring: i64 = 0
        self._refreshing: i64 = 0
        self.until_ps: vec[i64] = vec[i64]([0] * 8)
        self.since_ps: vec[i64] = vec[i64]([0] * 8)
        self.paused_ps: vec[i64] = vec[i64]([0] * 8)
        self.received: vec[i64] = vec[i64]([0] * 8)
        self.received_resumes: vec[i64] = vec[i64]([0] * 8)
        self.sent: vec[i64] = vec[i64]([0] * 8)
        self.resumed: vec[i64] = vec[i64]([0] * 8)
        self.signalled_since_ps: vec[i64] = vec[i64]([0] * 8)
        self.signalled_ps: vec[i64] = vec[i64]([0] * 8)
        """How long the peer had been signalled to stop, up to the last time it was signalled to resume."""
        self.stops: vec[i64] = vec[i64]([0] * 8)
        """How often it was signalled to stop, refreshes not counted."""
        self.pauses: vec[i64] = vec[i64]([0] * 8)
        """How often the peer stopped a class of this port that was not stopped."""

    def hold_after_link_up(self, lossless: int, largest_wire_bytes: int, own_response_ps: int) -> None:
        """Send nothing of these classes (a mask) after link-up until a pause that the peer sends then is
        obeyed; it may wait for a frame of this size."""
        self.lossless = lossless
        self._largest_wire_bytes = largest_wire_bytes
        self._fixed_ps = self.port.wire.delay_ps + own_response_ps

    def stop(self, priority: i64, now: i64) -> None:
        """The buffer crossed XOFF for a class: tell the peer."""
        if self.silent:
            return
        self.wanted |= 1 << priority
        self._halt(priority, now)

    def _halt(self, priority: i64, now: i64) -> None:
        bit: i64 = 1 << priority
        if self.stopping == 0:
            self.port.owner.stopping += 1
            self.port.owner.hurry()
        self.stopping |= bit
        self.pending_resume &= ~bit
        if (self.signalled & self._refreshing & bit) == 0:  # not signalled, or not to be refreshed any more
            self.pending_stop |= bit
        self._attend(now)

    def resume(self, priority: i64, now: i64) -> None:
        """The buffer fell below XON for a class: resume the peer, if it was stopped at all."""
        self.wanted &= ~(1 << priority)
        if (self.storming >> priority) & 1 == 0:
            self._take_back(priority, now)

    def storm(self, classes: i64, now: i64) -> None:
        """Keep the peer stopped in these classes (a mask), whatever the buffer wants; in no others."""
        before: i64 = self.storming
        self.storming = classes
        priority: i64 = 0
        while priority < 8:
            bit: i64 = 1 << priority
            if (classes & ~before & bit) != 0:
                self._halt(priority, now)
            elif (before & ~classes & ~self.wanted & bit) != 0:
                self._take_back(priority, now)
            priority += 1

    def _take_back(self, priority: i64, now: i64) -> None:
        bit: i64 = 1 << priority
        if self.stopping == bit:
            self.port.owner.stopping -= 1
        self.stopping &= ~bit
        self.pending_stop &= ~bit
        if (self.signalled & bit) != 0:
            self.pending_resume |= bit
        self._attend(now)

    def _attend(self, now: i64) -> None:
        port = self.port
        port.control_pending = port.up and (self.pending_stop | self.pending_resume) != 0
        if port.control_pending:
            port.break_in(now)

    def transmit(self, now: i64) -> None:
        """Send what is pending in one frame; the wire is free."""
        stop: i64 = self.pending_stop
        resume: i64 = self.pending_resume
        port = self.port
        self.counted_changes += 1
        port.control_pending = False
        self.pending_stop = 0
        self.pending_resume = 0
        before: i64 = self.signalled
        self.signalled = (before | stop) & ~resume
        port.transmit_pause(Message(PAUSE_FRAME, stop, resume, self.quanta, 0, 0, now), PAUSE_WIRE_BYTES, now)
        priority: i64 = 0
        while priority < 8:
            if (stop >> priority) & 1:
                self.sent[priority] += 1
                if (before >> priority) & 1 == 0:
                    self.stops[priority] += 1
                    self.signalled_since_ps[priority] = now
                if (self._refreshing >> priority) & 1 == 0:
                    self._refreshing |= 1 << priority
                    after: i64 = self.quanta * self.quantum_ps // 2
                    port.owner.push_timer(now + after, PAUSE_REFRESH, port.number, priority)
            elif (resume >> priority) & 1:
                self.resumed[priority] += 1
                if (before >> priority) & 1:
                    self.signalled_ps[priority] += now - self.signalled_since_ps[priority]
            priority += 1

    def refresh(self, priority: i64, now: i64) -> bool:
        """Half the quanta have passed: tell the peer again if the class is still stopped; whether it is."""
        self._refreshing &= ~(1 << priority)
        if (self.stopping & self.signalled & (1 << priority)) != 0:
            self.pending_stop |= 1 << priority
            self._attend(now)
            return True
        return False

    def hear(self, message: Message, now: i64) -> None:
        """The peer's PFC frame takes effect: a = classes to stop, b = to resume, c = quanta, f = sent at."""
        port = self.port
        if port.ever_down and port.was_down(message.f, now):
            return
        self.counted_changes += 1
        priority: i64 = 0
        if self.deaf:
            while priority < 8:
                self.missed += (message.a >> priority) & 1
                priority += 1
            return
        while priority < 8:
            if (message.a >> priority) & 1:
                self.received[priority] += 1
                self.until_ps[priority] = now + message.c * self.quantum_ps
                if (self.ignored >> priority) & 1:
                    priority += 1
                    continue
                if ((port.blocked & ~self.held) >> priority) & 1 == 0:
                    port.blocked |= 1 << priority
                    self.held &= ~(1 << priority)
                    self.since_ps[priority] = now
                    self.pauses[priority] += 1
                if (self._expiring >> priority) & 1 == 0:
                    self._expiring |= 1 << priority
                    port.owner.push_timer(self.until_ps[priority], PAUSE_EXPIRY, port.number, priority)
            elif (message.b >> priority) & 1:
                self.received_resumes[priority] += 1
                self.until_ps[priority] = now
                self._release(priority, now)
            priority += 1
        port.kick(now)

    def expire(self, priority: i64, now: i64) -> bool:
        """A pause may have lapsed: release the class, or look again when the latest pause ends. Returns
        whether anything was released."""
        if priority == HOLD_END:
            return self._let_go(now)
        self._expiring &= ~(1 << priority)
        if ((self.port.blocked & ~self.held) >> priority) & 1 == 0:
            return False
        if self.until_ps[priority] <= now:
            self._release(priority, now)
            self.port.kick(now)
            return True
        self._expiring |= 1 << priority
        self.port.owner.push_timer(self.until_ps[priority], PAUSE_EXPIRY, self.port.number, priority)
        return False

    def ignore(self, priority: i64, now: i64) -> None:
        """Obey no pause of a class from now on; what holds it is released."""
        self.ignored |= 1 << priority
        self._release(priority, now)

    def link_down(self, now: i64) -> None:
        """The link went down: whatever was said over it is void."""
        signalled: i64 = self.signalled
        self.counted_changes += 1
        self.signalled = 0
        self.pending_stop = 0
        self.pending_resume = 0
        self.port.control_pending = False
        priority: i64 = 0
        while priority < 8:
            if (signalled >> priority) & 1:
                self.signalled_ps[priority] += now - self.signalled_since_ps[priority]
            self._release(priority, now)
            priority += 1

    def link_up(self, now: i64) -> None:
        """The link came back: signal to the peer what is still to be stopped, and hold until the peer can
        have done so.
        """
        port = self.port
        self.held = self.lossless & ~self.ignored
        if self.held != 0:
            port.blocked |= self.held
            frame_ps: i64 = port.serialisation(self._largest_wire_bytes)
            self._held_until_ps = now + frame_ps + port.serialisation(PAUSE_WIRE_BYTES) + self._fixed_ps
            self._time_hold()
        self.pending_stop = self.stopping
        self._attend(now)

    def _time_hold(self) -> None:
        if not self._hold_timed:
            self._hold_timed = True
            self.port.owner.push_timer(self._held_until_ps, PAUSE_EXPIRY, self.port.number, HOLD_END)

    def _let_go(self, now: i64) -> bool:
        """A hold may be over: release what no pause has taken over, or look again after another link-up."""
        self._hold_timed = False
        if self.held == 0:
            return False
        if self._held_until_ps > now:
            self._time_hold()
            return False
        self.port.blocked &= ~self.held
        self.held = 0
        self.port.kick(now)
        return True

    def paused_time_ps(self, priority: i64, now: i64) -> i64:
        """How long the peer has kept a class of this port stopped in all, up to now."""
        total: i64 = self.paused_ps[priority]
        if ((self.port.blocked & ~self.held) >> priority) & 1:
            total += now - self.since_ps[priority]
        return total

    def signalled_time_ps(self, priority: i64, now: i64) -> i64:
        """How long the peer had been signalled to stop a class in all, up to now."""
        total: i64 = self.signalled_ps[priority]
        if (self.signalled >> priority) & 1:
            total += now - self.signalled_since_ps[priority]
        return total

    def _release(self, priority: i64, now: i64) -> None:
        if (self.port.blocked >> priority) & 1:
            self.counted_changes += 1
            self.port.blocked &= ~(1 << priority)
            if (self.held >> priority) & 1:
                self.held &= ~(1 << priority)
            else:
                self.paused_ps[priority] += now - self.since_ps[priority]
                events = self.port.owner.events
                if events is not None:
                    events.note(PAUSED, self.port.number, priority, 0, 0, self.since_ps[priority], now)

    def paused_now(self) -> list[list[int]]:
        """The pauses that the port obeys now: class, and since when."""
        paused: i64 = self.port.blocked & ~self.held
        return [[priority, int(self.since_ps[priority])] for priority in range(8) if paused >> priority & 1]

    def save(self) -> list[Plain]:
        """Both halves' state."""
        heard = [self.until_ps, self.since_ps, self.paused_ps, self.received, self.sent, self.resumed]
        signalled = [
            self.signalled_since_ps,
            self.signalled_ps,
            self.stops,
            self.pauses,
            self.received_resumes,
        ]
        return [save_fields(self, _FIELDS), [save_integers(table) for table in heard + signalled]]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, tables = as_list(state)
        owner = self.port.owner
        if self.stopping != 0:
            owner.stopping -= 1
        load_fields(self, _FIELDS, fields)
        if self.stopping != 0:
            owner.stopping += 1
        table = as_list(tables)
        self.until_ps, self.since_ps = load_integers(table[0]), load_integers(table[1])
        self.paused_ps, self.received = load_integers(table[2]), load_integers(table[3])
        self.sent, self.resumed = load_integers(table[4]), load_integers(table[5])
        self.signalled_since_ps, self.signalled_ps = load_integers(table[6]), load_integers(table[7])
        self.stops, self.pauses = load_integers(table[8]), load_integers(table[9])
        self.received_resumes = load_integers(table[10])
