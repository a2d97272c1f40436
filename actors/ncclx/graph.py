"""Send/receive graphs, what the steps of an algorithm wait for, and the order of a ring.

An operation of one rank on one channel is a list of *steps*. A step takes data, from another rank or from the
rank's own buffers, and puts it into the buffers, to other ranks, or both:

    receive   from whom, or NOBODY; `source` says then what it is reduced with, if anything
    source    where the data is read, piece after piece, where nothing is received
    destination   where it is written (nothing: nowhere)
    sends     to whom it goes; what is received and reduced goes on in one GPU operation

Buffers. DATA is what the collective works on, in place; OUTPUT is where all_to_all and sendrecv put theirs;
SCRATCH is as large as an algorithm likes.

Order. The steps of a list mean what they mean one after the other. They are carried out as soon as they may:
a step waits for the earlier steps that write what it reads or writes, and for those that read what it writes
(`waits`), and for those it names in `after`. What is sent from one rank to another on a *lane* arrives in the
order of both lists, so both must agree. Lanes are connections of their own between the same two ranks.

Shares. A channel has its share of every block (or of the whole), cut as `actors.ncclx.algorithms.ring` says.
A step over no bytes is left out at both ends, except where `empty` says that it is the message that counts.

The order of a channel's ring through the GPUs of each server. A ring that had the ranks' order on every
channel would leave each server by the NIC of its last GPU, and enter it by that of its first, however many
channels there are. NCCL looks for rings with other NICs on every channel, two at a time: the second of a pair
comes in where the first goes out. On every other server the two change places, so that a ring comes in on the
rail on which it left the server before. Here a server's GPUs, in the ranks' order, begin with another GPU for
every pair:

    channel    server 0, 2 ..    server 1, 3 ..     over, from an even server and from an odd one
    0          0 1 2 3           3 2 1 0            rail 3, rail 0
    1          3 2 1 0           0 1 2 3            rail 0, rail 3
    2          2 3 0 1           1 0 3 2            rail 1, rail 2
    3          1 0 3 2           2 3 0 1            rail 2, rail 1

After a round through the GPUs it goes on one further, where their number is even, so that a GPU's second NIC
has its turn. With an odd number of channels NCCL does not change places: there every channel begins one GPU
further, in the same direction on all servers, and its ring changes rails between them. One channel has the
ranks' order.

That is NCCL_CROSS_NIC 2. With 1 (`crossing`) no rings change places: every channel begins one GPU further in
the same direction on all servers, as with an odd number of channels. With 0 the orders are those of 1, and a
ring leaves each server by the NIC on the rail on which it enters the next (`actors.ncclx.transport.wiring`).

A server is what ranks in a row have in common; an order of ranks that goes from server to server at every
step stays as it is, and so does a ring inside one server.

Source: NCCL 2.30, `src/graph/search.cc` (ncclTopoSearchRecNet with crossNic 2) and `src/graph/connect.cc`
(ncclTopoPostset, "Alternate rings to avoid crossing rails").

Not modelled: the order of a search over PCIe, NICs that are closer to one GPU.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import ClassVar, Final, NamedTuple


@lru_cache(maxsize=256)
def ring_order(
    nodes: tuple[int, ...], channels: int, channel: int, crossing: bool = False
) -> tuple[int, ...]:
    """The places of ranks, which are on these servers, in the order of a channel's ring. With `crossing`
    every server has the same.
    """
    runs = [list(run) for _, run in groupby(range(len(nodes)), key=nodes.__getitem__)]
    if channels == 1 or len(runs) == 1:
        return tuple(range(len(nodes)))
    found: list[int] = []
    for number, run in enumerate(runs):
        if crossing:
            first = channel % len(run)
            found += [*run[first:], *run[:first]]
        else:
            found += _turned(run, channels, channel, odd=number % 2 == 1)
    return tuple(found)


def _turned(run: Sequence[int], channels: int, channel: int, *, odd: bool) -> list[int]:
    """The ranks of one server."""
    first = channel if channels % 2 else channel - channel % 2
    if len(run) % 2 == 0:
        first += first // len(run)
    first %= len(run)
    found = [*run[first:], *run[:first]]
    backwards = channels % 2 == 0 and (channel % 2 == 1) != odd
    return found[::-1] if backwards else found


NOBODY: Final = -1
BARRIER_BYTES: Final = 4
"""A barrier is an all_reduce of one element, as in PyTorch's NCCL back end."""
DATA: Final = 0
OUTPUT: Final = 1
SCRATCH: Final = 2
NVLS_REDUCE: Final = -1
"""Lane inside a server on which the NVSwitch adds up what the neighbours of a rank send it."""
NVLS_MULTICAST: Final = -2
"""Lane inside a server on which the NVSwitch gives all neighbours of a rank what it sends."""
ALIGN_BYTES: Final = 16


class Extent(NamedTuple):
    """A stretch of a buffer."""

    buffer: int
    offset_bytes: int
    size_bytes: int


Extents = tuple[Extent, ...]


class Step(NamedTuple):
    """See above. `lane` tells apart connections between two ranks; `after` are earlier places in the list."""

    receive: int
    source: Extents
    destination: Extents
    sends: tuple[int, ...]
    size_bytes: int
    lane: int = 0
    after: tuple[int, ...] = ()


class Call(NamedTuple):
    """One operation as one channel sees it."""

    op: str
    ranks: int
    size_bytes: int
    """Size of the whole buffer, as nccl-tests counts it."""
    channels: int
    channel: int
    chunk_bytes: int
    """What fits half a channel buffer: the most that an exchange sends before it receives."""
    step_bytes: int
    """One step of a channel buffer: the most that a tree forwards at once."""
    root: int = 0
    counts: tuple[tuple[int, ...], ...] = ()
    """For all_to_allv: bytes from each rank to each."""
    nodes: tuple[int, ...] = ()
    """The server of each rank."""
    turned: bool = False
    """Whether each channel's ring has an order of its own."""
    crossing: bool = False
    """Whether that order is the same on every server."""
    rings: int = 0
    """Channels of the communicator, by which rings are turned; 0: `channels`."""
    cut_as_bytes: int = 0
    """The size of the operation of which this is a part, by which it is cut into chunks; 0: `size_bytes`."""
    protocol: int = 0
    """Protocol, one of `actors.ncclx.protocols`."""

    @property
    def cut_bytes(self) -> int:
        """By which size chunks are cut."""
        return self.cut_as_bytes or self.size_bytes

    def share(self, size: int) -> tuple[int, int]:
        """Where this channel's share of `size` bytes begins, and how much it is."""
        return _share(size, self.channels, self.channel)

    def whole(self, buffer: int = DATA) -> Extent:
        """The channel's share of the whole buffer."""
        start, size = self.share(BARRIER_BYTES if self.op == "barrier" else self.size_bytes)
        return Extent(buffer, start, size)

    @property
    def block_bytes(self) -> int:
        """Size of every rank's block but the last ones."""
        return -(-self.size_bytes // self.ranks)

    def block(self, rank: int, buffer: int = DATA) -> Extent:
        """The channel's share of a rank's block."""
        start, share = self.share(self.block_bytes)
        size = min(max(self.size_bytes - rank * self.block_bytes, 0), self.block_bytes)
        return Extent(buffer, rank * self.block_bytes + start, min(max(size - start, 0), share))

    def blocks(self, ranks: Iterable[int]) -> Extents:
        """Shares of several blocks, those with nothing in them left out."""
        return tuple(block for block in map(self.block, ranks) if block.size_bytes)

    def ring(self) -> tuple[int, ...]:
        """The ranks in the order of the channel's ring."""
        if self.turned:
            return ring_order(self.nodes, self.rings or self.channels, self.channel, self.crossing)
        return tuple(range(self.ranks))

    def bytes_between(self, source: int, destination: int) -> int:
        """Bytes that one rank has for another in all_to_all and all_to_allv."""
        if self.counts:
            return self.counts[source][destination]
        each = self.block_bytes
        return min(max(self.size_bytes - destination * each, 0), each)

    def outgoing(self, source: int, destination: int) -> Extent:
        """The channel's share of what one rank has for another, in the sender's DATA."""
        at = sum(self.counts[source][:destination]) if self.counts else destination * self.block_bytes
        start, size = self.share(self.bytes_between(source, destination))
        return Extent(DATA, at + start, size)

    def incoming(self, source: int, destination: int) -> Extent:
        """The same in the receiver's OUTPUT."""
        count = self.bytes_between(source, destination)
        at = sum(row[destination] for row in self.counts[:source]) if self.counts else source * count
        start, size = self.share(count)
        return Extent(OUTPUT, at + start, size)


@lru_cache(maxsize=1024)
def _share(size: int, channels: int, channel: int) -> tuple[int, int]:
    share = up(-(-size // channels))
    return channel * share, min(max(size - channel * share, 0), share)


def up(size: int) -> int:
    """Rounded up to 16 B."""
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


def total(extents: Extents) -> int:
    """Bytes in all."""
    if len(extents) == 1:
        return extents[0].size_bytes
    return sum(extent.size_bytes for extent in extents)


def cut(extents: Extents, most_bytes: int) -> list[Extents]:
    """The same bytes in pieces of at most `most_bytes`."""
    if len(extents) == 1 and 0 < extents[0].size_bytes <= most_bytes:
        return [extents]
    pieces: list[Extents] = []
    piece: list[Extent] = []
    room = most_bytes
    for buffer, offset, size in extents:
        at = 0
        while at < size:
            taken = min(size - at, room)
            piece.append(Extent(buffer, offset + at, taken))
            at += taken
            room -= taken
            if room == 0:
                pieces.append(tuple(piece))
                piece, room = [], most_bytes
    if piece:
        pieces.append(tuple(piece))
    return pieces


def within(extents: Extents, start: int, size: int) -> list[Extent]:
    """`size` bytes of a list of extents from `start` on."""
    found: list[Extent] = []
    for buffer, offset, length in extents:
        first, last = max(start, 0), min(start + size, length)
        if first < last:
            found.append(Extent(buffer, offset + first, last - first))
        start -= length
    return found


def parts(extent: Extent, count: int) -> list[Extent]:
    """An extent in `count` parts of equal size, rounded up to 16 B; the last may be shorter or empty."""
    return [part(extent, count, at) for at in range(count)]


def part(extent: Extent, count: int, at: int) -> Extent:
    """One of `parts`."""
    each = up(-(-extent.size_bytes // count))
    size_bytes = min(max(extent.size_bytes - at * each, 0), each)
    return Extent(extent.buffer, extent.offset_bytes + at * each, size_bytes)


class StepList:
    """The steps of one rank in the making. Empty ones are left out."""

    def __init__(self, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self.steps: list[Step] = []

    def _add(
        self, receive: int, source: Extents, destination: Extents, sends: Sequence[int], lane: int
    ) -> None:
        size = total(destination or source)
        if size:
            self.steps.append(Step(receive, source, destination, tuple(sends), size, lane))

    def copy(self, source: Extents, destination: Extents) -> None:
        """Copy within the rank."""
        self._add(NOBODY, source, destination, (), 0)

    def send(self, peer: int, source: Extents, *, lane: int = 0) -> None:
        """Send, at most a chunk at a time."""
        for piece in cut(source, self.chunk_bytes):
            self._add(NOBODY, piece, (), (peer,), lane)

    def receive(self, peer: int, destination: Extents, *, reduce: bool = False, lane: int = 0) -> None:
        """Receive, at most a chunk at a time; `reduce` with what is there."""
        for piece in cut(destination, self.chunk_bytes):
            self._add(peer, piece if reduce else (), piece, (), lane)

    def forward(
        self, peer: int, destination: Extents, sends: Sequence[int], *, reduce: bool = False, lane: int = 0
    ) -> None:
        """Receive, and send on in the same operation."""
        for piece in cut(destination, self.chunk_bytes):
            self._add(peer, piece if reduce else (), piece, sends, lane)

    def exchange(self, peer: int, out: Extents, into: Extents, *, reduce: bool = False) -> None:
        """Send to and receive from a peer, chunk by chunk in turn."""
        outs, intos = cut(out, self.chunk_bytes), cut(into, self.chunk_bytes)
        for at in range(max(len(outs), len(intos))):
            if at < len(outs):
                self.send(peer, outs[at])
            if at < len(intos):
                self.receive(peer, intos[at], reduce=reduce)

    def empty(self, receive: int, sends: Sequence[int]) -> None:
        """A message of no bytes, which waits for all steps so far."""
        after = tuple(range(len(self.steps)))
        self.steps.append(Step(receive, (), (), tuple(sends), 0, after=after))


class Algorithm:
    """A way to do some collectives. One instance serves all ranks and channels."""

    collectives: ClassVar[tuple[str, ...]] = ()
    pieces: int = 1
    """Into how many a block is cut whatever its size: with fewer bytes some connection has none to carry."""

    def steps(self, call: Call, rank: int) -> list[Step]:
        """What a rank does on one channel. Must agree between the ranks: see the top of this file."""
        raise NotImplementedError

    def loop(self, call: Call) -> tuple[int, int]:
        """With how many bytes more every connection carries the same slices once more, before the rest (0:
        with none); and how many such loops are under way at once.
        """
        del call
        return 0, 0

    def reach(self, call: Call) -> int:
        """How many loops back a step may have to wait for."""
        return self.loop(call)[1]

    def content(self) -> object:
        """What the steps follow from besides the call, if its `repr` says that; None where it does not."""
        return None


class _Stretch:
    """Who wrote a stretch of a buffer last, and who has read it since."""

    __slots__ = ("end", "readers", "start", "writer")

    def __init__(self, start: int, end: int, writer: int, readers: list[int]) -> None:
        self.start, self.end, self.writer, self.readers = start, end, writer, readers


def waits(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """For each step, the earlier ones that it waits for, ascending."""
    if _apart(steps):
        return [tuple(sorted(set(step.after))) for step in steps]
    known: tuple[list[_Stretch], ...] = ([], [], [])
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        needed: dict[int, None] = dict.fromkeys(step.after)
        for extent in step.source:
            for stretch in _stretches(known[extent.buffer], extent):
                if stretch.writer >= 0:
                    needed[stretch.writer] = None
                stretch.readers.append(number)
        for extent in step.destination:
            for stretch in _stretches(known[extent.buffer], extent):
                if stretch.readers:
                    needed.update(dict.fromkeys(stretch.readers))
                elif stretch.writer >= 0:
                    needed[stretch.writer] = None
                stretch.writer = number
                stretch.readers = []
        needed.pop(number, None)
        found.append(tuple(sorted(needed)))
    return found


def _apart(steps: Sequence[Step]) -> bool:
    """Whether no two of all stretches that steps read or write overlap."""
    extents = [extent for step in steps for extent in step.source + step.destination]
    extents.sort()
    return all(
        before.buffer != after.buffer or before.offset_bytes + before.size_bytes <= after.offset_bytes
        for before, after in pairwise(extents)
    )


def _stretches(known: list[_Stretch], extent: Extent) -> list[_Stretch]:
    """The stretches that make up an extent, cut at its ends and made where there was none."""
    start, end = extent.offset_bytes, extent.offset_bytes + extent.size_bytes
    at = bisect_right(known, start, key=lambda stretch: stretch.start)
    if at > 0 and known[at - 1].end > start:
        at -= 1
    covered: list[_Stretch] = []
    while start < end:
        if at == len(known) or known[at].start > start:
            until = end if at == len(known) else min(end, known[at].start)
            known.insert(at, _Stretch(start, until, -1, []))
        here = known[at]
        if here.start < start:
            known.insert(at, _Stretch(here.start, start, here.writer, list(here.readers)))
            here.start = start
            at += 1
        if here.end > end:
            known.insert(at + 1, _Stretch(end, here.end, here.writer, list(here.readers)))
            here.end = end
        covered.append(here)
        start = here.end
        at += 1
    return covered
