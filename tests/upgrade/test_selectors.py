"""Do lists of devices of the last release become overrides that say the same of every device?"""

from __future__ import annotations

import pytest

from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.schema import Scenario
from emu.upgrade import renames
from emu.upgrade.scenarios import upgraded_scenario
from tests.scenario.scenarios import refusals

HEAD = """name: old
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 1, spines: 2}
jobs: [{name: a, workload: {kind: permutation, size: 1KiB}}]
"""
OLD = (
    HEAD
    + """switch:
  buffer:
    pool: 32MB
    pools:
      - {switches: [rtsw-0], pool: 16MB}
      - {switches: ["rtsw-*"], headroom_pool: 1MB}  # leaves
    profiles:
      - {priorities: [3], alpha: 1/4, switches: ["ctsw-*"]}
      - {priorities: [3, 6], xoff: 100KB}
  deep_buffer: {where: listed, switches: [ctsw-1]}
  pfc:
    off: [nic-1-0]
    one_way: [{device: nic-2-0, obeys: false}, {device: rtsw-0, peer: ctsw-1, sends: false}]
  ecn: {enabled: true, profiles: [{priorities: [6], kmin: 20KB, switches: [rtsw-1]}]}
  qos:
    dscp_to_tc: {26: 3}
    exceptions:
      # Somebody forgot these.
      - {switches: [rtsw-1], dscp_to_tc: {26: 0}}
      - {switches: [rtsw-1, ctsw-0], tc_to_queue: {3: 4}}
nic: {receive: {enabled: true, rate: 50G, nics: [nic-2-0, nic-3-0]}}
host: {pcie: {enabled: true, nics: [nic-0-0]}, proxy_cost: 1us}
link: {bit_errors: [{link: "rtsw-0:ctsw-0", rate: 1/1000000}]}
"""
)


def upgraded(text: str) -> Scenario:
    """The scenario that a text becomes, on whose fabric everything is found."""
    made = load_text(upgraded_scenario(text).text).scenario
    resolve(made, build_topology(made))
    return made


def test_every_device_has_what_the_lists_said_of_it() -> None:
    made = upgraded(OLD)
    topology = build_topology(made)
    views = {node.name: made.at(topology, node.number) for node in topology.nodes}
    switches = [views[name].switch for name in ("rtsw-0", "rtsw-1", "ctsw-0", "ctsw-1")]
    # Of two pools the first that named a switch counted, and had the default where it said nothing.
    pools = [(one.buffer.pool_bytes, one.buffer.headroom_pool_bytes) for one in switches]
    assert pools == [(16_000_000, None), (64_000_000, 1_000_000), (32_000_000, None), (32_000_000, None)]
    assert [float(one.buffer.profiles_of()[3].alpha) for one in switches] == [0.125, 0.125, 0.25, 0.25]
    assert [one.buffer.profiles_of()[6].xoff_bytes for one in switches] == [100_000] * 4
    assert [one.deep_buffer.where for one in switches] == ["none", "none", "none", "all"]
    assert [one.ecn.profiles_of()[6] is not None for one in switches] == [False, True, False, False]
    assert [one.qos.dscp_to_tc[26] for one in switches] == [3, 0, 3, 3]
    assert [one.qos.tc_to_queue[3] for one in switches] == [3, 3, 4, 3]
    nics = [views[f"nic-{host}-0"] for host in range(4)]
    assert [one.switch.pfc.enabled for one in nics] == [True, False, True, True]
    halves = [(one.pfc.silent_to, one.pfc.ignores) for one in (nics[2].switch, *switches[:2])]
    assert halves == [((), ("*",)), (("ctsw-1",), ()), ((), ())]
    assert [one.nic.receive.enabled for one in nics] == [False, False, True, True]
    assert {one.nic.receive.rate_bps for one in nics} == {50 * 10**9}
    assert [one.host.pcie.enabled for one in nics] == [True, False, False, False]
    rates = {link.name: made.link_at(topology, link.number).bit_error_rate for link in topology.links}
    assert [name for name, rate in rates.items() if rate] == ["rtsw-0:ctsw-0"]


def test_the_rest_of_the_text_and_its_comments_stay_and_a_second_upgrade_changes_nothing() -> None:
    once = upgraded_scenario(OLD)
    assert once.left == []
    for kept in ("# leaves", "# Somebody forgot these.", "proxy_cost: 1us", "    dscp_to_tc: {26: 3}\n"):
        assert kept in once.text
    again = upgraded_scenario(once.text)
    assert (again.text, again.changes) == (once.text, [])


def test_empty_lists_of_an_effective_scenario_are_taken_away() -> None:
    kept = "switch:\n  buffer:\n    pool: 32MB\n"
    lists = "    pools: []\n  pfc: {off: []}\nlink:\n  bit_errors: []\n"
    assert upgraded_scenario(HEAD + kept + lists).text == HEAD + kept


def test_files_by_patterns_become_that_of_all_and_those_of_overrides() -> None:
    found = upgraded_scenario(HEAD + 'switch: {config_db: {"rtsw-*": a.json, "ctsw-*": b.json}}\n')
    overrides = 'overrides:\n  - {devices: "ctsw-*", switch: {config_db: b.json}}\n'
    assert found.text == f"{HEAD}switch: {{config_db: a.json}}\n{overrides}"
    (note,) = found.left
    assert note.text == "switches that no pattern named have the configuration of rtsw-* now"


def test_profiles_of_patterns_that_may_overlap_and_lists_in_variants_are_left_to_a_person() -> None:
    profiles = '[{priorities: [3], switches: ["rtsw-*"]}, {priorities: [6], switches: [rtsw-1]}]'
    variants = "variants:\n  off: {switch.pfc.off: [nic-0-0]}\n"
    text = f"{HEAD}switch: {{ecn: {{profiles: {profiles}}}}}\n{variants}"
    found = upgraded_scenario(text)
    assert found.text == text
    assert [note.line for note in found.left] == [4, 6]


def test_halves_of_pfc_that_name_a_port_twice_are_left_to_a_person() -> None:
    halves = "[{device: rtsw-0, obeys: false}, {device: rtsw-0, peer: ctsw-1, sends: false}]"
    text = f"{HEAD}switch: {{pfc: {{one_way: {halves}}}}}\n"
    found = upgraded_scenario(text)
    assert found.text == text
    told = "switch.pfc.one_way names ports more than once: write them in overrides"
    assert [(note.line, note.text) for note in found.left] == [(text.count("\n"), told)]


@pytest.mark.parametrize("path", sorted(renames.MOVED))
def test_an_old_list_is_refused_with_the_override_named(path: str) -> None:
    value = "[x]"
    for key in reversed(path.split(".")):
        value = f"{{{key}: {value}}}" if not key.endswith("[]") else f"{{{key[:-2]}: [{value}]}}"
    told = refusals(f"{HEAD}{value[1:-1]}\n")
    old = [line for line in told if "now; `emu upgrade FILE` rewrites it" in line]
    assert [f"is '{renames.moved_key(path)}' now" in line for line in old] == [True]
