"""The control socket, by which a command on this machine reaches a live run.

Through a Unix socket `control.sock` in the run's directory, which only its owner may enter. The peer's user,
as the kernel tells it (SO_PEERCRED), must be the run's own; there is no secret that could be seen in a
command line. One request a connection: a line of JSON, answered by a line of JSON.

    {"do": "inject", "fault": {"kind": "link_down", "target": "rtsw-0:ctsw-3"}}   {"fault": 2, "at_ps": ..}
    {"do": "clear", "fault": 2}                                                   {"fault": 2, "at_ps": ..}
    {"do": "capture", "capture": {"ports": "nic-0-0", "for": "1ms"}}              {"capture": 0, "at_ps": ..}
    {"do": "list"}                                        {"faults": [..], "virtual_ps": ..}

What cannot be done is answered {"refused": REASON}. Requests are bounded in size and time, and each
connection has a thread of its own, so nobody waits for a client that is slow or silent.

A Unix socket's path ends at 108 bytes and a run's directory may be longer, so both ends name it through an
open descriptor of the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as cut
from typing import TYPE_CHECKING, Any, Final

from emu.base.errors import RuntimeFailure, UsageError
from emu.base.units import shown_time
from emu.run_directory.run_directory import SOCKET

if TYPE_CHECKING:
    from emu.engine.steering import Steering

MOST_BYTES: Final = 64 * 1024
TIMEOUT_S: Final = 30.0
"""How long a request may take to arrive, and an answer to leave, in all."""
MOST_CLIENTS: Final = 32
"""How many connections are served at one time; a further one is refused with that reason."""
AGAIN_S: Final = 0.1
"""How soon a process without descriptors accepts again."""
LINGER_S: Final = 5.0
"""How long `close` waits for a request that is being answered."""
MADE_S: Final = 60.0
"""How long a change may take: a sync point is a round away, but a round may be long on a busy machine."""
CREDENTIALS: Final = struct.Struct("3i")


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A short name of the socket in a directory."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


class ControlSocket:
    """Serves a run's steering in a thread of its own, until `close`."""

    def __init__(self, directory: Path, steering: Steering) -> None:
        self._steering = steering
        self._path = directory / SOCKET
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        umask = os.umask(0o177)
        try:
            with _short(directory) as name:
                self._socket.bind(name)
            self._socket.listen(2 * MOST_CLIENTS)
        except OSError as error:
            self._socket.close()
            raise RuntimeFailure(f"{self._path}: cannot be made: {error.strerror}") from None
        finally:
            os.umask(umask)
        self._closed = False
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more, and remove the socket. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._steering.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        self._thread.join(LINGER_S)

    def _serve(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                time.sleep(AGAIN_S)  # after `close`, this was the last; else the process lacks something
                continue
            if self._clients.acquire(blocking=False):
                name = f"control-{connection.fileno()}"
                threading.Thread(target=self._attend, args=(connection,), name=name, daemon=True).start()
            else:
                with connection, contextlib.suppress(OSError):
                    connection.sendall(_line({"refused": f"{MOST_CLIENTS} requests are under way already"}))

    def _attend(self, connection: socket.socket) -> None:
        """Answer one request."""
        try:
            with connection, contextlib.suppress(OSError):
                if _user_of(connection) == os.geteuid():
                    request = _read_line(connection, TIMEOUT_S)
                    answer = self._answer(request)
                    connection.settimeout(TIMEOUT_S)
                    connection.sendall(answer)
        finally:
            self._clients.release()

    def _answer(self, request: bytes) -> bytes:
        try:
            asked = json.loads(request)
            answer = self._do(asked) if isinstance(asked, dict) else {"refused": "not a request"}
        except UsageError as error:
            answer = {"refused": str(error)}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            answer = {"refused": "not a request"}
        return _line(answer)

    def _do(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        steering = self._steering
        if asked["do"] == "list":
            return {"faults": fault_list(steering), "virtual_ps": steering.virtual_ps}
        if asked["do"] == "inject":
            order = steering.inject(dict(asked["fault"]))
        elif asked["do"] == "clear":
            if type(asked["fault"]) is not int:
                return {"refused": f"fault {cut(asked['fault'])}; accepted: the number of a fault"}
            order = steering.clear(asked["fault"])
        elif asked["do"] == "capture":
            order = steering.capture(dict(asked["capture"]))
        else:
            return {"refused": f"there is no request {cut(asked['do'])}"}
        if not order.wait(MADE_S):
            return {"refused": f"ordered, but not made within {MADE_S:.0f} s"}
        if order.capture >= 0:
            return {"capture": order.capture, "at_ps": order.made_ps}
        return {"fault": order.fault, "at_ps": order.made_ps}


def fault_list(steering: Steering) -> list[dict[str, Any]]:
    """Every fault of a run, by number: kind, target, from when to when, and how it stands."""
    rows: list[dict[str, Any]] = []
    for number, fault in enumerate(steering.scenario.faults):
        until_ps = steering.until_ps(number)
        state = "over" if until_ps is not None and until_ps <= steering.virtual_ps else "active"
        if fault.at_ps > steering.virtual_ps:
            state = "to come"
        elif until_ps is None and "for_ps" not in type(fault).model_fields:
            state = "done"
        rows.append(
            {
                "fault": number,
                "kind": fault.kind,
                "target": " ".join([fault.hits, *_found(steering, number)]).strip(),
                "at": shown_time(fault.at_ps),
                "until": "" if until_ps is None else shown_time(until_ps),
                "state": state,
            }
        )
    return rows


def _found(steering: Steering, number: int) -> list[str]:
    """What a fault that hits the busiest hit the last time."""
    hit = [name for (fault, _), name in sorted(steering.measured.items()) if fault == number]
    return [f"({hit[-1]})"] if hit else []


def ask(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the run in a directory. Raises UsageError if there is none, it has ended, or it refuses."""
    if not (directory / "journal.jsonl").is_file():
        raise UsageError(f"{directory}: there is no run; accepted: the directory that `emu up` printed")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            with _short(directory) as name:
                connection.connect(name)
        except PermissionError:
            raise UsageError(f"{directory}: the run belongs to somebody else") from None
        except OSError:
            raise UsageError(f"{directory}: {OVER_OR_NOT_LIVE}") from None
        try:
            with contextlib.suppress(BrokenPipeError):  # who refuses at once closes; the answer says why
                connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_read_line(connection, TIMEOUT_S + MADE_S))
        except (OSError, ValueError) as error:
            raise UsageError(f"{directory}: the run has ended, or does not answer ({error})") from None
    if "refused" in answer:
        raise UsageError(str(answer["refused"]))
    return answer


OVER_OR_NOT_LIVE: Final = "the run has ended, or was not started with `emu up`"


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _read_line(connection: socket.socket, within_s: float) -> bytes:
    """A line, or what there is of it when the other side closes. Raises TimeoutError."""
    line = b""
    deadline_s = time.monotonic() + within_s
    while not line.endswith(b"\n") and len(line) < MOST_BYTES:
        connection.settimeout(max(deadline_s - time.monotonic(), 1e-3))
        more = connection.recv(MOST_BYTES - len(line))
        if not more:
            break
        line += more
    return line


def _user_of(connection: socket.socket) -> int:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(packed)[1])
