"""The switch: what it does with a frame, its QoS maps, and what faults do to it.

It looks up the destination's prefix, chooses a member of the group, and either sends the frame at once (the
port is free, nothing goes before it, the class is not stopped) or admits it to the buffer and queues it. The
first case, an uncongested hop, touches neither buffer nor queue. Store-and-forward: the arrival event is the
last bit at the end of the ingress pipeline.

Cut-through: the arrival event is the head at the end of the pipeline, and an uncongested frame leaves then. A
frame whose egress is busy, stopped or faster than its ingress waits for its own tail, and is treated as in
store-and-forward from there. A wrong FCS is seen when the frame has left: it is dropped where it is next
stored.

Groups are recomputed a convergence delay after a link changed; until then frames that choose a dead link are
lost, as in a real fabric. Every switch takes one from a packet's TTL and drops it at 0: that ends a routing
loop.

Faults, besides those of its ports (`apply_fault`): routing takes links out of use, and the configuration
drifts: headroom, alpha, ECN thresholds, PFC of a port, the map of a DSCP, hash seed and fields. A drift takes
effect on the next frame; what is in the buffer stays where it was put. Alpha is that of all dynamic
thresholds; static ones have none that could drift. A switch that crashes is all its ports without a signal:
each drops what it held as it goes down.

QoS maps. A switch with maps trusts the packet's DSCP and nothing that the last switch made of it: DSCP to
traffic class, traffic class to egress queue and to ingress priority group. A pause names a priority of PFC,
and stops the queue that its map says. The maps are composed into one look-up by DSCP; a switch without maps
has none of this and takes the frame's priority for all.

Links with credits (`CreditSwitch`). They change nothing that a switch does with a frame. Each frame counts as
arrived once it has been dealt with; what of it is in the buffer then is held under the lane of the port by
which it came, until its transmission begins. The buffer has no thresholds and admits everything, since nobody
may send what it has no room for.

Source: the QoS maps of SONiC (DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, TC_TO_PRIORITY_GROUP_MAP,
MAP_PFC_PRIORITY_TO_QUEUE).

Not modelled: QoS maps per port, PFC_PRIORITY_TO_PRIORITY_GROUP_MAP (a group pauses the priority of its
number), rewriting of DSCPs, multicast, messages to the sender of what was dropped, what a reboot costs the
control plane, half-written configuration.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i16, i32, i64, u8

from actors.kernel.block import Outbox
from actors.kernel.counters import (
    BUFFER_PEAK_BYTES,
    BUFFER_USED_BYTES,
    CUT_THROUGH_FRAMES,
    HEADROOM_PEAK_BYTES,
    HEADROOM_POOL_PEAK_BYTES,
    INGRESS_BYTES,
    INGRESS_PEAK_BYTES,
    PFC_WATCHDOG_STORMS,
    PORT_DROPPED_FRAMES,
    QOS_MOVED_FRAMES,
    QUEUE_BYTES,
    QUEUE_MARKED_FRAMES,
    QUEUE_PEAK_BYTES,
)
from actors.kernel.device import Device, Plain, Series, Tally, by_priority, series_of
from actors.kernel.errors import RuntimeFailure
from actors.kernel.event import (
    CONFIGURATION,
    LINK_STATE,
    PAUSE_EXPIRY,
    PAUSE_REFRESH,
    SERVE,
    WATCHDOG,
    Message,
)
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.units import sending_ps
from actors.kernel.vectors import append, vec
from actors.port.credits import Credits
from actors.port.link import PRIORITIES, SETTLED, learn
from actors.port.passage import Passage
from actors.port.port import (
    DEBOUNCED,
    ONE,
    PARTS,
    apply_port_fault,
    count_port,
    port_is_steady,
    port_mark,
    port_series,
)
from actors.switch.buffer import ADMITTED, HEADROOM_OVERRUN, NO_SHARED_ROOM, Buffer
from actors.switch.ecn import Red
from actors.switch.egress import (
    AQM_DROP,
    DROP_COUNTERS,
    NO_ROUTE,
    TTL_EXPIRED,
    WATCHDOG_DROP,
    Memory,
    SwitchPort,
)
from actors.switch.routing.hashing import choose, flow_hash
from actors.switch.routing.policy import INDEX_MASK, PREFIX_SHIFT, VIA_BRANCH, Group, Routes, RoutingPolicy
from actors.switch.watchdog import PauseWatch
from actors.wire.fault import (
    ALPHA,
    DSCP,
    ECN,
    FAULT_OPERATIONS,
    HASH_FIELDS,
    HASH_SEED,
    HEADROOM,
    HOLD,
    PFC_OFF,
    ROUTE,
)
from actors.wire.frame import HEAD_WIRE_BYTES, PREAMBLE_GAP_BYTES, Frame
from actors.wire.train import Train


class Classes:
    """The maps of one switch."""

    def __init__(
        self,
        dscp_to_tc: list[int],
        tc_to_queue: list[int],
        tc_to_priority_group: list[int],
        pfc_priority_to_queue: list[int],
    ) -> None:
        assert len(dscp_to_tc) == 64, len(dscp_to_tc)
        self.queue_of: vec[i64] = vec[i64]([tc_to_queue[tc] for tc in dscp_to_tc])
        """By DSCP."""
        self.group_of: vec[i64] = vec[i64]([tc_to_priority_group[tc] for tc in dscp_to_tc])
        """By DSCP."""
        self.built_queue_of: list[int] = list(self.queue_of)
        self.built_group_of: list[int] = list(self.group_of)
        self._stops: vec[i64] = vec[i64](pfc_priority_to_queue)
        self.moved: i64 = 0
        """Frames whose queue or group is not the class selector of their DSCP."""

    def move(self, dscp: int, queue: int, group: int) -> None:
        """Give packets of a DSCP this queue and group from now on."""
        self.queue_of[dscp] = queue
        self.group_of[dscp] = group

    def queues(self, priorities: i64) -> i64:
        """The queues (a mask) that these priorities (a mask) of PFC stop."""
        found: i64 = 0
        priority: i64 = 0
        while priority < 8:
            if (priorities >> priority) & 1:
                found |= 1 << self._stops[priority]
            priority += 1
        return found


def class_selectors() -> Classes:
    """The map of a switch that has none of its own: a DSCP's upper three bits are queue and group."""
    identity = list(range(8))
    return Classes([dscp >> 3 for dscp in range(64)], identity, identity, identity)


EGRESS_LIMIT: Final[i64] = 4
PLACE_BITS: Final[i64] = 14
"""Port and priority group of a frame that waits for its tail."""
PLACE_BITS_MASK: Final[i64] = 0x3FFF
DROP_REASONS: Final = (
    "",
    "no_shared_room",
    "headroom_overrun",
    "no_route",
    "egress_limit",
    "watchdog",
    "ttl",
    "aqm",
)
"""By number; 1, 2, 4 and 7 are congestion. What a dead or bad link cost is counted by the port."""
assert NO_SHARED_ROOM == 1 and HEADROOM_OVERRUN == 2
_KNOWN: Final[dict[tuple[int, int, int, bool, bool], list[Series]]] = {}
"""The counters of a port, by all that they depend on."""
_OF_SWITCH: Final[dict[tuple[int, ...], list[Series]]] = {}
"""Those of a switch, by what it counts itself and by port."""


class Switch(Device):
    """One switch."""

    def __init__(
        self, number: int, queue: EventQueue, buffer: Buffer, routes: Routes, policy: int, hash_seed: int
    ) -> None:
        super().__init__(number, queue)
        # What every frame reads comes first.
        self._exits: vec[i16] = vec[i16]()
        """The port of each prefix to which only one leads; -1 for the others."""
        self.ports: vec[SwitchPort] = vec[SwitchPort]()
        self.buffer: Buffer = buffer
        self.memory: Memory = Memory(buffer)
        self.classes: Classes | None = None
        """Queue and priority group by DSCP; None takes the frame's priority for both."""
        self._groups: vec[Group] = vec[Group]()
        self.router: RoutingPolicy | None = None
        """Chooses among equal paths instead of `policy`, where that is not written out below."""
        self.routes: Routes = routes
        self.policy: i64 = policy
        self.hash_seed: i64 = hash_seed
        self.built_policy: int = policy
        self.built_seed: int = hash_seed
        self.counts_moved: bool = False
        """Whether `qos_moved_frames` is among its counters."""
        self.cuts_through: bool = False
        self.cut_frames: i64 = 0
        """Frames that left before their tail had come."""
        self.watches: list[PauseWatch] = []
        """A watchdog for each port, or none."""
        self.down: list[int] = []
        """Links that routing knows to be down."""
        self._settling: bool = False
        """Groups are to be computed at the end of this instant's changes."""
        self.passes: bool = False
        """Whether trains may pass whole."""
        self._waiting: list[Passage] = []
        """Trains whose packets wait a little for the one before: the books of the buffer lack them."""
        self._waiting_bytes: i64 = 0
        """What they would have there if a packet of each waited, those that are over included."""
        self._waiting_most_bytes: i64 = 0
        """The largest such packet that there ever was."""
        self.filling: tuple[i64, i64, i64, i64, i64, i64] = (0, 0, 0, 0, 0, 0)
        """Nothing, as in `actors.switch.egress.EgressQueue`."""

    def add_port(self, port: SwitchPort) -> None:
        """The next port in the order of their numbers."""
        assert len(self.ports) == port.number, port.number
        self.ports = append(self.ports, port)
        self.notes.mixing_ports = len(self.ports)

    def let_defer(self) -> bool:
        crosses: bool = False
        for port in self.ports:
            if port.let_defer():
                crosses = True
        return crosses

    def let_couple(self, near: list[Outbox]) -> None:
        for port in self.ports:
            port.let_couple(near)
        self.passes = (self.router is None or self.router.by_flow) and not self.buffer.policed

    def mix_at(self, place: i64) -> i64:
        if place > 0 and place <= len(self.ports):
            return self.ports[place - 1].mix
        return super().mix_at(place)

    def set_mix(self, place: i64, digest: i64) -> None:
        if place > 0 and place <= len(self.ports):
            self.ports[place - 1].mix = digest
        else:
            super().set_mix(place, digest)

    def write_mixes(self, into: Tally) -> None:
        mixes = self._mixes
        into.add(mixes[0])
        for port in self.ports:
            into.add(port.mix)
        at: i64 = len(self.ports) + 1
        while at < len(mixes):
            into.add(mixes[at])
            at += 1

    def frames_received(self) -> int:
        return sum([int(port.received_frames) for port in self.ports])

    def data_frames_received(self) -> int:
        return sum([int(port.received_data_frames) for port in self.ports])

    def compute_groups(self) -> None:
        """Take the groups from the graph, as routing knows it now."""
        groups = self.routes.groups(self.number, self.down)
        self._groups = vec[Group](groups)
        exits: list[i16] = []
        for group in groups:
            exit_number: int = -1
            if group.count == 1 and not group.by_address:
                exit_number = group.ports[0]
            exits.append(exit_number)
        self._exits = vec[i16](exits)
        router = self.router
        if router is not None:
            router.groups_changed(groups)

    def on_frame(self, frame: Frame, port_number: i64) -> None:  # noqa: C901, PLR0912  a call per hop costs 3 %
        now: i64 = self.queue.now_ps
        port = self.ports[port_number]
        if port.cuts and frame.cut < 0:  # its head was counted and sent on when it came
            self._tail_came(frame, port, now)
            return
        port.mix_arrival(frame, now)
        if port.suspect and port.spoilt(frame, now):
            return
        port.received_frames += 1
        size: int = frame.wire_bytes
        port.received_bytes += size
        if frame.payload_bytes > 0:
            port.received_data_frames += 1
        ttl: u8 = frame.ttl
        if ttl <= 1:
            frame.ttl = 0
            port.drop(frame, TTL_EXPIRED)
            return
        frame.ttl = ttl - 1
        its: int = frame.dst
        dst: i64 = its
        prefix: i64 = dst >> PREFIX_SHIFT
        only: int = self._exits[prefix]
        exit_number: i64 = only
        if exit_number < 0:
            group = self._groups[prefix]
            if group.by_address:
                index: i64 = dst & INDEX_MASK
                if index < group.count:
                    exit_number = group.ports[index]
                    # A host behind several members: the number says which group of them, counted down.
                    if exit_number <= VIA_BRANCH:
                        group = group.branches[VIA_BRANCH - exit_number]
                        exit_number = -1
            if exit_number < 0 and not group.by_address:
                if group.count == 1:
                    exit_number = group.ports[0]
                elif group.count > 1:
                    if self.router is None:
                        choice: i64 = choose(flow_hash(frame, self.policy, self.hash_seed), group.count)
                        exit_number = group.ports[choice]
                    else:
                        exit_number = self._choice(self.router, frame, group, port_number, now)
            if exit_number < 0:
                port.drop(frame, NO_ROUTE)
                return
        out = self.ports[exit_number]
        priority: int = frame.priority
        place: i64 = (port_number << 3) | priority
        if self.classes is not None:
            place = (port_number << 3) | self._classify(self.classes, frame)
        if port.apart:
            self.forward_apart(frame, port, out, place, now)
            return
        if not out.send_at_once(frame, now):
            self._hold(frame, port, out, place, now)

    def on_train(self, train: Train, port_number: i64) -> None:
        exit_number: i64 = -1
        if self.passes and self.classes is None and train.ttl > 1:
            exit_number = self._exit(train, port_number)
        passed: i64 = 0
        if exit_number >= 0:
            passed = self._pass(train, port_number, exit_number)
        if passed == ONE:
            self.let_follow(train, 1)
            self.on_frame(train, port_number)
        elif passed == 0:
            self.unroll(train, port_number)

    def _exit(self, frame: Frame, port_number: i64) -> i64:
        """The port by which a frame leaves, as in `on_frame`; -1 where there is none."""
        its: int = frame.dst
        dst: i64 = its
        group = self._groups[dst >> PREFIX_SHIFT]
        if group.by_address:
            index: i64 = dst & INDEX_MASK
            if index >= group.count:
                return -1
            exit_number: i64 = group.ports[index]
            if exit_number > VIA_BRANCH:
                return exit_number
            group = group.branches[VIA_BRANCH - exit_number]
        if group.count <= 1:
            return group.ports[0] if group.count == 1 else -1
        router = self.router
        if router is not None:
            return self._choice(router, frame, group, port_number, self.queue.now_ps)
        return group.ports[choose(flow_hash(frame, self.policy, self.hash_seed), group.count)]

    def _pass(self, train: Train, port_number: i64, exit_number: i64) -> i64:
        """Let packets of a train pass, if nothing is in their way; how many, or ONE, as
        `Port.may_pass` has it."""
        now: i64 = self.queue.now_ps
        port = self.ports[port_number]
        out = self.ports[exit_number]
        its: int = train.priority
        priority: i64 = its
        size: int = train.wire_bytes
        if port.suspect or port.apart or port.discarding != 0:  # what is discarded there is mixed there, too
            return 0
        wait_ps: i64 = max(out.free_ps - now, 0)
        most: i64 = out.may_pass(priority, size, train.gap_ps, train.count, now + wait_ps)
        if most <= 0:
            return most
        if wait_ps > 0:
            if train.gap_ps != size * out.ps_per_byte or wait_ps >= train.gap_ps or self.stopping > 0:
                return 0
            if out.limited or (out.marking >> priority) & 1:
                return 0
            if not self._may_wait((port_number << 3) | priority, size - PREAMBLE_GAP_BYTES, now):
                return 0
            out.hold_briefly(priority, size)
        if most < train.count:
            self.let_follow(train, most)
        passage = Passage(train, now, port_number, exit_number)
        if wait_ps > 0:
            passage.wait_ps = wait_ps
            passage.last_ps += wait_ps
            if len(self._waiting) > 2 * len(self.ports):
                self._forget_over(now)
            self._waiting.append(passage)
            self._waiting_bytes += size - PREAMBLE_GAP_BYTES
            if size - PREAMBLE_GAP_BYTES > self._waiting_most_bytes:
                self._waiting_most_bytes = size - PREAMBLE_GAP_BYTES
            self.executed += passage.count
        port.arrive_ahead(passage)
        self.executed += passage.count - 1
        train.ttl -= 1
        out.leave_ahead(passage, train)
        if passage.last_ps > self.ahead_ps:
            self.ahead_ps = passage.last_ps
        return most

    def uncouple(self, now: i64, place: i64) -> None:
        self.ahead_ps = -1
        for port in self.ports:
            passage = port.leaving
            if passage is not None:
                self._take_apart(passage, now, place)

    def uncouple_port(self, number: i64) -> None:
        port = self.ports[number]
        now: i64 = self.queue.now_ps
        leaving = port.leaving
        if leaving is not None:
            self._take_apart(leaving, now, self.place_now())

    def _take_apart(self, passage: Passage, now: i64, place: i64) -> None:
        """Undo what did not happen of a passage before an event now, of this kind and port."""
        port = self.ports[passage.source]
        out = self.ports[passage.exit]
        if out.leaving is passage:
            out.leaving = None
        if port.coming is passage:
            port.coming = None
        if passage.last_ps < now:
            return
        if passage.wait_ps > 0:
            self._waiting = [other for other in self._waiting if other is not passage]
            self._waiting_bytes -= i64(passage.train.wire_bytes) - PREAMBLE_GAP_BYTES
        arrived: i64 = passage.arrived(now, place)
        left: i64 = arrived
        if passage.wait_ps > 0:
            left = passage.left(now, place)
            self.executed -= passage.count - left
        if left == passage.count:
            return
        train = passage.train
        waits: Frame | None = None
        if left < arrived:
            waits = train.packet(left)
            waits.time_ps = passage.first_ps + left * passage.gap_ps
        if arrived < passage.count:
            self.executed -= passage.count - arrived
            rest = passage.rest(train, arrived)
            rest.ttl += 1
            port.take_back_arrivals(passage, arrived)
            self.queue.push(rest)
        out.take_back_departures(passage, train, left)
        if waits is not None:
            the_place: i64 = (port.number << 3) | i64(waits.priority)
            waits.whence = i32(the_place)
            verdict: i64 = self.buffer.admit(the_place, i64(waits.wire_bytes) - PREAMBLE_GAP_BYTES, now)
            assert verdict == ADMITTED, (self.number, verdict)
            out.enqueue(waits)
            out.arm()

    def _interferes(self, frame: Frame, out: SwitchPort, ingress: i64, now: i64) -> bool:
        """A frame that could not leave at once is in the way of trains. Whether it left now that they are
        taken apart."""
        leaving = out.leaving
        if leaving is not None:
            if leaving.last_ps >= now:
                leaving.train.coupling.failed()
            self._take_apart(leaving, now, self.place_now())
            if out.send_at_once(frame, now):
                return True
        if self._waiting:
            self._make_room(ingress, i64(frame.wire_bytes) - PREAMBLE_GAP_BYTES, now)
        return False

    def _make_room(self, place: i64, size: i64, now: i64) -> None:
        """A frame is to be held. Trains whose packets wait are taken apart, unless that would not show."""
        if not self._fits_too(place, size, now):
            for passage in self._waiting:
                passage.train.coupling.failed()
                self._take_apart(passage, now, self.place_now())

    def _may_wait(self, place: i64, size: i64, now: i64) -> bool:
        """Whether packets of a train may wait one after the other, each for a moment, and change nothing but
        the most that was ever held; then they do."""
        if self._waiting_bytes > 0 and not self._fits_too(place, size, now):
            return False
        return self.buffer.holds_briefly(place, size)

    def _fits_too(self, place: i64, size: i64, now: i64) -> bool:
        """Whether a frame can be held while trains wait, and neither thresholds nor the most that was ever
        held would show it, however many of their packets were held with it."""
        if self.buffer.endures(place, size, self._waiting_most_bytes, size + self._waiting_bytes):
            return True
        self._forget_over(now)
        return self.buffer.endures(place, size, self._waiting_most_bytes, size + self._waiting_bytes)

    def _forget_over(self, now: i64) -> None:
        """Count no longer as waiting what has left."""
        self._waiting = [passage for passage in self._waiting if passage.last_ps >= now]
        self._waiting_bytes = 0
        for passage in self._waiting:
            self._waiting_bytes += i64(passage.train.wire_bytes) - PREAMBLE_GAP_BYTES

    def _choice(self, router: RoutingPolicy, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        """The port that a policy chooses; it may hash by which port the frame came."""
        frame.whence = i32(ingress << 3)
        chosen: i64 = router.choose(frame, group, ingress, now)
        if chosen < 0 or chosen >= len(self.ports):
            who = f"routing policy {type(router).__name__}"
            raise RuntimeFailure(f"{who} chose port {chosen} of switch {self.number}, of {len(self.ports)}")
        return chosen

    def _hold(self, frame: Frame, port: SwitchPort, out: SwitchPort, place: i64, now: i64) -> None:
        """A frame that cannot leave at once: into the buffer and its egress queue, or dropped."""
        if self.ahead_ps >= now and self._interferes(frame, out, place, now):
            return
        its: int = frame.priority
        priority: i64 = its
        if not out.up:
            out.lose(frame)
            return
        discarding: int = out.discarding
        if (discarding >> priority) & 1:
            out.drop(frame, WATCHDOG_DROP)
            return
        frame.whence = i32(place)
        size: int = frame.wire_bytes
        if out.limited:
            kept: i64 = 1 if self.buffer.groups[place].lossless else 0
            if out.over_limit(frame, kept):
                port.drop(frame, EGRESS_LIMIT)
                return
            if kept == 0 and out.dropped_early(frame, out.queues[priority].queued_bytes, now):
                port.drop(frame, AQM_DROP)
                return
        verdict: i64 = self.buffer.admit(place, size - PREAMBLE_GAP_BYTES, now)
        if verdict != ADMITTED:
            port.drop(frame, verdict)
            return
        out.enqueue(frame)
        if not out.serve_pending:
            out.kick(now)

    def _classify(self, classes: Classes, frame: Frame) -> i64:
        """Give a frame the queue of its DSCP; returns its priority group."""
        dscp: i64 = i64(frame.dscp)
        usual: i64 = dscp >> 3
        queue: i64 = classes.queue_of[dscp]
        group: i64 = classes.group_of[dscp]
        if queue != usual or group != usual:
            classes.moved += 1
        frame.priority = u8(queue)
        return group

    def forward_apart(self, frame: Frame, port: SwitchPort, out: SwitchPort, place: i64, now: i64) -> None:
        """Cut-through: the head of a frame is here. It leaves at once, or when its tail has come."""
        if out.rate_bps <= port.rate_bps and out.send_at_once(frame, now):
            self.cut_frames += 1
            return
        head_ps: i64 = sending_ps(HEAD_WIRE_BYTES, port.rate_bps)
        frame.cut = i32(-1 - ((out.number << PLACE_BITS) | place))
        frame.time_ps = now + port.serialisation(i64(frame.wire_bytes)) - head_ps
        self.queue.push(frame)

    def _tail_came(self, frame: Frame, port: SwitchPort, now: i64) -> None:
        """Cut-through: the tail of a frame that had to wait for it is here."""
        kept: i64 = i64(-1 - frame.cut)
        place: i64 = kept & PLACE_BITS_MASK
        frame.cut = 0
        if port.suspect and port.tail_spoilt(frame, now):
            return
        out = self.ports[kept >> PLACE_BITS]
        if not out.send_at_once(frame, now):
            self._hold(frame, port, out, place, now)

    def on_pause(self, message: Message, port: i64) -> None:
        end = self.ports[port]
        now: i64 = self.queue.now_ps
        if end.taps:
            end.show_heard(message, now)
        pfc = end.pfc
        if pfc is None:
            return
        classes = self.classes
        if classes is not None:
            message.a = classes.queues(message.a)
            message.b = classes.queues(message.b)
        pfc.hear(message, now)
        if len(self.watches) > 0:
            self.watches[port].paused(self.ports[port].blocked & ~pfc.held, now)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        now: i64 = self.queue.now_ps
        if kind == SERVE:
            self.ports[port].on_serve(now)
            return False
        if self.ahead_ps >= now:
            self.uncouple(now, self.place_now())
        if kind == WATCHDOG:
            return self.watches[port].expire(subject, now)
        if kind == LINK_STATE:
            end = self.ports[port]
            before: bool = end.up
            if subject == DEBOUNCED:
                end.debounced(now)
            else:
                end.signal_changed(subject == 1, now)
            router = self.router
            if router is not None:
                router.link_changed(port, end.up)
            changed: bool = end.up != before
            return changed
        if kind == CONFIGURATION:
            if port == SETTLED:  # the changes themselves were faults
                self._settling = False
                self.compute_groups()
            else:
                self._route_change(subject)
            return False
        pfc = self.ports[port].pfc
        assert pfc is not None and (kind == PAUSE_EXPIRY or kind == PAUSE_REFRESH), kind
        if kind == PAUSE_EXPIRY:
            return pfc.expire(subject, now)
        return pfc.refresh(subject, now)

    def _route_change(self, subject: i64) -> None:
        """Routing learns that a link went down or came back: subject = link x 2 + up."""
        learn(self.down, subject)
        if not self._settling:
            self._settling = True
            self.push_timer(self.queue.now_ps, CONFIGURATION, SETTLED, 0)

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        router = self.router
        return router is not None and router.admits(message)

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        now: i64 = self.queue.now_ps
        up: int = 1 if values is None else 0
        if op == HOLD:
            self.on_timer(LINK_STATE, place, up)
        elif op == ROUTE:
            self.on_timer(CONFIGURATION, 0, place * 2 + up)
        elif op == HEADROOM:
            self._set_headroom(place, values)
        elif op == ALPHA:
            self._set_alpha(values)
        elif op == ECN:
            self._set_ecn(place, values)
        elif op == DSCP:
            self._map_dscp(place, values)
        elif op == HASH_SEED:
            self.hash_seed = self.built_seed if values is None else values[0]
        elif op == HASH_FIELDS:
            self.policy = self.built_policy if values is None else values[0]
        else:
            port = self.ports[place]
            if op == PFC_OFF and port.pfc is not None:
                self._set_lossless(port, values is None)
            known: bool = apply_port_fault(port, op, values, now)
            assert known, (self.number, FAULT_OPERATIONS[op])

    def _set_headroom(self, place: int, values: list[int] | None) -> None:
        first: int = place * PRIORITIES
        for number in range(first, first + PRIORITIES):
            group = self.buffer.group_at(number)
            group.headroom_bytes = group.built_headroom_bytes
            if values is not None and group.lossless:
                group.headroom_bytes = values[0]

    def _set_alpha(self, values: list[int] | None) -> None:
        for part in self.buffer.all_parts():
            buffer: Buffer = part
            buffer.set_alpha(-1 if values is None else values[0])

    def _set_ecn(self, place: int, values: list[int] | None) -> None:
        for red in self.ports[place].aqms:
            if not isinstance(red, Red):
                continue
            if values is None:
                red.set_thresholds(red.built_kmin_bytes, red.built_kmax_bytes, red.built_pmax_fixed)
            else:
                red.set_thresholds(values[0], values[1], values[2])

    def _map_dscp(self, dscp: int, values: list[int] | None) -> None:
        classes = self.classes
        if classes is None:
            classes = self.classes = class_selectors()
        if values is None:
            classes.move(dscp, classes.built_queue_of[dscp], classes.built_group_of[dscp])
        else:
            classes.move(dscp, values[0], values[1])

    def _set_lossless(self, port: SwitchPort, on: bool) -> None:
        """The priority groups of a port become lossy, or what they were built as."""
        first: int = int(port.number) * PRIORITIES
        for number in range(first, first + PRIORITIES):
            group = self.buffer.group_at(number)
            group.lossless = on and group.built_lossless
            if not on:
                group.stopped = False

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        router = self.router
        assert router is not None, (self.number, message.op)
        router.on_message(message, self.queue.now_ps)

    def _reasons(self, port: SwitchPort) -> i64:
        """The reasons for which a port, as it is configured, can drop: bit r for reason r."""
        found: i64 = 0b1001110
        if port.limited and port.has_limits():
            found |= 1 << 4
        if len(self.watches) > 0:
            found |= 1 << 5
        if port.dropping:
            found |= 1 << 7
        return found

    def series(self) -> list[Series]:
        kinds: list[int] = [
            (self.buffer.headroom_pool_bytes > 0) << 2 | self.counts_moved << 1 | self.cuts_through
        ]
        for port in self.ports:
            counted: i64 = self._reasons(port) << 8 | len(port.aqms) << 2
            if len(self.watches) > 0:
                counted |= 2
            if port.credits is not None:
                counted |= 1
            kinds.append(counted)
        kind, router = tuple(kinds), self.router
        known = _OF_SWITCH.get(kind)
        if known is not None and router is None:
            return known
        rows = [series_of(BUFFER_USED_BYTES), series_of(BUFFER_PEAK_BYTES)]
        if self.buffer.headroom_pool_bytes > 0:
            rows.append(series_of(HEADROOM_POOL_PEAK_BYTES))
        if self.counts_moved:
            rows.append(series_of(QOS_MOVED_FRAMES))
        if self.cuts_through:
            rows.append(series_of(CUT_THROUGH_FRAMES))
        for port in self.ports:
            rows += self._port_series(port)
        if router is None:
            _OF_SWITCH[kind] = rows
        else:
            rows += router.series()
        return rows

    def _port_series(self, port: SwitchPort) -> list[Series]:
        """Those of one port, in the order of `count`: the same list for ports that count alike."""
        reasons: int = self._reasons(port)
        key = (int(port.number), reasons, len(port.aqms), len(self.watches) > 0, port.credits is not None)
        known = _KNOWN.get(key)
        if known is not None:
            return known
        n: int = port.number
        rows = port_series(port).copy()
        found = [reason for reason in range(DROP_COUNTERS) if (reasons >> reason) & 1]
        rows += [series_of(PORT_DROPPED_FRAMES, n, -1, DROP_REASONS[reason]) for reason in found]
        if self.watches:
            rows += by_priority(PFC_WATCHDOG_STORMS, n)
        rows += by_priority(QUEUE_MARKED_FRAMES, n)[: len(port.aqms)]
        rows += by_priority(QUEUE_BYTES, n)
        rows += by_priority(QUEUE_PEAK_BYTES, n)
        rows += by_priority(INGRESS_BYTES, n)
        rows += by_priority(INGRESS_PEAK_BYTES, n)
        rows += by_priority(HEADROOM_PEAK_BYTES, n)
        _KNOWN[key] = rows
        return rows

    def steady(self) -> bool:
        return all(port_is_steady(port) for port in self.ports)

    def count(self, into: Tally) -> None:
        self.buffer.count(into)
        if self.counts_moved and self.classes is not None:
            into.add(self.classes.moved)
        if self.cuts_through:
            into.add(self.cut_frames)
        owners_mix: i64 = self.mix_at(0)
        for port in self.ports:
            part: i64 = PARTS * port.number
            mark: i64 = 0
            if not port.behind_voqs:
                mark = port_mark(port, owners_mix)
            if into.stands(part, mark):  # nothing happened here since the last reading
                continue
            count_port(into, port, self.queue.now_ps)
            reasons: i64 = self._reasons(port)
            reason: i64 = 0
            while reasons != 0:
                if reasons & 1 != 0:
                    into.add(port.dropped[reason])
                reasons >>= 1
                reason += 1
            if self.watches:
                into.add_table(self.watches[port.number].storms)
            for aqm in port.aqms:
                into.add(aqm.marked)
            port.count_queues(into, part + 2)
            first: i64 = port.number * PRIORITIES
            held: i64 = self.buffer.count_groups(into, first, first + PRIORITIES, part + 3)
            if held != 0:
                mark = 0  # what waits may leave without a trace in the mark: read again next time
            into.keep(part, mark)
        router = self.router
        if router is not None:
            into.add_list(router.counters())

    def save(self) -> list[Plain]:
        ports: list[Plain] = [port.save() for port in self.ports]
        watches: list[Plain] = [watch.save() for watch in self.watches]
        router = self.router
        return [
            super().save(),
            self.buffer.save(),
            save_fields(self, ("down", "cut_frames")),
            ports,
            None if router is None else router.save(),
            watches,
            -1 if self.classes is None else self.classes.moved,
        ]

    def load(self, state: list[Plain]) -> None:
        base, buffer, fields, ports, routing, watches, moved = state
        load_fields(self, ("down", "cut_frames"), fields)
        self._waiting = []
        self._waiting_bytes = 0
        super().load(as_list(base))
        self.buffer.load(buffer)
        self.compute_groups()
        for port, saved in zip(self.ports, as_list(ports), strict=True):
            port.load(saved)
        router = self.router
        if router is not None and routing is not None:  # a fork may hash otherwise
            router.load(as_list(routing))
        for watch, saved in zip(self.watches, as_list(watches), strict=True):
            watch.load(saved)
        if as_int(moved) >= 0:
            if self.classes is None:  # a drift made them
                self.classes = class_selectors()
            self.classes.moved = as_int(moved)
        self.reapply_faults()


class CreditBuffer(Buffer):
    """The buffers of all lanes of a switch's ports."""

    def __init__(self, pool_bytes: int) -> None:
        super().__init__(pool_bytes, 1, 0)
        self.credits: vec[Credits] = vec[Credits]()

    def add_port(self, lanes: Credits) -> None:
        """The credits of the next port in the order of their numbers."""
        self.credits = append(self.credits, lanes)

    def admit(self, number: i64, size_bytes: i64, now: i64) -> i64:
        group = self.groups[number]
        self.credits[number >> 3].hold(number & 7, size_bytes + PREAMBLE_GAP_BYTES)
        group.shared_bytes += size_bytes
        self.shared_used_bytes += size_bytes
        group.held_bytes += size_bytes
        if group.held_bytes > group.peak_bytes:
            group.peak_bytes = group.held_bytes
        self.held_bytes += size_bytes
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes
        return ADMITTED

    def release(self, number: i64, size_bytes: i64, now: i64) -> None:
        group = self.groups[number]
        group.shared_bytes -= size_bytes
        self.shared_used_bytes -= size_bytes
        group.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        assert group.held_bytes >= 0, (number, group.held_bytes, size_bytes)
        self.credits[number >> 3].free(number & 7, size_bytes + PREAMBLE_GAP_BYTES, now)


class CreditSwitch(Switch):
    """A switch whose links have credits."""

    def let_defer(self) -> bool:
        """No serve is deferred: what leaves makes room, and the peer is notified."""
        return False

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self.ports[port_number]
        lanes = port.credits
        assert lanes is not None, (self.number, port_number)
        lost: bool = port.ever_down and port.was_down(frame.sent_ps, now - port.own_ingress_latency_ps)
        lane: i64 = i64(frame.priority)
        size: i64 = i64(frame.wire_bytes)
        super().on_frame(frame, port_number)
        if not lost and not (port.apart and frame.cut < 0):  # not while a cut frame waits for its tail
            lanes.arrived(lane, size, now)

    def on_pause(self, message: Message, port: i64) -> None:
        end = self.ports[port]
        now: i64 = self.queue.now_ps
        if end.taps:
            end.show_heard(message, now)
        lanes = end.credits
        assert lanes is not None, (self.number, port)
        lanes.hear(message, now)
