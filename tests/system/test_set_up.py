"""Does set-up do its work once, and say in one line what it cannot do?

The Makefile, `emu/base/installing.py` and `.ci/run` are the real ones, in a clone whose package and build
tools are a few lines each, so that pip needs no network.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import emu
from tests.tidy.tracked import ROOT

PYTHON: str = getattr(sys, "_base_executable", sys.executable)
"""The one outside of any environment, as who sets up has."""
NAMES = ("python3", "python3.11", "python3.12", "python3.13", "python")
"""What the Makefile looks for."""
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1"
requires-python = ">=3.11"
optional-dependencies = {dev = []}
"""
BACKEND = """\
import zipfile
from pathlib import Path

def wheel(directory, name, files):
    about = {
        "METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\nProvides-Extra: dev\\n",
        "WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "RECORD": "",
        "entry_points.txt": f"[console_scripts]\\nemu = {name}:main\\n" if files else "",
    }
    with zipfile.ZipFile(Path(directory) / f"{name}-1-py3-none-any.whl", "w") as file:
        for path, text in files.items():
            file.writestr(path, text)
        for path, text in about.items():
            file.writestr(f"{name}-1.dist-info/{path}", text)
    return f"{name}-1-py3-none-any.whl"

def build_editable(directory, settings=None, metadata=None):
    return wheel(directory, "tiny", {"tiny.pth": str(Path.cwd()) + "\\n"})
"""
FILES = {
    "pyproject.toml": PYPROJECT,
    "backend.py": BACKEND,
    "setup.py": "",
    "constraints.txt": "setuptools==1\nwheel==1\nmypy==1\nuv==1\n",
    "tiny.py": "def main():\n    print('ran')\n",
    "emu/__init__.py": "",
    "actors/__init__.py": "",
    "actors/compiled/__init__.py": "",
    "actors/compiled/build.py": "",
}


def clone_at(place: Path) -> Path:
    """A clone in miniature."""
    for name, text in FILES.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for name in ("Makefile", "emu/base/installing.py", ".ci/run"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    return place


def surroundings(**more: str) -> dict[str, str]:
    """An environment in which pip knows of no package but those it is told of."""
    foreign = ("PIP_", "UV_", "VIRTUAL_ENV", "PYTHON", "MAKE", "MFLAGS", "EMU_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", **more}


def make(place: Path, *words: str, python: str = PYTHON, **more: str) -> subprocess.Popen[str]:
    """A target of the Makefile, under way; without a `python`, make looks for one."""
    return subprocess.Popen(
        ["make", "--no-print-directory", *words, *([f"PYTHON={python}"] if python else [])],
        cwd=place,
        env=surroundings(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reported(running: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Its status, and what it said beside what make says of every failure."""
    output, _ = running.communicate(timeout=300)
    return running.returncode, [line for line in output.splitlines() if not line.startswith("make: ***")]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone in miniature is built with; uv is not among it."""
    place = tmp_path_factory.mktemp("wheels")
    for name in ("setuptools", "wheel", "mypy"):
        with zipfile.ZipFile(place / f"{name}-1-py3-none-any.whl", "w") as file:
            about = f"{name}-1.dist-info"
            file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{about}/RECORD", "")
    return place


@pytest.fixture(scope="module")
def together(
    tmp_path_factory: pytest.TempPathFactory, wheels: Path
) -> tuple[Path, list[tuple[int, list[str]]]]:
    """A clone in which two `make run` began at once, and what each said."""
    place = clone_at(tmp_path_factory.mktemp("clone"))
    both = [make(place, "run", PIP_FIND_LINKS=str(wheels)) for _ in range(2)]
    return place, [reported(one) for one in both]


Together = tuple[Path, list[tuple[int, list[str]]]]


def test_of_two_runs_of_a_new_clone_one_installs_and_one_waits(together: Together) -> None:
    _, both = together
    installs = "set-up: installing the pinned versions into .venv"
    waits = "set-up: waits for another set-up of this clone"
    assert sorted(both) == [(0, [installs, "ran"]), (0, [waits, "ran"])]


def test_what_is_installed_is_installed_again_when_what_says_what_changes(together: Together) -> None:
    place, _ = together
    assert reported(make(place, "run")) == (0, ["ran"])
    assert reported(make(place, "--question", ".venv/runnable"))[0] == 0
    assert reported(make(place, "--question", ".venv/installed"))[0] == 1
    for name in ("constraints.txt", "pyproject.toml", "setup.py"):
        stamp = (place / ".venv/runnable").stat()
        os.utime(place / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 10**9))
        assert reported(make(place, "--question", ".venv/runnable"))[0] == 1, name
        os.utime(place / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns - 10**9))
        assert reported(make(place, "--question", ".venv/runnable"))[0] == 0, name


UV = f"""#!/bin/sh
# uv pip install --python PYTHON ...
shift 3
python=$1
shift
exec {PYTHON} -m pip --python "$python" install --quiet --disable-pip-version-check "$@"
"""


def test_an_environment_for_runs_is_filled_by_the_pip_that_is_there(tmp_path: Path, wheels: Path) -> None:
    place = clone_at(tmp_path / "clone")
    shutil.copytree(wheels, tmp_path / "wheels")
    with zipfile.ZipFile(tmp_path / "wheels/uv-1-py3-none-any.whl", "w") as file:
        file.writestr("uv-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
        file.writestr("uv-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("uv-1.dist-info/RECORD", "")
        script = zipfile.ZipInfo("uv-1.data/scripts/uv")
        script.external_attr = 0o100755 << 16
        file.writestr(script, UV)
    status, lines = reported(make(place, "run", PIP_FIND_LINKS=str(tmp_path / "wheels")))
    assert (status, lines) == (0, ["set-up: installing the pinned versions into .venv", "ran"])
    assert not list(place.glob(".venv/lib/*/site-packages/pip"))
    last = (place / ".venv/install.log").read_text("utf-8").rpartition("$ ")[2]
    assert last.startswith(f"{place}/.venv/bin/uv pip install"), last


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (
            {"PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"},
            "the package index does not answer",
        ),
        ({"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}, "the package index does not have them"),
    ],
    ids=["nothing answers", "no index"],
)
def test_without_network_set_up_ends_in_one_line(
    tmp_path: Path, together: Together, index: Mapping[str, str], reason: str
) -> None:
    place = clone_at(tmp_path / "clone")
    shutil.copytree(together[0] / ".venv", place / ".venv", symlinks=True)
    (place / ".venv/runnable").unlink()
    (place / "constraints.txt").write_text("setuptools==2\nuv==2\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    status, lines = reported(make(place, "run", PIP_FIND_LINKS=str(tmp_path / "empty"), **index))
    log = place / ".venv/install.log"
    assert (status, lines[0]) == (2, "set-up: installing the pinned versions into .venv")
    (line,) = lines[1:]
    assert line.startswith(f"set-up: cannot install the pinned versions: {reason}"), log.read_text()
    assert line.endswith(f"(all of it: {log})")
    assert not (place / ".venv/runnable").exists()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user may pass, and so those that are made in it meanwhile."""
    umask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            Path(name).chmod(0o755)
            yield Path(name)
    finally:
        os.umask(umask)


def test_a_clone_that_may_not_be_written_is_reported_in_one_line(shared: Path) -> None:
    place = clone_at(shared / "clone")
    place.chmod(0o555)
    as_whom: dict[str, Any] = {}
    python = PYTHON
    if os.geteuid() == 0:  # who may write everywhere
        as_whom = {"user": 65534, "group": 65534, "extra_groups": []}
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or pytest.skip(
            "no Python for all users"
        )
    done = subprocess.run(
        [python, "-B", "-m", "emu.base.installing", "run"],
        cwd=place,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
        **as_whom,
    )
    place.chmod(0o755)
    line = f"set-up: cannot write in {place / '.venv'}: Permission denied; clone it where you may write\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def python_of_3_9(directory: Path, *names: str) -> Path:
    """A directory in which these names are a Python 3.9."""
    directory.mkdir()
    for name in names:
        file = directory / name
        old = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[1])"
        file.write_text(f'#!/bin/sh\nexec {PYTHON} -c "{old}" "$2"\n', encoding="utf-8")
        file.chmod(0o755)
    return directory


def test_a_python_that_is_too_old_is_reported_in_one_line(tmp_path: Path) -> None:
    place = clone_at(tmp_path / "clone")
    old = python_of_3_9(tmp_path / "bin", *NAMES)
    for python in ("", str(old / "python3")):
        status, lines = reported(make(place, "run", python=python, PATH=f"{old}:{os.environ['PATH']}"))
        (line,) = lines
        assert (status, line.startswith("make: needs Python >= 3.11 with venv and pip")) == (2, True)
        assert not (place / ".venv").exists()


@pytest.mark.parametrize("exists", [True, False], ids=["with /tmp/ray", "without"])
def test_ci_without_namespaces_runs_only_where_no_earlier_ray_was(tmp_path: Path, exists: bool) -> None:
    place = clone_at(tmp_path / "clone")
    traces = tmp_path / "ray"
    script = place / ".ci/run"
    text = script.read_text(encoding="utf-8")
    assert "/tmp/ray" in text
    script.write_text(text.replace("/tmp/ray", str(traces)), encoding="utf-8")
    if exists:
        traces.mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    said = {"make": 'echo "make $*"', "unshare": "exit 1", "apt-get": "exit 1"}
    for name in ("make", "unshare", "apt-get", "prometheus", "promtool", "mmdebstrap", "chromedriver"):
        (tools / name).write_text(f"#!/bin/sh\n{said.get(name, '')}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    done = subprocess.run(
        [script],
        env=surroundings(PATH=f"{tools}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
    )
    refused = f"ci: no namespace can be made here, and {traces} exists: remove it first\n"
    assert (done.returncode, done.stdout) == ((1, refused) if exists else (0, "make test\n")), done.stderr


@pytest.mark.ray
@pytest.mark.skipif(not emu.is_compiled(), reason="the packet path is not compiled")
def test_workers_of_a_run_without_a_build_have_none_either(tmp_path: Path) -> None:
    subprocess.run(
        [
            Path(sys.executable).with_name("emu"),
            "run",
            "tiny_flap",
            "--workers",
            "2",
            "--out",
            tmp_path / "run",
        ],
        cwd=ROOT,
        env={**os.environ, "EMU_BUILD": str(ROOT / "emu/_ext/none")},
        capture_output=True,
        check=True,
    )
    workers = json.loads((tmp_path / "run/workers.json").read_text(encoding="utf-8"))["workers"]
    assert [worker["compiled"] for worker in workers] == [False, False]
