"""Does `emu import` write scenarios that load, and say what they come from?"""

import gzip
from pathlib import Path
from shutil import copy

import pytest

from emu import api
from emu.base.shipped import folder
from emu.cli.main import main
from emu.scenario.load import load
from emu.scenario.readers.htsim import read_topo
from emu.scenario.schema import Scenario
from tests.scenario.test_nccl_topology import DUMP, gpu, net, system
from tests.workload import chakra_files as et
from tests.workload.test_simai import staged

SCENARIOS = folder("scenarios") / "workloads"
EDGES = "4 1 3\n3\n0 3 100Gbps 0.001ms 0\n1 3 100Gbps 1us 0\n2 3 100Gbps 1us 0\n\nexplanations\n"
FLOWS = "2\n2 1 3 100 200000000 2\n0 1 3 100 4096 0.5\n"
CONWEAVE = "2 \n2 1 3 200000000 2.000000000\n0 1 3 4096 0.5\n\n"
SCRIPT = """export NCCL_DEBUG=INFO NCCL_IB_TC=41 NCCL_VERSION=2.27 NCCL_TUNER_PLUGIN=x.so
export NCCL_IB_TIMEOUT=22
"""


def written(
    directory: Path, *names_and_texts: tuple[str, str], options: tuple[str, ...] = ()
) -> tuple[str, Scenario]:
    paths = [directory / name for name, _ in names_and_texts]
    for path, (_, text) in zip(paths, names_and_texts, strict=True):
        path.write_text(text, encoding="utf-8")
    out = directory / "out.yaml"
    assert main(["import", *map(str, paths), "--output", str(out), *options]) == 0
    return out.read_text(encoding="utf-8"), load(out).scenario


@pytest.mark.parametrize("flows", [FLOWS, CONWEAVE])
def test_a_fabric_and_its_flows_are_spelled_out(tmp_path: Path, flows: str) -> None:
    text, scenario = written(tmp_path, ("topology.txt", EDGES), ("flow.txt", flows))
    assert "    - {a: nic-0-0, b: switch-3, rate: 100Gbps, delay: 0.001ms}\n" in text
    assert "        - {src: 2, dst: 1, size: 200MB, start: 2s}\n" in text
    assert "        - {src: 0, dst: 1, size: 4KiB, start: 500ms}\n" in text
    assert "# 1 lines after the last of 3 links are left out" in text
    assert scenario.topology.kind == "graph"


def test_a_file_whose_name_begins_with_a_number_and_a_flow_without_end_are_taken(tmp_path: Path) -> None:
    """A flow of a terabyte, which other simulators call one that never ends, is messages of 2 GiB."""
    text, scenario = written(tmp_path, ("2_flows.txt", "1\n0 1 3 100 1000000000000 0\n"))
    assert "\nname: of_2_flows\n" in text
    assert getattr(scenario.jobs[0].workload, "write_bytes_of", int)(10**12) == 2**31
    assert main(["validate", str(tmp_path / "out.yaml")]) == 0


def test_a_long_list_stays_in_its_file(tmp_path: Path) -> None:
    rows = "".join(f"{at % 3} 3 3 100 1000 0.{at:04}\n" for at in range(500))
    text, scenario = written(tmp_path, ("flow.txt", f"500\n{rows}"))
    assert "workload: {kind: flow_table, file: flow.txt}" in text
    assert len(getattr(scenario.jobs[0].workload, "flows", ())) == 500


def test_a_workload_text_brings_as_many_gpus_as_it_takes(tmp_path: Path) -> None:
    text, scenario = written(tmp_path, ("stage.txt", staged(4, 2, 8)))
    assert "4 stages of 2 chunks, 8 micro-batches, 4KiB from stage to stage" in text
    assert (scenario.jobs[0].ranks, getattr(scenario.topology, "hosts", 0)) == (4, 4)


def test_a_script_is_a_mapping_and_what_changes_nothing_is_said(tmp_path: Path) -> None:
    text, scenario = written(tmp_path, ("job.sh", SCRIPT))
    assert (
        "# Left out, not modelled: NCCL_TUNER_PLUGIN.\n  # Left out, no variable of NCCL: NCCL_VERSION.\n"
        in text
    )
    assert "    NCCL_IB_TIMEOUT: '22'\n" in text
    assert scenario.transport.timeout == 22
    assert (scenario.transport.data_priority, scenario.switch.pfc.priorities) == (1, (1, 6))


def test_a_server_of_nccl_is_there_as_often_as_asked(tmp_path: Path) -> None:
    text, scenario = written(tmp_path, ("system.xml", DUMP), options=("--hosts", "4"))
    assert "  #   GPU 0: mlx5_1\n  #   GPU 1: mlx5_0\n  kind: star\n  hosts: 4\n  gpus_per_host: 2\n" in text
    assert "  nvlink: {rate: 2966.4Gbps}  # 18 links of 20.6 GB/s, NVLink\n" in text
    assert scenario.host.nvlink.rate_bps == 2_966_400_000_000


def test_gpus_that_share_a_nic_are_drawn_node_by_node(tmp_path: Path) -> None:
    shared = system(gpu(0, "1a") + gpu(1, "1b") + net(0, "1c", speed="8.0 GT/s PCIe"))
    text, scenario = written(tmp_path, ("system.xml", shared))
    assert text.count("role: gpu") == 4
    assert "{name: nic-0-0, role: nic, host: host-0}  # mlx5_0, nearest to gpu 0\n" in text
    assert (scenario.host.pcie.enabled, scenario.host.pcie.rate_bps) == (True, 126 * 10**9)


def named_group(name: str) -> str:
    """A Chakra trace of one all_reduce of a group, as text of one byte a character."""
    called: dict[str, int | str] = {"comm_type": 0, "comm_size": 65536, "pg_name": name, "is_cpu_op": 0}
    return et.trace(et.node(1, et.COLLECTIVE, attributes=called)).decode("latin-1")


MATRIX = "Nodes 8\nConnections 3\n0->7 start 0 size 2000000\n1->7 start 0 size 2000000\n"
MATRIX += "2->7 id 3 start 1000000 size 500000\n"
TOPO = """Nodes 8
Tiers 2
Podsize 8

Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 1000

Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Downlink_Latency_ns 1000
"""
TRAINER = """def small_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=1, seq_len=8192, steps=1000),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8, tensor_parallel_degree=2),
    )
"""


def test_a_matrix_of_htsim_goes_through_its_fat_tree(tmp_path: Path) -> None:
    """3 flows of 4.5 MB at 100G into one port take 360 us at least."""
    text, _ = written(tmp_path, ("incast.cm", MATRIX), ("two.topo", TOPO))
    assert "        - {src: 2, dst: 7, size: 500KB, start: 1us}\n" in text
    assert "    - {a: tor-1, b: agg-0, rate: 200Gbps, delay: 1000ns}\n" in text
    fabric = api.prepare(load(tmp_path / "out.yaml")).topology
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links_named("tor-0:agg-1"))) == (8, 4, 1)
    result = api.run(load(tmp_path / "out.yaml"), local=True, diagnose=False)
    assert result.summary.virtual_ps >= 360_000_000


def test_in_three_tiers_of_htsim_each_aggregate_leads_to_its_own_cores() -> None:
    """csg-htsim's topologies/test.topo: 4 cores, core = place in the pod + 2 n, in bundles of two."""
    tiers = "Nodes 8\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\n"
    tiers += "Downlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 4\n"
    tiers += "Downlink_Latency_ns 1000\nBundle 1\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
    tiers += "Downlink_Latency_ns 1000\nBundle 2\n"
    links = [(one.a, one.b) for one in read_topo(tiers).links]
    assert len(links) == 8 + 4 * 2 + 4 * 4
    assert [links.count(("agg-1", f"core-{core}")) for core in range(4)] == [0, 2, 0, 2]


def test_a_trainer_of_torchtitan_is_read_without_being_run(tmp_path: Path) -> None:
    derived = (
        "\n\ndef long() -> Trainer.Config:\n    config = small_8b()\n    config.training.seq_len = 32768\n"
    )
    derived += "    return config\n"
    text, scenario = written(tmp_path, ("trainer.py", TRAINER))
    assert scenario.jobs[0].ranks == 16
    assert all(
        f"      {row}\n" in text for row in ("model: llama3-8b", "tp: 2", "sequence: 8192", "data: fsdp")
    )
    (tmp_path / "out.yaml").unlink()
    text, _ = written(tmp_path, ("trainer.py", TRAINER + derived), options=("--config", "long"))
    assert "      sequence: 32768\n" in text


REQUESTS = """{"timestamp": 0, "input_length": 6000, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 13000, "output_length": 70, "hash_ids": [0, 3, 4]}
{"timestamp": 3000, "input_length": 900, "output_length": 350, "hash_ids": [0, 5]}
{"timestamp": 4000, "input_length": 513, "output_length": 1, "hash_ids": [0, 5]}
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n4.541877,879,55\n"


def test_requests_of_mooncake_and_vidur_arrive_when_they_say_and_prefixes_are_cached(tmp_path: Path) -> None:
    _, scenario = written(tmp_path, ("requests.jsonl", REQUESTS))
    trace = getattr(scenario.jobs[0].workload, "trace", ())
    assert [(one.at_ps // 10**12, one.prompt, one.output) for one in trace[:3]] == [
        (0, 6000, 500),
        (3, 13000, 70),
        (3, 900, 350),
    ]
    assert [one.cached for one in trace] == [0, 512, 512, 512]
    (tmp_path / "out.yaml").unlink()
    _, scenario = written(tmp_path, ("requests.csv", VIDUR))
    trace = getattr(scenario.jobs[0].workload, "trace", ())
    assert [one.at_ps for one in trace] == [0, 4_314_579 * 10**6, 4_541_877 * 10**6]


CLAB = """name: lab
topology:
  defaults: {kind: nokia_srlinux}
  kinds:
    linux: {image: alpine}
  nodes:
    spine: {}
    leaf: {startup-config: leaf.cfg}
    h1: {kind: linux}
    h2: {kind: linux}
  links:
    - endpoints: ["spine:e1-1", "leaf:e1-49"]
    - endpoints: ["leaf:e1-1", "h1:eth1"]
    - type: veth
      endpoints:
        - {node: leaf, interface: e1-2}
        - {node: h2, interface: eth1}
    - endpoints: ["leaf:mgmt", "host:br0"]
"""


def test_linux_nodes_of_containerlab_are_servers_and_all_others_switches(tmp_path: Path) -> None:
    text, _ = written(tmp_path, ("lab.clab.yml", CLAB), options=("--rate", "100G"))
    fabric = api.prepare(load(tmp_path / "out.yaml")).topology
    assert [fabric.nodes[one].name for one in fabric.switches] == ["spine", "leaf"]
    assert (len(fabric.hosts), len(fabric.links_named("spine:leaf"))) == (2, 1)
    assert {link.rate_bps for link in fabric.links if link.kind == "fabric"} == {100 * 10**9}
    for ignored in ("startup-config (leaf.cfg)", "image (alpine)", "link of leaf to host", "name (lab)"):
        assert ignored in text.replace("\n  # ", " ")


def test_groups_beside_chakra_traces_are_those_of_the_job(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"t.{rank}.et").write_bytes(named_group("5").encode("latin-1"))
    (tmp_path / "t.json").write_text('{"5": [0, 1]}')
    out = tmp_path / "out.yaml"
    files = [str(tmp_path / name) for name in ("t.0.et", "t.1.et", "t.json")]
    assert main(["import", *files, "-o", str(out)]) == 0
    assert main(["run", str(out), "--local", "--out", str(tmp_path / "run"), "--quiet"]) == 0


HOST_TRACE = '{"schema": "1.1.0-chakra.0.0.4", "nodes": [{"id": 2, "name": "aten::add", "ctrl_deps": 1}]}'
LINKED_TRACE = HOST_TRACE.replace('"ctrl_deps"', '"inclusive_dur": 7, "ctrl_deps"')


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([("a.txt", "nothing\n")], "a.txt:1: is no file that emu knows"),
        ([("a.txt", EDGES), ("b.txt", EDGES)], "b.txt: is the second that gives `topology`"),
        ([("a.txt", "2\n0 1 3 100 5 1\n")], "a.txt:2: 1 flows of 2"),
        ([("a.xml", "<graphs/>")], "a.xml:1: a <graphs>"),
        ([("a.xml", '<algo name="ring" coll="allreduce"/>')], "a.xml:1: the <gpu>s are not numbered"),
        ([("a.sh", "NCCL_VERSION=2\n")], "a.sh:1: sets no variable of NCCL's that is modelled"),
        ([("a.sh", "NCCL_NET=Socket\n")], "ncclx.env.NCCL_NET: 'Socket': only RDMA is modelled"),
        ([("a.txt", FLOWS), ("a.yaml", "")], "a.yaml:1: is no file that emu knows"),
        ([("a.et", "x")], "a.et: message 1: byte 0: a message of 120 bytes is cut off after 0"),
        (
            [("a.0.et", named_group("5"))],
            "a.0.et: message 2: there is no process group '5'; accepted: a",
        ),
        ([("a.0.et", named_group("5")), ("b.json", '{"6": [0]}')], "a.0.et: message 2: there is no process"),
        ([("b.json", '{"6": [0]}')], "b.json: lists groups of Chakra traces, of which there are none here"),
        ([("flow.txt", "1\n0 1 3 100 4096 1e9\n")], "flow.txt:2: jobs[0].workload.flows[0].start"),
        ([("a.txt", EDGES.replace("1us 0\n2", "0ns 0\n2"))], "a.txt:4: topology.links[1].delay"),
        ([("a.txt", EDGES), ("flow.csv", "src,dst,size\n0,7,1MiB\n")], "flow.csv:2: jobs[0].workload.flows"),
        (
            [("ds.json", '{"train_micro_batch_size_per_gpu": 4}')],
            "ds.json:1: is a configuration of Deep",
        ),
        ([("aicb.csv", "comm_type,comm_group,msg_size\n")], "aicb.csv:1: is a list of calls of AICB"),
        ([("a.cm", MATRIX + "0->7 trigger 1 size 5\n")], "a.cm:6: 'trigger' is not modelled"),
        ([("a.cm", MATRIX.replace("3\n0", "2\n0"))], "a.cm:5: says 2 connections, and 3 follow"),
        ([("a.topo", TOPO + "Bundle 2\n")], "a.topo:5: radix_up 2 below 2 switches in bundles of 2"),
        ([("t.py", TRAINER + TRAINER.replace("small", "large"))], "t.py:1: has 2 configurations: small_8b,"),
        ([("t.py", TRAINER.replace("1, seq", "N, seq"))], "t.py:1: training.local_batch_size is '`N`'"),
        ([("a.json", HOST_TRACE)], "a.json:1: is an execution trace of PyTorch's host"),
        ([("a.json.gz", HOST_TRACE)], "a.json.gz:1: is an execution trace of PyTorch's host"),
        ([("a.json", LINKED_TRACE)], "a.json:1: is a linked trace of PyTorch that is not converted yet"),
        ([("a.json.gz", '{"workload_graph": []}')], "a.json.gz:1: is a Chakra trace written as JSON"),
        ([("a.txt.gz", EDGES)], "a.txt.gz:1: is packed by gzip"),
        ([("a.gz", "\x1f\x8b" + 20 * "x")], "a.gz:1: cannot be unpacked"),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_nothing_is_written(
    tmp_path: Path, files: list[tuple[str, str]], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files:
        data = text.encode("latin-1")
        packed = name.endswith(".gz") and text[:1] != "\x1f"
        (tmp_path / name).write_bytes(gzip.compress(data) if packed else data)
    out = tmp_path / "out.yaml"
    assert main(["import", *(str(tmp_path / name) for name, _ in files), "-o", str(out)]) == 2
    assert reason in capsys.readouterr().err
    assert not out.exists()


def test_traces_of_all_ranks_are_one_job_and_each_text_is_a_job_of_its_own(tmp_path: Path) -> None:
    for rank in range(4):
        copy(SCENARIOS / f"chakra.{rank}.et", tmp_path)
    for name in ("stage.txt", "more.txt"):
        (tmp_path / name).write_text(staged(4, 2, 8), encoding="utf-8")
    out = tmp_path / "out.yaml"
    assert main(["import", *map(str, sorted(tmp_path.iterdir())), "-o", str(out)]) == 0
    assert "file: chakra}" in out.read_text("utf-8")
    names = [(one.name, one.ranks) for one in load(out).scenario.jobs]
    assert names == [("trace", 4), ("training", 4), ("training_2", 4)]


def test_no_file_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, ("flow.txt", FLOWS))
    assert main(["import", str(tmp_path / "flow.txt"), "-o", str(tmp_path / "out.yaml")]) == 2
    assert "exists and is not replaced" in capsys.readouterr().err


def log_of_nccl() -> str:
    """Two of four ranks on two servers, in lines as NCCL 2.12 to 2.28 writes them."""
    first, second = "node1:39633:39689 [0] NCCL INFO", "node1:39634:39692 [1] NCCL INFO"
    call = "sendbuff 0x7f15 recvbuff 0x7f15 count"
    end = "op 0 root 0 comm 0xa180 [nranks=4] stream (nil)"
    made = "cudaDev 0 nvmlDev 0 busId 60 commId 0xe12 - Init START"
    return f"""torchrun says something between
{first} NCCL_IB_QPS_PER_CONNECTION set by environment to 2.
{first} NCCL_FOO set by environment to 1.
{first} ncclCommInitRankConfig comm 0xa180 rank 0 nranks 4 {made}
{second} ncclCommInitRankConfig comm 0xa190 rank 1 nranks 4 {made}
{first} comm 0xa180 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0
{second} comm 0xa190 rank 1 nRanks 4 nNodes 2 localRanks 2 localRank 1 MNNVL 0
{first} Channel 00/04 :    0   1   3   2
{first} Trees [0] 1/2/-1->0->-1 [1] 1/-1/-1->0->2
{first} 4 coll channels, 4 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer
{first} AllReduce: opCount 0 {call} 1048576 datatype 7 {end}
{second} AllReduce: opCount 0 {call} 1048576 datatype 7 {end.replace("180", "190")}
{first} 4194304 Bytes -> Algo 0 proto 2 time 54.707825
{first} AllGather: opCount 1 {call} 4096 datatype 9 {end}
{first} AllGather: 32768 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}
{first} Broadcast: opCount 0 {call} 64 datatype 1 {end.replace("=4", "=2")}
"""


def test_a_log_of_nccl_brings_servers_channels_variables_and_calls(tmp_path: Path) -> None:
    text, scenario = written(tmp_path, ("nccl.log", log_of_nccl()))
    assert "# Ring of channel 0: 0 1 3 2.\n" in text
    assert "1/2/-1->0->-1" in text
    assert "NCCL_FOO" in text.split("ncclx:")[1].split("env:")[0]
    assert "# Left out: 1 call on smaller communicators.\n" in text
    topology, job = scenario.topology, scenario.jobs[0]
    assert (getattr(topology, "hosts", 0), getattr(topology, "gpus_per_host", 0), job.ranks) == (2, 2, 4)
    assert scenario.ncclx.channels == 4
    assert scenario.ncclx.qps_per_connection == 2
    operations = getattr(job.workload, "operations", ())
    assert [(one.do, one.size_bytes, one.algorithm) for one in operations] == [
        ("all_reduce", 4 << 20, "double_binary_tree"),
        ("all_gather", 32768, "ring"),
    ]


def test_a_log_without_a_communicator_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nccl.log"
    path.write_text("vm:1:1 [0] NCCL INFO NCCL version 2.28.9\n")
    assert main(["import", str(path), "--output", "-"]) == 2
    assert "no communicator is made in it" in capsys.readouterr().err
