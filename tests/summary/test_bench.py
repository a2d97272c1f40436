"""Are the bench cases those that the figures are stated for, and are failures told?"""

from collections.abc import Iterator

import pytest

from emu import api
from emu.base.errors import RuntimeFailure
from emu.cli.bench.cases import CASES, EVERY, FEATURES, LARGE, ROUTINGS, Case, Measured, loop_rounds_per_s
from emu.cli.bench.posts import POSTING, measure_posts, scenario_of
from emu.cli.bench.whole import WHOLE, wait_for
from emu.cli.commands.bench import only_digest, run_once
from emu.cli.main import main
from emu.scenario.dump import to_mapping
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.sections.fabrics_large import Llama3
from emu.scenario.sections.routing import POLICIES
from emu.scenario.workloads.collective import CollectiveWorkload

HOSTS = {
    "one-flow": 16,
    "one-way-64": 64,
    "one-way-256": 256,
    "permutation-64": 64,
    "permutation-128": 128,
    "permutation-256": 256,
    "permutation-512": 512,
    "permutation-1024": 1024,
    "cut-through-64": 64,
    "qos-maps-64": 64,
    "bit-errors-64": 64,
    "dwrr-64": 64,
    "deep-buffer-64": 64,
    "incast-16": 64,
    "ring-64": 64,
    "ring-128": 128,
    "ring-256": 256,
    "all-to-all-64": 64,
    "send-64": 64,
    "read-64": 64,
    "lossy-go-back-n-64": 64,
    "lossy-selective-repeat-64": 64,
    "rnr-64": 64,
}


def figures(digest: str) -> Measured:
    return Measured(
        packet_hops=3_000_000,
        data_packet_hops=1_500_000,
        events=6_000_000,
        wall_s=2.0,
        cpu_s=1.5,
        build_s=0.1,
        peak_rss_bytes=1,
        virtual_ps=1,
        digest=digest,
        compiled=False,
        workers=1,
    )


def test_there_is_a_case_for_each_figure() -> None:
    assert list(CASES) == [*HOSTS, "quickstart", *(f"routing-{name}" for name in ROUTINGS)]


def test_every_policy_has_a_case() -> None:
    measured = {load_mapping(CASES[f"routing-{name}"].scenario()).scenario.routing.kind for name in ROUTINGS}
    assert measured | {"e_ecmp"} == set(POLICIES.table)


@pytest.mark.parametrize("name", HOSTS)
def test_fabric_is_the_one_that_simulators_were_compared_on(name: str) -> None:
    scenario = load_mapping(CASES[name].scenario()).scenario
    topology = build_topology(scenario)
    assert len(topology.hosts) == len(topology.nics) == HOSTS[name]
    assert len(topology.switches) == HOSTS[name] // 8 + 8
    assert {(link.rate_bps, link.delay_ps) for link in topology.links if link.kind == "fabric"} == {
        (400 * 10**9, 500_000)
    }
    assert (scenario.transport.mtu_bytes, scenario.transport.ack_every) == (4096, 1)
    assert (scenario.switch.latency_ps, scenario.nic.latency_ps, scenario.host.proxy_cost_ps) == (0, 0, 0)


def keys(value: object, path: str = "") -> Iterator[str]:
    """The place of every key of a mapping, and of those in its lists."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}"
            yield from keys(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from keys(item, f"{path}[{at}]")


@pytest.mark.parametrize("name", [*EVERY, *POSTING])
def test_no_figure_depends_on_a_default(name: str) -> None:
    """Every key of the effective scenario is written in the case: nothing is left for a default to decide."""
    case = EVERY[name].scenario() if name in EVERY else scenario_of(POSTING[name])
    written = set(keys(case))
    effective = to_mapping(load_mapping(case).scenario)
    assert [key for key in keys(effective) if key not in written] == []
    assert "default" not in [job["workload"].get("algorithm") for job in case["jobs"]]


def test_a_case_is_made_anew_each_time() -> None:
    spoilt = CASES["lossy-go-back-n-64"].scenario()
    spoilt["transport"]["recovery"]["window"] = "1KB"
    spoilt["nic"]["dscp"][3] = 1
    assert CASES["permutation-64"].scenario()["transport"]["recovery"]["window"] == "1MB"
    assert CASES["permutation-64"].scenario()["nic"]["dscp"] == {}


def test_rates_are_per_cpu_second() -> None:
    run = figures("a")
    assert (run.hops_per_cpu_s, run.data_hops_per_cpu_s, run.events_per_cpu_s) == (2e6, 1e6, 4e6)


def test_loop_is_a_yardstick_of_this_machine() -> None:
    assert loop_rounds_per_s() > 0


def test_runs_of_one_case_must_agree() -> None:
    assert only_digest(CASES["one-flow"], [figures("a"), figures("a")]) == "a"
    with pytest.raises(RuntimeFailure, match="2 different digests"):
        only_digest(CASES["one-flow"], [figures("a"), figures("b")])


def test_run_that_fails_ends_the_bench_with_its_reason() -> None:
    with pytest.raises(RuntimeFailure, match=r"bench nothing: .*nothing"):
        run_once(Case("nothing", "", dict), 0)


def test_unknown_case_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--case", "permutation-63"]) == 2
    assert "permutation-64" in capsys.readouterr().err


def test_the_large_all_to_all_has_64_kib_for_each_pair() -> None:
    scenario = load_mapping(LARGE["all-to-all-512"].scenario()).scenario
    (job,) = scenario.jobs
    assert len(build_topology(scenario).gpus) == 512
    assert isinstance(job.workload, CollectiveWorkload)
    assert job.workload.sizes_bytes == (512 * 64 * 1024,)


@pytest.mark.parametrize("name", FEATURES)
def test_a_case_of_a_feature_is_the_permutation_with_it(name: str) -> None:
    scenario = load_mapping(FEATURES[name].scenario()).scenario
    plain = load_mapping(CASES["permutation-64"].scenario()).scenario
    assert scenario.topology == plain.topology
    assert scenario.jobs == plain.jobs
    sections = ("nic", "switch", "transport", "link")
    assert [key for key in sections if getattr(scenario, key) != getattr(plain, key)]


def test_posts_over_a_socket_are_those_of_the_process() -> None:
    few = POSTING["open-posts"]._replace(name="posts", posts=40, outstanding=8)
    inside, outside = measure_posts(few), measure_posts(few._replace(socket=True))
    assert inside.digest == outside.digest
    assert (inside.posts, inside.virtual_ps) == (40, outside.virtual_ps)
    assert min(inside.cpu_s, outside.cpu_s) > 0


def test_a_whole_command_costs_more_than_its_engine_and_its_files_are_gone() -> None:
    found = wait_for(WHOLE["tiny"])
    assert 0 < found.engine_cpu_s < found.cpu_s
    assert found.packet_hops > 0
    assert found.digest == api.run("tiny_all_reduce", local=True, diagnose=False).summary.digest
    with pytest.raises(RuntimeFailure, match="bench tiny: `emu run` ended with status 2"):
        wait_for(WHOLE["tiny"]._replace(shipped="no such scenario"))


def test_scenarios_of_whole_commands_load_and_the_idle_cluster_is_that_of_llama_3() -> None:
    loaded = {
        name: load_mapping(one.scenario()).scenario for name, one in WHOLE.items() if one.scenario is not None
    }
    assert WHOLE.keys() - loaded.keys() == {"tiny"}
    fabric = loaded["idle-24576"].topology
    assert isinstance(fabric, Llama3)
    assert fabric.pods * fabric.racks_per_pod * fabric.hosts_per_rack * fabric.gpus_per_host == 24_576


def test_cases_of_posts_and_of_whole_commands_are_questions_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for case, option in (("open-posts", "--posts"), ("tiny", "--whole")):
        assert main(["bench", "--case", case]) == 2
        assert f"or {option} --case {case}" in capsys.readouterr().err
    assert main(["bench", "--posts", "--case", "ring-64"]) == 2
    assert "accepted: open-posts, open-outstanding, open-socket" in capsys.readouterr().err
