"""Does `protocol: auto` choose what the table in NCCL 2.30, `src/graph/tuning.cc`, does? Worked by hand."""

import pytest

from actors.ncclx.tuner import Rates, Shape
from emu.workload.nccl_tuning import Choice, _nccl_us, nccl_choice

RATES = Rates(400 * 10**9, 3600 * 10**9)
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
        # 25 + 2 x 3 x 20.9; 400 GB/s is less than 450 x .85 x 2 x 15 / 16
        ("nvls_tree", 2, 64 << 20, 150.4 + (64 << 20) / (400e3 * 64 / 126)),
    ],
)
def test_a_row_of_the_table(algorithm: str, protocol: int, size: int, time_us: float) -> None:
    found = _nccl_us(algorithm, protocol, "all_reduce", SERVERS, size, RATES, nvls=True)
    assert found == pytest.approx(time_us, rel=1e-9)


def test_small_sizes_take_a_tree_with_ll_on_one_channel_and_large_ones_nvls() -> None:
    chosen = {
        size: nccl_choice("all_reduce", SERVERS, size, RATES, nvls=True) for size in (8, 1 << 20, 64 << 20)
    }
    assert chosen[8] == Choice("double_binary_tree", "ll", 1)
    assert chosen[1 << 20] == Choice("double_binary_tree", "ll128", 16)
    assert chosen[64 << 20] == Choice("nvls_tree", "simple", 16)
    assert nccl_choice("all_to_all", SERVERS, 8, RATES, nvls=True) is None


def test_one_gpu_a_server_gathers_by_pat_and_nobody_else() -> None:
    flat = Shape(16, 1, 16, 2)
    assert nccl_choice("all_gather", flat, 1 << 20, RATES, nvls=False) == Choice("pat", "simple", 2)
    servers = nccl_choice("all_gather", SERVERS, 1 << 20, RATES, nvls=True)
    assert servers is not None
    assert servers.algorithm == "ring"
