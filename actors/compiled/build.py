"""How is the packet path compiled, and what happens where it cannot be?

    python -m actors.compiled.build

compiles the hot modules (`actors.compiled.hot_modules`) with mypyc, in one group, into `emu/_ext/<key>/`,
from where `actors.compiled.finder` serves them. The rules:

- what is compiled is a copy of the sources, taken first: an edit made meanwhile ends in a build that does not
  match and is not used, never in one that lies;
- a build that matches is left alone, so the command can be run after every edit;
- no compiler, no headers, no mypy or a failed compile is one line and exit status 0: everything runs
  interpreted, with the same answers;
- the code is portable within the platform (no `-march`), signed overflow wraps (`-fwrapv`), and assertions
  stay on;
- the newest few builds are kept (a process that started before an edit may still be loading one), older ones
  are removed.

Not covered: cross compiling, and compilers other than gcc and clang.
"""

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
from pathlib import Path
from typing import Final

from actors.compiled.finder import (
    ABI_SUFFIX,
    GROUP,
    GROUP_LIBRARY,
    INTERPRETED_VARIABLE,
    RECORD_NAME,
    Build,
    builds,
    builds_directory,
    content_hash,
    present_hot_modules,
    source_path,
)

PACKAGES: Final = ("emu", "actors")
OPTIMISATION: Final = os.environ.get("EMU_OPTIMISATION", "3")  # 1 compiles in half the time, for development
C_FLAGS: Final = (
    "-fwrapv",  # native integers wrap, as mypyc assumes, whatever flags this Python was built with
    "-fvisibility=hidden",  # lets the compiler inline the functions of the group into each other
    "-Wno-all",  # nobody mends what mypyc writes, and looking for warnings is work
    "-w",  # and a warning of a newer compiler is no reason to run interpreted
)
ENTRY_FLAGS: Final = ("-O0",)  # the small file of a module makes one call, once
ONCE: Final = re.compile(rb"^char CPyDef_\w+_____top_level__\(void\) \{", re.MULTILINE)
"""Where the body of a module begins: a sixth of all code, and run once."""
DURATION: Final = "once; the packet path takes two minutes"
KEPT_BUILDS: Final = 3
LOG_NAME: Final = "compile.log"


class CannotCompileError(Exception):
    """Why this machine runs interpreted, in one line."""


def recipe() -> str:
    """What besides the sources decides the code: the version of mypyc and the flags."""
    return f"mypy {importlib.metadata.version('mypy')} -O{OPTIMISATION} {' '.join(C_FLAGS)}"


def refuse_unless_possible() -> None:
    """Raise CannotCompileError if something that compiling needs is missing."""
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        raise CannotCompileError("mypy or setuptools is not installed")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise CannotCompileError(f"no C compiler ({compiler})")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise CannotCompileError("no Python headers (Python.h)")


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


def run_mypyc(modules: tuple[str, ...], target: Path) -> None:
    """Compile `modules` of the current directory into `target`. Runs in a process of its own: mypyc exits."""
    from mypyc.build import mypycify  # noqa: PLC0415  a development tool, absent from most installations
    from setuptools import Distribution  # noqa: PLC0415  likewise

    here = Path.cwd()
    options = [
        "--config-file=",
        "--namespace-packages",
        "--explicit-package-bases",
        "--ignore-missing-imports",
    ]
    files = [
        str(path.relative_to(here)) for path in (source_path(here, module) for module in modules) if path
    ]
    extensions = mypycify([*options, *files], opt_level=OPTIMISATION, debug_level="0", group_name=GROUP)
    for extension in extensions:
        entry = () if extension.name == GROUP_LIBRARY else ENTRY_FLAGS
        extension.extra_compile_args = [*(extension.extra_compile_args or []), *C_FLAGS, *entry]
        if not entry:
            lighten(Path(extension.sources[0]))
    command = Distribution({"name": GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(here / "out")
    command.build_temp = str(here / "temp")
    command.parallel = os.cpu_count()  # the group is one large file, beside it each module has a small one
    command.ensure_finalized()
    command.run()
    for module in (GROUP_LIBRARY, *modules):
        made = (here / "out").joinpath(*module.split("."))
        shutil.copyfile(made.with_name(made.name + ABI_SUFFIX), target / f"{module}{ABI_SUFFIX}")


def lighten(path: Path) -> None:
    """Rewrite C as mypyc made it into what compiles sooner: no indentation, and module bodies marked as cold.

    Indentation grows with every class, to three quarters of the file. A cold function is optimised for size.
    """
    text = re.sub(rb"^ +", b"", path.read_bytes(), flags=re.MULTILINE)
    path.write_bytes(ONCE.sub(rb"__attribute__((cold)) \g<0>", text))


def copy_sources(root: Path, destination: Path) -> None:
    """Copy the Python files of our packages, and nothing else."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            copied = destination / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


def build(root: Path) -> tuple[Build, bool]:
    """The build of the sources under `root`, and whether it was made now; or raise CannotCompileError."""
    ext = builds_directory(root)
    ext.mkdir(exist_ok=True)
    with (ext / ".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=ext, prefix=".work-") as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        snapshot = Path(work) / "snapshot"
        copy_sources(root, snapshot)
        modules = present_hot_modules(snapshot)
        if not modules:
            raise CannotCompileError("there is no hot module")
        for candidate in builds(root):
            current = candidate.abi_suffix == ABI_SUFFIX and candidate.recipe == recipe()
            if current and candidate.matches(snapshot):
                return candidate, False
        print(f"compile: {len(modules)} modules, {DURATION}", flush=True)
        made = Path(work) / "made"
        made.mkdir()
        compile_in_child(snapshot, modules, made, ext / LOG_NAME)
        record = {
            "abi_suffix": ABI_SUFFIX,
            "recipe": recipe(),
            "modules": modules,
            "sources": sources_of(snapshot, modules),
        }
        text = json.dumps(record, indent=1)
        (made / RECORD_NAME).write_text(text + "\n", encoding="utf-8")
        final = ext / hashlib.sha256(text.encode()).hexdigest()[:16]
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)
        remove_old_builds(ext)
        return Build(final), True


def compile_in_child(snapshot: Path, modules: tuple[str, ...], made: Path, log: Path) -> None:
    """Run `run_mypyc` in `snapshot`, its output in `log`; raise CannotCompileError if it fails."""
    code = "import sys; from pathlib import Path; from actors.compiled import build as c; "
    code += "c.run_mypyc(tuple(sys.argv[2:]), Path(sys.argv[1]))"
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
        raise CannotCompileError(f"the compile failed (see {log})")


def remove_old_builds(ext: Path) -> None:
    """Keep the newest few builds."""
    records = sorted(ext.glob(f"*/{RECORD_NAME}"), key=lambda path: path.stat().st_mtime_ns)
    for record in records[:-KEPT_BUILDS]:
        shutil.rmtree(record.parent, ignore_errors=True)


def compile_or_explain(root: Path) -> Path | None:
    """Compile if need be, print one line, return the build's directory, or None if all runs interpreted."""
    try:
        refuse_unless_possible()
        made, is_new = build(root)
    except (CannotCompileError, OSError) as error:
        print(f"compile: {error}; continuing interpreted, with the same answers")
        return None
    print(f"compile: {len(made.modules)} modules {'compiled' if is_new else 'up to date'}")
    return made.directory


if __name__ == "__main__":
    compile_or_explain(Path(__file__).resolve().parent.parent.parent)
