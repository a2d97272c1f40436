"""The time that a kernel takes on a GPU.

Measured kernels stand in tables (`kernel_times/GPU.csv`: op, dtype, shapes, us), made by
`deploy/measure_kernels.py`. A kernel whose op and shapes are in the table takes the measured time. Any
other takes

    floor + bound x misfit

The bound is what FLOPs at the peak and bytes at the bandwidth allow; products are cut into tiles that
multiprocessors take in turns. The *misfit* is what the nearest measured kernels of the class take over their
bounds: near in the logarithms of m, k and n of products, of FLOPs in attention, of bytes elsewhere. Two
hundred products of drawn shapes are predicted from those of layers within 10 % (median), 30 % (nine of
ten). A GPU without a table has its datasheet's peak and bandwidth and the misfits of the H100, and the run
says so.

Datasheets: NVIDIA H100 (SXM5: dense bf16 989 TFLOP/s, fp32 67, 3.35 TB/s), H200 (the same, 4.8 TB/s), A100
(SXM4 80 GB: 312, 19.5, 2.04 TB/s), Blackwell B200 (HGX B200: dense bf16 2,250, fp32 80, 7.7 TB/s).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from emu.base.errors import UsageError
from emu.base.outside import file_bytes
from emu.base.spelling import did_you_mean, listed
from emu.doors.pytorch.kineto import MOST_BYTES, KinetoError, is_trace, kernel_rows, read_trace
from emu.doors.pytorch.record import Kernel

FOLDER: Final = Path(__file__).parent / "kernel_times"
ELEMENT_BYTES: Final = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bf16": 2,
    "fp16": 2,
    "fp32": 4,
}
SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
FLOOR_US: Final = 1.5
"""What the shortest kernels run, measured on H100 and H200: no kernel takes less."""
PRODUCT_FLOOR_US: Final = 4.0
"""The same of matrix products: the shortest of the tables."""
TILE: Final = 128
"""Side of the tiles that products are cut into. Multiprocessors take them in turns, and a last turn of a few
tiles lasts as long as a full one."""
REACHED_BANDWIDTH: Final = 0.9
"""Share of the datasheet's bandwidth that a large copy reaches: measured 3.01 of 3.35 TB/s (H100), 4.24 of
4.8 (H200)."""
NEIGHBOURS: Final = 12
NEAR: Final = 0.3
"""Square of the distance, in natural logarithms, within which neighbours count about alike."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that scripts may ask for."""

    name: str
    """As CUDA says it."""
    capability: tuple[int, int]
    memory_bytes: int
    multiprocessors: int
    peak_flops_per_s: Mapping[str, float]
    """Dense, by dtype."""
    bytes_per_s: float
    table: str
    """Which file of `kernel_times` has kernels of it, or of the GPU whose misfits it takes."""
    measured: str = ""
    """When and with which versions; empty: from the datasheet."""


_HOPPER: Final = {"bf16": 989e12, "fp16": 989e12, "fp32": 67e12}
_MEASURED: Final = "2026-11-26, torch 2.11.0, CUDA 13.0, cuDNN 9.19, driver 580.159.04"
GPUS: Final = {
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, 132, _HOPPER, 3.35e12, "h100", _MEASURED),
    "h200": Gpu("NVIDIA H200", (9, 0), 141 << 30, 132, _HOPPER, 4.8e12, "h200", _MEASURED),
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB",
        (8, 0),
        80 << 30,
        108,
        {"bf16": 312e12, "fp16": 312e12, "fp32": 19.5e12},
        2.04e12,
        "h100",
    ),
    "b200": Gpu(
        "NVIDIA B200",
        (10, 0),
        180 << 30,
        148,
        {"bf16": 2250e12, "fp16": 2250e12, "fp32": 80e12},
        7.7e12,
        "h100",
    ),
}
CLASSES: Final = {
    "mm": "mm",
    "addmm": "mm",
    "bmm": "bmm",
    "baddbmm": "bmm",
    "scaled_dot_product_attention(causal)": "attention",
    "scaled_dot_product_attention": "attention",
    "scaled_dot_product_attention_backward(causal)": "attention_backward",
    "scaled_dot_product_attention_backward": "attention_backward",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "native_layer_norm": "norm",
    "_fused_rms_norm": "norm",
    "layer_norm_backward": "norm_backward",
    "rms_norm_backward": "norm_backward",
    "native_layer_norm_backward": "norm_backward",
    "_fused_rms_norm_backward": "norm_backward",
    "embedding_backward": "embedding_backward",
    "embedding_dense_backward": "embedding_backward",
    "adamw_fused": "optimizer",
    "_fused_adamw_": "optimizer",
    "_fused_adam_": "optimizer",
}
"""Class of an op by its name in a table or in a record; everything else is bound by memory, `pointwise`."""
POINTWISE: Final = {
    "gelu": 2,
    "silu": 2,
    "relu": 2,
    "mul": 2,
    "clone": 2,
    "add": 3,
    "gelu_backward": 3,
    "silu_backward": 3,
}
"""Rows of a table that make the class `pointwise`: tensors of the first one's size that they move."""


class Point(NamedTuple):
    """A measured kernel: where it lies, and its time over the bound."""

    place: tuple[float, ...]
    misfit: float


class KernelTimes:
    """Times of kernels on one GPU. `own` has precedence: kernels measured by the user."""

    def __init__(self, gpu: Gpu, own: Path | None = None) -> None:
        self.gpu = gpu
        reference = GPUS[gpu.table]
        self._points: dict[tuple[str, str], list[Point]] = {}
        self._exact: dict[tuple[str, str, str], float] = {}
        for op, dtype, shapes, us in _rows(FOLDER / f"{gpu.table}.csv"):
            self._learn(reference, op, dtype, shapes, us, exact=reference is gpu)
        for op, dtype, shapes, us in _own_rows(own) if own is not None else ():
            self._learn(gpu, op, SHORT.get(dtype, dtype), shapes, us, exact=True)

    def us(self, kernel: Kernel) -> float:
        """Microseconds that a kernel runs."""
        if kernel.us is not None:
            return kernel.us
        dtype = SHORT.get(kernel.dtype, kernel.dtype)
        kind = CLASSES.get(kernel.op, "pointwise")
        products = [shape for shape in kernel.shapes if len(shape) == (3 if kind == "bmm" else 2)]
        if kind in ("mm", "bmm") and len(products) >= 2:
            measured = self._exact.get((kind, dtype, _text(products[-2:])))
            if measured is not None:
                return measured
            place = _product_place(products[-2], products[-1])
        elif kind == "pointwise" and kernel.flops:
            measured = self._exact.get((kernel.op, dtype, _text(kernel.shapes)))
            if measured is not None:
                return measured
            return self._unmeasured_us(kernel, dtype)
        else:
            measured = self._exact.get((kernel.op, dtype, _text(kernel.shapes)))
            if measured is not None:
                return measured
            place = (math.log(max(kernel.flops if kind.startswith("attention") else kernel.bytes, 1)),)
        bound_us = self._bound_us(self.gpu, kind, dtype, kernel.flops, kernel.bytes, place)
        return _floor_us(kind) + bound_us * self._misfit(kind, dtype, place)

    def _unmeasured_us(self, kernel: Kernel, dtype: str) -> float:
        """A kernel with FLOPs of a kind that nobody measured, such as a convolution.

        It takes what its bytes allow, or what a square product of as many FLOPs takes if that is longer.
        """
        side = (math.log(kernel.flops / 2) / 3,) * 3
        product_us = self._bound_us(self.gpu, "mm", dtype, kernel.flops, kernel.bytes, side)
        moving_us = 1e6 * kernel.bytes / (REACHED_BANDWIDTH * self.gpu.bytes_per_s)
        return PRODUCT_FLOOR_US + max(product_us * self._misfit("mm", dtype, side), moving_us)

    def _bound_us(
        self, gpu: Gpu, kind: str, dtype: str, flops: int, size: int, place: tuple[float, ...]
    ) -> float:
        """What FLOPs and bytes allow; of products, both together and in whole turns of tiles."""
        peak = gpu.peak_flops_per_s.get(dtype, gpu.peak_flops_per_s["fp32"])
        computing, moving = 1e6 * flops / peak, 1e6 * size / (REACHED_BANDWIDTH * gpu.bytes_per_s)
        if kind == "pointwise" and not flops:
            return moving
        if kind in ("mm", "bmm"):
            m, _, n, *batch = (math.exp(one) for one in place)
            tiles = math.prod(batch) * m * n / TILE**2
            whole = math.prod(batch) * math.ceil(round(m) / TILE) * math.ceil(round(n) / TILE)
            turns = math.ceil(round(whole) / gpu.multiprocessors) * gpu.multiprocessors
            return float(((computing * turns / tiles) ** 1.5 + moving**1.5) ** (2 / 3))
        return max(computing, moving)

    def _learn(self, gpu: Gpu, op: str, dtype: str, shapes: str, us: float, *, exact: bool) -> None:
        """Take a row of a table."""
        sizes = [tuple(int(n) for n in shape.split("x")) for shape in shapes.split(";")]
        kind = CLASSES.get(op) or ("pointwise" if op in POINTWISE else "")
        if exact:
            self._exact[(kind if kind in ("mm", "bmm") else op, dtype, _text(sizes))] = us
        if not kind:
            return
        element = ELEMENT_BYTES.get(dtype, 4)
        flops, size, place = _work(kind, op, sizes, element)
        bound_us = self._bound_us(gpu, kind, dtype, flops, size, place)
        misfit = max(us - _floor_us(kind), 0.05) / bound_us
        self._points.setdefault((kind, dtype), []).append(Point(place, misfit))

    def _misfit(self, kind: str, dtype: str, place: tuple[float, ...]) -> float:
        """Misfit of the nearest measured kernels of the class, weighted by the inverse square of their
        distance."""
        points = (
            self._points.get((kind, dtype))
            or self._points.get((kind, "bf16"))
            or self._points.get((kind, "fp32"))
        )
        if not points:
            return self._misfit("pointwise", dtype, place) if kind != "pointwise" else 1.3
        near = sorted(
            (sum((a - b) ** 2 for a, b in zip(one.place, place, strict=False)), one.misfit) for one in points
        )[:NEIGHBOURS]
        weights = [1 / (distance + NEAR) for distance, _ in near]
        return math.exp(
            sum(w * math.log(misfit) for w, (_, misfit) in zip(weights, near, strict=True)) / sum(weights)
        )


def _floor_us(kind: str) -> float:
    return PRODUCT_FLOOR_US if kind in ("mm", "bmm") else FLOOR_US


def gpu_named(name: str) -> Gpu:
    """A GPU of `--gpu`. Raises UsageError."""
    if name not in GPUS:
        raise UsageError(f"there is no GPU {name!r}{did_you_mean(name, GPUS)}; accepted: {listed(GPUS)}")
    return GPUS[name]


def _own_rows(path: Path) -> Iterable[tuple[str, str, str, float]]:
    """Rows of a user's table, or of what the user's profiler measured."""
    with path.open("rb") as opened:
        if not is_trace(opened.read(2**16)):
            return _rows(path)
    try:
        rows = list(kernel_rows(read_trace(file_bytes(path, "a trace of torch.profiler", MOST_BYTES))))
    except KinetoError as error:
        raise UsageError(f"{path}: {error}") from error
    if not rows:
        raise UsageError(f"{path}: has no kernel with shapes; accepted: a trace with record_shapes=True")
    return rows


def _rows(path: Path) -> Iterable[tuple[str, str, str, float]]:
    """Rows of a table. Raises UsageError with file and line."""
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        missing = {"op", "shapes", "us"} - set(table.fieldnames or ())
        if missing:
            raise UsageError(
                f"{path}:1: has no column {listed(sorted(missing))}; accepted: op, dtype, shapes, us"
            )
        for row in table:
            try:
                us = float(row["us"])
                [[int(n) for n in shape.split("x")] for shape in row["shapes"].split(";")]
                if not us > 0:
                    raise ValueError
            except (TypeError, ValueError):
                raise UsageError(
                    f"{path}:{table.line_num}: is no measured kernel; accepted: op, dtype, shapes like "
                    "4096x4096;4096x11008, and microseconds above 0"
                ) from None
            yield row["op"], row.get("dtype") or "bf16", row["shapes"], us


def _text(shapes: Iterable[Sequence[int]]) -> str:
    return ";".join("x".join(map(str, shape)) for shape in shapes)


def _product_place(a: Sequence[int], b: Sequence[int]) -> tuple[float, ...]:
    """Logarithms of m, k and n, of batches that of their number too."""
    *batch, m, k = a
    return (*(math.log(n) for n in (m, k, b[-1])), *(math.log(n) for n in batch))


def _work(
    kind: str, op: str, sizes: Sequence[Sequence[int]], element: int
) -> tuple[int, int, tuple[float, ...]]:
    """FLOPs, bytes and place of a measured kernel, as a record counts them."""
    count = math.prod(sizes[0])
    if kind in ("mm", "bmm"):
        a, b = sizes[-2:]
        batch, m, k, n = math.prod(a[:-2]), a[-2], a[-1], b[-1]
        return 2 * batch * m * k * n, batch * (m * k + k * n + m * n) * element, _product_place(a, b)
    if kind.startswith("attention"):
        batch, heads, length, head = sizes[0]
        flops = 4 * batch * heads * length * length * head // (2 if "causal" in op else 1)
        if kind == "attention_backward":
            return flops * 5 // 2, 8 * count * element, (math.log(flops * 5 // 2),)
        return flops, 4 * count * element, (math.log(flops),)
    if kind == "optimizer":  # parameter, gradient and two moments are read, all but the gradient written
        size = 7 * 4 * count
    elif kind == "embedding_backward":
        size = (sizes[0][0] * sizes[0][1] + sizes[1][0] * sizes[0][1]) * element
    elif kind == "norm_backward":
        size = 3 * count * element
    elif kind == "norm":
        size = 2 * count * element
    else:
        size = POINTWISE[op] * count * element
    return 0, size, (math.log(size),)
