"""Scenarios, pages and the commit that come with emu.

In a checkout they stand beside the packages: `scenarios/`, `docs/`, and git knows the commit. A wheel holds a
copy of them inside the package, which `setup.py` makes when it builds the wheel: `emu/_shipped/`. Nothing of
that is in git, so there is one source.

A scenario, or a variant of one, is found by its name: first in `./scenarios`, then among those that come
with emu. Folders in there are groups: which one a scenario is in is no part of its name.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[1]
INSIDE: Final = PACKAGE / "_shipped"
"""Only in a wheel."""
FOLDERS: Final = ("scenarios", "docs")
COMMIT_NAME: Final = "commit"
SCENARIO_DIRECTORY: Final = Path("scenarios")
SCENARIO_SUFFIX: Final = ".yaml"
CAMPAIGNS: Final = "campaigns"
JOB_MIXES: Final = "job_mixes"
OTHERS: Final = (CAMPAIGNS, JOB_MIXES)
"""Folders of `scenarios` with what `emu campaign` and `emu schedule` read: no scenarios."""


def folder(name: str) -> Path:
    """Where one of `FOLDERS` is, in a wheel or in a checkout."""
    inside = INSIDE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def scenario_directories() -> list[Path]:
    """Where a scenario is looked for by its name, in this order: `./scenarios`, those that come with emu."""
    shipped = folder("scenarios")
    here = SCENARIO_DIRECTORY
    if not here.is_dir():
        return [shipped]
    return [here] if not shipped.is_dir() or here.samefile(shipped) else [here, shipped]


def scenarios_in(directory: Path) -> list[Path]:
    """The scenarios of a directory and of the folders in it, by name."""
    found = (path for depth in ("", "*/") for path in directory.glob(f"{depth}*{SCENARIO_SUFFIX}"))
    return sorted(
        (path for path in found if path.parent.name not in OTHERS),
        key=lambda path: (path.stem, path),
    )


def files_of(folder_name: str) -> dict[str, Path]:
    """The campaigns, or the job mixes, by name; one in `./scenarios` hides its namesake."""
    found: dict[str, Path] = {}
    for directory in scenario_directories():
        for path in sorted((directory / folder_name).glob(f"*{SCENARIO_SUFFIX}")):
            found.setdefault(path.stem, path)
    return found


def scenario_files() -> dict[str, Path]:
    """The file of every scenario that has a name, by name; one in `./scenarios` hides its namesake."""
    found: dict[str, Path] = {}
    for directory in scenario_directories():
        for path in scenarios_in(directory):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def variant_names(path: Path) -> dict[str, str]:
    """The variants of a file by the names that they are found by; none if it cannot be read."""
    try:
        return _variants_in(path.read_text("utf-8"), path.stem)
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=256)
def _variants_in(text: str, stem: str) -> dict[str, str]:
    """The same of a text. It is kept: who runs variants by their names reads every file for each of them."""
    if "\nvariants:" not in text:
        return {}
    import yaml  # noqa: PLC0415 - a wheel is built without it

    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["variants"]  # noqa: S506
        return {
            str(changes.get("name", f"{stem}_{variant}")): str(variant) for variant, changes in found.items()
        }
    except (yaml.YAMLError, KeyError, AttributeError, TypeError, ValueError):
        return {}


def scenario_names() -> dict[str, tuple[Path, str]]:
    """What can be run by its name: every file, and every variant with its file."""
    files = scenario_files()
    names = {
        name: (path, variant) for path in files.values() for name, variant in variant_names(path).items()
    }
    return dict(sorted({**names, **{name: (path, "") for name, path in files.items()}}.items()))


def scenario_groups() -> dict[str, dict[str, tuple[Path, str]]]:
    """The same by the folder that each is in; `scenarios` where it is in none."""
    groups: dict[str, dict[str, tuple[Path, str]]] = {}
    for name, found in scenario_names().items():
        groups.setdefault(found[0].parent.name, {})[name] = found
    return dict(sorted(groups.items()))


def is_name(given: str) -> bool:
    """Whether this could be the name of a scenario rather than of a file."""
    path = Path(given)
    return given not in ("", "-") and not path.suffix and len(path.parts) == 1


def scenario_named(given: str) -> tuple[str, str]:
    """The file and the variant that are meant: the file as given, or those of the scenario of this name."""
    if not is_name(given) or Path(given).exists():
        return given, ""
    if given in (files := scenario_files()):
        return str(files[given]), ""
    path, variant = scenario_names().get(given, (given, ""))
    return str(path), variant


def commit() -> str:
    """The commit of this code, with `+dirty` if tracked files differ from it; empty where nobody knows.

    A wheel knows the commit of the checkout that it was built from.
    """
    if (INSIDE / COMMIT_NAME).is_file():
        return (INSIDE / COMMIT_NAME).read_text("ascii").strip()
    if INSIDE.is_dir() or not (PACKAGE.parent / ".git").exists():
        return ""
    import subprocess  # noqa: PLC0415 - only where the commit is asked for

    described = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+dirty"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            described, cwd=PACKAGE.parent, capture_output=True, text=True, check=False
        )
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
