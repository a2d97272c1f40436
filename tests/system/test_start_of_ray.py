"""Ray starts while a scenario is loaded: whatever comes of that is one line, and nothing is left.

What is left is looked for in a temporary directory of each command, which all that it starts has.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from emu import api
from tests.engine.patience import PATIENCE_S, until
from tests.scenarios_run.small import ROOT
from tests.system.test_clean_end import SCENARIO, left_of, started

pytestmark = [pytest.mark.ray]
SMALL = SCENARIO.replace("1TiB", "1MiB").replace("1GiB", "64KiB")


@pytest.fixture
def place() -> Iterator[Path]:
    """A temporary directory with a name that is short enough for sockets."""
    found = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.mark.parametrize(
    ("text", "options", "status", "said"),
    [
        (SMALL.replace("permutation", "permutations"), (), 2, "there is no kind 'permutations'"),
        (SMALL.replace("spines: 2", "spines: 0"), (), 2, "spines"),
        (SMALL, ("--set=fidelity=flow",), 0, ""),
    ],
    ids=["a text that is refused", "a fabric that is refused", "a run that needs no Ray"],
)
def test_a_ray_that_was_begun_for_nothing_is_gone_when_the_command_ends(
    place: Path, text: str, options: tuple[str, ...], status: int, said: str
) -> None:
    process = started(place, text, *options)
    until(lambda: list(place.glob("emu-*")) or process.poll() is not None)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, len(err.splitlines())) == (status, "", min(status, 1)), err
    assert said in err
    assert left_of(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_while_ray_starts_ends_all_of_it(place: Path, number: signal.Signals) -> None:
    process = started(place, SCENARIO)
    until(lambda: list(place.glob("emu-*/session_*")))
    (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
    _, err = process.communicate(timeout=PATIENCE_S)
    ended = (-9, "") if number == signal.SIGKILL else (130, "emu: interrupted")
    assert (process.returncode, err.strip()) == ended
    until(lambda: not left_of(place))


def listening(place: Path) -> set[str]:
    """The addresses, as the kernel writes them, at which processes with this temporary directory listen."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text("ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(place) in (entry / "environ").read_bytes():
                targets = [str(one.readlink()) for one in (entry / "fd").iterdir()]
                found |= {f"{entry.name} {sockets[one]}" for one in targets if one in sockets}
    return found


def test_nothing_of_a_run_listens_on_more_than_the_loopback(place: Path) -> None:
    process = started(place, SCENARIO)
    until((place / "out/workers.json").exists)
    found = [one.split() for one in listening(place)]
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert len({pid for pid, _ in found}) == 5, "the command, two servers of Ray and two workers"
    assert {address for _, address in found} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_two_at_once_know_nothing_of_each_other(place: Path) -> None:
    places = [place / one for one in "ab"]
    for one in places:
        one.mkdir()
    runs = [started(one, SMALL) for one in places]
    ended = [(*run.communicate(timeout=PATIENCE_S), run.returncode) for run in runs]
    assert ended == [("", "", 0)] * 2
    summaries = [json.loads((one / "out/summary.json").read_text("utf-8")) for one in places]
    alone = api.run(places[0] / "long.yaml", local=True).summary.digest
    assert [one["digest"] for one in summaries] == [alone] * 2
    assert [left_of(one) for one in places] == [[], []]


def test_a_second_attempt_to_start_ray_starts_all_that_ray_has(place: Path) -> None:
    """As a version does whose agents cannot be left out."""
    program = """
from emu.cluster.ray import session
session.STARTS = 1
with session.ray_session(None, 1):
    import ray
    print(len(ray.nodes()))
"""
    where = os.environ | {"TMPDIR": str(place)}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=ROOT, env=where, capture_output=True, text=True, check=True)
    assert (ended.stdout, left_of(place)) == ("1\n", [])
