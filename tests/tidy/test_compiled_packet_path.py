"""Is compiled code used exactly when it is what the source says? On a copy with two toy modules.

The copy has this project's finder and compile step, and its own list of hot modules, so that one compile
takes seconds. Without a compiler the same tests check that the copy runs interpreted and says why.
"""

import ast
import importlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from actors.compiled.build import (
    BODIES,
    DURATION,
    DURATION_PROFILED,
    INLINED,
    INTERPRETED,
    MYPY,
    TRAINING,
    CannotCompileError,
    lighten,
    refuse_unless_possible,
    with_bodies,
    with_inlined,
)
from actors.compiled.fields import FieldsLoader
from actors.compiled.finder import source_path
from actors.compiled.hot_modules import HOT_MODULES
from tests.engine.patience import PATIENCE_S, until
from tests.tidy.tracked import ROOT

pytestmark = pytest.mark.long

STEP = "from actors.kernel.limits import LIMIT\n\n\ndef step(n: int) -> int:\n    return n * 2 + LIMIT\n"
WALK = "from actors.kernel.toy import step\n\n\ndef walk(n: int) -> int:\n    return step(step(n))\n"
LIMITS = "from typing import Final\n\nLIMIT: Final = 1\n"
HOT = "HOT_MODULES = ('actors.kernel.toy', 'actors.walk')\n"
ASK = "import emu, actors.walk as w; print(w.walk(10), emu.compiled_state(), w.__file__.endswith('.so'))"


def can_compile() -> bool:
    """Whether this machine has what compiling takes."""
    try:
        refuse_unless_possible()
    except CannotCompileError:
        return False
    return True


def compiler_version() -> bytes:
    """What the C compiler says of itself."""
    command = [*shlex.split(os.environ.get("CC", "cc")), "-v"]
    return subprocess.run(command, capture_output=True, check=False).stderr


needs_compiler = pytest.mark.skipif(not can_compile(), reason="no C compiler or no Python headers here")

needs_gcc = pytest.mark.skipif(
    not can_compile() or b"gcc" not in compiler_version(), reason="no gcc, which profiles are made for"
)


def python(root: Path, *arguments: str, **environment: str) -> str:
    """Run Python in the copy, and return what it printed, which must include no error."""
    inherited = {name: value for name, value in os.environ.items() if name != "EMU_INTERPRETED"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=inherited | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def write_copy(root: Path) -> Path:
    """The finder and the compile step around toy modules; returns `root`."""
    for name in (
        "emu/__init__.py",
        "actors/compiled/finder.py",
        "actors/compiled/fields.py",
        "actors/compiled/build.py",
        "actors/compiled/moved_names.py",
        "actors/__init__.py",
        "actors/compiled/__init__.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    (root / "actors/kernel").mkdir()
    for name, text in {
        "actors/compiled/hot_modules.py": HOT,
        "actors/kernel/__init__.py": "",
        "actors/kernel/limits.py": LIMITS,
        "actors/kernel/toy.py": STEP,
        "actors/walk.py": WALK,
    }.items():
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that was compiled once. Tests must not change it; `copy` is for that."""
    root = write_copy(tmp_path_factory.mktemp("built"))
    said = python(root, "-m", "actors.compiled.build")
    assert said.splitlines() == [f"compile: 2 modules, {DURATION}", "compile: 2 modules compiled"]
    return root


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """A compiled copy of the test's own."""
    return shutil.copytree(built, tmp_path / "copy")


@needs_compiler
def test_matching_build_is_used(built: Path) -> None:
    assert python(built, "-c", ASK) == "43 compiled True"


@needs_compiler
def test_matching_build_is_left_alone(built: Path) -> None:
    assert python(built, "-m", "actors.compiled.build") == "compile: 2 modules up to date"


@needs_compiler
def test_of_a_file_with_another_time_of_change_the_content_counts(copy: Path) -> None:
    for name in ("actors/kernel/toy.py", "actors/walk.py"):
        os.utime(copy / name)
    assert python(copy, "-c", ASK) == "43 compiled True"
    (copy / "actors/walk.py").write_text(WALK.replace("step(n)", "step(7)"))  # of the same size
    assert "the sources changed" in python(copy, "-c", ASK)


@needs_compiler
def test_environment_keeps_the_source(built: Path) -> None:
    assert python(built, "-c", ASK, EMU_INTERPRETED="1") == "43 interpreted (EMU_INTERPRETED is set) False"
    assert python(built, "-c", ASK, EMU_INTERPRETED="0") == "43 compiled True"


@needs_compiler
def test_a_process_runs_the_build_that_it_is_reported_of_and_none_that_became_ready_meanwhile(
    built: Path,
) -> None:
    ask = ASK.replace("emu.compiled_state()", "emu.compiled_state(), choice().rpartition('/')[2]")
    ask = f"from actors.compiled.finder import choice; {ask}"
    (directory,) = (record.parent for record in built.glob("emu/_ext/*/build.json"))
    assert python(built, "-c", ask) == f"43 compiled {directory.name} True"
    reported = {name: str(directory.parent / name) for name in ("none", "gone", directory.name)}
    interpreted = "43 interpreted (as the process that started this one) none False"
    assert python(built, "-c", ask, EMU_BUILD=reported["none"]) == interpreted
    assert python(built, "-c", ask, EMU_BUILD=reported["gone"]).startswith("43 interpreted (not compiled;")
    assert (
        python(built, "-c", ask, EMU_BUILD=reported[directory.name]) == f"43 compiled {directory.name} True"
    )
    of_others = "/elsewhere/emu/_ext/none"
    assert python(built, "-c", ask, EMU_BUILD=of_others) == f"43 compiled {directory.name} True"


@needs_compiler
@pytest.mark.parametrize(
    ("edited", "text", "answer"),
    [
        ("actors/kernel/toy.py", STEP.replace("2", "3"), 94),
        ("actors/walk.py", WALK.replace("step(step(n))", "step(n)"), 21),
        ("actors/kernel/limits.py", LIMITS.replace("1", "2"), 46),
    ],
    ids=["first module", "last module", "constant of a module that is not compiled"],
)
def test_stale_build_never_shadows_edited_source(copy: Path, edited: str, text: str, answer: int) -> None:
    (copy / edited).write_text(text)
    stale = "interpreted (the sources changed since they were compiled; run `make compile`)"
    assert python(copy, "-c", ASK) == f"{answer} {stale} False"


@needs_compiler
def test_hot_module_that_is_added_makes_the_build_stale(copy: Path) -> None:
    (copy / "actors/compiled/hot_modules.py").write_text(HOT.replace("('", "('actors.kernel.limits', '"))
    assert "the sources changed" in python(copy, "-c", ASK)


@needs_compiler
def test_hot_module_that_moved_is_refused_by_its_name(copy: Path) -> None:
    (copy / "actors/kernel/toy.py").rename(copy / "actors/toy.py")
    said = python(copy, "-m", "actors.compiled.build")
    assert "actors/compiled/hot_modules.py names actors.kernel.toy: no such module" in said


@needs_compiler
def test_build_of_another_interpreter_is_not_loaded(copy: Path) -> None:
    (record,) = copy.glob("emu/_ext/*/build.json")
    record.write_text(record.read_text().replace(".cpython", ".otherpython"))
    assert "interpreted (compiled for another Python" in python(copy, "-c", ASK)


@needs_compiler
def test_file_that_does_not_load_counts_as_not_built(copy: Path) -> None:
    (library,) = copy.glob("emu/_ext/*/emu_hot__mypyc*")
    library.write_bytes(b"not a library")
    assert python(copy, "-c", ASK).startswith("43 interpreted (the compiled files do not load:")


@needs_compiler
def test_in_the_background_it_is_compiled_once_whoever_is_interrupted(tmp_path: Path) -> None:
    root = write_copy(tmp_path)
    begin = [sys.executable, "-m", "actors.compiled.build", "--background"]
    shell = f"{shlex.join(begin)}; {shlex.join(begin)}; kill -INT 0; sleep 3600"
    with subprocess.Popen(
        ["sh", "-c", shell], cwd=root, text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as interrupted:
        said, _ = interrupted.communicate(timeout=PATIENCE_S)
    assert interrupted.returncode == -signal.SIGINT
    log = root / "emu/_ext/background.log"
    begun, again = said.splitlines()
    assert begun == f"compile: begun in the background; {INTERPRETED}"
    assert len(begun) <= 80
    assert again == f"compile: goes on in the background; {INTERPRETED}"
    until(lambda: "2 modules compiled" in log.read_text())
    assert python(root, *begin[1:]).startswith("compile: 2 modules were compiled in the background")
    assert python(root, *begin[1:]) == ""
    assert python(root, "-c", ASK) == "43 compiled True"


@needs_compiler
def test_what_failed_in_the_background_is_said_and_not_begun_again_before_an_edit(tmp_path: Path) -> None:
    root = write_copy(tmp_path)
    (root / "actors/walk.py").write_text(WALK.replace("-> int", "-> str"))
    begin = ("-m", "actors.compiled.build", "--background")
    assert "begun" in python(root, *begin)
    until(lambda: "the compile failed" in (root / "emu/_ext/background.log").read_text())
    for _ in range(2):
        reported = until(lambda: [line for line in [python(root, *begin)] if "goes on" not in line])
        assert reported == [f"compile: the compile failed (see {root}/emu/_ext/compile.log); {INTERPRETED}"]
    (root / "actors/walk.py").touch()
    assert "begun" in python(root, *begin)
    until(lambda: "the compile failed" in (root / "emu/_ext/background.log").read_text())


def test_without_a_build_the_source_runs(tmp_path: Path) -> None:
    answer = python(write_copy(tmp_path), "-c", ASK)
    assert answer == "43 interpreted (not compiled; run `make compile`) False"


FIELDS = """class Base:
    kind = 1

    def __init__(self) -> None:
        self.first, self.second = 1, 2

    def rename(self, name: str) -> None:
        self.name = name


class Own(Base):
    def __init__(self) -> None:
        super().__init__()
        self.kind = 2


class Free(Base):
    def tell(self) -> int:
        return self.first
"""


def loaded(source: Path, loader: Callable[[str, str], SourceFileLoader]) -> Any:
    """A module, from its source or from its bytecode."""
    spec = spec_from_file_location("toy", source, loader=loader("toy", str(source)))
    assert spec is not None
    assert spec.loader is not None
    toy = module_from_spec(spec)
    spec.loader.exec_module(toy)
    return toy


def test_interpreted_a_class_has_the_fields_that_its_constructor_sets_as_compiled(tmp_path: Path) -> None:
    source = tmp_path / "toy.py"
    source.write_text(FIELDS)
    for _ in range(2):  # from the source, and from the bytecode
        toy = loaded(source, FieldsLoader)
        base = toy.Base()
        assert (base.first, base.second, toy.Base.__slots__) == (1, 2, ("first", "second"))
        with pytest.raises(AttributeError, match="name"):
            base.rename("other")
        assert (toy.Own().first, toy.Own().kind, base.kind) == (1, 2, 1)
        free = toy.Free()
        free.name = "its own"
        assert (free.tell(), free.name) == (1, "its own")


METHODS = """from __future__ import annotations

from typing import cast as as_type

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Base:
    def tell(self, *, more: i64 = 1) -> i64:
        return as_type(Absent, self.own()) + i64(more)

    def own(self) -> i64:
        return 10

    @staticmethod
    def apart() -> int:
        return 3


class Middle(Base):
    own = property(lambda self: lambda: 20)


class Last(Middle, Exception):
    def tell(self, *, more: i64 = 2) -> i64:
        return super().tell(more=more)


class Whole(Last):
    pass
"""


def test_interpreted_a_class_has_its_own_copy_of_each_method_and_no_call_converts(tmp_path: Path) -> None:
    source = tmp_path / "toy.py"
    source.write_text(METHODS)
    for _ in range(2):  # from the source, and from the bytecode
        toy = loaded(source, FieldsLoader)
        classes = (toy.Base, toy.Middle, toy.Last, toy.Whole)
        assert [one().tell() for one in classes] == [11, 21, 22, 22]
        assert (toy.Whole().tell(more=5), toy.Whole().apart()) == (25, 3)
        assert toy.i64 is int
        assert len({id(vars(one)["tell"].__code__) for one in classes}) == len(classes)
        assert {name for name in vars(toy.Whole) if not name.startswith("__")} == {"tell"}
        assert "as_type" not in vars(toy.Base)["tell"].__code__.co_names


def test_bytecode_that_another_edition_of_the_loader_made_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    source = tmp_path / "toy.py"
    source.write_text(FIELDS)
    loader = tmp_path / "fields.py"
    text = (ROOT / "actors/compiled/fields.py").read_text()
    found = []
    for edition in (text, text, text.replace("_fix_fields(node)\n        code", "pass\n        code")):
        loader.write_text(edition)
        fields: dict[str, Any] = {"__file__": str(loader), "__name__": "fields"}
        exec(edition, fields)
        found.append("__slots__" in vars(loaded(source, fields["FieldsLoader"]).Base))
    assert found == [True, True, False]
    assert len(list(tmp_path.glob("__pycache__/toy.*.fields-*.pyc"))) == 2


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    root = write_copy(tmp_path)
    said = python(root, "-m", "actors.compiled.build", CC="no-such-compiler")
    assert said == f"compile: no C compiler (no-such-compiler); {INTERPRETED}"
    assert python(root, "-c", ASK) == "43 interpreted (not compiled; run `make compile`) False"
    (root / "emu" / "_shipped").mkdir()  # as in a wheel, where there is no make
    assert python(root, "-c", ASK) == "43 interpreted (this wheel has no compiled code for this Python) False"


def test_bodies_of_modules_are_marked_as_run_once_and_nothing_else_is(tmp_path: Path) -> None:
    made = tmp_path / "made.c"
    made.write_text(
        "     char CPyDef_a_____top_level__(void) {\n  return 1;\n}\nchar CPyDef_a___f(void) {\n}\n"
    )
    lighten(made)
    assert made.read_text().splitlines() == [
        "__attribute__((cold)) char CPyDef_a_____top_level__(void) {",
        "return 1;",
        "}",
        "char CPyDef_a___f(void) {",
        "}",
    ]


def test_each_function_that_is_to_get_a_body_in_c_gets_it_or_the_compile_fails() -> None:
    for module, bodies in BODIES.items():
        text = b"".join(b"char CPyDef_m___%s(PyObject *cpy_r_x) {\nreturn 1;\n}\n" % name for name in bodies)
        written = with_bodies(text, bodies).decode()
        for name, body in bodies.items():
            assert hasattr(importlib.import_module(module), name.decode())
            assert f"{name.decode()}(PyObject *cpy_r_x) {{\n{body.decode()}\nreturn 1;" in written
            with pytest.raises(ValueError, match=f"0 functions {name.decode()}"):
                with_bodies(text.replace(name, b"another"), bodies)


def test_each_function_that_is_to_be_inlined_is_or_the_compile_fails() -> None:
    for module, names in INLINED.items():
        in_c = {name: f"CPyDef_m___{name.replace('.', '___')}" for name in names}
        text = "".join(f"char {c}(PyObject *cpy_r_x) {{\nreturn {c}x(1);\n}}\n" for c in in_c.values())
        written = with_inlined(text.encode(), names).decode()
        for name, c in in_c.items():
            assert attrgetter(name)(importlib.import_module(module))
            assert f"__attribute__((always_inline)) inline char {c}(" in written
            with pytest.raises(ValueError, match=f"0 functions {name}"):
                with_inlined(text.replace(f"{c}(", "another(").encode(), names)
        assert written.count("inline ") == len(names)


@needs_compiler
def test_failed_compile_is_one_line_and_a_log(tmp_path: Path) -> None:
    root = write_copy(tmp_path)
    (root / "actors/walk.py").write_text(WALK.replace("-> int", "-> str"))
    (_, said) = python(root, "-m", "actors.compiled.build").splitlines()
    log = root / "emu/_ext/compile.log"
    assert said == f"compile: the compile failed (see {log}); {INTERPRETED}"
    assert "actors/walk.py:5: error: Incompatible return value type" in log.read_text()
    assert [path.name for path in log.parent.iterdir() if path.is_dir()] == []


def leaks(constructor: ast.FunctionDef) -> list[int]:
    """The lines where `self` leaves a constructor, whole or by a method, before the last field that needs it
    not."""
    parents = {child: node for node in ast.walk(constructor) for child in ast.iter_child_nodes(node)}
    fields, left = [0], []
    for node in ast.walk(constructor):
        if isinstance(node, ast.Name) and node.id == "self":
            used = parents[node]
            user = parents[used]
            if not isinstance(used, ast.Attribute):
                left.append(node.lineno)
            elif isinstance(used.ctx, ast.Store):
                fields.append(node.lineno)
            elif isinstance(user, ast.Call) and used is user.func:
                left.append(node.lineno)
    last = max(line for line in fields if line not in left)
    return [line for line in left if line < last]


def test_a_compile_finds_no_error_of_types_although_it_reads_no_library(tmp_path: Path) -> None:
    """A compile leaves libraries out, and one error of types ends it: all would run interpreted."""
    settings = tmp_path / "mypy.ini"
    settings.write_text(MYPY, encoding="utf-8")
    found = [source_path(ROOT, module) for module in HOT_MODULES]
    files = [str(path.relative_to(ROOT)) for path in found if path is not None]
    options = ["--namespace-packages", "--explicit-package-bases", "--ignore-missing-imports"]
    options += [f"--config-file={settings}", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


OWN = "from actors.kernel.toy import step\n\n\ndef own(n: int) -> int:\n    return step(n) + 10\n"
COMPILE = """
import sys
from pathlib import Path
from actors.compiled.build import build
made, new = build(Path.cwd(), [Path(file).resolve() for file in sys.argv[1:]])
print(new, *made.plugins)
"""


@needs_compiler
def test_a_plug_in_is_compiled_with_the_group_and_served_where_it_is_what_was_compiled(copy: Path) -> None:
    """And the newest of such builds is used, of which three are kept beside those without."""
    plugin = copy / "mine" / "own.py"
    plugin.parent.mkdir()
    plugin.write_text(OWN)
    ask = "import sys; sys.path.insert(0, sys.argv[1]); import emu, actors.walk, own; "
    ask += "print(own.own(2), own.__file__.endswith('.so'), emu.compiled_state())"
    assert python(copy, "-c", ask, str(plugin.parent)) == "15 False compiled"
    assert python(copy, "-c", COMPILE, str(plugin)).splitlines()[-1] == "True own"
    assert python(copy, "-c", COMPILE, str(plugin)) == "False own"
    assert python(copy, "-c", ask, str(plugin.parent)) == "15 True compiled"
    # Another file of that name, and an edit: neither is what was compiled, and both run as they are.
    other = copy / "other" / "own.py"
    other.parent.mkdir()
    other.write_text(OWN.replace("10", "20"))
    assert python(copy, "-c", ask, str(other.parent)) == "25 False compiled"
    plugin.write_text(OWN.replace("10", "30"))
    assert python(copy, "-c", ask, str(plugin.parent)) == "35 False compiled"
    (made,) = (path.parent for path in copy.glob("emu/_ext/*/own.*"))
    for older in range(3):
        shutil.copytree(made, made.with_name(f"older-{older}"))
        os.utime(made.with_name(f"older-{older}") / "build.json", (older, older))
    plugin.write_text(OWN.replace("10", "42"))
    python(copy, "-c", COMPILE, str(plugin))
    assert python(copy, "-c", ask, str(plugin.parent)) == "47 True compiled"
    records = [json.loads(record.read_text()) for record in copy.glob("emu/_ext/*/build.json")]
    assert sorted(len(record["plugins"]) for record in records) == [0, 1, 1, 1]
    (copy / "actors/kernel/toy.py").write_text(STEP.replace("2", "3"))
    assert python(copy, "-c", ask, str(plugin.parent)).startswith("49 False interpreted (the sources changed")


def test_no_constructor_of_the_packet_path_lets_go_of_self_before_all_fields_are_set() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in (source_path(ROOT, module) for module in HOT_MODULES)
        if path is not None
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for line in leaks(node)
    ]
    assert found == []
    early = "def __init__(self):\n    self.set_rate(1)\n    self.up = True\n"
    (constructor,) = ast.parse(early).body
    assert isinstance(constructor, ast.FunctionDef)
    assert leaks(constructor) == [2]


@needs_gcc
@pytest.mark.soak
def test_a_profiled_build_is_laid_out_by_runs_of_the_bench_preferred_and_left_alone(
    built: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(built, tmp_path / "copy")
    (plain,) = root.glob("emu/_ext/*/build.json")
    bench = root / "emu/cli/bench"
    bench.mkdir(parents=True)
    for package in (bench.parent, bench):
        (package / "__init__.py").write_text("")
    (bench / "one_run.py").write_text(
        "import sys, emu, actors.walk as w\nprint(sys.argv[1:], w.walk(7), emu.compiled_state())\n"
    )
    said = python(root, "-m", "actors.compiled.build", "--profiled").splitlines()
    assert said == [f"compile: 2 modules, {DURATION_PROFILED}", "compile: 2 modules compiled"]
    log = (root / "emu/_ext/compile.log").read_text()
    assert [f"['{case}', '0'] 31 compiled" in log for case in TRAINING] == [True] * len(TRAINING)
    assert "profile count data file not found" not in log
    ask = f"from actors.compiled.finder import choice; {ASK}; print(choice())"
    answer, chosen = python(root, "-c", ask).splitlines()
    assert answer == "43 compiled True"
    assert Path(chosen) != plain.parent
    plain.unlink()
    for way in ("", "--profiled"):
        assert python(root, "-m", "actors.compiled.build", *way.split()) == "compile: 2 modules up to date"
