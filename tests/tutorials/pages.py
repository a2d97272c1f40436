"""Pages whose commands are executed as they stand, and whose output `make golden` writes: the tutorials, and
pages of reference whose figures come from such commands.

A block of `console` has command lines after `$ ` and what they print; where one fails, what it says on
standard error as well. A block of `python` that begins with the name of a file is that file from there on.
What a block marked `large` shows takes seconds compiled and minutes interpreted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from emu.cli.main import main

ROOT: Final = Path(__file__).resolve().parents[2]
REFERENCE: Final = ("ncclx",)
PAGES: Final = {
    path.stem: path
    for path in (
        *sorted((ROOT / "docs").glob("tutorial_*.md")),
        *(ROOT / "docs" / f"{page}.md" for page in REFERENCE),
    )
}
_BLOCK: Final = re.compile(r"^```(console|python)( large)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_FILE: Final = re.compile(r"# (\w+\.py)\n")


class Shown(NamedTuple):
    """A command of a page."""

    command: str
    output: str
    large: bool

    def rows(self) -> list[dict[str, str]]:
        """The table that a sweep printed, by the names of its columns."""
        cells = [re.split(r" {2,}", line.strip()) for line in self.output.splitlines()]
        head = next(number for number, row in enumerate(cells) if row[-1] == "status")
        return [dict(zip(cells[head], row, strict=True)) for row in cells[head + 1 :]]


def commands(page: str) -> list[Shown]:
    """The commands of a page, with what it says that they print."""
    return [
        Shown(command.replace("\\\n", " "), output, bool(large))
        for kind, large, text in _BLOCK.findall(page)
        if kind == "console"
        for command, output in _COMMAND.findall(text)
    ]


def executed(page: str, large: bool) -> tuple[str, list[str]]:
    """The page with its output made anew, and the commands that failed; `large` ones only if asked."""
    failed: list[str] = []

    def anew(block: re.Match[str]) -> str:
        kind, mark, text = block.groups("")
        if kind == "python":
            named = _FILE.match(text)
            if named is not None:
                Path(named[1]).write_text(text, encoding="utf-8")
                sys.modules.pop(Path(named[1]).stem, None)
                importlib.invalidate_caches()
            return block[0]
        if mark and not large:
            return block[0]
        return f"```{kind}{mark}\n{_COMMAND.sub(_run(failed), text)}```"

    with _elsewhere():
        return _BLOCK.sub(anew, page), failed


def _run(failed: list[str]) -> Callable[[re.Match[str]], str]:
    def run(shown: re.Match[str]) -> str:
        status, output = _printed(shown[1].replace("\\\n", " "))
        if status:
            failed.append(shown[1])
        lines = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        return f"$ {shown[1]}\n{lines}"

    return run


def _printed(command: str) -> tuple[int, str]:
    """Exit status and output of a command line, of which only the first command has to be ours."""
    first, _, filters = command.partition(" | ")
    words = shlex.split(first)
    out, err = io.StringIO(), io.StringIO()
    if words[0] not in ("emu", "python"):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    status = 0
    wide = mock.patch.dict(os.environ, COLUMNS="400")
    with wide, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] == "emu":
            status = main(tuple(words[1:]))
        else:
            with mock.patch.object(sys, "argv", words[1:]):
                runpy.run_path(words[1], run_name="__main__")
    text = out.getvalue() + (err.getvalue() if status else "")
    if filters:
        text = subprocess.run(
            ["bash", "-c", filters],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return status, text


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In an empty directory, whose modules are read anew and forgotten afterwards."""
    here, path, known = Path.cwd(), list(sys.path), set(sys.modules)
    with tempfile.TemporaryDirectory() as empty, mock.patch.object(sys, "dont_write_bytecode", True):
        os.chdir(empty)
        try:
            yield
        finally:
            os.chdir(here)
            sys.path[:] = path
            for name in set(sys.modules) - known:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(empty):
                    del sys.modules[name]
