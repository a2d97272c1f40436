"""Does a SONiC switch's own configuration become the keys that mean the same, and is the rest refused by its
line?"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load, load_text
from emu.scenario.sections.switch import EcnSection, SwitchSection
from tests.fabric.rig import Fabric

ROOT = Path(__file__).parents[2]
TEXT = """
name: box
topology: {kind: star, hosts: 2, gpus_per_host: 1}
jobs: [{name: a, workload: {kind: permutation, size: 1KiB}}]
transport: {data_priority: 3}
switch:
  config_db: config_db.json
"""


def switch(directory: Path, config: object, more: str = "") -> SwitchSection:
    """The section that a file makes."""
    (directory / "config_db.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    return load_text(TEXT + more, "box.yaml", directory).scenario.switch


def reported(directory: Path, config: object) -> list[str]:
    """What it is refused for."""
    with pytest.raises(ScenarioError) as caught:
        switch(directory, config)
    return [str(problem).replace(f"{directory}/", "") for problem in caught.value.problems]


PROFILES = {
    "short": {"size": "1248", "dynamic_th": "-3", "xoff": "50000", "xon": "18432", "xon_offset": "2496"},
    "long": {"size": "4096", "dynamic_th": "-3", "xoff": "90000", "xon": "18432", "xon_offset": "2496"},
    "lossy": {"size": "0", "static_th": "300000"},
    "queue": {"size": "0", "dynamic_th": "3"},
}


def test_profiles_of_groups_become_profiles_and_the_longest_cable_counts(tmp_path: Path) -> None:
    groups = {
        "Ethernet0|3-4": {"profile": "[BUFFER_PROFILE|short]"},
        "Ethernet4,Ethernet8|3-4": {"profile": "long"},
        "Ethernet0|0": {"profile": "lossy"},
        "Ethernet4|7": {"profile": "NULL"},
    }
    made = switch(tmp_path, {"BUFFER_PROFILE": PROFILES, "BUFFER_PG": groups}).buffer
    lossy, lossless = made.profiles
    assert (lossy.priorities, lossy.xoff_bytes, lossy.reserve_bytes, lossy.headroom_bytes) == (
        (0,),
        300_000,
        0,
        None,
    )
    assert lossless.priorities == (3, 4)
    assert (float(lossless.alpha), lossless.xoff_bytes) == (0.125, None)
    assert (lossless.headroom_bytes, lossless.reserve_bytes) == (90_000, 4_096)
    assert lossless.resumes_at(4178) == (18_432, 2_496)


def test_without_an_offset_a_sender_goes_on_at_the_limit_as_on_the_box(tmp_path: Path) -> None:
    profiles = {"plain": {"size": "0", "dynamic_th": "0", "xoff": "50000"}}
    groups = {"Ethernet0|3": {"profile": "plain"}}
    (made,) = switch(tmp_path, {"BUFFER_PROFILE": profiles, "BUFFER_PG": groups}).buffer.profiles
    assert (float(made.alpha), made.resumes_at(4178)) == (1.0, (0, 0))


def test_pool_shared_headroom_and_limits_of_lossy_queues(tmp_path: Path) -> None:
    pools = {
        "ingress_lossless_pool": {"type": "ingress", "size": "33554432", "xoff": "4194304"},
        "egress_lossless_pool": {"type": "egress", "size": "1"},
    }
    queues = {"Ethernet0|0-2": {"profile": "queue"}, "Ethernet0|3": {"profile": "lossy"}}
    ports = {"Ethernet0": {"pfc_enable": "3"}, "global": {"pfc_enable": "7"}}
    config = {"BUFFER_POOL": pools, "BUFFER_PROFILE": PROFILES, "BUFFER_QUEUE": queues, "PORT_QOS_MAP": ports}
    made = switch(tmp_path, config)
    assert (made.buffer.pool_bytes, made.buffer.headroom_pool_bytes) == (33_554_432, 4_194_304)
    assert (float(made.buffer.egress_alpha), made.buffer.egress_limit_bytes) == (8.0, 0)
    assert made.buffer.lossless_egress_limit_bytes == 300_000
    assert made.pfc.priorities == (3,)


def test_maps_that_ports_use_are_complete(tmp_path: Path) -> None:
    config = {
        "PORT_QOS_MAP": {
            "Ethernet0": {"dscp_to_tc_map": "A", "tc_to_pg_map": "[TC_TO_PRIORITY_GROUP_MAP|B]"}
        },
        "DSCP_TO_TC_MAP": {"A": {"26": "3", "48": "6"}, "unused": {"0": "7"}},
        "TC_TO_PRIORITY_GROUP_MAP": {"B": {"3": "4"}},
    }
    qos = switch(tmp_path, config).qos
    assert [(at, tc) for at, tc in enumerate(qos.dscp_to_tc) if tc] == [(26, 3), (48, 6)]
    assert qos.tc_to_priority_group == (0, 0, 0, 4, 0, 0, 0, 0)
    assert qos.tc_to_queue == (0, 1, 2, 3, 4, 5, 6, 7)


def test_wred_schedulers_and_the_watchdog(tmp_path: Path) -> None:
    red = {"green_min_threshold": "100", "green_max_threshold": "4000", "green_drop_probability": "5"}
    red["wred_green_enable"] = "true"
    config = {
        "WRED_PROFILE": {"mark": {"ecn": "ecn_all", **red}, "drop": {"ecn": "ecn_none", **red}},
        "SCHEDULER": {"s": {"type": "STRICT"}, "w": {"type": "DWRR", "weight": "20"}},
        "QUEUE": {
            "Ethernet0|3-4": {"wred_profile": "mark", "scheduler": "w"},
            "Ethernet0|5": {"wred_profile": "drop", "scheduler": "s"},
        },
        "PFC_WD": {
            "GLOBAL": {"POLL_INTERVAL": "100"},
            "Ethernet0": {"detection_time": "250", "restoration_time": "400", "action": "forward"},
        },
    }
    made = switch(tmp_path, config)
    assert isinstance(made.ecn, EcnSection)
    (profile,) = made.ecn.profiles
    assert (made.ecn.enabled, made.ecn.scaled, made.ecn.priorities) == (True, False, (3, 4))
    assert (profile.priorities, profile.kmin_bytes, profile.kmax_bytes, float(profile.pmax)) == (
        (3, 4),
        100,
        4000,
        0.05,
    )
    assert made.scheduling.kind == "weighted"
    assert made.scheduling.strict == (0, 1, 2, 5, 6, 7)
    assert made.scheduling.weights == (1, 1, 1, 20, 20, 1, 1, 1)
    dog = made.pfc.watchdog
    assert (dog.enabled, dog.detection_ps, dog.restoration_ps, dog.action) == (
        True,
        3 * 10**11,  # looked at every 100 ms
        4 * 10**11,
        "forward",
    )


def test_what_the_scenario_says_itself_goes_before_and_the_effective_scenario_needs_no_file(
    tmp_path: Path,
) -> None:
    config = {
        "BUFFER_POOL": {"ingress_lossless_pool": {"size": "33554432"}},
        "PFC_WD": {"Ethernet0": {"detection_time": "250", "action": "drop"}},
    }
    more = "  buffer: {pool: 20MB}\n  pfc: {watchdog: {detection: 3ms}}\n"
    made = switch(tmp_path, config, more)
    assert (made.buffer.pool_bytes, made.pfc.watchdog.detection_ps) == (20_000_000, 3 * 10**9)
    assert made.pfc.watchdog.enabled
    scenario = load_text(TEXT + more, "box.yaml", tmp_path).scenario
    assert load_text(to_yaml(scenario)).scenario == scenario


def notes(directory: Path, config: object, more: str = "") -> list[str]:
    """What loading a file notes."""
    (directory / "config_db.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    return [
        note.removeprefix("switch.config_db: config_db.json: ")
        for note in load_text(TEXT + more, "box.yaml", directory).notes
    ]


def test_a_threshold_of_the_whole_pool_is_no_limit(tmp_path: Path) -> None:
    """Arista 7260: static_th 44,302,336 in a pool of 33,262,528 bytes."""
    pools = {
        "ingress_lossless_pool": {"type": "ingress", "size": "33262528", "xoff": "8965632"},
        "egress_lossless_pool": {"type": "egress", "size": "43481152"},
    }
    profiles = {
        "all": {"pool": "ingress_lossless_pool", "size": "0", "static_th": "44302336"},
        "out": {"pool": "egress_lossless_pool", "size": "0", "static_th": "43481152"},
    }
    config = {
        "BUFFER_POOL": pools,
        "BUFFER_PROFILE": profiles,
        "BUFFER_PG": {"Ethernet0|0": {"profile": "all"}},
        "BUFFER_QUEUE": {"Ethernet0|3-4": {"profile": "out"}},
        "PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3,4"}},
    }
    made = switch(tmp_path, config).buffer
    assert [(one.priorities, one.xoff_bytes) for one in made.profiles] == [((0,), 33_262_528)]
    assert not made.limited
    profiles["out"]["static_th"] = "43481151"
    assert switch(tmp_path, config).buffer.lossless_egress_limit_bytes == 43_481_151


def test_ports_that_are_shut_do_not_count(tmp_path: Path) -> None:
    """Mellanox 4600C: shut ports have zero profiles, which differ from those of all others."""
    profiles = {
        **PROFILES,
        "ingress_lossy_pg_zero_profile": {"size": "0", "static_th": "0"},
        "egress_lossy_zero_profile": {"size": "0", "dynamic_th": "-8"},
    }
    config = {
        "BUFFER_PROFILE": profiles,
        "BUFFER_PG": {
            "Ethernet0|0": {"profile": "ingress_lossy_pg_zero_profile"},
            "Ethernet4|0": {"profile": "lossy"},
            "Ethernet8|0": {"profile": "queue"},
        },
        "BUFFER_QUEUE": {
            "Ethernet0|0-2": {"profile": "egress_lossy_zero_profile"},
            "Ethernet4|0-2": {"profile": "queue"},
        },
        "PORT": {"Ethernet4": {"speed": "100000"}, "Ethernet8": {"admin_status": "down"}},
        "PORT_QOS_MAP": {"Ethernet4": {"pfc_enable": ""}},
    }
    made = switch(tmp_path, config).buffer
    assert [one.xoff_bytes for one in made.profiles] == [300_000]
    assert float(made.egress_alpha) == 8.0
    assert "ports that are shut are skipped: Ethernet0, Ethernet8" in notes(tmp_path, config)


RED = {"ecn": "ecn_all", "green_min_threshold": "100", "green_max_threshold": "4000"}


@pytest.mark.parametrize(
    ("fields", "pmax"),
    [
        ({"wred_green_enable": "true", "green_drop_probability": "5"}, 0.05),
        ({"wred_green_enable": "true"}, 1.0),
        ({"wred_green_enable": "true", "ecn": "ecn_green_yellow"}, 1.0),
        ({"wred_green_enable": "true", "ecn": "ecn_yellow"}, None),
        ({"wred_green_enable": "true", "ecn": "ecn_none"}, None),
        ({"wred_green_enable": "false"}, None),
        ({"green_drop_probability": "5"}, None),
    ],
)
def test_marks_are_those_of_green_packets_with_the_defaults_of_the_box(
    fields: dict[str, str], pmax: float | None, tmp_path: Path
) -> None:
    config = {"WRED_PROFILE": {"w": RED | fields}, "QUEUE": {"Ethernet0|3": {"wred_profile": "w"}}}
    ecn = switch(tmp_path, config).ecn
    assert isinstance(ecn, EcnSection)
    assert ecn.enabled == (pmax is not None)
    assert [float(one.pmax) for one in ecn.profiles] == ([] if pmax is None else [pmax])
    silent = "WRED_PROFILE|w has no wred_green_enable: queue 3 marks nothing, as on the box"
    marks_ecn = fields.get("ecn", "ecn_all") == "ecn_all" and fields.get("wred_green_enable") != "true"
    assert (silent in notes(tmp_path, config)) == marks_ecn


@pytest.mark.parametrize(
    ("poll", "detection", "seen_ms"), [(None, 250, 300), (None, 200, 200), (200, 250, 400), (600, 200, 600)]
)
def test_the_watchdog_sees_a_storm_when_the_box_looks(
    poll: int | None, detection: int, seen_ms: int, tmp_path: Path
) -> None:
    polls = {} if poll is None else {"GLOBAL": {"POLL_INTERVAL": str(poll)}}
    dog = {"PFC_WD": {**polls, "Ethernet0": {"detection_time": str(detection), "action": "drop"}}}
    assert switch(tmp_path, dog).pfc.watchdog.detection_ps == seen_ms * 10**9
    looks = f"PFC_WD detection_time {detection} ms takes {seen_ms} ms: the box looks every {poll or 100} ms"
    assert (looks in notes(tmp_path, dog)) == (seen_ms != detection)


LINES = """# PG lossless profiles.
# speed cable size    xon  xoff threshold xon_offset
400000  5m  9144  9144  371348  0  9144
400000  40m 9144  9144  424434  -1  9144
100000  5m  1248  2288  53248   0
"""
UNSAID = {
    "BUFFER_PROFILE": {"lossy": {"size": "0", "dynamic_th": "3"}},
    "BUFFER_PG": {"Ethernet0|0": {"profile": "lossy"}, "Ethernet0|3-4": {"profile": "NULL"}},
    "PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3,4"}},
    "CABLE_LENGTH": {"AZURE": {"Ethernet0": "5m", "Ethernet8": "5m", "Ethernet16": "0m"}},
}


def test_lossless_groups_without_a_profile_have_that_of_their_speed_and_cable(tmp_path: Path) -> None:
    (tmp_path / "pg.ini").write_text(LINES, encoding="utf-8")
    ports = {"Ethernet0": {"speed": "400000"}, "Ethernet8": {"speed": "400000"}}
    more = "  pg_profile_lookup: pg.ini\n"
    config: dict[str, Any] = {**UNSAID, "PORT": ports}
    made = switch(tmp_path, config, more)
    lossy, lossless = made.buffer.profiles
    assert (lossy.priorities, lossless.priorities) == ((0,), (3, 4))
    assert (lossless.headroom_bytes, lossless.reserve_bytes, float(lossless.alpha)) == (371_348, 9144, 1.0)
    assert lossless.resumes_at(4178) == (9144, 9144)
    assert made.pg_profile_lookup == ""
    assert notes(tmp_path, config, more) == []
    config["CABLE_LENGTH"] = {"AZURE": {"Ethernet0": "5m", "Ethernet8": "40m"}}
    with pytest.raises(
        ScenarioError, match=r"400000_40m_profile and pg_lossless_400000_5m_profile .* dynamic_th"
    ):
        switch(tmp_path, config, more)
    config["CABLE_LENGTH"] = {"AZURE": {"Ethernet0": "300m"}}
    with pytest.raises(ScenarioError, match=r"CABLE_LENGTH|Ethernet0: no line .* 400000 Mb/s and 300m"):
        switch(tmp_path, config, more)
    (tmp_path / "pg.ini").write_text("400000 5m 9144\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"pg.ini:1: switch.pg_profile_lookup: 3 words are no profile"):
        switch(tmp_path, config, more)


def test_what_is_filled_in_is_noted(tmp_path: Path) -> None:
    """Groups without a profile, a pool without a size (the dynamic model), a ninth traffic class, no PFC."""
    made = switch(tmp_path, UNSAID)
    assert [one.priorities for one in made.buffer.profiles] == [(0,)]
    (line,) = notes(tmp_path, UNSAID)
    assert line.startswith("BUFFER_PG has no profile of lossless priority groups 3, 4: the box takes size")
    assert line.endswith(
        "by speed and cable (5m, 0m), which switch.pg_profile_lookup reads; without it headroom"
        " is auto, the rest as by default"
    )
    config = {
        "BUFFER_POOL": {"ingress_lossless_pool": {"type": "ingress", "mode": "dynamic"}},
        "TC_TO_QUEUE_MAP": {"A": {"3": "3", "8": "0"}},
        "PORT_QOS_MAP": {"Ethernet0": {"tc_to_queue_map": "A"}},
    }
    assert not switch(tmp_path, config).pfc.enabled
    assert notes(tmp_path, config) == [
        "PORT_QOS_MAP has no pfc_enable: PFC is off, as on the box",
        "TC_TO_QUEUE_MAP|8 is skipped: traffic classes are 0 to 7 here",
        "BUFFER_POOL|ingress_lossless_pool has no size, which this box works out: buffer.pool is the default",
        "Left out: BUFFER_POOL type, BUFFER_POOL mode",
    ]


def test_a_file_of_buffers_alone_is_refused_for_what_it_lacks(tmp_path: Path) -> None:
    config = {"BUFFER_PROFILE": PROFILES, "BUFFER_QUEUE": {"Ethernet0|0-2": {"profile": "queue"}}}
    (line,) = reported(tmp_path, config)
    assert line.startswith(
        "config_db.json:26: switch.config_db: BUFFER_QUEUE: which priorities are lossless is in PORT_QOS_MAP"
        " (pfc_enable), which the file lacks; accepted: one file of both"
    )
    made = switch(tmp_path, config, "  pfc: {priorities: [3]}\n").buffer
    assert float(made.egress_alpha) == 8.0


def test_lossless_queues_drop_beyond_their_limit_as_the_box_does() -> None:
    """Seven senders, one receiver: pauses come at 2 MB a sender, the queue's limit is 100 KB."""
    scenario = {
        "name": "limit",
        "topology": {"kind": "star", "hosts": 4, "gpus_per_host": 1},
        "switch": {"buffer": {"lossless_egress_limit": "100KB"}},
        "transport": {"timeout": 6},
        "jobs": [{"name": "a", "workload": {"kind": "incast", "fan_in": 3, "size": "512KiB"}}],
    }
    found = api.run(scenario, local=True, diagnose=False).summary.fabric
    assert found.drops is not None
    assert found.drops.by_reason["egress_limit"] > 0
    assert found.drops.congestion == found.drops.by_reason["egress_limit"]
    scenario["switch"] = {"buffer": {"lossless_egress_limit": "10MB"}}
    found = api.run(scenario, local=True, diagnose=False).summary.fabric
    assert found.drops is not None
    assert found.drops.congestion == 0


DIFFER = {"Ethernet0": {"pfc_enable": "3,4"}, "Ethernet4": {"pfc_enable": "3"}}


@pytest.mark.parametrize(
    ("config", "line", "said"),
    [
        ([], 1, "switch.config_db: is no mapping of tables; accepted: CONFIG_DB as JSON"),
        (
            {"PORT_QOS_MAP": DIFFER},
            7,
            "switch.config_db: PORT_QOS_MAP|Ethernet4|pfc_enable: ports have several roles",
        ),
        (
            {"BUFFER_PROFILE": {"p": {"dynamic_th": "99"}}, "BUFFER_PG": {"Ethernet0|3": {"profile": "p"}}},
            4,
            "switch.config_db: BUFFER_PROFILE|dynamic_th: '99' is out of range; accepted: -10 to 10",
        ),
        (
            {"BUFFER_PG": {"Ethernet0|3": {"profile": "p"}}},
            4,
            "switch.config_db: BUFFER_PG|Ethernet0|3: BUFFER_PROFILE has no 'p'; accepted: a name",
        ),
        (
            {
                "BUFFER_PROFILE": PROFILES,
                "BUFFER_PG": {"Ethernet0|3": {"profile": "short"}, "Ethernet4|3": {"profile": "queue"}},
            },
            31,
            "switch.config_db: BUFFER_PG|Ethernet4|3: queue and short (on Ethernet0) differ in dynamic_th",
        ),
        (
            {"PFC_WD": {"Ethernet0": {"detection_time": "200", "action": "alert"}}},
            5,
            "switch.config_db: PFC_WD|action: 'alert' is not modelled; accepted: drop or forward",
        ),
        ({"PFC_WD": 7}, 2, "switch.config_db: PFC_WD: is no mapping of entries; accepted: CONFIG_DB as JSON"),
        (
            {"QUEUE": {"Ethernet0|x": {"scheduler": "s"}}, "SCHEDULER": {"s": {}}},
            4,
            "switch.config_db: QUEUE|Ethernet0|x: has no number at its end; accepted: Ethernet0|3-4",
        ),
        (
            {"PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "A"}}},
            4,
            "switch.config_db: PORT_QOS_MAP|dscp_to_tc_map: DSCP_TO_TC_MAP has no such map",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_file_and_line(
    tmp_path: Path, config: object, line: int, said: str
) -> None:
    first = reported(tmp_path, config)[0]
    assert first.startswith(f"config_db.json:{line}: {said}"), first


def test_a_file_that_is_not_there_or_no_json_is_refused_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TEXT, "box.yaml", tmp_path)
    (missing,) = caught.value.problems
    assert (missing.file, missing.line, missing.key) == ("box.yaml", 7, "switch.config_db")
    assert "there is no such file" in missing.reason
    (tmp_path / "config_db.json").write_text("{", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"box.yaml:7: switch.config_db: .*not YAML"):
        load_text(TEXT, "box.yaml", tmp_path)


ZONE = """
name: boxes
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 1, spines: 2}
jobs: [{name: a, workload: {kind: permutation, size: 1KiB}}]
transport: {data_priority: 3}
switch:
  config_db: leaf.json
overrides: [{devices: "ctsw-*", switch: {config_db: spine.json}}]
"""


def boxes(directory: Path, leaf: object, spine: object, text: str = "") -> list[SwitchSection]:
    """The sections of a leaf and of a spine that a file for all and one for spines make."""
    for name, config in (("leaf", leaf), ("spine", spine)):
        (directory / f"{name}.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    loaded = load_text(text or ZONE, "boxes.yaml", directory)
    topology = api.prepare(loaded).topology
    named = [topology.node_named(name).number for name in ("rtsw-1", "ctsw-0")]
    return [loaded.scenario.at(topology, number).switch for number in named]


def pool(size: int, **more: object) -> dict[str, object]:
    return {"BUFFER_POOL": {"ingress_lossless_pool": {"type": "ingress", "size": str(size)}}, **more}


def groups(headroom: int, **more: object) -> dict[str, object]:
    profile = {"size": "1000", "dynamic_th": "-2", "xoff": str(headroom)}
    return {"BUFFER_PROFILE": {"p": profile}, "BUFFER_PG": {"Ethernet0|3": {"profile": "p"}}, **more}


def test_switches_have_the_pool_profiles_and_maps_of_their_own_boxes(tmp_path: Path) -> None:
    ports = {"Ethernet0": {"pfc_enable": "3,6", "dscp_to_tc_map": "A"}}
    red = {"green_min_threshold": "100", "green_max_threshold": "4000", "green_drop_probability": "5"}
    red["wred_green_enable"] = "true"
    marking = {
        "WRED_PROFILE": {"mark": {"ecn": "ecn_all", **red}},
        "QUEUE": {"Ethernet0|3": {"wred_profile": "mark"}},
    }
    leaf = {**pool(32_000_000), **groups(90_000), **marking, "PORT_QOS_MAP": ports}
    leaf |= {"DSCP_TO_TC_MAP": {"A": {"24": "3", "48": "6"}}}
    spine = {**pool(16_000_000), **groups(170_000), "PORT_QOS_MAP": {"Ethernet8": {"pfc_enable": "3,6"}}}
    made = boxes(tmp_path, leaf, spine)
    found = []
    for one in made:
        three = one.buffer.profiles_of()[3]
        found.append((one.buffer.pool_bytes, three.headroom_bytes, float(three.alpha), one.pfc.priorities))
    assert found == [(32_000_000, 90_000, 0.25, (3, 6)), (16_000_000, 170_000, 0.25, (3, 6))]
    assert made[0].qos.dscp_to_tc[24:27] == (3, 0, 0)
    assert made[1].qos.plain
    assert [one.ecn.enabled for one in made] == [True, False]
    by_queue = made[0].ecn
    assert isinstance(by_queue, EcnSection)
    marks = [one and one.kmax_bytes for one in by_queue.profiles_of()]
    assert marks == [None, None, None, 4000, None, None, None, None]


def test_a_leaf_whose_own_file_has_no_pfc_loads_and_has_pfc_off(tmp_path: Path) -> None:
    spine = {**pool(16_000_000), "PORT_QOS_MAP": {"Ethernet8": {"pfc_enable": "3,6"}}}
    leaf = {**spine, "PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "A"}}}
    leaf["DSCP_TO_TC_MAP"] = {"A": {"24": "3"}}
    own, other = boxes(tmp_path, leaf, spine)
    assert (own.pfc.enabled, other.pfc.enabled) == (False, True)
    text = (
        ZONE.replace("leaf.json", "spine.json")
        .replace('"ctsw-*"', "rtsw-1")
        .replace("{config_db: spine", "{config_db: leaf")
    )
    own, other = boxes(tmp_path, leaf, spine, text)
    assert (own.pfc.enabled, other.pfc.enabled) == (False, True)


def test_what_the_file_of_a_box_does_not_say_is_there_as_by_default(tmp_path: Path) -> None:
    dog = {"PFC_WD": {"Ethernet0": {"detection_time": "250", "action": "forward"}}}
    made = boxes(tmp_path, {**pool(32_000_000), **dog}, groups(170_000))
    found = [(one.buffer.pool_bytes, one.pfc.watchdog.enabled) for one in made]
    assert found == [(32_000_000, True), (None, False)]


def test_what_the_scenario_itself_says_goes_before_every_file(tmp_path: Path) -> None:
    text = ZONE.replace("leaf.json", "leaf.json\n  pfc: {priorities: [3]}\n  buffer: {pool: 50MB}")
    ports = {"PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3,6"}}}
    made = boxes(tmp_path, pool(32_000_000), {**pool(16_000_000), **ports}, text)
    assert [(one.buffer.pool_bytes, one.pfc.priorities) for one in made] == [(50_000_000, (3,))] * 2


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("[leaf.json]", r"boxes.yaml:7: switch.config_db: \['leaf.json'\] names no file; accepted: a file"),
        (
            '{"rtsw-*": leaf.json}',
            "boxes.yaml:7: switch.config_db: .*names no file; accepted: a file; of single",
        ),
        ("gone.json", "boxes.yaml:7: switch.config_db: .*gone.json: there is no such file"),
    ],
)
def test_what_names_no_file_is_refused_where_it_is_written(files: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "spine.json").write_text(json.dumps(pool(32_000_000)), encoding="utf-8")
    with pytest.raises(ScenarioError, match=said):
        api.prepare(load_text(ZONE.replace("leaf.json", files), "boxes.yaml", tmp_path))


def test_the_switches_of_a_fabric_are_built_from_their_own_boxes(tmp_path: Path) -> None:
    for name, size in (("leaf", 32_000_000), ("spine", 16_000_000)):
        (tmp_path / f"{name}.json").write_text(json.dumps(pool(size)), encoding="utf-8")
    scenario = load_text(ZONE, "boxes.yaml", tmp_path).scenario
    assert load_text(to_yaml(scenario)).scenario == scenario
    fabric = Fabric(scenario)
    # A leaf and a spine have two ports each here: 2 x 8 reserves of 4 KiB; headroom differs with the cable.
    for name, size in (("rtsw-0", 32_000_000), ("ctsw-1", 16_000_000)):
        buffer = fabric.switch(name).buffer
        headroom = sum(group.headroom_bytes for group in buffer.groups)
        ports = len(fabric.switch(name).ports)
        assert buffer.pool_bytes == size - ports * 8 * 4096 - headroom


WORDS = st.sampled_from(
    ["", "3", "3-4", "-1", "NULL", "short", "[A|short]", "Ethernet0", "Ethernet0|3-4", "99999999999999999"]
)
VALUES = st.recursive(
    st.one_of(WORDS, st.integers(-5, 5), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
TABLES = st.sampled_from(
    [
        "BUFFER_POOL",
        "BUFFER_PROFILE",
        "BUFFER_PG",
        "BUFFER_QUEUE",
        "PORT_QOS_MAP",
        "PFC_WD",
        "QUEUE",
        "SCHEDULER",
    ]
)


@given(st.dictionaries(TABLES, VALUES, max_size=5))
def test_whatever_a_file_holds_is_read_or_refused(tmp_path_factory: Any, config: dict[str, object]) -> None:
    directory = tmp_path_factory.getbasetemp()
    with suppress(ScenarioError):
        assert switch(directory, config).config_db == ""


def test_the_example_is_what_its_page_says() -> None:
    made = load(ROOT / "scenarios/switch/sonic.yaml").scenario.switch
    assert (made.buffer.pool_bytes, made.buffer.headroom_pool_bytes) == (16_000_000, 2_100_000)
    assert [profile.priorities for profile in made.buffer.profiles] == [(0,), (3, 4)]
    assert made.buffer.profiles[1].headroom_bytes == 170_000
    assert made.config_db == ""


def test_headroom_of_a_group_that_pfc_enable_leaves_out_is_refused_by_name(tmp_path: Path) -> None:
    """The box would keep 50 KB of headroom for group 4 and never pause it; no other reason is given."""
    config = {
        "BUFFER_PROFILE": PROFILES | {"egress": {"size": "0", "static_th": "900000"}},
        "BUFFER_PG": {"Ethernet0|3-4": {"profile": "short"}, "Ethernet0|0": {"profile": "lossy"}},
        "BUFFER_QUEUE": {"Ethernet0|3-4": {"profile": "egress"}, "Ethernet0|0": {"profile": "queue"}},
        "PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3"}},
    }
    (line,) = reported(tmp_path, config)
    assert "PORT_QOS_MAP|pfc_enable: '3' leaves out 4, which BUFFER_PG gives a lossless profile" in line
    assert "3,4, or profiles without xoff for 4" in line
    config["PORT_QOS_MAP"] = {"Ethernet0": {"pfc_enable": "3,4"}}
    assert switch(tmp_path, config).pfc.priorities == (3, 4)
    lossy = {"Ethernet0|3": {"profile": "short"}, "Ethernet0|0-2": {"profile": "lossy"}}
    config |= {"BUFFER_PG": lossy, "PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3"}}}
    config["BUFFER_QUEUE"] = {"Ethernet0|3": {"profile": "egress"}}
    assert switch(tmp_path, config).pfc.priorities == (3,)
