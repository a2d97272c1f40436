"""How does one end of a connection move slices: buffer slots, clear-to-sends, WRITEs?

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
from emu.kernel.device import Plain
from emu.kernel.state import as_int, as_list, load_fields, load_integers, save_fields, save_integers
from emu.vectors import vec
from emu.wire.message import POST_WITH_IMMEDIATE

CTS_BYTES: Final[i64] = 64
"""A clear-to-send is one entry of the sender's FIFO: address, size, key, tag
(NCCL's ncclIbSendFifo).
"""
SPLIT_ALIGN_BYTES: Final[i64] = 128
_IMMEDIATE_MASK: Final[i64] = 0xFFFFFFFF

# What a queue pair is to its connection; a context is the end's number among the rank's * ROLES + role.
SEND_DATA: Final[i64] = 0
SEND_CONTROL: Final[i64] = 1
"""CTS from the receiver arrive here."""
RECEIVE_DATA: Final[i64] = 2
RECEIVE_CONTROL: Final[i64] = 3
"""CTS to the sender leave here."""
ROLES: Final[i64] = 4

_SEND_FIELDS: Final = ("issued", "filled", "granted", "posted", "freed")
_RECEIVE_FIELDS: Final = ("expected", "cleared", "ready", "taken", "recycled")


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


class SendEnd:
    """Where slices to another rank leave, on one channel. `pairs` are queue pairs of the NIC behind
    `nic_port`; `control` is -1 where admission is `none`.
    """

    def __init__(
        self,
        channel: int,
        peer: int,
        nic_port: int,
        slots: int,
        pairs: list[int],
        control: int,
        split: bool,
        data_ports: list[int],
        loads: NicLoads | None,
    ) -> None:
        assert pairs, (channel, peer)
        self.program: i64 = 0
        """Number of the program that it belongs to, at its host."""
        self.channel: i64 = channel
        self.peer: i64 = peer
        self.nic_port: i64 = nic_port
        self.slots: i64 = slots
        self.pairs: vec[i64] = vec[i64](pairs)
        self.control: i64 = control
        self.split: bool = split
        self.data_ports: vec[i64] = vec[i64](data_ports)
        """With `loads`: the host's ports to its NICs; `pairs` are equally many on each, NIC by NIC."""
        self.loads: NicLoads | None = loads
        """Shared by the job's ranks of this host, if slices choose among NICs."""
        self.admitted: bool = control >= 0
        """Whether a slice waits for the receiver's CTS."""
        self.issued: i64 = 0
        self.filled: i64 = 0
        self.granted: i64 = 0
        self.posted: i64 = 0
        self.freed: i64 = 0
        self.slot_bytes: vec[i64] = vec[i64]([0] * slots)
        """Size of the slice in each slot."""
        self.slot_pieces: vec[i64] = vec[i64]([0] * slots)
        """Pieces of it that are not acknowledged yet."""
        self.slot_nics: vec[i64] = vec[i64]([0] * slots)
        """With `loads`: the NIC that it was given to."""

    def full(self) -> bool:
        """Whether no slot is free."""
        return self.issued - self.freed == self.slots

    def take(self, size: i64) -> None:
        """Take the next slot for a slice that the GPU is asked to copy."""
        self.slot_bytes[self.issued % self.slots] = size
        self.issued += 1

    def on_filled(self, host: Host) -> None:
        """The GPU copied the oldest slice that was issued."""
        self.filled += 1
        self.post(host)

    def on_granted(self, host: Host) -> None:
        """A CTS arrived; they come on one queue pair, so in order."""
        self.granted += 1
        self.post(host)

    def post(self, host: Host) -> None:
        """Post every filled slice that may go."""
        while self.posted < self.filled and (not self.admitted or self.posted < self.granted):
            number: i64 = self.posted
            slot: i64 = number % self.slots
            size: i64 = self.slot_bytes[slot]
            self.posted = number + 1
            pairs: i64 = len(self.pairs)
            loads = self.loads
            if loads is not None:
                nics: i64 = len(self.data_ports)
                nic: i64 = loads.least(nics)
                each: i64 = pairs // nics
                loads.outstanding[nic] += size
                self.slot_nics[slot] = nic
                self.slot_pieces[slot] = 1
                self._write(host, self.data_ports[nic], self.pairs[nic * each + number % each], number, size)
            elif self.split:
                self.slot_pieces[slot] = pairs
                self._post_pieces(host, number, size)
            else:
                self.slot_pieces[slot] = 1
                self._write(host, self.nic_port, self.pairs[number % pairs], number, size)

    def _post_pieces(self, host: Host, number: i64, size: i64) -> None:
        pairs: i64 = len(self.pairs)
        piece: i64 = (size + pairs - 1) // pairs
        piece = (piece + SPLIT_ALIGN_BYTES - 1) // SPLIT_ALIGN_BYTES * SPLIT_ALIGN_BYTES
        left: i64 = size
        for pair in self.pairs:
            if piece > left:
                piece = left
            self._write(host, self.nic_port, pair, number, piece)
            left -= piece

    def _write(self, host: Host, port: i64, pair: i64, number: i64, size: i64) -> None:
        immediate: i64 = number & _IMMEDIATE_MASK
        host.post(self.program, port, pair, number, size, POST_WITH_IMMEDIATE, immediate)

    def on_acknowledged(self, number: i64) -> i64:
        """A piece of a slice was acknowledged; returns how many slots that frees, in order."""
        slots: i64 = self.slots
        self.slot_pieces[number % slots] -= 1
        loads = self.loads
        if loads is not None:
            loads.outstanding[self.slot_nics[number % slots]] -= self.slot_bytes[number % slots]
        before: i64 = self.freed
        while self.freed < self.posted and self.slot_pieces[self.freed % slots] == 0:
            self.freed += 1
        return self.freed - before

    def save(self) -> list[Plain]:
        """The end's state."""
        return [
            save_fields(self, _SEND_FIELDS),
            save_integers(self.slot_bytes),
            save_integers(self.slot_pieces),
            save_integers(self.slot_nics),
        ]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, slot_bytes, slot_pieces, slot_nics = as_list(state)
        load_fields(self, _SEND_FIELDS, fields)
        self.slot_bytes = load_integers(slot_bytes)
        self.slot_pieces = load_integers(slot_pieces)
        self.slot_nics = load_integers(slot_nics)


class ReceiveEnd:
    """Where slices from another rank arrive, on one channel. A slice comes in `pieces`; `control` is -1 where
    admission is `none`.
    """

    def __init__(self, channel: int, peer: int, nic_port: int, slots: int, pieces: int, control: int) -> None:
        self.program: i64 = 0
        """Number of the program that it belongs to, at its host."""
        self.channel: i64 = channel
        self.peer: i64 = peer
        self.nic_port: i64 = nic_port
        self.slots: i64 = slots
        self.pieces: i64 = pieces
        self.control: i64 = control
        self.admitted: bool = control >= 0
        """Whether the sender waits for a CTS."""
        self.expected: i64 = 0
        self.cleared: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.recycled: i64 = 0
        self.arrived: dict[int, int] = {}
        """Pieces here of slices that are not ready, by immediate."""

    def expect(self, host: Host, slices: i64) -> None:
        """An operation begins that brings so many slices."""
        self.expected += slices
        self.clear(host)

    def clear(self, host: Host) -> None:
        """Send a CTS for every free slot that the operation still needs."""
        if not self.admitted:
            return
        while self.cleared < self.expected and self.cleared - self.recycled < self.slots:
            immediate: i64 = self.cleared & _IMMEDIATE_MASK
            host.post(
                self.program,
                self.nic_port,
                self.control,
                self.cleared,
                CTS_BYTES,
                POST_WITH_IMMEDIATE,
                immediate,
            )
            self.cleared += 1

    def on_arrived(self, immediate: i64) -> bool:
        """A piece of a slice arrived; returns whether a slice is now ready that was not."""
        pieces: i64 = self.arrived.get(immediate, 0) + 1
        assert pieces <= self.pieces, (self.channel, self.peer, immediate, pieces)
        self.arrived[immediate] = pieces
        before: i64 = self.ready
        while self.arrived.get(self.ready & _IMMEDIATE_MASK, 0) == self.pieces:
            del self.arrived[self.ready & _IMMEDIATE_MASK]
            self.ready += 1
        assert not self.admitted or self.ready <= self.cleared, (self.channel, self.ready, self.cleared)
        return self.ready > before

    def on_emptied(self, host: Host) -> None:
        """The GPU copied the oldest slice that was taken."""
        self.recycled += 1
        self.clear(host)

    def save(self) -> list[Plain]:
        """The end's state."""
        arrived: list[Plain] = [[immediate, pieces] for immediate, pieces in self.arrived.items()]
        return [save_fields(self, _RECEIVE_FIELDS), arrived]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, arrived = as_list(state)
        load_fields(self, _RECEIVE_FIELDS, fields)
        self.arrived = {}
        for entry in as_list(arrived):
            immediate, pieces = as_list(entry)
            self.arrived[as_int(immediate)] = as_int(pieces)
