"""Names of modules that users have from the pages of before 0.3.0, and where these modules are now.

`import emu.adapters.transfer_oracle` still works, and warns. The finder stands behind all others, so an
import that finds its module pays nothing for it. Goes with 0.4.0.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, cast

_OPTIONAL: Final = {
    "actors.nic.congestion": ("cubic", "hpcc", "hybrid", "swift", "tcp_window"),
    "actors.nic": ("multipath", "tcp"),
    "actors.switch": ("deep",),
    "actors.switch.routing": ("engineered", "flowlet", "spray"),
}
MOVED: Final = {
    "emu.adapters.astra_network": "emu.doors.open.adapters.astra_network",
    "emu.adapters.collective_costs": "emu.doors.open.adapters.collective_costs",
    "emu.adapters.transfer_oracle": "emu.doors.open.adapters.transfer_oracle",
    "emu.runtime.live.open_client": "emu.doors.open.open_client",
    "emu.runtime.live.open_run": "emu.engine.live.open_run",
} | {f"{room}.{name}": f"actors.optional.{name}" for room, names in _OPTIONAL.items() for name in names}
"""Name of before -> name of now."""
_PACKAGES: Final = ("emu.adapters", "emu.runtime", "emu.runtime.live")
"""Packages that are gone; their modules are looked up here."""


class MovedFinder:
    """Finds a module by its name of before, last of all finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec whose module is the one of now. Part of the import protocol."""
        del path, target
        if fullname not in _PACKAGES and fullname not in MOVED:
            return None
        # `importlib.abc.Loader`, which the types ask for, would load what no run needs.
        return ModuleSpec(fullname, cast("Any", self), is_package=fullname in _PACKAGES)

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the import system make the module that `exec_module` replaces."""
        del spec

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of now in the place of the one that was asked for, and warn."""
        now = MOVED.get(module.__name__)
        if now is not None:
            message = f"{module.__name__} is {now} now; the former name goes with emu 0.4.0"
            warnings.warn(message, FutureWarning, stacklevel=2)
            sys.modules[module.__name__] = importlib.import_module(now)


_finder: Final = MovedFinder()


def install() -> None:
    """Put the finder behind all others, once."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
