"""Is it known before a run which flows go as trains of packets?"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from emu.api import prepare
from emu.cli.main import main
from emu.devices.drawing import blueprint_of
from emu.devices.pricing.estimate import estimate
from emu.devices.pricing.train_flows import train_flows
from emu.engine.blueprint import spread
from emu.scenario.load import load_mapping
from tests.engine.spread_runs import ENDINGS, SpreadRun, in_queue

RACKS: Final = {"kind": "ai_zone", "racks": 4, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 8}
APART: Final = [{"src": source, "dst": source + 2, "size": "512KiB"} for source in (0, 4)]
"""Two flows that share no switch but spines."""
IN_TRAINS: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "go-back-N without pauses": {"switch": {"pfc": {"enabled": False}}},
    "real bytes": {"payload": "real"},
    "an acknowledgement for 16 packets": {"transport": {"ack_every": 16}},
    "links that hold two packets": {"topology": RACKS | {"nic_delay": "120ns", "uplink_delay": "120ns"}},
}
ALONE: Final[dict[str, dict[str, Any]]] = {
    "cut-through": {"switch": {"forwarding": "cut_through"}},
    "deep buffers": {"switch": {"deep_buffer": {"where": "all"}}},
    "marks": {"switch": {"ecn": {"enabled": True}}},
    "credits": {"link": {"flow_control": "credits"}},
    "dcqcn": {"transport": {"congestion_control": {"kind": "dcqcn"}}},
    "hpcc": {"transport": {"congestion_control": {"kind": "hpcc"}}},
    "spraying": {"routing": {"kind": "spray", "allow_reordering": True}},
    "flowlets": {"routing": {"kind": "flowlet"}},
    "go-back-0": {"transport": {"recovery": {"kind": "go_back_0"}}},
    "selective repeat": {"transport": {"recovery": {"kind": "selective_repeat"}}},
    "a host link": {"host": {"pcie": {"enabled": True}}},
}


def scenario(changes: dict[str, Any], flows: list[dict[str, Any]], **workload: Any) -> dict[str, Any]:
    jobs = [{"name": "one", "workload": {"kind": "flows", "flows": flows} | workload}]
    return {"name": "flows", "topology": RACKS, "jobs": jobs} | changes


def numbers(of: dict[str, Any]) -> list[int]:
    """The flows that are said to go as trains."""
    prepared = prepare(load_mapping(of))
    return [one.flow for one in train_flows(prepared.scenario, prepared.topology, prepared.plan).in_trains]


def part_of_events(of: dict[str, Any]) -> float:
    """Events of the queue with trains, by those without."""
    counts = []
    for trains in (True, False):
        prepared = prepare(load_mapping(of))
        run = SpreadRun(spread(blueprint_of(prepared.scenario, prepared.topology), 1, trains=trains))
        run.start()
        assert run.run() in ENDINGS
        counts.append(in_queue(run))
    return counts[0] / counts[1]


@pytest.mark.parametrize("changes", IN_TRAINS.values(), ids=IN_TRAINS)
def test_flows_that_go_as_trains_are_known_beforehand(changes: dict[str, Any]) -> None:
    of = scenario(changes, APART)
    assert numbers(of) == [0, 1]
    assert part_of_events(of) < 0.4


@pytest.mark.parametrize("changes", ALONE.values(), ids=ALONE)
def test_flows_that_go_packet_by_packet_are_known_beforehand(changes: dict[str, Any]) -> None:
    of = scenario(changes, APART)
    assert numbers(of) == []
    assert part_of_events(of) == pytest.approx(1.0, abs=0.01)


def test_a_flow_that_meets_another_on_a_link_goes_as_no_train() -> None:
    back = {"src": 2, "dst": 0, "size": "512KiB"}
    assert numbers(scenario({}, [*APART, back])) == [1], "data one way meets acknowledgements of the other"
    assert numbers(scenario({}, [*APART, {"src": 1, "dst": 2, "size": "512KiB"}])) == [1]
    assert numbers(scenario({}, APART, qps=2)) == []
    assert numbers(scenario({}, APART, verb="send")) == [0, 1]
    assert numbers(scenario({}, APART, verb="read")) == []


def test_an_estimate_lists_them_at_the_price_of_a_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [one | {"size": "1GiB"} for one in APART]
    (tmp_path / "apart.yaml").write_text(json.dumps(scenario({}, long)), encoding="utf-8")
    (tmp_path / "read.yaml").write_text(json.dumps(scenario({}, long, verb="read")), encoding="utf-8")
    names = [str(tmp_path / name) for name in ("apart.yaml", "read.yaml")]
    assert main(["estimate", *names]) == 0
    *_, apart, read = capsys.readouterr().out.splitlines()
    assert apart == "flows: 2 of 2 flows go as trains of packets: 0, 1"
    assert read == "flows: none of 2 flows goes as trains of packets"
    assert main(["estimate", names[0], "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    prepared = prepare(load_mapping(scenario({}, long)))
    whole = prepared.scenario, prepared.topology, prepared.plan
    dearer, cheaper = estimate(*whole), estimate(*whole, trains=train_flows(*whole))
    assert (found["in_trains"], found["hops"]) == ([0, 1], dearer.hops)
    assert cheaper.wall_s < dearer.wall_s
