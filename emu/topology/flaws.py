"""What is wrong with a fabric that cannot be built, and where was it written?

A *flaw* is one thing wrong in the topology's configuration (a *fault* is something else here: a link that goes down in
a run). Generators collect every flaw they see before they give up, so that a user mends a scenario in one go. The
scenario turns a flaw's path into file and line.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from emu.errors import EmuError


class Flaw(NamedTuple):
    """One thing wrong: where, why, and what would be accepted.

    `path` leads there from the topology section, in the scenario's own keys: `("links", 3, "b")`, `("racks",)`.
    """

    path: tuple[str | int, ...]
    reason: str
    accepted: str = ""

    def __str__(self) -> str:
        where = ".".join(str(part) for part in self.path)
        text = f"{where}: {self.reason}" if where else self.reason
        return f"{text}; {self.accepted}" if self.accepted else text


class TopologyError(EmuError):
    """A fabric that cannot be built, or a name it does not have. `flaws` are in the configuration's order."""

    exit_status = 2

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        self.flaws: tuple[Flaw, ...] = tuple(flaws)
        assert self.flaws, "a TopologyError needs at least one flaw"
        super().__init__(self.flaws)

    def __str__(self) -> str:
        return "\n".join(str(flaw) for flaw in self.flaws)


def nearest(name: str, names: Iterable[str]) -> str:
    """What to offer to a user who wrote a name that does not exist; empty where nothing is near."""
    close = get_close_matches(name, list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
