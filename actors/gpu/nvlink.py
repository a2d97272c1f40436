"""NVLink: how a GPU reaches the other GPUs of its domain.

Each has an NVLink to the server's NVSwitch. A *transfer* is what a queue pair is to a NIC, without packets:
the host posts it on a *pair* of the GPU (POST), its bytes leave at the link's rate, pass the NVSwitch, and
the GPU at the other end tells its host (COMPLETION with the immediate). The sender's host has its completion
when the last byte has left: the links lose nothing, and what was read may be overwritten.

Rules.

* Transfers of one GPU leave one after the other. The NVSwitch forwards without waiting for the end of one,
  so an undisturbed transfer takes bytes / rate and two delays.
* Transfers to one GPU share its link: one that comes while another is on the way in follows it. What waits
  is in the NVSwitch; nobody is held up by it.
* Flags (clear-to-sends, on pairs for control) go in between the bytes of transfers and wait for flags only.
* Where the NVSwitch reduces what all GPUs have of a part for its head, or multicasts what a head has to all
  (NVLS), each transfer between two GPUs takes a *share* of each link. Of n GPUs the head reads one sum and
  writes once, so n - 1 transfers have that in common: 1 / (n - 1) each. The head's own data goes to the
  NVSwitch and comes back as well, so on the links that carry a part n times there are n - 1 transfers with
  n / (n - 1) each. These operations reach `efficiency` of the rate that transfers reach.
* An empty transfer takes as much of the link as a message, 64 B.
* A channel is a thread block, and a *block* writes its transfers one after another at `channel_rate`. A
  transfer takes the link, behind what others wrote before, when it is written. Lines take threads longer:
  with LL128 a block writes 7/8 of that rate, with LL 5/8 of it, flags included.

Source: the peer-to-peer transport of NCCL 2.30 (`src/transport/p2p.cc`): data and flags are written over
NVLink by GPU threads, no CPU proxy and no NIC in the way. NVLink SHARP: n + 1 sends and receives for each GPU
where 2 n are needed without (Ishii and Wells, Hot Chips 34, 2022; Klenk et al., ISCA'20). Blocks: see
`gpu.channel_rate`. With LL128 and LL a channel of a ring then moves 18.4 and 6.1
GB/s of data; NCCL reckons with 18.35 and 5.9 (`src/graph/tuning.cc`, perChMaxRingLL128Bws of Hopper GPUs,
whose values are for two channels, and llMaxBws, for 24).

Not modelled: NVLink's packets (the rate is that of payload), its credits, transfers that share a link at the
same time in equal parts (they take turns); reads.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64

from actors.kernel.block import Outbox
from actors.kernel.counters import NVLINK_TRANSFERS, NVLINK_TRANSMIT_BYTES
from actors.kernel.device import Device, Plain, Series, Tally, series_of
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_event, load_fields, save_event, save_fields
from actors.kernel.units import sending_ps, serialisation_ps
from actors.kernel.vectors import append, vec
from actors.port.link import MessagePort
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    MESSAGE_BYTES,
    POST_PROTOCOL,
    STATUS_SUCCESS,
    TRANSFER,
)

MOST_TRANSFER_BYTES: Final[i64] = 1 << 40
"""No job moves more at once."""

SHARE: Final[i64] = 1 << 16
"""A transfer that takes its size of a link."""

NVLINK_SERIES: Final = (NVLINK_TRANSMIT_BYTES, NVLINK_TRANSFERS)

LL: Final[i64] = 1
LL128: Final[i64] = 2
"""Protocols, by the numbers that `actors.ncclx.protocols` has."""

_FIELDS: Final = ("free_ps", "flags_free_ps", "sent_bytes", "sent_transfers")


class NvlinkPort:
    """One direction of an NVLink: `send` stamps a transfer with the arrival of its last byte at the peer."""

    def __init__(
        self,
        queue: EventQueue,
        rate_bps: int,
        delay_ps: int,
        peer: int,
        peer_port: int,
        outbox: Outbox | None,
        efficiency: int = 1 << 16,
    ) -> None:
        self.queue: EventQueue = queue
        self.rate_bps: i64 = rate_bps
        self.efficiency: i64 = efficiency
        """Efficiency of operations of the NVSwitch, in units of 2^-16."""
        self.delay_ps: i64 = delay_ps
        self.outbox: Outbox | None = outbox
        self.flag_ps: i64 = serialisation_ps(MESSAGE_BYTES, rate_bps)
        self.free_ps: i64 = 0
        """When the last transfer that was sent so far has left."""
        self.flags_free_ps: i64 = 0
        """The same of the last flag."""
        self.sent_bytes: i64 = 0
        """Bytes of transfers that are no flags."""
        self.sent_transfers: i64 = 0
        self._key: i64 = pack_key(peer, MESSAGE, peer_port, 0)
        self._flag_key: i64 = pack_key(peer, MESSAGE, peer_port, 1)

    def send(self, transfer: Message, now: i64, passing: bool, share: i64 = 0) -> i64:
        """Send a transfer; returns when its last byte has left. One that is `passing` has its last byte here
        now and its first bytes gone on, if the link was free for them. Of an operation of the NVSwitch it
        takes this `share` of its size, in units of 2^-16; 0 for all others.
        """
        size: i64 = transfer.c
        if transfer.f != 0:
            takes: i64 = self.flag_ps
            end: i64 = self._end(self.flags_free_ps, takes, now, passing)
            self.flags_free_ps = end
            transfer.key = self._flag_key
        else:
            takes = self.flag_ps if size < MESSAGE_BYTES else sending_ps(size, self.rate_bps)
            if share > 0:
                takes = takes * share // self.efficiency
                size = size * share // SHARE
            end = self._end(self.free_ps, takes, now, passing)
            self.free_ps = end
            self.sent_bytes += size
            self.sent_transfers += 1
            transfer.key = self._key
        transfer.time_ps = end + self.delay_ps
        if self.outbox is None:
            self.queue.push(transfer)
        else:
            self.outbox.add_message(transfer)
        return end

    def _end(self, free_ps: i64, takes_ps: i64, now: i64, passing: bool) -> i64:
        end: i64 = free_ps + takes_ps
        least: i64 = now if passing else now + takes_ps
        if end < least:
            return least
        return end

    def count(self, into: Tally) -> None:
        """Write the values of `NVLINK_SERIES`."""
        into.add(self.sent_bytes)
        into.add(self.sent_transfers)

    def save(self) -> list[Plain]:
        """The link's state."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, state)


class TransferPair:
    """One end of a connection over NVLink: where it leads, whether it carries flags, and which block writes
    what it sends; with -1 none does.
    """

    def __init__(
        self, place: int, index: int, flags: bool, block: int = -1, leaving: int = 0, arriving: int = 0
    ) -> None:
        self.place: i64 = place
        """The other GPU's port of the NVSwitch."""
        self.index: i64 = index
        """The pair there."""
        self.flags: bool = flags
        self.block: i64 = block
        self.leaving: i64 = leaving
        """The share that its transfers take of this GPU's link, if they are the NVSwitch's; else 0."""
        self.arriving: i64 = arriving
        """The same of the other GPU's link."""


def written_bps(rate_bps: i64, protocol: i64) -> i64:
    """What a block writes of a protocol, lines and all, that writes so much with Simple."""
    if protocol == LL:
        return rate_bps * 5 // 8
    if protocol == LL128:
        return rate_bps * 7 // 8
    return rate_bps


def lines_bytes(size: i64, protocol: i64) -> i64:
    """What so many bytes of data are in lines of a protocol."""
    if protocol == LL:
        return 2 * size
    if protocol == LL128:
        return size + size // 15
    return size


class Block:
    """A thread block of a GPU, and the transfers that it has to write, the next one first."""

    def __init__(self) -> None:
        self.free_ps: i64 = 0
        """When it has written all of them."""
        self.line: list[Message] = []


class Domain:
    """What a GPU has of its server's NVSwitch: the link there, its pairs, the blocks that write, each at
    `channel_rate_bps` (0: at any), and its lanes to the host for what came and for what has left. Each lane
    keeps its own order: they share the host link with copies, of which messages take next to nothing.
    """

    def __init__(
        self,
        link: NvlinkPort,
        arrivals: MessagePort,
        departures: MessagePort,
        pairs: list[TransferPair],
        channel_rate_bps: int = 0,
    ) -> None:
        self.link: NvlinkPort = link
        self.arrivals: MessagePort = arrivals
        self.departures: MessagePort = departures
        self.pairs: vec[TransferPair] = vec[TransferPair]([])
        self.channel_rate_bps: i64 = channel_rate_bps
        self.blocks: list[Block] = []
        for pair in pairs:
            self.add(pair)

    def add(self, pair: TransferPair) -> None:
        """One more pair, behind those that there are."""
        self.pairs = append(self.pairs, pair)
        while len(self.blocks) <= pair.block:
            self.blocks.append(Block())

    def write(self, message: Message, now: i64) -> i64:
        """The host posted a transfer: when its block has written it, -1 if it went at once."""
        pair = self.pairs[message.a]
        if pair.flags or pair.block < 0 or self.channel_rate_bps == 0 or message.c == 0:
            self._post(message, now, passing=False)
            return -1
        takes: i64 = sending_ps(message.c, written_bps(self.channel_rate_bps, message.d // POST_PROTOCOL))
        if pair.leaving > 0:
            takes = takes * pair.leaving // SHARE
        block = self.blocks[pair.block]
        if block.free_ps < now:
            block.free_ps = now
        block.free_ps += takes
        block.line.append(message)
        return block.free_ps

    def written(self, number: i64, now: i64) -> bool:
        """A block is at the end of a transfer, if the GPU was not lost meanwhile; whether it was."""
        line = self.blocks[number].line
        if not line:
            return False
        self._post(line.pop(0), now, passing=True)
        return True

    def forget(self) -> None:
        """Nothing of what was posted is written."""
        for block in self.blocks:
            block.line = []

    def _post(self, message: Message, now: i64, passing: bool) -> None:
        """Put a transfer on the link. What the host asked for goes on as the transfer itself."""
        pair = self.pairs[message.a]
        done: Message | None = None
        message.f = 1
        if not pair.flags:
            done = Message(COMPLETION, message.a, message.b, message.c, COMPLETED_SEND, STATUS_SUCCESS, 0)
            message.f = 0
        message.op = TRANSFER
        message.a = pair.place
        message.b = pair.index
        message.d = pair.arriving
        left: i64 = self.link.send(message, now, passing, pair.leaving)
        if done is not None:
            self.departures.send(done, left)

    def arrive(self, transfer: Message, now: i64) -> None:
        """A transfer came, and goes on to the host as its completion."""
        transfer.op = COMPLETION
        transfer.a = transfer.b
        transfer.b = transfer.e
        transfer.d = COMPLETED_RECEIVE
        transfer.e = STATUS_SUCCESS
        transfer.f = 0
        self.arrivals.send(transfer, now)

    def save(self) -> list[Plain]:
        """The state of links, lanes and blocks."""
        blocks: list[Plain] = []
        for block in self.blocks:
            line: list[Plain] = [save_event(message) for message in block.line]
            blocks.append([block.free_ps, line])
        return [self.link.save(), self.arrivals.free_ps, self.departures.free_ps, blocks]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        link, arrivals, departures, blocks = as_list(state)
        self.link.load(link)
        self.arrivals.free_ps = as_int(arrivals)
        self.departures.free_ps = as_int(departures)
        for block, saved in zip(self.blocks, as_list(blocks), strict=True):
            free_ps, line = as_list(saved)
            block.free_ps = as_int(free_ps)
            block.line = [cast(Message, load_event(message)) for message in as_list(line)]


class NvSwitch(Device):
    """The NVSwitch of one server. `ports` are its links to the GPUs, by position.

    `progress` counts the bytes that passed.
    """

    def __init__(self, number: int, queue: EventQueue, ports: list[NvlinkPort]) -> None:
        super().__init__(number, queue)
        self.ports: vec[NvlinkPort] = vec[NvlinkPort](ports)

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        if message.op != TRANSFER or message.a < 0 or message.a >= len(self.ports) or message.d < 0:
            return False
        return message.d <= 2 * SHARE and 0 <= message.c <= MOST_TRANSFER_BYTES

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        assert message.op == TRANSFER, (self.number, port, subject, message.op)
        self.progress += message.c
        self.ports[message.a].send(message, self.queue.now_ps, passing=True, share=message.d)

    def series(self) -> list[Series]:
        return [series_of(name, port) for port in range(len(self.ports)) for name in NVLINK_SERIES]

    def count(self, into: Tally) -> None:
        for port in self.ports:
            port.count(into)

    def save(self) -> list[Plain]:
        """The switch's state."""
        ports: list[Plain] = [port.save() for port in self.ports]
        return [super().save(), ports]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        base, ports = state
        super().load(as_list(base))
        for port, saved in zip(self.ports, as_list(ports), strict=True):
            port.load(saved)
