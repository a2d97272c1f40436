"""Does every variable of NCCL turn the knob it stands for, and say so where it cannot?"""

import json
from pathlib import Path
from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.cli.main import main
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_mapping, load_text
from emu.scenario.sections.nccl_names import KNOBS, NOT_MODELLED, STATED, WITHOUT_EFFECT
from emu.scenario.workloads.collective import CollectiveWorkload
from emu.scenario.workloads.program import ProgramWorkload

BASE: dict[str, Any] = {
    "name": "names",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 1},
    "jobs": [{"name": "a", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}}],
}


def scenario(env: dict[str, Any], **ncclx: Any) -> Any:
    return load_mapping({**BASE, "ncclx": {"env": env, **ncclx}}).scenario


def refusals(env: dict[str, Any], **ncclx: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        scenario(env, **ncclx)
    return [f"{problem.key}: {problem.reason}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("name", "value", "path", "expected"),
    [
        ("NCCL_BUFFSIZE", 1_048_576, "ncclx.buffsize_bytes", 1_048_576),
        ("NCCL_BUFFSIZE", "2097152", "ncclx.buffsize_bytes", 2_097_152),
        ("NCCL_P2P_NET_CHUNKSIZE", 131_072, "ncclx.p2p_chunk_bytes", 131_072),
        ("NCCL_IB_QPS_PER_CONNECTION", 16, "ncclx.qps_per_connection", 16),
        ("NCCL_CTRAN_IB_MAX_QPS", 16, "ncclx.qps_per_connection", 16),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", 1, "ncclx.qp_policy", "split"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", 0, "ncclx.qp_policy", "round_robin"),
        ("NCCL_CTRAN_IB_VC_MODE", "dqplb", "ncclx.qp_policy", "dqplb"),
        ("NCCL_CTRAN_IB_QP_SCALING_THRESHOLD", 262_144, "ncclx.dqplb.segment_bytes", 262_144),
        ("NCCL_CTRAN_IB_QP_MAX_MSGS", 4, "ncclx.dqplb.most_outstanding", 4),
        ("NCCL_IB_TC", 96, "transport.data_priority", 3),
        ("NCCL_IB_TC", 96, "nic.dscp.3", 24),
        ("NCCL_IB_TC", 106, "transport.data_priority", 3),
        ("NCCL_IB_TC", "106", "nic.dscp.3", 26),
        ("NCCL_IB_FIFO_TC", 224, "transport.control_priority", 7),
        ("NCCL_IB_TIMEOUT", 20, "transport.timeout", 20),
        ("NCCL_IB_RETRY_CNT", 3, "transport.retry_count", 3),
        ("NCCL_MIN_NCHANNELS", 4, "ncclx.channels", 4),
        ("NCCL_MAX_NCHANNELS", 4, "ncclx.channels", 4),
        ("NCCL_MIN_NRINGS", 4, "ncclx.channels", 4),
        ("NCCL_MAX_NRINGS", 4, "ncclx.channels", 4),
        ("NCCL_MIN_CTAS", 2, "ncclx.channels", 2),
        ("NCCL_MAX_CTAS", 2, "ncclx.channels", 2),
        ("NCCL_ALGO", "Tree", "jobs.0.workload.algorithm", "double_binary_tree"),
        ("NCCL_ALGO", "ring", "jobs.0.workload.algorithm", "ring"),
        ("NCCL_P2P_DISABLE", 1, "host.nvlink.enabled", False),
        ("NCCL_P2P_DISABLE", 0, "host.nvlink.enabled", True),
        ("NCCL_CROSS_NIC", 2, "ncclx.ring_order", "by_channel"),
        ("NCCL_CROSS_NIC", 0, "ncclx.ring_order", "one_rail"),
        ("NCCL_CROSS_NIC", 1, "ncclx.ring_order", "crossing"),
        ("NCCL_IB_MERGE_NICS", 0, "ncclx.port_use", "apart"),
        ("NCCL_IB_MERGE_NICS", 1, "ncclx.port_use", "merged"),
        ("NCCL_NET_MERGE_LEVEL", "LOC", "ncclx.port_use", "apart"),
        ("NCCL_NET_MERGE_LEVEL", "PORT", "ncclx.port_use", "merged"),
        ("NCCL_PROTO", "LL,LL128,Simple", "ncclx.protocol", "auto"),
        ("NCCL_PROTO", "LL128", "ncclx.protocol", "ll128"),
        ("NCCL_NCHANNELS_PER_NET_PEER", 4, "ncclx.channels_per_peer", 4),
        ("NCCL_RUNTIME_CONNECT", 1, "ncclx.connect.when", "first_use"),
        ("NCCL_PROTO", "^LL128", "ncclx.protocol", "auto"),
        ("NCCL_ALGO", "Ring,Tree", "jobs.0.workload.algorithm", "auto"),
        ("NCCL_ALGO", "Tree,Ring", "ncclx.tuner.among", ("double_binary_tree", "ring")),
        ("NCCL_ALGO", ["Ring", "Tree"], "ncclx.tuner.among", ("ring", "double_binary_tree")),
        ("NCCL_ALGO", "^Tree", "ncclx.tuner.among", ("ring", "nvls", "nvls_tree", "pat")),
        (
            "NCCL_ALGO",
            "Tree,CollNetDirect,NVLSTree",
            "ncclx.tuner.among",
            ("double_binary_tree", "nvls_tree"),
        ),
        ("NCCL_PROTO", "Simple", "ncclx.protocol", "simple"),
        ("NCCL_PXN_DISABLE", 1, "ncclx.pxn", False),
        ("NCCL_LL_BUFFSIZE", 262_144, "ncclx.ll_buffsize_bytes", 262_144),
        ("NCCL_LL128_BUFFSIZE", 1_048_576, "ncclx.ll128_buffsize_bytes", 1_048_576),
    ],
)
def test_a_variable_turns_its_knob(name: str, value: object, path: str, expected: object) -> None:
    found: Any = scenario({name: value})
    for step in path.split("."):
        found = found[int(step)] if step.isdecimal() else getattr(found, step)
    assert found == expected


def test_every_variable_of_the_table_is_tried_above_and_none_is_in_both_tables() -> None:
    marks = test_a_variable_turns_its_knob.pytestmark  # type: ignore[attr-defined]
    of_files = {"NCCL_TUNER_CONFIG_FILE"}  # tests/scenario/test_tuner_table.py
    assert {row[0] for row in marks[0].args[1]} == set(KNOBS) - of_files
    tables = [*KNOBS, *STATED, *WITHOUT_EFFECT, *NOT_MODELLED]
    assert len(set(tables)) == len(tables)


def test_a_variable_that_is_not_modelled_says_so() -> None:
    (line,) = refusals({"NCCL_P2P_NVL_CHUNKSIZE": 131_072})
    assert line.startswith("ncclx.env.NCCL_P2P_NVL_CHUNKSIZE: is a variable of NCCL that is not modelled")


SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
# export NCCL_P2P_DISABLE=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_DEBUG=${NCCL_DEBUG:-INFO}
export NCCL_IB_HCA=$(ls /sys/class/infiniband | paste -sd,)
export NCCL_SOCKET_IFNAME=^docker0,lo   # not the bridge
export NCCL_IB_GID_INDEX=3 NCCL_IB_DISABLE=0
export NCCL_IB_TC=106
NCCL_IB_TIMEOUT=18
export NCCL_IB_TIMEOUT="${NCCL_IB_TIMEOUT:-22}"; export NCCL_IB_RETRY_CNT='7'
export NCCL_ALGO=Ring,Tree NCCL_CROSS_NIC=0
export NCCL_NET_GDR_LEVEL=PIX
mpirun -np 16 -x NCCL_DEBUG -x NCCL_BUFFSIZE=8388608 -x TORCH_NCCL_AVOID_RECORD_STREAMS=1 \\
    python train.py
"""
"""Every form in which launch scripts of public repositories set NCCL's variables."""


def test_a_launch_script_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(SCRIPT)
    loaded = load_mapping({**BASE, "ncclx": {"env": "job.sh"}}, tmp_path)
    found = loaded.scenario
    assert (found.transport.timeout, found.transport.retry_count) == (22, 7)
    assert (found.transport.data_priority, found.nic.dscp[3]) == (3, 26)
    assert found.ncclx.buffsize_bytes == 8_388_608
    assert found.ncclx.tuner.among == ("ring", "double_binary_tree")
    assert found.host.nvlink.enabled, "the comment switches nothing off"
    idle = (
        "NCCL_DEBUG, NCCL_IB_HCA, NCCL_SOCKET_IFNAME, NCCL_IB_GID_INDEX, NCCL_IB_DISABLE, NCCL_NET_GDR_LEVEL"
    )
    assert loaded.notes == (f"ncclx.env: {idle} change nothing here",)
    assert load_text(to_yaml(found), "again.yaml").scenario == found


def test_what_a_script_has_beyond_the_model_is_left_out_and_named(tmp_path: Path) -> None:
    """A mapping is the user's own, where both are refused."""
    (tmp_path / "job.sh").write_text(
        "NCCL_VERSION=2 NCCL_TUNER_PLUGIN=x.so NCCLX_TUNER_CONFIG_FILE=x.csv NCCL_IB_TC=41 NCCL_DEBUG=INFO"
    )
    loaded = load_mapping({**BASE, "ncclx": {"env": "job.sh"}}, tmp_path)
    assert loaded.notes[0].removeprefix("ncclx.env: ").split("; ") == [
        "NCCL_DEBUG changes nothing here",
        "NCCL_TUNER_PLUGIN, NCCLX_TUNER_CONFIG_FILE not modelled and left out",
        "NCCL_VERSION unknown and left out",
        "data in priority 1, so switch.pfc.priorities: [1, 6]",
    ]
    assert loaded.scenario.switch.pfc.priorities == (1, 6)


def test_lossless_priorities_that_the_scenario_names_stay() -> None:
    mapping = {**BASE, "switch": {"pfc": {"priorities": [3, 6]}}, "ncclx": {"env": {"NCCL_IB_TC": 41}}}
    with pytest.raises(ScenarioError, match="data at priority 1 is not lossless"):
        load_mapping(mapping)


def test_a_mistake_in_a_script_has_the_script_s_line(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(SCRIPT.replace("NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=1"))
    with pytest.raises(ScenarioError) as caught:
        load_mapping({**BASE, "ncclx": {"env": "job.sh"}}, tmp_path)
    (problem,) = caught.value.problems
    assert (Path(problem.file).name, problem.line) == ("job.sh", 8)
    assert problem.reason == "'1': TCP sockets are not modelled"
    with pytest.raises(ScenarioError, match=r"ncclx\.env: .*there is no such file"):
        load_mapping({**BASE, "ncclx": {"env": "other.sh"}}, tmp_path)


def test_one_note_names_what_changes_nothing_and_what_a_list_names_beyond_the_model() -> None:
    env = {
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_SL": 0,
        "NCCL_ALGO": "Ring,Tree,CollNetDirect",
        "NCCL_PROTO": "LL,Simple",
    }
    (note,) = load_mapping({**BASE, "ncclx": {"env": env}}).notes
    assert note.split("; ") == [
        "ncclx.env: NCCL_DEBUG, NCCL_IB_SL change nothing here",
        "of NCCL_ALGO, CollNetDirect not modelled",
        "NCCL_PROTO leaves two protocols, and the tuner has all three",
    ]
    assert load_mapping({**BASE, "ncclx": {"env": {"NCCL_BUFFSIZE": 1_048_576}}}).notes == ()


def test_the_note_is_printed_by_validate_and_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps({**BASE, "ncclx": {"env": {"NCCL_DEBUG": "INFO"}}}))
    for words in (["validate", str(path)], ["run", str(path), "--local", "--out", str(tmp_path / "run")]):
        assert main(words) == 0
        assert capfd.readouterr().out.count("note: ncclx.env: NCCL_DEBUG changes nothing here") == 1


def test_an_operation_without_nccl_s_algorithms_keeps_its_own() -> None:
    jobs = [{"name": "a", "workload": {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"]}}]
    found = load_mapping({**BASE, "jobs": jobs, "ncclx": {"env": {"NCCL_ALGO": "Ring"}}}).scenario
    workload = found.jobs[0].workload
    assert isinstance(workload, CollectiveWorkload)
    assert workload.algorithm == "auto"


def test_two_dscps_of_one_priority_are_a_conflict() -> None:
    (line,) = refusals({"NCCL_IB_TC": 106, "NCCL_IB_FIFO_TC": 108})
    assert line == "ncclx.env.NCCL_IB_FIFO_TC: means nic.dscp.3: 27, which is 26"


def test_the_table_of_another_tuner_is_named_with_the_reason() -> None:
    (line,) = refusals({"NCCLX_TUNER_CONFIG_FILE": "x.csv"})
    assert line.startswith(
        "ncclx.env.NCCLX_TUNER_CONFIG_FILE: names the table of NCCLX's own tuner, which is not read"
    )


def test_an_unknown_variable_is_reported_its_neighbour() -> None:
    (line,) = refusals({"NCCL_BUFSIZE": 1})
    assert line == "ncclx.env.NCCL_BUFSIZE: unknown variable; did you mean 'NCCL_BUFFSIZE'?"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_BUFFSIZE", "4MiB"),
        ("NCCL_BUFFSIZE", 0),
        ("NCCL_IB_TC", 256),
        ("NCCL_ALGO", "Ring,Tre"),
        ("NCCL_ALGO", "allreduce:tree;broadcast:ring"),
        ("NCCL_PROTO", "LL256"),
        ("NCCL_IB_TIMEOUT", -1),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", 2),
        ("NCCL_IB_RETRY_CNT", None),
        ("NCCL_MIN_NCHANNELS", [1]),
    ],
)
def test_a_value_that_a_variable_does_not_take_is_refused(name: str, value: object) -> None:
    (line,) = refusals({name: value})
    assert line.startswith(f"ncclx.env.{name}: ")
    assert line.endswith(f" is not what {name} takes")


def test_an_algorithm_of_nccl_that_is_not_modelled_is_refused_as_such() -> None:
    (line,) = refusals({"NCCL_ALGO": "COLLNETCHAIN"})
    assert line == "ncclx.env.NCCL_ALGO: CollNet, reductions in switches, is not modelled"


def test_a_key_that_says_something_else_is_a_conflict_with_its_line() -> None:
    text = """name: x
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 1, spines: 1}
transport: {timeout: 14}
ncclx: {env: {NCCL_IB_TIMEOUT: 20}}
jobs: [{name: a, workload: {kind: collective, op: all_reduce, sizes: [1MiB]}}]
"""
    with pytest.raises(ScenarioError) as caught:
        load_text(text, "x.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (4, "ncclx.env.NCCL_IB_TIMEOUT")
    assert problem.reason == "means transport.timeout: 20, which is 14 at line 3"


def test_a_key_that_says_the_same_is_none() -> None:
    found = scenario({"NCCL_BUFFSIZE": 1_048_576, "NCCL_IB_QPS_PER_CONNECTION": 2}, buffsize="1MiB")
    assert found.ncclx.buffsize_bytes == 1_048_576


def test_two_variables_that_contradict_one_another_are_reported() -> None:
    (line,) = refusals({"NCCL_IB_QPS_PER_CONNECTION": 2, "NCCL_CTRAN_IB_MAX_QPS": 4})
    assert line == "ncclx.env.NCCL_CTRAN_IB_MAX_QPS: means ncclx.qps_per_connection: 4, which is 2"


def test_channels_are_held_between_their_bounds() -> None:
    bounds = {"NCCL_MIN_NCHANNELS": 2, "NCCL_MAX_NCHANNELS": 8}
    assert scenario(bounds, channels=8).ncclx.channels == 8
    assert scenario(bounds).ncclx.channels == 2
    assert len(refusals(bounds, channels=9)) == 2
    assert len(refusals({"NCCL_MIN_NCHANNELS": 4, "NCCL_MAX_NCHANNELS": 2})) == 2


def test_an_algorithm_that_a_job_names_itself_is_a_conflict() -> None:
    jobs = [{"name": "a", "workload": {**BASE["jobs"][0]["workload"], "algorithm": "ring"}}]
    with pytest.raises(ScenarioError) as caught:
        load_mapping({**BASE, "jobs": jobs, "ncclx": {"env": {"NCCL_ALGO": "Tree"}}})
    (problem,) = caught.value.problems
    assert problem.reason == "means jobs[0].workload.algorithm: double_binary_tree, which is 'ring'"


def test_an_algorithm_is_that_of_a_program_s_collectives_which_can_take_it() -> None:
    operations = [
        {"do": "all_reduce", "size": "1MiB"},
        {"do": "all_gather", "size": "1MiB"},
        {"do": "all_reduce", "size": "1MiB", "algorithm": "direct"},
        {"do": "compute", "time": "1us"},
    ]
    jobs = [{"name": "a", "workload": {"kind": "program", "operations": operations}}]
    found = load_mapping({**BASE, "jobs": jobs, "ncclx": {"env": {"NCCL_ALGO": "Tree"}}}).scenario
    workload = found.jobs[0].workload
    assert isinstance(workload, ProgramWorkload)
    assert [one.algorithm for one in workload.operations] == [
        "double_binary_tree",
        "auto",
        "direct",
        "auto",
    ]


def test_training_chooses_among_the_algorithms_that_are_named() -> None:
    jobs = [{"name": "a", "workload": {"kind": "training", "model": "llama3-8b"}}]
    found = load_mapping({**BASE, "jobs": jobs, "ncclx": {"env": {"NCCL_ALGO": "Tree"}}}).scenario
    assert found.ncclx.tuner.among == ("double_binary_tree",)


def test_without_nvls_the_tuner_has_the_others() -> None:
    assert scenario({"NCCL_NVLS_ENABLE": 0}).ncclx.tuner.among == ("ring", "double_binary_tree", "pat")
    assert scenario({"NCCL_NVLS_ENABLE": 2}).ncclx.tuner == scenario({}).ncclx.tuner
    loaded = load_mapping({**BASE, "ncclx": {"env": {"NCCL_NVLS_ENABLE": 0}}})
    assert loaded.notes == ()


@pytest.mark.parametrize("turn", [1, -1])
def test_without_nvls_and_with_a_list_of_algorithms_what_is_left_of_it_stands(turn: int) -> None:
    def among(algorithms: str) -> tuple[str, ...]:
        both = {"NCCL_NVLS_ENABLE": 0, "NCCL_ALGO": algorithms}
        return tuple(scenario(dict(list(both.items())[::turn])).ncclx.tuner.among)

    assert among("Ring") == ("ring",)
    assert among("Ring,NVLSTree,Tree") == ("ring", "double_binary_tree")
    (line,) = refusals({"NCCL_NVLS_ENABLE": 0, "NCCL_ALGO": "NVLS"})
    assert line == "ncclx.env.NCCL_ALGO: NCCL_NVLS_ENABLE=0 leaves none of it"


def test_a_launch_without_pxn_cannot_name_it() -> None:
    def given(disable: int, **more: str) -> Any:
        workload = {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"], **more}
        env = {"env": {"NCCL_PXN_DISABLE": disable}}
        return load_mapping({**BASE, "jobs": [{"name": "a", "workload": workload}], "ncclx": env})

    assert given(1).scenario.jobs[0].workload.algorithm == "auto"
    assert given(0, algorithm="pxn").scenario.jobs[0].workload.algorithm == "pxn"
    with pytest.raises(ScenarioError, match=r"leaves no PXN, and jobs\[0\] names `algorithm: pxn`"):
        given(1, algorithm="pxn")


@pytest.mark.parametrize(
    ("name", "value", "key", "meant"),
    [
        ("NCCL_IB_RETRY_CNT", 13, "retry_count", 5),
        ("NCCL_IB_RETRY_CNT", 15, "retry_count", 7),
        ("NCCL_IB_RETRY_CNT", 10, "retry_count", 2),
        ("NCCL_IB_TIMEOUT", 50, "timeout", 18),
        ("NCCL_IB_TIMEOUT", 32, "timeout", 0),
    ],
)
def test_fields_of_a_queue_pair_keep_their_bits_with_a_note(
    name: str, value: int, key: str, meant: int
) -> None:
    loaded = load_mapping({**BASE, "ncclx": {"env": {name: value}}})
    assert getattr(loaded.scenario.transport, key) == meant
    (note,) = loaded.notes
    bits = {"retry_count": 3, "timeout": 5}[key]
    assert note == f"ncclx.env: {name} has {bits} bits in a queue pair, so {value} is {meant}"


def test_the_effective_scenario_holds_the_keys_and_reads_the_same_again() -> None:
    first = scenario({"NCCL_BUFFSIZE": 1_048_576, "NCCL_MIN_NCHANNELS": 2})
    text = to_yaml(first)
    assert "NCCL_BUFFSIZE:" not in text
    assert load_text(text, "again.yaml").scenario == first
