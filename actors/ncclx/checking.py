"""Proof that a set of send/receive graphs is the collective it says it is.

The graphs of all ranks and channels are carried out with symbols in place of bytes, as the executor carries
them out: a step begins when what it waits for is over and it is the next of its connections; a connection
holds no more slices than it has slots. Time does not matter, for steps that are ready do not hinder each
other: if one order comes to the end, all do, and with the same result. A symbol is (where the byte comes
from, which ranks' contributions are in it); each contribution may come in once.

What each collective starts from and ends with is in `beginning` and `ending`. All complaints are one line.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from actors.kernel.errors import EmuError
from actors.ncclx.graph import DATA, NOBODY, OUTPUT, Call, Extent, Extents, Step, waits, within

_NOTHING: Final = -1
MOST_NAMED: Final = 1 << 40
"""Bytes of one rank's buffer at most: where symbols of all_to_all begin for the next rank."""


FORM: Final = 2
"""Edition of what is proved here. Raise it with every change, so that no earlier proof counts."""


class GraphError(EmuError):
    """Graphs that are no correct collective."""

    exit_status = 2


class Run(NamedTuple):
    """Bytes in a row: `origin` is where the first comes from, `mask` whose contributions are in them."""

    size: int
    origin: int
    mask: int


def join(runs: Sequence[Run]) -> list[Run]:
    """The same with neighbours that continue one another made one."""
    found: list[Run] = []
    for run in runs:
        if run.size == 0:
            continue
        last = found[-1] if found else None
        if last and last.mask == run.mask and last.origin + last.size == run.origin:
            found[-1] = Run(last.size + run.size, last.origin, last.mask)
        elif last and last.mask == run.mask == 0:
            found[-1] = Run(last.size + run.size, _NOTHING, 0)
        else:
            found.append(run)
    return found


class Memory:
    """One buffer of one rank."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def read(self, offset: int, size: int) -> list[Run]:
        """`size` bytes; those never written are nothing."""
        found: list[Run] = []
        at = 0
        for run in self.runs:
            first, last = max(offset, at), min(offset + size, at + run.size)
            if first < last:
                origin = run.origin + first - at if run.mask else _NOTHING
                found.append(Run(last - first, origin, run.mask))
            at += run.size
        left = offset + size - max(at, offset)
        if left > 0:
            found.append(Run(left, _NOTHING, 0))
        return found

    def write(self, offset: int, runs: Sequence[Run]) -> None:
        """Put runs at an offset."""
        size = sum(run.size for run in runs)
        length = sum(run.size for run in self.runs)
        after = self.read(offset + size, length - offset - size) if length > offset + size else []
        self.runs = join([*self.read(0, offset), *runs, *after])


def beginning(call: Call, rank: int) -> list[tuple[Extent, int, int]]:
    """(where, origin, whose contribution) of what a rank has before the operation, over all channels."""
    size, block = call.size_bytes, _block(call, rank)
    mine = 1 << rank
    if call.op in ("all_gather", "gather"):
        return [(block, block.offset_bytes, mine)]
    if call.op in ("broadcast", "scatter") and rank != call.root:
        return []
    if call.op in ("all_to_all", "all_to_allv"):
        size = sum(call.bytes_between(rank, other) for other in range(call.ranks))
    origin = rank * MOST_NAMED if call.op in ("all_to_all", "all_to_allv", "sendrecv") else 0
    return [(Extent(DATA, 0, size), origin, mine)]


def ending(call: Call, rank: int) -> list[tuple[Extent, int, int]]:
    """The same of what it must have afterwards."""
    n, size = call.ranks, call.size_bytes
    everyone = (1 << n) - 1
    whole = Extent(DATA, 0, size)
    block = _block(call, rank)
    at_root = rank == call.root
    if call.op in ("all_reduce", "barrier"):
        return [(whole, 0, everyone)]
    if call.op == "reduce":
        return [(whole, 0, everyone)] if at_root else []
    if call.op == "broadcast":
        return [(whole, 0, 1 << call.root)]
    if call.op == "reduce_scatter":
        return [(block, block.offset_bytes, everyone)]
    if call.op == "scatter":
        return [(block, block.offset_bytes, 1 << call.root)]
    if call.op == "all_gather" or (call.op == "gather" and at_root):
        return [(one, one.offset_bytes, 1 << other) for other in range(n) for one in (_block(call, other),)]
    if call.op == "sendrecv":
        before = (rank - 1) % n
        return [(Extent(OUTPUT, 0, size), before * MOST_NAMED, 1 << before)]
    if call.op in ("all_to_all", "all_to_allv"):
        found = []
        at = 0
        for other in range(n):
            there = sum(call.bytes_between(other, one) for one in range(rank))
            count = call.bytes_between(other, rank)
            found.append((Extent(OUTPUT, at, count), other * MOST_NAMED + there, 1 << other))
            at += count
        return found
    return []


def _block(call: Call, rank: int) -> Extent:
    size = min(max(call.size_bytes - rank * call.block_bytes, 0), call.block_bytes)
    return Extent(DATA, rank * call.block_bytes, size)


class _Walk:
    """One rank on one channel in the making."""

    def __init__(self, rank: int, channel: int, steps: Sequence[Step], slice_bytes: int) -> None:
        self.rank, self.channel, self.steps = rank, channel, steps
        self.waits = waits(steps)
        self.slices = [max(1, -(-step.size_bytes // slice_bytes)) for step in steps]
        self.issued = [0] * len(steps)
        self.sending: dict[tuple[int, int], deque[int]] = {}
        self.receiving: dict[tuple[int, int], deque[int]] = {}
        for number, step in enumerate(steps):
            for peer in step.sends:
                self.sending.setdefault((peer, step.lane), deque()).append(number)
            if step.receive != NOBODY:
                self.receiving.setdefault((step.receive, step.lane), deque()).append(number)

        self.awaited: dict[int, list[int]] = {}
        """For each step, those that wait for it."""
        for number, before in enumerate(self.waits):
            for one in before:
                self.awaited.setdefault(one, []).append(number)

    def next_from(self, peer: int, lane: int) -> Iterable[int]:
        """The step whose turn it is to receive from a peer."""
        return islice(self.receiving.get((peer, lane), ()), 1)

    def next_to(self, peer: int, lane: int) -> Iterable[int]:
        """The step whose turn it is to send to a peer."""
        return islice(self.sending.get((peer, lane), ()), 1)

    def behind(self, number: int) -> list[int]:
        """The steps that may begin now that one is over: those that waited for it, and the next of its
        connections."""
        step = self.steps[number]
        found = list(self.awaited.get(number, ()))
        for peer in step.sends:
            found += self.next_to(peer, step.lane)
        if step.receive != NOBODY:
            found += self.next_from(step.receive, step.lane)
        return found

    def over(self, number: int) -> bool:
        return self.issued[number] == self.slices[number]

    def name(self, number: int) -> str:
        return f"rank {self.rank}, channel {self.channel}, step {number}"


class _Line(NamedTuple):
    """What is on a connection: runs, what the sender knew."""

    runs: list[Run]
    known: int


def check(
    calls: Sequence[Call],
    graphs: Sequence[Sequence[Sequence[Step]]],
    slice_bytes: int,
    slots: int,
) -> None:
    """Carry out `graphs[channel][rank]`. Raises GraphError if they stop, or end with something else."""
    ranks = calls[0].ranks
    buffers = [[Memory() for _ in range(3)] for _ in range(ranks)]
    for rank in range(ranks):
        for extent, origin, mask in beginning(calls[0], rank):
            buffers[rank][extent.buffer].write(extent.offset_bytes, [Run(extent.size_bytes, origin, mask)])
    known = [1 << rank for rank in range(ranks)]
    for channel, graph in enumerate(graphs):
        if len(graph) != ranks:
            raise GraphError(f"channel {channel} has graphs for {len(graph)} ranks, not {ranks}")
        for rank, steps in enumerate(graph):
            _check_steps(ranks, rank, channel, steps)
        walks = [_Walk(rank, channel, steps, slice_bytes) for rank, steps in enumerate(graph)]
        _carry_out(walks, buffers, known, slice_bytes, slots)
    _compare(calls[0], buffers, known)


def _check_steps(ranks: int, rank: int, channel: int, steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps):
        where = f"rank {rank}, channel {channel}, step {number}"
        for peer in (*step.sends, *((step.receive,) if step.receive != NOBODY else ())):
            if not 0 <= peer < ranks or peer == rank:
                raise GraphError(
                    f"{where}: talks to rank {peer}, and its peers are 0 to {ranks - 1} but itself"
                )
        if any(not 0 <= one < number for one in step.after):
            raise GraphError(f"{where}: waits for a step that is not before it")


def _carry_out(
    walks: Sequence[_Walk], buffers: list[list[Memory]], known: list[int], slice_bytes: int, slots: int
) -> None:
    lines: dict[tuple[int, int, int], deque[_Line]] = {}
    ready = deque((walk.rank, at) for walk in walks for at in range(len(walk.steps)) if not walk.waits[at])
    while ready:
        rank, number = ready.popleft()
        walk = walks[rank]
        if walk.over(number) or not _advance(walk, number, lines, buffers, known, slice_bytes, slots):
            continue
        step = walk.steps[number]
        for peer in step.sends:  # it may receive, and whoever is next here may send
            ready.extend((peer, one) for one in walks[peer].next_from(rank, step.lane))
        if step.receive != NOBODY:  # there is room again
            ready.extend((step.receive, one) for one in walks[step.receive].next_to(rank, step.lane))
        if walk.over(number):
            ready.extend((rank, one) for one in walk.behind(number))
    stuck = [(walk, at) for walk in walks for at in range(len(walk.steps)) if not walk.over(at)]
    if stuck:
        waiting = [one for one in stuck if all(map(one[0].over, one[0].waits[one[1]]))]
        raise GraphError(_why_stuck(*(waiting or stuck)[0], lines))
    for (source, target, lane), line in lines.items():
        if line:
            raise GraphError(f"rank {target} never receives what rank {source} sends on lane {lane}")


def _why_stuck(walk: _Walk, number: int, lines: dict[tuple[int, int, int], deque[_Line]]) -> str:
    step = walk.steps[number]
    pending = [one for one in walk.waits[number] if not walk.over(one)]
    if pending:
        why = f"waits for step {pending[0]} for ever"
    elif step.receive != NOBODY and not lines.get((step.receive, walk.rank, step.lane)):
        why = f"waits for data from rank {step.receive} for ever"
    else:
        why = "waits for its turn or for room for ever"
    return f"{walk.name(number)}: {why}"


def _advance(
    walk: _Walk,
    number: int,
    lines: dict[tuple[int, int, int], deque[_Line]],
    buffers: list[list[Memory]],
    known: list[int],
    slice_bytes: int,
    slots: int,
) -> bool:
    """Do as many slices of a step as may be; whether any."""
    step, rank = walk.steps[number], walk.rank
    if any(not walk.over(one) for one in walk.waits[number]):
        return False
    if any(walk.sending[peer, step.lane][0] != number for peer in step.sends):
        return False
    if step.receive != NOBODY and walk.receiving[step.receive, step.lane][0] != number:
        return False
    outs = [lines.setdefault((rank, peer, step.lane), deque()) for peer in step.sends]
    moved = False
    while not walk.over(number):
        if any(len(out) >= slots for out in outs):
            return moved
        at = walk.issued[number] * slice_bytes if step.receive != NOBODY or step.sends else 0
        size = (
            min(step.size_bytes - at, slice_bytes)
            if step.receive != NOBODY or step.sends
            else step.size_bytes
        )
        runs = _read(buffers[rank], step.source, at, size)
        if step.receive != NOBODY:
            line = lines.get((step.receive, rank, step.lane))
            if not line:
                return moved
            came = line.popleft()
            known[rank] |= came.known
            if sum(run.size for run in came.runs) != size:
                got = sum(run.size for run in came.runs)
                raise GraphError(
                    f"{walk.name(number)}: gets {got} B from rank {step.receive} where it expects {size}"
                )
            runs = _reduced(walk.name(number), runs, came.runs) if step.source else came.runs
        _write(buffers[rank], step.destination, at, runs)
        for out in outs:
            out.append(_Line(runs, known[rank]))
        walk.issued[number] += 1
        if step.receive == NOBODY and not step.sends:
            walk.issued[number] = walk.slices[number]
        moved = True
    for peer in step.sends:
        walk.sending[peer, step.lane].popleft()
    if step.receive != NOBODY:
        walk.receiving[step.receive, step.lane].popleft()
    return True


def _read(memories: Sequence[Memory], extents: Extents, at: int, size: int) -> list[Run]:
    found: list[Run] = []
    for buffer, offset, length in within(extents, at, size):
        found += memories[buffer].read(offset, length)
    return found


def _write(memories: Sequence[Memory], extents: Extents, at: int, runs: Sequence[Run]) -> None:
    whole = Memory()
    whole.runs = list(runs)
    done = 0
    for buffer, offset, length in within(extents, at, sum(run.size for run in runs)):
        memories[buffer].write(offset, whole.read(done, length))
        done += length


def _reduced(where: str, mine: Sequence[Run], theirs: Sequence[Run]) -> list[Run]:
    left, right = Memory(), Memory()
    left.runs, right.runs = list(mine), list(theirs)
    found: list[Run] = []
    at, end = 0, sum(run.size for run in mine)
    while at < end:
        one, other = left.read(at, end - at)[0], right.read(at, end - at)[0]
        size = min(one.size, other.size)
        if not one.mask or not other.mask or one.origin != other.origin:
            raise GraphError(f"{where}: reduces bytes that do not belong together")
        if one.mask & other.mask:
            twice = (one.mask & other.mask).bit_length() - 1
            raise GraphError(f"{where}: adds the contribution of rank {twice} a second time")
        found.append(Run(size, one.origin, one.mask | other.mask))
        at += size
    return found


def _compare(call: Call, buffers: list[list[Memory]], known: list[int]) -> None:
    everyone = (1 << call.ranks) - 1
    for rank in range(call.ranks):
        if call.op == "barrier":
            if known[rank] != everyone:
                missing = (everyone & ~known[rank]).bit_length() - 1
                raise GraphError(f"rank {rank} goes on without having heard from rank {missing}")
            continue
        for extent, origin, mask in ending(call, rank):
            wanted = join([Run(extent.size_bytes, origin, mask)])
            got = join(buffers[rank][extent.buffer].read(extent.offset_bytes, extent.size_bytes))
            if got != wanted:
                raise GraphError(f"rank {rank}: {_difference(extent, wanted, got)}")


def _difference(extent: Extent, wanted: Sequence[Run], got: Sequence[Run]) -> str:
    at = 0
    for run in got:
        expected = wanted[0].origin + at
        if run.mask != wanted[0].mask:
            missing = wanted[0].mask & ~run.mask
            which = f"lacks rank {missing.bit_length() - 1}" if missing else "has more than it should"
            return f"byte {extent.offset_bytes + at} {which}"
        if run.origin != expected:
            return f"byte {extent.offset_bytes + at} is another byte"
        at += run.size
    return "too few bytes"
