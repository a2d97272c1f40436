"""Does a call get what the table of NCCL's example tuner says for its size and its communicator?"""

from pathlib import Path
from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_mapping, load_text
from emu.scenario.resolve import build_topology, tuned

TABLE = """# rows of NCCL's and of RCCL's examples
collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
allreduce,0,65536,tree,simple,2,1,-1,-1,1
allreduce,0,3072,tree,ll,1,2,16,-1,-1
allreduce,65537,1048576,ring,simple,4,4,32,1,0
allreduce,1048577,4294967295,ring,ll128,-1,-1,-1,4,-1
allreduce,12582913,25165824,ring,ll128,40,2,16,-1,-1
allgather,0,4294967295,ring,simple,4,2,-1
allreduce,25165825,50331648,collnet_direct,simple,4,2,16
allreduce,3073,6144,-1,ll128,7
"""
MIB = 1 << 20


def scenario(table: str, tmp_path: Path, **ncclx: Any) -> Any:
    (tmp_path / "tuner.csv").write_text(table, "utf-8")
    fabric = {"kind": "ai_zone", "racks": 4, "hosts_per_rack": 1, "gpus_per_host": 8, "spines": 2}
    work = {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}
    keys = {"name": "tuned", "topology": fabric, "jobs": [{"name": "a", "workload": work}]}
    return load_mapping({**keys, "ncclx": {"tuner": {"table": "tuner.csv"}, **ncclx}}, tmp_path)


def choice(found: Any, servers: int, op: str, size_bytes: int) -> tuple[str, str, int]:
    """Algorithm, protocol and channels among all GPUs of the first servers."""
    topology = build_topology(found)
    return tuned(found, 0, topology, [topology.gpus[: 8 * servers]], op, size_bytes, "auto")


@pytest.mark.parametrize(
    ("op", "size_bytes", "servers", "expected"),
    [
        ("all_reduce", 1024, 2, ("double_binary_tree", "ll", 1)),
        ("all_reduce", 3072, 2, ("double_binary_tree", "ll", 1)),
        ("all_reduce", MIB, 4, ("ring", "simple", 4)),
        ("all_reduce", 65_537, 4, ("ring", "simple", 4)),
        ("all_reduce", 16 * MIB, 2, ("ring", "ll128", 16)),  # 40 channels, of which there are 16
        ("all_gather", 64 * MIB, 2, ("ring", "simple", 4)),
    ],
)
def test_the_first_row_that_matches_decides(
    op: str, size_bytes: int, servers: int, expected: tuple[str, str, int], tmp_path: Path
) -> None:
    found = scenario(TABLE, tmp_path).scenario
    assert choice(found, servers, op, size_bytes) == expected


@pytest.mark.parametrize(
    ("op", "size_bytes", "servers"),
    [
        ("all_reduce", 1024, 1),  # a row for registered buffers
        ("all_reduce", 1024, 4),  # rows for two servers
        ("all_reduce", 2 * MIB, 2),  # a row for four operations in a call
        ("all_reduce", 32 * MIB, 2),  # reductions in switches
        ("reduce_scatter", MIB, 2),
    ],
)
def test_where_no_row_matches_nccls_own_table_decides(
    op: str, size_bytes: int, servers: int, tmp_path: Path
) -> None:
    with_rows = scenario(TABLE, tmp_path).scenario
    without = scenario("allreduce,0,1,ring,ll,1\n", tmp_path).scenario
    assert choice(with_rows, servers, op, size_bytes) == choice(without, servers, op, size_bytes)


def test_a_row_may_leave_the_algorithm_to_nccl_and_one_that_cannot_be_done_is_passed_over(
    tmp_path: Path,
) -> None:
    found = scenario(TABLE, tmp_path).scenario
    assert choice(found, 2, "all_reduce", 4096)[1:] == ("ll128", 7)
    found = scenario("broadcast,0,9999,tree,ll,3\nbroadcast,0,9999,ring,ll,2\n", tmp_path).scenario
    assert choice(found, 2, "broadcast", 4096) == ("ring", "ll", 2)  # NCCL has no tree for broadcast


def test_the_variable_names_the_table_and_the_effective_scenario_has_its_rows(tmp_path: Path) -> None:
    script = "export NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=tuner.csv\n"
    (tmp_path / "job.sh").write_text(script, "utf-8")
    loaded = scenario(TABLE, tmp_path, env="job.sh", tuner={})
    assert len(loaded.scenario.ncclx.tuner.rows) == 5
    matchless = "for several operations in a call, registered buffers or reductions in switches"
    assert loaded.notes == (f"ncclx.tuner.table: 3 of 8 rows match nothing here: {matchless}",)
    assert load_text(to_yaml(loaded.scenario), "again.yaml").scenario == loaded.scenario
    (tmp_path / "job.sh").write_text("export NCCL_TUNER_CONFIG_FILE=/not/here.csv NCCL_IB_TC=41\n", "utf-8")
    notes = scenario(TABLE, tmp_path, env="job.sh", tuner={}).notes
    assert "NCCL_TUNER_CONFIG_FILE: /not/here.csv is not there and left out" in notes[0]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "tuner.csv:1: ncclx.tuner.table: has no row; accepted: collective_type,min_bytes"),
        (
            "allgather,[8388608,16777216],ring,ll128,-1,*,*\n",
            "tuner.csv:1: ncclx.tuner.table: is a row of NCCLX's built-in tuner, which goes by",
        ),
        ("collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks\n", "built-in tuner"),
        ("allreduce,0,1\n", "tuner.csv:1: ncclx.tuner.table: 3 cells; accepted: 6 to 10"),
        ("#\nalltoall,0,1,ring,ll,1\n", "tuner.csv:2: ncclx.tuner.table: there is no 'alltoall'"),
        ("allreduce,0,1,rings,ll,1\n", "there is no 'rings'; did you mean 'ring'?; accepted: ring, tree"),
        ("allreduce,9,1,ring,ll,1\n", "max_bytes 1 is below min_bytes; accepted: at least 9"),
        ("allreduce,0,1,ring,ll,0\n", "0 is out of range; accepted: a whole number from 1 to 64"),
        ("allreduce,0,1,ring,ll,1,1,1,1,2\n", "there is no '2'; accepted: 0, 1, -1"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_its_line(table: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(table, tmp_path)
    assert said in str(caught.value.problems[0])


def test_rows_overrule_nccls_table_alone(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="overrule NCCL's table, which is not used"):
        scenario(TABLE, tmp_path, tuner={"table": "tuner.csv", "model": "hops"})
    with pytest.raises(ScenarioError, match=r"no_such\.csv: there is no such file"):
        scenario(TABLE, tmp_path, tuner={"table": "no_such.csv"})
