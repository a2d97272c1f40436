"""Does one channel carry min(line, slots x size / T), whatever the round trip?

T = size / line + data one way + completion + copy out + recycle + CTS one way. Four links of 400G (20 ps a
byte) between two GPUs, no latency in NICs and switches, so the round trip is eight times a link's delay. The
stream is a broadcast between two ranks; its throughput is that between a short and a long one.
"""

from typing import Any

import pytest

from emu import api

SIZE = 64 * 1024
# 16 packets of 4,096 B: 4,178 B on the wire, and once RETH (16 B) and once ImmDt (4 B).
SLICE_WIRE = 16 * 4_178 + 16 + 4
PS_PER_BYTE = 20
HOST_MESSAGE_PS = 250_000 + 1_250
"""250 ns, and 64 B at 409.6 Gbit/s."""
COPY_PS = 22_000
"""64 KiB at 24 Tbit/s, in whole ns."""


def throughput_bps(slots: int, delay_ns: int, **ncclx: Any) -> float:
    sizes = [f"{SIZE * slots * loops}B" for loops in (2, 12)]
    given = {
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
        "host": {"link_delay": "250ns", "link_rate": "409.6G"},
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
                "workload": {"kind": "collective", "op": "broadcast", "algorithm": "direct", "sizes": sizes},
            }
        ],
    }
    rows = api.run(given, local=True).summary.jobs["a"].collectives
    short, long = ((row.end_ps or 0) - (row.start_ps or 0) for row in rows)
    return SIZE * slots * 10 * 8e12 / (long - short)


def law_bps(slots: int, delay_ns: int) -> float:
    line_ps = SLICE_WIRE * PS_PER_BYTE
    one_way = 4 * delay_ns * 1_000
    data = 3 * (4_178 + 4) * PS_PER_BYTE + one_way
    completion = HOST_MESSAGE_PS
    copy_out = 2 * HOST_MESSAGE_PS + COPY_PS
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


def test_the_sweep_covers_both_sides_of_the_law() -> None:
    line_bps = SIZE * 8e12 / (SLICE_WIRE * PS_PER_BYTE)
    assert law_bps(8, 625) == line_bps
    assert law_bps(8, 6_250) < line_bps / 3
