"""Plug-ins: a user's own class, `module:Class`, as a choice of a scenario.

`kind: my_module:MyPolicy` names a class in a module that Python can import: installed, on PYTHONPATH, or
beside where `emu` was started. The class lists its knobs in `knobs`, and the section that is made of them is
checked like every other. Whatever does not load is refused by name, with Python's own reason.

Importing a module runs its code. A run does that; a command that only reads somebody else's file asks first
(`asking`). Modules of emu itself are always imported.

A class is refused before it is used if a hook of its seam is missing, abstract, takes other arguments or is a
coroutine. A hook that returns another type than its base fails in the run, by key, class, hook and line. Code
of a plug-in that calls `sys.exit` ends the command with status 4 and a line that says so, wherever it is.

A plug-in that keeps state has `save` and `load`. One that has none and whose attributes change in a run would
go on from a snapshot as if it were new, and to another digest. So an attribute that is another than after
`__init__` is refused by name when the first snapshot is taken (`policy_of`). Attributes of the base class
are its own.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import NoneType
from typing import Any, Final

from actors.kernel.errors import RuntimeFailure
from actors.nic.queue_pair.queue_pair import QueuePair
from actors.wire.frame import Frame
from emu.base.errors import UsageError
from emu.base.records import Mistake, MistakesError, RefusedError
from emu.base.spelling import listed, shown
from emu.scenario.knobs import PolicySection, section_of
from emu.scenario.section import OneOf, Section

SEPARATOR = ":"
VARIABLE: Final = "EMU_PLUGINS"
ASKED: Final = f"--plugins, or {VARIABLE}=1 in the environment, if you trust it"
_OURS: Final = ("actors.", "emu.")
_WANTED: Final[ContextVar[frozenset[str] | None]] = ContextVar("wanted", default=None)
"""The classes of others' modules that may be imported; None for any."""


def load_plugin(name: str) -> type[Any]:
    """The class that `module:Class` names. RefusedError if there is none."""
    module_name, _, class_name = name.partition(SEPARATOR)
    accepted = "module:Class, of a module that can be imported"
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise RefusedError(f"{name[:80]!r} does not name a class", accepted)
    wanted = _WANTED.get()
    if wanted is not None and name not in wanted and not f"{module_name}.".startswith(_OURS):
        raise RefusedError(f"{name!r} runs the code of the module {module_name}", ASKED)
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except SystemExit as error:
        raise RuntimeFailure(f"{name}: its module called sys.exit({error.code!r}) when imported") from error
    except Exception as error:
        reason = f"{name!r} does not load: {type(error).__name__}: {error}"
        raise RefusedError(" ".join(reason.split())[:400], accepted) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise RefusedError(f"{name!r} does not load: {module_name} has no class {class_name}", accepted)
    return found


@contextmanager
def asking(wanted: Collection[str]) -> Iterator[None]:
    """Import no module of others' in here but those of the classes `wanted`."""
    token = _WANTED.set(frozenset(wanted))
    try:
        yield
    finally:
        _WANTED.reset(token)


def added_kind(kind: str, name: str, table: Mapping[str, object]) -> str:
    """`module:Class` of a policy or workload that another package adds under a name; empty if none does.

    RefusedError where two packages do.
    """
    if not name or SEPARATOR in name or name in table:
        return ""
    from emu.base import doors  # noqa: PLC0415 - only for a name that emu does not have

    try:
        found = doors.named(kind, name)
    except UsageError as error:
        raise RefusedError(str(error), "one package") from error
    return "" if found is None else found.place


class OneOfOrAdded(OneOf):
    """A table of kinds, and beside it those that other packages add to it (`emu.base.doors`)."""

    def __init__(
        self, key: str, table: Mapping[str, type[Section]], added: str, parent: type[Section]
    ) -> None:
        super().__init__(key, table)
        self.added = added
        """The kind of what is added: `workload`."""
        self.parent = parent

    def model(self, kind: str) -> type[Section] | None:
        """The model of a kind; None if there is no such kind, or it does not load."""
        try:
            return super().model(kind) or self._added(kind)
        except RefusedError:
            return None

    def _added(self, kind: str) -> type[Section] | None:
        place = added_kind(self.added, kind, self.table)
        if not place:
            return None
        found = load_plugin(place)
        if not issubclass(found, self.parent):
            base = f"{self.parent.__module__}.{self.parent.__qualname__}"
            raise RefusedError(f"{kind!r} ({place}) does not load: it is no subclass of {base}", f"a {base}")
        return found

    def take(self, value: object) -> Section:
        """The section that a value asks for, of the table or of another package's class."""
        kind = self.chosen(value) if isinstance(value, (dict, Section)) else ""
        try:
            model = None if kind in self.table else self._added(kind)
        except RefusedError as error:
            raise MistakesError([Mistake((self.key,), error.reason, error.accepted)]) from error
        return super().take(value) if model is None else model.model_validate(value)


class OneOfOrPlugin(OneOf):
    """A table of kinds, and beside it whatever `module:Class` names.

    The class derives from `parent` and overrides or inherits the methods `methods`; its section is made of
    its knobs and of `base`, which has what all policies of the seam share.
    """

    def __init__(
        self,
        table: Mapping[str, type[PolicySection]],
        default: str,
        base: type[PolicySection],
        parent: type[Any],
        methods: tuple[str, ...],
        abstract: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__("kind", table, default)
        self.base = base
        self.parent = parent
        self.methods = methods
        self.abstract = abstract or {}
        """Compiled bases, `module:Class`, that lack methods, which Python does not know as abstract: whoever
        derives from them has these of its own."""

    def section(self, kind: str = "", **keys: object) -> Any:
        """The section of a kind, or of the default one, with these keys as a scenario has them."""
        kind = kind or self.default
        model = self.model(kind)
        assert model is not None, kind
        return model.model_validate({self.key: kind, **keys}) if keys else model.defaults()

    def model(self, kind: str) -> type[Section] | None:
        """The model of a kind; None if there is no such kind, or it does not load."""
        try:
            kind = added_kind("policy", kind, self.table) or kind
        except RefusedError:
            return None
        return self._plugged(kind) if SEPARATOR in kind else super().model(kind)

    def _plugged(self, kind: str) -> type[Section] | None:
        try:
            return self._section(kind)
        except RefusedError:
            return None

    def _section(self, kind: str) -> type[PolicySection]:
        found = load_plugin(kind)
        check_class(kind, found, self.parent, self.methods, self.abstract)
        try:
            return _made(self.base, kind, found)
        except RefusedError as error:
            raise RefusedError(f"{kind!r} does not load: {error.reason}", error.accepted) from error

    def take(self, value: object) -> Section:
        """The section that a value asks for, of the table or of others' class."""
        kind = self.chosen(value) if isinstance(value, (dict, Section)) else ""
        try:
            added = added_kind("policy", kind, self.table)
        except RefusedError as error:
            raise MistakesError([Mistake((self.key,), error.reason, error.accepted)]) from error
        if added and isinstance(value, dict):  # the effective scenario names the class
            kind, value = added, {**value, self.key: added}
        if SEPARATOR not in kind:
            return super().take(value)
        if isinstance(value, Section):
            return value
        try:
            model = self._section(kind)
        except RefusedError as error:
            raise MistakesError([Mistake((self.key,), error.reason, error.accepted)]) from error
        return model.model_validate(value)

    def schema(self, described: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Any of the kinds, or others' class."""
        kinds = super().schema(described)
        plugin = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"}
        other = {"type": "object", "properties": {self.key: plugin}, "required": [self.key]}
        return {"oneOf": [*kinds["oneOf"], other]}


def check_class(
    kind: str,
    plugin: type[Any],
    parent: type[Any],
    methods: tuple[str, ...],
    abstract: Mapping[str, tuple[str, ...]],
) -> None:
    """Raises RefusedError if a class cannot take the place of `parent`: it is no subclass, or has no method
    or only an abstract one where a hook is called, or one that takes other arguments."""
    base = f"{parent.__module__}.{parent.__qualname__}"
    hooks = [name for name, value in inspect.getmembers(parent, callable) if name[0] != "_"]
    fits = issubclass(plugin, parent)
    needed = [*methods, *hooks] if fits else methods
    missing = [one for one in needed if not callable(getattr(plugin, one, None))]
    if missing or not fits:
        reason = f"has no method `{missing[0]}`" if missing else f"is no subclass of {base}"
        raise RefusedError(f"{kind!r} does not load: it {reason}", f"a subclass of {base}")
    open_ones = sorted(getattr(plugin, "__abstractmethods__", ())) or [
        method
        for lacking in plugin.__mro__
        for method in abstract.get(f"{lacking.__module__}:{lacking.__qualname__}", ())
        if getattr(plugin, method) is getattr(lacking, method)
    ]
    if open_ones:
        reason = f"{kind!r} does not load: it does not say what its `{open_ones[0]}` does"
        raise RefusedError(reason, f"a subclass of {base} with {listed(open_ones)}")
    _check_hooks(kind, plugin)


def _check_hooks(kind: str, plugin: type[Any]) -> None:
    """Refuse hooks that take other arguments than those of emu's own class that they override, or that return
    before they did anything, as coroutines and generators do."""
    ours = [one for one in plugin.__mro__ if one.__module__.startswith(_OURS)]
    for name in dict.fromkeys(name for one in _own(plugin) for name in vars(one) if name[0] != "_"):
        base = next((getattr(one, name) for one in ours if name in vars(one)), None)
        method = getattr(plugin, name)
        if not callable(base) or isinstance(base, type):
            continue
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
            what = "coroutine" if inspect.iscoroutinefunction(method) else "generator"
            raise RefusedError(f"{kind!r} does not load: its `{name}` is a {what}", "a plain method")
        try:
            names, taken = list(inspect.signature(base).parameters), inspect.signature(method)
        except ValueError:  # compiled, and without a signature: it was checked while it ran interpreted
            continue
        try:
            taken.bind(*names)
        except TypeError as error:
            reason = f"{kind!r} does not load: its `{name}` takes other arguments"
            raise RefusedError(reason, f"{name}({', '.join(names)})") from error


def _own(plugin: type[Any]) -> list[type[Any]]:
    """The classes of others' among a class and its bases."""
    return [one for one in plugin.__mro__ if not one.__module__.startswith(_OURS) and one is not object]


_MADE: Final[dict[tuple[type[PolicySection], str, type[Any]], type[PolicySection]]] = {}


def _made(base: type[PolicySection], kind: str, policy: type[Any]) -> type[PolicySection]:
    """The section of a plug-in, one for each class, so that sections of it can be compared."""
    found = _MADE.get((base, kind, policy))
    if found is None:
        found = section_of(base, kind, policy, (policy.__doc__ or kind).partition("\n")[0])
        _MADE[base, kind, policy] = found
    return found


def ask(section: PolicySection, hook: str) -> Any:
    """What a static hook of the class that a section chooses says of it. Raises RuntimeFailure if the hook
    fails, and it is somebody's own."""
    policy = policy_of(section)
    try:
        return getattr(policy, hook)(section)
    except HookFailure:
        raise
    except (Exception, SystemExit) as error:
        if policy is section.policy:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        name = f"{policy.__module__}:{policy.__name__}"
        where = _written(getattr(section.policy, hook))
        raise HookFailure(name, f"its `{hook}` failed: {said}{where}") from error


_CHECKED: Final[dict[Any, type[Any]]] = {}


def policy_of(section: PolicySection) -> type[Any]:
    """The class that makes what a section chooses. One of somebody's own is checked as it runs: a hook that
    returns what its seam cannot take, and state that a snapshot would forget, are refused by name."""
    found = section.policy
    own = _own(found)
    file = getattr(sys.modules.get(found.__module__), "__file__", None) or ""
    compiled = file.endswith(".so")  # nobody can look into one; it was refused while it ran interpreted
    if compiled or not own:
        return found
    if found not in _CHECKED:
        forgets = hasattr(found, "save") and not any("save" in vars(one) for one in own)
        hooks = [name for one in own for name in vars(one) if name in _RETURNED]
        _CHECKED[found] = _checked(found, dict.fromkeys(hooks), forgets=forgets)
    return _CHECKED[found]


def _checked(plugin: type[Any], hooks: Iterable[str], *, forgets: bool) -> type[Any]:
    """The class with every hook checked for what it returns, and its attributes when it is saved if it
    `forgets` them."""
    names: dict[str, Any] = {hook: _returning(plugin, hook) for hook in hooks}
    names |= _remembering(plugin) if forgets else {"__init__": _building(plugin)}
    return type(
        plugin.__name__, (plugin,), names | {"__module__": plugin.__module__, "__doc__": plugin.__doc__}
    )


_RETURNED: Final[Mapping[str, tuple[type[Any] | tuple[type[Any], ...], str]]] = {
    **dict.fromkeys(
        ("choose", "choose_class", "entropy", "marked_share", "threshold_bytes"), (int, "a whole number")
    ),
    **dict.fromkeys(
        ("marks", "drops", "admits", "waits_at", "fits", "by_packet", "out_of_order"), (bool, "True or False")
    ),
    **dict.fromkeys(("next_packet", "acknowledgement"), ((Frame, NoneType), "a frame or None")),
    "telemetry_on_wire": ((int, NoneType), "a whole number or None"),
    "choose_pair": (QueuePair, "a queue pair of the ring"),
    **dict.fromkeys(("servers", "order"), ((list, tuple), "a list of numbers of servers")),
    **dict.fromkeys(("save", "series", "counters"), (list, "a list")),
}
"""What hooks return. All others return nothing, and compiled code refuses what they return otherwise
(`emu.devices.checks.blaming`)."""
_LARGEST: Final = 2**63


class HookFailure(RuntimeFailure):
    """A hook of a plug-in did what it may not."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"{plugin}: {reason}")
        self.plugin = plugin
        """`module:Class`."""


def _returning(plugin: type[Any], hook: str) -> Any:
    """The hook, which fails by name where it returns another type."""
    method = getattr(plugin, hook)
    kind, accepted = _RETURNED[hook]

    def checked(*args: Any) -> Any:
        value = method(*args)
        if not isinstance(value, kind) or (kind is int and not -_LARGEST <= value < _LARGEST):
            raise HookFailure(
                f"{plugin.__module__}:{plugin.__name__}",
                f"its `{hook}` returned {shown(value)}, not {accepted}{_written(method)}",
            )
        return value

    static = isinstance(inspect.getattr_static(plugin, hook), staticmethod)
    return staticmethod(checked) if static else checked


def _building(plugin: type[Any]) -> Any:
    """`__init__`, which fails where it leaves out that of emu's own class: what it sets is looked for."""

    def build(self: Any, *args: Any, **keys: Any) -> None:
        plugin.__init__(self, *args, **keys)
        _check_built(self)

    return build


def _check_built(plugin: Any) -> None:
    """Raises TypeError if an attribute of emu's own class is not set."""
    for one in type(plugin).__mro__:
        if not one.__module__.startswith(_OURS):
            continue
        for name, value in vars(one).items():
            if inspect.isgetsetdescriptor(value) or inspect.ismemberdescriptor(value):
                try:
                    getattr(plugin, name)
                except AttributeError:
                    raise TypeError(
                        f"its __init__ does not call super().__init__(), which sets `{name}`"
                    ) from None


def _written(method: Any) -> str:
    """Where a method is written; empty where nothing tells."""
    code = getattr(method, "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


def _remembering(plugin: type[Any]) -> dict[str, Any]:
    """`__init__` and `save` of a class that has no `save`: it refuses to be saved with other attributes."""
    inherited = {
        name
        for one in plugin.__mro__
        if one.__module__.startswith(_OURS)
        for name in getattr(getattr(vars(one).get("__init__"), "__code__", None), "co_names", ())
    }

    def build(self: Any, *args: Any, **keys: Any) -> None:
        plugin.__init__(self, *args, **keys)
        _check_built(self)
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

    return {"__init__": build, "save": save}


def _shown(plugin: Any, inherited: set[str]) -> dict[str, str]:
    """The plug-in's own attributes, in words."""
    return {
        name: repr(value)
        for name, value in vars(plugin).items()
        if name not in inherited and name != "built with"
    }
