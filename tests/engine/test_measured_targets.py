"""Does a fault hit what is busiest when it occurs, and does every run agree on what that was?"""

import json
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.engine.live.changes import MOST_BYTES, chosen
from emu.engine.live.control_socket import fault_list
from emu.resume import fork
from emu.run_directory.run_directory import RunDirectory
from emu.run_directory.samples import SampleReader
from emu.scenario.faults.targets import Candidate, Spot, candidates
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.stored_run import stored_run
from tests.scenario.plain import plain
from tests.summary.known import known

US = 10**6
FABRIC = {
    "kind": "ai_zone",
    "racks": 2,
    "hosts_per_rack": 2,
    "gpus_per_host": 2,
    "spines": 2,
    "link": "100G",
}
FAULTS: list[dict[str, Any]] = [
    {"kind": "link_down", "at": "63us", "target": "busiest uplink", "for": "30us"},
    {
        "kind": "port_down",
        "at": "100us",
        "target": "busiest rtsw",
        "for": "10us",
        "every": "30us",
        "count": 3,
    },
    {"kind": "switch_drain", "at": "200us", "target": "busiest ctsw", "for": "50us"},
]


def scenario(faults: list[dict[str, Any]]) -> dict[str, Any]:
    return plain(
        {
            "name": "measured",
            "topology": FABRIC,
            "routing": {"kind": "e_ecmp", "convergence": "50us"},
            "transport": {"timeout": 5},
            "ncclx": {"qps_per_connection": 8},
            "run": {"sample_every": "20us"},
            "jobs": [
                {"name": "train", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"]}}
            ],
            "faults": faults,
        }
    )


TOPOLOGY = build_topology(load_mapping(scenario([])).scenario)


def measured(directory: Path) -> list[tuple[int, int, str]]:
    """Time, fault and target of every fault whose target was measured, from the journal."""
    lines = (directory / "journal.jsonl").read_text("ascii").splitlines()
    entries = [json.loads(line) for line in lines]
    return [(one["virtual_ps"], one["fault"], one["target"]) for one in entries if one["kind"] == "target"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Result, Path]:
    out = tmp_path_factory.mktemp("measured") / "run"
    return api.run(scenario(FAULTS), local=True, out=out, diagnose=False), out


def sent_bytes(run: Path, from_ps: int, until_ps: int) -> dict[tuple[int, int], int]:
    """What each port sent between two samples, by device and port."""
    reader = SampleReader(run / "samples.jsonl")
    samples = {sample.virtual_ps: sample.counters for sample in reader}
    return {
        (device, series.port): samples[until_ps][device][place] - samples[from_ps][device][place]
        for device, layout in reader.series.items()
        for place, series in enumerate(layout)
        if series.metric == "port_transmit_bytes"
    }


def test_the_uplink_that_sent_most_of_late_is_hit(first: tuple[api.Result, Path]) -> None:
    sent = sent_bytes(first[1], 40 * US, 63 * US)
    up = {
        (node, port): sent[node, port]
        for node in (TOPOLOGY.node_named("rtsw-0").number, TOPOLOGY.node_named("rtsw-1").number)
        for port, end in enumerate(TOPOLOGY.ports(node))
        if TOPOLOGY.nodes[end.peer].tier == 2
    }
    node, port = max(sorted(up), key=lambda place: up[place])
    assert up[node, port] > 0
    link = TOPOLOGY.links[TOPOLOGY.ports(node)[port].link].name
    assert measured(first[1])[0] == (63 * US, 0, link)


def test_the_target_of_every_occurrence_is_measured_anew_and_reported(first: tuple[api.Result, Path]) -> None:
    result, out = first
    assert [(at_ps // US, fault) for at_ps, fault, _ in measured(out)] == [
        (63, 0),
        (100, 1),
        (130, 1),
        (160, 1),
        (200, 2),
    ]
    hit = dict.fromkeys(target for _, fault, target in measured(out) if fault == 1)
    assert result.summary.faults[1].target == f"busiest rtsw ({', '.join(hit)})"
    assert known(result.summary.faults[0].frames_lost) > 0


def test_it_is_as_if_the_target_had_been_written_by_name(first: tuple[api.Result, Path]) -> None:
    result, out = first
    found = measured(out)
    named = [FAULTS[0] | {"target": found[0][2]}]
    named += [
        {"kind": "port_down", "at": f"{at_ps}ps", "target": target, "for": "10us"}
        for at_ps, fault, target in found
        if fault == 1
    ]
    named.append(FAULTS[2] | {"target": found[-1][2]})
    assert api.run(scenario(named), local=True, diagnose=False).outcome.digest == result.outcome.digest


@pytest.mark.parametrize("parts", [2, 5])
def test_any_number_of_parts_measures_the_same_targets(
    first: tuple[api.Result, Path], parts: int, tmp_path: Path
) -> None:
    again = api.run(scenario(FAULTS), local=True, parts=parts, out=tmp_path / "run", diagnose=False)
    assert again.outcome.digest == first[0].outcome.digest
    assert measured(tmp_path / "run") == measured(first[1])
    assert again.summary.faults == first[0].summary.faults


@pytest.mark.ray
def test_workers_measure_the_same_targets(
    first: tuple[api.Result, Path], tmp_path: Path, kept_workers: None
) -> None:
    again = api.run(scenario(FAULTS), workers=2, out=tmp_path / "run")
    assert again.outcome.digest == first[0].outcome.digest
    assert measured(tmp_path / "run") == measured(first[1])


@pytest.mark.parametrize("at_us", [50, 63, 64, 110, 155])
def test_a_run_that_goes_on_from_a_snapshot_aims_as_if_it_had_never_stopped(
    first: tuple[api.Result, Path], at_us: int, tmp_path: Path
) -> None:
    options = api.RunOptions(local=True, metrics=False)
    with fork(first[1], at_us * US, [], tmp_path / "fork", options) as again:
        options = api.RunOptions(local=True, metrics=False, parts=3, resume_ps=again.from_ps)
        result = api.run_prepared(again.prepared, options, None, again.directory)
    assert result.outcome.digest == first[0].outcome.digest
    # A snapshot is of before what happens then, but targets are measured on reaching the time.
    assert measured(tmp_path / "fork") == [one for one in measured(first[1]) if one[0] > at_us * US]


class Breaker(api.Observer):
    """Hits the busiest uplink of a live run, and ends the run when that is over."""

    def __init__(self, steering: api.Steering) -> None:
        self._steering = steering
        self._samples = 0

    def sampled(self, sample: Any, digests: Any) -> None:
        del sample, digests
        self._samples += 1
        if self._samples == 3:
            self._steering.inject({"kind": "link_down", "target": "busiest uplink", "for": "30us"})
        elif self._samples == 8:
            self._steering.end()


def test_the_target_of_an_injected_fault_is_measured_just_after_and_replays(tmp_path: Path) -> None:
    mapping = scenario([]) | {"run": {"sample_every": "20us", "repeat": True, "max_time": "4ms"}}
    prepared = api.prepare(mapping)
    steering = api.Steering(prepared.scenario, prepared.topology)
    options = api.RunOptions(local=True, parts=2, metrics=False, steering=steering, progress_every_s=0.0)
    with RunDirectory.create("live", tmp_path / "live") as directory:
        live = api.run_prepared(prepared, options, Breaker(steering), directory)
    (hit,) = measured(tmp_path / "live")
    entries = [json.loads(line) for line in (tmp_path / "live/journal.jsonl").read_text("ascii").splitlines()]
    (change,) = (one for one in entries if one["kind"] == "change")
    assert hit[0] == change["virtual_ps"] + 1 * US
    assert live.summary.faults[0].target == f"busiest uplink ({hit[2]})"
    assert [row["target"] for row in fault_list(steering)] == [f"busiest uplink ({hit[2]})"]
    found = stored_run(tmp_path / "live")
    again = api.run_prepared(
        api.prepare(api.as_loaded(found.scenario)),
        api.RunOptions(local=True, parts=3, metrics=False, end_ps=found.end_ps),
    )
    assert again.outcome.digest == live.outcome.digest != ""
    assert again.summary.faults == live.summary.faults


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ({"kind": "gpu_hung", "target": "busiest gpu"}, "a gpu sends nothing by itself"),
        ({"kind": "link_up", "target": "busiest rtsw:ctsw"}, "a link_up does not hit what is measured"),
        ({"kind": "nic_down", "target": "busiest uplink"}, "uplink is a link, and a nic is asked for"),
        ({"kind": "link_down", "target": "busiest rtsw:ctsv"}, "no link is named 'rtsw:ctsv'; did you mean"),
        ({"kind": "link_down", "target": "busiest downlink", "at": "63us"}, "at the same time as fault 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(fault: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        api.prepare(scenario([FAULTS[0], {"at": "70us"} | fault]))
    (problem,) = refused.value.problems
    assert problem.key.startswith("faults[1].")
    assert reported in str(problem)


def test_of_equals_the_first_is_taken() -> None:
    some = [Candidate(Spot(name), 0, (at,)) for at, name in enumerate(("a", "b", "c"))]
    assert chosen(some, MOST_BYTES << 20 | 1) == "b"
    up = candidates("busiest uplink", "link", TOPOLOGY)
    down = candidates("busiest downlink", "link", TOPOLOGY)
    assert [one.spot for one in up] == [one.spot for one in down]
    assert {TOPOLOGY.nodes[one.node].tier for one in up} == {1}
    assert {TOPOLOGY.nodes[one.node].tier for one in down} == {2}
