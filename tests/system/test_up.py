"""Can an operator run a scenario, break it from another terminal, end it, and repeat what happened?"""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from emu import api
from emu.base.errors import UsageError
from emu.cli.main import main
from emu.engine.live import control_socket
from emu.engine.live.control_socket import ControlSocket, ask
from tests.engine.patience import PATIENCE_S, fetched, until

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"


class Up:
    """`emu up` in a process of its own, as soon as it says where its metrics are."""

    def __init__(self, place: Path, *options: str) -> None:
        self.out = place / "a rather long name of a directory for the results of a run" / ("of " * 30)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "emu.cli.main", "up", str(TINY), "--out", str(self.out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.said = []
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("metrics of "):
                break

    def end(self) -> tuple[str, str]:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def ended() -> Iterator[tuple[Up, list[int], str]]:
    """A run that was broken twice and ended; the exit statuses of what was asked of it, and what it said."""
    place = Path(tempfile.mkdtemp(prefix="emu-up-"))
    run = Up(place, "--local", "--pace", "2ms/s", "--set", "transport.timeout=9")
    try:
        at = str(run.out)
        statuses = [
            main(["fault", "inject", at, "link_down", "for=300us", "rtsw-0:ctsw-1"]),
            main(["fault", "inject", at, "link_down", "rtsw-0:ctsw-0"]),
            main(["fault", "list", at]),
            main(["fault", "clear", at, "1"]),
            main(["fault", "inject", at, "link_down", "rtsw-0:ctsw-9"]),
            main(["fault", "clear", at, "1"]),
            main(["fault", "inject", at, "link_down", "rtsw-0:ctsw-1", "nonsense"]),
        ]
        until(lambda: ask(run.out, {"do": "list"})["virtual_ps"] > 8 * 10**9)
        listed = json.loads((run.out / "targets.json").read_text("utf-8"))
        assert listed == json.loads(fetched(run.said[-1].split()[-1]))
        mode = stat.S_IMODE((run.out / "control.sock").stat().st_mode)
        assert (mode, stat.S_IMODE(run.out.stat().st_mode)) == (0o600, 0o700)
        out, err = run.end()
        assert (run.process.returncode, err) == (0, "")
        yield run, statuses, out
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.communicate()
        shutil.rmtree(place)


def test_ctrl_c_is_an_ordinary_end_with_results(ended: tuple[Up, list[int], str]) -> None:
    run, statuses, out = ended
    assert statuses == [0, 0, 0, 0, 2, 2, 2]
    assert "injected fault 0: link_down rtsw-0:ctsw-1 at " in out
    assert "cleared fault 1: link_down rtsw-0:ctsw-0 at " in out
    summary = json.loads((run.out / "summary.json").read_text("utf-8"))
    assert summary["ending"] == "finished"
    assert [fault["target"] for fault in summary["faults"]] == ["rtsw-0:ctsw-1", "rtsw-0:ctsw-0"]
    assert not (run.out / "control.sock").exists()


def test_what_was_done_is_in_the_journal(ended: tuple[Up, list[int], str]) -> None:
    run, _, _ = ended
    entries = [json.loads(line) for line in (run.out / "journal.jsonl").read_text("ascii").splitlines()]
    assert [next(iter(one["change"])) for one in entries if one["kind"] == "change"] == [
        "inject",
        "inject",
        "clear",
    ]


def test_a_run_that_has_ended_takes_no_orders(
    ended: tuple[Up, list[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _, _ = ended
    for words in (["inject", str(run.out), "link_down", "rtsw-0:ctsw-1"], ["list", str(run.out)]):
        capsys.readouterr()
        assert main(["fault", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "the run has ended" in line
    assert main(["fault", "list", str(run.out.parent)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no run" in line
    assert main(["replay", str(run.out.parent)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_run_is_repeated_bit_for_bit(
    ended: tuple[Up, list[int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _, _ = ended
    options = ["--local", "--parts", "3", "--out", str(tmp_path / "again")]
    assert main(["replay", str(run.out), *options]) == 0
    digest = json.loads((run.out / "summary.json").read_text("utf-8"))["digest"]
    assert f"the same, bit for bit: digest {digest}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [["--pace", "1ms"], ["--pace", "2s/s"], ["--pace", "fast"], ["--for", "3"], ["--parts=2", "--workers=2"]],
)
def test_what_cannot_be_meant_is_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", str(TINY), *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([])
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(60)
    try:
        client.connect("control.sock")
        client.sendall(b'{"do":"list"}\\n')
        print("answered" if client.recv(100) else "not answered")
    except PermissionError:
        print("not let in")
    except ConnectionError:
        print("not answered")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be somebody else")
def test_another_user_is_not_let_in_and_not_answered_either(tmp_path: Path) -> None:
    prepared = api.prepare(TINY)
    (tmp_path / "journal.jsonl").touch()
    served = ControlSocket(tmp_path, api.Steering(prepared.scenario, prepared.topology))
    try:
        for open_to_all, reported in ((False, "not let in"), (True, "not answered")):
            if open_to_all:  # Then it is the kernel's word alone that keeps the stranger out.
                tmp_path.chmod(0o755)
                (tmp_path / "control.sock").chmod(0o666)
            command = [sys.executable, "-c", STRANGER, str(tmp_path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout.strip() == reported
        assert ask(tmp_path, {"do": "list"})["virtual_ps"] == 0
    finally:
        served.close()


def test_nonsense_on_the_socket_is_refused_and_the_next_is_answered(tmp_path: Path) -> None:
    prepared = api.prepare(TINY)
    steering = api.Steering(prepared.scenario, prepared.topology)
    (tmp_path / "journal.jsonl").touch()
    served = ControlSocket(tmp_path, steering)
    try:
        for nonsense in (b"\n", b"[]\n", b"{}\n", b'{"do":"dance"}\n', b"\xff" * 70_000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(str(tmp_path / "control.sock"))
                client.sendall(nonsense)
                client.shutdown(socket.SHUT_WR)
                assert json.loads(client.recv(4096)).keys() == {"refused"}
        assert ask(tmp_path, {"do": "list"}) == {"faults": [], "virtual_ps": 0}
        with pytest.raises(UsageError, match="there is no fault 3"):
            ask(tmp_path, {"do": "clear", "fault": 3})
    finally:
        served.close()
    with pytest.raises(UsageError, match="the run has ended"):
        ask(tmp_path, {"do": "list"})


def silent(path: Path, opened: ExitStack, said: bytes) -> None:
    """A client that says no whole line, until `opened` is closed."""
    client = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    client.connect(str(path / "control.sock"))
    with suppress(BrokenPipeError):  # refused already: an answered request may still hold a place
        client.sendall(said)


def test_clients_that_say_no_line_keep_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "TIMEOUT_S", 600.0)
    prepared = api.prepare(TINY)
    (tmp_path / "journal.jsonl").touch()
    served = ControlSocket(tmp_path, api.Steering(prepared.scenario, prepared.topology))
    reported = ""
    try:
        with ExitStack() as opened:
            silent(tmp_path, opened, b'{"do":')
            silent(tmp_path, opened, b"")
            assert ask(tmp_path, {"do": "list"})["virtual_ps"] == 0
            while not reported:
                silent(tmp_path, opened, b"")
                try:
                    ask(tmp_path, {"do": "list"})
                except UsageError as error:
                    reported = str(error)
        assert reported == "32 requests are under way already"
    finally:
        served.close()


def test_a_request_that_trickles_in_is_given_up_in_all_and_not_byte_by_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "TIMEOUT_S", 0.2)
    prepared = api.prepare(TINY)
    served = ControlSocket(tmp_path, api.Steering(prepared.scenario, prepared.topology))
    given_up = False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(tmp_path / "control.sock"))
            while not given_up:  # each byte comes in time, the line never
                try:
                    client.sendall(b"{")
                except ConnectionError:
                    given_up = True
                time.sleep(0.05)
    finally:
        served.close()
