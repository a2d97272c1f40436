"""Do clients of storage take as long by rates as by packets?"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.devices.drawing import blueprint_of
from emu.flow.cross import differences
from emu.flow.level import FlowLevel
from emu.results.summary import Summary
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from tests.conftest import SOAK
from tests.workload.test_checkpoint import OVERRIDES

REPAIR = {"kind": "repair", "size": "2MB", "block": "10KB", "parity": 1}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "disks": ({"protocol": "pnfs"}, {"storage": {"disk": "1G"}}),
    "disks, load": ({"protocol": "pnfs", "direction": "load"}, {"storage": {"disk": "1G"}}),
    "client NIC": ({"protocol": "tectonic", "parity": 1}, {"link": "2G"}),
    "uplink": ({}, {"oversubscription": 32}),
    "filer": ({"protocol": "nfs"}, {"storage": {"servers": 1, "disk": "4G"}, "metadata": {"servers": 0}}),
    "metadata": ({"protocol": "tectonic", "parallel": 2}, {"metadata": {"operation": "100us"}}),
    "reads": ({"kind": "reads", "size": "100KB", "steps": 5}, {"storage": {"disk": "1G"}}),
    "repair": (REPAIR, {"storage": {"disk": "1G"}}),
    "rebalance": ({"kind": "rebalance", "block": "10KB"}, {"storage": {"disk": "1G"}}),
    "daemon": ({"fuse": {"enabled": True, "operation": "100us"}}, {}),
}
MORE_HOSTS = 64


def stored(hosts: int, fidelity: str, workload: dict[str, Any], frontend: dict[str, Any]) -> Summary:
    """A checkpoint by packets or by rates."""
    usual = {"kind": "checkpoint", "size": "1MB", "block": "64KiB"}
    front = {
        "enabled": True,
        "hosts_per_rsw": 16,
        "storage": {"servers": 4, "disk": "100G"} | frontend.get("storage", {}),
        "metadata": {"servers": 1, "operation": "10us"} | frontend.get("metadata", {}),
    }
    given = {
        "name": "stored",
        "fidelity": fidelity,
        "topology": {"kind": "star", "hosts": hosts},
        "frontend": {name: value for name, value in frontend.items() if name not in front} | front,
        "overrides": OVERRIDES,
        "jobs": [{"name": "save", "workload": usual | workload}],
    }
    return api.run(given, local=True, diagnose=False).summary


def stagger(hosts: int) -> dict[str, Any]:
    """So many clients that open their files at one metadata server, one after another."""
    return {
        "name": "staggered",
        "fidelity": "flow",
        "topology": {"kind": "star", "hosts": hosts},
        "frontend": {
            "enabled": True,
            "storage": {"servers": 4, "disk": "10G"},
            "metadata": {"servers": 1, "operation": "100us"},
        },
        "overrides": OVERRIDES,
        "jobs": [{"name": "save", "workload": {"kind": "checkpoint", "size": "512KiB", "protocol": "pnfs"}}],
    }


def check(hosts: int, workload: dict[str, Any], frontend: dict[str, Any]) -> None:
    """Both levels, within 5 %, with the same requests; bytes on links, acknowledgements too, within 1 %."""
    both = [stored(hosts, level, workload, frontend) for level in ("flow", "packet")]
    flow, packet = (one.jobs["save"] for one in both)
    fabric = [sum(link.wire_bytes for link in one.fabric.links) for one in both]
    assert fabric[0] == pytest.approx(fabric[1], rel=0.01)
    assert flow.status == packet.status == "success"
    assert flow.end_ps == pytest.approx(packet.end_ps, rel=0.05)
    assert flow.storage is not None
    assert packet.storage is not None
    counted = [
        {kind: one.count for kind, one in job.requests.items()} for job in (flow.storage, packet.storage)
    ]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("name", CASES)
def test_rates_and_packets_agree_within_five_percent_whatever_the_bottleneck(name: str) -> None:
    check(4, *CASES[name])


@pytest.mark.parametrize("name", ["disk_lost", "checkpoint_load", "storage_tectonic"])
def test_shipped_scenarios_end_at_the_same_time_as_by_packets(name: str) -> None:
    """As `emu cross` compares them: several jobs on the same disks, one after another, metadata."""
    packet, flow = (
        api.run(name, overrides={"fidelity": level, "expect": []}, local=True, diagnose=False).summary
        for level in ("packet", "flow")
    )
    found = [one for one in differences(packet, flow) if one.what.endswith(": end")]
    assert len(found) == sum(job.storage is not None for job in packet.jobs.values())
    assert [one for one in found if not one.holds] == []
    assert packet.expectations == []


def test_the_cost_grows_with_what_is_sent_and_not_with_how_much_of_it_meets() -> None:
    """Clients that begin one after another, as metadata lets them: events of the clock, not seconds."""
    events = []
    for hosts in (16, 32, 64):
        scenario = load_mapping(stagger(hosts)).scenario
        level = FlowLevel(blueprint_of(scenario, build_topology(scenario)))
        level.run()
        events.append(level.beside.pushed)
    assert events[2] / events[1] == pytest.approx(2, rel=0.1)
    assert events[1] / events[0] == pytest.approx(2, rel=0.1)


def test_they_agree_for_sixty_four_hosts() -> None:
    size = "1MB" if SOAK else "128KiB"
    check(MORE_HOSTS, {"size": size}, {"storage": {"disk": "1G"}, "fsws": 1})


def test_overrides_of_the_back_end_are_refused_still() -> None:
    given = {
        "name": "refused",
        "fidelity": "flow",
        "topology": {"kind": "star", "hosts": 4},
        "overrides": [{"devices": "nic-0-0", "nic": {"latency": "1us"}}],
        "jobs": [{"name": "one", "workload": {"kind": "permutation", "size": "4KiB"}}],
    }
    with pytest.raises(ScenarioError, match="overrides: flow level does not have this"):
        api.run(given, local=True, diagnose=False)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("changes", "expected_ms"),
    [
        # 3,840 x 4 MB over 128 x 4 Gbit/s.
        ({"topology.racks_per_pod": 960}, 240.0),
        # Eleven requests of each host, 20 us each, one after another: name, file, file and block of four
        # blocks, seal.
        (
            {
                "jobs[0].workload.protocol": "tectonic",
                "frontend.metadata.servers": 1,
                "frontend.metadata.operation": "20us",
                "frontend.metadata.queue": 65536,
            },
            1024 * 11 * 0.02,
        ),
    ],
    ids=["3,840 hosts, disks", "1,024 hosts, metadata"],
)
def test_thousands_of_hosts_take_what_their_bottleneck_says(
    changes: dict[str, Any], expected_ms: float
) -> None:
    job = api.run("storage_many_hosts", overrides=changes, local=True, diagnose=False).summary.jobs["save"]
    assert job.status == "success"
    assert (job.end_ps or 0) / 1e9 == pytest.approx(expected_ms, rel=0.05)
