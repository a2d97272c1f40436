"""Has `emu perf all_reduce -b 8 -e 8G` over 64 GPUs on 8 servers the shape that NCCL gives it?

The measure is NCCL 2.30's own table (`src/graph/tuning.cc`, worked by hand in
`tests/workload/test_nccl_tuning.py`), by which it expects 6.8 + 2 (7 x 0.6 + 3 x 5.0) = 45.2 us of the
smallest sizes (a tree with LL), 82.5 us and more of a tree with LL128, 150.4 us and 364 GB/s of busbw (8
heads of 45.5) of trees of NVSwitches, 819 us and 400 GB/s of a ring; and the line: each byte goes up and down
the 7 edges of a tree of 8 servers, 2 x 7 S / 8 a server and an eighth of that by each of its NICs, as 4,096 B
of payload in 4,178 B on a wire of 400G. A ring has as much to carry.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest

import emu
from actors.ncclx.tuner import Rates, Shape
from emu.api import run
from emu.cli.commands.perf import FABRIC
from emu.workload.nccl_tuning import _NAMES, Choice, _nccl_us, nccl_choice

pytestmark = pytest.mark.long

RATES: Final = Rates(400 * 10**9, 2_966_400_000_000)
SERVERS: Final = Shape(64, 8, 8, 16)
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

compiled_only = pytest.mark.skipif(
    not emu.is_compiled(), reason="five million packet-hops take minutes interpreted"
)


def choice(size: int) -> Choice:
    found = nccl_choice("all_reduce", SERVERS, size, RATES, nvls=True)
    assert found is not None
    return found


def expected_us(size: int) -> float:
    """What NCCL's table expects of its choice."""
    best = choice(size)
    place = _NAMES.index(best.protocol)
    time_us = _nccl_us(best.algorithm, place, "all_reduce", SERVERS, size, RATES, nvls=True)
    assert time_us is not None
    return time_us


def line_us(size: int) -> float:
    """What the busiest NIC needs to send its share of the trees."""
    return 2 * 7 * size / 8 / 8 * 4178 / 4096 * 8 / 400e3


def scanned(*sizes: int) -> dict[int, float]:
    """Time of each size in us, as a default `emu perf` has it."""
    workload = {"kind": "collective", "op": "all_reduce", "sizes": [f"{size}B" for size in sizes]}
    scenario = {**FABRIC, "jobs": [{"name": "perf", "ranks": "all", "workload": workload}]}
    rows = run(scenario, local=True, diagnose=False).summary.jobs["perf"].collectives
    found = {}
    for row in rows:
        assert row.start_ps is not None
        assert row.end_ps is not None
        assert row.algorithm == choice(row.bytes).algorithm
        found[row.bytes] = (row.end_ps - row.start_ps) / 1e6
    return found


def test_the_scan_has_its_knees_where_nccl_s_table_has_them() -> None:
    """LL to 128 KiB, LL128 to 8 MiB, NVSwitches to 1 GiB, then a ring; channels grow with the size."""
    chosen = {size: choice(size) for size in (8 << power for power in range(31))}
    ways = [(one.algorithm, one.protocol) for one in chosen.values()]
    assert list(dict.fromkeys(ways)) == [
        ("double_binary_tree", "ll"),
        ("double_binary_tree", "ll128"),
        ("nvls_tree", "simple"),
        ("ring", "simple"),
    ]
    knees = [large for small, large in pairwise(chosen) if chosen[small][:2] != chosen[large][:2]]
    assert knees == [256 * KIB, 16 * MIB, 2 * GIB]
    channels = [one.channels for one in chosen.values()]
    assert channels == sorted(channels)
    assert (channels[0], channels[-1]) == (1, 16)


@compiled_only
def test_a_scan_to_256_mib_has_a_floor_knees_and_a_plateau() -> None:
    took_us = scanned(8, 32 * KIB, 512 * KIB, 32 * MIB, 256 * MIB)
    for size, time_us in took_us.items():
        assert 0.5 < time_us / expected_us(size) < 1.2, size
    floor_us = took_us[8]
    assert took_us[32 * KIB] / floor_us == pytest.approx(expected_us(32 * KIB) / expected_us(8), rel=0.1)
    rates = [size / time_us for size, time_us in took_us.items()]
    assert rates == sorted(rates)
    assert 0.7 < line_us(256 * MIB) / took_us[256 * MIB] < 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@compiled_only
def test_a_scan_to_8_gib_ends_on_the_plateau() -> None:
    took_us = scanned(8 * MIB, 128 * MIB, GIB, 8 * GIB)
    for size, time_us in took_us.items():
        assert 0.6 < time_us / expected_us(size) < 1.2, size
    assert took_us[8 * GIB] / expected_us(8 * GIB) < 1.1
    reached = [line_us(size) / took_us[size] for size in (128 * MIB, GIB, 8 * GIB)]
    assert reached == sorted(reached)
    assert 0.8 < reached[-1] < 1
