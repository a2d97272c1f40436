"""Commands that only read a scenario or a run import no module that it names, unless they are told to."""

import gc
from pathlib import Path

import pytest

from emu import api
from emu.cli.main import main
from emu.scenario.plugins import OneOfOrPlugin
from tests.scenario.scenarios import ROOT

TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"
SEAMS = {
    "routing": "routing: {kind: CLASS}",
    "congestion control": "transport: {congestion_control: {kind: CLASS}}",
    "loss recovery": "transport: {recovery: {kind: CLASS}}",
    "arbiter": "nic: {arbiter: {kind: CLASS}}",
    "admission": "switch: {buffer: {admission: {kind: CLASS}}}",
    "transport": "transport: {kind: CLASS}",
    "AQM": "switch: {ecn: {kind: CLASS}}",
    "scheduler": "switch: {scheduling: {kind: CLASS}}",
    "algorithm": "jobs: [{workload: {kind: collective, op: barrier, algorithm: CLASS, sizes: [4B]}}]",
    "override": "overrides: [{devices: rtsw-0, switch: {ecn: {kind: CLASS}}}]",
}
OF_CAMPAIGNS = 2
"""Seams of files that are always run: placement and rank order of `emu schedule`."""
COMMANDS = (
    "validate own.yaml",
    "validate own.yaml --effective",
    "topo own.yaml",
    "topo own.yaml --buffers",
    "estimate own.yaml",
    "report run",
    "report run run2",
    "diagnose run",
    "diagnose run --emulate",
    "diagnose run2 --baseline run",
    "top run --once",
    "export perfetto run --out trace",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two directories of the same run."""
    place = tmp_path_factory.mktemp("runs")
    for name in ("run", "run2"):
        api.run(TINY, local=True, out=place / name)
    return place


@pytest.fixture
def place(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with a scenario and runs that somebody else wrote; their module leaves a trace."""
    (runs / "ran").unlink(missing_ok=True)
    module = f"import pathlib\npathlib.Path({str(runs / 'ran')!r}).touch()\nraise ValueError('ran')\n"
    (runs / "somebodys.py").write_text(module, "utf-8")
    monkeypatch.chdir(runs)
    monkeypatch.delenv("EMU_PLUGINS", raising=False)
    own = TINY.read_text("utf-8").replace("run: {", 'routing: {kind: "somebodys:Policy"}\nrun: {')
    (runs / "own.yaml").write_text(own, "utf-8")
    for name in ("run", "run2"):
        file = runs / name / "scenario.yaml"
        kept = file.read_text("utf-8").replace("  kind: e_ecmp\n", "  kind: somebodys:Policy\n")
        assert "somebodys" in kept
        file.write_text(kept, "utf-8")
    return runs


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_reads_asks_before_it_imports(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert "'somebodys:Policy' runs the code of the module somebodys; accepted: --plugins" in err
    assert not (place / "ran").exists()
    assert main([*words.split(), "--plugins"]) == 2
    assert "ValueError: ran" in capsys.readouterr().err
    assert (place / "ran").exists()


def test_the_environment_and_ones_own_set_say_yes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["validate", str(TINY), "--set", "routing.kind=somebodys:Policy"]) == 2
    assert (place / "ran").exists()
    (place / "ran").unlink()
    monkeypatch.setenv("EMU_PLUGINS", "1")
    assert main(["topo", "own.yaml"]) == 2
    assert (place / "ran").exists()


@pytest.mark.parametrize("seam", SEAMS)
def test_every_seam_asks(seam: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, spines: 1}\n" + SEAMS[seam]
    if seam != "algorithm":
        text += "\njobs: [{name: a, workload: {kind: permutation, size: 4KiB}}]"
    (place / "seam.yaml").write_text(f"name: seam\n{text}\n".replace("CLASS", '"somebodys:Own"'), "utf-8")
    assert main(["validate", "seam.yaml"]) == 2
    assert "'somebodys:Own' runs the code of the module somebodys" in capsys.readouterr().err
    assert not (place / "ran").exists()


def test_every_seam_is_in_the_table() -> None:
    seams = [one for one in gc.get_objects() if type(one) is OneOfOrPlugin]
    assert len(seams) - OF_CAMPAIGNS in (len(SEAMS) - 2, len(SEAMS) - 2 - OF_CAMPAIGNS)
