"""Lines that fit where they are shown: sentences and the last cell of a row go on below.

A terminal gives its width; a pipe or a file gets eighty columns, and COLUMNS says otherwise for both. What a
program reads is not broken in a pipe: JSON, CSV, a scenario, the line of a file that was validated, a problem
on standard error, nor a row of figures, which on a terminal goes on in a second table below the first.
"""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import fill
from typing import Final

import click

REPEAT: Final = "repeat with:"
"""Begins the line with the command that repeats a run: to be copied, so never broken."""
COLUMNS: Final = 80
_NARROWEST: Final = 24
"""A last cell is not wrapped into less."""


def columns() -> int:
    """How wide a line may be."""
    return shutil.get_terminal_size((COLUMNS, 24)).columns or COLUMNS


def known_columns() -> int:
    """The same for rows of figures; 0 for a pipe, where COLUMNS is not set."""
    return columns() if sys.stdout.isatty() or os.environ.get("COLUMNS") else 0


def wrapped(line: str, width: int) -> str:
    """A line that is longer than `width` goes on below, not in the middle of a word.

    A sentence goes on two columns further in, the last cell of a row (more than one space before it) below
    itself. The command to be copied, a row of figures, and a line with a word that is wider than all (a
    digest) stay as they are.
    """
    words = line.lstrip()
    if len(line) <= width or line.startswith(REPEAT):
        return line
    within = len(line) - len(words) + 2
    cells, _, last = words.rpartition("  ")
    if cells:
        within = len(line) - len(last)
        if " " not in last or width - within < _NARROWEST:
            return line
    if max(map(len, last.split(" "))) > width - within:
        return line
    return fill(
        last,
        width,
        initial_indent=line[: len(line) - len(last)],
        subsequent_indent=" " * within,
        break_long_words=False,
        break_on_hyphens=False,
    )


def say(text: str) -> None:
    """Print lines on standard output, each as wide as may be."""
    width = columns()
    for line in text.split("\n"):
        click.echo(wrapped(line, width))


def say_whole(text: str, *, err: bool = False) -> None:
    """Print lines of which each is a record that programs read; they are wrapped on a terminal only."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    for line in text.split("\n"):
        click.echo(wrapped(line, columns()) if terminal else line, err=err)
