"""Does flow level answer a scenario as packet level does, and refuse what it cannot?

Cross-checks run both levels, on fabrics of eight GPUs; larger ones are in `tests.flow.test_cross_check`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pytest

import emu
from emu.api import prepare, run
from emu.base.errors import ScenarioError
from emu.flow.cross import differences
from emu.flow.rehearsals import Heard, Stage
from emu.measure.summary_report import closing_lines, engine_line
from emu.results.summary import Summary

LOT: Final = [{"src": source, "dst": 0, "size": "2MiB"} for source in (1, 4, 5, 6)]
"""Three behind an uplink and one beside the receiver."""
TWO_RACKS: Final = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 1}


def of(workload: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """A scenario of one job on two racks."""
    jobs = [{"name": "job", "workload": dict(workload)}]
    return {"name": "cross", "topology": TWO_RACKS, "jobs": jobs} | sections


def answer(scenario: Mapping[str, Any], fidelity: str) -> Summary:
    """The summary at one level."""
    return run(dict(scenario) | {"fidelity": fidelity}, local=True).summary


FLOWS: Final = {"kind": "flows", "flows": LOT}
CASES: Final[dict[str, dict[str, Any]]] = {
    "a parking lot with pauses": of(FLOWS, switch={"buffer": {"pool": "4MB"}}),
    "flows that buffers take up": of(
        {"kind": "permutation", "size": "512KiB", "racks": "distinct"},
        topology={"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 4},
    ),
    "a flow over four queue pairs": of(
        {"kind": "flows", "qps": 4, "message": "64KiB", "flows": [{"src": 0, "dst": 5, "size": "1MiB"}]}
    ),
    "READs of which four may be outstanding": of(
        {
            "kind": "flows",
            "verb": "read",
            "message": "64KiB",
            "flows": [{"src": 0, "dst": 5, "size": "1MiB"}, {"src": 1, "dst": 6, "size": "500001B"}],
        },
        transport={"max_rd_atomic": 4},
    ),
    "messages that a proxy posts more slowly than the link carries them": of(
        {
            "kind": "flows",
            "verb": "send",
            "qps": 2,
            "message": "4KiB",
            "flows": [{"src": 0, "dst": 5, "size": "1MiB"}],
        }
    ),
    "a ring between servers": of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["2MiB"]},
        ncclx={"protocol": "simple"},
    ),
    "a ring that waits for steps": of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["64KiB"]},
        ncclx={"protocol": "simple"},
    ),
    "a ring over two queue pairs by turns": of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["2MiB"]},
        ncclx={"protocol": "simple", "channels": 1, "qps_per_connection": 2},
    ),
    "trees": of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "double_binary_tree", "sizes": ["1MiB"]}
    ),
    "a ring of which no two ranks send the same": of(
        {"kind": "collective", "op": "all_gather", "algorithm": "ring", "sizes": ["1000001B"]},
        ncclx={"protocol": "simple", "channels": 2, "qps_per_connection": 3},
    ),
    "flows whose spine goes and comes": of(
        {"kind": "flows", "flows": [{"src": 0, "dst": 4, "size": "4MiB"}]},
        routing={"local_convergence": "5us", "convergence": "20us"},
        transport={"timeout": 5},
        faults=[{"kind": "link_down", "at": "20us", "for": "30us", "target": "rtsw-1:ctsw-0"}],
    ),
    "an exchange": of({"kind": "collective", "op": "all_to_all", "algorithm": "direct", "sizes": ["256KiB"]}),
    "a ring over spines whose packets are sprayed": of(
        {"kind": "collective", "op": "all_gather", "algorithm": "ring", "sizes": ["1MiB"]},
        routing={"kind": "spray"},
        transport={"recovery": {"kind": "go_back_n", "placement": "out_of_order"}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_flow_level_answers_within_the_bounds_of_packet_level(name: str) -> None:
    packet, flow = answer(CASES[name], "packet"), answer(CASES[name], "flow")
    found = differences(packet, flow, by_load="faults" in CASES[name])
    assert len(found) > 1
    assert [one for one in found if not one.holds] == []


def test_what_flow_level_does_not_know_is_null_and_not_zero() -> None:
    summary = answer(CASES["a parking lot with pauses"], "flow")
    assert summary.fidelity == "flow"
    assert summary.drops is None
    assert summary.fabric.pfc_transmit_xoff_frames is None
    assert {link.paused_ps for link in summary.fabric.links} == {None}
    assert summary.never_fired == []


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls be rehearsed one by one, as those of large jobs are."""
    monkeypatch.setattr("emu.flow.crowds.MOST_ALONE", 0)


@pytest.mark.usefixtures("rehearsed")
def test_the_line_on_the_run_says_how_often_rates_were_worked_out() -> None:
    ring = {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["64KiB"]}
    summary = answer(of(ring), "flow")
    assert summary.engine.solves
    assert f"rates worked out {summary.engine.solves} times" in engine_line(summary)


def test_a_run_at_flow_level_repeats_to_the_bit() -> None:
    scenario = CASES["a parking lot with pauses"]
    assert answer(scenario, "flow").digest == answer(scenario, "flow").digest


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "transport.congestion_control.kind": {"transport": {"congestion_control": {"kind": "dcqcn"}}},
    "routing.kind": {"routing": {"kind": "flowlet"}},
    "routing.granularity": {"routing": {"kind": "adaptive"}},
    "switch.pfc.enabled": {"switch": {"pfc": {"enabled": False}}},
    "switch.deep_buffer.most_credit": {
        "switch": {"deep_buffer": {"where": "spines", "initial_credit": "16KiB", "most_credit": "64KiB"}}
    },
    "switch.deep_buffer.port_buffer": {"switch": {"deep_buffer": {"where": "spines", "port_buffer": "1MB"}}},
    "faults[0].kind": {"faults": [{"at": "10us", "kind": "pause_storm", "target": "rtsw-0"}]},
    "faults[0]": {"faults": [{"at": "10us", "kind": "degrade", "loss": "1/10", "target": "rtsw-0:ctsw-0"}]},
    "faults[0].target": {"faults": [{"at": "10us", "kind": "link_down", "target": "busiest uplink"}]},
    "payload": {"payload": "real"},
    "ncclx.qp_policy": {"ncclx": {"qp_policy": "dqplb"}},
    "expect[0].value": {"expect": [{"value": "drops.total", "equals": 0}]},
    "run.event_log": {"run": {"event_log": 100}},
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_flow_level_cannot_answer_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        prepare(of(FLOWS, fidelity="flow", **REFUSED[key]))
    (line,) = str(refusal.value).splitlines()
    assert f" {key}: flow level " in line
    assert "fidelity: packet" in line


TREE: Final = of(
    {"kind": "collective", "op": "all_reduce", "algorithm": "double_binary_tree", "sizes": ["1MiB"]}
)


@pytest.mark.usefixtures("rehearsed")
def test_a_tree_that_is_too_much_to_go_through_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MOST_EVENTS", "MOST_NEEDED_EVENTS"):
        monkeypatch.setattr(f"emu.flow.rehearsals.{bound}", 100)
    with pytest.raises(
        ScenarioError, match="slice by slice, and all_reduce by double_binary_tree of 1,048,576 B"
    ):
        answer(TREE, "flow")


@pytest.mark.usefixtures("rehearsed")
def test_a_ring_that_is_too_much_to_go_through_has_a_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = CASES["a ring between servers"]
    gone_through = answer(ring, "flow").virtual_ps
    monkeypatch.setattr("emu.flow.rehearsals.MOST_EVENTS", 100)
    assert answer(ring, "flow").virtual_ps == pytest.approx(gone_through, rel=0.01)


@pytest.mark.usefixtures("rehearsed")
@pytest.mark.parametrize(
    ("algorithm", "size"), [("double_binary_tree", "4194320B"), ("nvls_tree", "8388608B")]
)
def test_a_call_of_many_loops_is_gone_through_in_part(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, size: str
) -> None:
    """As long as all of it takes, and with the same bytes on every link: slices over three queue pairs."""
    call = of(
        {"kind": "collective", "op": "all_reduce", "algorithm": algorithm, "sizes": [size]},
        topology=TWO_RACKS | {"hosts_per_rack": 2, "gpus_per_host": 2},
        ncclx={"protocol": "simple", "channels": 1, "qps_per_connection": 3, "buffsize": "512KiB"},
    )
    rehearsed: list[int] = []
    run_stage = Stage.run

    def count(stage: Stage) -> list[Heard]:
        found = run_stage(stage)
        rehearsed.append(stage.events)
        return found

    monkeypatch.setattr(Stage, "run", count)
    part = answer(call, "flow")
    monkeypatch.setattr("emu.flow.calls.FEWEST", 1000)
    whole = answer(call, "flow")
    assert len(rehearsed) == 3
    assert rehearsed[1] < rehearsed[2] * 0.6
    assert part.virtual_ps == pytest.approx(whole.virtual_ps, rel=0.02)
    sent, as_much = (
        [(one.data_bytes, one.wire_bytes) for one in each.fabric.links] for each in (part, whole)
    )
    assert sent == as_much


def test_a_ring_waits_for_the_timer_of_who_sends_to_a_nic_that_lost_its_link() -> None:
    """Not for the link. What is sent in vain meanwhile counts on the way there, and nowhere else."""
    packet, flow = (
        run("single_tor_repair", overrides={"fidelity": one, "expect": []}, local=True).summary
        for one in ("packet", "flow")
    )
    beyond = {one.what: one.part for one in differences(packet, flow, by_load=True) if not one.holds}
    assert beyond.keys() == {
        "payload nic-0-0 -> tor-0-0-0",
        "payload tor-0-0-0 -> nic-0-0",
        "payload tor-0-0-0 -> nic-1-0",
        "payload nic-1-1 -> tor-0-1-0",
        "payload tor-0-1-0 -> agg-0-0-1",
        "payload agg-0-0-1 -> tor-0-0-0",
        "bytes on all links",
    }
    assert all(abs(part) < 0.21 for part in beyond.values())


CONVERGING: Final = {"kind": "ecmp", "local_convergence": "10us", "convergence": "10us"}
STRUCK: Final[dict[str, dict[str, Any]]] = {
    "a flow whose NIC has no link when it begins waits there": of(
        {"kind": "flows", "flows": [{"src": 7, "dst": 1, "size": "2MiB"}]},
        routing=CONVERGING,
        transport={"timeout": 5},
        faults=[{"kind": "nic_port_down", "at": "11us", "for": "127us", "target": "nic-7-0"}],
    ),
    "a ring that has no more to send waits for its timer": of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["2MiB"]},
        topology=TWO_RACKS | {"hosts_per_rack": 2, "spines": 2},
        routing={"kind": "e_ecmp", "local_convergence": "10us", "convergence": "100us"},
        transport={"timeout": 5},
        faults=[{"kind": "link_down", "at": "66us", "for": "36us", "target": "rtsw-0:ctsw-1"}],
    ),
}


@pytest.mark.parametrize("name", STRUCK)
def test_who_is_struck_goes_on_when_it_does_at_packet_level(name: str) -> None:
    packet, flow = answer(STRUCK[name], "packet"), answer(STRUCK[name], "flow")
    times = [one for one in differences(packet, flow, by_load=True) if one.what.startswith("job")]
    assert times
    assert [one for one in times if not one.holds] == []


def test_a_run_that_breaks_off_says_that_links_have_all_that_was_begun() -> None:
    broken = answer(CASES["a parking lot with pauses"] | {"run": {"max_time": "5us"}}, "flow")
    into = next(one for one in broken.fabric.links if one.destination == "nic-0-0")
    assert (broken.ending, into.data_bytes) == ("time_limit", len(LOT) * 2 * 2**20)
    assert "busiest links, all that was begun counted whole" in closing_lines(broken)


def test_a_run_says_how_often_rates_were_worked_out() -> None:
    summary = answer(CASES["flows whose spine goes and comes"], "flow")
    assert summary.engine.solves
    assert f"rates worked out {summary.engine.solves} times" in engine_line(summary)


def test_a_queue_pair_that_gives_up_is_refused() -> None:
    scenario = of(
        FLOWS,
        transport={"timeout": 1, "retry_count": 1},
        faults=[{"kind": "link_down", "at": "1us", "target": "rtsw-*:ctsw-*"}],
    )
    with pytest.raises(ScenarioError, match=r"gives up at .* and flow level has no failed jobs"):
        answer(scenario, "flow")


DIGESTS: Final = """
import json, sys
from emu.api import run
from emu.flow import crowds
scenarios = json.load(sys.stdin)
print(*[run(one, local=True).summary.digest for one in scenarios])
crowds.MOST_ALONE = 0
print(*[run(one, local=True).summary.digest for one in scenarios])
"""


def test_interpreted_and_compiled_have_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "a parking lot with pauses",
        "a ring of which no two ranks send the same",
        "an exchange",
        "a ring over spines whose packets are sprayed",
        "flows whose spine goes and comes",
    )
    scenarios = [one | {"fidelity": "flow"} for one in (TREE, *(CASES[name] for name in names))]
    told = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        input=json.dumps(scenarios),
        env=os.environ | {"EMU_INTERPRETED": "1" if emu.is_compiled() else "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [answer(one, "flow").digest for one in scenarios]
    monkeypatch.setattr("emu.flow.crowds.MOST_ALONE", 0)
    found += [answer(one, "flow").digest for one in scenarios]
    assert told.stdout.split() == found


def test_classes_of_data_are_refused() -> None:
    flows = [{"src": 0, "dst": 1, "size": "1MiB"}, {"src": 2, "dst": 1, "size": "1MiB", "priority": 4}]
    with pytest.raises(ScenarioError, match="flow level has one class of data, and jobs use 3, 4"):
        prepare(
            of({"kind": "flows", "flows": flows}, fidelity="flow", switch={"pfc": {"priorities": [3, 4]}})
        )
