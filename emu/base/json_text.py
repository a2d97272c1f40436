"""Records and plain values as JSON, indented by two spaces.

A module of its own because it is compiled: the summary of a large fabric has a hundred thousand rows. The
standard library's encoder in C does not indent.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

Heads = Callable[[Any], tuple[tuple[str, str], ...]]
"""Of a record: attributes in order, each with its key as JSON begins a line with it; nothing of others."""


def json_text(value: object, heads_of: Heads) -> str:
    """Characters beyond ASCII stay as they are, what is no finite number is null."""
    writing = _Writing(heads_of)
    writing.add(value, "\n")
    return "".join(writing.pieces)


class _Writing:
    """A text in the making, in pieces that are joined once."""

    def __init__(self, heads_of: Heads) -> None:
        self.pieces: list[str] = []
        self._heads_of = heads_of
        self._quoted: dict[str, str] = {}
        """Texts as JSON has them: names of devices and links stand in many rows."""

    def add(self, value: object, line: str) -> None:
        """`line` begins a line at this depth."""
        pieces = self.pieces
        if value is None:
            pieces.append("null")
        elif isinstance(value, str):
            pieces.append(self._text(value))
        elif isinstance(value, bool):
            pieces.append("true" if value else "false")
        elif isinstance(value, int):
            pieces.append(str(int(value)))
        elif isinstance(value, float):
            pieces.append(repr(value) if value - value == 0 else "null")
        elif isinstance(value, (list, tuple)):
            self._add_list(value, line)
        elif isinstance(value, dict):
            self._add_dict(value, line)
        else:
            self._add_record(value, line)

    def _add_list(self, values: list[object] | tuple[object, ...], line: str) -> None:
        inner = line + "  "
        between, later = "[" + inner, "," + inner
        for one in values:
            self.pieces.append(between)
            self.add(one, inner)
            between = later
        self._end(between, line, "[]")

    def _add_dict(self, values: dict[str, object], line: str) -> None:
        inner = line + "  "
        between, later = "{" + inner, "," + inner
        for key, below in values.items():
            self.pieces.append(between)
            self.pieces.append(self._text(key))
            self.pieces.append(": ")
            self.add(below, inner)
            between = later
        self._end(between, line, "{}")

    def _add_record(self, record: object, line: str) -> None:
        pieces = self.pieces
        inner = line + "  "
        between, later = "{" + inner, "," + inner
        held: dict[str, object] = record.__dict__
        for name, head in self._heads_of(type(record)):
            pieces.append(between)
            pieces.append(head)
            self.add(held[name], inner)
            between = later
        self._end(between, line, "{}")

    def _end(self, between: str, line: str, brackets: str) -> None:
        """The end of what has these brackets; both of them where nothing came `between`."""
        if between[0] == brackets[0]:
            self.pieces.append(brackets)
        else:
            self.pieces.append(line)
            self.pieces.append(brackets[1])

    def _text(self, text: str) -> str:
        found = self._quoted.get(text)
        if found is None:
            found = self._quoted[text] = encode_basestring(text)
        return found
