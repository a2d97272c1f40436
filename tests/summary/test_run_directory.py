"""Is a run's directory complete, private, atomic, and never somebody else's?"""

import csv
import io
import json
import stat
from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.counts.collected import Changed, layouts_of
from emu.results.summary import Summary
from emu.run_directory.run_directory import FILES, RunDirectory, write_whole
from emu.run_directory.samples import Counted
from tests.summary.handmade import all_reduce_plan, fabric, flow_plan, record, summary

DONE = {"operations": [[0, 0, 0, 100_000_000, 0]]}


def write_run(directory: RunDirectory, digest: str = "d" * 64, second_mix: int = 21) -> Summary:
    """A small run with two sync points."""
    topology = fabric()
    records = [
        record(
            topology,
            "rtsw-0",
            [("port_transmit_bytes", 2, -1, "", 84), ("pfc_transmit_xoff_frames", 2, 3, "", 2)],
        ),
        record(topology, "controller", results=DONE),
    ]
    one = summary(records, [all_reduce_plan()], digest=digest)
    leaf, controller = (found.number for found in records)
    with directory:
        directory.begin("name: handmade\n", topology, seed=5)
        counted = layouts_of({one.number: one.series for one in records})
        directory.counted(Counted.of(counted, "plotted"))
        directory.sample(Changed(100, {leaf: [0, 10]}), {leaf: [3, 11], controller: [0, 12]})
        directory.sample(Changed(200, {leaf: [0, 84, 1, 2]}), {leaf: [3, second_mix]})
        directory.write_results(one, topology, records, {}, {})
    return one


def test_directory_is_numbered_by_the_least_number_not_taken(tmp_path: Path) -> None:
    (tmp_path / "runs/quickstart-2").mkdir(parents=True)
    names = [RunDirectory.create("quickstart", root=tmp_path / "runs").path.name for _ in range(3)]
    assert names == ["quickstart-1", "quickstart-3", "quickstart-4"]


def test_everything_that_is_promised_is_there_and_nothing_else(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    write_run(directory)
    assert sorted(path.name for path in directory.path.iterdir()) == sorted(
        set(FILES) - {"workers.json", "parent.json", "trace.csv", "timeline.jsonl"}
    )


def test_results_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    write_run(directory)
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.path.iterdir()} == {0o600}


def test_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years")
    with pytest.raises(UsageError, match="holds other things than a run"):
        RunDirectory.create("handmade", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "ten years"


def test_run_among_other_files_is_refused(tmp_path: Path) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "run"))
    (tmp_path / "run/notes.txt").write_text("look at this")
    with pytest.raises(UsageError):
        RunDirectory.create("handmade", tmp_path / "run")


def test_earlier_run_is_kept_unless_it_is_to_be_replaced_and_is_then_replaced_whole(tmp_path: Path) -> None:
    write_run(RunDirectory.create("handmade", tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UsageError, match=r"run: holds the results of an earlier run; .*--force .*--resume"):
        RunDirectory.create("handmade", tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "run" / "worker-3.txt").write_text("Traceback")
    again = RunDirectory.create("handmade", tmp_path / "run", force=True)
    assert list(again.path.iterdir()) == []


def test_a_run_that_never_began_is_replaced_without_a_question(tmp_path: Path) -> None:
    with RunDirectory.create("handmade", tmp_path / "run") as first:
        first.journal("begin", 0)
    with RunDirectory.create("handmade", tmp_path / "run") as again:
        assert (again.replaces, list(again.path.iterdir())) == (True, [])


def test_file_in_place_of_a_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match=r"run: .*; give another directory with --out"):
        RunDirectory.create("handmade", tmp_path / "run")


def test_whole_file_replaces_the_old_one_and_leaves_no_part(tmp_path: Path) -> None:
    write_whole(tmp_path / "summary.json", "old")
    write_whole(tmp_path / "summary.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert (tmp_path / "summary.json").read_text() == "new"


def test_summary_in_the_directory_is_the_summary(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    one = write_run(directory)
    assert json.loads((directory.path / "summary.json").read_text()) == one.plain()


def test_journal_begins_and_ends(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    write_run(directory)
    entries = [json.loads(line) for line in (directory.path / "journal.jsonl").read_text().splitlines()]
    assert entries[0] == {"kind": "begin", "virtual_ps": 0, "seed": 5}
    assert (entries[-1]["kind"], entries[-1]["ending"]) == ("end", "finished")


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_ports_are_rows_with_counters_summed_over_priorities(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    write_run(directory)
    ports = rows(directory.path / "ports.csv")
    assert [(row["device"], row["port"], row["peer"]) for row in ports] == [
        ("rtsw-0", "0", "nic-0-0"),
        ("rtsw-0", "1", "nic-1-0"),
        ("rtsw-0", "2", "ctsw-0"),
        ("rtsw-0", "3", "ctsw-1"),
    ]
    assert (ports[2]["port_transmit_bytes"], ports[2]["pfc_transmit_xoff_frames"]) == ("84", "2")
    assert (ports[2]["link"], ports[2]["rate_bps"]) == ("rtsw-0:ctsw-0", "100000000000")
    assert ports[3]["port_transmit_bytes"] == ""


def test_collectives_and_flows_are_rows(tmp_path: Path) -> None:
    directory = RunDirectory.create("handmade", tmp_path / "run")
    write_run(directory)
    (collective,) = rows(directory.path / "collectives.csv")
    assert (collective["job"], collective["op"], collective["busbw"]) == (
        "bench",
        "all_reduce",
        "125829120000",
    )
    assert rows(directory.path / "flows.csv") == []


def test_flow_without_an_end_has_empty_cells(tmp_path: Path) -> None:
    topology = fabric()
    one = summary([record(topology, "controller")], [flow_plan(8, [(0, 0)])])
    with RunDirectory.create("handmade", tmp_path / "run") as directory:
        directory.begin("name: handmade\n", topology)
        directory.write_results(one, topology, [record(topology, "controller")], {}, {})
    (flow,) = rows(directory.path / "flows.csv")
    assert (flow["source"], flow["delivered_ps"], flow["status"]) == ("nic-0-0", "", "unfinished")
