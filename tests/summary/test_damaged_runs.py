"""Whatever is wrong with a file of a run directory, a command that reads it names that file in one line."""

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.kernel.mixing import Stream
from emu import api
from emu.cli.main import main
from tests.conftest import SOAK
from tests.scenario.scenarios import ROOT

COMMANDS = (
    "report RUN",
    "report WHOLE RUN",
    "diagnose RUN",
    "diagnose WHOLE --baseline RUN",
    "top RUN --once",
    "compare WHOLE RUN",
    "plot busbw RUN --out plot.svg",
    "plot time RUN --series queue_bytes --out plot.svg",
    "export csv RUN --out out",
    "export openmetrics RUN --out out",
    "export perfetto RUN --out out",
    "replay RUN --local --quiet --out again --force",
    "fork RUN --at 20us --local --quiet --out fork --force",
)
FILES = (
    *("summary.json", "scenario.yaml", "journal.jsonl", "samples.jsonl", "digests.jsonl", "shown.jsonl"),
    *("timeline.jsonl", "ports.csv", "collectives.csv", "operations.csv"),
)


def middle(content: bytes) -> int:
    return len(content) // 2


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "half": lambda content: content[: middle(content)],
    "without its first line": lambda content: content.partition(b"\n")[2],
    "without a line": lambda content: b"\n".join(content.split(b"\n")[::2]),
    "foreign bytes": lambda text: b"\xff\x00".join((text[: middle(text)], text[middle(text) :])),
    "zeros": lambda content: bytes(len(content)),
    "words for numbers": lambda content: re.sub(rb"\b[0-9]+\b", b"many", content),
    "a list": lambda content: b"[1, 2, 3]\n",
    "null": lambda content: b"null\n",
    "negative": lambda content: re.sub(rb"([:\[,])([1-9])", rb"\1-\2", content),
}
DRAWN = 60
"""How many of all triples are tried where not all are."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "whole"
    down = {"kind": "link_down", "at": "8us", "for": "4us", "target": "rtsw-0:ctsw-0"}
    overrides = {"run.event_log": 1000, "faults": [down], "expect": [], "transport.timeout": 2}
    api.run(ROOT / "scenarios/start/tiny_all_reduce.yaml", overrides=overrides, local=True, out=place)
    assert all((place / name).is_file() for name in FILES)
    return place


def cases() -> list[tuple[str, str, str]]:
    every = list(itertools.product(COMMANDS, FILES, DAMAGES))
    draw = Stream(5, 1, 9)
    return every if SOAK else [every[int(draw.below(len(every)))] for _ in range(DRAWN)]


def test_a_damaged_file_is_named_in_one_line(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    for words, name, damage in cases():
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        content = DAMAGES[damage]((run / name).read_bytes())
        if content is None:
            (run / name).unlink()
        else:
            (run / name).write_bytes(content)
        reported = (words, name, damage)
        command = words.replace("RUN", str(run)).replace("WHOLE", str(whole))
        try:
            status = main(command.split())
        except Exception as error:
            raise AssertionError((*reported, repr(error))) from error
        err = capsys.readouterr().err
        assert status in (0, 1, 2) or "it broke off" in err, (*reported, status, err)
        if status == 2:
            line, *_ = err.splitlines()
            assert line.startswith("emu: "), (*reported, err)
            assert f"{run}/{name}" in line or (content is None and str(run) in line), (*reported, err)
