"""Ends of a connection: buffer slots, clear-to-send, WRITEs.

A connection carries slices from one rank to another on one channel. Each end has a *channel buffer* of a few
*slots* of one slice. All counts below are running counts of slices since the job began; a slot is a count
modulo the number of slots.

    send end        issued    a slot was taken and the GPU asked to copy into it
                    filled    the GPU copied; the slice may be sent
                    granted   the receiver's clear-to-send (CTS) is here
                    posted    the WRITEs are with the NIC
                    freed     they are acknowledged, and the slot is free
                    invariant: freed <= posted <= filled <= issued <= freed + slots, posted <= granted

    receive end     expected  slices that the operations begun so far bring
                    cleared   CTS sent: the sender may write into the slot
                    ready     all of the slice is here
                    taken     the GPU was asked to copy out of the slot
                    recycled  it did, and the slot is free
                    invariant: recycled <= taken <= ready <= cleared <= recycled + slots, cleared <= expected

A slice's way: GPU copies compute buffer -> send slot; CTS; WRITE(s), each queue pair's last with immediate;
completion at the receiver; GPU copies or reduces out of the receive slot, in one operation into the next
send slot where the algorithm goes on; recycle; next CTS. So one connection carries at most slots x slice
bytes per round of data one way + completion + copy + CTS one way. CTS are sent for every free slot that this
operation will still need, ahead of the data, so that with free slots nobody waits for one.

Which queue pair carries what is in `actors.ncclx.transport.posting`.

With admission `none` a slice is sent as soon as it is in its slot: the receiver is taken to have room for
all of it, and only the sender's own slots (freed by acknowledgements) bound what is in flight.

Source: NCCL 2.30, `src/transport/net.cc` (sendProxyProgress, recvProxyProgress), `net_ib.cc`
(ncclIbPostFifo); Meta, "RDMA over Ethernet for Distributed AI Training at Meta Scale", section 5.2.

Not modelled: GPUDirect flush (a READ to itself before data is used), grouping of receives.

Waits of clear-to-sends. A CTS carries the time at which it was posted, as a profiler with synchronised clocks
would put it into the FIFO's entry: in units of 1,024 ps, modulo 2**32 of them (4.4 s). The rank that it
admits takes from its flight the *unloaded flight*, which follows from configuration alone (see
`actors.fabric.paths`): what is left it waited for other traffic, in its class's queues, for a frame in
progress, or because the class was paused. Waits are counted in buckets: exact below 64 units, above that 32
buckets per doubling, so a bucket is at most 3 % wide and its lower end is what is reported; the largest wait
is kept as it is.

Not modelled: clocks that differ.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.event_log import GRANTED
from actors.kernel.state import as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.ncclx.transport.posting import Receiver, Sender
from actors.wire.message import POST_WITH_IMMEDIATE

UNIT_BITS: Final[i64] = 10
_STAMP_MASK: Final[i64] = 0xFFFFFFFF
"""A stamp has 32 bits of units of 1,024 ps and wraps after 4.4 s, longer than any is on its way."""
_FINE: Final[i64] = 64
"""Waits are counted in buckets of 6 significant bits, at most 3 % wide."""

_WAIT_FIELDS: Final = ("count", "total_ps", "most_ps", "operation_most_ps", "closed", "_buckets", "_rows")


def stamp(now: i64) -> i64:
    """What a CTS that is posted now carries."""
    return (now >> UNIT_BITS) & _STAMP_MASK


def waited_ps(stamped: i64, now: i64, unloaded_ps: i64) -> i64:
    """How long a CTS waited; 0 where less than a unit is left."""
    flight_ps: i64 = (((now >> UNIT_BITS) - stamped) & _STAMP_MASK) << UNIT_BITS
    wait_ps: i64 = flight_ps - unloaded_ps
    return wait_ps if wait_ps >> UNIT_BITS > 0 else 0


def bucket_ps(wait_ps: i64) -> i64:
    """The lower end of the bucket that a wait falls into."""
    units: i64 = wait_ps >> UNIT_BITS
    shift: i64 = 0
    while (units >> shift) >= _FINE:
        shift += 1
    return (units >> shift) << shift << UNIT_BITS


class Waits:
    """The waits of one rank: in all, and by operation."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.total_ps: i64 = 0
        self.most_ps: i64 = 0
        self.operation_most_ps: i64 = 0
        """The largest of the present operation."""
        self.closed: i64 = -1
        """The largest number of an operation that was over."""
        self._buckets: dict[int, int] = {}
        """How many waits of the present operation there are, by lower end."""
        self._rows: list[list[int]] = []

    def add(self, wait_ps: i64) -> None:
        """Count a wait of the present operation."""
        self.count += 1
        self.total_ps += wait_ps
        if wait_ps > self.most_ps:
            self.most_ps = wait_ps
        if wait_ps > self.operation_most_ps:
            self.operation_most_ps = wait_ps
        at: i64 = bucket_ps(wait_ps)
        self._buckets[at] = self._buckets.get(at, 0) + 1

    def close(self, job: i64, operation: i64) -> None:
        """The operation is over here: note its rows."""
        if operation > self.closed:
            self.closed = operation
        else:  # the job began again: what it waited in the round before is forgotten
            self._rows = [row for row in self._rows if row[1] != operation]
        if self._buckets:
            self._rows += self._open_rows(job, operation)
        self._buckets = {}
        self.operation_most_ps = 0

    def rows(self, job: i64, operation: i64) -> list[list[int]]:
        """(job, operation, wait_ps, how many) of all operations, the present one as far as it is."""
        return self._rows + self._open_rows(job, operation)

    def _open_rows(self, job: i64, operation: i64) -> list[list[int]]:
        largest: i64 = bucket_ps(self.operation_most_ps)
        rows: list[list[int]] = []
        for at in sorted(self._buckets):
            count: i64 = self._buckets[at]
            if at == largest:
                rows.append([job, operation, self.operation_most_ps, 1])
                count -= 1
            if count > 0:
                rows.append([job, operation, at, count])
        return rows

    def save(self) -> list[Plain]:
        """The waits so far."""
        return save_fields(self, _WAIT_FIELDS)

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        load_fields(self, _WAIT_FIELDS, state)


CTS_BYTES: Final[i64] = 64
"""A clear-to-send is one entry of the sender's FIFO: address, size, key, tag
(NCCL's ncclIbSendFifo).
"""

# What a queue pair is to its connection; a context is the end's number among the rank's * ROLES + role.
SEND_DATA: Final[i64] = 0
SEND_CONTROL: Final[i64] = 1
"""CTS from the receiver arrive here."""
RECEIVE_DATA: Final[i64] = 2
RECEIVE_CONTROL: Final[i64] = 3
"""CTS to the sender leave here."""
ROLES: Final[i64] = 4

UNTIMED: Final = -1
"""The unloaded flight of clear-to-sends whose wait is not measured."""

_SEND_FIELDS: Final = (
    "channel",
    "limit",
    "issued",
    "filled",
    "granted",
    "posted",
    "freed",
    "stuck_ps",
    "unmade",
    "slot_bytes",
    "slot_data",
)
_RECEIVE_FIELDS: Final = ("channel", "limit", "expected", "cleared", "ready", "taken", "recycled", "unmade")


_NO_DATA: Final[list[bytes | None]] = []
"""One for all that carry sizes."""


class End:
    """What either end of a connection knows of it; clear-to-sends have the queue pair `control`, -1 where
    admission is `none`.
    """

    def __init__(self, channel: int, peer: int, place: int, slots: int, control: int) -> None:
        self.program: i64 = 0
        """Number of the program that it belongs to, at its host."""
        self.channel: i64 = channel
        """Number of the walker that works with it."""
        self.peer: i64 = peer
        self.place: i64 = place
        """Among the ends of its kind of the channel."""
        self.slots: i64 = slots
        self.limit: i64 = slots
        """Slots that the operation uses; others had more or less."""
        self.control: i64 = control
        self.admitted: bool = control >= 0
        """Whether a slice waits for the receiver's CTS."""
        self.unmade: i64 = 0
        """Queue pairs that are to be made before it is first used."""


class SendEnd(End):
    """Where slices to another rank leave, on one channel.

    `waits` are those of the rank's clear-to-sends; `cts_unloaded_ps` is how long one is under way to here if
    nothing is in its way; UNTIMED over NVLink, where nothing ever is.
    """

    def __init__(
        self,
        channel: int,
        peer: int,
        place: int,
        slots: int,
        sender: Sender,
        control: int,
        waits: Waits,
        cts_unloaded_ps: int,
    ) -> None:
        super().__init__(channel, peer, place, slots, control)
        self.sender: Sender = sender
        self.waits: Waits = waits
        self.cts_unloaded_ps: i64 = cts_unloaded_ps
        self.issued: i64 = 0
        self.filled: i64 = 0
        self.granted: i64 = 0
        self.posted: i64 = 0
        self.freed: i64 = 0
        self.stuck_ps: i64 = -1
        """Since when a slice waits for its CTS, -1 if none does; kept where the host has an event log."""
        self.slot_bytes: vec[i64] = vec[i64]([0] * slots)
        """Size of the slice in each slot."""
        self.slot_data: list[bytes | None] = _NO_DATA
        """What is in each slot, until it is posted, where payload is real."""
        self.carries: bool = False
        """Whether there was anything."""

    def full(self) -> bool:
        """Whether no slot is free."""
        return self.issued - self.freed >= self.limit

    def take(self, size: i64) -> None:
        """Take the next slot for a slice that the GPU is asked to copy."""
        self.slot_bytes[self.issued % self.slots] = size
        self.issued += 1

    def on_filled(self, host: Host, data: bytes | None = None) -> None:
        """The GPU copied the oldest slice that was issued, which is `data` where payload is real."""
        if data is not None:
            if not self.carries:
                self.carries = True
                self.slot_data = [None] * int(self.slots)
            self.slot_data[self.filled % self.slots] = data
        self.filled += 1
        self.post(host)

    def on_granted(self, host: Host, stamped: i64, now: i64) -> None:
        """A CTS arrived; they come on one queue pair, so in order."""
        stuck_ps: i64 = self.stuck_ps
        self.stuck_ps = -1
        self.granted += 1
        if self.cts_unloaded_ps != UNTIMED:
            self.waits.add(waited_ps(stamped, now, self.cts_unloaded_ps))
        self.post(host)
        events = host.events
        if events is not None and stuck_ps >= 0:
            events.note(GRANTED, self.program, self.channel, self.peer, self.granted - 1, stuck_ps, now)

    def stuck(self) -> bool:
        """Whether a slice that is in its slot waits for its CTS."""
        return self.admitted and self.posted < self.filled and self.posted == self.granted

    def post(self, host: Host) -> None:
        """Post every filled slice that may go."""
        sender = self.sender
        while self.posted < self.filled and (not self.admitted or self.posted < self.granted):
            number: i64 = self.posted
            size: i64 = self.slot_bytes[number % self.slots]
            if not sender.has_room(size):
                sender.held += 1
                sender.totals.held += 1
                return
            self.posted = number + 1
            data: bytes | None = None
            if self.carries:
                slot: i64 = number % self.slots
                data = self.slot_data[slot]
                self.slot_data[slot] = None
            if data is not None and len(data) < size:  # flags among the data
                data = data.ljust(size, b"\0")
            sender.send(host, self.program, number, size, data)
        if host.events is not None and self.stuck_ps < 0 and self.stuck():
            self.stuck_ps = host.queue.now_ps

    def on_acknowledged(self, host: Host, request: i64, size: i64) -> i64:
        """A piece of a slice was acknowledged; returns how many slots that frees, in order."""
        sender = self.sender
        sender.on_acknowledged(host, self.program, request, size)
        before: i64 = self.freed
        while self.freed < self.posted and sender.is_acknowledged(self.freed):
            self.freed += 1
        if self.posted < self.filled:
            self.post(host)
        return self.freed - before

    def save(self) -> list[Plain]:
        """The end's state."""
        return [save_fields(self, _SEND_FIELDS), self.sender.save()]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, sender = as_list(state)
        load_fields(self, _SEND_FIELDS, fields)
        self.carries = len(self.slot_data) > 0
        self.sender.load(sender)


class ReceiveEnd(End):
    """Where slices from another rank arrive, on one channel, and clear-to-sends leave from the NIC behind
    `nic_port`.
    """

    def __init__(
        self,
        channel: int,
        peer: int,
        place: int,
        nic_port: int,
        slots: int,
        receiver: Receiver,
        control: int,
    ) -> None:
        super().__init__(channel, peer, place, slots, control)
        self.nic_port: i64 = nic_port
        self.receiver: Receiver = receiver
        self.inside: bool = False
        """Whether it is over NVLink."""
        self.expected: i64 = 0
        self.cleared: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.recycled: i64 = 0

    def expect(self, host: Host, slices: i64) -> None:
        """An operation begins that brings so many slices."""
        self.expected += slices
        self.clear(host)

    def clear(self, host: Host) -> None:
        """Send a CTS for every free slot that the operation still needs."""
        if not self.admitted:
            return
        while self.cleared < self.expected and self.cleared - self.recycled < self.limit:
            host.post(
                self.program,
                self.nic_port,
                self.control,
                self.cleared,
                CTS_BYTES,
                POST_WITH_IMMEDIATE,
                stamp(host.queue.now_ps),
            )
            self.cleared += 1

    def on_arrived(self, immediate: i64) -> bool:
        """A piece of a slice arrived; returns whether a slice is now ready that was not."""
        more: i64 = self.receiver.on_arrived(immediate)
        self.ready += more
        assert not self.admitted or self.ready <= self.cleared, (self.channel, self.ready, self.cleared)
        return more > 0

    def take(self) -> bytes | None:
        """The GPU is asked to copy the oldest slice that is here: its bytes, where payload is real."""
        number: i64 = self.taken
        self.taken = number + 1
        return self.receiver.take(number)

    def on_emptied(self, host: Host) -> None:
        """The GPU copied the oldest slice that was taken."""
        self.recycled += 1
        self.clear(host)

    def save(self) -> list[Plain]:
        """The end's state."""
        return [save_fields(self, _RECEIVE_FIELDS), self.receiver.save()]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, receiver = as_list(state)
        load_fields(self, _RECEIVE_FIELDS, fields)
        self.receiver.load(receiver)
