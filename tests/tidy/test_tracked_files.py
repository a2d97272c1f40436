"""Can the repository be cloned anywhere? Nothing in it names a machine, or where to download from."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tracked import text_of, tracked_files

QUOTABLE_HOSTS = {
    *("127.0.0.1", "localhost", "json-schema.org", "www.apache.org"),
    *("arxiv.org", "doi.org", "www.rfc-editor.org", "www.w3.org"),
}
"""Hosts a file may name: this machine, and where a licence, schema, paper, standard or name is identified."""

URL = re.compile(r"[a-z]+://([A-Za-z0-9.-]*[A-Za-z0-9])")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|Users|opt|mnt)/|/home/(?!ray\b)\w")
DOWNLOAD_OPTION = re.compile(r"--?(?:extra-)?index[-_]url|--?find[-_]links|trusted[-_]host", re.IGNORECASE)
SELF = "tests/tidy/test_tracked_files.py"


def pins() -> dict[str, str]:
    """Distribution -> version, from the constraints file; every line must be `name==version`."""
    lines = text_of("constraints.txt").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line)] == []
    assert lines == sorted(lines, key=str.lower)
    return {canonicalize_name(name): pinned for name, pinned in (line.split("==") for line in lines)}


def declared() -> list[Requirement]:
    """What pyproject.toml asks for: at run time, for development, and to build."""
    project = tomllib.loads(text_of("pyproject.toml"))
    asked = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    return [Requirement(line) for line in asked]


def test_every_declared_requirement_is_pinned_within_its_bounds() -> None:
    pinned = pins()
    for requirement in declared():
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_everything_that_gets_installed_is_pinned_to_what_is_installed() -> None:
    pinned, seen, waiting = pins(), set[tuple[str, str]](), [(r, "") for r in declared()]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        assert name in pinned, f"{requirement} is installed but not in constraints.txt"
        for wanted in ("", *sorted(requirement.extras)):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                try:
                    assert version(name) == pinned[name], f"{name}: run `make setup`"
                except PackageNotFoundError:
                    raise AssertionError(f"{name} is not installed: run `make setup`") from None
                waiting += [(Requirement(line), wanted) for line in requires(name) or []]


def test_nothing_pinned_is_superfluous() -> None:
    used = {canonicalize_name(requirement.name) for requirement in declared()}
    waiting = sorted(used)
    while waiting:
        for line in requires(waiting.pop()) or []:
            name = canonicalize_name(Requirement(line).name)
            if name in pins() and name not in used:
                used.add(name)
                waiting.append(name)
    assert sorted(set(pins()) - used) == []


def test_no_file_says_where_to_download_from() -> None:
    named = [
        f"{name}: {found.group()}"
        for name in tracked_files()
        for found in URL.finditer(text_of(name))
        if found.group(1) not in QUOTABLE_HOSTS and "." in found.group(1)
    ]
    assert named == []
    assert [name for name in tracked_files() if name != SELF and DOWNLOAD_OPTION.search(text_of(name))] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [n for n in tracked_files() if n != SELF and MACHINE_PATH.search(text_of(n))] == []


def test_no_lock_file_and_nothing_that_was_made_is_tracked() -> None:
    made = re.compile(r"\.(lock|so|pyc|c|o|egg-info|whl)(/|$)|(^|/)(__pycache__|_ext|\.venv|runs)/")
    assert [name for name in tracked_files() if made.search(name)] == []
