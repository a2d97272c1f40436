"""Which files of a directory are ours to rewrite, and how.

A scenario is a mapping in YAML with a topology; rules and dashboards are whatever YAML or JSON names one of
our series; plug-ins are Python files that import from the packages. Other files, hidden folders and run
directories, which are records, are left alone.

Rules and dashboards: whatever the file is (rules, a dashboard in JSON, notes), a name is replaced where it
stands as a whole word.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from emu.errors import RuntimeFailure, UsageError
from emu.upgrade import renames
from emu.upgrade.edits import Edit, Note, Upgraded, made
from emu.upgrade.python_modules import ROOTS, upgraded_source
from emu.upgrade.scenarios import keys_of, root_of, upgraded_scenario

_SERIES: Final = re.compile(rf"(?<![\w:])({'|'.join(renames.SERIES)})(?![\w:])")
_SCRAPED: Final = re.compile(r"(?<![\w:])(emu_job_\w+)\s*\{[^}]*(?<!\w)job\s*[=!]")


def upgraded_promql(text: str) -> Upgraded:
    """The text with today's names."""
    edits = [
        Edit(found.start(), found.end(), renames.SERIES[found[0]], found[0], renames.SERIES[found[0]])
        for found in _SERIES.finditer(text)
    ]
    left: list[Note] = []
    begin = 0
    for number, line in enumerate(text.split("\n"), 1):
        for family, labels in renames.LABELS.items():
            for old, new in labels.items():
                for found in re.finditer(rf"(?<!\w){old}(?!\w)", line):
                    at = begin + found.start()
                    if family in line:
                        edits.append(Edit(at, at + len(old), new, old, new))
                    elif family in text:
                        left.append(
                            Note(number, f"{old} of series {family}* is {new} now: is it meant here?")
                        )
        if (found_scraped := _SCRAPED.search(line)) is not None:
            series = found_scraped[1]
            left.append(Note(number, f"the job that {series} tells of is in its label job_name now, not job"))
        begin += len(line) + 1
    return made(text, edits, left)


SUFFIXES: Final = (".yaml", ".yml", ".json", ".py", ".rules", ".promql")
MOST_BYTES: Final = 16 * 2**20
_IMPORTS: Final = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(ROOTS)})\b", re.MULTILINE)
_MARK: Final = "\ufeff"


class What(StrEnum):
    """What a file is."""

    SCENARIO = "scenario"
    PROMQL = "rules or dashboard"
    PYTHON = "Python"
    OTHER = "none of ours"


class FileUpgrade(NamedTuple):
    """What is to be done to a file."""

    path: Path
    what: What
    upgraded: Upgraded
    changed: bool


def files_at(path: Path) -> Iterator[Path]:
    """The file itself, or those of a directory that could be ours."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        if "journal.jsonl" in names:  # a run's record of what was
            folders.clear()
            continue
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES))


def upgrade_of(path: Path, asked_for: bool) -> FileUpgrade | None:
    """What is to be done to a file; None if it is none of ours. UsageError if it was asked for by name then,
    or cannot be read."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
        text = raw.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; accepted: a file or a directory") from error
    except UnicodeDecodeError:
        text = ""
    body = text.removeprefix(_MARK)
    what = kind_of(path, body)
    if what is What.OTHER:
        if asked_for:
            raise UsageError(
                f"{path}: nothing to upgrade; accepted: a scenario, Prometheus rules, a dashboard, or Python "
                f"that imports {' or '.join(ROOTS)}"
            )
        return None
    upgraded = _UPGRADES[what](body)
    return FileUpgrade(path, what, upgraded, upgraded.text != body)


_UPGRADES: Final = {
    What.SCENARIO: upgraded_scenario,
    What.PROMQL: upgraded_promql,
    What.PYTHON: upgraded_source,
}


def kind_of(path: Path, text: str) -> What:
    """What a file is, by its name and content."""
    if path.suffix == ".py":
        return What.PYTHON if re.search(_IMPORTS, text) else What.OTHER
    if path.suffix in (".yaml", ".yml") and "topology" in keys_of(root_of(text)):
        return What.SCENARIO
    return What.PROMQL if "emu_" in text else What.OTHER


def write(one: FileUpgrade) -> None:
    """Put the new text in place of the old, all at once, with the same permissions. Raises RuntimeFailure."""
    path = one.path.resolve()
    part = path.with_name(f"{path.name}.part")
    mark = _MARK if path.read_bytes().startswith(_MARK.encode()) else ""
    try:
        part.write_bytes((mark + one.upgraded.text).encode())
        shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RuntimeFailure(f"{path}: {error.strerror}; it is as it was") from error


def lines(path: Path, notes: list[Note]) -> Iterator[str]:
    """Notes as a user reads them."""
    yield from (f"{path}:{note.line}: {note.text}" for note in notes)
