"""Does the sequence of slices compute what the operation promises? Followed byte by byte with symbols."""

import pytest

from actors.ncclx.algorithms.ring import (
    ALL_GATHER,
    ALL_REDUCE,
    OPERATION_CODES,
    REDUCE_SCATTER,
    RingCursor,
)
from actors.ncclx.transport.channel import RECEIVES, REDUCES, SENDS

CHUNK_BYTES = 64
SLICE_BYTES = 32
Byte = frozenset[int]
"""Which ranks' contributions a byte holds."""


def place(cursor: RingCursor) -> int:
    """Where in the whole buffer the cursor's slice begins."""
    if cursor.op == ALL_REDUCE:
        before = cursor.loop_start_bytes + cursor.chunk * cursor.loop_chunk_bytes
    else:
        before = cursor.chunk * cursor.block_bytes + cursor.loop_start_bytes
    return cursor.share_start_bytes + before + cursor.offset_bytes


def carry_out(op: int, ranks: int, size: int, channels: int) -> list[list[Byte]]:
    """Each rank's buffer afterwards; rank r starts with {r} in every byte that is its own to give."""
    block = -(-size // ranks)
    if op == ALL_GATHER:
        buffers = [
            [frozenset({r}) if at // block == r else frozenset() for at in range(size)] for r in range(ranks)
        ]
    else:
        buffers = [[frozenset({r})] * size for r in range(ranks)]
    for channel in range(channels):
        cursors = [RingCursor(ranks, r, channels, channel, CHUNK_BYTES, SLICE_BYTES) for r in range(ranks)]
        links: list[list[list[Byte]]] = [[] for _ in range(ranks)]
        for cursor in cursors:
            cursor.begin(op, size)
        while not all(cursor.done for cursor in cursors):
            moved = False
            for rank, cursor in enumerate(cursors):
                if cursor.done or (cursor.flags & RECEIVES and not links[rank]):
                    continue
                moved = True
                at, count = place(cursor), cursor.size_bytes
                slice_ = buffers[rank][at : at + count] if count else []
                assert len(slice_) == count, (at, count)
                if cursor.flags & RECEIVES:
                    came = links[rank].pop(0)
                    assert len(came) == count, (rank, channel, len(came), count)
                    if cursor.flags & REDUCES:
                        assert all(not mine & theirs for mine, theirs in zip(slice_, came, strict=True))
                        slice_ = [mine | theirs for mine, theirs in zip(slice_, came, strict=True)]
                    else:
                        slice_ = came
                    buffers[rank][at : at + count] = slice_
                if cursor.flags & SENDS:
                    links[(rank + 1) % ranks].append(slice_)
                cursor.advance()
            assert moved, "the ring is stuck"
        assert links == [[] for _ in range(ranks)]
    return buffers


SIZES = [1, 15, 16, 17, 333, 64 * 5, 64 * 5 + 1, 1000]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_all_reduce_leaves_every_contribution_in_every_byte_of_every_rank(ranks: int, channels: int) -> None:
    for size in SIZES:
        everyone = frozenset(range(ranks))
        assert carry_out(ALL_REDUCE, ranks, size, channels) == [[everyone] * size] * ranks


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_all_gather_leaves_every_rank_s_block_everywhere(ranks: int, channels: int) -> None:
    for size in SIZES:
        block = -(-size // ranks)
        gathered = [frozenset({at // block}) for at in range(size)]
        assert carry_out(ALL_GATHER, ranks, size, channels) == [gathered] * ranks


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_reduce_scatter_leaves_the_sum_of_its_block_at_each_rank(ranks: int, channels: int) -> None:
    for size in SIZES:
        block = -(-size // ranks)
        buffers = carry_out(REDUCE_SCATTER, ranks, size, channels)
        for rank, buffer in enumerate(buffers):
            own = buffer[rank * block : (rank + 1) * block]
            assert own == [frozenset(range(ranks))] * len(own)


def walk(op: str, ranks: int, size: int, *, channels: int = 1, rank: int = 0) -> list[tuple[int, int]]:
    """(flags, bytes) of every slice of the first channel."""
    cursor = RingCursor(ranks, rank, channels, 0, 2 << 20, 1 << 20)
    cursor.begin(OPERATION_CODES[op], size)
    seen = []
    while not cursor.done:
        seen.append((int(cursor.flags), int(cursor.size_bytes)))
        cursor.advance()
    return seen


@pytest.mark.parametrize(
    ("op", "sends", "reductions"),
    [("all_reduce", 126, 63), ("reduce_scatter", 63, 63), ("all_gather", 63, 0)],
)
def test_a_rank_of_64_sends_126_or_63_slices_of_16_mib(op: str, sends: int, reductions: int) -> None:
    slices = walk(op, 64, 16 << 20)
    assert {size for _, size in slices} == {256 << 10}
    assert sum(1 for flags, _ in slices if flags & SENDS) == sends
    assert sum(1 for flags, _ in slices if flags & RECEIVES) == sends
    assert sum(1 for flags, _ in slices if flags & REDUCES) == reductions


def test_the_first_primitive_only_sends_and_the_last_only_receives() -> None:
    flags = [flags for flags, _ in walk("all_reduce", 4, 4096)]
    assert flags == [SENDS, *[RECEIVES | SENDS | REDUCES] * 2, 7, *[RECEIVES | SENDS] * 2, RECEIVES]


def test_a_large_size_takes_loops_of_chunks_of_two_slices() -> None:
    # Two ranks, chunks of 2 MiB: 9 MiB are two loops of 4 MiB and one whose chunks are 512 KiB.
    sizes = [size >> 10 for flags, size in walk("all_reduce", 2, 9 << 20) if flags & SENDS]
    assert sizes == [1024] * 4 + [1024] * 4 + [512] * 2


def test_chunks_are_rounded_up_to_16_bytes_and_the_last_are_short_or_empty() -> None:
    # 100 B among 4 ranks: 25 B each, rounded up to 32; the last chunk is 4 B. Rank 0 begins with chunk 3.
    assert [size for _, size in walk("all_reduce", 4, 100)] == [4, 32, 32, 32, 4, 32, 32]
    # 8 B: chunk 0 has it all, the others go round empty.
    assert [size for _, size in walk("all_reduce", 4, 8)] == [0, 0, 0, 8, 0, 0, 0]


def test_channels_share_and_the_last_may_have_nothing() -> None:
    assert walk("all_reduce", 2, 32, channels=4) == [(2, 0), (7, 8 + 8), (1, 0)]
    cursor = RingCursor(2, 0, 4, 3, 2 << 20, 1 << 20)
    cursor.begin(ALL_REDUCE, 32)
    assert cursor.done


@pytest.mark.parametrize(("ranks", "size"), [(1, 4096), (4, 0)])
def test_one_rank_or_no_bytes_is_nothing_to_do(ranks: int, size: int) -> None:
    assert walk("all_reduce", ranks, size) == []


def test_a_saved_cursor_goes_on_where_it_was() -> None:
    cursor, other = (RingCursor(5, 2, 2, 1, CHUNK_BYTES, SLICE_BYTES) for _ in range(2))
    cursor.begin(ALL_REDUCE, 3000)
    for _ in range(17):
        cursor.advance()
    other.load(cursor.save())
    while not cursor.done:
        assert (cursor.flags, cursor.chunk, cursor.size_bytes) == (other.flags, other.chunk, other.size_bytes)
        cursor.advance()
        other.advance()
    assert other.done
