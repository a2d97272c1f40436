"""Devices and links that are configured otherwise than their peers.

Peers are switches of one tier of a network, NICs, GPUs, hosts, storage servers, or links between the same
tiers. What most of them have is the fleet's configuration. An override (`overrides` of a scenario) that less
than half of them share is a difference from it, as one sees who compares running configurations: of its keys,
those count whose value is another than most peers have, however many an override (or the `config_db` in it)
repeats. Whether it costs anything is found by emulating the run with the fleet's configuration there
(`emu.views.diagnosis.healing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from actors.fabric.model import FABRIC, Topology
from emu.scenario.schema import Scenario
from emu.scenario.section import Section
from emu.scenario.sections.overrides import OverrideSection
from emu.views.diagnosis.finding import ODD, Finding
from emu.views.diagnosis.view import View

SCORE: Final = 760
MOST_KEYS: Final = 4
BY_DEFAULT: Final = "by default"
"""What is shown of an entry of a map that is not written."""


def found(view: View) -> Iterator[Finding]:
    """Every device and link that differs from the fleet."""
    for name, places in differences(view.scenario, view.topology).items():
        keys = _unlike_peers(view.scenario, view.topology, name, places)
        if not keys:
            continue
        shown = ", ".join(keys[:MOST_KEYS]) + (
            f" and {len(keys) - MOST_KEYS} more" if keys[MOST_KEYS:] else ""
        )
        sentence = f"{name} is configured otherwise than its peers: {shown}"
        yield Finding(ODD, name, SCORE, sentence, tuple(f"{name}: {key}" for key in keys))


def differences(scenario: Scenario, topology: Topology) -> dict[str, list[int]]:
    """The overrides that are not the fleet's, by name of a device or link; of two peers that differ, both."""
    found: dict[str, list[int]] = {}
    if not scenario.overrides:
        return found
    for peers in _fleets(topology):
        for place, one in enumerate(scenario.overrides):
            odd = [name for name in peers if _is_for(one, name)]
            two = len(peers) == 2 * len(odd) == 2  # neither is the fleet
            if two or len(odd) * 2 < len(peers):
                for name in peers if two else odd:
                    found.setdefault(name, []).append(place)
    return found


def overridden(scenario: Scenario, name: str) -> bool:
    """Whether an override names a device or link."""
    return any(_is_for(one, name) for one in scenario.overrides)


def _is_for(one: OverrideSection, name: str) -> bool:
    """Whether an override is for the device or link of a name."""
    return one.names_link(name) if ":" in name else one.link is None and one.names(name)


def like_the_fleet(scenario: Scenario, topology: Topology, name: str) -> Scenario:
    """The scenario with one device or link configured as its peers are."""
    places = differences(scenario, topology).get(name, [])
    every = [other for peers in _fleets(topology) for other in peers]
    overrides: list[OverrideSection] = []
    for place, one in enumerate(scenario.overrides):
        if place not in places:
            overrides.append(one)
            continue
        left = tuple(other for other in every if other != name and _is_for(one, other))
        if not _is_for(one, name):  # one of two peers, configured as the other
            left = (*left, name)
        if left:
            overrides.append(one.model_copy(update={"devices": left}))
    return scenario.model_copy(update={"overrides": tuple(overrides)})


def _fleets(topology: Topology) -> list[list[str]]:
    """Names of peers."""
    fleets: dict[object, list[str]] = {}
    for node in topology.nodes:
        fleets.setdefault(_stands(topology, node.number), []).append(node.name)
    for link in topology.links:
        if link.kind == FABRIC:
            ends = (_stands(topology, link.a), _stands(topology, link.b))
            fleets.setdefault(ends, []).append(link.name)
    return list(fleets.values())


def _stands(topology: Topology, number: int) -> tuple[object, ...]:
    """What peers share: role, tier, network, and whether they are in a host or in a storage server."""
    node = topology.nodes[number]
    server = topology.nodes[topology.host_of(number)].model if node.host >= 0 else ""
    return node.role, node.tier, node.network, server


def _unlike_peers(scenario: Scenario, topology: Topology, name: str, places: list[int]) -> list[str]:
    """The keys in which a device or link is another than most of its peers, each with both values."""
    peers = next(fleet for fleet in _fleets(topology) if name in fleet)
    sections = dict.fromkeys(section for place in places for section in scenario.overrides[place].parts)
    equal: dict[tuple[int, ...], list[str]] = {}
    for peer in peers:
        equal.setdefault(_overrides_of(scenario, topology, peer), []).append(peer)
    running = {of: dict(_running(scenario, topology, some[0], sections)) for of, some in equal.items()}
    own = running[_overrides_of(scenario, topology, name)]
    found = []
    for key in dict.fromkeys(key for one in running.values() for key in one):
        values: dict[str, int] = {}
        for of, some in equal.items():
            value = running[of].get(key, BY_DEFAULT)
            others = len(some) - (name in some)
            if others:
                values[value] = values.get(value, 0) + others
        usual = max(values, key=lambda value: values[value])
        here = own.get(key, BY_DEFAULT)
        if here != usual:
            found.append(f"{key} {here} (its peers: {usual})")
    return found


def _overrides_of(scenario: Scenario, topology: Topology, name: str) -> tuple[int, ...]:
    """The overrides that count for a device or link, by place."""
    if ":" in name:
        return tuple(at for at, one in enumerate(scenario.overrides) if _is_for(one, name))
    return scenario.overrides_of(topology, topology.node_named(name).number)


def _running(
    scenario: Scenario, topology: Topology, name: str, sections: Mapping[str, None]
) -> Iterator[tuple[str, str]]:
    """The keys of some sections as a device or link has them, with their values as YAML writes them."""
    for section in sections:
        if section == "link":
            found: Section = scenario.link_at(topology, topology.links_named(name)[0])
        else:
            found = getattr(scenario.at(topology, topology.node_named(name).number), section)
        yield from _keys(found.model_dump(by_alias=True), f"{section}.")


def _keys(parts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a section and its value: `nic.receive.rate`, `5G`."""
    for key, value in parts.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _word(value)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_word, value))}]"
    return str(value)
