"""Does one channel carry min(line, slots x size / T), whatever the round trip?

T = size / line + data one way + completion + copy out + recycle + CTS one way. Four links of 400G (20 ps a
byte) between two GPUs, no latency in NICs and switches, so the round trip is eight times a link's delay. The
stream is a broadcast between two ranks; its throughput is that between a short and a long one.
"""

from typing import Any

import pytest

from emu import api
from tests.scenario.plain import plain

SIZE = 64 * 1024
# 16 packets of 4,096 B: 4,178 B on the wire, and once RETH (16 B) and once ImmDt (4 B).
SLICE_WIRE = 16 * 4_178 + 16 + 4
PS_PER_BYTE = 20
HOST_MESSAGE_PS = 250_000 + 1_250
"""250 ns, and 64 B at 409.6 Gbit/s."""
COPY_PS = 22_000
"""64 KiB at 24 Tbit/s, in whole ns."""


def throughput_bps(
    slots: int,
    delay_ns: int,
    op: str = "broadcast",
    host: dict[str, str] | None = None,
    gpu: dict[str, str] | None = None,
    **ncclx: Any,
) -> float:
    blocks = 1 if op == "broadcast" else 2
    sizes = [f"{SIZE * slots * loops * blocks}B" for loops in (2, 12)]
    given = plain(
        {
            "name": "law",
            "topology": {
                "kind": "ai_zone",
                "racks": 2,
                "hosts_per_rack": 1,
                "gpus_per_host": 1,
                "spines": 1,
                "nic_delay": f"{delay_ns}ns",
                "uplink_delay": f"{delay_ns}ns",
            },
            "switch": {"latency": "0ns"},
            "nic": {"latency": "0ns"},
            "host": {"link_delay": "250ns", "link_rate": "409.6G"} | (host or {}),
            "gpu": gpu or {},
            "ncclx": {
                "buffsize": f"{slots * SIZE}B",
                "steps": slots,
                "chunk_steps": 1,
                "slice_steps": 1,
                **ncclx,
            },
            "jobs": [
                {
                    "name": "a",
                    "workload": {"kind": "collective", "op": op, "algorithm": "direct", "sizes": sizes},
                }
            ],
        }
    )
    rows = api.run(given, local=True).summary.jobs["a"].collectives
    short, long = ((row.end_ps or 0) - (row.start_ps or 0) for row in rows)
    return SIZE * slots * 10 * 8e12 / (long - short)


def law_bps(slots: int, delay_ns: int, *, copied: bool = True) -> float:
    line_ps = SLICE_WIRE * PS_PER_BYTE
    one_way = 4 * delay_ns * 1_000
    data = 3 * (4_178 + 4) * PS_PER_BYTE + one_way
    completion = HOST_MESSAGE_PS
    copy_out = 2 * HOST_MESSAGE_PS + COPY_PS if copied else 0
    recycle = HOST_MESSAGE_PS
    cts = 4 * 166 * PS_PER_BYTE + one_way + HOST_MESSAGE_PS
    post = HOST_MESSAGE_PS
    total = line_ps + data + completion + copy_out + recycle + cts + post
    return min(SIZE * 8e12 / line_ps, slots * SIZE * 8e12 / total)


@pytest.mark.parametrize("round_trip_us", [5, 10, 20, 50])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_channel_carries_slots_times_size_per_round(slots: int, round_trip_us: int) -> None:
    delay_ns = round_trip_us * 1_000 // 8
    expected = law_bps(slots, delay_ns)
    assert abs(throughput_bps(slots, delay_ns) - expected) <= expected * 2 / 100


@pytest.mark.parametrize("round_trip_us", [5, 10, 20, 50])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_zero_copy_takes_the_copies_out_of_the_law(slots: int, round_trip_us: int) -> None:
    delay_ns = round_trip_us * 1_000 // 8
    expected = law_bps(slots, delay_ns, copied=False)
    assert abs(throughput_bps(slots, delay_ns, zero_copy=True) - expected) <= expected * 2 / 100


@pytest.mark.parametrize("round_trip_us", [10, 50])
def test_a_round_has_four_operations_of_proxies(round_trip_us: int) -> None:
    # At the receiver the completion and the CTS's post, at the sender the CTS's completion and the post.
    delay_ns = round_trip_us * 1_000 // 8
    round_ps = SIZE * 8e12 / law_bps(1, delay_ns)
    expected = SIZE * 8e12 / (round_ps + 4 * 1_500_000)
    measured = throughput_bps(1, delay_ns, host={"proxy_cost": "1.5us"})
    assert abs(measured - expected) <= expected * 2 / 100


@pytest.mark.parametrize("channels", [1, 2])
def test_the_channels_of_a_rank_share_its_proxy(channels: int) -> None:
    # Three operations for each slice at either end: completion of the CTS, post, and the WRITE's completion;
    # completion of the data, the CTS's post, and its completion.
    expected = SIZE * 8e12 / (3 * 4_000_000)
    measured = throughput_bps(8, 625, host={"proxy_cost": "4us"}, channels=channels)
    assert abs(measured - expected) <= expected * 2 / 100


@pytest.mark.parametrize("channels", [1, 2])
def test_the_channels_of_a_gpu_share_its_memory(channels: int) -> None:
    measured = throughput_bps(8, 625, gpu={"copy_rate": "100G"}, channels=channels)
    assert abs(measured - 100e9) <= 2e9
    # With zero-copy nothing is copied.
    assert throughput_bps(8, 625, gpu={"copy_rate": "100G"}, channels=channels, zero_copy=True) > 380e9


@pytest.mark.parametrize("round_trip_us", [20, 50])
@pytest.mark.parametrize("op", ["scatter", "gather"])
def test_sends_and_receives_have_a_slot_of_the_p2p_chunk_for_each_step(op: str, round_trip_us: int) -> None:
    delay_ns = round_trip_us * 1_000 // 8
    buffer: dict[str, Any] = {
        "buffsize": "4MiB",
        "steps": 8,
        "chunk_steps": 4,
        "slice_steps": 2,
        "p2p_chunk": "64KiB",
    }
    expected = law_bps(8, delay_ns)
    assert abs(throughput_bps(8, delay_ns, op, **buffer) - expected) <= expected * 2 / 100
    # What is no send and receive keeps its four slots of 1 MiB, which fill the line.
    line = throughput_bps(8, delay_ns, "broadcast", **buffer)
    assert line == throughput_bps(8, delay_ns, "broadcast", **{**buffer, "p2p_chunk": "auto"})
    assert line > 2 * expected


def time_ps(op: str, algorithm: str, **ncclx: Any) -> int:
    """Of 64 KiB over four hosts around a switch."""
    given = plain(
        {
            "name": "zero_copy",
            "topology": {"kind": "star", "hosts": 4},
            "host": {"link_delay": "250ns", "link_rate": "409.6G"},
            "ncclx": ncclx,
            "jobs": [
                {
                    "name": "a",
                    "workload": {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": ["256KiB"]},
                }
            ],
        }
    )
    (row,) = api.run(given, local=True).summary.jobs["a"].collectives
    assert row.end_ps is not None
    assert row.start_ps is not None
    return row.end_ps - row.start_ps


def test_a_ring_saves_a_copy_for_each_step_that_reduces_nothing() -> None:
    copy_ps = 2 * HOST_MESSAGE_PS + COPY_PS
    # Out of three steps; the copy in goes on while the first clear-to-send is under way.
    for op in ("all_gather", "all_reduce"):
        saved = time_ps(op, "ring") - time_ps(op, "ring", zero_copy=True)
        assert saved == pytest.approx(3 * copy_ps, rel=0.02), op


def test_every_algorithm_ends_with_zero_copy_and_none_later() -> None:
    pairs = [
        ("all_reduce", "halving_doubling"),
        ("all_reduce", "double_binary_tree"),
        ("all_reduce", "recursive_doubling"),
        ("all_gather", "bruck"),
        ("all_to_all", "direct"),
        ("all_to_all", "bruck"),
        ("reduce_scatter", "direct"),
        ("broadcast", "double_binary_tree"),
    ]
    for op, algorithm in pairs:
        with_copies = time_ps(op, algorithm, channels=2)
        assert time_ps(op, algorithm, zero_copy=True, channels=2) <= with_copies, (op, algorithm)


def test_the_sweep_covers_both_sides_of_the_law() -> None:
    line_bps = SIZE * 8e12 / (SLICE_WIRE * PS_PER_BYTE)
    assert law_bps(8, 625) == line_bps
    assert law_bps(8, 6_250) < line_bps / 3
