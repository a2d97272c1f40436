"""Every kind of fault that hurts a job is named first, with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emu.api import run
from emu.results.summary import Reference
from emu.views.diagnosis.impact import impacts
from emu.views.repairs.run_diagnosis import diagnose_directory
from tests.diagnosis.broken_runs import INCAST, named, run_of, said_of

LINK = "rtsw-0:ctsw-0"
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "link_down": ({"target": LINK, "for": "200us"}, "link_down", LINK),
    "link_flap": ({"target": LINK, "down": "30us", "up": "60us", "flaps": 4}, "link_flap", LINK),
    "port_down": ({"target": "rtsw-1>ctsw-1", "for": "200us"}, "link_down", "rtsw-1:ctsw-1"),
    "degrade": ({"target": LINK, "rate": "20G"}, "degraded_link", LINK),
    "delay": ({"target": "nic-0-0:rtsw-0", "added": "20us"}, "delayed_link", "nic-0-0:rtsw-0"),
    "pause_storm": ({"target": "nic-2-0", "for": "300us"}, "pause_storm", "nic-2-0>rtsw-1"),
    "switch_crash": ({"target": "ctsw-1"}, "switch_down", "ctsw-1"),
    "switch_reboot": ({"target": "ctsw-1", "boot_time": "150us"}, "switch_down", "ctsw-1"),
    "nic_down": ({"target": "nic-1-0", "for": "100us"}, "link_down", "nic-1-0:rtsw-0"),
    "nic_reset": ({"target": "nic-1-0"}, "nic_reset", "nic-1-0"),
    "qp_error": ({"target": "nic-1-0"}, "qp_error", "nic-1-0"),
    "slow_receiver": ({"target": "nic-2-0", "rate": "8G"}, "slow_receiver", "nic-2-0"),
    "gpu_slow": ({"target": "gpu-1-0", "factor": 1000}, "gpu_slow", "gpu-1-0"),
    "gpu_hung": ({"target": "gpu-1-0", "for": "300us"}, "gpu_hung", "gpu-1-0"),
    "gpu_lost": ({"target": "gpu-1-0"}, "gpu_lost", "gpu-1-0"),
    "host_lost": ({"target": "host-1"}, "host_lost", "host-1"),
    "straggler": ({"target": "host-1", "factor": 200}, "straggler", "host-1"),
}
"""Kind of fault: its keys, and the cause and place that are to be named."""


@pytest.mark.parametrize("kind", CASES)
def test_what_hurts_is_named_first(kind: str) -> None:
    keys, cause, place = CASES[kind]
    found = said_of({"kind": kind, "at": "150us"} | keys)
    assert named(found)[:1] == [(cause, place)]
    assert found[0].evidence
    assert place.partition(">")[0] in found[0].sentence


@pytest.mark.parametrize(
    ("keys", "sign"),
    [
        ({"kind": "headroom_drift", "headroom": "0B"}, "headroom overrun"),
        ({"kind": "dscp_drift", "dscp": 24, "queue": 0}, "for want of room"),
    ],
)
def test_a_drift_is_named_by_its_item_and_by_what_it_did(keys: dict[str, Any], sign: str) -> None:
    found = said_of({"target": "rtsw-0", **keys}, jobs=[{"name": "incast", "workload": INCAST}])
    assert named(found)[:1] == [("configuration_drift", "rtsw-0")]
    assert sign in found[0].sentence


def test_a_port_without_pfc_is_named_as_a_port() -> None:
    found = said_of(
        {"kind": "pfc_drift", "target": "rtsw-0>ctsw-0"}, jobs=[{"name": "incast", "workload": INCAST}]
    )
    assert named(found)[:1] == [("configuration_drift", "rtsw-0>ctsw-0")]


def test_nothing_is_said_of_a_run_that_is_well() -> None:
    assert said_of() == []
    assert said_of(jobs=[{"name": "incast", "workload": INCAST}]) == []


@pytest.mark.parametrize(
    "harmless",
    [
        {"kind": "alpha_drift", "target": "rtsw-0", "alpha": "1/4"},
        {"kind": "headroom_drift", "target": "rtsw-0", "headroom": "48KiB"},
        {"kind": "gpu_slow", "target": "gpu-0-0", "factor": "21/20"},
        {"kind": "delay", "target": "nic-0-0:rtsw-0", "added": "200ns", "for": "20us"},
        {"kind": "degrade", "target": LINK, "rate": "90G", "at": "0s"},
    ],
)
def test_nothing_is_said_of_what_nobody_suffered_from(harmless: dict[str, Any]) -> None:
    assert said_of({"at": "150us"} | harmless) == []


def test_harm_is_reported_against_the_same_job_on_the_intended_fabric() -> None:
    slow = {"kind": "degrade", "target": LINK, "rate": "20G", "at": "0s"}
    broken, well = run_of(slow), run_of()
    times = [(job.end_ps or 0) - (job.start_ps or 0) for job in (broken.jobs["train"], well.jobs["train"])]
    assert broken.reference is not None
    assert broken.reference.jobs == {"train": times[1]}
    assert well.reference is None
    percent = (times[0] - times[1]) * 100 // times[1]
    assert percent >= 5
    assert any(
        f"{percent}% more than on the intended fabric" in line for line in broken.diagnosis[0].evidence
    )


def test_a_run_that_broke_or_lost_a_port_needs_no_reference() -> None:
    assert run_of({"kind": "host_lost", "target": "host-1", "at": "150us"}).reference is None
    assert run_of({"kind": "link_down", "target": LINK, "at": "150us", "for": "50us"}).reference is None


@pytest.mark.parametrize(
    ("job_ps", "timeouts", "suffered"),
    [(1_049, 20, 0), (1_050, 20, 1), (1_000, 21, 1), (900, 19, 0), (1_050, 21, 2)],
)
def test_five_per_cent_of_a_jobs_time_or_of_an_alarm_is_harm(
    job_ps: int, timeouts: int, suffered: int
) -> None:
    reference = Reference(jobs={"train": 1_000}, alarms={"nic_local_ack_timeout_err": 20}, imbalance={})
    alarms = {"nic_local_ack_timeout_err": timeouts}
    assert len(impacts({"train": job_ps}, alarms, reference)) == suffered
    of_rounds = reference.model_copy(update={"span_ps": 1_000})
    assert (
        len(impacts({"train": job_ps}, {name: 3 * count for name, count in alarms.items()}, of_rounds, 3_000))
        == suffered
    )


def test_a_run_directory_read_later_says_the_same(tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = said_of({"kind": "link_down", "target": LINK, "at": "150us", "for": "200us"}, out=out)
    summary, later = diagnose_directory(out)
    assert later == found == summary.diagnosis


def test_ports_that_are_loaded_less_evenly_than_in_a_good_run_are_a_cause(tmp_path: Path) -> None:
    exchange = {"kind": "permutation", "size": "512KiB"}
    collides = {"jobs": [{"name": "train", "workload": exchange}], "routing": {"kind": "ecmp"}}
    bad, good = tmp_path / "bad", tmp_path / "good"
    assert said_of(out=bad, seed=2, **collides) == []
    assert said_of(out=good, seed=1, **collides) == []
    assert diagnose_directory(good, bad)[1] == []
    assert diagnose_directory(good, good)[1] == []
    _, found = diagnose_directory(bad, good)
    assert named(found) == [("imbalance", "rtsw-1")]
    assert "of 2 equal ports the one towards ctsw-" in found[0].sentence
    assert "carried 2.00 times the mean, and 1.00 times where all is well" in found[0].sentence


@pytest.mark.parametrize(
    ("kind", "target", "given_up"),
    [
        ("link_down", "nic-0-0:tor-1-0", {"nic-0-0": 8}),  # a port: all 8 paths there, at once
        ("switch_crash", "tor-1-0", {"nic-0-0": 8, "nic-1-0": 8}),  # a T0: those of both NICs below it
        ("link_down", "tor-1-0:agg-1-0", {"nic-0-0": 8, "nic-1-0": 8}),  # those that hashes lead there
    ],
)
def test_a_loss_below_paths_names_its_plane_and_whose_paths_it_took(
    kind: str, target: str, given_up: dict[str, int]
) -> None:
    """Four planes of 100G, two senders with one queue pair each, and 8 paths at a port."""
    work = {"kind": "flows", "flows": [{"src": src, "dst": 3 - src, "size": "2MiB"} for src in (0, 1)]}
    fabric = {"kind": "multi_plane", "planes": 4, "nic_ports": 4, "gpus_per_host": 1, "hosts": 4, "radix": 4}
    given = {
        "name": "planes",
        "topology": fabric | {"link": "100G"},
        "transport": {"kind": "multipath"},
        "jobs": [{"name": "f", "workload": work}],
        "faults": [{"kind": kind, "at": "20us", "target": target}],
    }
    first = run(given, local=True).summary.diagnosis[0]
    assert (first.cause, first.place) == ("switch_down" if kind == "switch_crash" else kind, target)
    line = first.evidence[0]
    assert line.startswith("plane 1: paths given up by nic-0-0 ")
    assert line.endswith("; a queue pair that sends has 8 at a port")
    found = {nic: int(paths) for nic, paths in re.findall(r"(nic-\d-0) (\d+)", line)}
    assert found.keys() == given_up.keys()
    for nic, paths in found.items():
        assert paths == given_up[nic] or (":agg" in target and 0 < paths < given_up[nic])
