"""A distributed, deterministic emulator of the RoCE fabrics that train large models.

`import emu` costs next to nothing: importing `actors` installs the finder of the compiled packet path, and
the public Python API (`emu.api`) is loaded when one of its names is first used.
"""

from importlib import import_module
from importlib.util import find_spec

from actors.compiled.finder import compiled_state, is_compiled

__all__ = ["__version__", "compiled_state", "is_compiled"]

__version__ = "0.1.0"


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
