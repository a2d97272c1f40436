"""What ends a run ends it in one line, with the right status, and nothing is left: each row of the table in
docs/recovery.md is provoked, here or where a test says so with `pytest.mark.provokes`.
"""

import ast
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu import api
from emu.base.errors import RuntimeFailure
from emu.cli.main import main
from tests.engine.patience import PATIENCE_S, until
from tests.engine.test_recovery import Vandal, disturbed, quiet
from tests.scenarios_run.small import ROOT
from tests.system.test_clean_end import SCENARIO, left_of

TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"
SAMPLED = "1us"
FEW = 8
"""File descriptors, which a worker has long since."""


class Doomed:
    """`emu run` of a long scenario on a Ray of its own, which is started at once."""

    def __init__(self, **environment: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        (self.place / "long.yaml").write_text(SCENARIO, encoding="utf-8")
        self.out = self.place / "out"
        words = ["run", str(self.place / "long.yaml"), "--workers=2", "--quiet", "--recoveries=0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "emu.cli.main", *words, "--out", str(self.out)],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(self.place), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """Kill the process of its Ray that has this name, once its workers are up."""
        until(lambda: (self.out / "workers.json").exists() or self.process.poll() is not None)
        os.kill(until(lambda: self._pid_of(name)), signal.SIGKILL)

    def _pid_of(self, name: str) -> int:
        for entry in Path("/proc").iterdir():
            try:
                program = (entry / "cmdline").read_bytes().split(b"\0")[0]
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if program.endswith(b"/" + name.encode()) and os.fsencode(self.place) in environment:
                return int(entry.name)
        return 0

    def end(self) -> str:
        """The line with which it ended, with status 4, once nothing of it is left."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, out) == (4, ""), err
        (line,) = err.splitlines()
        until(lambda: not left_of(self.place))
        return line.replace(str(self.out), "OUT")

    def close(self) -> None:
        """Whatever a test found."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="module")
def doomed() -> Iterator[dict[str, Doomed]]:
    """Three runs that start together, since most of that is waiting."""
    runs = {
        "memory": Doomed(RAY_memory_usage_threshold="0.001"),
        "raylet": Doomed(),
        "gcs_server": Doomed(),
    }
    yield runs
    for run in runs.values():
        run.close()


@pytest.mark.ray
@pytest.mark.provokes("Ray's memory monitor ends a worker")
def test_a_worker_that_the_memory_monitor_ends_is_one_line_that_says_what_to_do(
    doomed: dict[str, Doomed],
) -> None:
    line = doomed["memory"].end()
    reported = r"emu: worker [01] .*died.*: Ray ended it, because its node ran short of memory \([\d.]+GB of "
    assert re.match(reported, line), line
    assert "accepted: fewer --workers, a smaller scenario, more memory" in line


@pytest.mark.ray
@pytest.mark.provokes("the raylet of this machine is killed")
def test_a_raylet_that_is_killed_ends_the_run_at_once_with_the_way_on(doomed: dict[str, Doomed]) -> None:
    doomed["raylet"].kill("raylet")
    line = doomed["raylet"].end()
    assert line == "emu: the Ray node of this machine is gone; emu run --resume OUT goes on with the run"


@pytest.mark.ray
@pytest.mark.provokes("the head of Ray (its GCS) is killed")
def test_a_head_that_is_killed_ends_the_run_at_once_with_the_way_on(doomed: dict[str, Doomed]) -> None:
    doomed["gcs_server"].kill("gcs_server")
    line = doomed["gcs_server"].end()
    gone = r"emu: the (head of the Ray cluster at \S+:\d+|Ray node of this machine) is gone; "
    assert re.fullmatch(gone + "emu run --resume OUT goes on with the run", line), line


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.provokes("a worker raises an unexpected exception")
def test_a_worker_that_raises_is_one_line_and_its_traceback_is_in_the_run_directory(tmp_path: Path) -> None:
    """It has no file descriptors left when it is to begin anew, since the other one was killed."""

    def damage(me: Vandal) -> None:
        resource.prlimit(me.workers[1].pid, resource.RLIMIT_NOFILE, (FEW, FEW))
        os.kill(me.workers[0].pid, signal.SIGKILL)

    vandal = Vandal(damage, [quiet()[0].virtual_ps // 3])
    with pytest.raises(RuntimeFailure) as raised:
        disturbed(vandal, directory=tmp_path)
    details = tmp_path / "worker-1.txt"
    reported = rf"worker 1: \w*Error: .*Too many open files.* \(details in {re.escape(str(details))}\)"
    assert re.fullmatch(reported, str(raised.value)), str(raised.value)
    text = details.read_text("utf-8")
    assert "in where\n" in text
    assert "\x1b" not in text


DISK = """
set -e
mount -t tmpfs -o size=56k,mode=700 none "$1"
shift
status=0
"$@" || status=$?
echo "$status"
find "$place" -name '*.part'
mount -o remount,size=64m "$place"
exec "$python" -m emu.cli.main run --local --quiet --json --resume "$place/out"
"""


@pytest.mark.provokes("there is no room for results")
def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    may = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(place)], capture_output=True, check=False
    )
    if may.returncode:
        pytest.skip("nobody may mount here; test_going_on.py has a limit on the size of a file instead")
    # A snapshot, which a run takes that lasts for seconds, would be told of as well.
    words = ["run", str(TINY), "--local", "--quiet", "--snapshot-every=off"]
    words += ["--set", f"run.sample_every={SAMPLED}"]
    command = [sys.executable, "-m", "emu.cli.main", *words]
    done = subprocess.run(
        ["unshare", "-rm", "/bin/sh", "-c", DISK, "sh", str(place), *command, "--out", str(place / "out")],
        cwd=ROOT,
        env=os.environ | {"place": str(place), "python": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    status, again = done.stdout.split("\n", 1)
    assert (status, done.returncode) == ("4", 0), done.stderr
    (line,) = done.stderr.splitlines()
    full = rf"emu: {re.escape(str(place))}/out/\S+: No space left on device; what was written before is whole"
    assert re.fullmatch(full, line), line
    whole = api.run(TINY, overrides={"run.sample_every": SAMPLED}, local=True)
    assert json.loads(again)["digest"] == whole.summary.digest != ""


@pytest.mark.provokes("`--out` cannot be written")
@pytest.mark.parametrize("out", ["file/run", "/proc/run", "/dev/null"])
def test_a_directory_that_cannot_be_written_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["run", str(TINY), "--local", "--quiet", "--out", out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(("emu: /", "emu: file"))
    assert line.endswith("; give another directory with --out")


@pytest.mark.provokes("`--out` holds an earlier run, or something else")
@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("summary.json", "holds the results of an earlier run"),
        ("thesis.tex", "holds other things than a run"),
    ],
)
def test_a_directory_that_holds_something_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, reported: str
) -> None:
    for each in ("journal.jsonl", name):
        (tmp_path / each).write_text("ten years", encoding="utf-8")
    assert main(["run", str(TINY), "--local", "--quiet", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}: " in line
    assert reported in line
    assert (tmp_path / name).read_text("utf-8") == "ten years"


def test_every_row_of_the_table_is_provoked_by_a_test() -> None:
    page = (ROOT / "docs" / "recovery.md").read_text("utf-8")
    table = page.partition("| event |")[2].partition("\n\n")[0]
    rows = {line.split("|")[1].strip() for line in table.splitlines()[2:]}
    provoked = set()
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for text in (text for text in texts if "mark.provokes(" in text):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.provokes":
                (row,) = node.args
                provoked.add(ast.literal_eval(row))
    assert provoked == rows
