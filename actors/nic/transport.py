"""Transports with packets of their own on several ports: the seam, and the NIC that serves them.

What a queue pair does about order, loss, acknowledgement and paths is one object, its NIC's `recovery`. Of a
reliable connection (`actors.nic.loss_recovery`) it is asked where packets are lost, doubled or out of order;
the queue pair has one port. A `Transport` is asked for more: which packet leaves next by a port, and what
becomes of each packet that comes. Its queue pairs stand in the rounds of all ports at once (`Lane`), and
their packets have headers of their own. Work requests, messages, completions, payload and states of queue
pairs stay what they are.

A transport builds its frames from those of the queue pair (`QueuePair.next_frame`, `frame_again`) and hands
what came in order to `Endpoint.respond`. On the wire its packets have opcodes from 0xC0 on.
`actors.optional.multipath` is one; a class of one's own derives from `Transport`, and lists its knobs in
`knobs`.

Not modelled: READs, receives that run out, credits of links, trains of packets (each packet is an event).
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i64, mypyc_attr, u8

from actors.kernel.counters import (
    NIC_NP_ECN_MARKED_ROCE_PACKETS,
    NIC_PATH_PROBES,
    NIC_PATHS_FAILED,
    NIC_PATHS_RESTORED,
)
from actors.kernel.device import Device, Plain, Tally
from actors.kernel.event import CONFIGURATION
from actors.kernel.mixing import mix
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_frames
from actors.kernel.vectors import vec
from actors.nic.egress_port import NicPort, SendQueue
from actors.nic.loss_recovery import Recovery
from actors.nic.memory_path import show_refused
from actors.nic.nic import UNKNOWN_PAIR_DROP, Nic
from actors.nic.queue_pair.endpoint import Endpoint, EndpointSettings
from actors.nic.queue_pair.queue_pair import ERROR, READY, READY_TO_RECEIVE, QueuePair
from actors.port.link import PRIORITIES, MessagePort, Wire
from actors.port.tap import UNKNOWN_PAIR
from actors.wire.frame import ACKNOWLEDGE, PATHED, Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport(Recovery):
    """Base of transports that say themselves which packets leave where, and take all that come."""

    def __init__(self, mtu_bytes: int, knobs: object = None) -> None:
        super().__init__(mtu_bytes, knobs)
        self.self_clocked = True
        self.give_up_ps: i64 = 0
        """A queue pair that hears nothing for so long is in error; 0 for never."""
        self.failed: i64 = 0
        """Paths that were given up."""
        self.restored: i64 = 0
        """Paths that came back."""
        self.probes: i64 = 0

    def set_fabric(self, ports: int, line_bps: int, round_trip_ps: int) -> None:
        """What the NIC has: ports, the rate of one, and the fabric's longest unloaded round trip."""

    def waits_at(self, pair: QueuePair, port: i64) -> bool:
        """Whether a queue pair has a packet that may leave by a port now."""
        raise NotImplementedError

    def next_packet(self, nic: Endpoint, pair: QueuePair, port: i64, now: i64) -> Frame | None:
        """The packet that leaves by a port now; None if there is none after all."""
        raise NotImplementedError

    def arrived(self, nic: Endpoint, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        """A packet of the peer came through a port; its opcode is the one without PATHED."""
        raise NotImplementedError

    def on_cut_off(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """Packets of a queue pair are not acknowledged, and no port whose link is up may send any now."""

    def port_changed(self, nic: Endpoint, port: i64, up: bool, now: i64) -> None:
        """The link of a port of the NIC went down or came back."""


class Lane:
    """A queue pair at one port."""

    def __init__(self, pair: QueuePair) -> None:
        self.pair: QueuePair = pair
        self.waiting: bool = False
        """Whether it stands in the port's round."""
        self.following: Lane | None = None


class LanePort(NicPort):
    """A port of such a NIC: queue pairs stand in its round while they may send there."""

    def __init__(
        self,
        owner: Device,
        number: int,
        wire: Wire,
        own_ingress_latency_ps: int,
        recovery: Recovery,
        transport: Transport,
    ) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps, 0, recovery)
        self.transport: Transport = transport
        self.lanes: list[Lane] = []
        """By the index of the queue pair."""
        self._first: list[Lane | None] = [None] * PRIORITIES
        self._last: list[Lane | None] = [None] * PRIORITIES

    def offer(self, pair: QueuePair, now: i64) -> None:
        """A queue pair may send here: it joins the end of its priority's round."""
        lane = self.lanes[pair.index]
        if not lane.waiting:
            self._line_up(lane)
        if not self.serve_pending:
            self.kick(now)

    def _line_up(self, lane: Lane) -> None:
        priority: i64 = i64(lane.pair.priority)
        last = self._last[priority]
        if last is None:
            self._first[priority] = lane
        else:
            last.following = lane
        self._last[priority] = lane
        lane.waiting = True
        self.waiting |= 1 << priority

    def take(self, priority: i64, now: i64) -> Frame | None:
        """The next acknowledgement of a priority, else the next packet of the queue pair whose turn it is."""
        queue = self.queues[priority]
        answer = queue.frame
        if answer is not None:
            frame: Frame = answer
            self._unlink(queue, frame, priority)
            if self._first[priority] is not None:
                self.waiting |= 1 << priority
            return frame
        lane = self._first[priority]
        assert lane is not None, (self.number, priority)
        following = lane.following
        self._first[priority] = following
        if following is None:
            self._last[priority] = None
        lane.following = None
        lane.waiting = False
        pair = lane.pair
        if self.fetch is not None:
            self.fetch.use(pair.qpn, now)
        nic = self.owner
        assert isinstance(nic, Endpoint), nic.number
        built = self.transport.next_packet(nic, pair, self.number, now)
        if built is not None and self.transport.waits_at(pair, self.number):
            self._line_up(lane)
        if self._first[priority] is None and queue.frame is None:
            self.waiting &= ~(1 << priority)
        return built

    def sent_again(self, pair: QueuePair, psn: i64, now: i64) -> None:
        """A packet that was sent before leaves once more."""
        self._resent(pair, psn, psn + 1, now)

    def save(self) -> list[Plain]:
        saved = super().save()
        rounds: list[Plain] = []
        for first in self._first:
            lane = first
            while lane is not None:
                rounds.append(lane.pair.index)
                lane = lane.following
        saved[3] = rounds
        return saved

    def load_round(self, state: Plain, pairs: list[QueuePair]) -> None:
        base, retransmitted, queues, rounds, fetch = as_list(state)
        self.load(base)
        if self.fetch is not None:
            self.fetch.load(fetch)
        self.retransmitted = as_int(retransmitted)
        waiting: i64 = self.waiting
        self.queues = vec[SendQueue]([SendQueue() for _ in range(PRIORITIES)])
        self._first = [None] * PRIORITIES
        self._last = [None] * PRIORITIES
        self.lanes = [Lane(pair) for pair in pairs]
        for frames in as_list(queues):
            for frame in load_frames(frames):
                self._append(frame)
        for index in as_list(rounds):
            self._line_up(self.lanes[as_int(index)])
        assert self.waiting == waiting, (self.number, self.waiting, waiting)


class LaneNic(Nic):
    """A NIC whose queue pairs have a transport of their own."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        settings: EndpointSettings,
        transport: Transport,
    ) -> None:
        super().__init__(number, queue, host, settings, transport)
        self.transport: Transport = transport

    def lane_port(self, number: i64) -> LanePort:
        """A port by its number."""
        return cast("LanePort", self._ports[number])

    def set_pairs(self, pairs: list[QueuePair]) -> None:
        super().set_pairs(pairs)
        self._add_lanes(pairs)

    def add_pairs(self, pairs: list[QueuePair], slots: int) -> None:
        super().add_pairs(pairs, slots)
        self._add_lanes(pairs)

    def _add_lanes(self, pairs: list[QueuePair]) -> None:
        number: i64 = 0
        while number < len(self._ports):
            port = self.lane_port(number)
            port.lanes = port.lanes + [Lane(pair) for pair in pairs]
            number += 1

    def activate(self, pair: QueuePair, now: i64) -> None:
        number: i64 = 0
        offered: bool = False
        while number < len(self._ports):
            port = self.lane_port(number)
            waiting: bool = port.lanes[pair.index].waiting
            if not waiting and self.transport.waits_at(pair, number):
                port.offer(pair, now)
                waiting = True
            if waiting and port.up:
                offered = True
            number += 1
        if not offered and pair.una_psn < pair.end_psn and pair.state >= READY and pair.state != ERROR:
            self.transport.on_cut_off(self, pair, now)

    def cut_off(self, pair: QueuePair) -> bool:
        if self.linked(pair) or pair.state < READY or pair.state == ERROR:
            return False
        return pair.una_psn == pair.high_psn and pair.una_psn < pair.end_psn

    def linked(self, pair: QueuePair) -> bool:
        return any(port.up for port in self._ports)

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self._ports[port_number]
        port.mix_arrival(frame, now)
        port.mix = mix(port.mix, (frame.message_bytes << 16) | i64(frame.udp_source))
        if port.suspect and port.spoilt(frame, now):
            return
        port.received_frames += 1
        size: int = frame.wire_bytes
        port.received_bytes += size
        if frame.payload_bytes > 0:
            port.received_data_frames += 1
            if self.corrupt_every > 0 and self._corrupts(frame, port_number):
                return
        if self.receive is not None and i64(frame.opcode) & ~PATHED < ACKNOWLEDGE:
            self.receive.arrive(frame, port_number, now)
        else:
            self._arrived(frame, port_number, now)

    def _arrived(self, frame: Frame, port_number: i64, now: i64) -> None:
        qpn: int = frame.qpn
        found = self._table[qpn & self._mask]
        if found is None or found.qpn != qpn:
            self.unknown_qpn += 1
            show_refused(self._ports[port_number], frame, UNKNOWN_PAIR, now)
            self.mix_drop(port_number, UNKNOWN_PAIR_DROP, frame)
            return
        if found.state >= READY_TO_RECEIVE and found.state != ERROR:
            frame.opcode = u8(i64(frame.opcode) & ~PATHED)
            self.transport.arrived(self, found, frame, port_number, now)

    def progressed(self, pair: QueuePair, una: i64, frame: Frame, now: i64) -> None:
        """Everything before `una` was acknowledged, by this frame."""
        self._advance(pair, una, frame, now)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        if kind == CONFIGURATION:
            return False  # paths that lead nowhere are silent: no routing has to say so
        return super().on_timer(kind, port, subject)

    def _link_changed(self, port: i64, subject: i64, now: i64) -> bool:
        changed: bool = super()._link_changed(port, subject, now)
        if changed:
            self.transport.port_changed(self, port, self._ports[port].up, now)
        return changed

    def _optional(self) -> list[str]:
        own = [NIC_NP_ECN_MARKED_ROCE_PACKETS, NIC_PATHS_FAILED, NIC_PATHS_RESTORED, NIC_PATH_PROBES]
        return [*super()._optional(), *own]

    def _count_optional(self, into: Tally) -> None:
        super()._count_optional(into)
        into.add(self.np_ecn_marked_roce_packets)
        into.add(self.transport.failed)
        into.add(self.transport.restored)
        into.add(self.transport.probes)
