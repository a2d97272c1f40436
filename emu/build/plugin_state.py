"""State of plug-ins that a snapshot would forget.

A plug-in that keeps state has `save` and `load`. One that has none and whose attributes change in a run would
go on from a snapshot as if it were new, and to another digest. So an attribute that is another than after
`__init__` is refused by name when the first snapshot is taken. Attributes of the base class are its own.
"""

from __future__ import annotations

from typing import Any, Final

from actors.kernel.errors import RuntimeFailure
from emu.scenario.plugins import load_plugin

_OURS: Final = ("actors.", "emu.")
_CHECKED: Final[dict[Any, type[Any]]] = {}


def load_checked(name: str) -> type[Any]:
    """The class that `module:Class` names, which refuses to be saved with state that it would forget."""
    found = load_plugin(name)
    own = [one for one in found.__mro__ if not one.__module__.startswith(_OURS) and one is not object]
    if not hasattr(found, "save") or any("save" in vars(one) for one in own):
        return found
    if found not in _CHECKED:
        _CHECKED[found] = _checked(found)
    return _CHECKED[found]


def _checked(plugin: type[Any]) -> type[Any]:
    inherited = {
        name
        for one in plugin.__mro__
        if one.__module__.startswith(_OURS)
        for name in getattr(getattr(vars(one).get("__init__"), "__code__", None), "co_names", ())
    }

    def build(self: Any, *args: Any, **keys: Any) -> None:
        plugin.__init__(self, *args, **keys)
        self.__dict__["built with"] = _shown(self, inherited)

    def save(self: Any) -> Any:
        built = self.__dict__["built with"]
        for name, value in _shown(self, inherited).items():
            if built.get(name) != value:
                raise RuntimeFailure(
                    f"{plugin.__module__}:{plugin.__name__} cannot be saved: its attribute {name!r} changes "
                    "in the run, and it has no save and load; a snapshot would forget it"
                )
        return plugin.save(self)

    names = {"__init__": build, "save": save, "__module__": plugin.__module__, "__doc__": plugin.__doc__}
    return type(plugin.__name__, (plugin,), names)


def _shown(plugin: Any, inherited: set[str]) -> dict[str, str]:
    """The plug-in's own attributes, in words."""
    return {
        name: repr(value)
        for name, value in vars(plugin).items()
        if name not in inherited and name != "built with"
    }
