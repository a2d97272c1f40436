"""Does the `emu` command do what it is told, say what is wrong in one line, and end with the right status?"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import emu
from emu.base.shipped import OTHERS, scenarios_in
from emu.cli.commands import doctor as doctor_command
from emu.cli.core_commands import GROUPS
from emu.cli.main import commands, main
from emu.scenario.faults.kinds import FAULTS
from emu.scenario.load import load_text
from tests.cli.telling import Captured, reported
from tests.scenario.scenarios import ROOT, SMALL

TINY = str(ROOT / "scenarios/start/tiny_all_reduce.yaml")


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A small scenario's file."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_help_lists_every_command_in_order(capsys: Captured) -> None:
    status, out, err = reported(capsys, "--help")
    assert (status, err) == (0, [])
    groups = [line.removesuffix(":") for line in out if line.endswith(":") and line[0] != " "]
    assert groups == ["Options", *GROUPS]
    listed = out[out.index(f"{groups[1]}:") :]
    assert [line.split()[0] for line in listed if line.startswith("  ")] == list(commands())
    assert max(map(len, listed)) <= 80


@pytest.mark.parametrize("name", [*commands(), "fault inject", "fault list", "fault clear"])
def test_every_command_explains_itself(capsys: Captured, name: str) -> None:
    status, out, err = reported(capsys, *name.split(), "--help")
    assert (status, err) == (0, [])
    assert out[0].startswith(f"Usage: emu {name}")
    assert [line for line in out if "\\" in line.removesuffix(" \\") or len(line) > 105] == []


def test_help_and_version_import_no_heavy_package() -> None:
    """What keeps `emu --help` quick, stated without a clock."""
    heavy = ("ray", "rich", "trio", "prometheus_client", "yaml", "rustworkx", "msgpack")
    code = (
        "import sys; from emu.cli.main import main; main(['--help']); main(['--version']);"
        f" print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_says_whether_the_packet_path_is_compiled(capsys: Captured) -> None:
    status, (line,), err = reported(capsys, "--version")
    assert (status, err) == (0, [])
    reported_version, _, state = line.partition(", ")
    assert state == emu.compiled_state()
    assert re.fullmatch(
        rf"emu {re.escape(emu.__version__)}( \([0-9a-f]{{12,}}(\+dirty)?\))?", reported_version
    )


def test_a_mistyped_command_comes_with_the_nearest_one(capsys: Captured) -> None:
    status, out, err = reported(capsys, "valdiate")
    assert (status, out) == (2, [])
    assert err == ["emu: there is no command 'valdiate'; did you mean 'validate'?; see `emu --help`"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["run", TINY, "--placment=node"],
            "No such option '--placment'. Did you mean '--placement'?; see `emu run --help`",
        ),
        (["run", TINY, "--set"], "Option '--set' requires an argument; see `emu --help`"),
        (
            ["run", TINY, "--workers=x"],
            "Invalid value for '--workers': 'x' is not a valid integer range; see `emu run --help`",
        ),
        (["fault", "inject"], "Missing argument 'RUN'; see `emu fault inject --help`"),
        (["fork", "--at=5us"], "Missing argument 'DIRECTORY'; see `emu fork --help`"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(capsys: Captured, words: list[str], line: str) -> None:
    assert reported(capsys, *words) == (2, [], [f"emu: {line}"])


@pytest.mark.parametrize(
    "words",
    [
        ["run", TINY, "--local", "--snapshot-at=5"],
        ["run", TINY, "--snapshot-every=5"],
        ["run", TINY, "--liveness=5"],
        ["fork", "nowhere", "--at=5"],
    ],
)
def test_a_time_without_a_unit_is_reported_with_its_option(capsys: Captured, words: list[str]) -> None:
    status, out, err = reported(capsys, *words)
    assert (status, out, len(err)) == (2, [], 1)
    option = words[-1].replace("=", " ")
    assert err[0].startswith(f"emu: {option}: '5' is a bare number: its unit would be a guess; accepted: ")


def test_validate_counts_what_is_there(capsys: Captured, small: str) -> None:
    said = f"{small}: valid: small, 8 GPUs, 4 switches, 1 job, 0 faults, 0 expectations"
    assert reported(capsys, "validate", small) == (0, [said], [])


def test_validate_tells_every_problem_of_every_file(capsys: Captured, small: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SMALL.replace("racks: 2,", "racks: 0,") + "sede: 3\n", encoding="utf-8")
    status, out, err = reported(capsys, "validate", str(wrong), small, str(tmp_path / "missing.yaml"))
    assert (status, len(out)) == (2, 1)
    assert [line.split(";")[0] for line in err] == [
        f"emu: {wrong}:2: topology.racks: 0 is out of range",
        f"emu: {wrong}:6: sede: unknown key",
        f"emu: {tmp_path / 'missing.yaml'}: there is no such file",
    ]


def test_validate_looks_at_the_fabric_too(capsys: Captured, small: str) -> None:
    status, out, err = reported(capsys, "validate", small, "--set", "jobs[0].ranks=9")
    assert (status, out) == (2, [])
    assert err == [
        "emu: --set jobs[0].ranks=9: jobs[0].ranks: 9 ranks on a fabric of 8 GPUs; accepted: at most 8"
    ]


def test_a_buffer_without_room_is_found_before_a_run(capsys: Captured, small: str) -> None:
    status, _, err = reported(capsys, "validate", small, "--set", "switch.buffer.pool=100KB")
    assert status == 2
    assert err[0].startswith(
        "emu: --set switch.buffer.pool=100KB: switch.buffer.pool: reserves of 192KiB and headroom of "
    )
    least = err[0].partition("accepted: a pool of at least ")[2].partition(",")[0]
    assert reported(capsys, "validate", small, "--set", f"switch.buffer.pool={least}")[0] == 0


def test_validate_prints_the_warnings_of_a_run(capsys: Captured, small: str, tmp_path: Path) -> None:
    wrong = ("--set", "switch.pfc.quanta=2", "--set", "transport.timeout=1")
    _, checked, _ = reported(capsys, "validate", small, *wrong)
    run = ("run", small, "--local", "--no-page", "--no-expect", "--out", str(tmp_path / "out"), *wrong)
    _, out, err = reported(capsys, *run)
    found = [
        [line.partition("warning: ")[2] for line in lines if "warning: " in line]
        for lines in (checked, out + err)
    ]
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_validate_prints_the_effective_scenario(capsys: Captured, small: str) -> None:
    status, out, _ = reported(
        capsys, "validate", small, "--effective", "--seed", "9", "--set", "run.max_time=1s"
    )
    assert status == 0
    scenario = load_text("\n".join(out)).scenario
    assert (scenario.seed, scenario.run.max_time_ps) == (9, 10**12)


def test_a_wrong_seed_names_the_option(capsys: Captured, small: str) -> None:
    _, _, err = reported(capsys, "validate", small, "--seed", "x")
    assert err == ["emu: --seed: seed: 'x' is not a whole number; accepted: a whole number"]


def test_scenarios_in_the_directory_are_found_by_name(
    capsys: Captured, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").mkdir()
    Path(small).rename(tmp_path / "scenarios" / "small.yaml")
    monkeypatch.chdir(tmp_path)
    status, out, _ = reported(capsys, "validate", "small")
    assert (status, out[0].split(":")[0]) == (0, "scenarios/small.yaml")
    said = "emu: smal: there is no such file, nor a scenario of that name; did you mean 'small'?"
    assert reported(capsys, "run", "smal") == (2, [], [said])


def test_a_scenario_in_the_directory_hides_its_namesake_that_comes_with_emu(
    capsys: Captured, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    come_with_emu = sorted(path.stem for path in scenarios_in(ROOT / "scenarios"))
    assert listed_names(capsys) == come_with_emu
    assert "64 GPUs" in reported(capsys, "validate", "quickstart")[1][0]
    (tmp_path / "scenarios").mkdir()
    Path(small).rename(tmp_path / "scenarios" / "quickstart.yaml")
    assert listed_names(capsys) == come_with_emu
    assert reported(capsys, "validate", "quickstart")[1][0].startswith(
        "scenarios/quickstart.yaml: valid: small, 8 GPUs"
    )


def listed_names(capsys: Captured) -> list[str]:
    """What `emu list` names, read as JSON."""
    return sorted(
        {Path(row["file"]).stem for row in json.loads("\n".join(reported(capsys, "list", "--json")[1]))}
    )


def test_new_copies_a_scenario_with_what_it_reads_and_replaces_nothing(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = reported(capsys, "new", "chakra")
    traces = [f"chakra.{rank}.et" for rank in range(4)]
    assert (status, err) == (0, [])
    assert out == [
        *(f"written: {name}" for name in ("chakra.yaml", *traces)),
        "edit it, then: emu run chakra.yaml",
    ]
    for name in ("chakra.yaml", *traces):
        assert (tmp_path / name).read_bytes() == (ROOT / "scenarios/workloads" / name).read_bytes()
    (tmp_path / "deeper").mkdir()
    assert reported(capsys, "new", "sonic_boxes", "deeper")[0] == 0
    held = {"sonic.yaml", "sonic_config_db.json", "sonic_spine_config_db.json"}
    assert {path.name for path in (tmp_path / "deeper").iterdir()} == held
    assert reported(capsys, "validate", "deeper/sonic.yaml", "--variant", "boxes")[0] == 0
    (tmp_path / "deeper" / "sonic_config_db.json").write_text("{}", "utf-8")
    said = "exists and is not replaced; accepted: the name of a new file"
    assert reported(capsys, "new", "sonic", "deeper/again.yaml") == (
        2,
        [],
        [f"emu: deeper/sonic_config_db.json: {said}"],
    )
    assert not (tmp_path / "deeper" / "again.yaml").exists()
    assert reported(capsys, "new", "chakra") == (2, [], [f"emu: chakra.yaml: {said}"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["new", "quikstart"],
            "quikstart: there is no such file, nor a scenario of that name; did you mean 'quickstart'?",
        ),
        (
            ["new", "quickstart", "no/where.yaml"],
            "no/where.yaml: cannot be written: No such file or directory",
        ),
        (
            ["run", "four_pods"],
            "four_pods: is no scenario; accepted: `emu schedule four_pods`, or a scenario",
        ),
        (["docs", "sclae"], "sclae: there is no such page; did you mean 'scale'?"),
        (["docs", "zzzzzz"], "zzzzzz: there is no such page; `emu docs` lists them"),
    ],
)
def test_what_does_not_come_with_emu_is_one_line(
    capsys: Captured, words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reported(capsys, *words) == (2, [], [f"emu: {line}"])


def test_docs_lists_every_page_and_shows_one(capsys: Captured) -> None:
    status, out, _ = reported(capsys, "docs")
    assert (status, [line.split()[0] for line in out]) == (
        0,
        sorted(path.stem for path in (ROOT / "docs").glob("*.md")),
    )
    assert (
        reported(capsys, "docs", "docs/sweep.md")[1]
        == (ROOT / "docs" / "sweep.md").read_text("utf-8").splitlines()
    )


def test_a_page_is_laid_out_on_a_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = reported(capsys, "docs", "tasks")
    assert max(map(len, out)) <= 80
    assert not [line for line in out if "](" in line or line.startswith(("#", "|"))]


def test_list_gives_the_question_of_each_scenario(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL + "description: |\n  One\n  question.\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("", encoding="utf-8")
    status, out, _ = reported(capsys, "list", str(tmp_path))
    assert status == 0
    assert out[0] == f"{tmp_path / 'a.yaml'}  One question."
    rest = " ".join(" ".join(out[1:]).split())
    assert rest.startswith(f"{tmp_path / 'b.yaml'} not valid: {tmp_path / 'b.yaml'}: the file is empty")
    rows = json.loads("\n".join(reported(capsys, "list", str(tmp_path), "--json")[1]))
    described_one = {
        "run": str(tmp_path / "a.yaml"),
        "variant": "",
        "name": "small",
        "question": "One question.",
        "description": "One question.",
    }
    assert rows[0] == {"file": str(tmp_path / "a.yaml"), **described_one}


def test_list_of_nothing_that_there_is_names_the_nearest_group(capsys: Captured) -> None:
    status, _, (line,) = reported(capsys, "list", "rooting")
    assert status == 2
    assert line.startswith(
        "emu: rooting: is no group, no directory and no part of a scenario's name; did you"
    )
    assert "did you mean 'routing'?; accepted: collectives, " in line


def test_list_shows_groups_with_counts_and_a_group_or_matching_names_with_questions(capsys: Captured) -> None:
    folders = sorted(path.name for path in (ROOT / "scenarios").iterdir() if path.name not in OTHERS)
    _, lines, _ = reported(capsys, "list")
    heads = [line.partition("  ")[0] for line in lines if line[:1] not in ("", " ")][:-1]
    texts = [
        [path.read_text("utf-8") for path in (ROOT / "scenarios" / name).glob("*.yaml")] for name in folders
    ]
    counts = [sum(1 + len(yaml.safe_load(text).get("variants", ())) for text in each) for each in texts]
    assert heads == [f"{name} ({count})" for name, count in zip(folders, counts, strict=True)]
    _, lines, _ = reported(capsys, "list", "congestion")
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    known = {path.stem: path.read_text("utf-8") for path in (ROOT / "scenarios/congestion").glob("*.yaml")}
    variants = [f"{name}_{one}" for name in known for one in yaml.safe_load(known[name]).get("variants", ())]
    assert sorted(names) == sorted([*known, *variants])
    assert "How short are queues if switches tell" in " ".join(lines)
    for given in ("tiny", "tiny_*"):
        _, lines, _ = reported(capsys, "list", given)
        assert [line.split()[0] for line in lines if line[0] != " "] == ["tiny_all_reduce", "tiny_flap"]


def test_the_path_that_a_scenario_had_is_refused_with_its_name(capsys: Captured) -> None:
    now = ROOT / "scenarios/start/quickstart.yaml"
    reason = f"there is no such file; the scenario quickstart is in {now}: `emu run quickstart`"
    given = str(ROOT / "scenarios" / "quickstart.yaml")
    assert reported(capsys, "run", given)[2][0].replace(" is in scenarios/", f" is in {ROOT}/scenarios/") == (
        f"emu: {given}: {reason}"
    )


def test_every_kind_of_fault_is_listed_with_its_keys(capsys: Captured) -> None:
    _, listed, _ = reported(capsys, "fault", "kinds")
    assert [line.split()[0] for line in listed[1:]] == sorted(FAULTS.table)
    assert ["pause_storm", "port"] in [line.split()[:2] for line in listed]
    _, rows, _ = reported(capsys, "fault", "kinds", "degrade")
    keys = [line.split()[0] for line in rows[2:]]
    assert {"target", "for", "sender", "rate", "loss", "bit_errors"} <= set(keys)
    assert "at" not in keys
    status, _, (line,) = reported(capsys, "fault", "kinds", "pause_strom")
    assert status == 2
    assert "did you mean 'pause_storm'" in line


def test_schemas_are_json(capsys: Captured) -> None:
    for subject in ("scenario", "summary"):
        status, out, _ = reported(capsys, "schema", subject)
        assert (status, json.loads("\n".join(out))["type"]) == (0, "object")
    assert reported(capsys, "schema", "--markdown")[1][0] == "### Top level"
    assert reported(capsys, "schema", "summary", "--markdown")[0] == 2


def test_topo_shows_tiers_and_paths(capsys: Captured, small: str) -> None:
    status, out, _ = reported(capsys, "topo", small)
    assert (status, out[0].split(":")[0]) == (0, "ai_zone")
    status, out, _ = reported(capsys, "topo", small, "--routes", "nic-0-0", "nic-3-1")
    assert out == ["nic-0-0 rtsw-0 ctsw-0 rtsw-1 nic-3-1", "nic-0-0 rtsw-0 ctsw-1 rtsw-1 nic-3-1"]
    listed = json.loads("\n".join(reported(capsys, "topo", small, "--json")[1]))
    assert len(listed["nodes"]) == 4 + 8 + 8 + 4 + 2 + 2 + 1
    assert [node["address"] for node in listed["nodes"] if node["name"] == "nic-3-1"] == ["10.0.4.3"]


@pytest.mark.parametrize("ends", [("nic-0-0", "nic-0-9"), ("gpu-0-0", "nic-0-0"), ("nic-0-0", "nic-0-0")])
def test_topo_refuses_routes_between_what_are_no_two_nics(
    capsys: Captured, small: str, ends: tuple[str, str]
) -> None:
    status, _, err = reported(capsys, "topo", small, "--routes", *ends)
    assert (status, len(err)) == (2, 1)
    assert err[0].startswith("emu: --routes ")


def test_doctor_checks_everything_and_says_so(capsys: Captured) -> None:
    status, out, _ = reported(capsys, "doctor")
    assert status == (4 if any(line.startswith("fail") for line in out) else 0)
    assert len(out) == len(doctor_command.CHECKS)
    assert all(line.split()[0] in ("ok", "note", "fail") for line in out)
    rows = json.loads("\n".join(reported(capsys, "doctor", "--json")[1]))
    assert [row["name"] for row in rows] == [line.split()[1] for line in out]


def test_a_reader_that_goes_away_ends_the_command_in_silence(small: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "emu.cli.main", "validate", small, "--effective"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_nothing_unexpected_is_swallowed(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> doctor_command.Check:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor_command, "CHECKS", (broken,))
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_run_keeps_its_results_and_says_where(capsys: Captured, tmp_path: Path) -> None:
    out_directory = tmp_path / "out"
    status, out, err = reported(capsys, "run", TINY, "--local", "--out", str(out_directory))
    assert (status, err) == (0, [])
    assert out[0].startswith("tiny_all_reduce: ")
    assert f"results in {out_directory}" in out
    assert {"scenario.yaml", "summary.json", "workers.json"} <= {
        path.name for path in out_directory.iterdir()
    }
    summary = json.loads((out_directory / "summary.json").read_text(encoding="utf-8"))
    again, out, _ = reported(
        capsys,
        "run",
        str(out_directory / "scenario.yaml"),
        "--local",
        "--json",
        "--out",
        str(tmp_path / "again"),
    )
    assert again == 0
    assert json.loads("\n".join(out))["digest"] == summary["digest"]
    words = ("run", TINY, "--local", "--out", str(out_directory))
    status, _, (refused,) = reported(capsys, *words)
    assert status == 2
    assert refused.startswith(f"emu: {out_directory}: holds the results of an earlier run; accepted: ")
    assert "--force" in refused
    assert json.loads((out_directory / "summary.json").read_text(encoding="utf-8")) == summary
    replaced = reported(capsys, *words, "--force")[1]
    assert f"the results of an earlier run in {out_directory} are replaced" in replaced


def test_a_failed_expectation_is_status_1_with_the_line_that_repeats_it(
    capsys: Captured, tmp_path: Path
) -> None:
    assignment = "expect[0].equals=3"
    status, out, err = reported(
        capsys, "run", TINY, "--local", "--set", assignment, "--seed", "4", "--out", str(tmp_path)
    )
    assert (status, err) == (1, ["emu: 1 of 2 expectations failed"])
    assert out[-1] == f"repeat with: emu run {TINY} --set '{assignment}' --seed 4 --local"
    assert any(line.startswith("FAIL drops.congestion") for line in out)


def test_a_run_that_does_not_end_is_status_3(capsys: Captured, tmp_path: Path) -> None:
    options = ("--local", "--quiet", "--set", "run.max_time=1us", "--out", str(tmp_path))
    status, out, err = reported(capsys, "run", TINY, *options)
    assert (status, out) == (3, [])
    assert err[0] == "emu: run.max_time (1us) passed with a job unfinished"
    assert err[1].startswith("host-0 waits: rank 0 of job 0, operation 0: ")
    assert all(" waits" in line for line in err[1:])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--local", "--workers", "2"],
            "--workers, --placement and --address are for Ray; with --local use --p",
        ),
        (["--parts", "2", "--workers", "2"], "--workers is for Ray, --parts for this process; accepted: one"),
        (["--local", "--out", "FILE"], "FILE: "),
        (
            ["--local", "--set", "jobs[0].ranks=5"],
            "--set jobs[0].ranks=5: jobs[0].ranks: 5 ranks on a fabric",
        ),
    ],
)
def test_what_cannot_be_run_is_status_2(capsys: Captured, small: str, options: list[str], said: str) -> None:
    options = [small if option == "FILE" else option for option in options]
    status, out, err = reported(capsys, "run", TINY, *options)
    assert (status, out, len(err)) == (2, [], 1)
    assert err[0].startswith(f"emu: {said.replace('FILE', small)}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.py", "is no Python file"), ("two-words.py", "no scenario can name 'two-words'")],
)
def test_compile_says_in_a_line_which_file_no_scenario_could_name(
    name: str, reason: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "two-words.py").write_text("")
    assert main(["compile", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name}: {reason}" in line
    assert "accepted: " in line


@pytest.mark.parametrize("words", ["run tiny --set fidelity=flow", "run tiny", "replay out"])
def test_time_and_busbw_are_printed_wherever_a_collective_ran(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = "run tiny_all_reduce --local --no-expect --set jobs[0].workload.sizes=[64KiB,256KiB] --out out"
    line = (
        words.replace("run tiny", run) if words.startswith("run") else f"{run} && {words} --local --out out2"
    )
    for command in line.split(" && "):
        capsys.readouterr()
        assert main(command.split()) == 0
    rows = [one.split() for one in capsys.readouterr().out.splitlines()]
    out = tmp_path / ("out2" if "replay" in words else "out")
    collectives = json.loads((out / "summary.json").read_text("utf-8"))["jobs"]["ring"]["collectives"]
    for size in (65536, 262144):
        (row,) = [one for one in rows if one[:1] == [str(size)]]
        took_ps = [one["end_ps"] - one["start_ps"] for one in collectives if one["bytes"] == size]
        assert float(row[5]) == pytest.approx(sum(took_ps) / len(took_ps) / 1e6, abs=0.01)
        assert float(row[7]) == pytest.approx(2 * 3 / 4 * size / float(row[5]) / 1e3, rel=0.01)


def test_the_package_is_the_command() -> None:
    """`python -m emu` is `emu`."""
    words = ["--version"], ["validate", "no_such_scenario"]
    for given in words:
        module, command = (
            subprocess.run([sys.executable, "-m", name, *given], capture_output=True, text=True, check=False)
            for name in ("emu", "emu.cli.main")
        )
        assert (module.returncode, module.stdout, module.stderr) == (
            command.returncode,
            command.stdout,
            command.stderr,
        )
