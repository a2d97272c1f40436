"""Are the packet-hops of a run known before it, and is somebody warned of a long one?"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from actors.ncclx.schedule import Schedule
from emu import api
from emu.cli.commands.estimate import estimated
from emu.cli.main import main
from emu.devices.pricing import distribution, estimate
from emu.devices.pricing.estimate import Estimate, about_wall
from emu.terminal.terminal import time_left

WHOLE = (
    *("tiny_all_reduce", "qp_policies", "tree", "verb_read", "verb_send", "flow_table"),
    *("zero_copy", "nvlink_hierarchical", "step_time", "trace", "program"),
)
SCENARIOS: dict[str, dict[str, str]] = {
    **{name: {} for name in WHOLE},
    "incast": {"jobs[0].workload.size": "64KiB"},
    "checkpoint": {"jobs[0].workload.steps": "2", "jobs[1].workload.size": "256KiB"},
    "dual_tor_least_loaded": {"jobs[0].workload.sizes": "[1MiB]", "faults": "[]"},
    "serving": {"jobs[1].enabled": "false", "jobs[0].workload.requests": "4"},
}
"""Flows, a ring, graphs, NVLink, queue pairs, a trace, a program, training steps, TCP, slices over all NICs
of a server, keys and values; shortened where they are long."""


def on_known_machine(name: str, changes: dict[str, str]) -> Estimate:
    """By the prices as they are, whatever this machine's pace."""
    prepared = api.prepare(api.load(name, changes))
    return estimate.estimate(prepared.scenario, prepared.topology, prepared.plan)


@pytest.mark.parametrize("name", SCENARIOS)
def test_packet_hops_of_a_scenario_are_known_before_it_runs(name: str) -> None:
    loaded = api.load(name, {**SCENARIOS[name], "expect": "[]"})
    counted = api.run(loaded, local=True, diagnose=False).summary.engine.packet_hops
    assert estimated(api.prepare(loaded)).hops == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("name", "max_time", "longest"),
    [
        ("tiny_all_reduce", "2ms", 1.2),
        ("tree", "5ms", 1.3),
        ("incast", "5ms", 1.1),
        ("step_time", "6ms", 1.8),
    ],
)
def test_jobs_that_repeat_are_counted_as_often_as_they_fit_into_the_run(
    name: str, max_time: str, longest: float
) -> None:
    loaded = api.load(name, {"run.repeat": "true", "run.max_time": max_time, "expect": "[]"})
    counted = api.run(loaded, local=True, diagnose=False).summary.engine.packet_hops
    once = on_known_machine(name, {"expect": "[]"}).hops
    announced = estimated(api.prepare(loaded)).hops
    assert counted > 3 * once
    assert 0.9 * counted < announced < longest * counted


@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("all_reduce", "nvls_tree"), ("all_reduce", "double_binary_tree"), ("broadcast", "default")],
)
def test_loops_of_a_large_call_are_counted_as_one_by_one(
    op: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"jobs[0].workload.op": op, "jobs[0].workload.algorithm": algorithm}
    changes["jobs[0].workload.sizes"] = "[100000004B]"
    counted = on_known_machine("nvlink_hierarchical", changes).hops
    monkeypatch.setattr(Schedule, "loop", lambda *_: (0, 0))
    assert on_known_machine("nvlink_hierarchical", changes).hops == counted > 400_000


def test_a_run_of_more_than_ten_minutes_is_announced() -> None:
    """Each host sends 2^29 packets of 4 KiB."""
    large = api.prepare(
        api.load("permutation", {"jobs[0].workload.size": "2TiB", "jobs[0].workload.message": "1GiB"})
    )
    (line,) = estimated(large).warnings()
    assert "packet-hops" in line
    assert estimated(api.prepare(api.load("permutation"))).warnings() == []


def test_the_page_has_the_prices_that_are_used() -> None:
    page = Path("docs/scale.md").read_text(encoding="utf-8")
    reported = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+?) \|", page, re.MULTILINE))
    scale = {"KiB": 1 << 10, "MiB": 1 << 20}
    for name, price in reported.items():
        known = getattr(estimate, name, None) or getattr(distribution, name)
        if isinstance(known, tuple):
            found = re.findall(r"([\d.]+)(?: us)? with ([\d,]+)", price)
            assert tuple((int(hosts.replace(",", "")), float(us)) for us, hosts in found) == known
        else:
            number, _, unit = price.partition(" ")
            assert float(number) * scale.get(unit, 1) == known, name
    used = {
        name
        for module in (estimate, distribution)
        for name in vars(module)
        if re.fullmatch(r"[A-Z]+_(S|US|MS|BYTES)|SAMPLES|TCP|UNEVEN|SOONER", name)
    }
    assert used - {"LONG_S", "CTS_BYTES", "SPLIT_ALIGN_BYTES"} == reported.keys()


@pytest.mark.parametrize("name", ["tiny_all_reduce", "policies"])
def test_memory_is_known_before_a_run_within_30_per_cent(name: str, tmp_path: Path) -> None:
    """In a process of its own, by way of a small one: a process begins with the peak of the one that
    started it. Queue pairs of `policies` hold 4,096 packets each.
    """
    command = [sys.executable, "-m", "emu.cli.main", "run", name, "--local", "--no-page", "--json"]
    small = ["sh", "-c", '"$@" || exit 1', "sh", *command, f"--out={tmp_path / name}"]
    ran = subprocess.run(small, capture_output=True, check=True, text=True)
    peak_bytes = json.loads(ran.stdout)["engine"]["peak_rss_bytes"]
    assert estimated(api.prepare(api.load(name))).memory_bytes == pytest.approx(peak_bytes, rel=0.3)


def test_room_for_packets_out_of_order_is_paid_for_by_each_queue_pair() -> None:
    """272 queue pairs, from a window of 4,096 packets to one of 8,192."""
    small, large = (
        on_known_machine("policies", {"transport.recovery.window": window}) for window in ("16MiB", "32MiB")
    )
    assert large.memory_bytes - small.memory_bytes == 272 * 4096 * estimate.SLOT_BYTES
    assert large.wall_s - small.wall_s == pytest.approx(272 * 4096 * estimate.SLOT_US / 1e6)


def test_samples_are_at_least_what_the_busiest_nic_needs_at_its_rate() -> None:
    """64 MiB at 400G take 1,342.2 us: so many samples of the 77 devices but the 32 GPUs, which do nothing, in
    place of the 200 of a choice."""
    few, many = (
        on_known_machine("permutation", {"jobs[0].workload.size": "64MiB", "run.sample_every": every})
        for every in ("1ms", "1us")
    )
    longer_s = (1342 - 200) * 77 * estimate.SAMPLE_US / 1e6
    assert many.wall_s - few.wall_s == pytest.approx(longer_s)


def test_at_flow_level_only_the_least_is_reported_and_no_plan_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu.cli.commands.estimate.prepare", None)
    assert main(["estimate", "reproduce_all_gather"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[1:4] == ["flow", "level", ">="]


def test_figures_are_printed_for_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "tiny_all_reduce", "verb_send", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["scenario"] for one in found] == ["tiny_all_reduce", "verb_send"]
    assert main(["estimate", "tiny_all_reduce"]) == 0
    assert "packet-hops" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wall_s", "text"), [(0.84, "0.8 s"), (42, "42 s"), (1000, "17 min"), (18_700, "5.2 h")]
)
def test_times_on_the_wall_are_reported_in_the_unit_a_reader_would_use(wall_s: float, text: str) -> None:
    assert about_wall(wall_s) == text


@pytest.mark.parametrize(
    ("done", "spent_s", "text"),
    [
        (0, 5, "0 %"),
        (0.9, 5, "0 %"),
        (1, 1, "1 %, 99 s left"),
        (25, 10, "25 %, 30 s left"),
        (120, 10, "100 %, 0.0 s left"),
    ],
)
def test_time_left_follows_the_pace_so_far(done: float, spent_s: float, text: str) -> None:
    assert time_left(done, 100, spent_s) == text
