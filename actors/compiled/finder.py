"""The import finder that serves the compiled packet path, or its source with fixed fields.

`actors.compiled.build` puts what mypyc made of the hot modules into a directory of its own, never beside the
sources:

    emu/_ext/<key>/build.json                 what was compiled, from which sources, for which interpreter
    emu/_ext/<key>/emu_hot__mypyc.<abi>.so    the code of the whole group
    emu/_ext/<key>/emu.kernel.queue.<abi>.so  one small entry per module

`import emu` installs the finder below in front of Python's own. The first import of a hot module decides,
once for the process and for all of them together:

- a build whose recorded sources are, byte for byte, the sources present now, and whose interpreter is this
  one, is used; a compiled file therefore never shadows an edited source;
- the recorded sources are the hot modules and everything of ours they import, because mypyc copies constants
  and layouts from imported modules into the code it makes;
- `EMU_INTERPRETED=1` in the environment keeps the source, whatever was built;
- `EMU_BUILD`, which a run sets for the workers it starts, names the build that it uses itself, or none: a
  build that becomes ready meanwhile is for the next run;
- what does not load (another libc, a half-copied file) counts as not built.

A build may hold plug-ins besides (`emu compile FILE`): files of somebody's own, compiled in the same group,
so that a call into them is as cheap as into a built-in policy. Of the builds that match, the newest with
plug-ins is used, if these files are still, byte for byte, what was compiled. A plug-in is served from it only
where Python would otherwise import a file of the same content; an edited one runs interpreted.

Not modelled on `importlib.machinery.PathFinder`: that one prefers an extension module found beside the source
without looking at either's content, which is the trap this file exists to avoid.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from actors.compiled.fields import FieldsLoader
from actors.compiled.hot_modules import HOT_MODULES

GROUP: Final = "emu_hot"
GROUP_LIBRARY: Final = f"{GROUP}__mypyc"
ABI_SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""Names interpreter, version and platform: `.cpython-311-x86_64-linux-gnu.so`."""
RECORD_NAME: Final = "build.json"
STAMPS_NAME: Final = "stamps.json"
INTERPRETED_VARIABLE: Final = "EMU_INTERPRETED"
BUILD_VARIABLE: Final = "EMU_BUILD"
NO_BUILD: Final = "none"
SLOWER: Final = "30 to 50 times slower"
"""What interpreted runs are: permutation, incast, ring and quickstart (`docs/scale.md`)."""
PROFILE_USED: Final = "-fprofile-use"
"""In the recipe of a build that is laid out by what runs of it did."""
ADVICE: Final = "run `make compile`"
PORTABLE: Final = "this wheel has no compiled code for this Python"


def builds_directory(root: Path) -> Path:
    """Where the builds of the packages under `root` are kept."""
    return root / "emu" / "_ext"


def source_path(root: Path, module: str) -> Path | None:
    """The file `module` is read from, or None if there is no such module under `root`."""
    stem = root.joinpath(*module.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return path
    return None


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex; the empty string if it is not there."""
    import hashlib  # noqa: PLC0415  it loads a library of its own, and nearly always nothing is hashed

    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def stamp(path: str) -> tuple[int, ...]:
    """A file's size in bytes, and when it was changed in ns; nothing if it is not there.

    Of a string: to put together hundreds of paths as objects takes longer than to look at the files.
    """
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns


class Build:
    """One directory of compiled modules, and the record of what it was made from."""

    def __init__(self, directory: Path) -> None:
        """Read the record of `directory`; raise ValueError or OSError if it has none that can be read."""
        self.directory = directory
        record = json.loads((directory / RECORD_NAME).read_text(encoding="utf-8"))
        try:
            self.abi_suffix = str(record["abi_suffix"])
            self.recipe = str(record["recipe"])
            self.modules = tuple(str(module) for module in record["modules"])
            self.sources = {str(name): str(digest) for name, digest in record["sources"].items()}
            self.plugins = {
                str(name): (str(at), str(digest)) for name, (at, digest) in record["plugins"].items()
            }
            """Module of a plug-in -> its file and that file's hash."""
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{directory / RECORD_NAME} is not the record of a build") from error

    def matches(self, root: Path) -> bool:
        """Whether this build is what the sources under `root` would compile to now.

        A file with the size and the time of change that it had when it was compiled is taken for the same;
        of the others the contents count. Reading all of them takes a twentieth of a short command.
        """
        stamps, compiled = self._stamps(), frozenset(self.modules)
        return all(
            stamp(f"{root}/{name}") == stamps.get(name) or content_hash(root / name) == digest
            for name, digest in self.sources.items()
        ) and all(module in compiled or source_path(root, module) is None for module in HOT_MODULES)

    def _stamps(self) -> dict[str, tuple[int, ...]]:
        """What `keep_stamps` kept; nothing if it cannot be read."""
        try:
            kept = json.loads((self.directory / STAMPS_NAME).read_text(encoding="utf-8"))
            return {str(name): tuple(found) for name, found in kept.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def keep_stamps(self, root: Path) -> None:
        """Write down the sizes and times of change of the files under `root` that are what was compiled.

        Not of one that was changed within the last second: a clock that ticks too slowly would not tell the
        next change.
        """
        settled_ns = time.time_ns() - 1_000_000_000
        kept = {
            name: found
            for name, digest in self.sources.items()
            if (found := stamp(f"{root}/{name}"))
            and found[1] < settled_ns
            and content_hash(root / name) == digest
        }
        (self.directory / STAMPS_NAME).write_text(json.dumps(kept) + "\n", encoding="utf-8")

    def holds_plugins(self) -> bool:
        """Whether plug-ins are compiled in, and each file is what was compiled."""
        return bool(self.plugins) and all(content_hash(Path(at)) == was for at, was in self.plugins.values())

    def file(self, module: str) -> Path:
        """The compiled file of a hot module, or of the group."""
        return self.directory / f"{module}{self.abi_suffix}"


def builds(root: Path) -> list[Build]:
    """Every readable build under `root`, in the order of the directory names."""
    found = []
    for record in sorted(builds_directory(root).glob(f"*/{RECORD_NAME}")):
        try:
            found.append(Build(record.parent))
        except (OSError, ValueError):
            continue
    return found


def matching_build(root: Path) -> tuple[Build | None, str]:
    """The build to use for the sources under `root`; or None, and why there is none."""
    if os.environ.get(INTERPRETED_VARIABLE, "0") not in ("", "0"):
        return None, f"{INTERPRETED_VARIABLE} is set"
    chosen = Path(os.environ.get(BUILD_VARIABLE, ""))
    is_given = chosen.parent == builds_directory(root)
    if is_given and chosen.name == NO_BUILD:
        return None, "as the process that started this one"
    candidates = [build for build in builds(root) if not is_given or build.directory == chosen]
    if not candidates:
        return None, PORTABLE if (root / "emu" / "_shipped").is_dir() else f"not compiled; {ADVICE}"
    candidates = [build for build in candidates if build.abi_suffix == ABI_SUFFIX]
    if not candidates:
        return None, f"compiled for another Python than {ABI_SUFFIX}; {ADVICE}"
    matching = [build for build in candidates if build.matches(root)]
    for build in sorted(matching, key=_preference, reverse=True):
        if not build.plugins or build.holds_plugins():
            return build, ""
    return None, f"the sources changed since they were compiled; {ADVICE}"


def _preference(build: Build) -> tuple[int, bool]:
    """An order that ends with the plug-ins compiled last; without any, with a profiled build."""
    last = (build.directory / RECORD_NAME).stat().st_mtime_ns if build.plugins else 0
    return last, PROFILE_USED in build.recipe


class CompiledFinder:
    """A meta-path finder for the hot modules and their group; every other name it leaves to Python."""

    def __init__(self, root: Path) -> None:
        """Serve the packages under `root`. Nothing is read before the first hot module is asked for."""
        self._root = root
        self._names = frozenset((*HOT_MODULES, GROUP_LIBRARY))
        self._build: Build | None = None
        self._reason = ""
        self._decided = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where `fullname` is loaded from, if it is a hot module or compiled. Part of the import protocol."""
        del target
        if fullname in self._names:
            self._decide()
            return self._spec(fullname)
        if self._build is not None and fullname in self._build.plugins:
            found = PathFinder.find_spec(fullname, path)
            if (
                found
                and found.origin
                and content_hash(Path(found.origin)) == self._build.plugins[fullname][1]
            ):
                return self._spec(fullname)
        return None

    @property
    def interpreted_because(self) -> str:
        """Why the packet path runs interpreted; empty if it runs compiled."""
        self._decide()
        return self._reason

    @property
    def choice(self) -> Path:
        """What this process uses, as `EMU_BUILD` has it."""
        self._decide()
        return builds_directory(self._root) / NO_BUILD if self._build is None else self._build.directory

    def _decide(self) -> None:
        if self._decided:
            return
        self._decided = True
        self._build, self._reason = matching_build(self._root)
        if self._build is None:
            return
        try:
            importlib.import_module(GROUP_LIBRARY)
        except ImportError as error:
            self._reason = f"the compiled files do not load: {error}"
            self._build = None

    def _spec(self, fullname: str) -> ModuleSpec | None:
        if self._build is None:
            source = source_path(self._root, fullname)
            if source is None:
                return None
            return spec_from_file_location(fullname, source, loader=FieldsLoader(fullname, str(source)))
        file = str(self._build.file(fullname))
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


_finder: Final = CompiledFinder(Path(__file__).parent.parent.parent)


def install() -> None:
    """Put the finder in front of Python's own, once."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def choice() -> str:
    """The value of `EMU_BUILD` with which another process of these sources runs what this one runs."""
    return str(_finder.choice)


def is_compiled() -> bool:
    """Whether the packet path of this process is compiled code."""
    return not _finder.interpreted_because


def compiled_state() -> str:
    """Return `compiled`, or `interpreted (the reason)`, as `emu --version` prints it."""
    return f"interpreted ({_finder.interpreted_because})" if _finder.interpreted_because else "compiled"
