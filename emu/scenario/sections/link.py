"""Section `link`: the cables, their flow control, and their bit errors.

Source: IEEE 802.3 promises a bit error rate of 1e-12 or better after correction; a dirty connector or a cable
at the end of its life has orders of magnitude more, and is the usual cause of frames with a wrong FCS.
Credits: InfiniBand Architecture Specification volume 1, section 7.9. Debounce times: `link debounce time` of
Cisco's NX-OS (100 ms by default, up and down apart), `carrier-delay` of IOS.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from emu.base.records import RefusedError
from emu.base.spelling import shown
from emu.base.units import FRACTION_ACCEPTED, parse_fraction, parse_size
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    AutoDelayPs,
    AutoPositiveSizeBytes,
    AutoRateBps,
    PositiveSizeBytes,
    Reading,
    TimePs,
)

MOST_ERRORS: Final = Fraction(1, 1000)


def _read_error_rate(value: object) -> Fraction:
    rate = parse_fraction(value)
    if not 0 < rate <= MOST_ERRORS:
        raise RefusedError(f"{shown(value)} is out of range", "a fraction above 0 and up to 1/1000")
    return rate


def _read_rate_or_none(value: object) -> Fraction:
    none = isinstance(value, int) and not isinstance(value, bool) and value == 0
    return Fraction(0) if none else _read_error_rate(value)


def _show(rate: Fraction) -> object:
    return f"{rate.numerator}/{rate.denominator}" if rate else 0


_SCHEMA: Final = {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]}
ErrorRate = Annotated[Fraction, Reading(_read_error_rate, _show, FRACTION_ACCEPTED, _SCHEMA, "fraction")]
ErrorRateOrNone = Annotated[
    Fraction,
    Reading(_read_rate_or_none, _show, f"{FRACTION_ACCEPTED}, or 0", _SCHEMA, "fraction, or 0"),
]


class CreditsSection(Section):
    """Credit-based flow control, as InfiniBand links have it."""

    buffer_bytes: PositiveSizeBytes = parse_size("256KiB")
    """Receive buffer of each port and virtual lane (priority), in blocks of 64 bytes. A choice: 5 us at
    400G."""
    update_bytes: AutoPositiveSizeBytes = None
    """By how much a limit must have risen to be advertised. `auto`: two largest frames."""


class LinkSection(Section):
    """The fabric's cables."""

    bit_error_rate: ErrorRateOrNone = Fraction(0)
    """Errors per bit, in both directions: 1/100000000 spoils one full frame in three thousand. The port that
    receives a spoilt frame drops it (`corrupt`)."""
    flow_control: Literal["pfc", "credits"] = "pfc"
    """`pfc`: Ethernet, `switch.pfc` says which classes. `credits`: InfiniBand, every class; `switch.buffer`
    and `switch.pfc` do not matter then."""
    credits: CreditsSection = CreditsSection.defaults()
    """Credits, with `flow_control: credits`."""
    rate_bps: AutoRateBps = None
    """Rate of a fabric link. `auto`: what `topology` gives it."""
    delay_ps: AutoDelayPs = None
    """Its propagation, one way: 5 ns a metre of cable. `auto`: what `topology` gives it."""
    down_debounce_ps: TimePs = 0
    """Time without signal after which the ports at both ends go down (carrier delay). Frames sent until then
    are lost; a shorter outage takes no port down."""
    up_debounce_ps: TimePs = 0
    """Time with signal after which they go up: a link that flaps faster stays down."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what InfiniBand links do not have."""
        if self.flow_control == "credits":
            for key in ("down_debounce", "up_debounce"):
                if getattr(self, f"{key}_ps"):
                    reason = "credits sent into a dead link would never come back"
                    yield Refusal((key,), reason, "0s, or flow_control: pfc")
