"""Does a ring all_reduce take as long as in simulators that others wrote?

Five independent simulators of lossless RoCE (csg-htsim, uet-htsim, three ns-3 RDMA simulators), measured side
by side on `tests.agreement.leaf_spine`, need 972-984 us for a flat ring all_reduce of 16 MiB over 64 ranks,
and 1,280-1,296 us over 128.

They begin a step when the one before is *completed*: when its last ACK is back at its sender. So a chunk goes
round in 2(n - 1) times the mean, over the ring's links, of the completed time of one WRITE of S/n, with all
ranks sending at once; seven of eight of those stay within a leaf, one crosses the spines. Our links, switches
and NICs are held to the others' figures that way, with plain flows.

Our library does what NCCL does: a rank forwards a chunk when it was *delivered*. That is earlier by the last
ACK's way back, 1.0 us within a leaf and 2.0 us across the spines, so its own rings are shorter: 845.7 us and
1,009.4 us. They are held to a sum that is written out below.
"""

from fractions import Fraction
from statistics import mean

import pytest

import emu
from emu.results.summary import Flow
from tests.agreement.leaf_spine import run
from tests.summary.known import known

US = 1_000_000
BYTE_PS = 20
"""At 400 Gbit/s."""
MIDDLE, FIRST, LAST_WITH_IMMEDIATE = 4_178, 4_194, 4_182
"""Wire sizes of 4,096 B of payload: 82 B of headers; 16 of RETH on the first, 4 of immediate on the last."""
CTS, ACK = 166, 86
HOST_MESSAGE_PS = 1_006


def took_ps(flow: Flow, end_ps: int | None) -> int:
    """From posting to the end."""
    assert flow.start_ps is not None and end_ps is not None, flow  # noqa: PT018 - one fact
    return end_ps - flow.start_ps


@pytest.mark.parametrize(
    ("ranks", "size", "least_us", "most_us"), [(64, "256KiB", 972, 984), (128, "128KiB", 1280, 1296)]
)
def test_ring_of_completed_steps_takes_what_independent_simulators_say(
    ranks: int, size: str, least_us: int, most_us: int
) -> None:
    to_the_next = [{"src": rank, "dst": (rank + 1) % ranks, "size": size} for rank in range(ranks)]
    result = run(ranks, {"kind": "flows", "flows": to_the_next})
    flows = result.summary.jobs["job"].flows
    completed_us = 2 * (ranks - 1) * mean(took_ps(flow, flow.completed_ps) for flow in flows) / US
    assert least_us * 0.99 <= completed_us <= most_us * 1.01
    # What our library does without: the way back of the last ACK (86 B, on two or four links of 500 ns).
    backwards = {took_ps(flow, flow.completed_ps) - took_ps(flow, flow.delivered_ps) for flow in flows}
    within, across = 2 * (ACK * BYTE_PS + 500_000), 4 * (ACK * BYTE_PS + 500_000)
    assert min(backwards) == pytest.approx(within, abs=2 * HOST_MESSAGE_PS + 30_000)
    assert max(backwards) == pytest.approx(across, abs=2 * HOST_MESSAGE_PS + 30_000)


def ring_ps(ranks: int) -> Fraction:
    """What a chunk of 16 MiB needs for its way round, steps beginning on delivery; the slowest chunk's way.

    Every step sends a slice of S/n and, between its packets, an ACK for each packet that comes in, a CTS and
    the ACK of one. Every step is a message to the NIC, one from it, one to the GPU and one from it, and a
    copy at 9,000 Tbit/s. Of 2n links in two rounds two are missing, and the slowest chunk misses none that
    crosses the spines: one link in eight.
    """
    packets = 4_096 // ranks
    slice_ps = (FIRST + (packets - 2) * MIDDLE + LAST_WITH_IMMEDIATE) * BYTE_PS
    between_ps = (packets * ACK + CTS + ACK) * BYTE_PS
    host_ps = 4 * HOST_MESSAGE_PS + Fraction(packets * 4_096 * 8 * US, 9_000 * US)
    within_ps = LAST_WITH_IMMEDIATE * BYTE_PS + 2 * 500_000
    across_ps = 3 * LAST_WITH_IMMEDIATE * BYTE_PS + 4 * 500_000
    first_cts_ps = 4 * (CTS * BYTE_PS + 500_000)
    crossing = 2 * ranks // 8
    steps = 2 * (ranks - 1)
    return (
        first_cts_ps
        + steps * (slice_ps + between_ps + host_ps)
        + crossing * across_ps
        + (steps - crossing) * within_ps
    )


@pytest.mark.skipif(not emu.is_compiled(), reason="seven million packet-hops take a minute interpreted")
@pytest.mark.parametrize("ranks", [64, 128])
def test_ring_of_the_library_takes_what_its_packets_and_links_add_up_to(ranks: int) -> None:
    result = run(ranks, {"kind": "collective", "op": "all_reduce", "sizes": ["16MiB"]})
    (row,) = result.summary.jobs["job"].collectives
    assert row.start_ps is not None
    assert row.end_ps is not None
    assert row.end_ps - row.start_ps == pytest.approx(float(ring_ps(ranks)), rel=0.002)
    assert known(result.summary.drops).total == 0
