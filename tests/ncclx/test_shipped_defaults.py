"""What do collectives do when a scenario sets nothing: inside a server, and over servers without collisions?

The measures come from outside: NCCL 2.30's constants (`src/graph/topo.h`, `search.cc`, `tuning.cc`), what
NVIDIA published of a server of eight H100 (370 GB/s of busbw for a ring, 480 for NVLS), and a run of NCCL
2.30.7's own ring on one H100, whose ranks shared the GPU, so that thread blocks alone limit a channel.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import pytest

from actors.ncclx.operations import ALGORITHMS
from actors.ncclx.settings import nvlink_channels, nvls_channels
from actors.ncclx.tuner import Rates, Shape
from emu.api import run
from emu.cli.commands.perf import FABRIC
from emu.results.summary import Collective, Summary
from emu.workload.nccl_tuning import nccl_choice
from tests.conftest import SOAK

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GBYTES: Final = 8 * 10**9


def summary_of(workload: dict[str, Any], servers: int = 1, gpus: int = 8, **sections: Any) -> Summary:
    topology = {"kind": "star", "hosts": 1, "gpus_per_host": gpus}
    if servers > 1:
        rails = {"hosts_per_block": servers, "gpus_per_host": gpus, "aggs_per_pod": gpus}
        topology = {**dict(FABRIC["topology"]), **rails}  # type: ignore[call-overload]
    job = {"name": "perf", "ranks": "all", "workload": workload}
    scenario = {"name": "defaults", "topology": topology, "jobs": [job], **sections}
    return run(scenario, local=True, diagnose=False).summary


def rows_of(
    sizes: list[int],
    servers: int = 1,
    gpus: int = 8,
    op: str = "all_reduce",
    algorithm: str = "auto",
    **ncclx: Any,
) -> list[Collective]:
    workload = {
        "kind": "collective",
        "op": op,
        "algorithm": algorithm,
        "sizes": [f"{size}B" for size in sizes],
    }
    return summary_of(workload, servers, gpus, ncclx=ncclx).jobs["perf"].collectives


def took_ps(row: Collective) -> int:
    assert row.start_ps is not None
    assert row.end_ps is not None
    return row.end_ps - row.start_ps


def gbytes(row: Collective) -> float:
    assert row.busbw is not None
    return row.busbw / GBYTES


# ---- channels


@pytest.mark.parametrize(
    ("nvlink_gbytes", "channels"),
    [(6 * 20.0, 12), (12 * 20.0, 24), (8 * 20.6, 16), (18 * 20.6, 24), (18 * 40.1, 32)],
    ids=["V100", "A100", "H800", "H100", "B200"],
)
def test_a_server_has_as_many_channels_as_nccl_s_search_finds(nvlink_gbytes: float, channels: int) -> None:
    """NCCL prints 24 for A100 and H100 (issues 1225 and 1781 of NVIDIA/nccl); the others by its rule."""
    assert nvlink_channels(round(nvlink_gbytes * GBYTES)) == channels


def test_nvls_has_16_channels_on_hopper_and_24_on_blackwell() -> None:
    assert nvls_channels(24, round(370.8 * GBYTES)) == 16
    assert nvls_channels(32, round(721.8 * GBYTES)) == 24
    assert nvls_channels(4, round(370.8 * GBYTES)) == 4


MEASURED: Final = {
    ("simple", 2): 22.27,
    ("simple", 4): 26.36,
    ("ll128", 2): 16.78,
    ("ll128", 4): 19.99,
    ("ll", 2): 5.60,
    ("ll", 4): 6.84,
}
"""Busbw of a ring all_reduce of 256 MiB on one channel, GB/s, by protocol and ranks: NCCL 2.30.7, an H100."""


@pytest.mark.parametrize(("protocol", "ranks"), MEASURED)
def test_a_channel_in_a_server_moves_what_one_of_nccl_s_does(protocol: str, ranks: int) -> None:
    """One rate stands for two ranks and for four, between which NCCL's differ by a fifth."""
    (row,) = rows_of([2 * MIB], gpus=ranks, algorithm="ring", channels=1, protocol=protocol)
    assert gbytes(row) == pytest.approx(MEASURED[protocol, ranks], rel=0.12)


def test_busbw_grows_with_channels_until_the_nvlinks_are_full() -> None:
    """24 GB/s a channel; 370.8 GB/s of NVLink are full with 16, and NCCL has 24."""
    found = [
        gbytes(rows_of([32 * MIB], algorithm="ring", channels=channels, protocol="simple")[0])
        for channels in (1, 2, 4, 8, 16, 24)
    ]
    assert found == sorted(found)
    for busbw, channels in zip(found[:4], (1, 2, 4, 8), strict=True):
        assert busbw == pytest.approx(24 * channels, rel=0.1)
    assert all(330 < busbw < 370.8 for busbw in found[4:])


# ---- rates inside a server


MOST: Final = {"ring": 370.8, "double_binary_tree": 370.8, "nvls": 490.3}
"""GB/s of busbw: what NVLinks carry, and 2 x 7 / 9 x 0.85 of it with NVLS (480 are published)."""


@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"]
)
def test_no_default_of_a_server_is_faster_than_its_nvlinks(op: str) -> None:
    for row in rows_of([64 * KIB, MIB, 16 * MIB], op=op):
        assert 0 < gbytes(row) < MOST.get(row.algorithm, 370.8), row


# ---- time by size


FIXED: Final = (
    *((1, "ring", protocol) for protocol in ("simple", "ll128", "ll")),
    *((1, "double_binary_tree", protocol) for protocol in ("simple", "ll128", "ll")),
    (1, "nvls", "simple"),
    (1, "direct", "simple"),
    (2, "ring", "simple"),
    (2, "double_binary_tree", "ll128"),
    (2, "nvls_tree", "simple"),
    (2, "hierarchical", "simple"),
)
"""Servers of four GPUs, algorithm, protocol."""
FOUR_SIZES: Final = [8, 64 * KIB, 512 * KIB, 2 * MIB]
EVERY_SIZE: Final = [8 << power for power in range(28)]
"""8 B to 1 GiB."""


FIXED_CHANNELS: Final = {"model": "hops"}
"""NCCL's table takes fewer channels for few bytes, of an algorithm and a protocol that are given, too."""


def falls(rows: list[Collective]) -> list[tuple[int, int, int, int]]:
    """Sizes, and times in ps, where the larger one takes less."""
    return [
        (small.bytes, large.bytes, took_ps(small), took_ps(large))
        for small, large in pairwise(rows)
        if took_ps(large) < took_ps(small)
    ]


@pytest.mark.parametrize(("servers", "algorithm", "protocol"), FIXED)
def test_time_does_not_fall_as_size_grows(servers: int, algorithm: str, protocol: str) -> None:
    """With algorithm, protocol, channels and routing fixed, and nobody else's packets in the way."""
    rows = rows_of(
        FOUR_SIZES, servers, 4, algorithm=algorithm, protocol=protocol, channels=4, tuner=FIXED_CHANNELS
    )
    assert falls(rows) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("servers", [1, 2, 8])
@pytest.mark.parametrize("protocol", ["simple", "ll128", "ll"])
@pytest.mark.parametrize("algorithm", [name for name, able in ALGORITHMS.items() if "all_reduce" in able])
def test_time_does_not_fall_from_8_bytes_to_1_gib(algorithm: str, protocol: str, servers: int) -> None:
    if algorithm in ("nvls", "nvls_tree") and (
        protocol != "simple" or (algorithm == "nvls") != (servers == 1)
    ):
        pytest.skip("NCCL has no such thing")
    rows = rows_of(
        EVERY_SIZE, servers, 8, algorithm=algorithm, protocol=protocol, channels=8, tuner=FIXED_CHANNELS
    )
    every_channel = 16 * 8 * 8 * servers  # with less than 16 B for each rank, some channels have nothing
    found = [fall for fall in falls(rows) if fall[1] > every_channel or fall[3] < 0.998 * fall[2]]
    assert found == []


TUNED: Final = EVERY_SIZE if SOAK else [8, 32 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("servers", [1, 2, 8] if SOAK else [1, 2])
def test_time_falls_only_where_nccl_s_formula_goes_over_to_something_else(servers: int) -> None:
    rows = rows_of(TUNED, servers)
    shape = Shape(8 * servers, 8, 0 if servers == 1 else servers, 24 if servers == 1 else 16)
    choices = {
        size: nccl_choice("all_reduce", shape, size, Rates(400 * 10**9, 2_966_400_000_000), nvls=True)
        for size in TUNED
    }
    for row in rows:
        choice = choices[row.bytes]
        assert choice is not None
        assert row.algorithm == choice.algorithm
    for small, large, *_ in falls(rows):
        assert choices[small] != choices[large], (small, large)


# ---- shares


@pytest.mark.parametrize(
    "workload",
    [
        {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]},
        {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"]},
        {
            "kind": "flows",
            "flows": [{"src": rank, "dst": (rank + 4) % 8, "size": "1MiB"} for rank in range(8)],
        },
    ],
    ids=["all_reduce", "all_to_all", "flows"],
)
def test_no_link_carries_more_than_its_rate(workload: dict[str, Any]) -> None:
    """Shares are as they were counted: nothing cuts them off at 1."""
    fabric = summary_of(workload, 2, 4).fabric
    assert fabric.links
    for link in fabric.links:
        assert link.utilisation is not None
        assert link.paused is not None
        assert 0 <= link.utilisation <= 1, link
        assert 0 <= link.paused <= 1, link
