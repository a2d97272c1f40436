"""Does flow level answer a scenario as packet level does, and refuse what it cannot?

Cross-checks run both levels, on fabrics of eight GPUs; larger ones are in `tests.flow.test_cross_check`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import emu
from emu.api import load, prepare, run, run_prepared
from emu.base.errors import ScenarioError
from emu.cli.main import main
from emu.engine.outcome import Observer, Progress, RunOptions
from emu.flow.cross import differences
from emu.flow.isolated import IsolatedRuns, Part, Result
from emu.results.summary import Summary
from emu.summary.jobs import planned_bytes
from emu.summary.summary_report import closing_lines, engine_line
from tests.conftest import SOAK

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


def test_the_line_on_the_run_says_how_often_rates_were_worked_out() -> None:
    summary = answer(CASES["a ring that waits for steps"], "flow")
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
    "faults[0].kind": {"faults": [{"at": "10us", "kind": "link_down", "target": "rtsw-1:ctsw-0"}]},
    "faults[0]": {"faults": [{"at": "10us", "kind": "degrade", "loss": "1/10", "target": "rtsw-0:ctsw-0"}]},
    "faults[0].target": {"faults": [{"at": "10us", "kind": "link_down", "target": "busiest uplink"}]},
    "jobs[0].workload.tx_depth": {"jobs": [{"name": "job", "workload": {**FLOWS, "tx_depth": 4}}]},
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


@pytest.mark.parametrize("algorithm", ["double_binary_tree", "nvls_tree", "halving_doubling", "hierarchical"])
def test_a_call_that_is_too_large_to_run_alone_is_rejected_before_the_run(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    call = of(
        {"kind": "collective", "op": "all_reduce", "algorithm": algorithm, "sizes": ["1MiB"]},
        topology=TWO_RACKS | {"hosts_per_rack": 2, "gpus_per_host": 2},
        fidelity="flow",
    )
    prepare(call)
    monkeypatch.setattr("emu.flow.refusals.MOST_NEEDED_HOPS", 100)
    with pytest.raises(ScenarioError) as refusal:
        prepare(call)
    (line,) = str(refusal.value).splitlines()
    assert f" jobs[0].workload: flow level runs all_reduce by {algorithm} of 1,048,576 B alone" in line


@pytest.mark.parametrize(("size", "delay"), [("2MiB", "auto"), ("8MiB", "800ns")])
def test_a_ring_that_is_too_large_has_a_closed_form(
    monkeypatch: pytest.MonkeyPatch, size: str, delay: str
) -> None:
    """The form takes a step for every chunk where slices are on their way for less time than NICs send."""
    ring = of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": [size]},
        ncclx={"protocol": "simple"},
        host={"nic_link_delay": delay},
    )
    alone = answer(ring, "flow")
    for bound in ("MOST_HOPS", "MOST_PAIRS"):
        monkeypatch.setattr(f"emu.flow.requests.{bound}", 1)
    closed = answer(ring, "flow")
    assert closed.virtual_ps == pytest.approx(alone.virtual_ps, rel=0.02)
    assert any("closed forms" in doubt for doubt in closed.engine.doubts)
    assert alone.engine.doubts == []


@given(
    st.sampled_from(["double_binary_tree", "nvls_tree"]),
    st.integers(1, 2),
    st.integers(1, 4),
    st.sampled_from(["256KiB", "512KiB"]),
    st.sampled_from([{"racks": 2, "hosts_per_rack": 1}, {"racks": 2, "hosts_per_rack": 2}, {"racks": 3}]),
    st.sampled_from(["100G", "400G"]),
    st.sampled_from(["500ns", "5us"]),
    st.integers(4 << 20, 12 << 20),
)
@example("double_binary_tree", 1, 3, "512KiB", {"racks": 2, "hosts_per_rack": 2}, "400G", "500ns", 16 << 20)
@settings(max_examples=60 if SOAK else 6, deadline=None)
def test_a_call_of_many_loops_is_run_in_part(
    algorithm: str,
    channels: int,
    queue_pairs: int,
    buffer: str,
    racks: dict[str, int],
    rate: str,
    delay: str,
    size: int,
) -> None:
    """Within 3 % of all of it, or a line says why not, and with the same bytes on every link."""
    call = of(
        {"kind": "collective", "op": "all_reduce", "algorithm": algorithm, "sizes": [f"{size}B"]},
        topology=TWO_RACKS
        | {"hosts_per_rack": 2, "gpus_per_host": 2, "link": rate, "uplink_delay": delay}
        | racks,
        ncclx={
            "protocol": "simple",
            "channels": channels,
            "qps_per_connection": queue_pairs,
            "buffsize": buffer,
        },
    )
    part = answer(call, "flow")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("emu.flow.calls.FEWEST", 1 << 20)
        whole = answer(call, "flow")
    if not part.engine.doubts:
        assert part.virtual_ps == pytest.approx(whole.virtual_ps, rel=0.03)
    sent, as_much = (
        [(one.data_bytes, one.wire_bytes) for one in each.fabric.links] for each in (part, whole)
    )
    assert sent == as_much


def test_a_part_of_a_long_call_costs_less_than_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    call = of(
        {"kind": "collective", "op": "all_reduce", "algorithm": "double_binary_tree", "sizes": ["16MiB"]},
        topology=TWO_RACKS | {"hosts_per_rack": 2, "gpus_per_host": 2},
        ncclx={"protocol": "simple", "channels": 1, "buffsize": "256KiB"},
    )
    ran: list[int] = []
    run_parts = IsolatedRuns.run

    def count(runs: IsolatedRuns, parts: Sequence[Part], least: int = 0, most: int = 0) -> list[Result]:
        before = runs.executed
        found = run_parts(runs, parts, least, most)
        ran.append(runs.executed - before)
        return found

    monkeypatch.setattr(IsolatedRuns, "run", count)
    answer(call, "flow")
    monkeypatch.setattr("emu.flow.calls.FEWEST", 1000)
    answer(call, "flow")
    assert len(ran) == 3
    assert ran[0] < ran[1] < ran[2] * 0.6


@pytest.mark.parametrize("name", ["two_jobs", "fair_incast", "voq_victim"])
def test_what_queues_decide_is_said_to_be_doubtful(name: str) -> None:
    flow = run(name, overrides={"fidelity": "flow", "expect": []}, local=True).summary
    (doubt, *_) = flow.engine.doubts
    assert "share links" in doubt
    assert f"doubtful at flow level: {doubt}" in closing_lines(flow)


def test_levels_side_by_side_come_with_the_doubts_of_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cross", "voq_victim", "--local", "--json"]) in (0, 1)
    (doubt, *_) = json.loads(capsys.readouterr().out)["doubts"]
    assert "share links" in doubt
    assert main(["cross", "voq_victim", "--local"]) in (0, 1)
    assert "doubtful at flow level: " in capsys.readouterr().out


def test_a_run_that_breaks_off_says_that_links_have_all_that_was_begun() -> None:
    broken = answer(CASES["a parking lot with pauses"] | {"run": {"max_time": "5us"}}, "flow")
    into = next(one for one in broken.fabric.links if one.destination == "nic-0-0")
    assert (broken.ending, into.data_bytes) == ("time_limit", len(LOT) * 2 * 2**20)
    assert "busiest links, all that was begun counted whole" in closing_lines(broken)


LARGE: Final = of({"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["8GiB"]})
CHOICES: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "a few packets": (CASES["trees"], "packet", "packet-hops, of at most 20,000,000"),
    "a large call": (LARGE, "flow", "more than 20,000,000 packet-hops"),
    "large flows": (
        of({"kind": "permutation", "size": "32GiB"}),
        "packet",
        "more than 20,000,000 packet-hops, but queues decide on the flows of job",
    ),
    "large jobs that meet": (
        LARGE | {"jobs": [*({**LARGE["jobs"][0], "name": name} for name in ("one", "other"))]},
        "packet",
        "but one and other meet in queues",
    ),
    "what rates do not know": (
        LARGE | {"transport": {"congestion_control": {"kind": "dcqcn"}}},
        "packet",
        "but transport.congestion_control.kind: flow level has no congestion control",
    ),
    "a fault that loses packets": (
        LARGE | {"faults": [{"at": "10us", "kind": "link_down", "target": "rtsw-1:ctsw-0"}]},
        "packet",
        "but faults[0].kind: flow level has no link_down",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_auto_chooses_by_packet_hops_and_by_what_rates_know(name: str) -> None:
    scenario, fidelity, why = CHOICES[name]
    prepared = prepare(scenario | {"fidelity": "auto"})
    assert prepared.scenario == prepare(scenario | {"fidelity": fidelity}).scenario
    (line,) = prepared.notes
    assert line.startswith(f"fidelity: auto is {fidelity}: ")
    assert why in line


def test_what_auto_chose_is_in_the_run_directory_and_has_the_digest_of_its_own(tmp_path: Path) -> None:
    scenario = CASES["trees"]
    chosen = run(scenario | {"fidelity": "auto"}, local=True, parts=2, out=tmp_path / "auto")
    given = run(scenario, local=True, out=tmp_path / "packet")
    written = [(tmp_path / one / "scenario.yaml").read_text("utf-8") for one in ("auto", "packet")]
    assert written[0] == written[1]
    assert chosen.summary.digest == given.summary.digest
    assert chosen.summary.fidelity == "packet"


DIGESTS: Final = """
import json, sys
from emu.api import run
scenarios = json.load(sys.stdin)
print(*[run(one, local=True).summary.digest for one in scenarios])
"""


def test_interpreted_and_compiled_have_one_digest() -> None:
    names = (
        "a parking lot with pauses",
        "a ring of which no two ranks send the same",
        "an exchange",
        "a ring over spines whose packets are sprayed",
    )
    scenarios = [one | {"fidelity": "flow"} for one in (TREE, *(CASES[name] for name in names))]
    scenarios.append(CASES["trees"] | {"fidelity": "auto"})
    reported = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        input=json.dumps(scenarios),
        env=os.environ | {"EMU_INTERPRETED": "1" if emu.is_compiled() else "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [run(one, local=True).summary.digest for one in scenarios]
    assert reported.stdout.split() == found


def test_classes_of_data_are_refused() -> None:
    flows = [{"src": 0, "dst": 1, "size": "1MiB"}, {"src": 2, "dst": 1, "size": "1MiB", "priority": 4}]
    with pytest.raises(ScenarioError, match="flow level has one class of data, and jobs use 3, 4"):
        prepare(
            of({"kind": "flows", "flows": flows}, fidelity="flow", switch={"pfc": {"priorities": [3, 4]}})
        )


class Listens(Observer):
    """Keeps how far a run was."""

    def __init__(self, reached: list[Progress]) -> None:
        self._reached = reached

    def progressed(self, progress: Progress) -> None:
        """One more."""
        self._reached.append(progress)


PACED: dict[str, dict[str, Any]] = {
    "storage_many_hosts": {"topology.racks_per_pod": 4},
}
"""Saves to storage."""


@pytest.mark.parametrize("name", PACED)
def test_how_far_a_run_is_comes_often_and_changes_nothing(name: str) -> None:
    """By the bytes that storage has moved; slices of any length end alike."""
    prepared = prepare(load(name, PACED[name] | {"expect": []}))
    digests, heard = [], []
    for every_s in (0.0, 1e9):
        reached: list[Progress] = []
        observer = Listens(reached)
        options = RunOptions(local=True, progress_every_s=every_s)
        digests.append(run_prepared(prepared, options, observer, diagnose=False).outcome.digest)
        heard.append(reached)
    assert digests[0] == digests[1]
    often, seldom = heard
    assert len(often) > 10
    assert seldom == []
    moved = [one.delivered_bytes for one in often]
    assert moved == sorted(moved)
    assert 0 < moved[-1] <= planned_bytes(prepared.jobs)
