"""The way between a NIC and memory, where that is slower than its links.

What arrives. Packets that carry requests wait in a buffer of the NIC, in order of arrival, until PCIe (or the
memory behind it) has taken their payload, one at a time at `rate`; only then does the queue pair see them. So
a slow server acknowledges late, and its buffer fills. Each port and priority has a buffer of its own: above
`xoff` a lossless class's sender, which is the leaf, is paused, at `xon` or below resumed. A packet that does
not fit is dropped and counted (`receive_overrun`): a congestion loss, and for a lossless class a sign of too
little room above `xoff`. To everyone else it looks like a slow network. Acknowledgements and CNPs end in the
NIC and do not wait.

What leaves. With GPUDirect a NIC reads what it sends out of GPU memory, over PCIe, as it sends it: payload
after payload at `rate`, for all its ports together. A packet occupies its port until its payload has been
read, so nothing else leaves there meanwhile, acknowledgements neither. Where PCIe is as fast as the links a
packet leaves never waits, since it is longer on the wire than in memory.

The GPU's own link. Where a preset of servers (`host.node`) says where GPUs and NICs sit, a NIC reads over the
link of its GPU, and a copy from that GPU to host memory goes over the same link, the same way. While such a
copy is under way the NIC reads at what it leaves, and at half of the link at least: two that want all of a
link get half each. What has begun to be read is read as fast as it began.

Disks. A storage server's disks have one rate for what they take and what they give: a packet that comes and
one that leaves take turns while both wait.

Contexts. A NIC keeps the contexts of queue pairs in host memory, and those used last in a cache of so many
entries. A packet of another queue pair, coming or going, makes the NIC fetch its context: fetches take their
turns, each for `miss_ps`, while packets that are under way go on. What leaves occupies its port until its
context is there, and what comes waits in the receive buffer. Acknowledgements are taken as they come.

Source: Guo et al., RDMA over Commodity Ethernet at Scale (SIGCOMM'16), section 5.2, the slow-receiver
symptom. Thresholds per port and priority are mlx5's (`mlnx_qos --buffer_size`, xoff and xon). GPUDirect RDMA
(NVIDIA): a NIC that reads and writes GPU memory through the PCIe switch that both hang on. FaRM (NSDI'14) and
Kalia et al. (ATC'16): NICs that run out of room for the state of queue pairs read it over PCIe.

Not modelled: the overhead of PCIe packets, latency of a read (it is part of what a NIC has; a packet whose
context is fetched is on the wire no later, the next one is), its requests and
headers, reads and address translation that compete with the writes, several NICs of one GPU that share its
link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from mypy_extensions import i32, i64

from actors.kernel.device import Device, Plain
from actors.kernel.event import COPY_DONE
from actors.kernel.state import as_int, as_list, load_fields, load_frames, save_fields, save_frames
from actors.kernel.units import sending_ps
from actors.kernel.vectors import append, vec
from actors.port.link import PRIORITIES
from actors.port.port import Port
from actors.port.tap import RECEIVE_OVERRUN
from actors.wire.frame import PREAMBLE_GAP_BYTES, Frame

OVERRUN_DROP: Final[i64] = 9
_FETCH_FIELDS: Final = ("free_ps", "wait_ps", "taken_bps", "rate_bps")
_CONTEXT_FIELDS: Final = ("free_ps", "misses")
_GROUP_FIELDS: Final = ("held_bytes", "peak_bytes", "stopped", "dropped")


class ContextCache:
    """The contexts of queue pairs that one NIC has at hand, by their numbers, and the fetching of others."""

    def __init__(self, entries: int, miss_ps: int) -> None:
        self.entries: i64 = entries
        self.miss_ps: i64 = miss_ps
        self.free_ps: i64 = 0
        """When the last context that was asked for is here."""
        self.misses: i64 = 0
        self._held: dict[int, None] = {}
        """The one that was used longest ago first."""

    def use(self, qpn: int, now: i64) -> i64:
        """A packet of a queue pair needs its context; when it is there."""
        held = self._held
        if qpn in held:
            del held[qpn]
            held[qpn] = None
            return now
        self.misses += 1
        if len(held) >= self.entries:
            del held[next(iter(held))]
        held[qpn] = None
        start: i64 = self.free_ps
        if now > start:
            start = now
        self.free_ps = start + self.miss_ps
        return self.free_ps

    def save(self) -> list[Plain]:
        """What is at hand, in its order, and when the next fetch may begin."""
        held: list[Plain] = list[Plain](self._held)
        return [save_fields(self, _CONTEXT_FIELDS), held]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, held = as_list(state)
        load_fields(self, _CONTEXT_FIELDS, fields)
        self._held = {as_int(qpn): None for qpn in as_list(held)}


class ReceiveGroup:
    """What one priority of one port may hold, and holds: bytes of frames without preamble and gap."""

    def __init__(self, size_bytes: int, xoff_bytes: int, xon_bytes: int, lossless: bool) -> None:
        self.size_bytes: i64 = size_bytes
        self.xoff_bytes: i64 = xoff_bytes
        self.xon_bytes: i64 = xon_bytes
        self.lossless: bool = lossless
        self.held_bytes: i64 = 0
        self.peak_bytes: i64 = 0
        self.stopped: bool = False
        self.dropped: i64 = 0


def show_refused(port: Port, frame: Frame, reason: i64, now: i64) -> None:
    """A NIC refuses a frame that arrived now: show it to the port's taps."""
    if port.taps:
        at_ps: i64 = port.received_ps(i64(frame.wire_bytes), now, head=False)
        port.show_drop(frame, reason, at_ps, arrived=True)


class ReceiveBuffer:
    """The receive buffer of one NIC and what empties it. Group number = port x 8 + priority."""

    def __init__(self, nic: Device, ports: Sequence[Port], rate_bps: int) -> None:
        self.nic: Device = nic
        self._ports: vec[Port] = vec[Port](list(ports))
        self.rate_bps: i64 = rate_bps
        self.built_rate_bps: i64 = rate_bps
        self.contexts: ContextCache | None = None
        self.shared: Fetch | None = None
        """The way out that has one budget with the way in: the disks of a storage server."""
        self.groups: vec[ReceiveGroup] = vec[ReceiveGroup]()
        self._head: Frame | None = None
        self._tail: Frame | None = None

    def add(self, group: ReceiveGroup) -> None:
        """The next group in the order of their numbers."""
        self.groups = append(self.groups, group)

    def arrive(self, frame: Frame, port_number: i64, now: i64) -> None:
        """A packet is here: it waits for its turn, or is dropped."""
        number: i64 = (port_number << 3) | i64(frame.priority)
        group = self.groups[number]
        size: int = frame.wire_bytes
        held: i64 = group.held_bytes + size - PREAMBLE_GAP_BYTES
        if held > group.size_bytes:
            group.dropped += 1
            show_refused(self._ports[port_number], frame, RECEIVE_OVERRUN, now)
            self.nic.mix_drop(port_number, OVERRUN_DROP, frame)
            return
        group.held_bytes = held
        if held > group.peak_bytes:
            group.peak_bytes = held
        if group.lossless and not group.stopped and held > group.xoff_bytes:
            group.stopped = True
            self._tell(number, now, stop=True)
        frame.whence = i32(number)
        lanes = self._ports[port_number].credits
        if lanes is not None:
            lanes.hold(i64(frame.priority), size)
        if self._append(frame):
            self._begin(frame, now)

    def taken(self, now: i64) -> Frame:
        """Memory has the first packet, and the next one begins. Returns the first, for its queue pair;
        `whence` says where it came in.
        """
        frame = self._head
        assert frame is not None, self.nic.number
        following = cast("Frame | None", frame.chain)
        self._head = following
        frame.chain = None
        if following is None:
            self._tail = None
        else:
            self._begin(following, now)
        number: i64 = i64(frame.whence)
        group = self.groups[number]
        size: int = frame.wire_bytes
        group.held_bytes -= size - PREAMBLE_GAP_BYTES
        if group.stopped and group.held_bytes <= group.xon_bytes:
            group.stopped = False
            self._tell(number, now, stop=False)
        lanes = self._ports[number >> 3].credits
        if lanes is not None:
            lanes.free(i64(frame.priority), size, now)
        return frame

    def dropped_at(self, port_number: int) -> int:
        """Packets of one port that did not fit."""
        first = port_number * PRIORITIES
        return sum([int(self.groups[first + priority].dropped) for priority in range(PRIORITIES)])

    def held_at(self, port_number: int, priority: int) -> int:
        """What one priority of one port holds."""
        return self.groups[port_number * PRIORITIES + priority].held_bytes

    def peak_at(self, port_number: int, priority: int) -> int:
        """The most that one priority of one port held."""
        return self.groups[port_number * PRIORITIES + priority].peak_bytes

    def _tell(self, number: i64, now: i64, *, stop: bool) -> None:
        pfc = self._ports[number >> 3].pfc
        if pfc is None:
            return
        if stop:
            pfc.stop(number & 7, now)
        else:
            pfc.resume(number & 7, now)

    def _begin(self, frame: Frame, now: i64) -> None:
        takes: i64 = 1  # an empty packet too is an event of its own
        if frame.payload_bytes > 0:
            size: int = frame.payload_bytes
            takes = sending_ps(size, self.rate_bps)
        shared = self.shared
        if shared is not None:
            start: i64 = shared.free_ps
            if now > start:
                start = now
            shared.free_ps = start + takes
            takes = shared.free_ps - now
        contexts = self.contexts
        if contexts is not None:
            wait_ps: i64 = contexts.use(frame.qpn, now) - now
            if wait_ps > takes:
                takes = wait_ps
        self.nic.push_timer(now + takes, COPY_DONE, 0, 0)

    def _append(self, frame: Frame) -> bool:
        """Let a packet wait; whether it is the first."""
        tail = self._tail
        self._tail = frame
        if tail is None:
            self._head = frame
            return True
        tail.chain = frame
        return False

    def save(self) -> list[Plain]:
        """What is held, in its order, and how fast memory is now."""
        groups: list[Plain] = [save_fields(group, _GROUP_FIELDS) for group in self.groups]
        return [save_frames(self._head), groups, self.rate_bps]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned; the pending event is the queue's."""
        frames, groups, rate_bps = as_list(state)
        self.rate_bps = as_int(rate_bps)
        self._head = None
        self._tail = None
        for frame in load_frames(frames):
            self._append(frame)
        for group, fields in zip(self.groups, as_list(groups), strict=True):
            load_fields(group, _GROUP_FIELDS, fields)


class Fetch:
    """The way from memory to one NIC, of payload and of contexts."""

    def __init__(self, rate_bps: int, contexts: ContextCache | None = None, gpu_link_bps: int = 0) -> None:
        self.rate_bps: i64 = rate_bps
        self.built_rate_bps: i64 = rate_bps
        self.gpu_link_bps: i64 = gpu_link_bps
        """What the link of the NIC's GPU carries, which copies share; 0: it never limits."""
        self.taken_bps: i64 = 0
        """What copies take of it."""
        self.contexts: ContextCache | None = contexts
        self._context_ps: i64 = 0
        """When the context of the packet that leaves now is there."""
        self.free_ps: i64 = 0
        """When the last payload that was asked for has been read."""
        self.wait_ps: i64 = 0
        """How long ports had nothing to put on the wire because of it."""

    def use(self, qpn: int, now: i64) -> None:
        """A packet of a queue pair is about to leave."""
        contexts = self.contexts
        if contexts is not None:
            self._context_ps = contexts.use(qpn, now)

    def share(self, more_bps: i64) -> None:
        """Copies take so much more of the GPU's link, or less."""
        self.taken_bps += more_bps
        left_bps: i64 = self.gpu_link_bps - self.taken_bps
        half_bps: i64 = self.gpu_link_bps // 2
        if left_bps < half_bps:
            left_bps = half_bps
        self.rate_bps = min(self.built_rate_bps, left_bps)

    def take(self, payload_bytes: i64, now: i64, sent_ps: i64) -> i64:
        """Read the payload of a packet that leaves now and has left the wire free by `sent_ps`; when the port
        is free again.
        """
        start: i64 = self.free_ps
        if now > start:
            start = now
        end: i64 = start + sending_ps(payload_bytes, self.rate_bps)
        if self._context_ps > end:
            end = self._context_ps
        self.free_ps = end
        if end <= sent_ps:
            return sent_ps
        self.wait_ps += end - sent_ps
        return end

    def save(self) -> list[Plain]:
        """When it is free, its rate, what it has counted, and the contexts that the buffer shares."""
        contexts: Plain = None if self.contexts is None else self.contexts.save()
        return [save_fields(self, _FETCH_FIELDS), contexts]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, contexts = as_list(state)
        load_fields(self, _FETCH_FIELDS, fields)
        if self.contexts is not None:
            self.contexts.load(contexts)
