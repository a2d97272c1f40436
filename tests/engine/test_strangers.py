"""Strangers at the sockets of a real run are refused and shown, and the run gives its answer all the same."""

import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import ray

from emu.cluster.workers.peers import HELLO_BYTES, PROOF_BYTES, SECRET_BYTES, Handshake, RunIdentity
from emu.engine.outcome import Ending, Observer, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from emu.run_directory.run_directory import RunDirectory
from tests.engine.patience import PATIENCE_S, fetched
from tests.engine.spread_runs import plan_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("kept_workers"),
    # Ray leaves sockets and files to the collector, and warns of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


class Drawn:
    """What the coordinator drew for a run: the first real draws, remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = ""
        self.secret = b""
        draw_name, draw_secret = secrets.token_hex, secrets.token_bytes

        def name(count: int | None = None) -> str:
            found = draw_name(count)
            self.run = self.run or found
            return found

        def secret(count: int | None = None) -> bytes:
            found = draw_secret(count)
            if count == SECRET_BYTES and not self.secret:
                self.secret = found
            return found

        monkeypatch.setattr("emu.cluster.workers.coordinator.secrets.token_hex", name)
        monkeypatch.setattr("emu.cluster.workers.coordinator.secrets.token_bytes", secret)


class Besieged(Observer):
    """Lets `attack` loose on worker 0 when the workers are up, and keeps what is shown of it."""

    def __init__(self, attack: Callable[[str], None]) -> None:
        self._attack = attack
        self.refusals: list[str] = []
        self.page = ""
        """What worker 0 serves, as last seen."""
        self._metrics = ""

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self._metrics = workers[0].metrics_address
        self._attack(workers[0].data_address)

    def progressed(self, progress: Progress) -> None:
        self.refusals += progress.refusals
        if self._metrics:
            self.page = fetched(f"http://{self._metrics}/metrics").decode()


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def heard(connection: socket.socket, count: int = 1 << 20) -> bytes:
    """What the other side says until it closes, or so many bytes."""
    said = b""
    try:
        while len(said) < count and (more := connection.recv(count - len(said))):
            said += more
    except ConnectionError:
        pass
    return said


def test_strangers_are_refused_by_name_and_the_run_gives_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(monkeypatch)
    slow: list[socket.socket] = []

    def introduce(address: str, identity: RunIdentity) -> None:
        with connected(address) as connection:
            hello = Handshake(identity, 1, connects=True)
            connection.sendall(hello.hello)
            answer = heard(connection, HELLO_BYTES + PROOF_BYTES)
            if answer:
                hello.take_hello(answer[:HELLO_BYTES])
                connection.sendall(hello.proof())
            assert heard(connection) == b""

    def attack(address: str) -> None:
        with connected(address) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: worker\r\nAccept: */*\r\n\r\n")
            assert heard(connection) == b""
        introduce(address, RunIdentity(drawn.run, bytes(32), 2))
        introduce(address, RunIdentity(drawn.run, drawn.secret, 2, incarnation=7))
        with connected(address) as connection:
            recorded = Handshake(RunIdentity(drawn.run, drawn.secret, 2), 1, connects=True)
            connection.sendall(recorded.hello)
            recorded.take_hello(heard(connection, HELLO_BYTES + PROOF_BYTES)[:HELLO_BYTES])
        with connected(address) as connection:
            connection.sendall(recorded.hello + recorded.proof())
            assert len(heard(connection)) in (0, HELLO_BYTES + PROOF_BYTES)
        with connected(address) as connection:
            connection.sendall(b"\xff" * (1 << 16))
            assert heard(connection) == b""
        slow.append(connected(address))
        slow[0].sendall(b"emu2")

    plan = plan_of("tiny_all_reduce", 1)
    besieged = Besieged(attack)
    options = RunOptions(workers=2, sockets="tcp")
    outcome = run_scenario(plan.scenario, plan.topology, options, besieged)
    slow[0].close()
    alone = run_scenario(plan.scenario, plan.topology, RunOptions(local=True, metrics=False))
    assert (outcome.ending, outcome.digest) == (Ending.FINISHED, alone.digest)
    assert all(line.startswith("worker 0 refused 127.0.0.1:") for line in besieged.refusals)
    reasons = "\n".join(besieged.refusals)
    assert reasons.count("does not speak this protocol") == 2
    assert reasons.count("whoever calls itself worker 1 does not know the secret of this run") == 2
    assert reasons.count("is of incarnation 7; this run is in its 0") == 1
    assert reasons.count("ended 32 bytes before its proof did") == 1
    # On a busy machine the run may outlast the patience with the slow one.
    assert len([line for line in besieged.refusals if "proved nothing in" not in line]) == 6
    shown = re.search(r"^emu_refused_connections_total (\d+)\.0$", besieged.page, re.MULTILINE)
    assert shown is not None
    assert int(shown[1]) in (6, 7)


def contents_of(place: Path) -> dict[Path, bytes]:
    """Every file there with what it holds; what is removed meanwhile, as Ray does, is passed over."""
    found = {}
    for folder, _, names in os.walk(place):
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):
                found[path] = path.read_bytes() if path.is_file() else b""
    return found


def test_secret_is_in_no_file_of_the_run_or_of_ray_and_in_no_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = Drawn(monkeypatch)
    commands: list[bytes] = []

    def look(_: str) -> None:
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with suppress(OSError):
                    commands.append((process / "cmdline").read_bytes())

    plan = plan_of("tiny_all_reduce", 1)
    with RunDirectory.create("secret", tmp_path / "run") as directory:
        options = RunOptions(workers=2, metrics=False, directory=directory.path)
        outcome = run_scenario(plan.scenario, plan.topology, options, Besieged(look))
    assert outcome.ending is Ending.FINISHED
    node = ray._private.worker.global_worker.node
    assert node is not None
    logs = Path(node.get_session_dir_path(), "logs")
    files = contents_of(tmp_path) | contents_of(logs)
    assert len(files) > 5
    assert len(drawn.secret) == SECRET_BYTES
    assert sum(b"ray::" in command or b"raylet" in command for command in commands) > 2
    for spelt in (drawn.secret, drawn.secret.hex().encode(), repr(drawn.secret).encode()):
        assert [path for path, content in files.items() if spelt in content] == []
        assert [command for command in commands if spelt in command] == []
