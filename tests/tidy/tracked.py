"""Which files are the project? What git tracks; in an unpacked archive, what lies in its directories."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("emu", "actors")
OTHERS = ("tests", "scenarios", "deploy", "docs", ".ci")


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths under the root, in order, as git would write them."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [path.name for path in ROOT.iterdir() if path.is_file()]
        for directory in (*PACKAGES, *OTHERS):
            found = (path for path in (ROOT / directory).rglob("*") if path.is_file())
            listed += [path.relative_to(ROOT).as_posix() for path in found]
        listed = [name for name in listed if "__pycache__" not in name and not name.startswith("emu/_ext/")]
    return tuple(sorted(name for name in listed if name and (ROOT / name).is_file()))


@cache
def text_of(name: str) -> str:
    """The text of a tracked file; of a binary one (traces, an archive, pictures) its ASCII."""
    path = ROOT / name
    return path.read_text(
        encoding="latin-1" if path.suffix in (".et", ".gz", ".pickle", ".xz", ".png") else "utf-8"
    )


@cache
def tree_of(name: str) -> ast.Module:
    """The syntax tree of a tracked Python file."""
    return ast.parse(text_of(name), name)


def python_files(*directories: str) -> list[str]:
    """The tracked Python files below the given directories (all of them, if none is given)."""
    return [
        name
        for name in tracked_files()
        if name.endswith(".py") and (not directories or name.startswith(tuple(f"{d}/" for d in directories)))
    ]
