"""Checks that all readers of other tools' files share: none of these files is trusted.

A number in a text is digits, not too many of them, within bounds; whatever comes in any number is counted,
and refused past a limit before it is kept. What is wrong is reported with its line and what would have been
read, by the reader's own error.
"""

from __future__ import annotations

from typing import Final

from emu.base.errors import FormatError

LONGEST_SHOWN: Final = 40
_MOST_DIGITS: Final = 20


def whole_number(
    error: type[FormatError], line: int, text: str, least: int, most: int, what: str = "a whole number"
) -> int:
    """The number that `text` writes, from `least` to `most`."""
    accepted = f"{what} from {least} to {most}"
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise error(line, f"{text[:LONGEST_SHOWN]!r} is not a whole number", accepted)
    if not least <= int(text) <= most:
        raise error(line, f"{text} is out of range", accepted)
    return int(text)


def limited(error: type[FormatError], line: int, count: int, most: int, what: str) -> None:
    """Refuse more than `most` of something."""
    if count > most:
        raise error(line, f"too many {what}", f"at most {most}")
