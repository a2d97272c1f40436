"""Can a user hand in an algorithm, is a wrong one refused by name, and what does the tuner pick?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.ncclx.graph import Algorithm, Call, Step, StepList
from actors.ncclx.tuner import Rates, Shape, TunerSettings, choose, modelled
from emu import api
from emu.base.errors import ScenarioError
from emu.results.summary import Collective
from emu.scenario.load import load_text
from tests.ncclx.toy import Toy, scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
BASE_PS = 8_400_000
RATES = Rates(400 * 10**9, 3600 * 10**9)


class Twice(Algorithm):
    """An all_gather around a ring without sums: right; as an all_reduce it lacks all but its neighbour's."""

    collectives = ("all_reduce", "broadcast")

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        if call.op == "all_reduce":
            made.exchange(rank ^ 1, (call.whole(),), (call.whole(),), reduce=True)
        elif rank == call.root:
            for other in range(call.ranks):
                if other != rank:
                    made.send(other, (call.whole(),))
        else:
            made.receive(call.root, (call.whole(),))
        return made.steps


class Needy(Algorithm):
    """One that cannot be made as the others are."""

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def steps(self, call: Call, rank: int) -> list[Step]:
        return []


def rows(name: str, **changes: Any) -> list[Collective]:
    overrides = {key.replace("__", "."): value for key, value in changes.items()} | {"expect": []}
    summary = api.run(name, overrides=overrides, local=True).summary
    (job,) = summary.jobs.values()
    return job.collectives


def text(op: str, algorithm: str) -> str:
    workload = f"{{kind: collective, op: {op}, algorithm: {algorithm!r}, sizes: [1KiB]}}"
    return f"""
name: own
topology: {{kind: star, hosts: 4}}
jobs: [{{name: mine, workload: {workload}}}]
"""


def test_a_class_of_one_s_own_does_a_collective(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text("broadcast", "tests.ncclx.test_own_algorithms:Twice"))
    (row,) = next(iter(api.run(path, local=True).summary.jobs.values())).collectives
    assert (row.algorithm, row.status) == ("tests.ncclx.test_own_algorithms:Twice", "success")


def test_a_class_that_is_no_all_reduce_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text("all_reduce", "tests.ncclx.test_own_algorithms:Twice"))
    with pytest.raises(ScenarioError) as caught:
        api.run(path, local=True)
    (problem,) = caught.value.problems
    assert problem.key == "jobs[0].workload.algorithm"
    assert problem.reason.endswith("is no all_reduce of 1024 B: rank 0: byte 0 lacks rank 3")


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ("json:loads", "does not load"),
        ("no_such_module:Mine", "does not load"),
        ("emu.base.errors:Problem", "has no method `steps`"),
        ("tests.ncclx.test_own_algorithms:Needy", "cannot be made: TypeError: "),
        ("rings", "did you mean 'ring'?"),
    ],
)
def test_what_is_no_algorithm_is_refused_at_its_line(algorithm: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(text("all_reduce", algorithm), "own.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (4, "jobs[0].workload.algorithm")
    assert reason in problem.reason


def test_a_graph_from_a_file_is_run() -> None:
    (row,) = rows("own_graph")
    assert (row.algorithm, row.status) == ("graph", "success")


def spoiled(tmp_path: Path, change: Any) -> ScenarioError:
    graph = json.loads((SCENARIOS / "collectives/own_graph.json").read_text())
    change(graph)
    (tmp_path / "own_graph.json").write_text(json.dumps(graph))
    path = tmp_path / "own_graph.yaml"
    path.write_text((SCENARIOS / "collectives/own_graph.yaml").read_text())
    with pytest.raises(ScenarioError) as caught:
        api.run(path, local=True)
    return caught.value


def test_a_graph_that_forgets_a_step_is_refused(tmp_path: Path) -> None:
    (problem,) = spoiled(tmp_path, lambda graph: graph["steps"][0].pop()).problems
    assert problem.key == "jobs[0].workload.algorithm"
    assert "rank 0 never receives what rank 1 sends" in problem.reason


def test_a_graph_that_does_not_reduce_is_refused(tmp_path: Path) -> None:
    (problem,) = spoiled(tmp_path, lambda graph: graph["steps"][2][1].update(reduce=False)).problems
    assert "lacks rank 2" in problem.reason


def test_a_graph_for_other_ranks_is_refused(tmp_path: Path) -> None:
    found = spoiled(tmp_path, lambda graph: graph["steps"].append([]))
    assert "jobs[0].workload.graph.steps" in str(found)


def test_a_graph_of_nonsense_is_refused_in_its_own_file(tmp_path: Path) -> None:
    found = spoiled(tmp_path, lambda graph: graph["steps"][1][0].update(send=[9]))
    assert "own_graph.json" in str(found)
    assert "talks to a rank that is no peer" in str(found)


def test_a_tuner_made_for_a_near_network_picks_wrongly_at_22_us() -> None:
    """Its hops are 2 us; those of the wire 11 us, of which a ring of 8 takes 14 and doubling 3."""
    near, far = rows("tuner"), rows("tuner", ncclx__tuner__hop="11us")
    assert [row.algorithm for row in near] == ["recursive_doubling", "ring"]
    assert [row.algorithm for row in far] == ["recursive_doubling", "recursive_doubling"]
    took = [rows_[1].end_ps - rows_[1].start_ps for rows_ in (near, far)]  # type: ignore[operator]
    assert took[0] > 1.5 * took[1]


def test_the_model_is_base_and_hops_and_bytes() -> None:
    """8 ranks, 400G: ring 14 hops and 1.75 S, doubling 3 hops and 3 S; equal where 11 hops are 1.25 S."""
    tuner = TunerSettings(BASE_PS, 1_000_000, 3_400_000, ("ring", "recursive_doubling"))
    equal = 11 * 50_000 * 100 // 125
    shape = Shape(8)
    assert choose(tuner, "all_reduce", shape, equal * 98 // 100, RATES) == "recursive_doubling"
    assert choose(tuner, "all_reduce", shape, equal * 102 // 100, RATES) == "ring"
    assert choose(tuner, "all_to_all", shape, 1024, RATES) == "direct"


@pytest.mark.parametrize("nvlink", [900, 3600, 7200])
def test_in_one_server_it_is_base_and_hops_and_bytes_over_nvlink(nvlink: int) -> None:
    """8 GPUs: ring 14 hops and 1.75 S, doubling 3 hops and 3 S; equal where 11 hops are 1.25 S."""
    among = ("ring", "recursive_doubling")
    tuner = TunerSettings(BASE_PS, 10**12, 1_000_000, among)
    equal = 11 * nvlink * 1000 // 8 * 100 // 125
    shape, rates = Shape(8, 8, 0), Rates(1, nvlink * 10**9)
    assert choose(tuner, "all_reduce", shape, equal * 98 // 100, rates) == "recursive_doubling"
    assert choose(tuner, "all_reduce", shape, equal * 102 // 100, rates) == "ring"


def test_over_servers_what_is_slower_of_nics_and_nvlink_decides_for_a_ring_and_their_sum_for_rounds() -> None:
    """4 servers of 4, hops free: a ring moves 30/16 S through a NIC and over NVLink at once, doubling 2 S
    through either, one after the other, halving 2 (3/4) S and 2 (3/16) S. With NVLink as slow as a NIC the
    ring takes 1.875, doubling 4 and halving 1.875; with NVLink half as fast 3.75, 6 and 2.25.
    """
    among = ("ring", "recursive_doubling", "halving_doubling")
    tuner = TunerSettings(BASE_PS, 0, 0, among)
    size, shape = 16 << 20, Shape(16, 4, 4)
    found = [choose(tuner, "all_reduce", shape, size, Rates(400, 400 * part // 4)) for part in (5, 4, 3, 2)]
    assert found == ["halving_doubling", "ring", "halving_doubling", "halving_doubling"]


def test_a_slow_pcie_and_a_tuner_reported_otherwise_move_where_ring_and_doubling_are_equal() -> None:
    """With hops of 2 us that is 22 us at 1.25 S: 880 kB at 400G, 44 kB at 20G, 1.76 MB at 800G."""
    slow = {"host__pcie__enabled": True, "host__pcie__rate": "20G"}
    for changes, small, large in (
        ({}, "recursive_doubling", "ring"),
        (slow, "ring", "ring"),
        ({"ncclx__tuner__nic_rate": "800G"}, "recursive_doubling", "recursive_doubling"),
        ({"ncclx__tuner__nic_rate": "400G", **slow}, "recursive_doubling", "ring"),
    ):
        assert [row.algorithm for row in rows("tuner", **changes)] == [small, large]


def test_inside_a_server_the_tuner_picks_what_is_the_quicker() -> None:
    for at, best in ((0, "recursive_doubling"), (1, "ring")):
        took = {}
        for algorithm in ("auto", "ring", "recursive_doubling"):
            row = rows("tuner_inside", **{"jobs[0].workload.algorithm": algorithm})[at]
            assert row.end_ps is not None
            assert row.start_ps is not None
            took[algorithm] = row.end_ps - row.start_ps
            assert algorithm != "auto" or row.algorithm == best
        assert took["auto"] == min(took.values())


def test_the_model_knows_what_stays_inside_servers_and_how_many_nics_a_ring_leaves_by() -> None:
    """Four servers of four GPUs: 8 of a ring's 30 hops are between them, and 30/16 of S on so many NICs."""
    size = 16 << 20
    for channels, nics in ((1, 1), (2, 2), (4, 4), (8, 4)):
        turned, whole = Shape(16, 4, 4, channels), size * 30 // 16
        # With four channels each GPU of a server sends one of them through its NIC, and three over NVLink.
        inside = whole * 3 // 4 if nics == 4 else whole
        assert modelled("ring", "all_reduce", turned, size) == (8, 22, whole // nics, inside, True)
        same = turned._replace(turned=False)
        assert modelled("ring", "all_reduce", same, size) == (8, 22, whole, whole, True)
    # Ranks that go from server to server have no hop inside, and a NIC each.
    strided = Shape(16, 4, 16, 4)
    part = size // 16
    assert modelled("ring", "all_reduce", strided, size) == (30, 0, 30 * part, 0, True)
    assert modelled("hierarchical", "all_reduce", strided, size) == (6, 2, 6 * part, 24 * part, False)
    assert modelled("hierarchical", "all_gather", strided, size) == (3, 1, 3 * part, 12 * part, False)
    near = Shape(16, 4, 4)
    assert modelled("double_binary_tree", "all_reduce", near, size) == (4, 6, 2 * size, 2 * size, True)
    assert modelled("recursive_doubling", "all_reduce", near, size) == (2, 2, 2 * size, 2 * size, False)
    assert modelled("halving_doubling", "all_reduce", near, size) == (4, 4, 24 * part, 6 * part, False)
    assert modelled("recursive_doubling", "all_gather", near, size) == (2, 2, 12 * part, 3 * part, False)
    assert modelled("direct", "all_to_all", near, size) == (1, 0, 12 * part, 3 * part, True)
    assert modelled("bruck", "all_gather", near, size) == (2, 2, 15 * part, 0, False)
    assert modelled("ring", "all_gather", Shape(4, 4, 0), size) == (0, 3, 0, size * 3 // 4, True)
    assert modelled("direct", "all_reduce", Shape(4, 4, 0), size) == (0, 2, 0, 2 * size * 3 // 4, True)
    # Two NICs for each GPU, one GPU a server: two channels have one each.
    assert modelled("ring", "all_gather", Shape(8, 1, -1, 4, 2), size) == (7, 0, size * 7 // 8 // 2, 0, True)


def test_servers_with_unequally_many_ranks_have_no_hierarchical_algorithm() -> None:
    tuner = TunerSettings(BASE_PS, 5_000_000, 3_400_000, ("ring", "hierarchical"))
    assert choose(tuner, "all_reduce", Shape(16, 4, 4), 1 << 20, RATES) == "hierarchical"
    assert choose(tuner, "all_reduce", Shape(15), 1 << 20, RATES) == "ring"


def test_a_tree_of_turned_channels_leaves_a_server_by_all_its_nics() -> None:
    turned = Shape(8, 4, 2, channels=4, nics=1, turned=True)
    assert modelled("double_binary_tree", "all_reduce", turned, 1 << 20).nic_bytes == 2 * (1 << 20) // 4
    same = turned._replace(turned=False)
    assert modelled("double_binary_tree", "all_reduce", same, 1 << 20).nic_bytes == 2 * (1 << 20)


@pytest.mark.parametrize("channels", [1, 4])
def test_between_two_servers_of_four_gpus_the_tuner_takes_the_tree_and_is_right(channels: int) -> None:
    """1 MiB: a ring has 14 hops and a tree 8, and either leaves a server by one NIC for each channel."""
    took = {}
    for algorithm in ("auto", "ring", "double_binary_tree"):
        changes = {"jobs[0].workload.algorithm": algorithm}
        (row,) = rows("tuner_servers", **changes, ncclx__channels=channels)
        assert row.end_ps is not None
        assert row.start_ps is not None
        took[algorithm] = (row.end_ps - row.start_ps, row.algorithm)
    assert took["auto"] == min(took["ring"], took["double_binary_tree"])
    assert took["auto"][1] == "double_binary_tree"


def split(op: str, algorithm: str, colours: tuple[int, ...]) -> Toy:
    workload = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": ("60KiB",), "split": colours}
    return Toy(scenario([{"name": "bench", "workload": workload}], hosts=len(colours))).run()


@pytest.mark.parametrize("algorithm", ["ring", "direct", "recursive_doubling", "double_binary_tree"])
def test_communicators_of_a_split_job_take_the_time_of_one_alone(algorithm: str) -> None:
    """Each colour talks to itself only, all at once; nothing of the toy fabric is shared."""
    both = split("all_reduce", algorithm, (0, 1, 1, 0, 1, 0))
    alone = split("all_reduce", algorithm, (0, 0, 0))
    assert abs(both.operation_ps() - alone.operation_ps()) <= 1000
    ranks = both.ranks()
    for program in ranks:
        own = [0, 3, 5] if program.rank in (0, 3, 5) else [1, 2, 4]
        assert {int(end.peer) for end in program.ends.sends} <= set(own)
        assert {int(end.peer) for end in program.ends.receives} <= set(own)


@pytest.mark.parametrize(
    ("split", "reason"), [("[0, 1]", "2 colours for 4 ranks"), ("[0, 0, 0, 1]", "one rank")]
)
def test_colours_that_do_not_fit_are_refused(split: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text("all_reduce", "ring").replace("sizes:", f"split: {split}, sizes:"))
    with pytest.raises(ScenarioError) as caught:
        api.run(path, local=True)
    (problem,) = caught.value.problems
    assert problem.key == "jobs[0].workload.split"
    assert reason in problem.reason
