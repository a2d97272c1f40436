"""The table of routing policies, and how a switch gets one.

A new policy is a class in a file of its own beside `actors.switch.routing.policy`, a line in `MAKERS` and its
knobs in `emu.scenario.sections.routing`; `module:Class` needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from actors.control.traffic_engineering import EngineeringKnobs
from actors.kernel.mixing import Stream
from actors.port.link import MessagePort
from actors.switch.routing.engineered import EngineeredRouting
from actors.switch.routing.flowlet import Flowlets, LeastLoaded
from actors.switch.routing.hashing import FIELDS, FUNCTIONS, FieldHash
from actors.switch.routing.pinning import PathPinning
from actors.switch.routing.policy import HashedRouting, RoutingPolicy, SwitchView
from actors.switch.routing.spray import RandomSpray, RoundRobinSpray
from actors.switch.switch import Switch
from emu.build.plugin_state import load_checked
from emu.scenario.sections.routing import Adaptive, Flowlet, RoutingSection, Spray, TrafficEngineering

ROUTING_PURPOSE: Final = 5
"""Of the random stream of a switch's routing policy."""

Maker = Callable[[SwitchView, RoutingSection], RoutingPolicy]


def _flowlets(view: SwitchView, knobs: RoutingSection) -> RoutingPolicy:
    assert isinstance(knobs, Flowlet), knobs
    return Flowlets(view, knobs, knobs.gap_ps, knobs.entries, least_loaded=False)


def _spray(view: SwitchView, knobs: RoutingSection) -> RoutingPolicy:
    assert isinstance(knobs, Spray), knobs
    return RandomSpray(view, knobs) if knobs.order == "random" else RoundRobinSpray(view, knobs)


def _adaptive(view: SwitchView, knobs: RoutingSection) -> RoutingPolicy:
    assert isinstance(knobs, Adaptive), knobs
    if knobs.granularity == "packet":
        return LeastLoaded(view, knobs)
    return Flowlets(view, knobs, knobs.gap_ps, knobs.entries, least_loaded=True)


def _engineered(view: SwitchView, knobs: RoutingSection) -> RoutingPolicy:
    assert isinstance(knobs, TrafficEngineering), knobs
    management = view.management
    assert management is not None, view.number
    return EngineeredRouting(view, knobs, management, knobs.entries, knobs.threshold_bps)


def engineering_knobs(section: TrafficEngineering) -> EngineeringKnobs:
    """What the controller's engineer is told."""
    return EngineeringKnobs(
        section.interval_ps,
        section.entries,
        section.threshold_bps,
        Fraction(section.fill),
        Fraction(section.hysteresis),
    )


MAKERS: Final[dict[str, Maker]] = {
    "ecmp": HashedRouting,
    "e_ecmp": HashedRouting,
    "path_pinning": PathPinning,
    "flowlet": _flowlets,
    "spray": _spray,
    "adaptive": _adaptive,
    "traffic_engineering": _engineered,
}


def field_hash(knobs: RoutingSection, tier: int, seed: int) -> FieldHash:
    """The hash of a switch of this tier."""
    polynomials = knobs.polynomial or (0,)
    return FieldHash(
        FUNCTIONS[knobs.hash],
        [FIELDS.index(field) for field in knobs.fields],
        polynomials[min(max(tier, 1), len(polynomials)) - 1],
        knobs.bit_offset[min(max(tier, 1), len(knobs.bit_offset)) - 1],
        seed,
    )


def is_written_out(knobs: RoutingSection) -> bool:
    """Whether the switch has this policy inline: `mix` over the fields of ECMP or E-ECMP."""
    return knobs.plainly_hashed


def give_policy(
    switch: Switch,
    knobs: RoutingSection,
    scenario_seed: int,
    tier: int,
    management: MessagePort | None = None,
) -> None:
    """Let a switch, complete with its ports, route by these knobs; before its groups are computed.

    `management` leads to the controller, if the policy is controlled.
    """
    if is_written_out(knobs):
        return
    stream = Stream(scenario_seed, switch.number, ROUTING_PURPOSE)
    view = SwitchView(switch.number, tier, field_hash(knobs, tier, switch.hash_seed), stream)
    view.management = management
    for port in switch.ports:
        view.add_port(port)
    make: Maker = MAKERS[knobs.kind] if knobs.kind in MAKERS else load_checked(knobs.kind)
    switch.router = make(view, knobs)
