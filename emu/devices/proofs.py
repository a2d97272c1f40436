"""Proofs of the user's own graphs, remembered in the user's cache from command to command.

Proving that a graph of 64 ranks is the collective it claims to be takes seconds, for each size of data. A
proof depends on nothing but the graph, so a hash of the graph is kept as the name of an empty file. A proof
never changes an answer: without it the graph is proved again. A directory that cannot be written keeps none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class KeptProofs:
    """Those in `emu/proofs` below $XDG_CACHE_HOME, by default `~/.cache`."""

    def __init__(self) -> None:
        self._place = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "emu/proofs"

    def __contains__(self, key: str) -> bool:
        try:
            return (self._place / key).is_file()
        except OSError:
            return False

    def add(self, key: str) -> None:
        """Remember one."""
        with suppress(OSError):
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._place / key).touch(mode=0o600)
