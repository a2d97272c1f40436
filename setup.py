"""How does the compiled packet path get into a wheel?

It is compiled where that is possible, and the build never fails where it is not. Everything declarative is in
pyproject.toml. An editable install compiles nothing: `python -m emu.compiling` does.
"""

import shutil
import sys
from functools import cache
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from emu.compiling import compile_or_explain  # noqa: E402  needs the line above in an isolated build


@cache
def compiled() -> Path | None:
    """The directory of the compiled packet path, or None if this wheel will run interpreted."""
    return compile_or_explain(ROOT)


class BuildWithPacketPath(build_py):
    """Adds the compiled modules to the files of the package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        directory = compiled()
        if directory is not None:
            destination = Path(self.build_lib, "emu", "_ext")
            shutil.rmtree(destination, ignore_errors=True)
            shutil.copytree(directory, destination / directory.name)


class WheelWithPacketPath(bdist_wheel):
    """Names the platform in the wheel's file name if it holds compiled modules."""

    def finalize_options(self) -> None:
        if "bdist_wheel" in self.distribution.commands and compiled() is not None:
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()


setup(cmdclass={"build_py": BuildWithPacketPath, "bdist_wheel": WheelWithPacketPath})
