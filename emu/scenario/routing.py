"""How does a switch choose among equal paths? Section `routing`.

A policy is one line in `POLICIES`: its name and the model of its knobs, which are written beside the common
ones.

Sources: Meta (SIGCOMM'24): static ECMP hashes the 5-tuple; E-ECMP adds the destination queue pair of the BTH
through a user-defined field, and is what their LLM training runs on.
"""

from __future__ import annotations

from typing import Final, Literal

from emu.scenario.section import OneOf, Section
from emu.scenario.values import TimePs
from emu.units import parse_time


class RoutingSection(Section):
    """What every policy shares."""

    policy: str
    """Which policy."""
    hash: Literal["mix"] = "mix"
    """Hash over the fields. `mix` is not linear in its seed, so differing seeds cure polarisation."""
    seed: Literal["per_switch", "equal"] = "per_switch"
    """Whether each switch draws a hash seed of its own, or all have the same."""
    convergence_ps: TimePs = parse_time("1ms")
    """From a link's change of state until groups no longer (or again) hold it. A choice, not a
    measurement."""


class Ecmp(RoutingSection):
    """Static hash on the 5-tuple."""

    policy: Literal["ecmp"] = "ecmp"
    """Hash on addresses, protocol and UDP ports."""


class EEcmp(RoutingSection):
    """Static hash on the 5-tuple and the destination queue pair."""

    policy: Literal["e_ecmp"] = "e_ecmp"
    """Hash on addresses, protocol, UDP ports and the destination queue pair of the BTH."""


POLICIES: Final = OneOf("policy", {"ecmp": Ecmp, "e_ecmp": EEcmp}, default="e_ecmp")
