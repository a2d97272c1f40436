"""How did the thread of a worker end?

It comes back from another process, so it is a plain record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from emu.runtime.outcome import Ending


class Fault(StrEnum):
    """Whose fault the end was."""

    NONE = "none"
    OWN = "own"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Report:
    """How the thread ended: with the run (`ending`), because it was asked to (neither), or with a fault."""

    ending: Ending | None
    fault: Fault
    message: str
    details: str
    """A traceback, for what nobody expected."""
    virtual_ps: int
    windows: int
    wall_s: float
    cpu_s: float
