"""How does one channel of a rank move its slices?

A channel has two *channel buffers*, one towards the next rank of the ring and one from the previous, each
of a few *slots* of one slice. All counts below are running counts of slices since the job began; a slot is
a count modulo the number of slots.

    send side       issued    a slot was taken and the GPU asked to copy into it
                    filled    the GPU copied; the slice may be sent
                    granted   the receiver's clear-to-send (CTS) is here
                    posted    the WRITEs are with the NIC
                    freed     they are acknowledged, and the slot is free
                    invariant: freed <= posted <= filled <= issued <= freed + slots, posted <= granted

    receive side    cleared   CTS sent: the sender may write into the slot
                    ready     all of the slice is here
                    taken     the GPU was asked to copy out of the slot
                    recycled  it did, and the slot is free
                    invariant: recycled <= taken <= ready <= cleared <= recycled + slots

A slice's way: GPU copies compute buffer -> send slot; CTS; WRITE(s), each queue pair's last with immediate;
completion at the receiver; GPU copies or reduces out of the receive slot, in one operation into the next
send slot where the ring goes on; recycle; next CTS. So one channel carries at most slots x slice bytes per
round of data one way + completion + copy + CTS one way. CTS are sent for every free slot that this
operation will still need, ahead of the data, so that with free slots nobody waits for one.

Queue pairs. `round_robin`: slice s goes whole to queue pair s modulo their number. `split`: every slice is
cut over all queue pairs, in pieces of (size / pairs) rounded up to 128 B; the last pieces may be shorter or
empty, each carries the immediate, and the receiver counts them. The immediate is the slice's number, so
slices that overtake each other on different queue pairs are put in order.

`least_loaded`: every connection has queue pairs on all NICs of its host, and a slice goes whole to the NIC
with the fewest bytes posted and not acknowledged by the job's ranks of this host; among equals to the next
after the last choice. A NIC that is slower, because it lost a port or its rail is busy, so gets less.

With admission `none` a slice is sent as soon as it is in its slot: the receiver is taken to have room for
all of it, and only the sender's own slots (freed by acknowledgements) bound what is in flight.

Source: NCCL 2.30, `src/transport/net.cc` (sendProxyProgress, recvProxyProgress), `net_ib.cc`
(ncclIbMultiSend, ncclIbPostFifo); Meta, "RDMA over Ethernet for Distributed AI Training at Meta Scale",
section 5.2.

Not modelled: GPUDirect flush (a READ to itself before data is used), grouping of receives, adaptive-routing
mode (a separate empty WRITE_WITH_IMM), registered user buffers.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.ncclx.ring import RECEIVES, REDUCES, SENDS, RingCursor
from emu.kernel.device import Plain
from emu.kernel.state import as_int, as_list, load_fields, load_integers, save_fields, save_integers
from emu.vectors import vec
from emu.wire.event import Message
from emu.wire.message import COPY_PLAIN, COPY_REDUCE, POST_WITH_IMMEDIATE

CTS_BYTES: Final[i64] = 64
"""A clear-to-send is one entry of the sender's FIFO: address, size, key, tag
(NCCL's ncclIbSendFifo).
"""
SPLIT_ALIGN_BYTES: Final[i64] = 128
_IMMEDIATE_MASK: Final[i64] = 0xFFFFFFFF

# What a queue pair is to its channel; a context is channel * ROLES + role.
SEND_DATA: Final[i64] = 0
SEND_CONTROL: Final[i64] = 1
"""CTS from the next rank arrive here."""
RECEIVE_DATA: Final[i64] = 2
RECEIVE_CONTROL: Final[i64] = 3
"""CTS to the previous rank leave here."""
ROLES: Final[i64] = 4

_FIELDS: Final = (
    "issued",
    "filled",
    "granted",
    "posted",
    "freed",
    "cleared",
    "ready",
    "taken",
    "recycled",
    "copies",
)


class NicLoads:
    """What the ranks of a job on one host have outstanding on each of its NICs, in bytes."""

    def __init__(self, nics: int) -> None:
        nothing: list[int] = [0] * nics
        self.outstanding: vec[i64] = vec[i64](nothing)
        self.last: i64 = nics - 1
        """The NIC chosen last."""

    def least(self, nics: i64) -> i64:
        """The least loaded among the first `nics`, the next after the last choice among equals."""
        best: i64 = -1
        step: i64 = 1
        while step <= nics:
            nic: i64 = (self.last + step) % nics
            if best < 0 or self.outstanding[nic] < self.outstanding[best]:
                best = nic
            step += 1
        self.last = best
        return best


class Channel:
    """One channel of one rank: the buffers to its two neighbours, and where it is in the operation.

    `send_pairs` and `receive_pairs` are queue pairs of the NIC behind `nic_port`; `send_control` and
    `receive_control` are -1 where admission is `none`.
    """

    def __init__(
        self,
        number: int,
        gpu_port: int,
        nic_port: int,
        slots: int,
        send_pairs: list[int],
        send_control: int,
        receive_pairs: list[int],
        receive_control: int,
        split: bool,
        issuing: RingCursor,
        clearing: RingCursor,
        data_ports: list[int],
        loads: NicLoads | None,
    ) -> None:
        assert send_pairs and receive_pairs, (send_pairs, receive_pairs)
        assert not split or len(send_pairs) == len(receive_pairs), (send_pairs, receive_pairs)
        assert (send_control < 0) == (receive_control < 0), (send_control, receive_control)
        self.number: i64 = number
        self.program: i64 = 0
        self.gpu_port: i64 = gpu_port
        self.nic_port: i64 = nic_port
        self.slots: i64 = slots
        self.send_pairs: vec[i64] = vec[i64](send_pairs)
        self.send_control: i64 = send_control
        self.receive_pairs: vec[i64] = vec[i64](receive_pairs)
        self.receive_control: i64 = receive_control
        self.split: bool = split
        self.data_ports: vec[i64] = vec[i64](data_ports)
        """With `loads`: the host's ports to its NICs; `send_pairs` are equally many on each, NIC by NIC."""
        self.loads: NicLoads | None = loads
        """Shared by the job's ranks of this host, if slices choose among NICs."""
        self.admitted: bool = send_control >= 0
        """Whether a slice waits for the receiver's CTS."""
        self.issuing: RingCursor = issuing
        """The next slice to give to the GPU."""
        self.clearing: RingCursor = clearing
        """The next slice to send a CTS for."""
        self.issued: i64 = 0
        self.filled: i64 = 0
        self.granted: i64 = 0
        self.posted: i64 = 0
        self.freed: i64 = 0
        self.cleared: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.recycled: i64 = 0
        self.copies: i64 = 0
        """GPU operations under way."""
        self.slot_bytes: vec[i64] = vec[i64]([0] * slots)
        """Size of the slice in each send slot."""
        self.slot_pieces: vec[i64] = vec[i64]([0] * slots)
        """Pieces of it that are not acknowledged yet."""
        self.slot_nics: vec[i64] = vec[i64]([0] * slots)
        """With `loads`: the NIC that it was given to."""
        self.arrived: dict[int, int] = {}
        """Pieces here of slices that are not ready, by immediate."""

    def begin(self, host: Host, op: i64, total_bytes: i64) -> None:
        """Start an operation: clear the free receive slots, give the GPU what it can do."""
        self.issuing.begin(op, total_bytes)
        self.clearing.begin(op, total_bytes)
        self._skip_to_receive()
        self.clear(host)
        self.issue(host)

    def copied_all(self) -> bool:
        """Whether the GPU has done its last copy of the operation."""
        return self.issuing.done and self.copies == 0

    def drained(self) -> bool:
        """Whether every slice sent was acknowledged as well."""
        return self.copied_all() and self.freed == self.issued

    # ---- what makes slices move

    def clear(self, host: Host) -> None:
        """Send a CTS for every free receive slot that the operation still needs."""
        if not self.admitted:
            return
        while not self.clearing.done and self.cleared - self.recycled < self.slots:
            immediate: i64 = self.cleared & _IMMEDIATE_MASK
            host.post(
                self.program,
                self.nic_port,
                self.receive_control,
                self.cleared,
                CTS_BYTES,
                POST_WITH_IMMEDIATE,
                immediate,
            )
            self.cleared += 1
            self.clearing.advance()
            self._skip_to_receive()

    def _skip_to_receive(self) -> None:
        clearing = self.clearing
        while not clearing.done and clearing.flags & RECEIVES == 0:
            clearing.advance()

    def issue(self, host: Host) -> None:
        """Give the GPU, in order, each slice whose data is here and whose send slot is free."""
        issuing = self.issuing
        while not issuing.done:
            flags: i64 = issuing.flags
            if flags & RECEIVES != 0 and self.taken == self.ready:
                return
            if flags & SENDS != 0 and self.issued - self.freed == self.slots:
                return
            size: i64 = issuing.size_bytes
            if flags & RECEIVES != 0:
                self.taken += 1
            if flags & SENDS != 0:
                self.slot_bytes[self.issued % self.slots] = size
                self.issued += 1
            self.copies += 1
            kind: i64 = COPY_REDUCE if flags & REDUCES != 0 else COPY_PLAIN
            issuing.advance()
            host.copy(self.program, self.gpu_port, self.number, size, kind, flags)

    def post(self, host: Host) -> None:
        """Post every filled slice that may go."""
        while self.posted < self.filled and (not self.admitted or self.posted < self.granted):
            number: i64 = self.posted
            slot: i64 = number % self.slots
            size: i64 = self.slot_bytes[slot]
            self.posted = number + 1
            pairs: i64 = len(self.send_pairs)
            loads = self.loads
            if loads is not None:
                nics: i64 = len(self.data_ports)
                nic: i64 = loads.least(nics)
                each: i64 = pairs // nics
                loads.outstanding[nic] += size
                self.slot_nics[slot] = nic
                self.slot_pieces[slot] = 1
                self._write(
                    host, self.data_ports[nic], self.send_pairs[nic * each + number % each], number, size
                )
            elif self.split:
                self.slot_pieces[slot] = pairs
                self._post_pieces(host, number, size)
            else:
                self.slot_pieces[slot] = 1
                self._write(host, self.nic_port, self.send_pairs[number % pairs], number, size)

    def _post_pieces(self, host: Host, number: i64, size: i64) -> None:
        pairs: i64 = len(self.send_pairs)
        piece: i64 = (size + pairs - 1) // pairs
        piece = (piece + SPLIT_ALIGN_BYTES - 1) // SPLIT_ALIGN_BYTES * SPLIT_ALIGN_BYTES
        left: i64 = size
        for pair in self.send_pairs:
            if piece > left:
                piece = left
            self._write(host, self.nic_port, pair, number, piece)
            left -= piece

    def _write(self, host: Host, port: i64, pair: i64, number: i64, size: i64) -> None:
        immediate: i64 = number & _IMMEDIATE_MASK
        host.post(self.program, port, pair, number, size, POST_WITH_IMMEDIATE, immediate)

    # ---- what the NIC and the GPU report

    def on_granted(self, host: Host) -> None:
        """A CTS arrived; they come on one queue pair, so in order."""
        self.granted += 1
        self.post(host)

    def on_acknowledged(self, host: Host, number: i64) -> None:
        """A piece of a slice was acknowledged; slots are freed in order."""
        slots: i64 = self.slots
        self.slot_pieces[number % slots] -= 1
        loads = self.loads
        if loads is not None:
            loads.outstanding[self.slot_nics[number % slots]] -= self.slot_bytes[number % slots]
        before: i64 = self.freed
        while self.freed < self.posted and self.slot_pieces[self.freed % slots] == 0:
            self.freed += 1
        if self.freed > before:
            self.issue(host)

    def on_arrived(self, host: Host, immediate: i64) -> None:
        """A piece of a slice arrived."""
        needed: i64 = 1
        if self.split:
            needed = len(self.receive_pairs)
        pieces: i64 = self.arrived.get(immediate, 0) + 1
        assert pieces <= needed, (self.number, immediate, pieces)
        self.arrived[immediate] = pieces
        before: i64 = self.ready
        while self.arrived.get(self.ready & _IMMEDIATE_MASK, 0) == needed:
            del self.arrived[self.ready & _IMMEDIATE_MASK]
            self.ready += 1
        if self.ready > before:
            assert not self.admitted or self.ready <= self.cleared, (self.number, self.ready, self.cleared)
            self.issue(host)

    def on_copied(self, host: Host, message: Message) -> None:
        """The GPU finished the oldest copy under way: its receive slot is free, its send slot is full."""
        flags: i64 = message.e
        self.copies -= 1
        if flags & RECEIVES != 0:
            self.recycled += 1
            self.clear(host)
        if flags & SENDS != 0:
            self.filled += 1
            self.post(host)

    def save(self) -> list[Plain]:
        """The channel's state."""
        arrived: list[Plain] = [[immediate, pieces] for immediate, pieces in self.arrived.items()]
        return [
            save_fields(self, _FIELDS),
            save_integers(self.slot_bytes),
            save_integers(self.slot_pieces),
            arrived,
            self.issuing.save(),
            self.clearing.save(),
            save_integers(self.slot_nics),
        ]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, slot_bytes, slot_pieces, arrived, issuing, clearing, slot_nics = as_list(state)
        load_fields(self, _FIELDS, fields)
        self.slot_bytes = load_integers(slot_bytes)
        self.slot_pieces = load_integers(slot_pieces)
        self.slot_nics = load_integers(slot_nics)
        self.arrived = {}
        for entry in as_list(arrived):
            immediate, pieces = as_list(entry)
            self.arrived[as_int(immediate)] = as_int(pieces)
        self.issuing.load(issuing)
        self.clearing.load(clearing)
