"""Edits of a text: what is replaced, and what is left for a person to do.

A file is rewritten by replacing spans of its text, so that comments, quotes and layout stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Edit(NamedTuple):
    """The characters from `start` to `end` are replaced."""

    start: int
    end: int
    text: str
    old: str
    """What is told to have changed, and into what."""
    new: str


class Note(NamedTuple):
    """Something about one line, counted from 1."""

    line: int
    text: str


class Upgraded(NamedTuple):
    """A text with its edits made."""

    text: str
    changes: list[Note]
    left: list[Note]
    """What a person has to look at."""


def made(text: str, edits: Iterable[Edit], left: Iterable[Note]) -> Upgraded:
    """The text with all edits made, from the last to the first."""
    result = text
    changes: list[Note] = []
    for edit in sorted(set(edits), reverse=True):
        result = result[: edit.start] + edit.text + result[edit.end :]
        line = text.count("\n", 0, edit.start) + 1
        changes.append(Note(line, f"{edit.old} -> {edit.new}" if edit.new else f"{edit.old} is gone"))
    return Upgraded(result, changes[::-1], sorted(left))
