"""Does `emu sweep` run every combination in order, and tell all of it in one table?"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import emu.api
from emu.cli.commands import sweep
from emu.cli.commands.estimate import estimated
from emu.scenario.set_options import labels
from emu.summary.verdict import shown_quantity
from emu.sweeps.sweep_table import Row, SweepTable
from tests.cli import telling
from tests.cli.telling import Captured
from tests.engine.patience import until

SCENARIO = """\
name: small
seed: 4
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 1, spines: 2}
jobs:
  - {name: one, workload: {kind: flows, flows: [{src: 0, dst: 1, size: 64KiB}]}}
expect:
  - {value: "jobs.one.flows[0].bytes", at_least: 32KiB}
"""
SIZE = "jobs[0].workload.flows[0].size"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def reported(capsys: Captured, *arguments: str) -> tuple[int, list[str], list[str]]:
    return telling.reported(capsys, "sweep", *arguments)


def test_help_has_examples(capsys: Captured) -> None:
    status, out, _ = reported(capsys, "--help")
    assert status == 0
    assert sum(line.strip().startswith("emu sweep ") for line in out) == 6


@pytest.mark.parametrize(
    ("ends", "status", "found"), [("16KiB..256KiB", 0, 100), ("128KiB..256KiB", 1, None)]
)
def test_the_largest_value_is_found_by_halving(
    capsys: Captured, small: str, ends: str, status: int, found: int | None
) -> None:
    """The scenario expects at most 100 KiB; the answer is below by a 32nd at most."""
    Path(small).write_text(SCENARIO.replace("at_least: 32KiB", "at_most: 100KiB"), encoding="utf-8")
    ended, _, err = reported(capsys, small, "--local", "--largest", f"{SIZE}={ends}", "--quiet")
    last = err[-1].rpartition(": ")[2]
    assert ended == status
    if found is None:
        assert last == "none"
    else:
        assert found * 31 / 32 <= int(last.removesuffix("B")) / 1024 <= found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--largest", f"{SIZE}=9..4"), "is no range"),
        (("--largest", f"{SIZE}=4KiB..x"), "is no range"),
        (("--largest", f"{SIZE}=4..9", "--seeds", "2"), "varies one key"),
        (("--largest", "jobs[0].workload.siz=4..9"), "unknown key"),
    ],
)
def test_what_is_no_search_is_refused_in_one_line(
    capsys: Captured, small: str, options: tuple[str, ...], said: str
) -> None:
    status, _, err = reported(capsys, small, "--local", *options)
    assert (status, len(err)) == (2, 1)
    assert said in err[0]


def test_every_combination_is_a_row_in_the_order_of_the_command(capsys: Captured, small: str) -> None:
    options = ("--local", "--set", f"{SIZE}=64KiB,128KiB", "--set", "transport.mtu=1024,4096")
    status, out, err = reported(
        capsys, small, *options, "--show", "jobs.one.flows[0].bytes,drops.total", "--quiet"
    )
    assert (status, err) == (0, [])
    assert [line.split() for line in out] == [
        ["flows[0].size", "transport.mtu", "flows[0].bytes", "drops.total", "status"],
        ["64KiB", "1024", "64KiB", "0", "ok"],
        ["64KiB", "4096", "64KiB", "0", "ok"],
        ["128KiB", "1024", "128KiB", "0", "ok"],
        ["128KiB", "4096", "128KiB", "0", "ok"],
    ]


def test_a_value_alone_is_reported_above_the_table(capsys: Captured, small: str) -> None:
    options = ("--local", "--set", "transport.mtu=1024", "--seeds", "2", "--show", "drops.total", "--quiet")
    _, out, _ = reported(capsys, small, *options)
    assert [line.split() for line in out] == [
        ["with", "transport.mtu=1024"],
        ["seed", "drops.total", "status"],
        ["4", "0", "ok"],
        ["5", "0", "ok"],
    ]


def test_a_failed_run_is_named_the_others_are_shown_and_the_worst_status_is_the_answer(
    capsys: Captured, small: str
) -> None:
    sizes = f"{SIZE}=64KiB,16KiB,0B"
    status, out, err = reported(capsys, small, "--local", "--set", sizes, "--show", "drops.total", "--quiet")
    assert status == 2
    assert [line.split()[2:] for line in out[1:]] == [["ok"], ["expectation", "failed"], ["bad", "input"]]
    assert err[0].startswith(
        f"emu: 2 of 3: {SIZE}=16KiB: expectation failed: jobs.one.flows[0].bytes: 16KiB is"
    )
    assert err[1].startswith(f"emu: 3 of 3: {SIZE}=0B: bad input: --set {SIZE}=0B: ")
    status, _, err = reported(
        capsys, small, "--local", "--set", f"{SIZE}=64KiB,16KiB", "--no-expect", "--quiet"
    )
    assert (status, err) == (0, [])
    status, out, err = reported(capsys, small, "--local", "--set", "run.max_time=1us,1s", "--quiet")
    assert (status, out[1].split()[-1], out[2].split()[-1]) == (3, "stalled", "ok")


def test_plain_numbers_in_csv_and_json_and_every_run_where_out_says(
    capsys: Captured, small: str, tmp_path: Path
) -> None:
    options = ("--local", "--set", "transport.mtu=1024,4096", "--show", "jobs.one.flows[0].bytes", "--quiet")
    kept = tmp_path / "kept"
    _, out, _ = reported(capsys, small, *options, "--csv", "--out", str(kept))
    rows = list(csv.DictReader(out))
    assert [(row["transport.mtu"], row["seed"], row["jobs.one.flows[0].bytes"]) for row in rows] == [
        ("1024", "4", "65536"),
        ("4096", "4", "65536"),
    ]
    digests = [
        json.loads((kept / f"run-{number}" / "summary.json").read_text("utf-8"))["digest"]
        for number in (1, 2)
    ]
    assert [row["digest"] for row in rows] == digests
    assert (kept / "sweep.csv").read_text("utf-8").splitlines() == out
    listed = json.loads("\n".join(reported(capsys, small, *options, "--json")[1]))
    assert [row["digest"] for row in listed] == digests
    assert listed[0]["set"] == {"transport.mtu": "1024"}
    assert listed[0]["values"] == {"jobs.one.flows[0].bytes": 65536}


def test_a_path_that_is_in_no_run_is_reported(capsys: Captured, small: str) -> None:
    status, out, err = reported(capsys, small, "--local", "--show", "jobs.two.end_ps", "--quiet")
    assert (status, out[1].split()) == (2, ["-", "ok"])
    assert err == ["emu: --show jobs.two.end_ps: there is no 'two' in jobs; there is one"]
    status, out, err = reported(capsys, small, "--local", "--show", "jobs..end_ps")
    assert (status, out, len(err)) == (2, [], 1)


def test_a_file_that_is_not_there_is_reported_once(capsys: Captured, tmp_path: Path) -> None:
    status, out, err = reported(capsys, str(tmp_path / "none.yaml"), "--local", "--set", "seed=1,2")
    assert (status, out, len(err)) == (2, [], 1)


def test_the_mean_is_over_the_seeds_of_each_combination() -> None:
    paths = ("jobs.a.end_ps", "name", "drops.total")
    rows = (
        Row(("x",), 1, 0, "", {"jobs.a.end_ps": 2_000_000, "name": "n", "drops.total": 0}),
        Row(("x",), 2, 3, "", {"jobs.a.end_ps": None, "name": "n", "drops.total": 1}, "stalled"),
        Row(("y",), 1, 0, "", {"jobs.a.end_ps": 5_000_000, "name": "n", "drops.total": 3}),
        Row(("y",), 2, 0, "", {"jobs.a.end_ps": 6_000_000, "name": "m", "drops.total": 3}),
    )
    table = SweepTable(("key",), paths, rows, 2)
    assert table.exit_status() == 3
    assert [line.split() for line in table.mean().text()] == [
        ["key", "a.end_ps", "name", "drops.total", "status"],
        ["x", "2us", "n", "0.5", "stalled"],
        ["y", "5.5us", "-", "3", "ok"],
    ]


def test_quantiles_are_those_of_nearest_rank_over_the_seeds() -> None:
    rows = tuple(
        Row(("x",), seed, 0, "", {"drops.total": drops, "name": "n"})
        for seed, drops in enumerate((9, 1, 4, 16, 25))
    )
    shown = [
        line.split() for line in SweepTable(("key",), ("drops.total", "name"), rows, 5).quantiles().text()
    ]
    assert shown == [
        ["with", "key=x"],
        ["quantile", "drops.total", "name", "status"],
        ["least", "1", "n", "ok"],
        ["p25", "4", "n", "ok"],  # Of rank ceil(1.25), 2.
        ["p50", "9", "n", "ok"],
        ["p75", "16", "n", "ok"],
        ["p95", "25", "n", "ok"],
        ["most", "25", "n", "ok"],
    ]


def test_values_are_shown_in_the_unit_of_their_name() -> None:
    assert shown_quantity("jobs.a.collectives[-1].busbw", 187_616_324_063) == "23.45GB/s"
    assert shown_quantity("fabric.buffer_peak_bytes", 2048) == "2KiB"
    assert shown_quantity("jobs.a.status", "success") == "success"
    assert shown_quantity("fabric.uplinks[0].max_over_mean", 1.234567) == "1.235"
    assert shown_quantity("faults[0].happened", True) == "true"


def test_an_axis_that_changed_nothing_is_named_with_the_load_of_the_uplinks(
    capsys: Captured, tmp_path: Path
) -> None:
    """Two policies, and a flow that meets no other: the runs differ in the path of that flow alone."""
    path = tmp_path / "alone.yaml"
    path.write_text(SCENARIO.replace("size: 64KiB", "size: 1MiB"), encoding="utf-8")
    axes = ("--set", "routing.kind=ecmp,e_ecmp", "--set", f"{SIZE}=256KiB,1MiB")
    status, _, err = reported(capsys, str(path), "--local", *axes, "--show", "jobs.one.end_ps,drops.total")
    assert status == 0
    (note,) = [line for line in err if line.startswith("note: ")]
    said, load = note.split("; ")
    assert said.startswith("note: routing.kind changed nothing that is shown: the runs ")
    # 1 MiB in packets of 4,096 B is on the wire of an uplink for 21.5 us of a run of about 25.
    share = float(load.removeprefix("no uplink was busy for more than ").removesuffix("% of a run"))
    assert 0 < share < 100


def test_axes_without_effect_are_kept_apart() -> None:
    def row(a: str, b: str, value: int, digest: str, uplink: float) -> Row:
        return Row((a, b), 1, 0, digest, {"x": value}, "", uplink)

    rows = (
        row("1", "on", 10, "d", 0.25),
        row("1", "off", 10, "d", 0.125),
        row("2", "on", 20, "e", 0.5),
        row("2", "off", 20, "e", 0.25),
    )
    (line,) = SweepTable(("size", "b"), ("x",), rows).unchanged()
    assert line.split("; ") == [
        "b changed nothing that is shown: the runs are the same to the last packet",
        "no uplink was busy for more than 50.0% of a run",
    ]
    assert SweepTable(("size", "b"), ("x",), rows[:3]).unchanged() != []
    other = (*rows[:3], row("2", "off", 21, "f", 0.25))
    assert SweepTable(("size", "b"), ("x",), other).unchanged() == []


def test_runs_side_by_side_make_the_same_table_in_the_same_order(
    capsys: Captured, small: str, tmp_path: Path
) -> None:
    options = ("--local", "--set", f"{SIZE}=256KiB,64KiB,1KiB", "--seeds", "2", "--json")
    tables = []
    for jobs in ("1", "3"):
        place = tmp_path / jobs
        status, out, err = reported(capsys, small, *options, "--jobs", jobs, "--out", str(place))
        assert status == 1
        assert [line.split()[0] for line in err if " of 6: " in line] == ["1", "2", "3", "4", "emu:", "emu:"]
        assert len(list(place.glob("run-*/summary.json"))) == 6
        tables.append(out)
    assert tables[0] == tables[1]


def test_runs_at_a_time_are_for_this_process(capsys: Captured, small: str) -> None:
    status, _, err = reported(capsys, small, "--workers", "1", "--jobs", "2")
    said = "emu: --jobs is for runs in one process; with --workers each run has all the workers"
    assert (status, err) == (2, [said])


def test_runs_that_take_long_together_are_reported_before_the_first(
    capsys: Captured, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "estimated", lambda prepared: estimated(prepared)._replace(wall_s=0.5))
    monkeypatch.setattr(sweep, "LONG_S", 0.6)
    options = ("--local", "--set", "transport.mtu=1024,4096", "--quiet")
    _, _, err = reported(capsys, small, *options, "--jobs", "2")
    assert err == []
    _, _, err = reported(capsys, small, *options, "--jobs", "1")
    assert err == ["emu: warning: these 2 runs take about 1.0 s"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("{kind: hpn, planes: 2}", "{kind: ai_zone}"), ("hpn", "ai_zone")),
        (("{kind: hpn, planes: 1}", "{kind: hpn, planes: 2}"), ("hpn planes: 1", "hpn planes: 2")),
        (("{kind: hpn, planes: 1}", "{kind: hpn}"), ("hpn planes: 1", "hpn")),
        (("{a: [1, 2]}", "{a: [3]}"), ("a: [1, 2]", "a: [3]")),
        (("1/8", "{kind: x}"), ("1/8", "{kind: x}")),
        (("{kind: x}", "{ kind: x }"), ("{kind: x}", "{ kind: x }")),
    ],
)
def test_a_mapping_is_shown_by_its_kind_and_what_is_its_own(
    values: tuple[str, str], expected: tuple[str, str]
) -> None:
    assert tuple(labels(values).values()) == expected


def test_variants_are_an_axis(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        SCENARIO + f'variants:\n  twice: {{"{SIZE}": 128KiB}}\n  half: {{"{SIZE}": 32KiB}}\n', "utf-8"
    )
    shown = ("--local", "--show", "jobs.one.flows[0].bytes", "--csv", "--quiet")
    status, out, _ = reported(capsys, str(path), "--variants", "all", *shown)
    assert status == 0
    assert [(row["variant"], row["jobs.one.flows[0].bytes"]) for row in csv.DictReader(out)] == [
        ("twice", str(128 * 1024)),
        ("half", str(32 * 1024)),
    ]
    status, _, err = reported(capsys, str(path), "--variants", "third", *shown)
    assert status == 2
    assert "there is no variant 'third'" in err[0]


def test_a_campaign_and_a_job_mix_are_swept_by_their_keys(capsys: Captured) -> None:
    keys = ("--set", "checkpoint.every=10min,2h", "--set", "lasts=5d", "--no-expect", "--csv", "--quiet")
    status, out, _ = reported(capsys, "megascale", *keys, "--seeds", "2")
    assert status == 0
    rows = list(csv.DictReader(out))
    assert [(row["checkpoint.every"], row["seed"]) for row in rows] == [
        ("10min", "1"),
        ("10min", "2"),
        ("2h", "1"),
        ("2h", "2"),
    ]
    assert float(rows[0]["goodput"]) > float(rows[2]["goodput"])
    mix = ("traced", "--set", "queue=first_come,backfill", "--show", "queue", "--csv", "--quiet")
    status, out, _ = reported(capsys, *mix)
    assert status == 0
    assert [row["queue"] for row in csv.DictReader(out)] == ["first_come", "backfill"]
    status, _, err = reported(capsys, "megascale", "--set", "checkpoint.evry=1h,2h")
    assert status == 2
    assert "checkpoint.evry: unknown key" in err[0]


def test_a_sweep_in_python_has_the_rows_of_the_command(capsys: Captured, small: str) -> None:
    shown = "jobs.one.flows[0].bytes"
    rows = emu.api.sweep(small, {SIZE: ["64KiB", "16KiB", "many"]}, [shown], seeds=2)
    found = [(row["seed"], row["values"][shown], row["exit_status"]) for row in rows]
    assert found[:4] == [(4, 65536, 0), (5, 65536, 0), (4, 16384, 1), (5, 16384, 1)]
    assert rows[4]["exit_status"] == 2
    assert "'many'" in rows[4]["message"]
    _, out, _ = reported(capsys, small, "--local", "--set", f"{SIZE}=64KiB", "--json", "--quiet")
    assert json.loads("\n".join(out))[0]["digest"] == rows[0]["digest"]


def test_runs_are_diagnosed_where_a_column_or_an_expectation_asks(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, cause = "story_slow_receiver", "diagnosis[0].cause"
    (expected,) = emu.api.sweep(story, {})
    assert expected["exit_status"] == 0
    _, out, _ = reported(capsys, story, "--local", "--no-expect", "--show", cause, "--json", "--quiet")
    assert json.loads("\n".join(out))[0]["values"] == {cause: "slow_receiver"}
    monkeypatch.setattr(emu.api, "diagnosed", None)
    assert reported(capsys, story, "--local", "--no-expect", "--jobs", "1", "--quiet")[0] == 0


def test_a_sweep_whose_process_was_killed_is_resumed_with_the_same_table(
    capsys: Captured, small: str, tmp_path: Path
) -> None:
    """The process is killed as soon as a row is on disk; the line after it is cut as a kill may cut it."""
    words = [small, "--set", f"{SIZE}=64KiB,16KiB", "--seeds", "20"]
    whole = reported(capsys, *words, "--csv", "--quiet")[1]
    place = tmp_path / "kept"
    rows = place / "rows.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "emu.cli.main", "sweep", *words, "--jobs=1", "--quiet", "--out", str(place)],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: rows.exists() and rows.read_text("utf-8").count("\n") > 0)
    process.kill()
    process.wait()
    known = rows.read_text("utf-8").splitlines(keepends=True)
    assert 0 < len(known) < 40
    rows.write_text("".join(known[:1]) + '{"number": 2, "lo', "utf-8")
    status, out, err = reported(capsys, "--resume", str(place), "--csv", "--quiet")
    assert (status, out) == (1, whole), err
    assert sum(" of 40: " in line for line in err) == 20
    assert len(rows.read_text("utf-8").splitlines()) == 40
    assert (place / "sweep.csv").read_text("utf-8").splitlines() == whole
    again = rows.stat().st_mtime_ns
    assert reported(capsys, *words, "--resume", str(place), "--csv", "--quiet")[1] == whole
    assert rows.stat().st_mtime_ns == again, "nothing was missing"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--seeds", "3", "--resume", "DIR"), "holds another sweep, with other seeds"),
        (("--resume", "DIR", "--show", "drops.total"), "holds another sweep, with other columns"),
        (("--no-expect", "--resume", "DIR"), "holds another sweep, with other the file, expectations"),
        (("--out", "DIR"), "holds a sweep; accepted: --resume "),
        (("--resume", "DIR", "--out", "DIR"), "--resume adds to the directory that it names"),
        (("--resume", "DIR/none"), "sweep.json: No such file"),
    ],
)
def test_another_sweep_is_not_mixed_with_the_rows_of_one(
    capsys: Captured, small: str, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    place = str(tmp_path / "kept")
    assert reported(capsys, small, "--out", place, "--quiet")[0] == 0
    status, _, err = reported(capsys, small, *(word.replace("DIR", place) for word in more))
    assert (status, len(err)) == (2, 1)
    assert said in err[0]


def test_a_sweep_of_another_version_is_not_resumed(capsys: Captured, small: str, tmp_path: Path) -> None:
    assert reported(capsys, small, "--out", str(tmp_path / "kept"), "--quiet")[0] == 0
    file = tmp_path / "kept" / "sweep.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"version": "0.0.1"}), "utf-8")
    status, _, err = reported(capsys, "--resume", str(tmp_path / "kept"))
    assert (status, len(err)) == (2, 1)
    assert "was begun by version 0.0.1 of emu" in err[0]


def test_a_search_has_the_same_rows_with_any_number_of_values_in_flight(small: str) -> None:
    """At most 100 KiB pass, so the answer is within a 32nd below it."""
    Path(small).write_text(SCENARIO.replace("at_least: 32KiB", "at_most: 100KiB"), encoding="utf-8")
    found = [emu.api.sweep(small, largest=f"{SIZE}=16KiB..256KiB", at_once=many) for many in (1, 3)]
    assert list(found[0]) == list(found[1])
    assert 100 * 1024 * 31 / 32 - 1024 < int(found[0].best.removesuffix("B")) <= 100 * 1024


def test_means_quantiles_and_campaigns_are_had_from_python() -> None:
    campaign = emu.api.sweep(
        "megascale", {"checkpoint.every": ["10min", "2h"]}, seeds=2, overrides={"lasts": "5d", "expect": []}
    )
    assert [(row["set"]["checkpoint.every"], row["seed"]) for row in campaign] == [
        ("10min", 1),
        ("10min", 2),
        ("2h", 1),
        ("2h", 2),
    ]
    goodput = [row["values"]["goodput"] for row in campaign]
    assert [row["values"]["goodput"] for row in campaign.mean()] == [
        pytest.approx(sum(goodput[:2]) / 2, abs=1e-6),
        pytest.approx(sum(goodput[2:]) / 2, abs=1e-6),
    ]
    assert campaign.quantiles()[0]["values"]["goodput"] == min(goodput[:2])
