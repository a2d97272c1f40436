"""Does a change of any value in a foreign file change the scenario, or is it in what a note says is left out?

One rule for all readers, held against every value of a fixture of each: the value is changed, and then the
scenario differs, or it is refused, or "Left out: ..." names the place that was changed.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.doors.foreign.importing import Wish, imported
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_text, read_file
from emu.scenario.readers.chakra import left_out
from emu.scenario.readers.msccl import read_msccl
from tests.cli.test_importing import CLAB, EDGES, FLOWS, MATRIX, REQUESTS, TOPO, TRAINER, VIDUR
from tests.scenario.test_msccl import direct
from tests.scenario.test_nccl_topology import DUMP
from tests.scenario.test_topology_files import SIMAI
from tests.workload import chakra_files as et
from tests.workload.test_simai import staged

BOX = """
name: box
topology: {kind: star, hosts: 2, gpus_per_host: 1}
jobs: [{name: a, workload: {kind: permutation, size: 1KiB}}]
transport: {data_priority: 3}
switch: {config_db: config_db.json}
"""
CONFIG: dict[str, Any] = {
    "DEVICE_METADATA": {"localhost": {"hwsku": "one"}},
    "PORT": {
        "Ethernet0": {"speed": "400000", "lanes": "1", "admin_status": "up"},
        "Ethernet4": {"mtu": "9100"},
    },
    "BUFFER_POOL": {
        "ingress_lossless_pool": {
            "type": "ingress",
            "mode": "dynamic",
            "size": "33554432",
            "xoff": "4194304",
        },
        "egress_lossless_pool": {"type": "egress", "mode": "static", "size": "33554432"},
    },
    "BUFFER_PROFILE": {
        "short": {"pool": "ingress_lossless_pool", "size": "1248", "dynamic_th": "-3", "xoff": "50000"}
        | {"xon": "18432", "xon_offset": "2496"},
        "long": {"pool": "ingress_lossless_pool", "size": "1248", "dynamic_th": "-3", "xoff": "90000"}
        | {"xon": "18432", "xon_offset": "2496"},
        "queue": {"pool": "egress_lossless_pool", "size": "0", "static_th": "300000"},
        "unused": {"pool": "ingress_lossless_pool", "size": "7", "dynamic_th": "1"},
    },
    "BUFFER_PG": {"Ethernet0|3-4": {"profile": "short"}, "Ethernet4|3-4": {"profile": "long"}},
    "BUFFER_QUEUE": {"Ethernet0|0-2": {"profile": "queue"}},
    "PORT_QOS_MAP": {
        "Ethernet0": {"pfc_enable": "3,4", "dscp_to_tc_map": "A", "pfcwd_sw_enable": "3"},
        "Ethernet4": {"pfc_enable": "3,4", "dscp_to_tc_map": "A"},
    },
    "DSCP_TO_TC_MAP": {"A": {"26": "3", "48": "6"}, "B": {"0": "7"}},
    "WRED_PROFILE": {
        "mark": {
            "ecn": "ecn_all",
            "wred_green_enable": "true",
            "wred_yellow_enable": "true",
            "green_min_threshold": "4000000",
            "green_max_threshold": "8000000",
            "green_drop_probability": "5",
            "yellow_min_threshold": "77",
            "ecn_green_min_threshold": "100000",
            "ecn_green_max_threshold": "400000",
            "ecn_green_mark_probability": "5",
        }
    },
    "SCHEDULER": {"w": {"type": "DWRR", "weight": "20", "pir": "1000"}, "s": {"type": "STRICT"}},
    "QUEUE": {"Ethernet0|3-4": {"wred_profile": "mark", "scheduler": "w"}, "Ethernet0|5": {"scheduler": "s"}},
    "PFC_WD": {
        "GLOBAL": {"POLL_INTERVAL": "100"},
        "Ethernet0": {"detection_time": "200", "restoration_time": "400", "action": "forward"},
    },
}


def others(text: str) -> Iterator[str]:
    """Other values of the same kind, where there are kinds to see: a number is one more, and far less."""
    other = {"true": "false", "up": "down", "forward": "drop", "STRICT": "DWRR", "DWRR": "STRICT"}
    if text.removeprefix("-").isdigit():
        yield from (str(int(text) + 1), str(int(text) // 1000))
    else:
        yield other.get(text, "ecn_none" if text == "ecn_all" else f"{text}_other")


def named(notes: str, *places: str) -> bool:
    """Whether one of the places is among what is left out."""
    words = re.findall(r"Left out: (.*)", notes)
    return any(re.sub(r" \(\d+ times\)$", "", one) in places for line in words for one in line.split(", "))


def fields(config: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for table, entries in config.items():
        for key, entry in entries.items():
            for field in entry:
                yield table, key, field


def outcome_of_box(directory: Path, config: dict[str, Any]) -> tuple[str, str]:
    """The effective scenario or why it is refused, and the notes."""
    (directory / "config_db.json").write_text(json.dumps(config), encoding="utf-8")
    try:
        loaded = load_text(BOX, "box.yaml", directory)
    except ScenarioError as error:
        return str(error), ""
    return to_yaml(loaded.scenario), "\n".join(loaded.notes)


@pytest.mark.parametrize(("table", "key", "field"), list(fields(CONFIG)))
def test_a_field_of_a_box_changes_the_scenario_or_is_named(
    tmp_path: Path, table: str, key: str, field: str
) -> None:
    before = outcome_of_box(tmp_path, CONFIG)
    for value in others(CONFIG[table][key][field]):
        other = copy.deepcopy(CONFIG)
        other[table][key][field] = value
        if outcome_of_box(tmp_path, other) != before:
            return
    assert named(before[1], table, f"{table}|{key}", f"{table} {field}")


def test_thresholds_of_marking_mark_where_a_box_has_some_of_its_own(tmp_path: Path) -> None:
    """sonic-net/SONiC#2433: from 100 to 400 KB, where those of dropping go from 4 to 8 MB."""
    effective, notes = outcome_of_box(tmp_path, CONFIG)
    assert "kmin: 100kB" in effective.replace("100KB", "100kB") or "kmin: 100000B" in effective
    dropping = "green_min_threshold '4000000', green_max_threshold '8000000', green_drop_probability '5'"
    assert f"Left out: dropping by WRED_PROFILE|mark ({dropping})" in notes


def test_a_pool_that_no_chip_has_is_noted(tmp_path: Path) -> None:
    other = copy.deepcopy(CONFIG)
    other["BUFFER_POOL"]["ingress_lossless_pool"]["size"] = "33554432000"
    assert "size is 33554432000 bytes: an ASIC" in outcome_of_box(tmp_path, other)[1]
    assert "an ASIC" not in outcome_of_box(tmp_path, CONFIG)[1]


INTERFACES = dict.fromkeys(("e1-1", "e1-49", "e1-2", "eth1", "br0", "mgmt"), "names of interfaces")
TEXTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "ns3": ("fabric.txt", EDGES.replace("\nexplanations\n", ""), {}),
    "simai_topology": ("fabric.txt", SIMAI, {}),
    "htsim": ("two.topo", TOPO + "Switch_Latency_ns 3\n", {}),
    "matrix": ("incast.cm", MATRIX, {"3": "id of connections"}),
    "hpcc_flows": ("flow.txt", FLOWS, {"100": "ports of flows"}),
    "simai": ("stage.txt", staged(4, 2, 8), {}),
    "requests": ("requests.csv", VIDUR, {}),
    "mooncake": ("requests.jsonl", REQUESTS, dict.fromkeys("012345", "hash_ids")),
    "machine": ("system.xml", DUMP, {}),
    "msccl": ("direct.xml", direct("allgather"), {}),
    "containerlab": ("lab.clab.yml", CLAB, INTERFACES | {"h1": "names of hosts", "h2": "names of hosts"}),
    "trainer": ("trainer.py", TRAINER, {"1000": "training.steps"}),
}
"""By kind: the file, its text, and values that a note names by what they are, not by themselves."""
WORD = re.compile(r"[A-Za-z0-9_.-]+")


def other_words(word: str) -> Iterator[str]:
    """Other words of the same kind, as far as there are kinds to see."""
    if word.isdigit():
        yield from (str(int(word) + 1), str(int(word) * 3 + 1), str(int(word) // 2))
    else:
        number = re.match(r"\d+(\.\d+)?", word)
        yield f"{'7' if number else ''}{word}{'' if number else '_other'}"


def outcome_of(directory: Path, name: str, data: bytes) -> tuple[str, str]:
    """What is written and what it means, or why the file is refused, with the comments that are written."""
    (directory / name).write_bytes(data)
    try:
        found = imported([directory / name], directory, Wish("x", 2, 10**11), read_file)
        meant = to_yaml(load_text(found.text, "x.yaml", directory).scenario)
    except ScenarioError as error:
        return str(error), ""
    if data.startswith(b"<algo"):
        meant = str(read_msccl(data.decode()))
    return found.text + meant, " ".join(re.findall(r"^ *# ?(.*)", found.text, re.MULTILINE))


@pytest.mark.parametrize("kind", TEXTS)
def test_a_word_of_a_file_changes_the_scenario_or_is_named(tmp_path: Path, kind: str) -> None:
    name, text, names = TEXTS[kind]
    before = outcome_of(tmp_path, name, text.encode())
    assert before[1], before[0]
    lost = []
    for word in WORD.finditer(text):
        outcomes = (
            outcome_of(tmp_path, name, (text[: word.start()] + other + text[word.end() :]).encode())
            for other in other_words(word[0])
        )
        attribute = re.search(r"([\w-]+)=\"[^\"<>]*$", text[: word.start()]) if text[0] == "<" else None
        called = names.get(word[0], "nothing") if attribute is None else attribute[1]
        if all(outcome == before for outcome in outcomes) and not re.search(rf"\b{called}\b", before[1]):
            lost.append((text.count("\n", 0, word.start()) + 1, word[0]))
    assert lost == []


def test_of_a_chakra_trace_each_field_and_attribute_that_no_rank_uses_is_named() -> None:
    timed = {"num_ops": 10**6, "comm_size": 4, "tensor_loc": 1}
    called = {"comm_type": 0, "comm_size": 64, "root_rank": 0, "comm_tag": 7}
    trace = et.trace(
        et.node(1, et.COMPUTE, micros=20, attributes=timed),
        et.node(2, et.COMPUTE, attributes={"num_ops": 10**6}),
        et.node(3, et.COLLECTIVE, [1], micros=9, attributes=called),
        et.node(4, et.COLLECTIVE, [1], attributes={"comm_size": 64}, cpu=True),
    )
    assert left_out(trace).note() == (
        "Left out: GlobalMetadata, names of nodes (4 times), attribute num_ops of compute nodes, attribute"
        " comm_size of compute nodes, attribute tensor_loc of compute nodes, attribute comm_tag of collective"
        " nodes, duration of collective nodes, attribute comm_size of collective nodes"
    )
