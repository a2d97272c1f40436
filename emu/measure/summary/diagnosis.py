"""What does `summary.json` say of what a run suffered from, and of what was configured in vain?"""

from __future__ import annotations

from typing import NamedTuple

from emu.measure.summary.training import Part


class Diagnosed(Part):
    """A cause that the run is suspected to have suffered from; see docs/diagnosis.md."""

    cause: str
    """What: `link_down`, `slow_receiver`, `configuration_drift` and so on."""
    place: str
    """Where: a device, a link `a:b`, or a port `a>b`."""
    score: int
    """How directly the evidence points to it, up to 1000."""
    since_ps: int
    """When it began, as far as is known; -1 where nothing tells."""
    sentence: str
    """What happened, in words."""
    evidence: list[str]
    """What speaks for it, a line each."""


class Reference(Part):
    """What a run is compared with, to tell what mattered: the same jobs where all is well."""

    jobs: dict[str, int]
    """How long each job took there that ended well, in ps; of one that repeats, its longest round."""
    alarms: dict[str, int]
    """What an operator is called for, and how often it was counted there."""
    imbalance: dict[str, float]
    """Of every group of equal ports that carried payload there: that of the fullest over the mean."""
    span_ps: int | None = None
    """Where jobs repeat: for how long they ran there; what was counted is compared by virtual time."""


class Judged(NamedTuple):
    """What was made of a run at its end: fields of the summary, under their names there."""

    diagnosis: list[Diagnosed]
    reference: Reference | None = None
    uncompared_events: int | None = None


class Unfired(Part):
    """A feature that the scenario configures and that made no difference."""

    feature: str
    """The scenario's key."""
    reason: str
    """One line."""
