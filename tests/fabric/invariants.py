"""What must hold in every fabric, whatever ran on it?

`broken(...)` looks at the devices of a whole run between two events, with the events that are still pending,
and returns one line for each rule that is broken, so that a test asserts `broken(...) == []`. It may be
called at any moment; `at_rest` adds what must be true once nothing is pending any more, `lossless` that no
buffer was ever too small.

- Packets: what a port sent was received at the other end, or is in flight, or was lost to a dead link (or to
  the test, `taken_out`); what entered a device left it, was dropped for a reason that is counted, or waits:
  in a queue, or with cut-through for its own tail.
- Buffers: what groups hold is what the switch holds, nothing is negative or above its limit, and it is
  exactly what the frames in the queues take. At rest all is zero and nobody is stopped.
- Ports: bits of what waits are those of the queues, and a port that could send has a serve event pending.
- Pauses: a class that is stopped has an expiry pending; a peer that was told to stop is reminded. At rest no
  class is stopped. Each XOFF that was sent was heard, is in flight or was lost to a dead link.
- Queue pairs: una <= next <= high <= end; the work requests not yet acknowledged end at `end`; the responder
  is never ahead of what was sent. At rest, unless in error, all is acknowledged and expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from actors.fabric.model import FABRIC, Topology
from actors.kernel.device import Device
from actors.kernel.event import (
    ARRIVAL,
    PAUSE,
    PAUSE_EXPIRY,
    PAUSE_REFRESH,
    RETRANSMIT,
    SERVE,
    Event,
    key_device,
    key_kind,
    key_port,
    key_subject,
)
from actors.nic.egress_port import NicPort
from actors.nic.nic import Nic
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair
from actors.optional.deep import DeepSwitch
from actors.port.link import PRIORITIES
from actors.port.pfc import HOLD_END
from actors.port.port import Port
from actors.switch.egress import SwitchPort
from actors.switch.switch import DROP_REASONS, Switch
from actors.wire.frame import PREAMBLE_GAP_BYTES, PSN_MASK, Frame

Place = tuple[int, int]
"""A device's number and a port's."""
CONGESTION = ("no_shared_room", "headroom_overrun")


class Pending:
    """The pending events, counted by what a rule asks for."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._counts: dict[tuple[int, int, int, int], int] = {}
        self._tails: dict[int, int] = {}
        for event in events:
            key = event.key
            if isinstance(event, Frame) and event.cut < 0:  # its head is here, and was counted
                self._tails[key_device(key)] = self.tails(key_device(key)) + 1
                continue
            place = (key_kind(key), key_device(key), key_port(key), key_subject(key))
            self._counts[place] = self._counts.get(place, 0) + 1
        self.doubled = [place for place, count in self._counts.items() if count > 1 and place[0] != ARRIVAL]

    def count(self, kind: int, device: int, port: int, subject: int = 0) -> int:
        """How many events of this kind are pending there."""
        return self._counts.get((kind, device, port, subject), 0)

    def tails(self, device: int) -> int:
        """How many frames wait in a switch for their own tails."""
        return self._tails.get(device, 0)


def broken(
    topology: Topology,
    devices: Sequence[Device],
    pending: Sequence[Event],
    *,
    at_rest: bool = False,
    lossless: bool = False,
    taken_out: Mapping[Place, int] | None = None,
) -> list[str]:
    """One line for each rule that is broken. `devices` are those of the whole fabric, hosts included or not.

    `taken_out` says how many frames were removed from the wire behind each sending port.
    """
    by_number = {device.number: device for device in devices}
    events = Pending(pending)
    found = list(_packets(topology, by_number, events, taken_out or {}))
    for device in devices:
        if isinstance(device, Switch):
            faults = [*_buffer(device, at_rest), *_drops(device, lossless)]
            for port in device.ports:
                faults += [*_port(port, events), *_pauses(port, events, at_rest)]
        elif isinstance(device, Nic):
            faults = []
            for nic_port in device.ports():
                faults += [*_port(nic_port, events), *_pauses(nic_port, events, at_rest)]
            for pair in device.pairs:
                faults += _pair(device, pair, events, at_rest)
        else:
            continue
        found += [f"{topology.nodes[device.number].name}: {fault}" for fault in faults]
    return found + [f"pending twice at {place}" for place in events.doubled if at_rest]


def _ports(device: Device) -> list[Port]:
    if isinstance(device, Switch):
        return list(device.ports)
    return list(device.ports()) if isinstance(device, Nic) else []


def waiting_frames(switch: DeepSwitch) -> list[Frame]:
    """The frames that wait in virtual output queues."""
    return [frame for voq in switch.voqs.values() for frame in voq.frames()]


def queued(port: Port) -> list[Frame]:
    """The frames that wait at a port, in no particular order."""
    if isinstance(port, NicPort):
        heads = [queue.frame for queue in port.queues]
    else:
        assert isinstance(port, SwitchPort)
        heads = [queue.head for queue in port.queues]
    frames = []
    for head in heads:
        frame = head
        while frame is not None:
            frames.append(frame)
            frame = cast("Frame | None", frame.chain)
    return frames


def _packets(
    topology: Topology, devices: Mapping[int, Device], events: Pending, taken_out: Mapping[Place, int]
) -> Iterator[str]:
    arrived = dict.fromkeys(devices, 0)
    for number, device in devices.items():
        for port in _ports(device):
            end = topology.ports(number)[port.number]
            assert end.kind == FABRIC, end
            peer = _ports(devices[end.peer])[end.peer_port]
            flying = events.count(ARRIVAL, end.peer, end.peer_port)
            landed = port.sent_frames - flying - taken_out.get((number, port.number), 0)
            arrived[end.peer] += landed
            lost = landed - peer.received_frames
            if not 0 <= lost <= peer.lost_link_down + peer.corrupted:
                sender, receiver = topology.nodes[number].name, topology.nodes[end.peer].name
                yield (
                    f"{sender}>{receiver}: {port.sent_frames} sent, {flying} in flight, "
                    f"{peer.received_frames} received, {peer.lost_link_down} lost to a dead link"
                )
            pfc, peer_pfc = port.pfc, peer.pfc
            if pfc is not None and peer_pfc is not None and not (port.ever_down or peer.ever_down):
                unheard = sum(pfc.sent) - sum(peer_pfc.received) - peer_pfc.missed
                paused = events.count(PAUSE, end.peer, end.peer_port)
                if not 0 <= unheard <= paused * PRIORITIES:
                    yield f"{topology.nodes[number].name} port {port.number}: {unheard} XOFF were not heard"
    for number, device in devices.items():
        ports = _ports(device)
        sent = sum(port.sent_frames for port in ports)
        lost = sum(port.lost_link_down + port.corrupted for port in ports)
        waiting = sum(len(queued(port)) for port in ports) + events.tails(number)
        if isinstance(device, DeepSwitch):
            waiting += len(waiting_frames(device))
        name = topology.nodes[number].name
        if isinstance(device, Switch):
            dropped = sum(sum(port.dropped) for port in device.ports)
            if arrived[number] != sent + lost + dropped + waiting:
                ways = f"{sent} out, {lost} lost, {dropped} dropped, {waiting} wait"
                yield f"{name}: {arrived[number]} in, {ways}"
        elif isinstance(device, Nic):
            received = sum(port.received_frames for port in ports)
            answers = device.transmit_acks + device.transmit_naks
            lost_answers = lost - (arrived[number] - received)
            if not 0 <= lost_answers <= answers:
                yield f"{name}: {lost_answers} of {answers} answers lost"


def _drops(switch: Switch, lossless: bool) -> Iterator[str]:
    if not lossless:
        return
    for port in switch.ports:
        for reason in CONGESTION:
            count = port.dropped[DROP_REASONS.index(reason)]
            if count:
                yield f"port {port.number} dropped {count} frames: {reason}"


def _buffer(switch: Switch, at_rest: bool) -> Iterator[str]:
    buffer = switch.buffer
    waiting = [0] * len(buffer.groups)
    held_back = waiting_frames(switch) if isinstance(switch, DeepSwitch) else []
    for frame in held_back:
        waiting[frame.whence] += int(frame.wire_bytes) - int(PREAMBLE_GAP_BYTES)
    for port in switch.ports:
        for frame in queued(port):
            waiting[frame.whence] += int(frame.wire_bytes) - int(PREAMBLE_GAP_BYTES)
    for number, group in enumerate(buffer.groups):
        parts = (group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes)
        if min(parts) < 0 or sum(parts) != group.held_bytes or waiting[number] != group.held_bytes:
            yield f"group {number} holds {group.held_bytes} in parts {parts}, {waiting[number]} are queued"
        room = max(group.headroom_bytes, group.built_headroom_bytes)  # what a drift took away may be in use
        if parts[0] > group.reserve_bytes or parts[2] > room:
            yield f"group {number} exceeds reserve or headroom: {parts}"
        if group.stopped and (not group.lossless or group.held_bytes == 0):
            yield f"group {number} is stopped, lossless {group.lossless}, holding {group.held_bytes}"
        if group.pfc is not None and bool(group.pfc.wanted >> group.priority & 1) != group.stopped:
            yield f"group {number} is stopped: {group.stopped}, its port wants to stop {group.pfc.wanted}"
        if at_rest and group.held_bytes:
            yield f"group {number} still holds {group.held_bytes}"
    for part in buffer.all_parts():
        headroom = sum(group.headroom_used_bytes for group in part.groups)
        if headroom != part.headroom_used_bytes or headroom > part.headroom_pool_peak_bytes:
            yield f"groups have {headroom} of headroom in use, the switch {part.headroom_used_bytes}"
    shared = sum(group.shared_bytes for group in buffer.groups)
    held = sum(group.held_bytes for group in buffer.groups)
    if shared != buffer.shared_used_bytes or held != buffer.held_bytes or shared > buffer.pool_bytes:
        yield (
            f"groups hold {held}, {shared} of it shared; the switch {buffer.held_bytes}, "
            f"{buffer.shared_used_bytes} of {buffer.pool_bytes}"
        )
    if buffer.peak_bytes < buffer.held_bytes:
        yield f"peak {buffer.peak_bytes} below {buffer.held_bytes}"


def _port(port: Port, events: Pending) -> Iterator[str]:
    waiting = 0
    for frame in queued(port):
        waiting |= 1 << frame.priority
    if isinstance(port, NicPort):
        for priority, queue in enumerate(port.queues):
            if queue.pair is not None:
                waiting |= 1 << priority
    if waiting != port.waiting:
        yield f"port {port.number}: waiting is {port.waiting:#x}, the queues are {waiting:#x}"
    serving = events.count(SERVE, port.owner.number, port.number)
    if serving != int(port.serve_pending):
        yield f"port {port.number}: serve_pending {port.serve_pending}, {serving} serve events"
    could_send = (port.waiting & ~port.blocked) != 0 or port.control_pending
    if port.up and could_send and not serving:
        yield (
            f"port {port.number} sleeps: waiting {port.waiting:#x}, blocked {port.blocked:#x}, "
            f"control {port.control_pending}"
        )


def _pauses(port: Port, events: Pending, at_rest: bool) -> Iterator[str]:
    pfc = port.pfc
    if pfc is None:
        if port.credits is None and (port.blocked or port.control_pending):
            yield f"port {port.number} is stopped without flow control"
        return
    owner, number = port.owner.number, port.number
    for priority in range(PRIORITIES):
        bit = 1 << priority
        ends = HOLD_END if pfc.held & bit else priority
        if port.blocked & bit and not events.count(PAUSE_EXPIRY, owner, number, ends):
            yield f"port {number}: class {priority} is stopped and will never expire"
        reported = bool(pfc.signalled & bit and pfc.stopping & bit)
        reminded = events.count(PAUSE_REFRESH, owner, number, priority) or pfc.pending_stop & bit
        if reported and not reminded:
            yield f"port {number}: class {priority} was told to stop and will not be reminded"
        if port.up and pfc.stopping & bit and not (pfc.signalled | pfc.pending_stop) & bit:
            yield f"port {number}: class {priority} is to be stopped and nobody says so"
        if pfc.signalled & bit and not (pfc.stopping | pfc.pending_resume) & bit:
            yield f"port {number}: class {priority} was told to stop and nobody will take it back"
    if pfc.pending_stop & pfc.pending_resume:
        yield f"port {number}: both stop and resume are pending"
    if port.control_pending != (port.up and (pfc.pending_stop | pfc.pending_resume) != 0):
        yield f"port {number}: control_pending is {port.control_pending}"
    if at_rest and (port.blocked or pfc.stopping or pfc.signalled):
        yield f"port {number}: stopped {port.blocked:#x}, stopping {pfc.stopping:#x}, told {pfc.signalled:#x}"


def _pair(nic: Nic, pair: QueuePair, events: Pending, at_rest: bool) -> Iterator[str]:
    name = f"queue pair {pair.index}"
    psns = (pair.una_psn, pair.next_psn, pair.high_psn, pair.end_psn)
    if pair.state == ERROR:
        if pair.head is not None:
            yield f"{name} is in error and holds a work request"
        return
    if list(psns) != sorted(psns):
        yield f"{name}: una, next, high, end are {psns}"
    first = pair.head
    last = pair.tail
    if (first is None) != (last is None):
        yield f"{name}: head {first}, tail {last}"
    if last is not None and last.first_psn + last.packets != pair.end_psn:
        yield f"{name}: its last work request ends at {last.first_psn + last.packets}, not {pair.end_psn}"
    if (pair.sending is None) != (pair.next_psn == pair.end_psn):
        yield f"{name}: next is {pair.next_psn} of {pair.end_psn}, sending {pair.sending}"
    if pair.has_packets() and not pair.active and not pair.paced:
        yield f"{name} has packets to send and stands in no round"
    timers = [events.count(RETRANSMIT, nic.number, port.number, pair.index) for port in nic.ports()]
    if bool(sum(timers)) != pair.timer_pending:
        yield f"{name}: timer_pending is {pair.timer_pending}"
    if pair.una_psn != pair.high_psn and nic.settings.timeout_ps and not pair.timer_pending:
        yield f"{name}: {pair.una_psn} to {pair.high_psn} are unacknowledged without a timer"
    if at_rest and (pair.una_psn != pair.end_psn or first is not None or pair.active):
        yield f"{name}: una, next, high, end are {psns} at rest"


def pairs_disagree(one: QueuePair, other: QueuePair, *, at_rest: bool) -> list[str]:
    """What is wrong between the two ends of a connection that are both not in error."""
    found = []
    for sender, receiver in ((one, other), (other, one)):
        behind = (sender.high_psn - receiver.expected_psn) & PSN_MASK
        ahead = (receiver.expected_psn - sender.una_psn) & PSN_MASK
        in_flight = sender.high_psn - sender.una_psn
        if behind > in_flight or ahead > in_flight or (at_rest and behind):
            found.append(
                f"queue pair {sender.index}: una {sender.una_psn}, high {sender.high_psn}, "
                f"the peer expects {receiver.expected_psn}"
            )
    return found
