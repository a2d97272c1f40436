"""What goes into a round of the window protocol, and what comes out of it?

A contribution in, parcels to and from the other workers, a step out. The rules are in
`actors.runtime.window`.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.runtime.outcome import Ending
from actors.runtime.sync import SyncPoint
from emu.wire.batch import Batch
from emu.wire.event import NEVER_PS


@dataclass(slots=True)
class Parcel:
    """What one worker sends another in a round: integers of the reduction, packets, or both."""

    kind: str
    round: int
    values: list[int]
    batch: Batch | None


@dataclass(slots=True)
class Contribution:
    """What a worker knows of itself when a round begins."""

    next_ps: int
    """The time of its next event, or earlier."""
    sent_ps: list[int]
    """The earliest arrival in the batch for each worker; NEVER_PS where there is none."""
    stop_ps: int = NEVER_PS
    """The end of the run, if a device here has announced it."""
    progress: int = 0
    """The progress of its devices, if the machine wants totals."""
    work: int = 0
    """How much is pending besides upkeep, here and in the batches, if the machine wants totals."""
    promises: int = 0
    """How much of it says that something goes on by itself (`Partition.outlook`)."""
    reached_ps: int = 0
    """It has executed nothing at or after this time."""
    busiest: int = NEVER_PS
    """Who of those that live here has sent most, if the machine wants to aim; the least of all is taken."""


@dataclass(slots=True)
class Step:
    """What a worker does after a round: take the batches, act at a sync point, then run or end."""

    batches: list[tuple[int, Batch]]
    sync: SyncPoint | None
    until_ps: int
    """Execute everything before this time, once it has acted."""
    ending: Ending | None = None
    virtual_ps: int = 0
    """With an ending: the virtual time at which the run ended."""
