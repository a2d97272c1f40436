"""Does a job run to its end on every kind of fabric, and on one that has lost a leaf's link?"""

from typing import Any

import pytest

from emu.api import prepare, run
from emu.errors import ScenarioError
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


def scenario(topology: dict[str, Any], **sections: Any) -> dict[str, Any]:
    job = {"name": "ring", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["64KiB"]}}
    return plain({"name": "tiny", "topology": topology, "jobs": [job], **sections})


@pytest.mark.parametrize("name", FABRICS)
def test_a_job_runs_to_its_end_on_every_kind(name: str) -> None:
    result = run(scenario({"kind": name, **FABRICS[name]}), local=True)
    assert result.exit_status == 0
    assert [done.status for done in result.summary.jobs["ring"].collectives] == ["success"]


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
