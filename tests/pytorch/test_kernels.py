"""Times of kernels, held against measured kernels that were kept back, and against datasheets."""

import csv
import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.doors.pytorch.kernels import FOLDER, GPUS, KernelTimes
from emu.doors.pytorch.record import Kernel

KEPT_BACK = 200
"""The last rows of products in a table: shapes drawn, as no model has them."""


def product(m: int, k: int, n: int, dtype: str = "bfloat16") -> Kernel:
    size = 2 if dtype == "bfloat16" else 4
    return Kernel(0, "mm", dtype, ((m, k), (k, n)), 2 * m * k * n, (m * k + k * n + m * n) * size)


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_products_of_drawn_shapes_are_predicted_from_those_of_layers(tmp_path: Path, name: str) -> None:
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    products = [row for row in rows if row["op"] == "mm"]
    kept_back = products[-KEPT_BACK:]
    times = KernelTimes(GPUS[name])
    known = [row for row in products[:-KEPT_BACK] if row["dtype"] == "bf16"]
    times._points[("mm", "bf16")] = times._points[("mm", "bf16")][: len(known)]
    times._exact.clear()
    misses = []
    for row in kept_back:
        (m, k), (_, n) = (tuple(int(one) for one in shape.split("x")) for shape in row["shapes"].split(";"))
        misses.append(abs(times.us(product(m, k, n)) / float(row["us"]) - 1))
    assert len(misses) == KEPT_BACK
    assert statistics.median(misses) < 0.12
    assert sorted(misses)[int(0.9 * KEPT_BACK)] < 0.35


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_a_kernel_of_the_table_takes_the_measured_time(name: str) -> None:
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        row = [row for row in csv.DictReader(file) if row["op"] == "mm"][-1]
    (m, k), (_, n) = (tuple(int(one) for one in shape.split("x")) for shape in row["shapes"].split(";"))
    assert KernelTimes(GPUS[name]).us(product(m, k, n)) == float(row["us"])


@pytest.mark.parametrize("name", sorted(GPUS))
def test_no_kernel_is_faster_than_the_datasheet(name: str) -> None:
    gpu, times = GPUS[name], KernelTimes(GPUS[name])
    for exponent in range(7, 15):
        side = 2**exponent
        for dtype, short in (("bfloat16", "bf16"), ("float32", "fp32")):
            kernel = product(side, side, side, dtype)
            bound_us = 1e6 * max(kernel.flops / gpu.peak_flops_per_s[short], kernel.bytes / gpu.bytes_per_s)
            assert times.us(kernel) >= 0.95 * bound_us  # clocks above the datasheet's give a few percent
    for exponent in range(26, 34):
        moved = Kernel(0, "add", "bfloat16", ((2**exponent,),), 0, 3 * 2**exponent)
        assert times.us(moved) >= 1e6 * moved.bytes / gpu.bytes_per_s


def test_times_grow_with_the_bytes_of_a_kernel() -> None:
    times = KernelTimes(GPUS["h100"])
    taken = [times.us(Kernel(0, "add", "bfloat16", ((n,),), 0, 6 * n)) for n in (2**e for e in range(10, 31))]
    assert all(a <= b * 1.001 for a, b in pairwise(taken))


def test_own_times_have_precedence(tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("op,dtype,shapes,us\nmm,bf16,1024x1000;1000x1024,77.5\n")
    assert KernelTimes(GPUS["a100"], own).us(product(1024, 1000, 1024)) == 77.5


@pytest.mark.parametrize(
    "text", ["op,us\nmm,3\n", "op,dtype,shapes,us\nmm,bf16,10xten,3\n", "op,shapes,us\nmm,8x8,-1\n"]
)
def test_a_bad_table_is_one_line_with_file_and_line(tmp_path: Path, text: str) -> None:
    own = tmp_path / "own.csv"
    own.write_text(text)
    with pytest.raises(UsageError, match=r"own\.csv:[12]: .*accepted"):
        KernelTimes(GPUS["h100"], own)


def test_a_gpu_without_a_table_differs_from_the_h100_by_its_datasheet() -> None:
    big = product(8192, 8192, 8192)
    ratio = KernelTimes(GPUS["b200"]).us(big) / KernelTimes(GPUS["h100"]).us(big)
    assert math.isclose(ratio, 989 / 2250, rel_tol=0.12)
