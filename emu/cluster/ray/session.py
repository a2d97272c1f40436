"""The Ray session of a run: started for it, and gone without a trace afterwards.

Without an address, a cluster of this machine alone is started for the run: the least that Ray can do with
(`emu.cluster.ray.head`), the smallest object store, no usage statistics, no worker output in the
terminal, its files in a directory that only this user may enter and that is removed at the end. It takes two
seconds, in which `begun` lets a command load its scenario. With an address, that cluster is used and left
running. Where this process is already connected to Ray (the tests, a notebook), the
connection is used and kept.

What is started is in sessions of its own, so that a signal to this process and its group (Ctrl-C,
`timeout`) reaches this process alone, which then ends the rest: Ray would wait a minute for a cluster that
dies under it.

Ray is imported here and in the coordinator only, and only when a run needs it.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final

from actors.compiled.finder import BUILD_VARIABLE, choice
from emu.base.errors import RuntimeFailure, UsageError
from emu.base.short_paths import private_directory, remove_private, started_for
from emu.cluster.ray.nodes import speaks_grpc

OBJECT_STORE_BYTES: Final = 80 * 1024 * 1024
"""A little above the least that Ray accepts."""
DAEMON_FILES: Final = 56
FILES_A_CPU: Final = 4
"""Open files of a Ray daemon, and how many more for each CPU: raylet has 59 with two workers, 101 with 16."""
REACH_S: Final = 20.0
UNPROTECTED: Final = (
    "a Ray cluster that asks for no token runs whatever anyone on its network sends it; start it with "
    "RAY_AUTH_MODE=token and set that here too, or say --unprotected"
)
PATIENCE: Final = {
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_agent_register_timeout_ms": "300000",
}
"""How long Ray's processes wait for each other: 5 to 60 s by default, which on a busy machine is too short.
docs/cluster.md and the files under deploy/ set the same for clusters that are started by hand."""
ENVIRONMENT: Final = PATIENCE | {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_worker_niceness": "0",
}
"""What Ray reads, where the user has not said otherwise. By default it has workers at nice 15, where other
processes of the machine come first: here they are as nice as whoever started them."""
REACH_ENVIRONMENT: Final = {"RAY_NUM_REDIS_GET_RETRIES": "3"}
"""How often a cluster that answers, but not as hoped, is asked again; a second lies between."""
PROGRAM: Final = Path(__file__).with_name("head.py")
OF_HEAD: Final = {
    "RAY_preload_python_modules": "emu.cluster.workers.worker",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""What a cluster of this machine reads besides: its processes for workers load emu as they start, before
there is a worker; and nothing listens on more than the loopback, as on desktops."""
LOOPBACK: Final = "ENABLE_RAY_CLUSTER"
"""What Ray calls whether nodes are to be reached from other machines. Without, it takes 127.0.0.1 for what it
is, and not for this machine's address on its network."""
ALL: Final = ("dashboard", "environments")
"""What a cluster for a run is without, as `head.py` calls it."""
STARTS: Final = 2
"""How often it is tried to start a cluster here, the last time with all that Ray has: Ray gives a node 30 s
to come up, whatever is said."""
_TOKEN: Final = secrets.token_hex(32)
"""Guards the clusters that this process starts; Ray caches it, so it lives as long as the process."""
_CHOSEN: Final = any(
    name in os.environ for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
)
"""Whether the user has said how Ray authenticates; asked before Ray says so itself."""


class Head:
    """A cluster of this machine for so many CPUs, from its first process on: `head.py` starts the others."""

    def __init__(self, cpus: int, without: Sequence[str] = ALL) -> None:
        """Raises RuntimeFailure."""
        import subprocess  # noqa: PLC0415  processes, only on Ray

        _check_open_files(cpus)
        self.cpus = cpus
        _set_environment(ENVIRONMENT)
        self.directory = private_directory(inhabited=True)
        _set_token(self.directory)
        words = [str(self.directory), str(cpus), str(OBJECT_STORE_BYTES), *without]
        with started_for(self.directory), _build_carried():
            self._program = subprocess.Popen(  # noqa: S603  our own
                [sys.executable, str(PROGRAM), *words],
                env=OF_HEAD | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                umask=0o077,
            )

    def address(self) -> str:
        """Where it listens, once it does. Raises RuntimeError."""
        line, _ = self._program.communicate()
        found: dict[str, str] = json.loads(line or "{}")
        if "address" not in found:
            status = f"its program ended with status {self._program.returncode}"
            raise RuntimeError(found.get("error", status))
        return found["address"]

    def close(self) -> None:
        """End it, and forget its token. May be called again."""
        self._program.kill()
        with self._program:  # which waits for it
            remove_private(self.directory)
        forget_token()


_begun: Final[list[Head]] = []
"""A cluster that was begun before there was a use for it."""


@contextmanager
def begun(cpus: int) -> Iterator[None]:
    """A cluster of this machine starts while what is inside goes on, up to the `ray_session` that takes it;
    it ends where none does.
    """
    if not _is_connected():
        with suppress(RuntimeFailure):  # which is raised again where the cluster is needed
            _begun.append(Head(cpus))
    try:
        yield
    finally:
        drop_begun()


def drop_begun() -> None:
    """End the cluster that was begun, if nobody has taken it."""
    while _begun:
        _begun.pop().close()


@contextmanager
def ray_session(
    address: str | None,
    cpus: int,
    unprotected: bool = False,
    wheel: Path | None = None,
    without: Sequence[str] = ALL,
) -> Iterator[None]:
    """Ray, connected. `wheel` is the package for nodes of the cluster that lack it; `without` says what one
    that is started here lacks.

    Raises RuntimeFailure in one line if that cannot be had, and UsageError for a cluster of other machines
    that asks nobody for a token, unless it is to be used `unprotected`.
    """
    if address is not None:
        _check_reachable(address)
        if not unprotected and not _has_token() and not _is_here(address):
            raise UsageError(f"{address}: {UNPROTECTED}")
    if _is_connected():
        yield
        return
    if address is None:
        with _own_cluster(cpus, without), _quiet_standard_output():
            yield
        return
    _set_environment(ENVIRONMENT | REACH_ENVIRONMENT)
    with endable() as signals, signals.held():
        import ray  # noqa: PLC0415  takes a third of a second, which only runs on Ray pay
    try:
        try:
            with endable() as signals, _connecting(signals):
                shipped = {} if wheel is None else {"py_modules": [str(wheel)]}
                ray.init(
                    address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=shipped
                )
        except Exception as error:  # noqa: BLE001  whatever Ray raises
            raise _unusable(address, error) from None
        if not unprotected and not _has_token():
            _check_at_home(address)
        with _quiet_standard_output():
            yield
    finally:
        with suppress(Exception):  # a cluster that is gone
            ray.shutdown()


@contextmanager
def _own_cluster(cpus: int, without: Sequence[str]) -> Iterator[None]:
    """A cluster of this machine alone, connected. Raises RuntimeFailure."""
    head: Head | None = None
    try:
        with endable() as signals:
            for left in reversed(range(STARTS)):
                if _begun and _begun[0].cpus < cpus:
                    drop_begun()
                head = _begun.pop() if _begun else Head(cpus, without if left else ())
                with signals.held():
                    import ray  # noqa: PLC0415  as above

                try:
                    where = head.address()
                    # Where it was imported before, it knows the environment of then.
                    import_module("ray._raylet").Config.initialize("")
                    with _connecting(signals), _replaced("ray_constants", LOOPBACK, value=False):
                        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
                except Exception as error:  # noqa: BLE001  Ray raises that where a node is late
                    if not left or "timed out" not in str(error).lower():
                        raise _unusable(None, error) from None
                    ray.shutdown()
                    head.close()
                else:
                    break
        yield
    finally:
        with suppress(Exception):  # a cluster that is gone; what was started here ends with its directory
            sys.modules["ray"].shutdown()
        if head is not None:
            head.close()


def _is_connected() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _check_open_files(cpus: int) -> None:
    """Refuse a limit at which Ray's daemons end as they start, and Ray waits for them over a minute."""
    needed = DAEMON_FILES + FILES_A_CPU * cpus
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise RuntimeFailure(
            f"Ray needs {needed} open files for {cpus} CPUs, and the limit is {allowed}: raise it with "
            f"`ulimit -n {max(needed, 1024)}`, or use --local, which runs without Ray"
        )


def _set_environment(wanted: Mapping[str, str]) -> None:
    """Say to Ray what the user has not said otherwise."""
    os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})


@contextmanager
def _replaced(module: str, name: str, value: object) -> Iterator[None]:
    """Another value for a name that is private to Ray."""
    known = import_module(f"ray._private.{module}")
    before = getattr(known, name, None)
    setattr(known, name, value)
    try:
        yield
    finally:
        setattr(known, name, before)


@contextmanager
def _build_carried() -> Iterator[None]:
    """Have what is started meanwhile run the build that this process runs, whatever becomes ready."""
    before = os.environ.get(BUILD_VARIABLE)
    os.environ[BUILD_VARIABLE] = choice()
    try:
        yield
    finally:
        if before is None:
            del os.environ[BUILD_VARIABLE]
        else:
            os.environ[BUILD_VARIABLE] = before


_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """SIGINT and SIGTERM while something is done that one of them ends."""

    def __init__(self) -> None:
        self.asked = False
        """Whether one came."""
        self._is_held = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """One came."""
        del number, frame
        self.asked = True
        if not self._is_held:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let them wait until what is inside is done: Ray's C++ side, while it connects, takes a read that a
        signal cuts short for the end of its node and aborts the process; and what it has begun waits for ever
        where an exception drops it. Threads that begin inside hear neither signal: where one of Ray's hears
        SIGTERM, it writes about it for seconds, and aborts the process then.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._is_held = True
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._is_held = False
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def endable() -> Iterator[Signals]:
    """Let one SIGINT or SIGTERM end what is done here with KeyboardInterrupt, and leave both as they were.

    Python raises KeyboardInterrupt wherever it is, and where that is a destructor or a callback, as the
    import of modules has one for each lock, it is printed and nobody hears of it; some libraries take it for
    a failure of theirs. So it is noted too, raised again at the end, and not printed.
    Ray replaces what SIGTERM does by an exit.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def tell(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            usual(unraisable)

    before = {number: signal.signal(number, signals.note) for number in _ENDING}
    usual, sys.unraisablehook = sys.unraisablehook, tell
    try:
        yield signals
    except SystemExit:
        raise KeyboardInterrupt from None
    except Exception:
        if signals.asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            if handler is not None:  # which was there before Python
                signal.signal(number, handler)
        sys.unraisablehook = usual
    if signals.asked:
        raise KeyboardInterrupt


@contextmanager
def _connecting(signals: Signals) -> Iterator[None]:
    """What goes on while Ray connects: signals wait, also where Ray would set that SIGTERM exits."""
    setting = _replaced("utils", "set_sigterm_handler", _do_nothing)
    with _quiet_standard_error(), setting, signals.held():
        yield


def _quiet_standard_output() -> AbstractContextManager[None]:
    """Keep Ray from printing what it notices of nodes where results are printed: the run says it itself."""
    return _replaced("worker", "print_to_stdstream", _do_nothing)


def _do_nothing(*_: object, **__: object) -> None:
    """In place of functions of Ray."""


@contextmanager
def _quiet_standard_error() -> Iterator[None]:
    """Drop what Ray's C++ side writes of signals, and of attempts to connect: the exception says it too."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _set_token(directory: Path) -> None:
    """Let nobody else use the cluster, unless the user has chosen a way of doing that."""
    if not _CHOSEN:
        path = directory / "token"
        try:
            path.write_text(_TOKEN, encoding="ascii")
        except OSError as error:
            raise RuntimeFailure(f"{path}: {error.strerror}") from None
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # as Ray does for a cluster that it starts


def forget_token() -> None:
    """Let nothing that is started later look for the token of a cluster that has ended, unless the user has
    chosen it.
    """
    if not _CHOSEN:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
            os.environ.pop(name, None)


def _has_token() -> bool:
    """Whether this process shows a token to the clusters it connects to, and so cannot do without one."""
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode:
        return mode.lower() == "token"
    given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return given or Path.home().joinpath(".ray", "auth_token").exists()


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine: something can be bound to it."""
    if address == "auto":
        return True  # asked again once the nodes are known
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
    except OSError:
        return False
    return True


def _check_at_home(address: str) -> None:
    """Refuse a cluster that has nodes on other machines. Raises UsageError."""
    import ray  # noqa: PLC0415  as above

    for node in ray.nodes():  # type: ignore[no-untyped-call]
        host = str(node["NodeManagerAddress"])
        if node["Alive"] and not _is_here(f"{host}:0"):
            raise UsageError(f"{address}: its node {host} is another machine; {UNPROTECTED}")


def _check_reachable(address: str) -> None:
    """Say so at once if nothing listens at HOST:PORT, or no gRPC server; Ray itself tries for minutes."""
    if address == "auto":
        return
    plain = address.removeprefix("ray://")
    host, _, port = plain.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"{address!r} is no address of a Ray cluster; accepted: auto, HOST:PORT, ray://HOST:PORT"
        )
    try:
        speaks = speaks_grpc(host, int(port), REACH_S)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise RuntimeFailure(f"no Ray cluster at {address}: {reason}") from None
    if not speaks:
        raise RuntimeFailure(f"no Ray cluster at {address}: something else listens there")


def _unusable(address: str | None, error: Exception) -> RuntimeFailure:
    """Why Ray cannot be had, in a line."""
    where = "on this machine" if address is None else f"at {address}"
    hint = "" if address is None or _CHOSEN else "; if it asks for a token, set RAY_AUTH_MODE=token"
    return RuntimeFailure(f"Ray {where} cannot be used: {_first_line(error)}{hint}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
