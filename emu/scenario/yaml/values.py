"""Types of single values: how each is read, written, and described to an editor.

Each type below is a plain Python type (`int`, `Fraction`, `str`) with a `Reading` attached: a function from
what YAML holds to the value, the way back, a JSON Schema, and a sentence on what is accepted. Quantities are
read by `emu.base.units`, so they need their unit; `auto` reads as None and leaves the value to the device.
"""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final

from emu.base import units
from emu.base.errors import QuantityError
from emu.base.records import Mark, RefusedError
from emu.base.spelling import shown

AUTO: Final = "auto"


class Reading(Mark):
    """How a value is read from YAML and written back."""

    def __init__(
        self,
        read: Callable[[object], object],
        show: Callable[[Any], object],
        accepted: str,
        schema: dict[str, Any],
        noun: str,
    ) -> None:
        self.read = read
        """Raises `QuantityError` or `RefusedError`."""
        self.show = show
        """The inverse: what YAML would hold."""
        self.accepted = accepted
        self.described = schema
        self.noun = noun
        """What it is in a word or two, for tables."""

    def take(self, value: object) -> object:
        """The value; what is accepted stands beside every refusal."""
        try:
            return self.read(value)
        except QuantityError as error:
            raise RefusedError(error.reason, self.accepted) from error
        except RefusedError as error:
            if error.accepted:
                raise
            raise RefusedError(error.reason, self.accepted) from error

    def give(self, value: Any) -> object:
        """What YAML would hold."""
        return self.show(value)

    def schema(self, described: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The one it was made with."""
        del described
        return dict(self.described)


def _between(
    read: Callable[[object], int], minimum: int, maximum: int | None, show: Callable[[int], str]
) -> Callable[[object], int]:
    accepted = f"at least {show(minimum)}" if maximum is None else f"{show(minimum)} to {show(maximum)}"

    def checked(value: object) -> int:
        result = read(value)
        if result < minimum:
            raise RefusedError(f"{shown(value)} is too small", accepted)
        if maximum is not None and result > maximum:
            raise RefusedError(f"{shown(value)} is too large", accepted)
        return result

    return checked


@cache
def or_auto(reading: Reading) -> Reading:
    """The same, or `auto`, which reads as None."""

    def read(value: object) -> object:
        return None if value == AUTO else reading.read(value)

    def show(value: object) -> object:
        return AUTO if value is None else reading.show(value)

    accepted = f"{reading.accepted}, or {AUTO}"
    schema = {"anyOf": [reading.described, {"const": AUTO}]}
    return Reading(read, show, accepted, schema, f"{reading.noun} or `{AUTO}`")


def _unit_pattern(unit_names: list[str]) -> str:
    alternatives = "|".join(re.escape(unit) for unit in unit_names)
    return rf"^[0-9][0-9_]*(\.[0-9]+)?\s*({alternatives})$"


def _quantity_schema(unit_names: list[str], example: str, *, zero: bool) -> dict[str, Any]:
    text = {"type": "string", "pattern": _unit_pattern(unit_names), "examples": [example]}
    return {"anyOf": [text, {"const": 0}]} if zero else text


def _without_zero(accepted: str, minimum: int) -> str:
    return accepted.removesuffix(", or 0") if minimum else accepted


def _noun(noun: str, minimum: int, maximum: int | None, show: Callable[[int], str]) -> str:
    return noun if maximum is None else f"{noun}, {show(minimum)} to {show(maximum)}"


@cache
def time_between(minimum_ps: int, maximum_ps: int | None = None) -> Reading:
    """A time in ps."""
    read = _between(units.parse_time, minimum_ps, maximum_ps, units.format_time)
    schema = _quantity_schema(list(units.TIME_PS), "500ns", zero=minimum_ps == 0)
    accepted = _without_zero(units.TIME_ACCEPTED, minimum_ps)
    noun = _noun("time", minimum_ps, maximum_ps, units.format_time)
    return Reading(read, units.format_time, accepted, schema, noun)


@cache
def size_between(minimum_bytes: int, maximum_bytes: int | None = None) -> Reading:
    """A size in bytes."""
    read = _between(units.parse_size, minimum_bytes, maximum_bytes, units.format_size)
    schema = _quantity_schema(list(units.SIZE_BYTES), "4KiB", zero=minimum_bytes == 0)
    accepted = _without_zero(units.SIZE_ACCEPTED, minimum_bytes)
    noun = _noun("size", minimum_bytes, maximum_bytes, units.format_size)
    return Reading(read, units.format_size, accepted, schema, noun)


@cache
def rate_between(minimum_bps: int = 1, maximum_bps: int | None = None) -> Reading:
    """A rate in bit/s."""
    read = _between(units.parse_rate, minimum_bps, maximum_bps, units.format_rate)
    schema = _quantity_schema(list(units.RATE_BPS), "400G", zero=False)
    accepted = _without_zero(units.RATE_ACCEPTED, 1)
    noun = _noun("rate", minimum_bps, maximum_bps, units.format_rate)
    return Reading(read, units.format_rate, accepted, schema, noun)


def show_fraction(value: Fraction) -> object:
    """A fraction as a scenario writes it: a whole number, or a text."""
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


MOST_FRACTION: Final = Fraction(1024)


@cache
def fraction_up_to(most: Fraction = MOST_FRACTION) -> Reading:
    """A fraction above 0 and up to `most`."""

    def read(value: object) -> Fraction:
        result = units.parse_fraction(value)
        if not 0 < result <= most or result.denominator > 2**20:
            raise RefusedError(
                f"{shown(value)} is out of range", f"a fraction above 0 and up to {show_fraction(most)}"
            )
        return result

    schema = {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]}
    noun = "fraction" if most == MOST_FRACTION else f"fraction up to {show_fraction(most)}"
    return Reading(read, show_fraction, units.FRACTION_ACCEPTED, schema, noun)


_POSITIVE_FRACTION: Final = fraction_up_to()


def _read_share(value: object) -> object:
    zero = isinstance(value, int) and not isinstance(value, bool) and value == 0
    return Fraction(0) if zero else _POSITIVE_FRACTION.read(value)


def _read_mtu(value: object) -> int:
    """The payload of a packet in bytes. A number without a unit is how every NIC shows it, and no guess."""
    accepted = "256, 512, 1024, 2048 or 4096 (bytes)"
    size_bytes = value if isinstance(value, int) else units.parse_size(value)
    if size_bytes not in (256, 512, 1024, 2048, 4096) or isinstance(value, bool):
        raise RefusedError(f"{shown(value)} is not an MTU of InfiniBand transport", accepted)
    return size_bytes


def word(what: str, pattern: str, accepted: str) -> Reading:
    """A string of at most 64 characters that matches `pattern` in full."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise RefusedError(f"{shown(value)} is not a string", accepted)
        if len(value) > 64 or compiled.fullmatch(value) is None:
            raise RefusedError(f"{shown(value)} is not {what}", accepted)
        return value

    return Reading(
        read,
        str,
        accepted,
        {"type": "string", "pattern": f"^{pattern}$", "maxLength": 64},
        what.removeprefix("a "),
    )


def _read_priority(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 7:
        raise RefusedError(f"{shown(value)} is not a priority", "a priority, 0 to 7")
    return value


CHANNELS_ACCEPTED: Final = "a whole number from 1 to 64"


def _read_channels(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 64:
        raise RefusedError(f"{shown(value)} is no number of channels", CHANNELS_ACCEPTED)
    return value


def names(patterns: Sequence[str], name: str) -> bool:
    """Whether a name is among these names and patterns."""
    if not patterns:
        return False
    return name in patterns or any(fnmatchcase(name, one) for one in patterns if WILD.search(one))


WILD: Final = re.compile(r"[*?\[]")
LEAST_DELAY_PS: Final = units.parse_time("1ns")

TimePs = Annotated[int, time_between(0)]
PositiveTimePs = Annotated[int, time_between(1)]
DelayPs = Annotated[int, time_between(LEAST_DELAY_PS)]
"""Delay of a link: at least 1 ns, since two devices may sit on different workers."""
AutoDelayPs = Annotated[int | None, or_auto(time_between(LEAST_DELAY_PS))]
AutoTimePs = Annotated[int | None, or_auto(time_between(0))]
AutoPositiveTimePs = Annotated[int | None, or_auto(time_between(1))]
SizeBytes = Annotated[int, size_between(0)]
PositiveSizeBytes = Annotated[int, size_between(1)]
AutoSizeBytes = Annotated[int | None, or_auto(size_between(0))]
AutoPositiveSizeBytes = Annotated[int | None, or_auto(size_between(1))]
RateBps = Annotated[int, rate_between()]
AutoRateBps = Annotated[int | None, or_auto(rate_between())]
PositiveFraction = Annotated[Fraction, _POSITIVE_FRACTION]
FractionToOne = Annotated[Fraction, fraction_up_to(Fraction(1))]
AutoFractionToOne = Annotated[Fraction | None, or_auto(fraction_up_to(Fraction(1)))]
Share = Annotated[
    Fraction,
    Reading(
        _read_share,
        show_fraction,
        f"{units.FRACTION_ACCEPTED}, or 0",
        {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]},
        "fraction, or 0",
    ),
]
MtuBytes = Annotated[
    int,
    Reading(
        _read_mtu, int, "256, 512, 1024, 2048 or 4096", {"enum": [256, 512, 1024, 2048, 4096]}, "256 to 4096"
    ),
]
_PRIORITY: Final = Reading(
    _read_priority, int, "a priority, 0 to 7", {"type": "integer", "minimum": 0, "maximum": 7}, "0 to 7"
)
Priority = Annotated[int, _PRIORITY]
AutoPriority = Annotated[
    int | None,
    or_auto(
        Reading(
            _read_priority,
            int,
            "a priority, 0 to 7",
            {"type": "integer", "minimum": 0, "maximum": 7},
            "0 to 7",
        )
    ),
]
AutoChannels = Annotated[
    int | None,
    or_auto(
        Reading(
            _read_channels,
            int,
            CHANNELS_ACCEPTED,
            {"type": "integer", "minimum": 1, "maximum": 64},
            "1 to 64",
        )
    ),
]
Name = Annotated[str, word("a name", r"[A-Za-z][A-Za-z0-9_-]*", "letters, digits, - and _, a letter first")]
NodeName = Annotated[
    str,
    word("a node's name", r"[A-Za-z][A-Za-z0-9_.-]*", "letters, digits, -, _ and ., a letter first"),
]
PeerPattern = Annotated[
    str,
    word("a device's name or a pattern of them", r"[A-Za-z0-9_.*?\[\]!-]+", 'a name, or like "rtsw-*"'),
]
LinkName = Annotated[
    str,
    word(
        "a link's name",
        r"[A-Za-z][A-Za-z0-9_.-]*:[A-Za-z][A-Za-z0-9_.-]*(/[0-9]{1,4})?",
        'two ends with a colon between, like "rtsw-0:ctsw-3"; "/1" picks one of parallel links',
    ),
]
