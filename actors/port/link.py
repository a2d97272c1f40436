"""Links: rate, delay, history, the end that flow control acts on, and host links.

A frame occupies the link for its serialisation time, propagates, and passes the receiver's ingress pipeline.
To a switch that cuts through it arrives when its head has passed the pipeline.

Both ends of a link lose the signal at the same virtual time. A frame is lost if it was gone at any moment of
its flight; the receiver, which knows when the frame was sent, decides. A port goes down when the signal has
been gone for `down_debounce`, and up when it has been back for `up_debounce` (both 0 by default): until it
goes down what it sends is lost, and a shorter outage is noticed by nobody but those who miss packets.

`LinkEnd` is what PFC (`actors.port.pfc`) and credits (`actors.port.credits`) know of a port: they keep its
`blocked` mask, say by `control_pending` that a frame of their own waits, and send it by `transmit_pause`.
`actors.port.port` has the port with its frames.

Where a link leaves the worker, frames and messages go to an outbox instead of the queue; nothing else
differs.

Routing learns of a link later than its ends do: every switch, and every NIC with more than one port, hears of
each link by itself, a convergence delay after the link changed (`learn`). A device that goes down takes all
its links at once, so groups are computed once, as the last of an instant's changes and before what arrives in
it.

A host link carries messages one after the other between the devices of a server: each occupies the link for
64 B at its rate, then takes the link's delay. Nothing is lost and nothing blocks; a message sent while the
link is busy waits its turn, so no two arrive at one port at the same time. The management network is one such
link from every host to the controller, distinguished by the sender's number.

Not modelled: PCIe credits, posted and non-posted ordering, forward error correction, lane training.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr, u8

from actors.kernel.block import Outbox
from actors.kernel.device import Device
from actors.kernel.event import ARRIVAL, MESSAGE, NEVER_PS, PAUSE, Message, pack_key
from actors.kernel.queue import EventQueue
from actors.kernel.units import sending_ps, serialisation_ps
from actors.port.impairments import AddedDelay
from actors.port.scheduling import Backlog
from actors.wire.frame import HEAD_WIRE_BYTES
from actors.wire.message import MESSAGE_BYTES

PRIORITIES: Final = 8
KEPT_DOWNS: Final = 16
"""How many of the last times that a link was down are kept for reports."""
SETTLED: Final[i64] = 1
"""In the place of a port of CONFIGURATION: the changes of this instant are in. Changes themselves have 0."""


class Wire:
    """Where a port's link leads, as numbers: rate, propagation, and the peer's fixed latencies.

    `ingress_latency_ps` is the receiver's pipeline, `pause_response_ps` the time the peer takes from the
    last bit of a PFC frame to obeying it. `outbox` is None where the peer lives in the same partition.
    """

    def __init__(
        self,
        rate_bps: int,
        delay_ps: int,
        peer: int,
        peer_port: int,
        ingress_latency_ps: int,
        pause_response_ps: int,
        outbox: Outbox | None,
        cut_through: bool = False,
    ) -> None:
        self.cut_through: bool = cut_through
        """Whether the peer acts on a frame's head."""
        self.rate_bps: i64 = rate_bps
        self.delay_ps: i64 = delay_ps
        self.peer: i64 = peer
        self.peer_port: i64 = peer_port
        self.ingress_latency_ps: i64 = ingress_latency_ps
        self.pause_response_ps: i64 = pause_response_ps
        self.outbox: Outbox | None = outbox


def ps_per_byte(rate_bps: int) -> int:
    """The time of a byte on a link, where that is a whole number; else 0."""
    exact = 8 * 10**12
    return exact // rate_bps if exact % rate_bps == 0 else 0


def head_ps(wire: Wire, rate_bps: int) -> int:
    """The time of a frame's head on a link whose peer cuts through; else 0."""
    return serialisation_ps(HEAD_WIRE_BYTES, rate_bps) if wire.cut_through else 0


class Store:
    """Where frames wait for ports: each kind of port that has one has its own."""


_NOWHERE: Final = Store()


@mypyc_attr(allow_interpreted_subclasses=False)
class LinkEnd(Backlog):
    """One end of a link: when the wire is free, what flow control forbids, when the link was down.

    Bit p of `blocked` is set while flow control forbids class p.
    """

    def __init__(self, owner: Device, number: int, wire: Wire, own_ingress_latency_ps: int) -> None:
        super().__init__()
        # Three cache lines, the first and a half of the second with what `Deferred` and `Backlog` have. What
        # comes reads the first, what has to wait the second too, what leaves all of them.
        self.blocked: i64 = 0
        self.free_ps: i64 = 0
        self.up: bool = True
        self.control_pending: bool = False
        """Flow control has a frame of its own to send, ahead of everything."""
        self.serve_pending: bool = False
        self.serving: bool = False
        self.discarding: u8 = 0
        """The priorities that a watchdog lets nobody wait for; none at a NIC."""
        self.uneven: bool = wire.cut_through
        """Whether frames arrive at another time than when their last bit has flown: the peer cuts through, or
        something holds them up."""
        self.measuring: bool = False
        """Whether the port is told of each frame that leaves: for telemetry (INT), credits, a TTL or DSCP of
        the NIC's own, or a tap."""
        self.shares: bool = False
        """Whether a scheduler chooses the next class, and not the highest goes first."""
        self.defers: bool = False
        """Whether it may be deferred when it sends next, behind the frame that leaves now."""
        self.crowded: bool = False
        """Whether a frame came while another one left. Each that leaves is marked then, so that it may be
        deferred when one is sent that comes meanwhile. Always, where the link leads to another block or
        worker: no frame is marked there, and the end of the turn does what the mark does."""
        self.marked: bool = False
        """Whether the frame is marked so that has the wire until `free_ps`, or needs no mark."""
        self.outbound: bool = wire.outbox is not None
        """Whether the link leads to another block or worker."""
        after: int = 0 if self.outbound else owner.number + 1
        self.as_left: i32 = after
        """What a frame has in `whence` behind which more is to leave; 0 where it leads to another block or
        worker."""
        # The third.
        self.ps_per_byte: i64 = ps_per_byte(wire.rate_bps)
        self.flight_ps: i64 = wire.delay_ps + wire.ingress_latency_ps
        self.store: Store = _NOWHERE
        """Where frames wait for it, where it has that in common with other ports."""
        self.owner: Device = owner
        self.peer_key: i64 = pack_key(wire.peer, ARRIVAL, wire.peer_port, 0)
        self.sent_frames: i64 = 0
        self.sent_bytes: i64 = 0
        self.sent_data_bytes: i64 = 0
        # The rest is for what is rare.
        self.number = number
        self.outbox: Outbox | None = wire.outbox
        self.head_ps: i64 = head_ps(wire, wire.rate_bps)
        """Serialisation of a frame's head, where the peer cuts through; else 0."""
        self.rate_bps: i64 = wire.rate_bps
        self.wire: Wire = wire
        self.own_ingress_latency_ps: i64 = own_ingress_latency_ps
        self.added_delay: AddedDelay | None = None
        """What makes frames take longer than the link, once something did."""
        self.downs: i64 = 0
        """How often the port went down."""
        self.down_debounce_ps: i64 = 0
        self.up_debounce_ps: i64 = 0
        self.declare_pending: bool = False
        self.declare_ps: i64 = 0
        """When the port takes the state of its link; 0 if it has it."""
        self.down_starts: list[int] = []
        self.down_ends: list[int] = []
        """The last times it was down, `KEPT_DOWNS` of them or more: see `was_down`."""

    @property
    def queue(self) -> EventQueue:
        """The events of its device."""
        return self.owner.queue

    def set_rate(self, rate_bps: int) -> None:
        """A new rate, which takes the next frame."""
        self.rate_bps = rate_bps
        self.ps_per_byte = ps_per_byte(rate_bps)
        self.head_ps = head_ps(self.wire, rate_bps)

    def serialisation(self, wire_bytes: i64) -> i64:
        """How long a frame of this size occupies the link, ps."""
        if self.ps_per_byte > 0:
            return wire_bytes * self.ps_per_byte
        return sending_ps(wire_bytes, self.rate_bps)

    def received_ps(self, wire_bytes: i64, now: i64, head: bool) -> i64:
        """When the last bit of a frame came in that is acted on now: whole, or by its head."""
        last_ps: i64 = now - self.own_ingress_latency_ps
        if head:
            last_ps += self.serialisation(wire_bytes) - sending_ps(HEAD_WIRE_BYTES, self.rate_bps)
        return last_ps

    def kick(self, now: i64) -> None:
        """Something may be sendable: serve now if the wire is free, or when it becomes so."""
        raise NotImplementedError

    def break_in(self, now: i64) -> None:
        """Flow control has a frame to send, also where others have the wire ahead of time."""
        raise NotImplementedError

    def transmit_pause(self, message: Message, wire_bytes: i64, now: i64) -> None:
        """Send the content of a PFC frame now; it takes effect at the end of the peer's response time."""
        self.free_ps = now + self.serialisation(wire_bytes)
        self.marked = False
        wire = self.wire
        message.time_ps = self.free_ps + wire.delay_ps + wire.pause_response_ps
        if self.added_delay is not None:
            message.time_ps = self.added_delay.pause_ps(message.time_ps)
        message.key = pack_key(wire.peer, PAUSE, wire.peer_port, 0)
        if self.outbox is None:
            self.owner.queue.push(message)
        else:
            self.outbox.add_message(message)

    def delayed(self) -> AddedDelay:
        """What makes frames take longer than this link; there is one from now on."""
        added_delay = self.added_delay
        if added_delay is None:
            added_delay = self.added_delay = AddedDelay()
            self.uneven = True
        return added_delay

    def was_down(self, from_ps: i64, until_ps: i64) -> bool:
        """Whether the link was down at any moment of from_ps <= t <= until_ps.

        The last time that it went down by then decides: if it was up again by `from_ps`, so it was after
        every time before. What arrives now was on the link until an ingress latency ago at the earliest, so
        only times that began since, and the last one before them, are ever asked for.
        """
        at: i64 = len(self.down_starts) - 1
        while at >= 0 and self.down_starts[at] > until_ps:
            at -= 1
        return at >= 0 and self.down_ends[at] > from_ps

    def _went_down(self, now: i64) -> None:
        """Begin another time that the link is down, and forget those that nobody asks for any more."""
        self.ever_down = True
        self.down_starts.append(now)
        self.down_ends.append(NEVER_PS)
        old: i64 = 0
        spare: i64 = len(self.down_starts) - KEPT_DOWNS
        while old < spare and self.down_starts[old + 1] <= now - self.own_ingress_latency_ps:
            old += 1
        if old > 0:
            self.down_starts = self.down_starts[old:]
            self.down_ends = self.down_ends[old:]

    def _came_up(self, now: i64) -> None:
        """The link is no longer down."""
        self.down_ends[-1] = now


def learn(down: list[int], subject: i64) -> None:
    """Keep the ordered list of links that are out of use: subject = link x 2 + up."""
    link: int = subject >> 1
    if subject & 1:
        if link in down:
            down.remove(link)
    elif link not in down:
        down.append(link)
        down.sort()


MANAGEMENT_PORT: Final[i64] = 2047
"""The port number under which every host and the controller know the management network."""


class MessagePort:
    """One direction of a host link: `send` stamps a message with its arrival at the peer."""

    def __init__(
        self,
        queue: EventQueue,
        rate_bps: int,
        delay_ps: int,
        peer: int,
        peer_port: int,
        subject: int,
        outbox: Outbox | None,
    ) -> None:
        self.queue: EventQueue = queue
        self.delay_ps: i64 = delay_ps
        self.message_ps: i64 = serialisation_ps(MESSAGE_BYTES, rate_bps)
        self.free_ps: i64 = 0
        self.outbox: Outbox | None = outbox
        self._key: i64 = pack_key(peer, MESSAGE, peer_port, subject)

    def send(self, message: Message, now: i64) -> None:
        """Send a message now, or as soon as those before it are on their way."""
        start: i64 = self.free_ps
        if now > start:
            start = now
        self.free_ps = start + self.message_ps
        message.time_ps = self.free_ps + self.delay_ps
        message.key = self._key
        watch = self.queue.watch
        if watch is not None:
            watch.note(message.time_ps, self._key, self.outbox is not None)
        if self.outbox is None:
            self.queue.push(message)
        else:
            self.outbox.add_message(message)
