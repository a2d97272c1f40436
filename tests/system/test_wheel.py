"""Does a wheel hold all that its user needs, and does the README's first screen work from it, anywhere?"""

import email
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import emu
from emu.base.shipped import scenarios_in
from tests.tidy.tracked import ROOT, text_of, tracked_files

README = text_of("README.md")
MOST_BULLETS = 30
"""Of a release in the changelog: what a user cares about."""
LONGEST_S = 5
"""CPU time of an answer from a compiled wheel, its imports included."""
AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def did(*words: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints; it must succeed."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EMU_", "GIT_"))
    }
    done = subprocess.run(words, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def built(checkout: Path, target: Path, *, interpreted: bool = True, **environment: str) -> Path:
    """The wheel of a checkout, made with the build requirements that are installed here."""
    did(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"),
        *("--wheel-dir", target, "."),
        cwd=checkout,
        EMU_INTERPRETED=str(int(interpreted)),
        **environment,
    )
    (wheel,) = target.iterdir()
    return wheel


class Installed(NamedTuple):
    """A wheel in an environment of its own, far from any checkout."""

    wheel: Path
    commit: str
    place: Path
    """A directory that was empty."""
    environment: dict[str, str]

    def emu(self, *words: str) -> str:
        """What `emu` prints."""
        return did(*words, cwd=self.place, **self.environment)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files as they are now, committed."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    did("git", "init", "--quiet", cwd=copy)
    did("git", "add", "--all", cwd=copy)
    did("git", "commit", "--quiet", "--message", "as it is", cwd=copy, **AUTHOR)
    return copy


def put_into_an_empty_environment(wheel: Path, home: Path) -> tuple[Path, Path]:
    """Install a wheel into `home/venv`, which borrows dependencies; return its Python and its packages."""
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    did(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return python, packages


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of that checkout in a fresh environment, which borrows the dependencies of this one."""
    home = tmp_path_factory.mktemp("elsewhere")
    commit = did("git", "rev-parse", "--short=12", "HEAD", cwd=checkout).strip()
    wheel = built(checkout, home / "wheels")
    python, packages = put_into_an_empty_environment(wheel, home)
    if (ROOT / "emu" / "_ext").is_dir():  # used only if it was compiled from these very sources
        (packages / "emu" / "_ext").symlink_to(ROOT / "emu" / "_ext")
    (home / "place").mkdir()
    environment = {"HOME": str(home), "PATH": f"{python.parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    return Installed(wheel, commit, home / "place", environment)


def first_screen() -> list[str]:
    """The commands of `emu` in the first block of the README that has some."""
    blocks = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    block = next(text for text in blocks if text.startswith("emu "))
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def test_first_screen_of_the_readme_works_from_an_installed_wheel(installed: Installed) -> None:
    commands = first_screen()
    assert len(commands) >= 5
    said = {command: installed.emu(*command.split()) for command in commands}
    run, distributed, listed, new, *_ = said.values()
    assert (
        re.findall(r"^digest .*$", run, re.MULTILINE)
        == re.findall(r"^digest .*$", distributed, re.MULTILINE)
        != []
    )
    shown = [line.split() for line in re.findall(r"^ +\d+ +\d+ +float .*$", README, re.MULTILINE)]
    assert len(shown) == 2
    rows = [line.split() for line in run.splitlines() if " float " in line]
    assert [row for row in rows if row in shown] == shown
    names = {path.stem for path in scenarios_in(ROOT / "scenarios")}
    assert names <= set(re.findall(r"\w+", listed))
    assert "written: permutation.yaml" in new
    copy = (installed.place / "permutation.yaml").read_bytes()
    assert copy == (ROOT / "scenarios/start/permutation.yaml").read_bytes()
    assert {path.name for path in installed.place.iterdir()} == {"permutation.yaml", "runs"}


def test_installed_emu_is_the_wheel_and_knows_its_commit(installed: Installed) -> None:
    file = installed.emu("python", "-c", "import emu, actors; print(emu.__file__, actors.__file__)")
    assert [path.split("/venv/")[0] for path in file.split()] == [str(installed.place.parent)] * 2
    assert installed.emu("emu", "--version").startswith(f"emu {emu.__version__} ({installed.commit}), ")
    assert installed.wheel.name == f"roce_emu-{emu.__version__}-py3-none-any.whl"
    assert installed.emu("emu", "docs", "sweep") == (ROOT / "docs" / "sweep.md").read_text("utf-8")


def test_version_is_that_of_the_newest_release_in_the_changelog() -> None:
    text = text_of("CHANGELOG.md")
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    coming = re.fullmatch(r"(\d+\.\d+\.\d+) \(unreleased\)", sections[0])
    released = sections[1:] if coming else sections
    releases = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})", line) for line in released]
    versions = [tuple(map(int, found[1].split("."))) for found in releases if found]
    dates = [found[2] for found in releases if found]
    assert len(versions) == len(released) > 0
    newest = text.partition(f"## {sections[0]}\n")[2].partition("\n## ")[0]
    assert 0 < newest.count("\n- ") <= MOST_BULLETS
    assert (versions, dates) == (sorted(versions, reverse=True), sorted(dates, reverse=True))
    if coming:
        versions.insert(0, tuple(map(int, coming[1].split("."))))
        assert versions[0] > versions[1]
    assert emu.__version__ == ".".join(map(str, versions[0]))


def description(wheel: Path) -> tuple[email.message.Message, str]:
    """The metadata of a wheel, and the description that a package page shows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    return metadata, str(metadata.get_payload())


def test_links_of_the_description_lead_somewhere_without_the_repository(installed: Installed) -> None:
    _, text = description(installed.wheel)
    assert "](" in README
    assert "](" not in text
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    reported = re.findall(r"`emu docs (\w+)`", text)
    assert set(reported) <= pages
    assert len(reported) == len(re.findall(r"\]\(docs/\w+\.md", README))


def test_links_and_urls_are_absolute_where_the_builder_names_the_address(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "scenarios/start/quickstart.yaml").write_text("edited", "utf-8")
    wheel = built(checkout, tmp_path / "wheels", EMU_REPOSITORY_URL="http://127.0.0.1/emu/")
    did("git", "checkout", "--quiet", ".", cwd=checkout)
    metadata, text = description(wheel)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert {link.split("/docs/")[0] for link in links} == {"http://127.0.0.1/emu"}
    assert metadata.get_all("Project-URL") == [
        "Documentation, http://127.0.0.1/emu/README.md",
        "Changelog, http://127.0.0.1/emu/CHANGELOG.md",
    ]
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("emu/_shipped/commit").endswith(b"+dirty\n")


@pytest.mark.soak
def test_a_compiled_wheel_answers_at_once_where_there_is_no_compiler(checkout: Path, tmp_path: Path) -> None:
    if shutil.which(shlex.split(sysconfig.get_config_var("CC") or "cc")[0]) is None:
        pytest.skip("no C compiler")
    if (ROOT / "emu" / "_ext").is_dir():  # a build of these very sources need not be made twice
        shutil.copytree(ROOT / "emu" / "_ext", checkout / "emu" / "_ext", dirs_exist_ok=True)
    wheel = built(checkout, tmp_path / "wheels", interpreted=False)
    assert wheel.name.startswith(f"roce_emu-{emu.__version__}-cp3")
    python, _ = put_into_an_empty_environment(wheel, tmp_path)
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [python.with_name("emu"), "run", "quickstart", "--local"],
        check=False,
        cwd=tmp_path / "home",
        env={"HOME": str(tmp_path / "home"), "PATH": str(python.parent)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version = did(python.with_name("emu"), "--version", cwd=tmp_path, PATH=str(python.parent))
    assert version.rstrip().endswith(", compiled")
