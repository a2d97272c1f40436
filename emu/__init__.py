"""A distributed, deterministic emulator of the RoCE fabrics that train large models.

`import emu` costs next to nothing: importing `actors` installs the finder of the compiled packet path, and
the public Python API (`emu.api`) is loaded when one of its names is first used.
"""

# ruff: noqa: E402  a signal may come before what takes long to import is there

import os
import signal
import sys


def leave_at_once(number: int, frame: object) -> None:
    """End the `emu` command on Ctrl-C or SIGTERM while its modules are imported.

    Nothing is to be written or removed then, and an exception would be lost: an import has a callback for the
    lock of each module, and Python only prints what is raised in one.
    """
    del number, frame
    os.write(2, b"emu: interrupted\n")
    os._exit(130)


def _is_command() -> bool:
    """Whether this process is the `emu` command, not somebody's Python program."""
    named = (getattr(sys, "argv", None) or [""])[0]
    return named.rpartition("/")[2] == "emu" or (named == "-m" and "emu.cli.main" in sys.orig_argv)


if _is_command():
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as of `nohup emu &`
        signal.signal(signal.SIGINT, leave_at_once)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave_at_once)

from importlib import import_module
from importlib.util import find_spec

from actors.compiled.finder import compiled_state, is_compiled

__all__ = ["__version__", "compiled_state", "is_compiled"]

__version__ = "0.3.0"


def __dir__() -> list[str]:
    """The public names, those of the API too, and nothing that this module needs itself."""
    return sorted({*__all__, *import_module("emu.api").__all__})


def __getattr__(name: str) -> object:
    """Look up a name of the public API on first use. Raise AttributeError if it is none."""
    is_ours = not name.startswith("_") and find_spec(f"emu.{name}") is None
    if is_ours and find_spec("emu.api") is not None:
        api = import_module("emu.api")
        if name in api.__all__:
            value: object = getattr(api, name)
            return value
    raise AttributeError(f"module 'emu' has no attribute {name!r}")
