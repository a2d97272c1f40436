"""When does a fault occur, and what does it hit? The keys that every kind of fault shares.

A kind says what its target is (`aim`), what it changes there (`strike`), and what it does not fit
(`objections`). `emu.scenario.faults.schedule` makes occurrences of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field

from actors.fabric.model import Topology
from emu.scenario.faults.events import Change
from emu.scenario.faults.targets import Aim, Spot
from emu.scenario.sections.section import Refusal, Section
from emu.scenario.yaml.values import PositiveTimePs, TimePs, word
from emu.units import BEYOND_THE_CLOCK, CLOCK_ACCEPTED, MAX_QUANTITY

if TYPE_CHECKING:
    from emu.scenario.schema import Scenario

TargetName = Annotated[
    str,
    word(
        "a target",
        r"(any |busiest )?[A-Za-z*?\[][A-Za-z0-9_.*?\[\]-]*([:>/][A-Za-z0-9_.*?\[\]-]+)?(/[0-9]{1,4})?",
        'a name, a pattern like "rtsw-*", a role like "rtsw:ctsw", or "any " or "busiest " and one of these',
    ),
]
Count = Annotated[int, Field(ge=1, le=65536)]


class Strike(NamedTuple):
    """What a fault does where it hits."""

    changes: list[Change]
    down: tuple[int, ...] = ()
    """Links that lose their signal."""
    avoided: tuple[int, ...] = ()
    """Links that routing takes out of use."""
    unaware: int = -1
    """The switch whose own routing does not change."""


class Objection(NamedTuple):
    """Why a fault does not fit the scenario or the fabric."""

    key: str
    reason: str
    accepted: str


class FaultSection(Section):
    """What every fault shares."""

    aim: ClassVar[Aim] = "link"
    repairs: ClassVar[bool] = False
    drawn: ClassVar[bool] = False

    kind: str
    """What happens."""
    at_ps: TimePs = 0
    """When, in virtual time."""

    @property
    def hits(self) -> str:
        """The target as written; empty where there is none."""
        return str(getattr(self, "target", ""))

    @property
    def lasts_ps(self) -> int:
        """How long one occurrence lasts; 0 until it is repaired, or the end of the run."""
        return 0

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """Begin and end (0 for never) of each occurrence before the end of the run."""
        yield self.at_ps, self.at_ps + self.lasts_ps if self.lasts_ps else 0

    def strike(self, spot: Spot, topology: Topology, scenario: Scenario) -> Strike:
        """What an occurrence changes at one spot."""
        raise NotImplementedError

    def objections(self, spot: Spot, topology: Topology, scenario: Scenario) -> Iterator[Objection]:
        """What speaks against it at one spot."""
        yield from ()


class RecurringFault(FaultSection):
    """A fault that may last, end and come again."""

    target: TargetName
    """What it hits: a name, a pattern (`rtsw-*`), a role (`rtsw:ctsw`), `any` of these, drawn each time, or
    the `busiest` of these, measured each time."""
    for_ps: PositiveTimePs | None = None
    """How long. Default: until it is repaired, or the end of the run."""
    every_ps: PositiveTimePs | None = None
    """Again so long after it began the last time. Default: once."""
    count: Count | None = None
    """How often in all, with `every`. Default: until `run.max_time`."""
    until_ps: PositiveTimePs | None = None
    """It does not come again from then on, and what is under way ends then. Default: never."""

    @property
    def lasts_ps(self) -> int:
        """How long one occurrence lasts; 0 until it is repaired, or the end of the run."""
        return self.for_ps or 0

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """Begin and end (0 for never) of each occurrence before the end of the run."""
        most = 1 if self.every_ps is None else self.count or 1 << 17
        for number in range(most):
            begin_ps = self.at_ps + number * (self.every_ps or 0)
            if number and begin_ps >= end_ps:
                return
            yield begin_ps, self.cut_ps(begin_ps + self.lasts_ps if self.lasts_ps else 0)

    def cut_ps(self, end_ps: int) -> int:
        """When an occurrence ends that would at `end_ps` (0 for never)."""
        if self.until_ps is None:
            return end_ps
        return min(end_ps, self.until_ps) if end_ps else self.until_ps

    def happens(self, begin_ps: int) -> bool:
        """Whether what would occur then does. Those that do not keep their numbers, so that a fault that is
        cleared while a run goes on leaves the numbers of all others as they are."""
        return self.until_ps is None or begin_ps < self.until_ps

    def check(self) -> Iterator[Refusal]:
        """Refuse times that contradict each other."""
        yield from self.check_until()
        if self.at_ps + self.lasts_ps > MAX_QUANTITY:
            yield Refusal(("for",), f"ends {BEYOND_THE_CLOCK}", CLOCK_ACCEPTED)
        if self.count is not None and self.every_ps is None:
            yield Refusal(("count",), "counts what happens once", "every: the time from one to the next")
        if self.every_ps is not None and (self.for_ps is None or self.for_ps >= self.every_ps):
            yield Refusal(("every",), "comes again before it has ended", "for: less than every")

    def check_until(self) -> Iterator[Refusal]:
        """Refuse what ends before it begins."""
        if self.until_ps is not None and self.until_ps <= self.at_ps:
            yield Refusal(("until",), "is not after at", "a later time")
