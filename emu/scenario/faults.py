"""What breaks, and when? Section `faults`, by `kind`.

A fault's number in results (`faults[0]`) is its place in the list. What a list of faults means for each
link is in `emu.faults.timeline`.
"""

from __future__ import annotations

from typing import Final, Literal

from emu.scenario.section import OneOf, Section
from emu.scenario.values import LinkName, PositiveTimePs, TimePs


class FaultSection(Section):
    """What every fault shares."""

    kind: str
    """What happens."""
    at_ps: TimePs
    """When, in virtual time."""


class LinkDown(FaultSection):
    """A link loses its signal in both directions; frames in flight are lost."""

    kind: Literal["link_down"] = "link_down"
    """Both directions stop."""
    target: LinkName
    """The link, by its two ends: "rtsw-0:ctsw-3"."""
    for_ps: PositiveTimePs | None = None
    """How long. Default: until a `link_up`, or the end of the run."""


class LinkUp(FaultSection):
    """A link comes back, whatever took it down."""

    kind: Literal["link_up"] = "link_up"
    """Both directions carry frames again."""
    target: LinkName
    """The link, by its two ends: "rtsw-0:ctsw-3"."""


FAULTS: Final = OneOf("kind", {"link_down": LinkDown, "link_up": LinkUp})
