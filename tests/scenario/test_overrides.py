"""Does `--set` change exactly what it names, and does an error name the `--set`?"""

from pathlib import Path

import pytest

from emu.base.errors import ScenarioError
from emu.base.units import parse_time
from emu.scenario.load import load_text
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.set_options import parse_override
from tests.scenario.scenarios import SMALL, refusals, scenario


def test_a_value_deep_inside_is_set() -> None:
    changed = scenario(SMALL, "jobs[0].workload.sizes=[2MiB, 4MiB]", "jobs[-1].ranks=4")
    (job,) = changed.jobs
    assert job.ranks == 4
    assert getattr(job.workload, "sizes_bytes", None) == (2 * 2**20, 4 * 2**20)


def test_sections_that_the_file_leaves_out_are_made() -> None:
    changed = scenario(SMALL + "run:\n", "ncclx.channels=2", "run.max_time=5s")
    assert changed.ncclx == NcclxSection(channels=2)
    assert changed.run.max_time_ps == parse_time("5s")


def test_a_whole_section_can_be_set_and_the_last_set_wins() -> None:
    changed = scenario(SMALL, "routing={kind: ecmp}", "routing.seed=equal", "seed=1", "seed=2")
    assert (changed.routing.kind, changed.routing.seed, changed.seed) == ("ecmp", "equal", 2)


def test_values_are_read_as_in_the_file() -> None:
    assert scenario(SMALL, "description='10'").description == "10"
    assert scenario(SMALL, "description=10:30").description == "10:30"
    assert scenario(SMALL, "description=a = b").description == "a = b"
    assert refusals(SMALL, "description=10") == [
        "--set description=10: description: 10 is not a text; accepted: a text"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed", "sets nothing; accepted: key=value, like seed=7"),
        ("=7", "'' is not a path; accepted: key=value, like jobs[0].ranks=8"),
        ("a..b=7", "'a..b' is not a path; accepted: key=value, like jobs[0].ranks=8"),
        ("a[x]=7", "'a[x]' is not a path; accepted: key=value, like jobs[0].ranks=8"),
        ("a={b: 1, b: 2}", "b: given twice, first in line 1; accepted: one of the two"),
    ],
)
def test_what_is_no_assignment_is_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse_override(text)
    assert str(error.value) == f"--set {text}: {said}"


def test_a_value_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"--set a=\[1: not YAML: "):
        parse_override("a=[1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs[1].ranks=4", "jobs[1].ranks: jobs has 1 item; accepted: an index from 0 to 0"),
        ("jobs.bench.ranks=4", "jobs.bench.ranks: jobs is a list; accepted: jobs[index]"),
        ("name.x=4", "name.x: name is a single value; accepted: name=value"),
        ("name[0]=4", "name[0]: name is not a list; accepted: no index"),
    ],
)
def test_places_that_do_not_exist_are_refused(text: str, said: str) -> None:
    assert refusals(SMALL, text) == [f"--set {text}: {said}"]


def test_what_follows_from_a_set_value_names_the_set() -> None:
    assert refusals(SMALL, "ncclx={chanels: 2}")[0].startswith(
        "--set ncclx={chanels: 2}: ncclx.chanels: unknown key; did you mean 'channels'?"
    )


@pytest.mark.parametrize("section", ["", "ncclx: {channels: 2}\n", "ncclx: {chanels: 2}\n"])
def test_a_key_that_was_set_is_refused_where_it_was_set_whether_the_file_has_it_or_not(section: str) -> None:
    (reported,) = refusals(SMALL + section, "ncclx.chanels=3")
    assert reported.startswith("--set ncclx.chanels=3: ncclx.chanels: unknown key; did you mean 'channels'?")


def test_an_alias_is_changed_in_one_place_only() -> None:
    text = (
        SMALL.replace("[1MiB]", "&s [1MiB]")
        + "  - {name: b, workload: {kind: collective, op: all_gather, sizes: *s}}\n"
    )
    changed = scenario(text, "jobs[1].workload.sizes[0]=2MiB")
    sizes = [getattr(job.workload, "sizes_bytes", None) for job in changed.jobs]
    assert sizes == [(2**20,), (2 * 2**20,)]


FILES_OF_OTHERS = {
    "job.sh": "export NCCL_ALGO=Ring\n",
    "fabric.txt": "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n",
    "flows.csv": "source,destination,bytes\n0,1,65536\n",
}


@pytest.mark.parametrize(
    "assignments",
    [
        ["ncclx.env={NCCL_ALGO: Ring}"],
        ["ncclx.env=job.sh"],
        ["ncclx={env: {NCCL_BUFFSIZE: 1048576}}"],
        [
            "topology={kind: file, format: ns3, path: fabric.txt}",
            "jobs[0].workload={kind: permutation, size: 1MiB}",
        ],
    ],
    ids=str,
)
def test_an_override_says_the_same_each_time_it_is_applied(assignments: list[str], tmp_path: Path) -> None:
    for name, text in FILES_OF_OTHERS.items():
        (tmp_path / name).write_text(text)
    overrides = [parse_override(one) for one in assignments]
    first, second = (load_text(SMALL, "file", tmp_path, overrides).scenario for _ in range(2))
    assert first == second != scenario(SMALL)


def test_a_key_with_nothing_after_it_is_absent_and_an_unknown_one_is_refused_all_the_same() -> None:
    keys = ("routing", "switch", "link", "nic", "transport", "host", "gpu", "ncclx", "control", "run")
    plain = scenario(SMALL)
    for key in (*keys, "faults", "expect", "seed", "description"):
        assert scenario(SMALL + f"{key}:\n") == plain, key
    assert scenario(SMALL + "switch: {buffer: , pfc: {watchdog: null}}\n") == plain
    assert refusals(SMALL + "swich:\n")[0].startswith("file:6: swich: unknown key; did you mean 'switch'?")
    assert refusals(SMALL.partition("jobs:")[0] + "jobs:\n")[0].startswith("file:3: jobs: ")
