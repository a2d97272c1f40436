"""Which broken lines of the product does no test see?

    make mutants                    all of them
    make mutants ARGS="pfc dcqcn"   those with one of the words in their file or rule

Each entry of `mutants.toml` breaks one line, in a copy of the tree, and the tests that it names run there:
it *died* if one fails or they do not end, and *lives* if all pass. A hot module that is edited runs
interpreted, so the tests named are narrow. At the end every test that failed runs once more without a mutant,
compiled or interpreted as before: if it fails there too, it shows nothing. An entry whose text is not in its
file, or is there twice, is an error, and so is a mutant that cannot be imported.

Exit status: 0 if all died, 1 if one lives, 2 if an entry is wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from actors.compiled.finder import builds_directory, matching_build
from emu.base.cores import usable_cores

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
LIMIT_S = 300
"""For the tests of one mutant."""
TESTS_FAILED = 1
"""Exit status of pytest; 2 and above are of its own troubles."""

DIED, ENDLESS, LIVES, BROKEN, NOTHING = "died", "died, endless", "LIVES", "DOES NOT RUN", "SHOWS NOTHING"


class Mutant(NamedTuple):
    """One line, broken in one way."""

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    verdict: str
    failed: tuple[str, ...] = ()
    """The tests that failed; without any the last words of pytest."""


def listed() -> list[Mutant]:
    """The mutants of the list, in its order."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def faults(mutants: Sequence[Mutant]) -> Iterator[str]:
    """What is wrong with entries: a line each."""
    for one in mutants:
        where = f"tests/mutants.toml: {one.rule!r}"
        path = ROOT / one.file
        if not path.is_file():
            yield f"{where}: there is no file {one.file}"
        elif (count := path.read_text(encoding="utf-8").count(one.old)) != 1:
            yield f"{where}: {one.old!r} occurs {count} times in {one.file}, and should once"
        if one.old == one.new:
            yield f"{where}: breaks nothing"
        for test in one.tests:
            if test.startswith("tests/") and not (ROOT / test.partition("::")[0]).exists():
                yield f"{where}: there is no {test}"


def line_of(one: Mutant) -> int:
    """The line of its file that it breaks."""
    before = (ROOT / one.file).read_text(encoding="utf-8").partition(one.old)[0]
    return before.count("\n") + 1


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """So many copies of the sources as they are now, with the builds of the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    with tempfile.TemporaryDirectory(prefix="emu-mutants-") as directory:
        trees = [Path(directory) / str(number) for number in range(count)]
        for tree in trees:
            for name in filter(None, tracked.stdout.split("\0")):
                if (ROOT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ROOT / name, tree / name)
            if builds_directory(ROOT).is_dir():
                builds_directory(tree).symlink_to(builds_directory(ROOT))
        yield trees


def run_tests(
    tree: Path, arguments: Sequence[str], interpreted: bool = False
) -> tuple[int | None, list[str]]:
    """Run tests in a copy: the exit status (None if they did not end), and the tests that failed, or the last
    line that was printed."""
    cache = tree.with_name(f"{tree.name}.cache")
    shutil.rmtree(cache, ignore_errors=True)
    given = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    if interpreted:
        given["EMU_INTERPRETED"] = "1"
    options = ["-q", "-x", "-n", "0", "-o", f"cache_dir={cache}", "--tb=no", "--no-header"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=tree,
        env=os.environ | given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, []
    last = cache / "v" / "cache" / "lastfailed"
    if process.returncode != TESTS_FAILED:
        return process.returncode, text.strip().splitlines()[-1:]
    return TESTS_FAILED, list(json.loads(last.read_text(encoding="utf-8")))


def tried(one: Mutant, trees: SimpleQueue[Path]) -> Outcome:
    """Break the line in a copy that is free, run the tests, and mend it."""
    tree = trees.get()
    path = tree / one.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(one.old, one.new), encoding="utf-8")
    try:
        status, words = run_tests(tree, one.tests)
    finally:
        path.write_text(whole, encoding="utf-8")
        trees.put(tree)
    verdict = {None: ENDLESS, 0: LIVES, TESTS_FAILED: DIED}.get(status, BROKEN)
    outcome = Outcome(one, verdict, () if verdict == LIVES else tuple(words))
    say(outcome)
    return outcome


def say(outcome: Outcome) -> None:
    """A row of the table."""
    one = outcome.mutant
    tests = ", ".join(outcome.failed or one.tests)
    sys.stdout.write(f"{outcome.verdict:13} {one.file}:{line_of(one)}  {one.rule}\n{'':13}   {tests}\n")
    sys.stdout.flush()


def checked(outcomes: Sequence[Outcome], tree: Path) -> Iterator[Outcome]:
    """The same outcomes, but those whose tests fail without a mutant as well show nothing."""
    build, _ = matching_build(ROOT)
    failing: list[str] = []
    for interpreted in (False, True):
        own = [
            one
            for one in outcomes
            if (build is not None and one.mutant.file not in build.sources) != interpreted
        ]
        tests = [test for one in own if one.verdict == DIED for test in one.failed]
        while tests:
            status, failed = run_tests(tree, [*dict.fromkeys(tests)], interpreted)
            if status != TESTS_FAILED:
                failing += [] if status == 0 else tests
                break
            failing += failed
            tests = [test for test in tests if test not in failed]
        for one in own:
            if one.verdict == ENDLESS and run_tests(tree, one.mutant.tests, interpreted)[0] != 0:
                failing += one.mutant.tests
    for one in outcomes:
        shows = not any(test in failing for test in one.failed or one.mutant.tests)
        yield one if shows else one._replace(verdict=NOTHING)


def main(words: Sequence[str]) -> int:
    """Try the mutants that the words choose, and tell what came of them."""
    mutants = listed()
    wrong = list(faults(mutants))
    if wrong:
        sys.stderr.write("\n".join(wrong) + "\n")
        return 2
    chosen = [one for one in mutants if not words or any(word in one.file + one.rule for word in words)]
    at_once = min(usable_cores(), len(chosen) or 1)
    with copies(at_once) as trees, ThreadPoolExecutor(at_once) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for tree in trees:
            free.put(tree)
        found = list(pool.map(lambda one: tried(one, free), chosen))
        outcomes = list(checked(found, trees[0]))
    rest = [one for one in outcomes if one.verdict not in (DIED, ENDLESS)]
    sys.stdout.write(f"\n{len(outcomes) - len(rest)} of {len(outcomes)} mutants died\n")
    for one in rest:
        say(one)
    return 2 if any(one.verdict == BROKEN for one in rest) else int(bool(rest))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
