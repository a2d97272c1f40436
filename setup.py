"""What goes into a wheel besides the modules?

- The compiled packet path, where compiling is possible; the build never fails where it is not. An editable
  install compiles nothing: `python -m actors.compiled.build` does. `EMU_INTERPRETED=1` in the environment
  makes a wheel without it, in a second.
- The scenarios, the pages and the commit (`emu.base.shipped`): a copy, made here and nowhere else.
- The README as the description, with links that lead somewhere from a page without the repository: to
  `emu docs PAGE`; or, if `EMU_REPOSITORY_URL` in the environment says under which address the files of this
  checkout can be read, to there, and then the project has URLs.

Everything declarative is in pyproject.toml.
"""

import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from actors.compiled.build import compile_or_explain  # noqa: E402  likewise
from actors.compiled.finder import INTERPRETED_VARIABLE  # noqa: E402  needs the line above in an isolated build
from emu.base.shipped import COMMIT_NAME, FOLDERS, INSIDE, commit  # noqa: E402  likewise

REPOSITORY_URL = os.environ.get("EMU_REPOSITORY_URL", "").rstrip("/")
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s:#]+)\)")
"""A link to a file of the repository, or a picture of it."""


@cache
def compiled() -> Path | None:
    """The directory of the compiled packet path, or None if this wheel will run interpreted."""
    if os.environ.get(INTERPRETED_VARIABLE, "0") not in ("", "0"):
        print(
            f"compile: {INTERPRETED_VARIABLE} is set; the wheel will run interpreted, with the same answers"
        )
        return None
    return compile_or_explain(ROOT)


def linked(found: re.Match[str]) -> str:
    """A link of the README as it stands on the page of the package."""
    picture, text, path = found.groups()
    if REPOSITORY_URL:
        return f"{picture}[{text}]({REPOSITORY_URL}/{path})"
    if picture:
        return text
    shown = f"`emu docs {Path(path).stem}`"
    return shown if text == path else f"{text} ({shown})"


class BuildWithPacketPath(build_py):
    """Adds the compiled modules, and what else comes with emu, to the files of the package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib, "emu")
        inside = package / INSIDE.name
        shutil.rmtree(inside, ignore_errors=True)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, inside / name)
        if commit():
            (inside / COMMIT_NAME).write_text(commit() + "\n", encoding="ascii")
        shutil.rmtree(package / "_ext", ignore_errors=True)
        directory = compiled()
        if directory is not None:
            shutil.copytree(directory, package / "_ext" / directory.name)


class WheelWithPacketPath(bdist_wheel):
    """Names the platform in the wheel's file name if it holds compiled modules."""

    def finalize_options(self) -> None:
        if "bdist_wheel" in self.distribution.commands and compiled() is not None:
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()


setup(
    cmdclass={"build_py": BuildWithPacketPath, "bdist_wheel": WheelWithPacketPath},
    long_description=LINK.sub(linked, (ROOT / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
    project_urls={
        name: f"{REPOSITORY_URL}/{path}"
        for name, path in (("Documentation", "README.md"), ("Changelog", "CHANGELOG.md"))
        if REPOSITORY_URL
    },
)
