"""Thresholds and headroom of priority groups: profiles, warnings, refusals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.devices.buffer_sizes import headroom_warnings, shared_pool_bytes
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone


def test_a_headroom_below_the_formula_is_reported_for_the_worst_port() -> None:
    # 2 x 500 ns at 400G is 50,000 B; three frames of 4,178 B and a pause of 84 B more.
    exact = {"buffer": {"headroom": f"{50_000 + 3 * 4178 + 84}B"}}
    less = {"buffer": {"headroom": f"{50_000 + 3 * 4178 + 83}B"}}
    for switch, reported in ((exact, 0), (less, 1)):
        one = scenario(star(3), switch=switch)
        assert len(headroom_warnings(one, build_topology(one))) == reported
    one = scenario(zone(2, 1, 1, uplink_delay="5us"), switch=exact)
    (line,) = headroom_warnings(one, build_topology(one))
    assert line == (
        "switch.buffer.headroom: 62618B is too small for 4 ports of switches"
        " (rtsw-0 to ctsw-0 needs 512618B): lossless classes may drop; use auto"
    )


def test_automatic_headroom_is_never_too_small_and_without_pfc_none_is_needed() -> None:
    for switch in ({}, {"buffer": {"headroom": "1KiB"}, "pfc": {"enabled": False}}):
        one = scenario(star(3), switch=switch)
        assert headroom_warnings(one, build_topology(one)) == []


PROFILES = [
    {"priorities": [6], "alpha": "1/2", "headroom": "62KB", "reserve": "8KiB"},
    {"priorities": [6, 3], "xoff": "100KB", "xon": "20KB", "headroom": "70KB", "reserve": 0},
]
ONE_MORE = [{"devices": "rtsw-0", "switch": {"buffer": {"profiles": PROFILES}}}]
"""Only rtsw-0 has the first one too."""


def test_groups_have_the_first_profile_that_names_them_and_the_rest_the_section() -> None:
    one = scenario(
        zone(2, 1, 1),
        switch={"buffer": {"alpha": "1/4", "xon_offset": "1KB", "profiles": PROFILES[1:]}},
        overrides=ONE_MORE,
    )
    fabric = Fabric(one)
    for name, six in (("rtsw-0", (32_768, 0, 0, 8_356, 8_192, 62_000)), ("rtsw-1", None)):
        static = (0, 100_000, 20_000, 2**46, 0, 70_000)
        rest = (16_384, 0, 0, 1_000, 4_096, 0)
        found = [
            (
                int(group.alpha_fixed),
                int(group.xoff_bytes),
                int(group.xon_bytes),
                int(group.xon_offset_bytes),
                int(group.reserve_bytes),
                int(group.headroom_bytes),
            )
            for group in fabric.switch(name).buffer.groups
        ]
        assert found == [rest, rest, rest, static, rest, rest, six or static, rest] * 2
    # Two ports: six reserves of 4 KiB, one of 8 KiB or none, and headroom for 3 and 6.
    assert fabric.switch("rtsw-0").buffer.pool_bytes == 64_000_000 - 2 * (6 * 4096 + 8192 + 70_000 + 62_000)
    assert fabric.switch("rtsw-1").buffer.pool_bytes == 64_000_000 - 2 * (6 * 4096 + 2 * 70_000)


def test_the_headroom_of_each_profile_is_reported_where_it_is_too_small() -> None:
    one = scenario(zone(2, 1, 1), switch={"buffer": {"profiles": PROFILES[1:]}}, overrides=ONE_MORE)
    # Without latencies a port needs 62,618 B (see above).
    (line,) = headroom_warnings(one, build_topology(one))
    assert line == (
        "overrides[0].switch.buffer.profiles[0].headroom: 62000B is too small for 2 ports of switches"
        " (rtsw-0 to nic-0-0 needs 62618B): lossless classes may drop; use auto"
    )


def test_headroom_that_is_shared_leaves_more_and_is_reported_if_all_may_need_more_of_it() -> None:
    # Without latencies a port needs 62,618 B for each of two classes (see above).
    reported = (
        "switch.buffer.headroom_pool: 375707B for all ports is less than the 375708B that switch may"
        " need if all are stopped at once: lossless classes may drop"
    )
    for shared_bytes, lines in ((2 * 3 * 62_618, []), (2 * 3 * 62_618 - 1, [reported])):
        one = scenario(star(3), switch={"buffer": {"headroom_pool": f"{shared_bytes}B"}})
        topology = build_topology(one)
        (switch,) = topology.switches
        assert shared_pool_bytes(one, topology, switch) == 64_000_000 - 3 * 8 * 4096 - shared_bytes
        assert headroom_warnings(one, topology) == lines


def test_a_group_with_a_static_threshold_stops_its_sender_there_and_lets_go_at_its_xon() -> None:
    profile = {"priorities": [3], "xoff": "50KB", "xon": "10KB", "reserve": 0}
    fabric = Fabric(scenario(star(4), switch={"buffer": {"profiles": [profile]}}), [(0, 3), (1, 3), (2, 3)])
    for connection in range(3):
        fabric.post(0, connection, 1 << 20)
    held = []
    group = fabric.switch("switch").buffer.groups[3]
    while fabric.run_events(1):
        held.append((bool(group.stopped), int(group.shared_bytes)))
    changes = [(old, new) for old, new in pairwise(held) if old[0] != new[0]]
    # A frame of 4,174 B (the first, with RETH) or 4,158 B crosses 50,000 B, and the last to leave goes to
    # 10,000 B.
    assert len(changes) > 2
    for (_, before), (stopped, after) in changes:
        if stopped:
            assert before <= 50_000 < after
        else:
            assert before > 10_000 >= after
    assert fabric.broken(at_rest=True, lossless=True) == []


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        (
            {"pool": "64MB", "xoff": "65MB"},
            "switch.buffer.xoff: is larger than the pool; accepted: less than `pool`",
        ),
        ({"xoff": 0}, "switch.buffer.xoff: 0 is too small; accepted: at least 1B"),
        ({"xoff": "1MB", "xon": "2MB"}, "switch.buffer.xon: lies above xoff; accepted: at most `xoff`"),
        ({"pool": "64MB", "headroom_pool": "65MB"}, "switch.buffer.headroom_pool: is larger than the pool"),
        ({"headroom_pool": "163MB"}, "switch.buffer.headroom_pool: is larger than the pool"),
        ({"profiles": [{"alpha": 1}]}, "switch.buffer.profiles[0].priorities: is required"),
        (
            {"profiles": [{"priorities": [3], "headroom": "1GB"}]},
            "switch.buffer.profiles[0].headroom: is larger than the pool",
        ),
        (
            {"profiles": [{"priorities": [3, 3]}]},
            "switch.buffer.profiles[0].priorities: a priority is listed twice",
        ),
        ({"egress_alpha": -1}, "switch.buffer.egress_alpha: -1 is negative"),
    ],
)
def test_thresholds_that_cannot_be_are_refused_by_name(buffer: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), switch={"buffer": buffer})
    assert said in str(caught.value)
