"""`emu doctor`: does this machine have what a run needs?

Each check is one line: ok, note (a run works, with less speed or fewer features) or fail (a run will not
work), and what to do. Exit status 0 unless something fails; then 4.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import click

import emu
from emu.errors import RuntimeFailure

LEAST_PYTHON: Final = (3, 11)
LEAST_MEMORY_BYTES: Final = 2 * 2**30
LEAST_FILES: Final = 1024
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
def command(as_json: bool) -> int:
    """Check what a run needs on this machine, and say what to do about what is missing."""
    checks = [check() for check in CHECKS]
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks], indent=2))
    else:
        for check in checks:
            click.echo(f"{check.state:<5} {check.name:<10} {check.text}")
    failed = any(check.state == "fail" for check in checks)
    return RuntimeFailure.exit_status if failed else 0


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
        return Check("ray", "fail", "not installed; run `make setup`, or use `emu run --local`")


def check_cores() -> Check:
    """The cores this process may use; the default is a worker for each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Check("cores", "ok" if cores > 1 else "note", f"{cores}, so as many workers by default")


def check_memory() -> Check:
    """The memory that is free for use."""
    available_bytes = _available_memory_bytes()
    if available_bytes == 0:
        return Check("memory", "note", "cannot be read here")
    text = f"{available_bytes / 2**30:.1f} GiB available"
    if available_bytes < LEAST_MEMORY_BYTES:
        return Check("memory", "note", f"{text}; Ray needs some 1 GiB: use --local, or fewer workers")
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
    free_bytes = shutil.disk_usage(shared).free
    return Check("shm", "ok" if free_bytes >= 2**27 else "note", f"{free_bytes / 2**30:.1f} GiB free")


def check_promtool() -> Check:
    """Whether Prometheus' own checker is there, which some tests use."""
    found = shutil.which("promtool")
    if found is None:
        return Check("promtool", "note", "not found; install Prometheus to check metrics and rules with it")
    return Check("promtool", "ok", found)


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
    check_ray,
    check_cores,
    check_memory,
    check_temporary,
    check_files,
    check_shared_memory,
    check_promtool,
)
