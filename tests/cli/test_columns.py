"""Does what commands print fit eighty columns?"""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from emu.cli.main import commands, main
from emu.terminal.columns import REPEAT

SMALL = ["--set", "jobs[0].workload.sizes=[64KiB]"]
COMMAND_LINES = [
    ["list"],
    ["list", "ncclx"],
    ["estimate", "quickstart"],
    ["topo", "quickstart"],
    ["topo", "topology_llama3", "--buffers"],
    ["fault", "kinds"],
    ["fault", "kinds", "link_down"],
    ["doctor"],
    ["perf", "all_reduce", "-b", "64K", "-e", "128K", "-f", "2", "--ranks", "4", "--local"],
    ["sweep", "tiny_all_reduce", "--local", "--set", "seed=1,2", "--set", "routing.kind=ecmp,e_ecmp"],
    ["slowdown", "two_jobs", "--local"],
    ["run", "quickstart", "--local", *SMALL, "--out", "run"],
    ["diagnose", "run"],
    ["compare", "run", "run"],
    ["top", "run", "--once"],
    ["report", "run"],
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("columns")


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 80 and not line.startswith(REPEAT)]


@pytest.mark.parametrize("words", COMMAND_LINES, ids=" ".join)
def test_what_a_command_prints_fits_eighty_columns(
    words: list[str], directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(directory)
    if words[0] == "perf":  # into a pipe each of its records is one line, however long
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(words)
    printed = capsys.readouterr().out
    assert printed
    assert too_wide(printed) == []


@pytest.mark.parametrize("command", commands())
def test_the_help_of_a_command_fits_eighty_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main([command, "--help"])
    assert too_wide(capsys.readouterr().out) == []


def test_a_terminal_of_eighty_columns_gets_whole_words_and_a_wide_one_whole_sentences() -> None:
    wanted = "accepted: name, description, seed, fidelity, costs, topology"
    shown = {}
    for columns in ("80", "400"):
        upper, lower = pty.openpty()
        environment = os.environ | {"COLUMNS": columns}
        program = "from emu.cli.main import main; raise SystemExit(main())"
        words = [sys.executable, "-c", program, "run", "quickstart", "--set", "a.b=3"]
        ended = subprocess.run(words, stderr=lower, env=environment, check=False)
        os.close(lower)
        reported = b""
        with suppress(OSError):  # the last of those who write has gone
            while more := os.read(upper, 4096):
                reported += more
        os.close(upper)
        shown[columns] = reported.decode().replace("\r\n", "\n")
        assert ended.returncode == 2
    assert wanted in shown["400"]
    assert shown["400"].count("\n") == 1
    assert too_wide(shown["80"]) == []
    assert wanted in " ".join(shown["80"].split())
