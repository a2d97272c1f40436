"""`emu doctor`: whether this machine has what a run needs.

Each check is one line: ok, note (a run works, with less speed or fewer features) or fail (a run will not
work), and what to do. Exit status 0 unless something fails; then 4.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import click

import emu
from actors.compiled.build import CannotCompileError, refuse_unless_possible
from emu.base import doors
from emu.base.cores import usable_cores
from emu.base.errors import RuntimeFailure
from emu.cli.core_commands import CORE
from emu.terminal.columns import say

LEAST_PYTHON: Final = (3, 11)
LEAST_MEMORY_BYTES: Final = 2 * 2**30
LEAST_FILES: Final = 1024
LEAST_PORTS: Final = 1000
PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
REACH_S: Final = 2.0
LONGEST_TEMP_PATH: Final = 60
"""A Unix socket's path ends at 108 bytes; ours add some 40 to the temporary directory."""


class Check(NamedTuple):
    """What was looked at, how it is, and what was found."""

    name: str
    state: str
    """`ok`, `note` or `fail`."""
    text: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--bench", is_flag=True, help="Measure what workers cost here instead: half a minute.")
def command(as_json: bool, bench: bool) -> int:
    """Check what a run needs on this machine, and say what to do about what is missing."""
    if bench:
        return _bench(as_json)
    checks = [check() for check in CHECKS]
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks], indent=2))
    else:
        for check in checks:
            say(f"{check.state:<5} {check.name:<10} {check.text}")
    failed = any(check.state == "fail" for check in checks)
    return RuntimeFailure.exit_status if failed else 0


def _bench(as_json: bool) -> int:
    from emu.cli.doctor_bench import prices  # noqa: PLC0415  only this needs Ray

    found = prices()
    if as_json:
        click.echo(json.dumps([price._asdict() for price in found], indent=2))
    else:
        for price in found:
            click.echo(f"{price.value:8.2f} {price.unit:<3} {price.name}")
        click.echo(f"packet path {emu.compiled_state()}; docs/scale.md computes with these")
    return 0


def check_python() -> Check:
    """The interpreter."""
    text = f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"
    if sys.version_info[:2] < LEAST_PYTHON:
        return Check("python", "fail", f"{text}; needs 3.11 or later")
    return Check("python", "ok", text)


def check_compiled() -> Check:
    """Whether the packet path is compiled, and why not."""
    state = emu.compiled_state()
    return Check("packets", "ok" if emu.is_compiled() else "note", state)


def check_ray() -> Check:
    """Whether Ray is there, without importing it, which takes a second."""
    try:
        return Check("ray", "ok", version("ray"))
    except PackageNotFoundError:
        return Check("ray", "fail", "not installed; run `make setup`; one process goes without")


def check_cores() -> Check:
    """The cores this process may use; the default is a worker for each."""
    cores = usable_cores()
    return Check("cores", "ok" if cores > 1 else "note", f"{cores}, so as many workers by default")


def check_memory() -> Check:
    """The memory that is free for use."""
    available_bytes = _available_memory_bytes()
    if available_bytes == 0:
        return Check("memory", "note", "cannot be read here")
    text = f"{available_bytes / 2**30:.1f} GiB available"
    if available_bytes < LEAST_MEMORY_BYTES:
        return Check("memory", "note", f"{text}; Ray needs some 1 GiB: use one process, or fewer workers")
    return Check("memory", "ok", text)


def check_temporary() -> Check:
    """Whether sockets fit in the temporary directory."""
    path = Path(tempfile.gettempdir())
    if not os.access(path, os.W_OK | os.X_OK):
        return Check("temp", "fail", f"{path} cannot be written; set TMPDIR to a directory that can")
    if len(os.fsencode(path)) > LONGEST_TEMP_PATH:
        return Check("temp", "fail", f"{path} is too long for Unix sockets; set TMPDIR to a shorter one")
    return Check("temp", "ok", str(path))


def check_files() -> Check:
    """How many files a process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        return Check("files", "note", f"{soft} open files; `ulimit -n {LEAST_FILES}` for many workers")
    return Check("files", "ok", f"{soft} open files, at most {hard}")


def check_shared_memory() -> Check:
    """Whether Ray's object store has room."""
    shared = Path("/dev/shm")  # noqa: S108 - looked at, nothing is put there
    if not shared.is_dir():
        return Check("shm", "note", f"no {shared}; Ray falls back to files")
    if not os.access(shared, os.W_OK | os.X_OK):
        return Check("shm", "fail", f"{shared} cannot be written, as Ray must; one process does without")
    free_bytes = shutil.disk_usage(shared).free
    return Check("shm", "ok" if free_bytes >= 2**27 else "note", f"{free_bytes / 2**30:.1f} GiB free")


def check_compiler() -> Check:
    """Whether the packet path can be compiled here: a C compiler, Python's headers, mypyc."""
    try:
        refuse_unless_possible()
    except CannotCompileError as error:
        if emu.is_compiled():
            return Check("compiler", "ok", f"{error}; none is needed, the packet path is compiled")
        return Check("compiler", "note", f"{error}; runs interpreted, with the same answers")
    return Check("compiler", "ok", "C compiler, headers and mypyc are here")


def check_ports() -> Check:
    """Whether sockets on loopback can be opened and reached, and how many ports the kernel gives out."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            where = server.getsockname()
            socket.create_connection(where, timeout=REACH_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        return Check("ports", "fail", f"127.0.0.1 cannot be listened on and reached: {reason}")
    try:
        low, high = (int(word) for word in PORT_RANGE.read_text("ascii").split())
    except (OSError, ValueError):
        return Check("ports", "ok", f"127.0.0.1:{where[1]} answers")
    state = "ok" if high - low >= LEAST_PORTS else "note"
    return Check("ports", state, f"127.0.0.1 answers; the kernel gives out {low} to {high}")


def check_token() -> Check:
    """What emu shows to a Ray cluster that is not its own. The token itself is not read."""
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode and mode.lower() != "token":
        return Check("token", "note", f"RAY_AUTH_MODE={mode}: clusters of other machines need --unprotected")
    places = [name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if name in os.environ]
    stored = Path.home() / ".ray" / "auth_token"
    if stored.exists():
        if stored.stat().st_mode & 0o077:
            return Check("token", "note", f"others may read {stored}; `chmod 600 {stored}`")
        places.append(str(stored))
    if not places:
        return Check(
            "token", "ok", "none, and none is needed here; for a cluster: `ray get-auth-token --generate`"
        )
    return Check("token", "ok", f"from {places[0]}")


def check_promtool() -> Check:
    """Whether Prometheus' own checker is there, which some tests use."""
    found = shutil.which("promtool")
    if found is None:
        return Check("promtool", "note", "not found; install Prometheus to check metrics and rules with it")
    return Check("promtool", "ok", found)


def check_doors() -> Check:
    """What other packages add to emu, and what of it is refused; loads none of it."""
    added = doors.foreign()
    if not added:
        return Check("doors", "ok", f"{len(doors.own_doors())} of emu's own, none of other packages")
    taken = {"command": [*CORE, *doors.own_commands()]}
    refusals = [refusal for one in added if (refusal := doors.refused(one, taken.get(one.kind, ())))]
    listed = ", ".join(f"{one.kind} {one.name} ({one.package})" for one in added)
    return Check("doors", "note" if refusals else "ok", "; ".join([listed, *refusals]))


def _available_memory_bytes() -> int:
    """What the kernel says is available; 0 where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


CHECKS: Final[tuple[Callable[[], Check], ...]] = (
    check_python,
    check_compiled,
    check_compiler,
    check_ray,
    check_token,
    check_ports,
    check_cores,
    check_memory,
    check_temporary,
    check_files,
    check_shared_memory,
    check_promtool,
    check_doors,
)
