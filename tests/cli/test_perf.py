"""Does `emu perf` run what nccl-tests' flags ask for, and say what it does not model?"""

import json
from pathlib import Path

import pytest

from emu.cli.main import main
from tests.cli import telling
from tests.cli.telling import Captured

STAR = ("--topology", "{kind: star, hosts: 4}")


def reported(capsys: Captured, *arguments: str) -> tuple[int, list[str], list[str]]:
    return telling.reported(capsys, "perf", *arguments)


def rows(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if not line.startswith("#")]


def test_each_size_is_a_row_of_thirteen_columns(capsys: Captured) -> None:
    status, out, err = reported(capsys, "all_reduce", "-b8", "--maxbytes=32", "-f", "2", *STAR)
    assert (status, err) == (0, [])
    assert [row[:5] for row in rows(out)] == [
        ["8", "2", "float", "sum", "-1"],
        ["16", "4", "float", "sum", "-1"],
        ["32", "8", "float", "sum", "-1"],
    ]
    assert all(len(row) == 13 and row[5:9] == row[9:13] for row in rows(out))


@pytest.mark.parametrize(
    ("test", "count", "root", "factor"),
    [
        ("alltoall", "1024", "-1", 3 / 4),
        ("alltoallv", "1024", "-1", 3 / 4),
        ("broadcast", "4096", "2", 1),
        ("reduce_perf", "4096", "2", 1),
        ("gather", "1024", "2", 3 / 4),
        ("scatter", "1024", "2", 3 / 4),
        ("sendrecv", "4096", "-1", 1),
    ],
)
def test_every_collective_has_its_count_root_and_factor(
    capsys: Captured, test: str, count: str, root: str, factor: float
) -> None:
    status, out, _ = reported(capsys, test, "-b", "16K", "-e", "16K", "-r", "2", *STAR, "--json")
    (row,) = json.loads("\n".join(out))["results"]
    assert status == 0
    assert (row["size"], row["count"], row["root"].strip()) == (16384, int(count), root)
    half = row["out_of_place"]
    assert half["bus_bw"] == pytest.approx(half["alg_bw"] * factor, rel=1e-5)
    assert half["alg_bw"] == pytest.approx(16384 / half["time"] / 1000, rel=1e-3)


def test_a_size_that_leaves_a_rank_nothing_takes_no_time(capsys: Captured) -> None:
    _, out, _ = reported(capsys, "all_gather", "-b", "32", "-e", "64", "-f", "2", *STAR)
    assert rows(out)[0][:8] == ["0", "0", "float", "none", "-1", "0.00", "0.00", "0.00"]
    assert rows(out)[1][:2] == ["64", "4"]
    status, _, err = reported(capsys, "all_gather", "-b", "8", "-e", "8", *STAR)
    assert status == 2
    assert "accepted: -e from 64" in err[0]


def test_ranks_are_processes_times_threads_times_gpus(capsys: Captured) -> None:
    _, out, _ = reported(capsys, "all_reduce", "-b", "8", "-e", "8", "-g", "2", "--np", "3")
    assert sum(line.startswith("#  Rank") for line in out) == 6
    assert main(["perf", "all_reduce", "-g", "2", "--ranks", "4"]) == 2


def test_in_a_pipe_each_record_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = reported(capsys, "all_reduce", "-b", "8", "-e", "8", *STAR)
    (settings,) = [line for line in out if line.startswith("# nThread")]
    assert settings.endswith("unalign: 0")
    assert all(line.startswith("#") or len(line.split()) >= 9 for line in out if line)


def test_flags_that_are_not_modelled_are_one_line_each(capsys: Captured) -> None:
    status, _, err = reported(
        capsys, "all_reduce", "-b", "8", "-e", "8", "-G", "1", "-m", "1", "-M", "1", *STAR
    )
    assert status == 0
    assert [line.split(":")[1] for line in err] == [
        " -G is known and not modelled",
        " -M is known and not modelled",
    ]


def test_results_are_checked_on_request(capsys: Captured) -> None:
    sizes = ("-b", "64", "-e", "1K", "-f", "16", "-n", "2")
    status, out, _ = reported(capsys, "all_reduce", *sizes, "-c", "1", "-d", "bfloat16", "-o", "max", *STAR)
    assert status == 0
    assert [row[:3] + row[8:9] for row in rows(out)] == [
        ["64", "32", "bfloat16", "0"],
        ["1024", "512", "bfloat16", "0"],
    ]
    status, out, _ = reported(capsys, "reduce_scatter", *sizes, *STAR)
    assert (status, {row[8] for row in rows(out)}) == (0, {"N/A"})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("all_redcue",), "did you mean 'all_reduce'"),
        (("all_reduce", "-d", "floot"), "accepted: int8"),
        (("all_reduce", "-o", "min2"), "accepted: sum"),
        (
            ("all_reduce", "-c", "1", "-d", "half"),
            "accepted: -d float, bfloat16, int32; -o sum",
        ),
        (("all_reduce", "-b", "1M", "-e", "8"), "above -e"),
        (("all_reduce", "--topology", "starr"), "did you mean 'star'"),
        (("all_reduce", "--scenario", "no/such.yaml"), "there is no such file"),
        (("all_reduce", "--ranks", "65", "-b", "8", "-e", "8"), "at most 64"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    capsys: Captured, arguments: tuple[str, ...], reason: str
) -> None:
    status, out, err = reported(capsys, *arguments)
    assert (status, out, len(err)) == (2, [], 1)
    assert reason in err[0]


def test_json_is_written_beside_what_is_there(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = ("all_reduce", "-b", "64K", "-e", "64K", "-n", "2", "-w", "1", *STAR, "-J", str(path))
    reported(capsys, *arguments)
    reported(capsys, *arguments)
    first, second = json.loads(path.read_text()), json.loads((tmp_path / "result.json.0").read_text())
    assert first["results"] == second["results"]
    (row,) = first["results"]
    assert (row["size"], row["count"], row["actual_iterations"]) == (65536, 16384, 2)
    assert row["out_of_place"]["time"] > 0


def test_a_scenario_lends_its_fabric_and_knobs_but_not_its_jobs(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "lends.yaml"
    path.write_text(
        "name: lends\n"
        "topology: {kind: star, hosts: 3}\n"
        "jobs: [{name: own, workload: {kind: incast, size: 1MiB, fan_in: 2}}]\n"
        'expect: [{value: "jobs.own.status", equals: failed}]\n',
        encoding="utf-8",
    )
    status, out, _ = reported(capsys, "all_reduce", "-b", "8", "-e", "8", "--scenario", str(path), "--json")
    value = json.loads("\n".join(out))
    assert status == 0
    assert len(value["config"]["devices"]) == 3


def test_what_packets_would_cost_is_said_at_packet_level_only(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu.devices.pricing.estimate.LONG_S", 0)
    monkeypatch.setattr("emu.terminal.machine_pace.LONG_S", 0)
    line = ("all_gather", "-b64", "-e64", "--algorithm=ring", *STAR)
    _, _, (warning,) = reported(capsys, *line)
    assert "packet-hops" in warning
    assert reported(capsys, *line, "--set", "fidelity=flow")[2] == []
