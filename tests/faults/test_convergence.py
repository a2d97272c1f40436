"""How long is a black hole, and who notices: what link state and BGP's timers make of it, in closed form."""

import random
from typing import Any

import pytest

from actors.fabric.model import Topology
from emu import api
from emu.counts.counts import Counts
from emu.devices.switches import GraphRoutes
from emu.scenario.faults.convergence import Convergence
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from tests.summary.known import known

US = 1_000_000
FRAME_PS = 4178 * 80
"""A full frame of a message at 100G."""
IN_FLIGHT = 24
"""Data and acknowledgements of one round trip, 4 us at most, and the first frames sent again."""
TWO_RACKS = {
    "kind": "ai_zone",
    "racks": 2,
    "hosts_per_rack": 1,
    "gpus_per_host": 1,
    "spines": 2,
    "link": "100G",
}
FLOW = {"kind": "flows", "qps": 1, "message": "16MiB", "flows": [{"src": 0, "dst": 1, "size": "16MiB"}]}


def lost(
    fault: dict[str, Any], routing: dict[str, Any], link: dict[str, Any] | None = None
) -> dict[str, int]:
    """Frames that a flow at 100G loses to a fault of the far link of its path, and how often ports went down.

    The flow has one of two spines, so the fault hits one and then the other.
    """
    worst = {"frames": -1}
    for spine in (0, 1):
        mapping = {
            "name": "black-hole",
            "topology": TWO_RACKS,
            "routing": routing,
            "link": link or {},
            "transport": {"timeout": 8},
            "run": {"max_time": "1ms"},
            "jobs": [{"name": "job", "workload": FLOW}],
            "faults": [{"target": f"ctsw-{spine}:rtsw-1", "at": "50us"} | fault],
        }
        result = api.run(mapping, local=True, diagnose=False)
        downs = Counts(result.outcome.devices).total("port_link_downed")
        found = {"frames": known(result.summary.fabric.drops).total, "downs": downs}
        worst = max(worst, found, key=lambda one: one["frames"])
    return worst


BGP = {"enabled": True, "hop": "40us", "hold_time": "100us"}
DOWN = {"kind": "link_down"}


@pytest.mark.parametrize(("debounce_us", "local_us", "hop_us"), [(0, 0, 40), (0, 30, 40), (50, 30, 80)])
def test_a_black_hole_lasts_for_debounce_and_local_convergence_and_a_hop(
    debounce_us: int, local_us: int, hop_us: int
) -> None:
    routing = {"local_convergence": f"{local_us}us", "bgp": BGP | {"hop": f"{hop_us}us"}}
    sent = (debounce_us + local_us + hop_us) * US // FRAME_PS
    found = lost(DOWN, routing, {"down_debounce": f"{debounce_us}us"})["frames"]
    assert sent <= found <= sent + IN_FLIGHT


def test_a_link_that_keeps_its_signal_is_noticed_by_the_hold_timer_alone() -> None:
    silent = {"kind": "degrade", "loss": 1, "for": "600us"}
    held = (100 + 5 + 40) * US // FRAME_PS
    routing = {"local_convergence": "5us", "bgp": BGP}
    assert held <= lost(silent, routing)["frames"] <= held + IN_FLIGHT
    # By nobody without BGP: what is sent is lost until it ends, less what waits for a timeout of 1 ms.
    assert lost(silent, {"convergence": "5us"})["frames"] >= 600 * US // FRAME_PS


def test_an_outage_shorter_than_the_debounce_time_costs_its_frames_and_takes_nothing_down() -> None:
    outage = DOWN | {"for": "30us"}
    sent = 30 * US // FRAME_PS
    short = lost(outage, {"convergence": "20us"}, {"down_debounce": "40us"})["frames"]
    assert sent <= short <= sent + IN_FLIGHT


TIERS = {"kind": "llama3", "pods": 2, "racks_per_pod": 2, "hosts_per_rack": 1, "ctsws_per_pod": 4, "atsws": 2}


def zone(topology: dict[str, Any], **routing: Any) -> tuple[Scenario, Topology]:
    """A scenario with these times, and its fabric."""
    mapping = {
        "name": "tiers",
        "topology": topology,
        "routing": routing,
        "link": {"down_debounce": "7us"},
        "jobs": [{"name": "job", "workload": {"kind": "permutation", "size": "1MiB"}}],
    }
    scenario = load_mapping(mapping).scenario
    return scenario, build_topology(scenario)


HOPS = {"rtsw-0": 0, "ctsw-0-0": 0, "ctsw-0-1": 1, "atsw-0": 1, "rtsw-1": 1, "ctsw-1-0": 2, "rtsw-2": 3}
"""From the nearer end of rtsw-0:ctsw-0-0, by hand."""


@pytest.mark.parametrize("interval_us", [0, 50])
def test_a_switch_hears_after_a_hop_and_a_tick_for_each_switch_that_passes_it_on(interval_us: int) -> None:
    bgp = {"enabled": True, "hop": "10us", "advertisement_interval": f"{interval_us}us"}
    scenario, fabric = zone(TIERS, local_convergence="3us", bgp=bgp)
    (link,) = fabric.links_named("rtsw-0:ctsw-0-0")
    one = Convergence(scenario, fabric)
    assert one.debounce_ps(link) == (7 * US, 0)
    for begin_ps in (0, 13 * US, 999 * US + 7):
        heard = one.heard_ps(link, begin_ps, frozenset({link}), -1)
        for name, hops in HOPS.items():
            wait_ps = heard[fabric.node_named(name).number] - begin_ps - 3 * US - hops * 10 * US
            assert 0 <= wait_ps <= hops * interval_us * US


def test_an_advertisement_waits_for_half_an_interval_on_average() -> None:
    bgp = {"enabled": True, "hop": "10us", "advertisement_interval": "50us"}
    scenario, fabric = zone(TWO_RACKS | {"spines": 1}, local_convergence="3us", bgp=bgp)
    (link,) = fabric.links_named("rtsw-0:ctsw-0")
    one, far = Convergence(scenario, fabric), fabric.node_named("rtsw-1").number
    draw = random.Random(3)
    moments = [draw.randrange(1000 * US) for _ in range(400)]
    waits = [one.heard_ps(link, at_ps, frozenset({link}), -1)[far] - at_ps - 13 * US for at_ps in moments]
    assert 0 <= min(waits) < US
    assert 49 * US < max(waits) < 50 * US
    assert sum(waits) / 400 == pytest.approx(25 * US, rel=0.06)  # 2.4 standard errors


@pytest.mark.parametrize(("up_us", "times"), [(0, 5), (100, 1)])
def test_a_link_that_flaps_faster_than_its_debounce_time_stays_down(up_us: int, times: int) -> None:
    flap = {"kind": "link_flap", "down": "10us", "up": "50us", "flaps": 5}
    assert lost(flap, {"convergence": "5us"}, {"up_debounce": f"{up_us}us"})["downs"] == 2 * times


@pytest.mark.parametrize(("buckets", "moved"), [(64, 16), (0, 2)])
def test_a_lost_uplink_moves_its_own_buckets_and_no_others(buckets: int, moved: int) -> None:
    scenario, fabric = zone(TIERS, resilient_buckets=buckets)
    leaf = fabric.node_named("rtsw-0").number
    routes = GraphRoutes(fabric, scenario.routing)
    (link,) = fabric.links_named("rtsw-0:ctsw-0-1")
    prefix = fabric.prefixes - 1
    before, after = (list(routes.groups(leaf, down)[prefix].ports) for down in ([], [link]))
    dead = next(at for at, end in enumerate(fabric.ports(leaf)) if end.link == link)
    assert dead not in after
    if buckets:
        assert len(before) == len(after) == buckets
        assert [one for one in range(buckets) if before[one] != after[one]] == [
            one for one in range(buckets) if before[one] == dead
        ]
        assert sorted(after.count(port) for port in set(after)) == [21, 21, 22]
    assert sum(one == dead for one in before) == (moved if buckets else 1)
