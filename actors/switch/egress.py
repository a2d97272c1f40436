"""The port of a switch: its egress queues.

One first-in first-out queue per priority, threaded through the frames themselves. Taking a frame releases its
share of the buffer.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64, u8

from actors.kernel.cache import fetch_behind
from actors.kernel.device import Device, Plain, Tally
from actors.kernel.state import as_int, as_list, load_frames, load_integers, save_frames, save_integers
from actors.kernel.vectors import vec
from actors.port.link import PRIORITIES, Store, Wire
from actors.port.port import Port
from actors.switch.buffer import Buffer
from actors.switch.ecn import Aqm
from actors.wire.frame import ECN_CAPABLE, ECN_CONGESTED, PREAMBLE_GAP_BYTES, Frame, Load
from actors.wire.telemetry import with_hop

NO_ROUTE: Final[i64] = 3
WATCHDOG_DROP: Final[i64] = 5
TTL_EXPIRED: Final[i64] = 6
AQM_DROP: Final[i64] = 7
DROP_COUNTERS: Final = 8
AQM_IN_DIGEST: Final[i64] = 12
"""What the digest calls a drop of an AQM: 7 is there the loss of a port whose link is down."""


class EgressQueue:
    """The queue of one priority: its frames, how much waits and the most that ever did, on the wire.

    One record and not a table for each of these: a frame that waits reads one cache line of it, not four.
    """

    def __init__(self) -> None:
        self.head: Frame | None = None
        self.tail: Frame | None = None
        self.queued_bytes: i64 = 0
        self.peak_bytes: i64 = 0
        self.filling: tuple[i64, i64, i64, i64, i64, i64] = (0, 0, 0, 0, 0, 0)
        """Nothing, so that it begins with a cache line: 128 bytes with the collector's header, as a frame."""


class Memory(Store):
    """Where frames wait for the ports of a switch: the buffer, and the queues of all ports."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer: Buffer = buffer
        self.queues: vec[EgressQueue] = vec[EgressQueue]()
        """By priority and port: those of the few priorities that are in use stand close together."""
        self.bits: i64 = 0
        """Of a port's number there."""
        self.filling: tuple[i64, i64, i64, i64, i64, i64, i64] = (0, 0, 0, 0, 0, 0, 0)
        """Nothing, as in `EgressQueue`."""

    def add(self, number: i64, queues: vec[EgressQueue]) -> None:
        """The queues of the next port, by priority."""
        priority: i64 = 0
        if number == 0 or number >> self.bits > 0:  # make room for as many ports again
            before = self.queues
            bits: i64 = self.bits
            if number > 0:
                self.bits += 1
            everywhere: list[EgressQueue] = [queues[0]] * (PRIORITIES << self.bits)
            self.queues = vec[EgressQueue](everywhere)
            at: i64 = 0
            while at < len(before):
                self.queues[((at >> bits) << self.bits) | (at & ((1 << bits) - 1))] = before[at]
                at += 1
        while priority < PRIORITIES:
            self.queues[(priority << self.bits) | number] = queues[priority]
            priority += 1


class SwitchPort(Port):
    """A port of a switch: the fabric port with egress queues in the switch's buffer."""

    def __init__(
        self, owner: Device, number: int, wire: Wire, own_ingress_latency_ps: int, memory: Memory
    ) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps)
        self.behind_voqs: bool = False
        """Whether frames wait at their ingress for this port (`actors.optional.deep`), and are marked
        there."""
        self.marking: i64 = 0
        """The priorities whose queues have an AQM (a mask)."""
        self.queues: vec[EgressQueue] = vec[EgressQueue]([EgressQueue() for _ in range(PRIORITIES)])
        """Its own, by priority."""
        self.dropped: vec[i64] = vec[i64]([0] * DROP_COUNTERS)
        """Frames that were to leave or had entered here, by the reasons of `actors.switch.switch`."""
        self.limits: list[int] = [0, 0, 0, 0]
        """What a lossy queue and a lossless one may hold, in bytes on the wire, and what share of what is
        left of the shared pool; 0 for no such limit."""
        self.dropping: i64 = 0
        """Those whose AQM drops frames, too."""
        self.aqms: list[Aqm] = []
        """By priority, if any queue has one."""
        self.voq_bytes: vec[i64] = vec[i64]([0] * PRIORITIES)
        """What waits there, by priority, on the wire."""
        self.shunned: i64 = 0
        """The priorities of which a watchdog lets nothing enter, either. The port has 512 bytes with the
        collector's header, eight cache lines."""
        self.store = memory
        memory.add(self.number, self.queues)

    def set_limits(self, limits_bytes: list[int], alphas_fixed: list[int]) -> None:
        """Limits of lossy queues and of lossless ones: bytes, and shares of the free pool; 0 for none."""
        self.limits = limits_bytes + alphas_fixed
        self.limited = self.has_limits() or self.dropping != 0

    def has_limits(self) -> bool:
        """Whether some queue has a limit of its own."""
        return max(self.limits) > 0

    def add_aqm(self, aqm: Aqm, managed: bool) -> None:
        """The AQM of the next priority, and whether its queue is managed at all."""
        bit: i64 = 1 << len(self.aqms)
        self.aqms.append(aqm)
        if managed:
            self.marking |= bit
            self.marks = True
            if aqm.drops_frames:
                self.dropping |= bit
                self.limited = True

    def dropped_early(self, frame: Frame, queued_bytes: i64, now: i64) -> bool:
        """Whether the AQM of a lossy frame's queue, in which so much waits, drops it."""
        its: int = frame.priority
        priority: i64 = its
        if (self.dropping >> priority) & 1 == 0:
            return False
        return self.aqms[priority].drops(queued_bytes, i64(frame.wire_bytes), now)

    def spoilt(self, frame: Frame, now: i64) -> bool:
        if super().spoilt(frame, now):
            return True
        its: int = frame.priority
        if (self.shunned >> its) & 1 == 0:
            return False
        self.received_frames += 1
        self.received_bytes += i64(frame.wire_bytes)
        if frame.payload_bytes > 0:
            self.received_data_frames += 1
        self.drop(frame, WATCHDOG_DROP)
        return True

    def over_limit(self, frame: Frame, lossless: i64) -> bool:
        """Whether a frame would take its queue over a limit; `lossless` is 1 for a lossless queue, else 0."""
        held: i64 = self.queues[i64(frame.priority)].queued_bytes + i64(frame.wire_bytes)
        limit_bytes: i64 = self.limits[lossless]
        if limit_bytes > 0 and held > limit_bytes:
            return True
        alpha_fixed: i64 = self.limits[lossless + 2]
        if alpha_fixed == 0:
            return False
        return held > cast(Memory, self.store).buffer.share_bytes(alpha_fixed)

    def hold_briefly(self, priority: i64, wire_bytes: i64) -> None:
        """Frames wait here, one at a time, and nothing else does."""
        queue = self.queues[priority]
        if wire_bytes > queue.peak_bytes:
            queue.peak_bytes = wire_bytes

    def enqueue(self, frame: Frame) -> None:
        """Append a frame that the buffer admitted to the queue of its priority."""
        its: int = frame.priority
        priority: i64 = its
        size: int = frame.wire_bytes
        memory = cast(Memory, self.store)
        at: i64 = (priority << memory.bits) | self.number
        queue = memory.queues[at]
        if queue.tail is None:
            queue.head = frame
            self.waiting |= 1 << priority
        else:
            queue.tail.chain = frame
        queue.tail = frame
        held: i64 = queue.queued_bytes + size
        queue.queued_bytes = held
        if held > queue.peak_bytes:
            queue.peak_bytes = held

    def count_queues(self, into: Tally, part: i64) -> None:
        """Write what waits in each queue, and the most that did, a part of the numbers of its own."""
        waiting: i64 = 0
        mark: i64 = 1
        for queue in self.queues:
            waiting += queue.queued_bytes
            mark += queue.peak_bytes
        if waiting != 0:
            mark = 0  # it may move from one to another; each peak only grows
        if into.stands(part, mark):
            return
        for queue in self.queues:
            into.add(queue.queued_bytes)
        for queue in self.queues:
            into.add(queue.peak_bytes)
        into.keep(part, mark)

    def take(self, priority: i64, now: i64) -> Frame | None:
        """The first frame of a priority; its share of the buffer is released."""
        memory = cast(Memory, self.store)
        at: i64 = (priority << memory.bits) | self.number
        queue = memory.queues[at]
        first = queue.head
        assert first is not None, (self.number, priority)
        frame: Frame = first  # what is narrowed is checked again at each use
        following = cast("Frame | None", frame.chain)
        queue.head = following
        if following is None:
            queue.tail = None
            self.waiting &= ~(1 << priority)
        else:
            fetch_behind(following)  # by the time that one is taken, its successor is here
            frame.chain = None
        its: int = frame.wire_bytes
        size: i64 = its
        if self.marks and (self.marking >> priority) & 1 and not self.behind_voqs:
            self.mark(frame, priority, queue.queued_bytes, now)
        queue.queued_bytes -= size
        place: int = frame.whence
        memory.buffer.release(place, size - PREAMBLE_GAP_BYTES, now)
        return frame

    def mark(self, frame: Frame, priority: i64, waiting_bytes: i64, now: i64) -> None:
        """Mark a frame that leaves by what waits, itself included; not one that is lost with its link."""
        if not self.up or frame.ecn != ECN_CAPABLE:
            return
        aqm = self.aqms[priority]
        if aqm.marks(waiting_bytes, now - frame.time_ps, now):
            aqm.marked += 1
            frame.ecn = ECN_CONGESTED

    def tell(self, frame: Frame, now: i64) -> None:
        """A frame leaves now: a data packet that collects records of hops gets one."""
        super().tell(frame, now)
        carried = frame.carried
        if carried is None or frame.payload_bytes == 0:
            return
        tail = carried.tail if isinstance(carried, Load) else carried
        if tail is None:
            return
        place: i64 = (self.owner.number << 11) | self.number
        longer = with_hop(tail, place, now, self.backlog_bytes(), self.sent_bytes, self.rate_bps)
        if isinstance(carried, Load):
            carried.tail = longer
        else:
            frame.carried = longer

    def backlog_bytes(self) -> i64:
        """All that waits for this port, on the wire: in its queues, and at its ingress."""
        waiting: i64 = 0
        priority: i64 = 0
        while priority < PRIORITIES:
            waiting += self.queues[priority].queued_bytes + self.voq_bytes[priority]
            priority += 1
        return waiting

    def link_lost(self, now: i64) -> None:
        """Frames that wait for a link that went down are dropped."""
        priority: i64 = 0
        while priority < 8:
            while (self.waiting >> priority) & 1:
                frame = self.take(priority, now)
                if frame is not None:
                    self.lose(frame)
            priority += 1

    def discard(self, priority: i64, now: i64) -> None:
        """Drop what waits in a queue: a watchdog saw a storm."""
        while (self.waiting >> priority) & 1:
            frame = self.take(priority, now)
            if frame is not None:
                self.drop(frame, WATCHDOG_DROP)

    def drop(self, frame: Frame, reason: i64) -> None:
        """A frame that was to leave here, or had entered here, is lost; see `actors.switch.switch`."""
        self.dropped[reason] += 1
        if self.taps:
            self._show(frame, reason)
        if reason == AQM_DROP:
            reason = AQM_IN_DIGEST
        self.owner.mix_drop(self.number, reason, frame)

    def _show(self, frame: Frame, reason: i64) -> None:
        """Show the taps a frame that is dropped now: by the watchdog as it waits to leave, or as it arrives.

        Where the switch cuts through, the head decides on the route, and the tail on everything else.
        """
        now: i64 = self.queue.now_ps
        head: bool = self.cuts and (reason == NO_ROUTE or reason == TTL_EXPIRED)
        if reason == WATCHDOG_DROP:
            self.show_drop(frame, reason, now, arrived=False)
        else:
            at_ps: i64 = self.received_ps(i64(frame.wire_bytes), now, head)
            self.show_drop(frame, reason, at_ps, arrived=True)

    def head_bytes(self, priority: i64) -> i64:
        frame = self.queues[priority].head
        assert frame is not None, (self.number, priority)
        return i64(frame.wire_bytes)

    def save(self) -> list[Plain]:
        """The port's state with its queues."""
        queues: list[Plain] = [save_frames(queue.head) for queue in self.queues]
        own: list[Plain] = [
            queues,
            [int(queue.peak_bytes) for queue in self.queues],
            save_integers(self.dropped),
        ]
        own.append(int(self.discarding))
        own.append(int(self.shunned))
        for aqm in self.aqms:
            own += [aqm.marked, aqm.stream.counter, aqm.save()]
        return [super().save(), own]

    def load(self, state: Plain) -> None:
        """Take the state that `save` of an equally built port returned."""
        base, own = as_list(state)
        super().load(base)
        queues, peaks, dropped, discarding, shunned, *marks = as_list(own)
        self.discarding = u8(as_int(discarding))
        self.shunned = as_int(shunned)
        for place, aqm in enumerate(self.aqms):
            marked, counter, kept = marks[3 * place : 3 * place + 3]
            aqm.marked, aqm.stream.counter = as_int(marked), as_int(counter)
            aqm.load(as_list(kept))
        waiting: i64 = self.waiting
        for queue in self.queues:
            queue.head = queue.tail = None
            queue.queued_bytes = 0
        self.voq_bytes = vec[i64]([0] * PRIORITIES)
        for frames in as_list(queues):
            for frame in load_frames(frames):
                self.enqueue(frame)
        assert self.waiting == waiting, (self.number, self.waiting, waiting)
        for queue, peak in zip(self.queues, load_integers(peaks), strict=True):
            queue.peak_bytes = peak
        self.dropped = load_integers(dropped)
