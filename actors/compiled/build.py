"""Compiling the packet path with mypyc, and what happens where that cannot be.

    python -m actors.compiled.build

    python -m actors.compiled.build --background

    python -m actors.compiled.build --profiled

    emu compile FILE ...

compiles the hot modules (`actors.compiled.hot_modules`) with mypyc, in one group, into `emu/_ext/<key>/`,
from where `actors.compiled.finder` serves them. The rules:

- what is compiled is a copy of the sources, taken first: an edit made meanwhile ends in a build that does not
  match and is not used, never in one that lies;
- a build that matches is left alone, so the command can be run after every edit;
- no compiler, no headers, no mypy or a failed compile is one line and exit status 0: everything runs
  interpreted, with the same answers;
- in the background it is compiled once at a time, at the lowest priority, by a process that outlives whoever
  started it and hears no Ctrl-C; each later call prints in a line how far that is;
- `--profiled` compiles twice: first code that counts which way branches go and which functions are called,
  with which it runs a few bench cases, then code that is laid out by these counts. It takes three times as
  long and needs gcc; the other ways leave such a build alone, as long as it matches;
- the code is portable within the platform (no `-march`), signed overflow wraps (`-fwrapv`), and assertions
  stay on;
- the newest few builds are kept (a process that started before an edit may still be loading one), older ones
  are removed; those with plug-ins are counted apart;
- files of plug-ins are compiled with the packet path, in the same group and C file as switches and NICs.

Not covered: cross compiling, and compilers other than gcc and clang.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from actors.compiled.finder import (
    ABI_SUFFIX,
    BUILD_VARIABLE,
    GROUP,
    GROUP_LIBRARY,
    INTERPRETED_VARIABLE,
    PROFILE_USED,
    RECORD_NAME,
    SLOWER,
    Build,
    builds,
    builds_directory,
    content_hash,
    source_path,
)
from actors.compiled.hot_modules import HOT_MODULES

PACKAGES: Final = ("emu", "actors")
OPTIMISATION: Final = os.environ.get("EMU_OPTIMISATION", "3")  # 1 compiles in half the time, for development
C_FLAGS: Final = (
    "-fwrapv",  # native integers wrap, as mypyc assumes, whatever flags this Python was built with
    "-fvisibility=hidden",  # lets the compiler inline the functions of the group into each other
    "-fno-tree-slp-vectorize",  # two fields read as one vector are then taken apart again, one by one
    "-fno-reorder-blocks-and-partition",  # frames that wait are not rare
    "-fno-plt",  # functions of Python are called by their address, without a jump between
    "-Wno-all",  # nobody mends what mypyc writes, and looking for warnings is work
    "-w",  # and a warning of a newer compiler is no reason to run interpreted
)
ENTRY_FLAGS: Final = ("-O0",)  # the small file of a module makes one call, once
ONCE: Final = re.compile(rb"^char CPyDef_\w+_____top_level__\(void\) \{", re.MULTILINE)
"""Where the body of a module begins: a sixth of all code, and run once."""
_FETCH: Final = (
    b"__builtin_prefetch(frame, 1); __builtin_prefetch(frame + 64, 1);"  # a frame is these two lines
)
_AT: Final = b"if (cpy_r_at < cpy_r_table.len) { char *frame = (char *)cpy_r_table.items[cpy_r_at]; %s }"
_BEHIND: Final = b"char *frame = (char *)((actors___kernel___event___EventObject *)cpy_r_event)->_chain; %s"
_PACKED: Final = b"""
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return PyBytes_FromStringAndSize((char *)(cpy_r_table.items + cpy_r_begin), cpy_r_count * 8);
#endif
"""
BODIES: Final = {
    "actors.kernel.cache": {
        b"fetch_event": _AT % _FETCH,
        b"fetch_frame": _AT % _FETCH,
        b"fetch_behind": _BEHIND % _FETCH,
    },
    "actors.kernel.event": {b"untrack": b"PyObject_GC_UnTrack(cpy_r_record);"},
    "actors.wire.frame_columns": {b"packed": _PACKED},
}
"""What Python has no words for: these functions, by module, get their bodies in C. That of `packed` says what
its Python says, in one piece: word by word it took a third of what a packet to another worker costs."""
RARE: Final = """
typedef struct _object Object;
__attribute__((cold)) void _Py_Dealloc(Object *);
__attribute__((cold)) void PyErr_SetNone(Object *);
__attribute__((cold)) void CPyError_OutOfMemory(void);
__attribute__((cold)) void CPy_Raise(Object *);
__attribute__((cold)) void CPy_AddTraceback(const char *, const char *, int, Object *);
__attribute__((cold)) void CPy_TypeErrorTraceback(
    const char *, const char *, int, Object *, const char *, Object *);
__attribute__((cold)) void CPy_AttributeError(
    const char *, const char *, const char *, const char *, int, Object *);
"""
"""Begins each C file: what is called after nearly no test that mypyc writes, so that the compiler keeps the
way there out of the path of a hop."""
INLINED: Final = {
    "actors.kernel.queue": ("EventQueue.pop", "EventQueue.push"),
    "actors.nic.egress_port": ("NicPort._append", "NicPort._join", "NicPort.send_frame"),
    "actors.nic.nic": ("Nic._arrived",),
    "actors.nic.queue_pair.packets": (
        "Connection.acknowledgement",
        "Connection.frame",
        "Connection.packet",
    ),
    "actors.nic.queue_pair.queue_pair": ("QueuePair.next_frame",),
    "actors.nic.queue_pair.requester": ("Requester._advance", "Requester.acknowledged"),
    "actors.nic.queue_pair.responder": ("Responder.answer", "Responder.port_at", "Responder.respond"),
    "actors.port.port": (
        "Port._arm_behind",
        "Port._may_put_off",
        "Port.kick",
        "Port.put_off",
        "Port.serve",
        "Port.transmit",
    ),
    "actors.wire.frame": ("Frame.arrive", "Spares.take"),
    "actors.switch.buffer": ("Buffer.threshold_bytes",),
    "actors.switch.egress": ("SwitchPort.enqueue",),
    "actors.switch.switch": ("Switch._choice", "Switch._hold"),
}
"""What a hop calls, by module: these functions are put where they are called from within their unit. Left
alone the compiler does not, since each is long: most of it is ways to errors, which are never taken."""
UNITS: Final = (
    ("actors.kernel.", "actors.wire.", "actors.port.", "actors.switch.", "actors.nic.", "actors.optional."),
    ("actors.host.", "actors.gpu.", "actors.ncclx.", "actors.control."),
)
"""The C files of which the group is compiled, side by side: the rooms of each, and one of what is left.
Within one the compiler inlines from module to module, so what a hop passes is in one. One unit of everything
takes a third more CPU time, and one core; a unit for each module reads the headers a hundred times and
inlines nothing."""
UNTYPED: Final = ("ray", "trio", "yaml", "prometheus_client", "rich", "click")
"""Libraries whose sources mypy need not read: no compiled module uses a type of theirs, and checking them was
nine tenths of the time before the C compiler starts."""
MYPY: Final = f"""
[mypy]
[mypy-{",".join(f"{library}.*" for library in UNTYPED)}]
follow_imports = skip
follow_imports_for_stubs = True
"""
DURATION: Final = "once; the packet path takes about a minute"
DURATION_PROFILED: Final = "twice, with a few runs between; about three minutes"
KEPT_BUILDS: Final = 3
PROFILED: Final = "--profiled"
COUNTING_FLAGS: Final = ("-fprofile-generate", "-fprofile-update=single")
COUNTED_FLAGS: Final = (PROFILE_USED, "-fprofile-partial-training", "-fprofile-correction")
"""What was not run in training is optimised as without a profile, and not for size."""
TRAINING: Final = ("permutation-64", "ring-64", "incast-16", "all-to-all-64")
"""The bench cases that the counting code runs: some two seconds of compiled code."""
LOG_NAME: Final = "compile.log"
BACKGROUND: Final = "--background"
NICELY: Final = "--nicely"
NICENESS: Final = 19
BACKGROUND_LOCK: Final = ".background"
BACKGROUND_LOG: Final = "background.log"
INTERPRETED: Final = f"runs are interpreted, {SLOWER}"


class CannotCompileError(Exception):
    """Why this machine runs interpreted, in one line."""


def recipe(profiled: bool = False) -> str:
    """What besides the sources decides the code: the version of mypyc, the flags, and how C is rewritten."""
    flags = (*C_FLAGS, *COUNTED_FLAGS) if profiled else C_FLAGS
    rewriting = hashlib.sha256(repr((BODIES, RARE, INLINED, UNITS)).encode()).hexdigest()[:8]
    return f"mypy {importlib.metadata.version('mypy')} -O{OPTIMISATION} {' '.join(flags)} {rewriting}"


def refuse_unless_possible() -> None:
    """Raise CannotCompileError if something that compiling needs is missing."""
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        raise CannotCompileError("mypy or setuptools is not installed")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise CannotCompileError(f"no C compiler ({compiler})")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise CannotCompileError("no Python headers (Python.h)")


def hot_modules(root: Path) -> tuple[str, ...]:
    """The modules of the packet path. Raise CannotCompileError for a name that no file under `root` has.

    A file that moved would otherwise drop out and run interpreted: slower, with the same digest.
    """
    gone = [module for module in HOT_MODULES if source_path(root, module) is None]
    if gone:
        raise CannotCompileError(f"actors/compiled/hot_modules.py names {', '.join(gone)}: no such module")
    return HOT_MODULES


def imported_names(path: Path, module: str) -> list[str]:
    """The dotted names a source file imports, in order, relative ones resolved; not each is a module."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names = []
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return names


def module_of(file: Path) -> str:
    """The module that a scenario names for a plug-in's file: its name, below the packages that it is in."""
    parts = [file.stem]
    above = file.parent
    while (above / "__init__.py").is_file():
        parts.insert(0, above.name)
        above = above.parent
    return ".".join(parts)


def sources_of(root: Path, modules: tuple[str, ...]) -> dict[str, str]:
    """Path under `root` -> hash, for `modules`, all of ours they import, and the packages they are in."""
    found: dict[str, str] = {}
    waiting = ["actors.compiled.hot_modules", *modules]
    while waiting:
        module = waiting.pop()
        path = source_path(root, module)
        if module.split(".")[0] not in PACKAGES or path is None:
            continue
        name = path.relative_to(root).as_posix()
        if name not in found:
            found[name] = content_hash(path)
            waiting += imported_names(path, module)
            if "." in module:
                waiting.append(module.rpartition(".")[0])
    return dict(sorted(found.items()))


def run_mypyc(modules: tuple[str, ...], target: Path, profiled: bool) -> None:
    """Compile `modules` of the current directory into `target`. Runs in a process of its own: mypyc exits."""
    from mypyc.build import mypycify  # noqa: PLC0415  a development tool, absent from most installations
    from setuptools import Distribution  # noqa: PLC0415  likewise
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415  likewise

    here = Path.cwd()
    types = here / "mypy.ini"
    types.write_text(MYPY, encoding="utf-8")
    options = [
        f"--config-file={types}",
        "--namespace-packages",
        "--explicit-package-bases",
        "--ignore-missing-imports",
    ]
    files = [
        str(path.relative_to(here)) for path in (source_path(here, module) for module in modules) if path
    ]
    extensions = mypycify(
        [*options, *files], opt_level=OPTIMISATION, debug_level="0", group_name=GROUP, multi_file=True
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for extension in extensions:
        if extension.name == GROUP_LIBRARY:
            extension.sources = units(extension.sources, modules)
    usual = {extension.name: list(extension.extra_compile_args or []) for extension in extensions}

    class BuildSideBySide(build_ext):
        """Compiles the sources of one extension side by side too."""

        def build_extensions(self) -> None:
            one_by_one = self.compiler.compile

            def side_by_side(sources: Sequence[str], **how: object) -> list[str]:
                with ThreadPoolExecutor(cores) as pool:
                    made = pool.map(lambda source: one_by_one([source], **how), sources)
                    return [path for paths in made for path in paths]

            self.compiler.compile = side_by_side
            super().build_extensions()

    def compile_with(flags: tuple[str, ...], into: Path) -> None:
        """Compile the C that mypyc made, the group's with these flags."""
        for extension in extensions:
            own = flags if extension.name == GROUP_LIBRARY else ENTRY_FLAGS
            extension.extra_compile_args = [*usual[extension.name], *C_FLAGS, *own]
            extension.extra_link_args = [*own] if extension.name == GROUP_LIBRARY else []
        command = BuildSideBySide(Distribution({"name": GROUP, "ext_modules": extensions}))
        command.build_lib = str(here / "out")
        command.build_temp = str(here / "temp")
        command.parallel = cores
        command.force = True
        command.ensure_finalized()
        command.run()
        for module in (GROUP_LIBRARY, *modules):
            made = (here / "out").joinpath(*module.split("."))
            shutil.copyfile(made.with_name(made.name + ABI_SUFFIX), into / f"{module}{ABI_SUFFIX}")

    if not profiled:
        compile_with((), target)
        return
    counting = builds_directory(here) / "counting"
    counting.mkdir(parents=True)
    compile_with(COUNTING_FLAGS, counting)
    write_record(counting, here, modules, {}, profiled)
    for case in TRAINING:  # the packages of this directory, which find the build just made
        environment = os.environ | {"PYTHONPATH": str(here), INTERPRETED_VARIABLE: ""}
        environment.pop(BUILD_VARIABLE, None)
        subprocess.run(
            [sys.executable, "-m", "emu.cli.bench.one_run", case, "0"], env=environment, check=True
        )
    shutil.rmtree(counting)
    compile_with(COUNTED_FLAGS, target)


def write_record(
    directory: Path,
    sources: Path,
    modules: tuple[str, ...],
    plugins: Mapping[str, tuple[str, str]],
    profiled: bool,
) -> str:
    """Write what a build was made from into its directory, and return it."""
    record = {
        "abi_suffix": ABI_SUFFIX,
        "recipe": recipe(profiled),
        "modules": modules,
        "sources": sources_of(sources, modules),
        "plugins": plugins,
    }
    text = json.dumps(record, indent=1)
    (directory / RECORD_NAME).write_text(text + "\n", encoding="utf-8")
    return text


def units(sources: Sequence[str], modules: tuple[str, ...]) -> list[str]:
    """Files that include all of `sources`, as UNITS says.

    What mypyc made of a module is rewritten to compile sooner.
    """
    of_module = {f"__native_{module.replace('.', '___')}.c": module for module in modules}
    shares: list[list[Path]] = [[] for _ in range(len(UNITS) + 1)]
    for source in sources:
        path = Path(source)
        module = of_module.get(path.name)
        at = 0  # mypyc's run-time library and the globals of the group
        if module is not None:
            lighten(path)
            if module in BODIES:
                path.write_bytes(with_bodies(path.read_bytes(), BODIES[module]))
            if module in INLINED:
                path.write_bytes(with_inlined(path.read_bytes(), INLINED[module]))
            ours = module.startswith(tuple(f"{package}." for package in PACKAGES))
            at = next((at for at, rooms in enumerate(UNITS) if module.startswith(rooms)), len(UNITS))
            if not ours:  # a plug-in: with the switches and NICs that call it
                at = 0
        shares[at].append(path)
    written = []
    for number, share in enumerate(shares):
        if share:
            unit = Path(f"unit_{number}.c")
            included = "".join(f'#include "{path.resolve()}"\n' for path in share)
            unit.write_text(RARE + included, encoding="utf-8")
            written.append(str(unit))
    return written


def lighten(path: Path) -> None:
    """Rewrite C as mypyc made it into what compiles sooner: no indentation, and module bodies marked as cold.

    Indentation grows with every class, to three quarters of the file. A cold function is optimised for size.
    """
    text = re.sub(rb"^ +", b"", path.read_bytes(), flags=re.MULTILINE)
    path.write_bytes(ONCE.sub(rb"__attribute__((cold)) \g<0>", text))


def with_bodies(text: bytes, bodies: Mapping[bytes, bytes]) -> bytes:
    """A module's C with the bodies of these functions. Raises ValueError where one is not to be found."""
    for name, body in bodies.items():
        text, found = re.subn(
            rb"^(?:char |PyObject \*)CPyDef_\w+___" + name + rb"\(.*\) \{",
            rb"\g<0>\n" + body,
            text,
            flags=re.MULTILINE,
        )
        if found != 1:
            raise ValueError(f"the compiled code has {found} functions {name.decode()}")
    return text


def copy_sources(root: Path, destination: Path) -> None:
    """Copy the Python files of our packages, and nothing else."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            copied = destination / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


def with_inlined(text: bytes, names: Sequence[str]) -> bytes:
    """A module's C with these functions inlined. Raises ValueError where one is not to be found."""
    for name in names:
        in_c = name.replace(".", "___").encode()
        text, found = re.subn(
            rb"^\w+ \*?CPyDef_\w+?___" + in_c + rb"\(.*\) \{",
            rb"__attribute__((always_inline)) inline \g<0>",
            text,
            flags=re.MULTILINE,
        )
        if found != 1:
            raise ValueError(f"the compiled code has {found} functions {name}")
    return text


def build(root: Path, plugins: Sequence[Path] = (), profiled: bool = False) -> tuple[Build, bool]:
    """The build of the sources under `root` with these files of plug-ins, and whether it was made now; or
    raise CannotCompileError.
    """
    named = {module_of(file): (str(file), content_hash(file)) for file in plugins}
    ext = builds_directory(root)
    ext.mkdir(exist_ok=True)
    with (ext / ".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=ext, prefix=".work-") as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        snapshot = Path(work) / "snapshot"
        copy_sources(root, snapshot)
        modules = hot_modules(snapshot)
        if not modules:
            raise CannotCompileError("there is no hot module")
        if (current := current_build(root, snapshot, named, profiled)) is not None:
            (current.directory / RECORD_NAME).touch()
            current.keep_stamps(root)
            return current, False
        hot = modules
        for file in plugins:
            copied = snapshot.joinpath(*module_of(file).split(".")).with_suffix(".py")
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
        modules = (*hot, *(module for module in named if module not in hot))
        duration = DURATION_PROFILED if profiled else DURATION
        print(f"compile: {len(modules)} modules, {duration}", flush=True)
        made = Path(work) / "made"
        made.mkdir()
        compile_in_child(snapshot, modules, made, ext / LOG_NAME, plugins, profiled)
        text = write_record(made, snapshot, hot, named, profiled)
        final = ext / hashlib.sha256(text.encode()).hexdigest()[:16]
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)
        remove_old_builds(ext)
        built = Build(final)
        built.keep_stamps(root)
        return built, True


def current_build(
    root: Path,
    sources: Path,
    plugins: Mapping[str, tuple[str, str]] | None = None,
    profiled: bool = False,
) -> Build | None:
    """The build under `root` that compiling the files under `sources` with these plug-ins would make, or a
    profiled one."""
    wanted = (recipe(profiled=True),) if profiled else (recipe(), recipe(profiled=True))
    for candidate in builds(root):
        equal = candidate.abi_suffix == ABI_SUFFIX and candidate.recipe in wanted
        if equal and candidate.plugins == (plugins or {}) and candidate.matches(sources):
            return candidate
    return None


def compile_in_child(
    snapshot: Path,
    modules: tuple[str, ...],
    made: Path,
    log: Path,
    plugins: Sequence[Path] = (),
    profiled: bool = False,
) -> None:
    """Run `run_mypyc` in `snapshot`, its output in `log`; raise CannotCompileError if it fails."""
    code = "import sys; from pathlib import Path; from actors.compiled import build as c; "
    code += f"c.run_mypyc(tuple(sys.argv[2:]), Path(sys.argv[1]), {profiled})"
    environment = os.environ | {INTERPRETED_VARIABLE: "1", "PYTHONPATH": "", "MYPYPATH": ""}
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-c", code, str(made), *modules],
            cwd=snapshot,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise CannotCompileError(f"the compile failed{first_error(log, plugins)} (see {log})")


def first_error(log: Path, plugins: Sequence[Path]) -> str:
    """The first line of a compile's output that finds fault with a plug-in; empty if none does."""
    names = {file.name for file in plugins}
    for line in log.read_text("utf-8").splitlines():
        if ": error: " in line and Path(line.partition(":")[0]).name in names:
            return f": {line}"
    return ""


def remove_old_builds(ext: Path) -> None:
    """Keep the newest few builds."""
    records = sorted(ext.glob(f"*/{RECORD_NAME}"), key=lambda path: path.stat().st_mtime_ns)
    with_plugins = [record for record in records if json.loads(record.read_text("utf-8")).get("plugins")]
    for kept in (with_plugins, [record for record in records if record not in with_plugins]):
        for record in kept[:-KEPT_BUILDS]:
            shutil.rmtree(record.parent, ignore_errors=True)


def compile_or_explain(root: Path, profiled: bool = False) -> Path | None:
    """Compile if need be, print one line, return the build's directory, or None if all runs interpreted."""
    try:
        refuse_unless_possible()
        made, is_new = build(root, profiled=profiled)
    except (CannotCompileError, OSError) as error:
        there = current_build(root, root)
        print(f"compile: {error}; {INTERPRETED if there is None else 'the build that is there stays'}")
        return None
    print(f"compile: {len(made.modules)} modules {'compiled' if is_new else 'up to date'}")
    return made.directory


def compile_behind(root: Path) -> None:
    """Have a process of its own compile if need be, and print a line that says so, or what became of it."""
    try:
        refuse_unless_possible()
        ext = builds_directory(root)
        ext.mkdir(exist_ok=True)
        log = ext / BACKGROUND_LOG
        said = log.read_text("utf-8").splitlines() if log.exists() else []
        current = current_build(root, root)
        if current is not None:
            if said:
                count = len(current.modules)
                print(f"compile: {count} modules were compiled in the background; runs use them from now on")
                log.unlink()
            return
        with (ext / BACKGROUND_LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"compile: goes on in the background; {INTERPRETED}")
                return
            if said and said[-1].endswith(INTERPRETED) and log.stat().st_mtime_ns > newest_source_ns(root):
                print(said[-1])
                return
            with log.open("w", encoding="utf-8") as output:
                # The lock is the child's until it ends: it inherits the open file.
                subprocess.Popen(
                    [sys.executable, "-m", "actors.compiled.build", NICELY],
                    cwd=root,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=(lock.fileno(),),
                )
    except (CannotCompileError, OSError) as error:
        print(f"compile: {error}; {INTERPRETED}")
        return
    print(f"compile: begun in the background; {INTERPRETED}")


def newest_source_ns(root: Path) -> int:
    """When a Python file of our packages was last written."""
    files = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return max(path.stat().st_mtime_ns for path in files)


if __name__ == "__main__":
    if NICELY in sys.argv:
        os.nice(NICENESS)
    above = Path(__file__).resolve().parent.parent.parent
    if BACKGROUND in sys.argv:
        compile_behind(above)
    else:
        compile_or_explain(above, PROFILED in sys.argv)
