"""Does the controller place flows as it says, and do leaves hold its entries while they lead anywhere?"""

from __future__ import annotations

from typing import Any

from actors.control.traffic_engineering import Change, Demand, PathFinder, Placement
from actors.fabric.model import Topology
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.optional.engineered import EngineeredRouting
from actors.switch.switch import Switch
from actors.wire.frame import WRITE_MIDDLE, Frame, wire_size
from actors.wire.message import TE_INSTALL
from emu import api
from emu.devices.switches import engineering_knobs
from emu.scenario.resolve import build_topology
from emu.scenario.sections.routing import POLICIES
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, zone
from tests.scenario.plain import plain

G = 10**9
DOWN, SPINES = 4, 4
"""A leaf's ports: 0 to 3 to NICs, 4 to 7 to the spines; every link 400G."""


def topology() -> Topology:
    return build_topology(scenario(zone(2, DOWN, SPINES)))


def demand(ingress: int, rate_bps: int, entry: int = -1, leaf: int = 0, prefix: int = 1) -> Demand:
    """From a port of a leaf to the other leaf's prefix."""
    return Demand(-rate_bps, topology().node_named(f"rtsw-{leaf}").number, ingress, prefix, entry)


def placed(
    demands: list[Demand], down: tuple[str, ...] = (), **knobs: Any
) -> tuple[list[tuple[int, int]], Placement]:
    """(ingress, port) of every change, and the rest."""
    one = topology()
    links = frozenset(link for name in down for link in one.links_named(name))
    section = POLICIES.section("traffic_engineering", **knobs)
    answer = Placement(PathFinder(one, links), engineering_knobs(section))
    answer.place(demands)
    return [(change.ingress, change.port) for change in answer.changes], answer


def test_the_largest_go_first_and_each_to_the_emptiest_way() -> None:
    changes, _ = placed([demand(0, 200 * G), demand(1, 390 * G), demand(2, 200 * G), demand(3, 300 * G)])
    assert changes == [(1, 4), (3, 5), (0, 6), (2, 7)]


def test_what_has_an_entry_stays_unless_another_way_is_much_better() -> None:
    at_home = [demand(0, 300 * G, 7), demand(1, 290 * G, 5)]
    assert placed(at_home)[0] == []
    # 100G on 5 beside 290G is 0.975 of a link; alone on 4 it is 0.25.
    assert placed([*at_home, demand(2, 100 * G, 5)])[0] == [(2, 4)]
    full = [demand(0, 200 * G, 4), *(demand(ingress, 190 * G, 4 + ingress) for ingress in (1, 2, 3))]
    # 15G beside 200G is 0.5375 of a link, beside 190G 0.5125.
    assert placed([*full, demand(8, 15 * G, 4)])[0] == []
    assert placed([*full, demand(8, 15 * G, 4)], hysteresis="1/64")[0] == [(8, 5)]


def test_what_fits_nowhere_is_left_to_the_hash_and_loses_its_entry() -> None:
    busy = [demand(ingress, 390 * G) for ingress in range(4)]
    down = ("rtsw-0:ctsw-1", "rtsw-0:ctsw-3")
    changes, answer = placed([*busy[:2], demand(2, 380 * G, 4), busy[3]], down)
    assert changes == [(2, -1), (0, 4), (1, 6)]
    assert answer.unplaced == 2


def test_links_are_filled_to_the_share_that_the_knob_says() -> None:
    demands = [demand(ingress, 150 * G) for ingress in range(4)]
    down = ("rtsw-0:ctsw-2", "rtsw-0:ctsw-3")
    assert placed(demands, down)[0] == [(0, 4), (1, 5), (2, 4), (3, 5)]
    changes, answer = placed(demands, down, fill="1/2")
    assert (changes, answer.unplaced) == ([(0, 4), (1, 5)], 2)


def test_a_link_that_is_down_further_on_is_on_nobodys_way() -> None:
    changes, _ = placed([demand(ingress, 390 * G) for ingress in range(3)], ("rtsw-1:ctsw-1",))
    assert changes == [(0, 4), (1, 6), (2, 7)]


def test_a_full_table_goes_to_the_largest_and_idle_entries_give_way() -> None:
    demands = [demand(0, 100 * G), demand(1, 200 * G), demand(2, 0, 6)]
    changes, answer = placed(demands, entries=2)
    assert (changes, answer.unplaced) == ([(2, -1), (1, 4), (0, 5)], 0)
    changes, answer = placed(demands, entries=1)
    assert (changes, answer.unplaced) == ([(2, -1), (1, 4)], 1)
    assert placed([demand(2, 0, 6)], entries=2)[0] == []


def test_below_the_threshold_nothing_is_placed() -> None:
    assert placed([demand(0, 9 * G)])[0] == []
    assert placed([demand(0, 9 * G)], threshold="5G")[0] == [(0, 4)]


def leaf_of(one: Fabric) -> tuple[Switch, EngineeredRouting]:
    switch = one.switch("rtsw-0")
    router = switch.router
    assert isinstance(router, EngineeredRouting)
    return switch, router


def install(one: Fabric, ingress: int, prefix: int, port: int) -> None:
    """An entry arrives from the controller, now."""
    message = Message(TE_INSTALL, ingress, prefix, port, 0, 0, 0)
    message.time_ps = int(one.queue.now_ps) + 1
    message.key = pack_key(one.switch("rtsw-0").number, MESSAGE, 2047, 0)
    one.queue.push(message)
    one.run(message.time_ps + 1)


def exits(one: Fabric, ingress: int, count: int = 24) -> list[int]:
    """The uplinks by which frames with many queue pairs leave."""
    switch, router = leaf_of(one)
    source, destination = (one.topology.address_of(one.topology.nics[nic]) for nic in (0, DOWN))
    group = list(switch._groups)[destination >> 10]
    frames = [
        Frame(WRITE_MIDDLE, 3, source, destination, 50_000, 7 * turn, 0, 4096, wire_size(WRITE_MIDDLE, 4096))
        for turn in range(count)
    ]
    return sorted({int(router.choose(frame, group, ingress, 0)) for frame in frames})


def engineered(**knobs: Any) -> Fabric:
    return Fabric(
        scenario(
            zone(2, DOWN, SPINES),
            routing={"kind": "traffic_engineering", "convergence": "1us", **knobs},
        )
    )


def test_an_entry_overrides_the_hash_for_its_port_and_prefix_alone() -> None:
    one = engineered()
    assert exits(one, 0) == exits(one, 1) == [4, 5, 6, 7]
    install(one, 0, 1, 6)
    assert (exits(one, 0), exits(one, 1)) == ([6], [4, 5, 6, 7])
    install(one, 0, 1, -1)
    assert exits(one, 0) == [4, 5, 6, 7]


def test_installs_by_no_way_or_into_a_full_table_are_refused_and_counted() -> None:
    one = engineered(entries=1)
    install(one, 0, 1, 2)
    install(one, 0, 0, 6)
    install(one, 0, 1, 6)
    install(one, 1, 1, 7)
    install(one, 0, 1, 5)
    _, router = leaf_of(one)
    assert (router.used, router.refused) == (1, 3)
    assert exits(one, 0) == [5]


def test_an_entry_goes_away_at_once_with_its_own_link_and_after_convergence_with_one_further_on() -> None:
    one = engineered()
    for ingress, port in ((0, 4), (1, 5), (2, 6)):
        install(one, ingress, 1, port)
    one.set_link("rtsw-0:ctsw-0", 2_000_000, up=False)
    one.set_link("rtsw-1:ctsw-1", 2_000_000, up=False)
    _, router = leaf_of(one)
    one.run(2_000_001)
    assert (router.used, router.withdrawn) == (2, 1)
    one.run(3_000_001)
    assert (router.used, router.withdrawn) == (1, 2)
    assert exits(one, 1) == [6, 7]
    one.set_link("rtsw-0:ctsw-0", 4_000_000, up=True)
    one.run(6_000_000)
    assert (router.used, exits(one, 2)) == (1, [6])


RING: dict[str, Any] = plain(
    {
        "name": "ring",
        "topology": {**zone(2, 4, 4), "link": "100G"},
        "control": {"management_delay": "5us"},
        "jobs": [
            {
                "name": "a",
                "order": "strided",
                "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"], "iterations": 4},
            }
        ],
    }
)


def test_messages_alone_take_the_controller_from_collisions_to_a_path_for_everyone() -> None:
    knobs = {"kind": "traffic_engineering", "interval": "40us"}
    first = api.run({**RING, "routing": knobs}, local=True, diagnose=False).summary
    engineering = first.fabric.engineering
    assert engineering is not None
    assert engineering.installs >= engineering.entries == 8
    assert engineering.matched_frames > 0
    hashed = api.run({**RING, "routing": {"kind": "e_ecmp"}}, local=True, diagnose=False).summary
    pinned = api.run({**RING, "routing": {"kind": "path_pinning"}}, local=True, diagnose=False).summary
    assert hashed.fabric.engineering is None
    last, hashed_last, pinned_last = (one.jobs["a"].collectives[-1].busbw for one in (first, hashed, pinned))
    assert last is not None
    assert hashed_last is not None
    assert last == pinned_last
    assert last > 1.1 * hashed_last
    parts = api.run({**RING, "routing": knobs}, local=True, parts=4, diagnose=False).summary
    assert parts.digest == first.digest


def test_a_controller_that_finds_nothing_to_place_is_reported() -> None:
    knobs = {"kind": "traffic_engineering", "interval": "1s"}
    never = [
        one.feature
        for one in api.run({**RING, "routing": knobs}, local=True, diagnose=False).summary.never_fired
    ]
    assert "routing.kind" in never


def test_a_change_names_a_leaf_an_ingress_a_prefix_and_a_port() -> None:
    _, answer = placed([demand(3, 100 * G, leaf=1, prefix=0)])
    assert answer.changes == [Change(topology().node_named("rtsw-1").number, 3, 0, 4)]


def test_a_run_that_stands_still_is_reported_although_the_controller_asks_for_ever() -> None:
    knobs = {"kind": "traffic_engineering", "interval": "40us"}
    cut = {"kind": "link_down", "target": "nic-0-0:rtsw-0", "at": "50us"}
    patient = {"transport": {"timeout": 0}, "run": {"stall_after": "1ms", "max_time": "20ms"}}
    summary = api.run(
        {**RING, "routing": knobs, "faults": [cut], **patient}, local=True, diagnose=False
    ).summary
    # Nobody sends again: soon after the cut nothing but the controller's questions and their answers is left.
    assert summary.ending == "stalled"
    assert 10**9 < summary.virtual_ps < 3 * 10**9
