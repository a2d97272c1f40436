"""Declaration of one series: kind, unit, labels, names and a line of help.

`emu.measure.series.metrics` declares all of them; this page is what it does that with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The Prometheus type of a series."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Unit(StrEnum):
    """What a value is counted in inside the emulator."""

    BYTES = "bytes"
    FRAMES = "frames"
    COUNT = "count"
    PS = "ps"
    """Rendered in seconds."""
    PPM = "ppm"
    """Millionths; rendered as a ratio."""


DEVICE: Final = ("device",)
PORT: Final = ("device", "port")
PRIORITY: Final = ("device", "port", "priority")
REASON: Final = ("device", "port", "reason")


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series. `labels` are in the order in which they are rendered."""

    key: str
    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    help: str
    start: int = 0
    """Its value before anything happened."""


def counter(key: str, name: str, unit: Unit, labels: tuple[str, ...], text: str) -> Metric:
    """A series that only rises."""
    return Metric(key, f"emu_{name}_total", Kind.COUNTER, unit, labels, text)


def gauge(key: str, name: str, unit: Unit, labels: tuple[str, ...], text: str, start: int = 0) -> Metric:
    """A series that may fall."""
    return Metric(key, f"emu_{name}", Kind.GAUGE, unit, labels, text, start)
