"""Hints to the processor: what is about to be read is fetched into the cache meanwhile.

A large fabric has more frames than a cache holds, and a hop that waits for memory waits as long as it
computes. Which frame is read next is mostly known before. A hint changes no answer. Interpreted there is
none: the build gives these functions their bodies (`actors.compiled.build`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.event import Event
from actors.kernel.vectors import vec
from actors.wire.frame import Frame

AHEAD: Final[i64] = 28
"""A table is fetched so many places before it is read: as many as are read while memory answers."""


def fetch_event(table: vec[Event | None], at: i64) -> None:
    """Fetch the event at a place of a table, which may be beyond its end."""


def fetch_frame(table: vec[Frame], at: i64) -> None:
    """Fetch the frame at a place of a table, which may be beyond its end."""


def fetch_behind(event: Event) -> None:
    """Fetch what waits behind an event: the next frame of an egress queue, or the next event of a slot."""
