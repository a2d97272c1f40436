"""Which series do GPUs have? Part of the declaration in `emu.measure.series.metrics`."""

from __future__ import annotations

from typing import Final

from emu.measure.series.metric import DEVICE, Metric, Unit, counter, gauge

GPU_METRICS: Final[tuple[Metric, ...]] = (
    counter("gpu_copies", "gpu_copies", Unit.COUNT, DEVICE, "Copies that the GPU began."),
    counter("gpu_copied_bytes", "gpu_copied_bytes", Unit.BYTES, DEVICE, "Bytes of these copies."),
    counter(
        "gpu_copy_ps",
        "gpu_copy_seconds",
        Unit.PS,
        DEVICE,
        "How long these copies took, waiting for their turn left out.",
    ),
    gauge(
        "gpu_unresponsive_ps",
        "gpu_unresponsive_seconds",
        Unit.PS,
        DEVICE,
        "Longest time for which the GPU did nothing of what it was asked for.",
    ),
)
"""In the order in which families are rendered."""
