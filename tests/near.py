"""The tests nearest to what was edited: a minute instead of the suite's ten.

    make near                     what differs from the last commit
    make near ARGS=main           what differs from another commit
    python -m tests.near --list   name them and run none

Nearest are the test files that import an edited module, then those that import a module which imports one. An
edited test is nearest itself. At most `MOST` files run, in one process, and end at the first failure. The
suite judges; this only answers early.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from tests.tidy.tracked import PACKAGES, ROOT, python_files, tree_of

MOST: Final = 8


def module_of(name: str) -> str:
    """The dotted name of a file."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_by(name: str, known: Iterable[str]) -> set[str]:
    """The modules among `known` that a file imports anywhere in it."""
    named: set[str] = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.ImportFrom):
            named.add(str(node.module))
            named.update(f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            named.update(one.name for one in node.names)
    return named.intersection(known)


def nearest(edited: Iterable[str]) -> list[str]:
    """The test files nearest to these files, the nearest first; by name where they are as near."""
    given = set(edited)
    files = {module_of(name): name for name in python_files(*PACKAGES, "tests")}
    users: dict[str, set[str]] = {module: set() for module in files}
    for module, name in files.items():
        for used in imported_by(name, files):
            users[used].add(module)
    found: dict[str, int] = {name: 0 for name in given if _is_test(name)}
    modules = {module_of(name) for name in given} & users.keys()
    seen = set(modules)
    for distance in range(1, 4):
        modules = {user for module in sorted(modules) for user in users[module]} - seen
        seen |= modules
        for module in modules:
            if _is_test(files[module]):
                found.setdefault(files[module], distance)
    return sorted(found, key=lambda name: (found[name], -_alike(name, given), name))


def _is_test(name: str) -> bool:
    return name.rpartition("/")[2].startswith("test_")


def _alike(name: str, edited: Iterable[str]) -> int:
    """How many words of a test's path are words of an edited file's."""
    words = set(name.replace(".py", "").replace("_", "/").split("/"))
    return max(
        (len(words & set(one.replace(".py", "").replace("_", "/").split("/"))) for one in edited), default=0
    )


def edited_files(since: str) -> list[str]:
    """The files that differ from a commit, and those that git does not track yet."""
    ask: Mapping[str, list[str]] = {
        "diff": ["git", "diff", "--name-only", since],
        "new": ["git", "ls-files", "--others", "--exclude-standard"],
    }
    lines: list[str] = []
    for words in ask.values():
        lines += subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [line for line in lines if line.endswith(".py")]


def main() -> int:
    """Run the nearest tests; pytest's status, or 0 where nothing is near."""
    parser = argparse.ArgumentParser(
        prog="make near", description="Run the tests nearest to what was edited."
    )
    parser.add_argument("since", nargs="?", default="HEAD", help="a commit; the last one by default")
    parser.add_argument("--list", action="store_true", help="name the tests and run none")
    asked = parser.parse_args()
    edited = edited_files(asked.since)
    found = nearest(edited)
    more = f", {len(found) - MOST} more are near" if len(found) > MOST else ""
    print(f"near: {len(edited)} edited files, {min(len(found), MOST)} test files{more}")
    if asked.list or not found:
        print("\n".join(found[:MOST]))
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *found[:MOST]], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
