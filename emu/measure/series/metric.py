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
    BYTES_PER_SECOND = "bytes_per_second"


DEVICE: Final = ("device",)
PORT: Final = ("device", "port")
PRIORITY: Final = ("device", "port", "priority")
REASON: Final = ("device", "port", "reason")


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series. `labels` are in the order in which they are rendered."""

    key: str
    """The counter's one name: in devices, `ports.csv`, samples and diagnoses."""
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    help: str
    start: int = 0
    """Its value before anything happened."""

    @property
    def name(self) -> str:
        """The name in Prometheus and in `expect`: that of the counter with prefix, base unit and `_total`."""
        own, base = self.key, _BASE_UNIT.get(self.unit)
        if base is not None:
            assert own.endswith(f"_{self.unit.value}"), own
            own = own.removesuffix(self.unit.value) + base
        return f"emu_{own}_total" if self.kind is Kind.COUNTER else f"emu_{own}"


_BASE_UNIT: Final = {Unit.PS: "seconds", Unit.PPM: "ratio"}
"""How Prometheus names what the emulator counts in integers of a smaller unit."""


def counter(key: str, unit: Unit, labels: tuple[str, ...], text: str) -> Metric:
    """A series that only rises."""
    return Metric(key, Kind.COUNTER, unit, labels, text)


def gauge(key: str, unit: Unit, labels: tuple[str, ...], text: str, start: int = 0) -> Metric:
    """A series that may fall."""
    return Metric(key, Kind.GAUGE, unit, labels, text, start)
