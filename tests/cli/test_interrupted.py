"""Ctrl-C or SIGTERM in any emulation of a command ends it: status 130, one line, no figure."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.cli.main import main
from emu.engine.interruption import Interruption
from emu.scenario.dump import to_yaml
from tests.faults.watched import FLOWS, mapping_of
from tests.tidy.tracked import ROOT

TWO: dict[str, Any] = {
    "jobs": [
        {"name": name, "workload": FLOWS | {"flows": [{"src": at, "dst": at + 4, "size": "64KiB"}]}}
        for at, name in enumerate(("one", "two"))
    ]
}
SLOW = {"kind": "degrade", "target": "rtsw-0:ctsw-0", "rate": "5G", "at": "1us", "for": None}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a scenario, and the run of it."""
    place = tmp_path_factory.mktemp("interrupted")
    scenario = api.load(mapping_of([SLOW]) | TWO).scenario
    (place / "two.yaml").write_text(to_yaml(scenario), "utf-8")
    api.run(place / "two.yaml", local=True, out=place / "run")
    return place


def interrupt(monkeypatch: pytest.MonkeyPatch, turn: int, number: signal.Signals) -> None:
    """Send the signal as soon as this process has begun so many emulations."""
    enter, begun = Interruption.__enter__, 0

    def entered(self: Interruption) -> Interruption:
        nonlocal begun
        found = enter(self)
        begun += 1
        if begun == turn:
            os.kill(os.getpid(), number)
        return found

    monkeypatch.setattr(Interruption, "__enter__", entered)


COMMANDS: dict[str, tuple[str, int]] = {
    "run": ("run two.yaml --local --out new --force", 1),
    "its diagnosis": ("run two.yaml --local --out new --force", 2),
    "its second comparison": ("run two.yaml --local --out new --force", 3),
    "diagnose": ("diagnose run --emulate", 1),
    "diagnose, second comparison": ("diagnose run --emulate", 2),
    "fork": ("fork run --at 10us --local --out fork --force", 1),
    "replay": ("replay run --local --out again --force", 1),
    "slowdown": ("slowdown two.yaml --local", 1),
    "slowdown, alone": ("slowdown two.yaml --local", 3),
    "cross": ("cross two.yaml --local", 1),
    "sweep": ("sweep two.yaml --local --set seed=1,2 --jobs 1 --show diagnosis[0].cause", 2),
    "perf": ("perf all_reduce -b 64K -e 64K --local", 1),
}
FIGURES = ("in place of", "slowdown", "difference", "Avg bus bandwidth", "diagnosis:")
"""What stands in lines that tell of a comparison, or of a whole run."""


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_an_emulation_ends_the_command(
    name: str,
    number: signal.Signals,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, turn = COMMANDS[name]
    monkeypatch.chdir(place)
    interrupt(monkeypatch, turn, number)
    assert main(words.split()) == 130
    out, err = capsys.readouterr()
    *_, last = err.splitlines()
    assert last == (
        "emu: 1 of 2: seed=1: interrupted: interrupted" if name == "sweep" else "emu: interrupted"
    )
    assert err.count("emu: ") == 1
    assert [word for word in FIGURES if word in out] == []


IMPORTING = """
import importlib, os, signal, sys
sys.argv[0] = "emu"
import emu
from emu.cli.main import command_line

kept = importlib.import_module

def imported(name, package=None):
    found = kept(name, package)
    if name.startswith("emu.cli.commands"):
        os.kill(os.getpid(), getattr(signal, sys.argv.pop()))
    return found

sys.modules["emu.cli.main"].import_module = imported
command_line()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_a_command_is_imported_ends_it_in_one_line(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, "list", name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "emu: interrupted\n")


def test_a_program_that_imports_emu_keeps_its_own_signals() -> None:
    program = "import emu.api, signal as s; print(s.getsignal(2) is s.default_int_handler, s.getsignal(15))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True 0\n"
