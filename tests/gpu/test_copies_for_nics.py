"""Does a copy for a NIC pass its channel's thread block, and cost what its protocol does?"""

import pytest

from actors.gpu.gpu import CopyCosts, Gpu
from actors.kernel.kernel import Kernel
from actors.port.link import MessagePort
from actors.wire.message import (
    COPY_BLOCK,
    COPY_FLAGGED,
    COPY_FROM_NIC,
    COPY_KINDS,
    COPY_LINES,
    COPY_ORDERED,
    COPY_PLAIN,
    COPY_TO_NIC,
)
from tests.gpu.test_copy_engine import DELAY_PS, GPU, HOST, MESSAGE_PS, Listener, ask

US = 1_000_000
WAY_PS = MESSAGE_PS + DELAY_PS
TO_NIC = COPY_TO_NIC | COPY_BLOCK | COPY_ORDERED
COSTS = CopyCosts(
    simple_ps=2 * US,
    lines_ps=US,
    fence_ps=4 * US,
    flush_ps=8 * US,
    tail_ps=16 * US,
    head_ps=32 * US,
    block_rate_bps=8 * 10**9,
)
"""Each a power of two, so that a sum says what is in it; a block copies a GB/s."""


def fabric(costs: CopyCosts) -> tuple[Kernel, Listener, Gpu]:
    """A GPU beside what stands for its host."""
    kernel = Kernel(2)
    listener = Listener(HOST, kernel)
    link = MessagePort(kernel.queue, 512 * 10**9, DELAY_PS, HOST, 3, 0, None)
    gpu = Gpu(GPU, kernel.queue, link, 8 * 10**12, costs)
    kernel.add(listener)
    kernel.add(gpu)
    return kernel, listener, gpu


@pytest.mark.parametrize(
    ("kind", "us"),
    [
        (COPY_PLAIN, 2),
        (COPY_FLAGGED, 1),
        (COPY_LINES, 0),
        (COPY_PLAIN | COPY_TO_NIC, 2 + 4 + 16),
        (COPY_FLAGGED | COPY_TO_NIC, 1 + 4 + 16),
        (COPY_LINES | COPY_TO_NIC, 16),
        (COPY_PLAIN | COPY_FROM_NIC, 2 + 8 + 32),
        (COPY_FLAGGED | COPY_FROM_NIC, 1),
        (COPY_LINES | COPY_FROM_NIC, 32),
        (COPY_PLAIN | COPY_TO_NIC | COPY_FROM_NIC, 2 + 4 + 16 + 8 + 32),
    ],
)
def test_simple_pays_fence_flags_and_flush_ll128_no_flag_to_receive_and_ll_no_fence(
    kind: int, us: int
) -> None:
    assert COSTS.latencies[kind] == us * US


def test_a_block_copies_one_after_the_other_beside_those_of_other_channels() -> None:
    kernel, listener, gpu = fabric(COSTS)
    for at_ps, channel in ((0, 0), (1, 0), (2, 1)):
        ask(kernel, at_ps, channel, 100_000, TO_NIC)
    kernel.run(1 << 61, 100)
    # 100 kB at a GB/s take 100 us; 22 us of latency do not occupy the block.
    assert [(at, what[0]) for at, what in listener.heard] == [
        (122 * US + WAY_PS, 0),
        (122 * US + WAY_PS + MESSAGE_PS, 1),
        (222 * US + WAY_PS, 0),
    ]
    assert gpu.progress == 300_000


def test_blocks_of_one_channel_copy_side_by_side_where_each_peer_has_one() -> None:
    kernel, listener, _ = fabric(COSTS)
    for block in (0, 1):
        ask(kernel, block, 0, 100_000, TO_NIC + block * COPY_KINDS)
    kernel.run(1 << 61, 100)
    assert [at for at, _ in listener.heard] == [122 * US + WAY_PS, 122 * US + WAY_PS + MESSAGE_PS]


def test_lines_take_a_block_as_many_bytes_as_they_have_at_the_rate_of_lines() -> None:
    kernel, listener, _ = fabric(CopyCosts(block_rate_bps=8 * 10**9))
    ask(kernel, 0, 0, 15_000, TO_NIC | COPY_LINES)
    ask(kernel, 0, 1, 15_000, TO_NIC | COPY_FLAGGED)
    kernel.run(1 << 61, 100)
    # LL: 30,000 B at 5/8 of a GB/s; LL128: 16,000 B at 7/8.
    ll_ps, ll128_ps = 48 * US, 16_000 * 8 * US // 7_000
    assert [at - WAY_PS for at, _ in listener.heard] == pytest.approx([ll128_ps, ll_ps], abs=1_000)


def test_answers_of_a_block_leave_in_the_order_of_its_copies() -> None:
    kernel, listener, _ = fabric(COSTS)
    ask(kernel, 0, 0, 1_000, COPY_PLAIN | COPY_FROM_NIC | TO_NIC)
    ask(kernel, 1, 0, 1_000, COPY_PLAIN | TO_NIC)
    kernel.run(1 << 61, 100)
    first, second = (at for at, _ in listener.heard)
    assert first == (1 + 62) * US + WAY_PS
    assert first < second < first + US


def test_without_gpudirect_all_blocks_share_host_memory_and_each_copy_has_a_flag_more() -> None:
    costs = CopyCosts(tail_ps=US, head_ps=2 * US, staged_bps=8 * 10**9)
    assert costs.latencies[COPY_PLAIN | COPY_TO_NIC] == 2 * US
    assert costs.latencies[COPY_PLAIN | COPY_FROM_NIC] == 4 * US
    kernel, listener, _ = fabric(costs)
    for channel in (0, 1):
        ask(kernel, 0, channel, 10_000, TO_NIC)
    kernel.run(1 << 61, 100)
    assert [at for at, _ in listener.heard] == [12 * US + WAY_PS, 22 * US + WAY_PS]


def test_a_snapshot_between_keeps_what_blocks_have_to_answer() -> None:
    kernel, listener, gpu = fabric(COSTS)
    ask(kernel, 0, 0, 100_000, TO_NIC)
    ask(kernel, 1, 0, 100_000, TO_NIC)
    kernel.run(50 * US, 100)
    other = fabric(COSTS)
    other[2].load(gpu.save())
    assert [(line.free_ps, line.due_ps, len(line.line)) for line in other[2].lines] == [
        ([200 * US], 222 * US, 2)
    ]
    assert not listener.heard
