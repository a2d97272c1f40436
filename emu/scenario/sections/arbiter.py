"""Whose turn is it at a NIC's port? Section `nic.arbiter`.

An arbiter is one line in `ARBITERS`: its name and the model of its knobs. One of your own is `module:Class`,
and brings its model with it.

Source: IEEE 802.1Qaz (enhanced transmission selection) for sharing a port between classes by weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.sections.section import Refusal, Section
from emu.scenario.yaml.values import Priority

Weight = Annotated[int, Field(ge=1, le=256)]


class ArbiterSection(Section):
    """What every arbiter shares."""

    policy: str
    """Which arbiter."""


class RoundRobin(ArbiterSection):
    """Strict between classes; queue pairs of a class in turn, one packet each."""

    policy: Literal["round_robin"] = "round_robin"
    """Queue pairs in turn."""


class Weighted(ArbiterSection):
    """Classes share the port by weight; queue pairs of a class in turn."""

    policy: Literal["weighted"] = "weighted"
    """Classes by weight."""
    strict: Annotated[tuple[Priority, ...], Field(max_length=8)] = (6,)
    """Priorities that go before all others, the highest number first."""
    weights: Annotated[tuple[Weight, ...], Field(min_length=8, max_length=8)] = (1, 1, 1, 1, 1, 1, 1, 1)
    """Share of each priority in what the strict ones leave, in largest frames a turn."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a priority listed twice."""
        if len(dict.fromkeys(self.strict)) != len(self.strict):
            yield Refusal(("strict",), "a priority is listed twice", "each priority once")


ARBITERS: Final = OneOfOrPlugin(
    "policy",
    {"round_robin": RoundRobin, "weighted": Weighted},
    default="round_robin",
    base=ArbiterSection,
    methods=("choose_class", "choose_pair", "on_sent"),
    parent="actors.nic.arbiter.Arbiter",
)
