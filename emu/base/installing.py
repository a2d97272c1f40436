"""Installation of the environment of a clone.

    python3 -m emu.base.installing run      # what `make run` needs
    python3 -m emu.base.installing dev      # and what `make test` needs

makes `.venv` and installs the versions of `constraints.txt` there: by uv, which takes seconds where pip takes
most of a minute, or by pip where uv cannot be had or cannot do it. The environment of a run gets no pip of
its own where this Python has one and uv can be had. Needs nothing but Python with venv; the Makefile starts
it. One process at a time does it, and others wait. What cannot be done is one line and exit status 1.
"""

import fcntl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / ".venv"
PYTHON: Final = PLACE / "bin" / "python"
LOG: Final = PLACE / "install.log"
SOURCES: Final = ("constraints.txt", "pyproject.toml", "setup.py")
STAMPS: Final = {"run": ("runnable",), "dev": ("runnable", "installed")}
"""Files that `make` looks at; each is as new as what was installed."""
BUILD: Final = ("setuptools", "wheel", "mypy")
"""What builds this package; installed first, from the same list, because nothing is built in isolation."""
QUIETLY: Final = ("--quiet", "--disable-pip-version-check")
PINNED: Final = ("-c", "constraints.txt")


class CannotInstallError(Exception):
    """Why there is no environment, in one line."""


def is_done(kind: str) -> bool:
    """Whether what is installed is as new as what says what to install."""
    stamps = [PLACE / name for name in STAMPS[kind]]
    newest_ns = max((ROOT / name).stat().st_mtime_ns for name in SOURCES)
    return all(stamp.exists() and stamp.stat().st_mtime_ns > newest_ns for stamp in stamps)


def do(*words: str) -> bool:
    """Run a command, its output in the log, and say whether it succeeded."""
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(words)}\n")
        log.flush()
        try:
            done = subprocess.run(
                words, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False
            )
        except OSError as error:
            log.write(f"{error}\n")
            return False
    return done.returncode == 0


def last_error() -> str:
    """The last line of the log that says what went wrong."""
    lines = [line.strip() for line in LOG.read_text("utf-8", "replace").splitlines() if line.strip()]
    if any("connection broken by" in line for line in lines):
        return "the package index does not answer"
    if any("No matching distribution" in line or "ResolutionImpossible" in line for line in lines):
        return "the package index does not have them"
    errors = [line for line in lines if line.lower().startswith(("error:", "error "))]
    return ([*lines[-1:], *errors] or ["no reason given"])[-1]


def by_uv(*pip: str, package: Sequence[str]) -> bool:
    """Have a pip put uv into the environment, and uv all else; whether both could."""
    to_environment = (str(PLACE / "bin" / "uv"), "pip", "install", "--python", str(PYTHON), *PINNED)
    return (
        do(*pip, "install", *QUIETLY, "--retries", "1", *PINNED, "uv")
        and do(*to_environment, *BUILD)
        and do(*to_environment, *package)
    )


def install(kind: str) -> None:
    """Make the environment and fill it. Raise CannotInstallError."""
    LOG.write_text("", encoding="utf-8")
    package = ("--no-build-isolation", "--editable", ".[dev]" if kind == "dev" else ".")
    venv, here, there = (
        (sys.executable, "-m", "venv"),
        (sys.executable, "-m", "pip", "--python", str(PYTHON)),
        (str(PYTHON), "-m", "pip"),
    )
    # A run needs no pip of its own, and to unpack one takes half of the time: the one that is here will do.
    lean = kind == "run" and not PYTHON.exists() and do(*here[:3], "--version")
    if lean and do(*venv, "--without-pip", str(PLACE)) and by_uv(*here, package=package):
        return
    if not do(*there, "--version") and not do(*venv, str(PLACE)):
        raise CannotInstallError(f"cannot make {PLACE}: {last_error()}")
    if by_uv(*there, package=package):
        return
    pip = (*there, "install", *QUIETLY, *PINNED)
    if not (do(*pip, *BUILD) and do(*pip, *package)):
        raise CannotInstallError(f"cannot install the pinned versions: {last_error()} (all of it: {LOG})")


def main(kind: str) -> int:
    """Install if need be; return the exit status."""
    try:
        PLACE.mkdir(exist_ok=True)
        with (PLACE / ".set-up").open("w") as lock:  # not .lock, which is uv's own
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("set-up: waits for another set-up of this clone", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_done(kind):
                print(f"set-up: installing the pinned versions into {PLACE.name}", flush=True)
                install(kind)
                for name in STAMPS[kind]:
                    (PLACE / name).touch()
    except CannotInstallError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        reason = error.strerror or str(error)
        print(f"set-up: cannot write in {PLACE}: {reason}; clone it where you may write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
