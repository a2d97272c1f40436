"""Does a package of others add a command, a reader, a workload and a policy, with no file of emu touched?"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANES = Path(__file__).parent / "lanes"
SCENARIO = """
name: lanes
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 4, gpus_per_host: 1, spines: 4, link: 400G}
routing: {kind: own_lane}
jobs:
  - {name: lanes, ranks: all, workload: {kind: lanes, shift: 4, size: 1MiB}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed: by pip, as a user would, with nothing from an index."""
    place = tmp_path_factory.mktemp("site")
    source = shutil.copytree(LANES, tmp_path_factory.mktemp("source") / "lanes")
    words = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(place)]
    subprocess.run([sys.executable, "-m", "pip", "install", *words, str(source)], check=True, cwd=place)
    return place


def emu(*words: str, at: Path, site: Path | None = None) -> tuple[int, str, str]:
    """Status, output and errors of a command with the package installed, or without it."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site or ''}", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", "from emu.cli.main import command_line; command_line()", *words],
        cwd=at,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_help_lists_a_command_of_another_package_with_its_name(site: Path, tmp_path: Path) -> None:
    _, out, _ = emu("--help", at=tmp_path, site=site)
    assert "  lanes      Added by emu-lanes 1.0.\n" in out
    _, out, _ = emu("--help", at=tmp_path)
    assert "lanes" not in out


def test_a_command_of_another_package_is_one_of_emu(site: Path, tmp_path: Path) -> None:
    assert emu("lanes", "3", "--shift", "2", at=tmp_path, site=site) == (0, "0 -> 2\n1 -> 0\n2 -> 1\n", "")
    status, _, err = emu("lanes", "3", at=tmp_path)
    assert (status, "there is no command 'lanes'" in err) == (2, True)


def test_a_reader_of_another_package_is_used_where_it_is_trusted(site: Path, tmp_path: Path) -> None:
    (tmp_path / "week.lanes").write_text("lanes\n8 4 1MiB\n")
    status, _, err = emu("import", "week.lanes", at=tmp_path, site=site)
    assert (status, "or, with --plugins, what emu-lanes 1.0 reads" in err) == (2, True)
    status, out, err = emu("import", "week.lanes", "--plugins", "-o", "-", at=tmp_path, site=site)
    assert (status, err) == (0, "")
    assert "{name: week, ranks: 8, workload: {kind: lanes, shift: 4, size: 1MiB}}" in out
    (tmp_path / "bad.lanes").write_text("lanes\n8 x\n")
    status, _, err = emu("import", "bad.lanes", "--plugins", "-o", "-", at=tmp_path, site=site)
    assert (status, err) == (2, "emu: bad.lanes:2: is no lane; accepted: RANKS SHIFT SIZE\n")


def test_a_workload_and_a_policy_of_another_package_run(site: Path, tmp_path: Path) -> None:
    """Each source has an uplink of its own, so eight flows of 1 MiB take what one takes alone: 256 packets of
    4,096 B are 256 x 4,178 B on the wire, 21.4 us at 400G, and ways of a few microseconds."""
    (tmp_path / "lanes.yaml").write_text(SCENARIO)
    words = ("run", "lanes.yaml", "--local", "--json")
    status, out, err = emu(*words, at=tmp_path, site=site)
    assert (status, err) == (0, "")
    flows = json.loads(out)["jobs"]["lanes"]["flows"]
    on_wire_ps = 256 * 4178 * 8 * 10**12 // (400 * 10**9)
    assert len(flows) == 8
    assert all(on_wire_ps < one["delivered_ps"] < 1.3 * on_wire_ps for one in flows), flows
    status, out, _ = emu("run", "lanes.yaml", "--local", "--json", at=tmp_path)
    assert status == 2


def test_what_only_reads_imports_nothing_of_another_package(site: Path, tmp_path: Path) -> None:
    (tmp_path / "lanes.yaml").write_text(SCENARIO)
    status, _, err = emu("validate", "lanes.yaml", at=tmp_path, site=site)
    assert (status, "runs the code of the module emu_lanes" in err, "--plugins" in err) == (2, True, True)
    assert emu("validate", "lanes.yaml", "--plugins", at=tmp_path, site=site)[0] == 0


def test_what_does_not_load_is_one_line_with_its_package(site: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(site, tmp_path / "site")
    (broken / "emu_lanes/command.py").write_text("import no_such_module\n")
    status, out, err = emu("lanes", "3", at=tmp_path, site=broken)
    assert (status, out) == (4, "")
    assert err == (
        "emu: command 'lanes' of emu-lanes 1.0 (emu_lanes.command:command) does not load: "
        "ModuleNotFoundError: No module named 'no_such_module'\n"
    )


def test_a_name_of_emu_or_of_two_packages_is_refused_and_the_doctor_says_so(
    site: Path, tmp_path: Path
) -> None:
    twice = shutil.copytree(site, tmp_path / "site")
    other = twice / "other_lanes-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-lanes\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text(
        "[emu.doors]\ncommand.lanes = emu_lanes.command:command\ncommand.run = emu_lanes.command:command\n"
    )
    status, _, err = emu("lanes", "3", at=tmp_path, site=twice)
    clash = "command 'lanes' is added by emu-lanes 1.0 and other-lanes 2.0: uninstall all but one"
    assert (status, err) == (2, f"emu: {clash}\n")
    _, out, _ = emu("doctor", "--json", at=tmp_path, site=twice)
    (text,) = (one["text"] for one in json.loads(out) if one["name"] == "doors")
    assert clash in text
    assert "command 'run' of other-lanes 2.0 (emu_lanes.command:command) has a name of emu's own" in text


def test_a_run_reads_no_names_of_other_packages(site: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from emu.cli.main import main\n"
        "status = main(['run', 'tiny_all_reduce', '--local', '--quiet'])\n"
        "from emu.base import doors\n"
        "print(status, doors.foreign.cache_info().misses, 'emu.doors' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0 0 False\n", "")
