"""Callers over a socket get the answer of callers in the process, and one that fails changes no answer."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from emu import api
from emu.base.errors import UsageError
from emu.base.units import format_time
from emu.cli.main import main
from emu.doors.open.open_client import LENGTH, Client, RefusedCall, packed, unpacked
from emu.doors.open.open_server import OpenServer, Stalling
from tests.engine.test_open_run import FABRIC, REFUSED, Script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 60.0


class Served:
    """A server in a thread."""

    def __init__(
        self, address: str | int, names: tuple[str, ...] = ("main",), timeout_s: float = 0.0
    ) -> None:
        self.said: list[str] = []
        self.server = OpenServer(api.open(FABRIC), address, names, timeout_s, self.said.append)
        self.address = address if isinstance(address, str) else ("127.0.0.1", self.server.port)
        self.digest = ""
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.digest = self.server.serve()
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.failure = error

    def client(self, name: str = "main") -> Client:
        return Client(self.address, self.server.token, name)

    def end(self) -> str:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.digest


VALUES = [
    0,
    127,
    128,
    65535,
    2**63 - 1,
    -1,
    -(2**40),
    "",
    "x" * 300,
    b"",
    b"\0" * 70000,
    None,
    True,
    [1, [2, "a"]],
]


@pytest.mark.parametrize("value", [*VALUES, VALUES, {"a": 1, "b": [None]}], ids=range(len(VALUES) + 2))
def test_the_clients_msgpack_is_that_of_the_library(value: Any) -> None:
    assert msgpack.unpackb(packed(value)) == value
    whole = msgpack.packb(value)
    assert unpacked(whole) == (value, len(whole))


@pytest.mark.parametrize("where", ["unix", "tcp"])
def test_a_program_over_a_socket_has_the_answer_of_one_in_the_process(tmp_path: Path, where: str) -> None:
    whole = Script(api.open(FABRIC), 1, 12)
    digest = whole.play()
    served = Served(str(tmp_path / "s") if where == "unix" else 0)
    with served.client() as client:
        for name, args, keys in whole.asked[:3]:
            getattr(client, name)(*args, **keys)
        reported = []
        asked = iter(whole.asked[3:])
        while client.outstanding:
            reported.append(client.next())
            for name, args, keys in [one for one in [next(asked, None)] if one is not None]:
                getattr(client, name)(*args, **keys)
    assert served.end() == digest
    assert [tuple(one) for one in reported] == [tuple(one[:-1]) for one in whole.reported]


def two(served: Served, first: str, second: str, last: Callable[[Client], None]) -> None:
    """Two callers come in some order; `b` ends in some way."""
    clients = {name: served.client(name) for name in (first, second)}
    clients["a"].post(0, 1, 5000, at_ps=100)
    clients["b"].post(1, 0, 5000, at_ps=100)
    clients["b"].promise(2000)
    last(clients["b"])
    assert clients["a"].next().status == 0
    clients["a"].close()


def test_who_comes_first_decides_nothing_and_who_goes_is_ended_at_its_last_promise(tmp_path: Path) -> None:
    def lies(client: Client) -> None:
        with pytest.raises(RefusedCall, match="1999 ps is in the past; accepted: 2000 ps or later"):
            client.post(1, 0, 5000, at_ps=1999)
        client.__exit__(OSError)

    ends: list[Callable[[Client], None]] = [Client.close, lambda client: client.__exit__(OSError), lies]
    digests, said = [], []
    for number, end in enumerate(ends):
        served = Served(str(tmp_path / str(number)), ("a", "b"))
        two(served, *(("a", "b") if number % 2 else ("b", "a")), end)
        digests.append(served.end())
        said.append(served.said)
    assert len(set(digests)) == 1
    assert digests[0]
    assert said[:2] == [[], ["caller b is gone; it is ended at 2000 ps"]]
    assert said[2][0].startswith("caller b is ended: post(1, 0, 5000): 1999 ps is in the past")


def test_a_caller_that_says_nothing_ends_the_run_without_a_digest(tmp_path: Path) -> None:
    served = Served(str(tmp_path / "s"), ("a", "b"), timeout_s=0.2)
    first, second = served.client("a"), served.client("b")
    first.post(0, 1, 10)
    with pytest.raises(RefusedCall, match="the run has ended"):
        first.next()
    for client in (first, second):
        client.__exit__(OSError)
    assert served.end() == ""
    assert isinstance(served.failure, Stalling)
    assert "caller b has said nothing" in str(served.failure)


SOCKET_ONLY: list[tuple[str, tuple[Any, ...], str]] = [
    (
        "post",
        (0, 1),
        r"post\(\): missing a required argument: 'size'; accepted: post\(src, dst, size, at_ps=None",
    ),
    ("digest", (), "there is no call digest; accepted: post, compute, collective"),
    ("next", (5,), r"next\(\): too many positional arguments; accepted: next\(\)"),
]


def test_what_cannot_be_asked_is_refused_in_the_line_of_a_run_in_the_process(tmp_path: Path) -> None:
    served, there = Served(str(tmp_path / "s"), ("main", "other")), api.open(FABRIC)
    other = served.client("other")
    other.promise(10**12)
    client = served.client()
    assert not client.until(100)
    assert not there.until(100)
    cases = [ask for case, (ask, _) in REFUSED.items() if case != "past" and ask[0] != "inject"]
    for name, args, match in SOCKET_ONLY:
        with pytest.raises(RefusedCall, match=match):
            client.call(name, *args)
    disagrees = ("collective", ("all_reduce", 8192, [0, 1]), {"rank": 1})
    for name, args, keys in [*cases, disagrees, REFUSED["past"][0]]:
        if keys == {"rank": 1}:
            for run in (client, there):
                assert run.collective("all_reduce", 4096, [0, 1], rank=0) == 1
        with pytest.raises(RefusedCall) as refused:
            client.call(name, *args, **keys)
        with pytest.raises(UsageError) as mine:
            getattr(there, name)(*args, **keys)
        assert str(refused.value) == str(mine.value)
    other.call("close")
    with pytest.raises(
        RefusedCall, match=r"post\(\): caller other is closed; accepted: before close\(\)|has ended"
    ):
        other.post(0, 1, 1)
    for one in (client, other):
        one.__exit__(OSError)
    assert served.end()
    assert served.said[:2] == [  # all is said once the server has ended
        "caller main is ended: post(0, 1, 1): 99 ps is in the past; accepted: 100 ps or later",
        "caller main is gone; it is ended at 100 ps",
    ]


def test_strangers_are_refused_and_a_refusal_is_the_runs_own_line(tmp_path: Path) -> None:
    served = Served(str(tmp_path / "s"))
    with pytest.raises(RefusedCall, match="the token is wrong"):
        Client(served.address, "00" * 32)
    with pytest.raises(RefusedCall, match="caller nobody is not expected; accepted: main"):
        served.client("nobody")
    with served.client() as client:
        with pytest.raises(RefusedCall, match=r"post\(0, 9, 1\): there is no rank 9; accepted: 0 to 3"):
            client.post(0, 9, 1)
        with pytest.raises(RefusedCall, match="there is no call digest; accepted: post"):
            client.call("digest")
    assert served.end()
    with pytest.raises(UsageError, match="cannot be made"):
        OpenServer(api.open(FABRIC), str(tmp_path / "nowhere" / "s"))


def test_the_command_prints_the_digest_when_all_callers_have_ended(tmp_path: Path) -> None:
    scenario, path = tmp_path / "fabric.yaml", tmp_path / "s"
    scenario.write_text(json.dumps(FABRIC))  # which is YAML
    command = [sys.executable, "-m", "emu.cli.main", "serve", str(scenario), "--socket", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        serving, where, _, token = process.stdout.readline().split()
        with Client(where, token) as client:
            client.post(0, 3, 4096)
            done = client.next()
        lines = process.stdout.read().splitlines()
        assert process.wait(LIMIT_S) == 0
    run = api.open(FABRIC)
    run.post(0, 3, 4096)
    assert tuple(run.next()[:-1]) == done
    assert (serving, where) == ("serving", str(path))
    assert lines == [f"{format_time(run.now_ps)} of virtual time", f"digest {run.close()}"]
    assert not path.exists()


def test_the_command_ends_as_interrupted_and_without_a_digest_if_nobody_comes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "fabric.yaml"
    scenario.write_text(json.dumps(FABRIC))
    assert main(["serve", str(scenario), "--port", "0", "--callers", "a,b", "--caller-timeout", "0.1"]) == 130
    out, err = capsys.readouterr()
    assert err == "emu: interrupted: caller a has not come for 0.1 s\n"
    assert out.startswith("serving 127.0.0.1:")
    assert "digest" not in out
    assert main(["serve", str(scenario)]) == 2
    assert "one of --socket PATH and --port N" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_caller_in_another_language_has_the_same_answer(tmp_path: Path) -> None:
    binary = tmp_path / "caller"
    subprocess.run(["c++", "-std=c++17", "-O1", "-o", binary, HERE / "open_caller.cpp"], check=True)
    served = Served(str(tmp_path / "s"))
    command = [str(binary), str(served.address), served.server.token, "3"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    run, reported = api.open(FABRIC), []
    for _ in range(3):
        run.post(0, 3, 4096, tell="delivered")
        reported.append(run.next().at_ps)
    assert list(map(int, printed.split())) == reported
    assert served.end() == run.close()


def frame(value: Any) -> bytes:
    """A request as it goes over the wire."""
    body = value if isinstance(value, bytes) else msgpack.packb(value)
    return LENGTH.pack(len(body)) + body


ODD: list[Any] = [None, True, -1, 2**63, 1.5, "", "x" * 100_000, b"\0", [], [[]], {}, {"a": [1]}, ["a", None]]
"""Values of all types that msgpack has, for every argument."""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "post": {"src": 0, "dst": 1, "size": 64, "at_ps": 10**9, "qp": "q", "tell": "both", "note": 0},
    "compute": {"rank": 0, "duration": "1us", "at_ps": 10**9, "note": 0},
    "collective": {
        "op": "all_reduce",
        "size": "1KiB",
        "ranks": [0, 1],
        "at_ps": 10**9,
        "rank": 0,
        "on": "c",
        "algorithm": "ring",
        "root": 0,
        "each": True,
        "note": 0,
        "data": None,
        "dtype": "fp32",
        "redop": "sum",
    },
    "cancel": {"number": 10**6},
    "promise": {"no_sooner_ps": 0},
    "next_before": {"at_ps": 0},
    "until": {"at_ps": 0},
}
NOT_REQUESTS: list[Any] = [
    *ODD,
    b"\xc1",
    b"",
    b"\x91" * 2000,
    b"\xa1\xff",
    ["post"],
    ["post", 5, {}],
    [[], [], {}],
]
TAKEN: set[tuple[str, str, Any]] = {
    ("post", "qp", ""),
    ("collective", "on", ""),
    ("collective", "rank", None),
}
TAKEN |= {("cancel", "number", -1), ("cancel", "number", 2**63)}
"""Odd values that mean something, and are left out; so are those of `note`, `at_ps` and `data` of none, of
`each`, and a time that is past, which ends the caller."""


def odd_requests() -> list[Any]:
    """Every argument of every method with every odd value that it cannot mean, and what is no request."""
    found: list[Any] = list(NOT_REQUESTS)
    for method, arguments in ARGUMENTS.items():
        for name in arguments:
            for value in ODD:
                meant = name == "note" or (value is None and name in ("at_ps", "data"))
                meant = meant or (name == "each" and value is True) or (name == "at_ps" and value == -1)
                if not meant and not any((method, name, value) == one for one in TAKEN):
                    found.append([method, [], {**arguments, name: value}])
    return found


def test_every_odd_request_is_refused_in_its_turn_and_changes_nothing(tmp_path: Path) -> None:
    """One caller asks all of them in one write, between two posts; the run's digest is that of the posts."""
    served = Served(str(tmp_path / "s"))
    odd = odd_requests()
    client = served.client()
    asks = [["post", [0, 1, 5000], {}], *odd, ["post", [2, 3, 700], {}], ["next", [], {}], ["next", [], {}]]
    sending = threading.Thread(target=client._socket.sendall, args=[b"".join(map(frame, asks))])
    sending.start()  # nobody reads a whole write before it answers the first request of it
    answers = [client._read() for _ in asks]
    sending.join()
    refused = [answer[0] for answer in answers]
    wrong = [ask for ask, answer in zip(asks, refused, strict=True) if answer != (ask in odd)]
    assert wrong == []
    assert all(len(answer[1]) <= 2000 for answer in answers[1:-3])
    assert [answers[0][1], answers[-3][1]] == [1, 2]
    client.close()
    run = api.open(FABRIC)
    run.post(0, 1, 5000)
    run.post(2, 3, 700)
    assert [run.next().number, run.next().number] == [answers[-2][1][0], answers[-1][1][0]]
    assert served.end() == run.close()
    assert served.failure is None


def test_what_is_asked_behind_a_wait_is_answered_behind_it(tmp_path: Path) -> None:
    """Requests in one write: each has its answer, in order, those behind `next` once `next` has its own."""
    served = Served(str(tmp_path / "s"))
    client = served.client()
    asks: list[Any] = [
        ["post", [0, 1, 4096], {}],
        ["next", [], {}],
        ["post", [1, 0, 4096], {}],
        ["next", [], {}],
    ]
    client._socket.sendall(b"".join(map(frame, [*asks, ["until", [10**9], {}], ["close", [], {}]])))
    answers = [client._read() for _ in range(6)]
    run = api.open(FABRIC)
    run.post(0, 1, 4096)
    first = run.next()
    run.post(1, 0, 4096)
    second = run.next()
    assert answers == [
        [False, 1],
        [False, list(first[:-2])],
        [False, 2],
        [False, list(second[:-2])],
        [False, []],
        [False, None],
    ]
    run.until(10**9)
    assert served.end() == run.close()
    client.__exit__(OSError)
