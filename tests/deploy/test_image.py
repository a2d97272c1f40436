"""Do the steps of the Dockerfile make an image in which a plain user runs emu with workers?"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu import api
from tests.deploy.image import PATH, Builder, Stage, is_ignored, release, steps
from tests.tidy.tracked import ROOT, text_of

MISSING = [
    what
    for what, there in (
        ("root", os.geteuid() == 0),
        ("mmdebstrap (apt install mmdebstrap)", shutil.which("mmdebstrap") is not None),
        ("Debian, of whose packages a root is made", bool(release())),
    )
    if not there
]
BUILT_WITHIN_S = 3000
"""Packages are fetched, and the packet path is compiled as for users."""


def test_steps_of_a_dockerfile_are_read_as_docker_reads_them() -> None:
    text = "# a comment\nFROM a AS b\nRUN one \\\n    && two \\\n# amid\n    && three\n\nENV A=1 B=$A\n"
    assert list(steps(text)) == [
        ("FROM", "a AS b"),
        ("RUN", "one && two && three"),
        ("ENV", "A=1 B=$A"),
    ]


def test_what_the_dockerignore_names_stays_out() -> None:
    patterns = [line for line in text_of("deploy/Dockerfile.dockerignore").splitlines() if "#" not in line]
    out = (".git", ".venv", "emu/_ext", "a/b/__pycache__", "tests/.mypy_cache", "runs")
    assert [
        path for path in (*out, "emu", "emu/cli", "scenarios/runs.yaml") if is_ignored(path, patterns)
    ] == [*out]


@pytest.fixture(scope="module")
def image() -> Iterator[Stage]:
    """The image, built by all steps of the Dockerfile from this checkout: gigabytes, so not in /tmp."""
    if MISSING:
        pytest.skip(f"needs {', '.join(MISSING)}")
    with tempfile.TemporaryDirectory(prefix="emu-image-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        yield Builder(ROOT, Path(place)).build()


@pytest.mark.soak
@pytest.mark.timeout(BUILT_WITHIN_S)
def test_plain_user_runs_emu_with_two_workers_in_the_image(image: Stage) -> None:
    assert (image.user, image.directory) == ("ray", "/home/ray")
    assert image.run("id", "--user").stdout == "1000\n"
    version = image.run("emu", "--version")
    assert version.returncode == 0
    assert ("interpreted" in version.stdout) == bool(os.environ.get("EMU_INTERPRETED"))
    checked = image.run(*image.command)
    assert checked.returncode == 0, checked.stdout
    done = image.run("emu", "run", "scenarios/start/quickstart.yaml", "--workers", "2", "--out", "/tmp/run")
    assert done.returncode == 0, done.stdout
    assert "PASS" in done.stdout
    summary = json.loads(image.inside("/tmp/run/summary.json").read_text("utf-8"))
    assert summary["digest"] == api.run("quickstart", local=True).summary.digest
    assert image.inside("/tmp/run").stat().st_uid == 1000


@pytest.mark.soak
@pytest.mark.timeout(BUILT_WITHIN_S)
def test_operator_of_kuberay_finds_wget_ray_and_emu_in_a_login_shell(image: Stage) -> None:
    for line in ("wget --version", "ray --version", "emu list"):
        done = image.run("/bin/bash", "-l", "-c", line, PATH=PATH)
        assert done.returncode == 0, done.stdout
