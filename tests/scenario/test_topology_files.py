"""Are the topology files of ns-3's RDMA simulators and of SimAI read as these simulators read them?"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fabric.model import Topology
from emu.base.errors import ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_text
from emu.scenario.readers.topology_files import EdgeListError, read_edge_list
from emu.scenario.resolve import build_topology
from emu.scenario.workloads.flows import FlowList

JOB = "jobs:\n  - {name: a, workload: {kind: permutation, size: 1MiB}}\n"
NS3 = """\
5 2 4
3 4
0 3 100Gbps 1000ns 0
1 3 100Gbps 0.001ms 0.000000
2 4 25Gbps 1us 0
3 4 400Gbps 2us 0
"""
SIMAI = """\
10 2 2 4 12 H100
4 5 6 7 8 9
0 4 2880Gbps 0.000025ms 0
0 6 200Gbps 0.0005ms 0
1 4 2880Gbps 0.000025ms 0
1 7 200Gbps 0.0005ms 0
2 5 2880Gbps 0.000025ms 0
2 6 200Gbps 0.0005ms 0
3 5 2880Gbps 0.000025ms 0
3 7 200Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
6 9 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
7 9 400Gbps 0.0005ms 0
"""


def text_of(file_format: str, name: str = "fabric.txt") -> str:
    return f"name: x\ntopology:\n  kind: file\n  format: {file_format}\n  path: {name}\n{JOB}"


def fabric_in(directory: Path, file_format: str, content: str) -> Topology:
    (directory / "fabric.txt").write_text(content, encoding="utf-8")
    return build_topology(load_text(text_of(file_format), "x.yaml", directory).scenario)


def reported(directory: Path, file_format: str, content: str) -> list[str]:
    """What a file is refused for."""
    (directory / "fabric.txt").write_text(content, encoding="utf-8")
    loaded = None
    try:
        loaded = load_text(text_of(file_format), "x.yaml", directory)
        build_topology(loaded.scenario)
    except ScenarioError as error:
        said = str(loaded.source.located(error) if loaded else error)
        return [line.removeprefix(f"{directory}/") for line in said.splitlines()]
    return []


def test_an_ns3_host_is_a_server_with_one_gpu_and_one_nic(tmp_path: Path) -> None:
    fabric = fabric_in(tmp_path, "ns3", NS3)
    assert [node.name for node in fabric.nodes] == [
        *("host-0", "gpu-0-0", "nic-0-0", "host-1", "gpu-1-0", "nic-1-0", "host-2", "gpu-2-0", "nic-2-0"),
        *("switch-3", "switch-4", "controller"),
    ]
    cables = [(link.name, link.rate_bps, link.delay_ps) for link in fabric.links if link.kind == "fabric"]
    assert cables == [
        ("nic-0-0:switch-3", 100 * 10**9, 10**6),
        ("nic-1-0:switch-3", 100 * 10**9, 10**6),
        ("nic-2-0:switch-4", 25 * 10**9, 10**6),
        ("switch-3:switch-4", 400 * 10**9, 2 * 10**6),
    ]


def test_simai_gpus_share_servers_and_their_nvswitches_stay_inside(tmp_path: Path) -> None:
    fabric = fabric_in(tmp_path, "simai", SIMAI)
    assert (len(fabric.hosts), len(fabric.gpus), len(fabric.nics)) == (2, 4, 4)
    assert [fabric.nodes[switch].name for switch in fabric.switches] == [f"switch-{n}" for n in (6, 7, 8, 9)]
    assert [fabric.nodes[switch].tier for switch in fabric.switches] == [1, 1, 2, 2]
    assert fabric.links_named("nic-1-1:switch-7") != ()
    assert {link.rate_bps for link in fabric.links if link.kind == "fabric"} == {200 * 10**9, 400 * 10**9}


def test_a_loaded_scenario_is_complete_without_the_file(tmp_path: Path) -> None:
    (tmp_path / "fabric.txt").write_text(NS3, encoding="utf-8")
    once = load_text(text_of("ns3"), "x.yaml", tmp_path).scenario
    again = load_text(to_yaml(once), "y.yaml").scenario
    assert once == again
    assert once.topology.kind == "graph"


def test_line_breaks_mean_nothing(tmp_path: Path) -> None:
    last, same = (read_edge_list(text, "ns3").links[-1] for text in (" ".join(NS3.split()), NS3))
    assert last._replace(line=0) == same._replace(line=0)


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (
            1,
            "x 2 4",
            "1: topology.path: 'x' is not a whole number; accepted: how many nodes, from 1 to 65536",
        ),
        (1, "5 6 4", "1: topology.path: 6 is out of range; accepted: how many switches, from 0 to 5"),
        (1, "5 2 0", "1: topology.path: 0 is out of range; accepted: how many links, from 1 to 262144"),
        (1, "99999999999999 2 0", "1: topology.path: 99999999999999 is out of range"),
        (2, "3 3", "2: topology.path: 3 is listed twice; accepted: each switch once"),
        (2, "3 5", "2: topology.path: 5 is out of range"),
        (4, "1 9 100Gbps 1us 0", "4: topology.path: 9 is out of range; accepted: a link's destination"),
        (4, "1 3 100Gbps 1us 0.1", "4: topology.path: an error rate of '0.1' is not part of a fabric"),
        (4, "1 3 100Gbps 1us nan", "4: topology.path: an error rate of 'nan' is not part of a fabric"),
        (4, "1 3 100Gbps", "5: topology.path: an error rate of '4' is not part of a fabric"),
        (4, "1 3 100 1us 0", "4: topology.links[1].rate: '100' is a bare number"),
        (4, "1 3 100Gbps 0ns 0", "4: topology.links[1].delay: '0ns' is too small; accepted: at least 1ns"),
        (4, "3 3 100Gbps 1us 0", "4: topology.path: a link from 3 to itself; accepted: two different"),
        (6, "3 4 400Gbps 2us", "6: topology.path: the file ends before a link's error rate"),
        (6, "3 4 400Gbps 2us 0 7", "6: topology.path: '7' follows the last of 4 links"),
        (6, "0 3 400Gbps 2us 0", "topology.links: the fabric is not connected"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported_by_its_line(
    tmp_path: Path, line: int, text: str, said: str
) -> None:
    lines = NS3.splitlines()
    lines[line - 1] = text
    (first, *_) = reported(tmp_path, "ns3", "\n".join(lines))
    assert said in first
    assert first.startswith("fabric.txt:" if said[0].isdigit() else "x.yaml:5:")


def test_servers_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    (line,) = reported(tmp_path, "simai", SIMAI.replace("10 2 2 4 12", "10 3 2 4 12"))
    assert line.startswith("fabric.txt:1: topology.path: 4 GPUs do not divide into servers of 3")


def test_a_file_that_is_not_there_is_refused_at_its_key(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        load_text(text_of("ns3", "none.txt"), "x.yaml", tmp_path)
    (line,) = str(error.value).splitlines()
    assert line.startswith("x.yaml:5: topology.path: ")
    assert "there is no such file" in line


def test_a_section_that_is_wrong_itself_is_reported_as_any_other(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        load_text(text_of("opnet") + "", "x.yaml", tmp_path)
    assert "x.yaml:4: topology.format: 'opnet' is not one of the choices" in str(error.value)


@given(st.text(alphabet="0123456789 \nGbpsun.-x", max_size=120), st.sampled_from(["ns3", "simai", "htsim"]))
def test_no_text_does_more_than_be_refused(text: str, file_format: str) -> None:
    line, accepted = 1, "the text"
    try:
        read_edge_list(text, file_format)
    except EdgeListError as error:
        line, accepted = error.line, error.accepted
    assert line >= 1
    assert accepted


HPCC = """\
5 2 3
1 4
0 1 25Gbps 0.001ms 0
1 4 100Gbps 0.001ms 0
2 4 25Gbps 0.001ms 0
3 4 25Gbps 0.001ms 0

First line: total node #, switch node #, link #
src0 dst0 rate delay error_rate
...
"""
"""Of the form of the file that HPCC's simulator ships: links that its first line leaves out, and prose."""
FLOWS = """\
2
0 2 3 100 200000 2
2 0 3 100 150000 2.000001
2 3 3 100 7 3

First line: # of flows
src0 dst0 3 dst_port0 size0 start_time0
"""


def test_what_follows_the_last_link_of_an_ns3_file_is_left_out_and_noted(tmp_path: Path) -> None:
    (tmp_path / "fabric.txt").write_text(HPCC.replace("5 2 3", "5 2 4").replace("\n", "\r\n"))
    loaded = load_text(text_of("ns3"), "x.yaml", tmp_path)
    assert len(build_topology(loaded.scenario).hosts) == 3
    (note,) = loaded.notes
    assert note.endswith("fabric.txt: 3 lines after the last of 4 links are left out, 0 of them links")
    (tmp_path / "fabric.txt").write_text(HPCC)
    (note,) = load_text(text_of("ns3"), "x.yaml", tmp_path).notes
    assert note.endswith("fabric.txt: 4 lines after the last of 3 links are left out, 1 of them links")


@pytest.mark.parametrize("more", ["", " 100000000000 400000000000"])
def test_lists_of_powertcp_and_reverie_have_longer_first_lines_and_rates_in_bits(
    tmp_path: Path, more: str
) -> None:
    other = NS3.replace("5 2 4\n", f"5 2 2 4{more}\n").replace("100Gbps", "100000000000.0")
    found, plain = (
        [(one.name, one.rate_bps, one.delay_ps) for one in fabric_in(tmp_path, "ns3", text).links]
        for text in (other, NS3)
    )
    assert found == plain
    assert load_text(text_of("ns3"), "x.yaml", tmp_path).notes == ()


def test_hpcc_s_flows_are_read_with_the_numbers_of_its_topology(tmp_path: Path) -> None:
    """Node 1 is a switch, so nodes 0, 2 and 3 are ranks 0, 1 and 2."""
    (tmp_path / "fabric.txt").write_text(HPCC.replace("5 2 3", "5 2 4"))
    (tmp_path / "flow.txt").write_text(FLOWS)
    text = text_of("ns3").replace("kind: permutation, size: 1MiB", "kind: flow_table, file: flow.txt")
    workload = load_text(text, "x.yaml", tmp_path).scenario.jobs[0].workload
    assert isinstance(workload, FlowList)
    assert [(one.src, one.dst, one.size_bytes, one.start_ps) for one in workload.flows] == [
        (0, 1, 200_000, 2 * 10**12),
        (1, 0, 150_000, 2_000_001 * 10**6),
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("0 1 3 100 200000 2", "flow.txt:2: jobs[0].workload.file: node 1 is no host of the topology file"),
        ("0 2 3 2", "flow.txt:2: jobs[0].workload.file: 4 words, and flow 1 of 2 is due"),
        (
            "0 2 3 100 2",
            "flow.txt:3: jobs[0].workload.file: 6 words, and flow 2 of 2 is due, of 5 words as the first",
        ),
    ],
)
def test_a_flow_that_does_not_fit_is_reported_by_its_line(tmp_path: Path, wrong: str, said: str) -> None:
    (tmp_path / "fabric.txt").write_text(HPCC.replace("5 2 3", "5 2 4"))
    (tmp_path / "flow.txt").write_text(FLOWS.replace("0 2 3 100 200000 2", wrong))
    text = text_of("ns3").replace("kind: permutation, size: 1MiB", "kind: flow_table, file: flow.txt")
    with pytest.raises(ScenarioError) as error:
        load_text(text, "x.yaml", tmp_path)
    assert said in str(error.value)
