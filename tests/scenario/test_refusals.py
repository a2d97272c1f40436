"""Is everything wrong with a scenario told at once, each with file, line, key, reason and what would do?"""

from pathlib import Path

import pytest

from emu.base.errors import ScenarioError
from emu.scenario.load import load, load_mapping
from tests.scenario.scenarios import EVERYTHING_WRONG, GOLDEN, SMALL, refusals

KINDS = "ai_zone, llama3, hpn, dcn_plus, megascale, multi_plane, fat_tree, rail_only, star, graph, file"


def test_everything_wrong_is_reported_at_once() -> None:
    text = (GOLDEN / "everything_wrong.yaml").read_text(encoding="utf-8")
    reported = "\n".join(refusals(text, *EVERYTHING_WRONG)) + "\n"
    assert reported == (GOLDEN / "everything_wrong.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("topology.link=-400G", "topology.link: '-400G' is negative"),
        ("topology.link=0", "topology.link: 0 is too small; accepted: at least 1bps"),
        ("topology.link=400", "topology.link: 400 is a bare number: its unit would be a guess"),
        ("topology.nic_delay=0", "topology.nic_delay: 0 is too small; accepted: at least 1ns"),
        ("topology.nic_delay=999ps", "topology.nic_delay: '999ps' is too small; accepted: at least 1ns"),
        ("topology.spines=0", "topology.spines: 0 spines leave 2 racks unconnected; accepted: at least 1"),
        ("topology.racks=true", "topology.racks: True is not a whole number"),
        ("transport.data_priority=true", "transport.data_priority: True is not a priority"),
        ("transport.data_priority=8", "transport.data_priority: 8 is not a priority"),
        ("topology.racks=20000", "topology.racks: 20000 racks are too many; accepted: at most 16384"),
        ("topology.kind=clos", "topology.kind: there is no kind 'clos'; accepted: " + KINDS),
        (
            "topology=[]",
            "topology: [] is not a mapping; accepted: a mapping with kind: one of " + KINDS,
        ),
        (
            "switch.buffer={pool: 1TB, alpha: 1000}",
            "switch.buffer.alpha: makes a threshold of more than 64 TB; accepted: less `alpha`",
        ),
        ("routing.kind=EECMP", "routing.kind: there is no kind 'EECMP'; did you mean 'e_ecmp'?"),
        ("routing.hash=crc", "routing.hash: 'crc' is not one of the choices; did you mean 'crc32'?"),
        (
            "routing.fields=[src, dts]",
            "routing.fields[1]: 'dts' is not one of the choices; did you mean 'dst",
        ),
        ("routing.fields=[src, src]", "routing.fields: a field is named twice; accepted: each field once"),
        ("routing.fields=[]", "routing.fields: is empty; accepted: at least 1"),
        (
            "routing.fields=[src, dst, psn, opcode]",
            "routing.fields: packets of one flow differ in psn and opcode and go different ways: go-back-N",
        ),
        (
            "routing.polynomial=[3]",
            "routing.polynomial: mix has no polynomial; accepted: none, or hash: crc16",
        ),
        (
            "routing={hash: crc16, polynomial: [0x11021]}",
            "routing.polynomial[0]: is wider than the hash; accepted: less than 2**16",
        ),
        (
            "routing={hash: xor_fold, bit_offset: [0, 16]}",
            "routing.bit_offset[1]: lies beyond the hash; accepted: less than 16",
        ),
        (
            "routing.link_weights=[{link: 'a:b', weight: 0}]",
            "routing.link_weights[0].weight: 0 is out of range; accepted: at least 1",
        ),
        (
            "routing.kind=spray",
            "routing.kind: spray reorders packets, and go-back-N takes that for losses",
        ),
        (
            "routing={kind: adaptive, granularity: packet}",
            "routing.kind: adaptive reorders packets, and go-back-N takes that for losses",
        ),
        (
            "switch.ecn={kmin: 2MB, kmax: 1MB}",
            "switch.ecn.kmin: lies above kmax; accepted: at most `kmax`",
        ),
        ("switch.ecn.pmax=2", "switch.ecn.pmax: is more than certain; accepted: at most 1"),
        (
            "switch.scheduling.weights=[1, 0, 1, 1, 1, 1, 1, 1]",
            "switch.scheduling.weights[1]: 0 is out of range",
        ),
        ("switch.scheduling.weights=[1, 1]", "switch.scheduling.weights: has 2 items; accepted: at least 8"),
        ("switch.scheduling.strict=[1, 1]", "switch.scheduling.strict: a priority is listed twice"),
        (
            "routing.kind=no_such_module:Mine",
            "routing.kind: 'no_such_module:Mine' does not load: ModuleNotFoundError: No module named 'no_",
        ),
        (
            "routing.kind=emu.base.errors:Mine",
            "routing.kind: 'emu.base.errors:Mine' does not load: emu.base.errors has no class Mine",
        ),
        (
            "routing.kind=emu.base.errors:EmuError",
            "routing.kind: 'emu.base.errors:EmuError' does not load: it has no method `choose`",
        ),
        ("transport.mtu=1500", "transport.mtu: 1500 is not an MTU of InfiniBand transport; accepted: 256, "),
        ("transport.mtu=4KB", "transport.mtu: '4KB' is not an MTU of InfiniBand transport"),
        ("transport.timeout=32", "transport.timeout: 32 is out of range; accepted: at most 31"),
        ("transport.timeout=4ms", "transport.timeout: '4ms' is not a whole number"),
        (
            "transport.data_priority=8",
            "transport.data_priority: 8 is not a priority; accepted: a priority, 0",
        ),
        (
            "transport.data_priority=4",
            "transport.data_priority: data at priority 4 is not lossless; accepted: one of switch.pfc.prior",
        ),
        ("switch.buffer.alpha=0", "switch.buffer.alpha: 0 is out of range; accepted: a fraction above 0"),
        ("switch.buffer.reserve=163MB", "switch.buffer.reserve: is larger than the pool"),
        ("switch.buffer.headroom=1GB", "switch.buffer.headroom: is larger than the pool"),
        ("switch.pfc.priorities=[3, 3]", "switch.pfc.priorities: a priority is listed twice"),
        ("switch.pfc.enabled=on", "switch.pfc.enabled: 'on' is not true or false; accepted: true or false"),
        (
            "ncclx={steps: 12}",
            "ncclx.buffsize: does not divide into 12 steps; accepted: a multiple of `steps`",
        ),
        ("ncclx.chunk_steps=6", "ncclx.chunk_steps: 6 does not divide the 8 steps; accepted: a divisor of"),
        ("ncclx.slice_steps=3", "ncclx.slice_steps: 3 does not divide the 4 steps of a chunk"),
        ("jobs[0].ranks=some", "jobs[0].ranks: 'some' is not understood; accepted: all, how many"),
        ("jobs[0].ranks=[0]", "jobs[0].ranks: 1 is too few to talk to one another"),
        ("jobs[0].ranks=[0, 1, 0]", "jobs[0].ranks: a number is listed twice"),
        ("jobs[0].ranks=[0, -1]", "jobs[0].ranks: -1 in the list is not a number from 0"),
        ("jobs[0].order=stride", "jobs[0].order: 'stride' is not understood; did you mean 'strided'?"),
        ("jobs[0].workload.sizes=[0]", "jobs[0].workload.sizes[0]: 0 is too small; accepted: at least 1B"),
        ("jobs[0].workload.sizes=1MiB", "jobs[0].workload.sizes: '1MiB' is not a list; accepted: a list"),
        ("jobs[0].workload.kind=", "jobs[0].workload.kind: is required; accepted: collective, permutation"),
        ("jobs[0].name=a.b", "jobs[0].name: 'a.b' is not a name; accepted: letters, digits"),
        ("jobs=[]", "jobs: is empty; accepted: at least 1"),
        ("run.max_time=0", "run.max_time: 0 is too small"),
        ("seed=9223372036854775808", "seed: 9223372036854775808 is out of range; accepted: less than"),
        ("name=", "name: is required; accepted: letters, digits"),
        ("faults=[{kind: link_down, at: 0}]", "faults[0].target: is required; accepted: a name, a pattern"),
        ("faults=[{kind: link_up, at: 1us, target: 'a:b', for: 1us}]", "faults[0].for: unknown key"),
        ("expect=[{value: a}]", "expect[0]: has no comparison; accepted: exactly one of equals, at_least"),
        ("expect=[{value: a, at_least: x}]", "expect[0].at_least: 'x' has no order"),
        ("expect=[{value: a, at_most: 5 KB, equals: 3}]", "expect[0]: has equals and at_most; accepted: exa"),
        ("expect=[{value: a, between: [1]}]", "expect[0].between[1]: is required"),
        (
            "expect=[{value: 'a[', equals: 1}]",
            "expect[0].value: 'a[' is not a path; accepted: keys with dots",
        ),
        (
            "expect=[{value: jobs.bnech.x, equals: 1}]",
            "expect[0].value: there is no job 'bnech'; did you mea",
        ),
        ("expect=[{value: 'faults[0].x', equals: 1}]", "expect[0].value: there is no fault 0: the scenario"),
    ],
)
def test_each_wrong_value_is_refused_by_key(assignment: str, said: str) -> None:
    reported = refusals(SMALL, assignment)
    assert len(reported) == 1
    assert reported[0].startswith(f"--set {assignment}: {said}")


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    text = SMALL.replace("racks:", "rakcs:").replace("sizes:", "size:")
    assert [line.partition("; accepted")[0] for line in refusals(text)] == [
        "file:2: topology.racks: is required",
        "file:2: topology.rakcs: unknown key; did you mean 'racks'?",
        "file:5: jobs[0].workload.sizes: is required",
        "file:5: jobs[0].workload.size: unknown key; did you mean 'sizes'?",
    ]


def test_more_nics_than_a_leaf_has_addresses_for_are_refused() -> None:
    (reported,) = refusals(SMALL.replace("gpus_per_host: 2", "gpus_per_host: 600"))
    where, _, accepted = reported.partition("; accepted: ")
    assert where == "file:2: topology.hosts_per_rack: 1200 NICs under one leaf are too many"
    assert accepted == "hosts_per_rack x gpus_per_host of at most 1024"


def test_two_jobs_need_two_names() -> None:
    text = SMALL + "  - {name: bench, workload: {kind: collective, op: all_gather, sizes: [1KiB]}}\n"
    assert refusals(text) == ["file:6: jobs[1].name: 'bench' is used twice; accepted: a name of its own"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "file: the file is empty; accepted: a mapping, see `emu schema`"),
        (
            "- 1\n",
            "file:1: a scenario is a mapping, this is a list; accepted: keys with values, see `emu sch",
        ),
        ("\n7\n", "file:2: a scenario is a mapping, this is 7; accepted: keys with values, see `emu schema`"),
        ("a: [\n", "file:2: not YAML: "),
        ("a: 1\n\tb: 2\n", "file:2: not YAML: a tab here; YAML is indented with spaces"),
    ],
)
def test_what_is_no_mapping_at_all_is_one_line(text: str, said: str) -> None:
    reported = refusals(text)
    assert len(reported) == 1
    assert reported[0].startswith(said)


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    said = {}
    for name in ("missing.yaml", "", "latin.yaml", "\0"):
        with pytest.raises(ScenarioError) as error:
            load(tmp_path / name)
        said[name] = str(error.value).removeprefix(str(tmp_path)).removeprefix("/")
    assert said == {
        "missing.yaml": "missing.yaml: there is no such file; accepted: a file that can be read",
        "": ": is a directory; accepted: a file that can be read",
        "latin.yaml": "latin.yaml:1: byte 0xe9 is not UTF-8; accepted: text in UTF-8",
        "\0": "\\x00: cannot be read: embedded null byte; accepted: a file that can be read",
    }


def test_a_mapping_is_refused_by_key_without_a_line() -> None:
    with pytest.raises(ScenarioError) as error:
        load_mapping({"name": "x", "jobs": []})
    assert str(error.value).splitlines() == [
        "<mapping>: topology: is required; accepted: a mapping with kind: one of " + KINDS,
        "<mapping>: jobs: is empty; accepted: at least 1",
    ]
