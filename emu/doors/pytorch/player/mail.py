"""Objects that ranks of a script send one another while they are played: files in a folder that all see.

A rank that receives an object asks for its sender, which `emu torchrun` then plays beside it.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any, Final

from emu.doors.pytorch.record import NotRecordedError

POLL_S: Final = 0.02
WANTED: Final = "wanted-"
FAILED: Final = "failed"


class PeerFailedError(RuntimeError):
    """The rank that was to send an object ended without."""


class Mail:
    """The objects of one rank."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._counts: dict[tuple[str, int, int], int] = {}

    def _path(self, kind: str, group: str, sender: int, to: int) -> Path:
        if self._folder is None:
            raise NotRecordedError("objects of other ranks are received only where those are played too")
        key = (f"{kind}-{group}", sender, to)
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._folder / f"{kind}-{group}-{sender}-{to}-{self._counts[key]}"

    def send(self, kind: str, group: str, to: int, objects: Any) -> None:
        """Leave objects for a rank, or (-1) for all of a group."""
        if self._folder is None:
            return
        path = self._path(kind, group, self._rank, to)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(pickle.dumps(objects))
        unfinished.rename(path)

    def receive(self, kind: str, group: str, sender: int, to: int) -> Any:
        """Wait for what a rank sent. The players of one script trust one another's pickles."""
        path = self._path(kind, group, sender, to)
        if not path.exists():
            (path.parent / f"{WANTED}{sender}").touch()
        while not path.exists():
            if (path.parent / FAILED).exists():
                raise PeerFailedError(f"rank {sender} sent no object: it ended before")
            time.sleep(POLL_S)
        return pickle.loads(path.read_bytes())  # noqa: S301  written by this run's own players
