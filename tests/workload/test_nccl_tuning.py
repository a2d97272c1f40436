"""Does `protocol: auto` choose what the table in NCCL 2.30, `src/graph/tuning.cc`, does?

`nccl_choices.csv` has what NCCL 2.30.7 itself chose: `ncclTopoTuneModel`, `ncclTopoGetAlgoTime` and
`topoGetAlgoInfo` of its sources, compiled by themselves and called with graphs of as many channels and as
much bandwidth as here (`channels` are those of the communicator, half of them are in the graph).
A row lists the powers of two from which on something else is chosen, from 8 B to 1 GiB.
"""

import csv
from pathlib import Path
from typing import Final

import pytest

from actors.ncclx.tuner import Rates, Shape
from emu.workload.nccl_tuning import Choice, Processors, _nccl_us, nccl_choice

RATES = Rates(400 * 10**9, 2_966_400_000_000)
CHOICES: Final = Path(__file__).with_name("nccl_choices.csv")
NVLINK_BPS: Final = {"hopper": 2_966_400_000_000, "blackwell": 5_774_400_000_000, "ampere": 1_920_000_000_000}
SERVERS = Shape(64, 8, 8, 16)
"""64 GPUs on 8 servers with a NIC for each, 16 channels."""


@pytest.mark.parametrize(
    ("algorithm", "protocol", "size", "time_us"),
    [
        # 6.8 + 2 (7 x 0.6 + 3 x 5.0) = 45.2; 64 B at min(400 x .92, 16 x 36) / 3.8 = 20.4 GB/s, halved
        ("double_binary_tree", 0, 64, 45.2 + 64 / 10200),
        # 6.6 + 112 x 1.0 (a post) + 14 x 2.7; 20.4 GB/s x 64 / 126
        ("ring", 0, 64, 6.6 + 112 + 37.8 + 64 / (20400 * 64 / 126)),
        # (8.4 + 112 x 3.4 + 14 x 14) x 1.4; 400 GB/s x 64 / 126
        ("ring", 2, 64 << 20, 585.2 * 1.4 + (64 << 20) / (400e3 * 64 / 126)),
        # 25 + 2 x 3 x 20.9; 8 heads of 45.5 GB/s are less than 400 and than 8 x 40 x .85 x 2 x 7 / 8 = 476
        ("nvls_tree", 2, 64 << 20, 150.4 + (64 << 20) / (364e3 * 64 / 126)),
    ],
)
def test_a_row_of_the_table(algorithm: str, protocol: int, size: int, time_us: float) -> None:
    found = _nccl_us(algorithm, protocol, "all_reduce", SERVERS, size, RATES, nvls=True)
    assert found == pytest.approx(time_us, rel=1e-9)


@pytest.mark.parametrize(
    ("nvlink_gbytes", "nvls_gbytes"),
    [
        # 40 GB/s is NCCL's highest speed that fits nine times: 2 x 8 x 40 x .85 x 7 / 8; published: 480
        (370.8, 476),
        # 80: 2 x 8 x 80 x .74 x 7 / 8; published: 811
        (721.8, 828.8),
    ],
    ids=["H100", "B200"],
)
def test_nvls_of_a_server_has_the_bandwidth_that_nccl_gives_eight_heads(
    nvlink_gbytes: float, nvls_gbytes: float
) -> None:
    """What the links carry, S (1 + 1/8) at the efficiency, comes to what the list of speeds rounds down."""
    server, size = Shape(8, 8, 0, 16), 8 << 30
    rates = RATES._replace(nvlink_bps=round(nvlink_gbytes * 8e9))
    found = _nccl_us("nvls", 2, "all_reduce", server, size, rates, nvls=True)
    assert found is not None
    assert size / 1e3 / (found - 25) * 14 / 8 == pytest.approx(nvls_gbytes)
    efficiency = 0.85 if nvlink_gbytes < 600 else 0.74
    assert 0.95 < nvls_gbytes / (2 * 7 / 9 * efficiency * nvlink_gbytes) <= 1
    ring = _nccl_us("ring", 2, "all_reduce", server, size, rates, nvls=True)
    assert ring is not None
    assert size / 1e3 / ring * 14 / 8 == pytest.approx(nvlink_gbytes, rel=0.01)


def test_small_sizes_take_a_tree_with_ll_on_one_channel_and_large_ones_nvls() -> None:
    chosen = {
        size: nccl_choice("all_reduce", SERVERS, size, RATES, nvls=True) for size in (8, 1 << 20, 64 << 20)
    }
    assert chosen[8] == Choice("double_binary_tree", "ll", 1)
    assert chosen[1 << 20] == Choice("double_binary_tree", "ll128", 16)
    assert chosen[64 << 20] == Choice("nvls_tree", "simple", 16)
    assert nccl_choice("all_to_all", SERVERS, 8, RATES, nvls=True) is None


def test_every_choice_is_nccl_s_own() -> None:
    """295 shapes and operations of 28 sizes."""
    with CHOICES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 295
    for row in rows:
        servers, inside, channels = (int(row[key]) for key in ("servers", "inside", "channels"))
        shape = Shape(servers * inside, inside, 0 if servers == 1 else servers, channels)
        rates = Rates(int(row["nic_gbps"]) * 10**9, NVLINK_BPS[row["gpu"]])
        processors = Processors(row["gpu"] if row["gpu"] == "ampere" else "auto", row["cpu"])
        theirs = dict(one.split(":") for one in row["choices"].split())
        expected = ""
        for power in range(3, 31):
            expected = theirs.get(str(power), expected)
            ours = nccl_choice(row["op"], shape, 1 << power, rates, inside > 1, processors=processors)
            assert ours is not None
            assert "/".join(map(str, ours)) == expected, (row, power)


def test_one_gpu_a_server_gathers_by_pat_and_nobody_else() -> None:
    flat = Shape(16, 1, 16, 2)
    assert nccl_choice("all_gather", flat, 1 << 20, RATES, nvls=False) == Choice("pat", "simple", 2)
    servers = nccl_choice("all_gather", SERVERS, 1 << 20, RATES, nvls=True)
    assert servers is not None
    assert servers.algorithm == "ring"


@pytest.mark.parametrize("gpus", [49, 50, 64, 72])
def test_a_server_of_more_heads_than_nvls_has_a_speed_for_takes_another_algorithm(gpus: int) -> None:
    """NCCL's search tries 18 GB/s a head at least, and a GPU needs it for each head and once more: 900 GB/s
    hold 49 heads.
    """
    rates = Rates(nic_bps=400 * 10**9, nvlink_bps=7_200 * 10**9)
    shape = Shape(gpus, gpus, 0, channels=32)
    processors = Processors("blackwell")
    found = _nccl_us("nvls", 2, "all_reduce", shape, 1 << 30, rates, True, processors)
    assert (found is None) == (18 * (gpus + 1) > 900)
