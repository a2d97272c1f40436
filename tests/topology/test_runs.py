"""Does a job run to its end on every kind of fabric, and on one that has lost a leaf's link?"""

from typing import Any

import pytest

from emu.api import Result, prepare, run
from emu.base.errors import ScenarioError
from emu.summary.summary_report import closing_lines
from tests.scenario.plain import plain

FABRICS: dict[str, dict[str, Any]] = {
    "llama3": {
        "pods": 2,
        "racks_per_pod": 2,
        "hosts_per_rack": 1,
        "gpus_per_host": 2,
        "ctsws_per_pod": 2,
        "atsws": 2,
    },
    "hpn": {
        "pods": 2,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 2,
        "aggs_per_plane": 2,
        "cores_per_plane": 2,
        "core_uplinks_per_agg": 1,
        "agg_oversubscription": 2,
    },
    "hpn of one plane": {
        "kind": "hpn",
        "planes": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 2,
        "aggs_per_plane": 2,
    },
    "dcn_plus": {
        "pods": 2,
        "segments_per_pod": 2,
        "hosts_per_segment": 1,
        "gpus_per_host": 2,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
        "cores": 2,
        "core_uplinks_per_agg": 2,
    },
    "megascale": {
        "pods": 2,
        "blocks_per_pod": 1,
        "hosts_per_block": 2,
        "gpus_per_host": 2,
        "aggs_per_pod": 2,
        "cores": 2,
        "core_uplinks_per_agg": 2,
    },
    "fat_tree": {"k": 4},
    "rail_only": {"segments": 2, "hosts_per_segment": 2, "gpus_per_host": 1, "aggs_per_rail": 2},
    "star": {"hosts": 4},
}

ALL_REDUCE_64_MIB: dict[str, Any] = {"kind": "collective", "op": "all_reduce", "sizes": ["64MiB"]}


def scenario(topology: dict[str, Any], **sections: Any) -> dict[str, Any]:
    job = {"name": "ring", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["64KiB"]}}
    return plain({"name": "tiny", "topology": topology, "jobs": [job], **sections})


def payload_of_ports(result: Result) -> dict[str, list[int]]:
    """What each NIC sent through each of its ports, of NICs that sent anything."""
    sent: dict[str, list[int]] = {}
    for link in result.summary.fabric.links:
        if link.source.startswith("nic-"):
            sent.setdefault(link.source, []).append(link.data_bytes)
    return {nic: ports for nic, ports in sent.items() if any(ports)}


@pytest.mark.parametrize("pairs", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["hpn", "hpn of one plane", "dcn_plus"])
def test_by_default_the_ports_of_a_nic_send_equally_much(name: str, pairs: int) -> None:
    work = {"kind": "collective", "op": "all_reduce", "sizes": ["4MiB"]}
    given = {
        "name": "even",
        "topology": {"kind": name, **FABRICS[name]},
        "ncclx": {"qps_per_connection": pairs},
        "jobs": [{"name": "bench", "workload": work}],
    }
    result = run(given, local=True)
    ports = payload_of_ports(result)
    assert ports
    assert all(min(sent) >= 0.9 * max(sent) for sent in ports.values()), ports
    assert result.summary.jobs["bench"].idle_ports == ""


def test_hpn_as_it_comes_fills_both_ports_of_every_nic() -> None:
    """Two servers of eight NICs with two ports of 200G. A ring on both ports has at most their payload."""
    given = {
        "name": "hpn",
        "topology": {"kind": "hpn", "segments_per_pod": 1, "hosts_per_segment": 2},
        "gpu": {"channel_rate": "450GB/s"},  # ports are looked at, not thread blocks
        "jobs": [
            {
                "name": "bench",
                "workload": ALL_REDUCE_64_MIB | {"algorithm": "ring"},
            }
        ],
    }
    result = run(given, local=True)
    ports = payload_of_ports(result)
    assert len(ports) == 16
    assert all(min(sent) >= 0.9 * max(sent) for sent in ports.values()), ports
    (done,) = result.summary.jobs["bench"].collectives
    assert done.busbw is not None
    assert 0.75 * 16 * 200e9 < done.busbw < 16 * 200e9


@pytest.mark.parametrize(
    ("pairs", "use", "slices"), [(1, "merged", 0), (2, "merged", 0), (1, "bonded", 0.5), (2, "bonded", 0)]
)
def test_a_pipeline_over_two_ports_begins_at_the_rate_of_the_ports_that_its_queue_pairs_have(
    pairs: int, use: str, slices: float
) -> None:
    """A tree over two servers sends back what it has got. A slice is cut over the ports of a merged NIC. On a
    bonded one a channel with one queue pair has one port, so its first slice of 1 MiB is there by 1 MiB / 25
    GB/s in place of 50, and until then the other port waits. Later both ports are as busy as one of 400G.
    """
    took_ps = []
    for ports in (1, 2):
        given = {
            "name": "hpn",
            "topology": {"kind": "hpn", "segments_per_pod": 1, "hosts_per_segment": 2, "nic_ports": ports},
            "ncclx": {"qps_per_connection": pairs, "port_use": use},
            "gpu": {"channel_rate": "450GB/s"},
            "jobs": [{"name": "bench", "workload": ALL_REDUCE_64_MIB | {"algorithm": "nvls_tree"}}],
        }
        (done,) = run(given, local=True, diagnose=False).summary.jobs["bench"].collectives
        assert done.start_ps is not None
        assert done.end_ps is not None
        took_ps.append(done.end_ps - done.start_ps)
    slice_ps = 2**20 * 4178 / 4096 / 25e9 * 1e12
    assert took_ps[1] - took_ps[0] == pytest.approx(slices * slice_ps, abs=0.025 * took_ps[0])


def test_one_queue_pair_sends_by_one_port_and_a_line_says_so() -> None:
    fabric = {"kind": "hpn", **FABRICS["hpn of one plane"]}
    work = {"kind": "flows", "flows": [{"src": 0, "dst": 4, "size": "64KiB"}]}
    given = {"name": "one", "topology": fabric, "jobs": [{"name": "flow", "workload": work}]}
    reported = run(given, local=True)
    assert payload_of_ports(reported)["nic-0-0"] == [65_536, 0]
    says = "1 of 1 NICs send data by some of their ports only: nic-0-0 has 1 queue pair for data and 2 ports"
    assert reported.summary.jobs["flow"].idle_ports == says
    assert f"# flow: {says}" in closing_lines(reported.summary)
    two = run(given, local=True, overrides={"jobs[0].workload.qps": 2})
    assert payload_of_ports(two)["nic-0-0"] == [32_768, 32_768]
    assert two.summary.jobs["flow"].idle_ports == ""


def flows(ends: list[tuple[int, int]]) -> list[dict[str, Any]]:
    listed = [{"src": src, "dst": dst, "size": "64KiB", "start": "10us"} for src, dst in ends]
    workload = {"kind": "flows", "qps": 8, "flows": listed}
    return [{"name": "some", "workload": workload}]


def test_what_is_sent_to_a_nic_that_lost_one_leaf_arrives_through_the_other() -> None:
    # All switches hear of the loss before anything is sent. From the other segment half of the queue pairs
    # would have gone to the leaf without the link, and from the same segment all of them.
    fabric = {"kind": "dcn_plus", "pods": 1, "segments_per_pod": 2, "hosts_per_segment": 2}
    small = {"gpus_per_host": 1, "aggs_per_pod": 2, "links_per_tor_agg": 1}
    result = run(
        scenario(
            fabric | small,
            routing={"convergence": "1us"},
            faults=[{"at": "1us", "kind": "link_down", "target": "nic-2-0:tor-1-0"}],
            jobs=flows([(0, 2), (1, 2), (3, 2)]),
            expect=[{"value": "drops.total", "equals": 0}],
        ),
        local=True,
    )
    assert result.passed
    assert result.summary.jobs["some"].status == "success"


def test_ranks_on_rails_that_nothing_joins_are_refused_by_name() -> None:
    rails = {"kind": "rail_only", "hosts_per_segment": 2, "gpus_per_host": 2}
    with pytest.raises(ScenarioError) as error:
        prepare(scenario(rails))
    (problem,) = error.value.problems
    assert problem.key == "jobs[0].ranks"
    assert problem.reason == "nic-0-0 sends to nic-1-1, and the fabric has no path between them"
    rail = {"name": "rail", "ranks": [1, 3], "workload": scenario(rails)["jobs"][0]["workload"]}
    assert run(scenario(rails, jobs=[rail]), local=True).exit_status == 0


def all_to_all(**sections: Any) -> dict[str, Any]:
    work = {"kind": "collective", "op": "all_to_all", "sizes": ["4MiB"]}
    rails = {"kind": "rail_only", "hosts_per_segment": 2, "gpus_per_host": 4, "aggs_per_rail": 1}
    return {"name": "a", "topology": rails, "jobs": [{"name": "a", "workload": work}], **sections}


def test_by_default_an_all_to_all_stays_on_its_rails() -> None:
    """A rank sends 3/8 of its data inside its server, and over the NIC all that is for the other server."""
    result = run(all_to_all(), local=True)
    (done,) = result.summary.jobs["a"].collectives
    assert (done.status, done.algorithm) == ("success", "pxn")
    ports = payload_of_ports(result)
    assert len(ports) == 8
    assert all(4 * 2**19 <= sum(sent) < 4 * 2**19 * 1.01 for sent in ports.values()), ports
    with pytest.raises(ScenarioError) as error:
        prepare(all_to_all(ncclx={"env": {"NCCL_PXN_DISABLE": 1}}))
    (problem,) = error.value.problems
    assert "the fabric has no path between them" in problem.reason
    assert "`algorithm: pxn`" in problem.accepted


@pytest.mark.parametrize(("over", "balances"), [("nic", False), ("host", True)])
def test_least_loaded_takes_other_nics_of_the_host_only_if_it_may(over: str, balances: bool) -> None:
    """A NIC that lost one of two ports has half the rate of the other: over a host it gets a smaller part."""
    given = {
        "name": "loss",
        "topology": {"kind": "hpn", "segments_per_pod": 1, "hosts_per_segment": 2, "gpus_per_host": 2},
        "routing": {"convergence": "1us"},
        "ncclx": {"qps_per_connection": 2, "qp_policy": "least_loaded", "least_loaded_over": over},
        "jobs": [
            {
                "name": "ring",
                "start": "100us",
                "workload": {
                    "kind": "collective",
                    "op": "all_reduce",
                    "algorithm": "ring",
                    "sizes": ["4MiB"],
                },
            }
        ],
        "faults": [{"at": "10us", "kind": "link_down", "target": "nic-0-0:tor-0-0-0"}],
    }
    ports = payload_of_ports(run(given, local=True))
    halved, whole = sum(ports["nic-0-0"]), sum(ports["nic-0-1"])
    assert ports["nic-0-0"][0] == 0
    assert (halved < 0.9 * whole) == balances, ports
    assert balances or halved == pytest.approx(whole, rel=0.01)
