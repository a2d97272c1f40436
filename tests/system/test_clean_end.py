"""However a run on Ray is ended, at a drawn moment, nothing is left: no process, port, socket or file."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from actors.kernel.mixing import Stream
from tests.conftest import SOAK
from tests.engine.patience import PATIENCE_S, until
from tests.scenarios_run.small import ROOT

pytestmark = [pytest.mark.ray]

RUNS = 50 if SOAK else 3
SCENARIO = """\
name: long
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 1, spines: 2}
jobs:
  - {name: shuffle, workload: {kind: permutation, size: 1TiB, message: 1GiB}}
"""


def left_of(place: Path) -> list[str]:
    """Processes that were started with this temporary directory or name it, and files there."""
    found = []
    for folder, folders, files in os.walk(place):  # passes over what is removed meanwhile
        inside = [Path(folder) / name for name in folders + files]
        found += [str(path) for path in inside if "out" not in path.parts and path.name != "long.yaml"]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                reported = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if os.fsencode(place) in reported:
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()[:200]!r}")
    return found


def started(place: Path, text: str, *options: str) -> subprocess.Popen[str]:
    """`emu run` of a scenario, on a Ray of its own."""
    (place / "long.yaml").write_text(text, encoding="utf-8")
    words = ["run", str(place / "long.yaml"), "--workers=2", "--quiet", "--out", str(place / "out"), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "emu.cli.main", *words],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.provokes("SIGINT (Ctrl-C) or SIGTERM reaches `emu`")
@pytest.mark.provokes("`emu` itself is killed")
@pytest.mark.parametrize("turn", range(RUNS))
def test_nothing_is_left_of_a_run_that_is_ended_at_any_moment(turn: int) -> None:
    draw = Stream(turn, 1, 4)
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    process = started(place, SCENARIO, "--snapshot-every=300ms")
    number = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[turn % 3]
    with suppress(subprocess.TimeoutExpired):
        process.wait(1 + draw.below(12_000) / 1000)
    assert process.poll() is None
    (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE_S)
    killed = number == signal.SIGKILL
    said = (process.returncode, out, err.strip())  # a blank line ends the one with the ^C of a terminal
    assert said == ((-9, "", "") if killed else (130, "", "emu: interrupted"))
    until(lambda: not left_of(place))
    subprocess.run(["rm", "-rf", str(place)], check=True)
