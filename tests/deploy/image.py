"""What does `docker build` do with our Dockerfile, where there is no Docker?

The steps are read from `deploy/Dockerfile` itself, each of its instructions or none: one that is not known
here is an error. Every stage begins with a copy of a small Debian made by mmdebstrap, which has a Python with
venv and headers, as the image that FROM names has. A step runs in that root, with mounts and processes of its
own, so that nothing is left behind. apt and pip ask where this machine's own do. Needs root.

Not as Docker does: layers, build arguments, and the Python, which is Debian's and not the one of FROM.
"""

import fnmatch
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

BASE: Final = re.compile(r"python:3\.\d+-slim")
PACKAGES: Final = ("ca-certificates", "python3", "python3-dev", "python3-venv", "python-is-python3")
PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
SHARED: Final = "mode=1777,size=64m"
MOUNTED: Final = (
    f'mount -t proc proc "$0/proc" && mount -t tmpfs -o {SHARED} shm "$0/dev/shm" && exec unshare "$@"'
)
"""What a container finds mounted, of the sizes that Docker gives; gone with the last of its processes."""
PASSED_ON: Final = ("EMU_OPTIMISATION", "EMU_INTERPRETED")
"""What who runs this may set to have the packet path compiled sooner, or not at all."""


class Step(NamedTuple):
    """One instruction."""

    what: str
    rest: str


def steps(text: str) -> Iterator[Step]:
    """The instructions of a Dockerfile, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        what, _, rest = line.partition(" ")
        yield Step(what, rest.strip())


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether a .dockerignore leaves out `path`; `**/` at the front is any depth."""
    return any(
        fnmatch.fnmatch(path.rpartition("/")[2], pattern[3:])
        if pattern.startswith("**/")
        else fnmatch.fnmatch(path, pattern)
        for pattern in patterns
    )


@dataclass
class Stage:
    """A root, and what the steps so far have set for the next."""

    root: Path
    directory: str = "/"
    user: str = "root"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    command: list[str] = field(default_factory=list)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command in this root, as `docker run` would start it; what it prints, both streams as one."""
        lines = self.inside("/etc/passwd").read_text("utf-8").splitlines()
        (entry,) = [line.split(":") for line in lines if line.startswith(f"{self.user}:")]
        user, group, home = entry[2], entry[3], entry[5]
        start = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MOUNTED, str(self.root))
        enter = (f"--root={self.root}", f"--wd={self.directory}", f"--setgid={group}", f"--setuid={user}")
        return subprocess.run(
            [*start, *enter, "--", *words],
            env={"HOME": home, **self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def inside(self, path: str) -> Path:
        """Where a path of the image is on this machine."""
        return self.root / path.lstrip("/")


class Builder:
    """Builds an image of the Dockerfile of a checkout, in a directory."""

    def __init__(self, checkout: Path, place: Path) -> None:
        self._checkout = checkout
        self._place = place
        self._ignored = [
            line
            for line in (checkout / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
            if line and not line.startswith("#")
        ]
        self._stages: dict[str, Stage] = {}
        self._stage = Stage(place)

    def build(self) -> Stage:
        """Do every step; the last stage is the image."""
        known = {
            "FROM": self._from,
            "RUN": self._run,
            "COPY": self._copy,
            "WORKDIR": self._work_directory,
            "ENV": self._env,
            "USER": self._user,
            "CMD": self._cmd,
        }
        for step in steps((self._checkout / "deploy" / "Dockerfile").read_text("utf-8")):
            assert step.what in known, f"Dockerfile: {step.what} is not known here"
            known[step.what](step.rest)
        return self._stage

    def _from(self, rest: str) -> None:
        image, _, name = rest.partition(" AS ")
        assert BASE.fullmatch(image), image
        base = self._place / "base"
        if not base.exists():
            make_base(base)
        root = self._place / f"stage-{len(self._stages)}"
        subprocess.run(["cp", "--archive", base, root], check=True)
        self._stage = Stage(root)
        self._stages[name or str(len(self._stages))] = self._stage

    def _run(self, rest: str) -> None:
        passed = {name: value for name in PASSED_ON if (value := os.environ.get(name)) is not None}
        done = self._stage.run("/bin/sh", "-c", rest, **pip_variables(), **passed)
        assert done.returncode == 0, f"RUN {rest}: status {done.returncode}\n{done.stdout[-4000:]}"

    def _copy(self, rest: str) -> None:
        *sources, destination = shlex.split(rest)
        target = self._stage.inside(os.path.join(self._stage.directory, destination))  # noqa: PTH118 - as a text
        if sources[0].startswith("--from="):
            other = self._stages[sources.pop(0).partition("=")[2]]
            (source,) = sources
            subprocess.run(["cp", "--archive", other.inside(source), target], check=True)
            return
        (source,) = sources

        def left_out(directory: str, names: list[str]) -> set[str]:
            where = Path(directory).relative_to(self._checkout)
            return {name for name in names if is_ignored((where / name).as_posix(), self._ignored)}

        shutil.copytree(self._checkout / source, target, ignore=left_out, dirs_exist_ok=True)

    def _work_directory(self, rest: str) -> None:
        self._stage.directory = rest
        self._stage.inside(rest).mkdir(parents=True, exist_ok=True)

    def _env(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            self._stage.environment[name] = re.sub(r"\$(\w+)", self._value, value)

    def _value(self, found: re.Match[str]) -> str:
        return self._stage.environment[found[1]]

    def _user(self, rest: str) -> None:
        self._stage.user = rest

    def _cmd(self, rest: str) -> None:
        self._stage.command = [word.strip().strip('"') for word in rest.strip("[]").split(",")]


def make_base(root: Path) -> None:
    """A small Debian with Python, of this machine's release, from where its apt gets its packages."""
    sources = [path for path in (Path("/etc/apt/sources.list"), *SOURCES.glob("debian.*")) if path.is_file()]
    dumped = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True)
    options = root.with_suffix(".apt.conf")
    options.write_text("".join(f"{line}\n" for line in dumped.stdout.splitlines() if '""' not in line))
    done = subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--aptopt={options}"),
            f"--include={','.join(PACKAGES)}",
            release(),
            root,
            *sources,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"mmdebstrap: {done.stderr[-2000:]}"
    for name in ("/etc/resolv.conf", "/etc/hosts", CERTIFICATES):
        if Path(name).is_file():
            shutil.copyfile(name, root / name.lstrip("/"))


def release() -> str:
    """The code name of this machine's Debian; empty on another system."""
    system = platform.freedesktop_os_release()
    return system.get("VERSION_CODENAME", "") if system["ID"] == "debian" else ""


def pip_variables() -> dict[str, str]:
    """How pip finds packages on this machine, as variables; files of this machine are not in the image."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        found[f"PIP_{key.rpartition('.')[2].upper().replace('-', '_')}"] = value.strip("'")
    return {
        name: value for name, value in found.items() if "file://" not in value and name != "PIP_FIND_LINKS"
    }


SOURCES: Final = Path("/etc/apt/sources.list.d")
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
