"""What does a plain YAML scalar mean? The core schema of YAML 1.2 (section 10.3), no more.

PyYAML's own resolver follows YAML 1.1, where `10:30` is 630, `on` is true, `1e3` is a string and `0777`
octal. Here they are a string, a string, 1000.0 and 777.
"""

from __future__ import annotations

import re
from typing import Final

Scalar = str | int | float | bool | None

_NULL: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_DECIMAL: Final = re.compile(r"[-+]?[0-9]{1,40}")
_BASED: Final = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?")
_NOT_FINITE: Final = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

TAGS: Final = "tag:yaml.org,2002:"


def resolved(text: str) -> Scalar:
    """The value of a plain scalar. Numbers of more than 40 digits stay text, and fail as such later."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _NOT_FINITE.fullmatch(text)
    if special is not None:
        return float("nan") if special[3] else float(f"{special[1]}inf")
    return text


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with an explicit tag. Raises ValueError if the text does not fit, or the tag is
    unknown."""
    if tag in ("!", f"{TAGS}str"):
        return text
    value = resolved(text)
    wanted = tag.removeprefix(TAGS)
    if wanted == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, float),
    }
    if not fits.get(wanted, False):
        raise ValueError(
            f"{text[:40]!r} is not a {wanted}" if wanted in fits else f"the tag {tag[:40]!r} is unknown"
        )
    return value
