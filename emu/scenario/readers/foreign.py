"""What all readers of other tools' files share: checks, for none is trusted, and what they leave out.

A number in a text is digits, not too many of them, within bounds; whatever comes in any number is counted,
and refused past a limit before it is kept. What is wrong is reported with its line and what would have been
read, by the reader's own error.

What a file says and a reader does not use is no secret: it stands in a note that begins with "Left out:", in
the file's own words. So a change of any value in a file changes the scenario, or is in a place that a note
names.
"""

from __future__ import annotations

from typing import Final

from emu.base.errors import FormatError

LONGEST_SHOWN: Final = 40
MOST_LEFT_OUT: Final = 64
"""Things that a note of what is left out names."""
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


class LeftOut:
    """What a reader did not use, in the file's own words, and how often it was there."""

    def __init__(self, *what: str) -> None:
        self._times: dict[str, int] = {}
        for one in what:
            self.add(one)

    def add(self, what: str) -> None:
        """Note that something is not used."""
        what = "".join(sign if sign.isprintable() else "?" for sign in what)
        self._times[what] = self._times.get(what, 0) + 1

    def take(self, other: LeftOut) -> None:
        """Note what another part of the same file leaves out, too."""
        for what, times in other._times.items():
            self._times[what] = self._times.get(what, 0) + times

    def note(self) -> str:
        """ "Left out: one, another (3 times)"; empty where everything was used."""
        shown = [f"{what} ({times} times)" if times > 1 else what for what, times in self._times.items()]
        if len(shown) > MOST_LEFT_OUT:
            shown[MOST_LEFT_OUT:] = [f"{len(shown) - MOST_LEFT_OUT} more"]
        return f"Left out: {', '.join(shown)}" if shown else ""
