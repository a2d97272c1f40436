"""Can a program's collectives be done like those of a benchmark: tuned, in one's own way, of any type?"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.gpu.memory import encode
from actors.ncclx.payload import numbers
from emu import api
from emu.base.errors import ScenarioError
from emu.engine.outcome import RunOptions
from emu.results.summary import Collective
from emu.workload.composing import Program
from tests.ncclx.test_numpy import COMBINE, as_array, as_bytes
from tests.ncclx.test_payload import payload_rows
from tests.scenario.plain import plain

SCENARIOS = Path(__file__).parents[2] / "scenarios"
GRAPH: dict[str, Any] = json.loads((SCENARIOS / "collectives/own_graph.json").read_text())
TWICE = "tests.ncclx.test_own_algorithms:Twice"
"""Right as a broadcast, wrong as an all_reduce."""


def collectives(program: Program, hosts: int, **sections: Any) -> list[Collective]:
    given = plain(program.scenario({"kind": "star", "hosts": hosts, "nic_delay": "5.25us"}, **sections))
    return api.run(given, local=True).summary.jobs["program"].collectives


def took_ps(row: Collective) -> int:
    assert row.start_ps is not None
    assert row.end_ps is not None
    return row.end_ps - row.start_ps


@pytest.mark.parametrize(("hop", "large"), [("2us", "ring"), ("11us", "recursive_doubling")])
def test_auto_takes_what_the_tuner_likes_for_each_size_and_group(hop: str, large: str) -> None:
    """As in a benchmark over 8 GPUs (`scenarios/collectives/tuner.yaml`); a pair's ring has 2 hops."""
    tuner = {"ncclx": {"tuner": {"hop": hop, "among": ["ring", "recursive_doubling"]}}}
    program = Program(ranks=8)
    pairs = program.communicator("pairs", split=[0, 0, 1, 1, 2, 2, 3, 3])
    program.main.all_reduce("64KiB", algorithm="auto")
    program.main.all_reduce("1MiB", algorithm="auto")
    program.main.all_reduce("64KiB", on=pairs, algorithm="auto")
    program.main.all_to_all("64KiB", algorithm="auto")
    found = collectives(program, 8, **tuner)
    assert [row.algorithm for row in found] == ["recursive_doubling", large, "recursive_doubling", "direct"]
    named = Program(ranks=8)
    named.main.all_reduce("64KiB", algorithm="recursive_doubling")
    named.main.all_reduce("1MiB", algorithm=large)
    assert [took_ps(row) for row in collectives(named, 8)] == [took_ps(row) for row in found[:2]]


def test_an_own_graph_takes_in_a_program_the_time_of_its_benchmark() -> None:
    program = Program(ranks=4)
    program.main.all_reduce("256KiB", algorithm=GRAPH)
    program.main.rooted("broadcast", "64KiB", root=2, algorithm=TWICE)
    first, second = collectives(program, 4)
    assert (first.algorithm, first.status, second.algorithm, second.status) == (
        "graph",
        "success",
        TWICE,
        "success",
    )
    workload = {
        "kind": "collective",
        "op": "all_reduce",
        "algorithm": "graph",
        "graph": GRAPH,
        "sizes": ["256KiB"],
    }
    given = plain(
        {
            "name": "bench",
            "topology": {"kind": "star", "hosts": 4, "nic_delay": "5.25us"},
            "jobs": [{"name": "bench", "workload": workload}],
        }
    )
    (row,) = api.run(given, local=True).summary.jobs["bench"].collectives
    assert took_ps(first) == took_ps(row)


def test_a_program_names_the_file_of_a_graph(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(GRAPH))
    path = tmp_path / "program.yaml"
    operation = "{do: all_reduce, size: 64KiB, algorithm: mine.json}"
    path.write_text(
        f"""
name: program
topology: {{kind: star, hosts: 4}}
jobs:
  - name: program
    workload: {{kind: program, operations: [{operation}]}}
"""
    )
    (row,) = api.run(path, local=True).summary.jobs["program"].collectives
    assert (row.algorithm, row.status) == ("graph", "success")


OPERATIONS = (
    ("all_reduce", "bf16", "max"),
    ("all_reduce", "int32", "prod"),
    ("all_reduce", "fp32", "min"),
    ("all_reduce", "bf16", "sum"),
)


@pytest.mark.parametrize("zero_copy", [False, True])
def test_each_call_has_a_type_and_a_reduction_of_its_own(zero_copy: bool) -> None:
    size, ranks, seed = 6 * 1024, 4, 1
    program = Program(ranks=ranks)
    algorithms: list[Any] = ["ring", "auto", GRAPH, "ring"]
    for algorithm, (_, dtype, redop) in zip(algorithms, OPERATIONS, strict=True):
        program.main.all_reduce(f"{size}B", algorithm=algorithm, dtype=dtype, redop=redop)
    program.main.reduce_scatter(f"{size}B", dtype="bf16", redop="min")
    program.main.all_gather(f"{size}B", dtype="bf16")
    sections: dict[str, Any] = {"payload": "real", "ncclx": {"buffsize": "8KiB", "zero_copy": zero_copy}}
    given = api.prepare(api.load(plain(program.scenario({"kind": "star", "hosts": ranks}, **sections))))
    result = api.run_prepared(given, RunOptions(local=True, metrics=False))
    rows = result.summary.jobs["program"].collectives
    assert [row.wrong for row in rows] == [0] * 6
    # All are calls of one communicator, which is the first: its data goes by 0, and by the call's number.
    found = payload_rows(result)
    for label, (_, dtype, redop) in enumerate(OPERATIONS):
        count = size // (2 if dtype == "bf16" else 4)
        name = (seed, 0, 0, label)
        inputs = [
            as_array(dtype, encode(dtype, numbers(name, rank, ranks, dtype, redop, 0, count)))
            for rank in range(ranks)
        ]
        expected = as_bytes(dtype, COMBINE[redop](np.stack(inputs), axis=0, dtype=inputs[0].dtype))
        mine = [row[3:] for row in found if row[1] == label]
        assert mine == [[0, count, zlib.crc32(expected)]] * ranks


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"do": "all_gather", "redop": "max"}, "operations[0].redop: all_gather reduces nothing"),
        ({"do": "barrier", "dtype": "bf16"}, "operations[0].dtype: barrier has no elements"),
        ({"do": "all_reduce", "algorithm": "graph"}, "operations[0].graph: there is no graph"),
        ({"do": "all_reduce", "graph": GRAPH}, "operations[0].graph: the algorithm is auto"),
        ({"do": "all_reduce", "algorithm": "rings"}, "did you mean 'ring'?"),
        (
            {"do": "compute", "time": "1us", "algorithm": "ring"},
            "algorithm: ring has no compute",
        ),
        (
            {"do": "all_reduce", "algorithm": TWICE},
            "operations[0].algorithm: " + TWICE + " is no all_reduce of 1024 B: rank 0: byte 0 lacks rank 3",
        ),
        (
            {"do": "all_reduce", "algorithm": "graph", "graph": {"chunks": 1, "steps": [[], []]}},
            "operations[0].graph.steps: steps for 2 ranks, and a group has 4",
        ),
        (
            {"do": "all_gather", "algorithm": "graph", "graph": {**GRAPH, "chunks": 3}},
            "operations[0].graph.chunks: 3 chunks are no whole number for each of 4 ranks",
        ),
        (
            {
                "do": "all_reduce",
                "algorithm": "graph",
                "graph": {**GRAPH, "steps": [*GRAPH["steps"][:3], []]},
            },
            "operations[0].algorithm: graph is no all_reduce of 1024 B: rank 0, channel 0, step 2: waits for",
        ),
    ],
)
def test_what_is_no_algorithm_or_type_is_refused_at_its_operation(
    operation: dict[str, Any], problem: str
) -> None:
    program = Program(ranks=4)
    size = {"size": "1KiB"} if operation["do"] not in ("barrier", "compute") else {}
    program.operations.append(operation | size)
    with pytest.raises(ScenarioError) as caught:
        api.run(plain(program.scenario({"kind": "star", "hosts": 4})), local=True)
    assert problem in str(caught.value)


def test_servers_with_unequally_many_ranks_of_a_group_are_refused() -> None:
    program = Program(ranks=4)
    three = program.communicator("three", split=[0, 0, 0, -1])
    program.main.all_reduce("64KiB", on=three, algorithm="hierarchical", ranks=[0, 1, 2])
    topology = {"kind": "star", "hosts": 2, "gpus_per_host": 2}
    with pytest.raises(ScenarioError, match=r"operations\[0\].algorithm: a server has 1 ranks, another 2"):
        api.prepare(plain(program.scenario(topology)))
