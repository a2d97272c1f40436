"""Loading: from a file, a text or a mapping to a checked scenario.

Read the tree, apply a variant and the overrides, put tables and files in place, validate: every problem
of every stage is collected, and they are raised together, in the order of the file. The result is complete:
it depends on no other file any more.

A mistake found late still names its line. What needs the topology (more ranks than GPUs, a link that does not
exist) is found after loading, by code that knows only keys. `Source.located` looks those keys up in the tree
the scenario was read from.

`variants:` maps names to what each changes, as `--set` would: paths to values. A variant is a run of its
own, `NAME_VARIANT` unless it sets `name`; the file as it stands is one more. What is left of a scenario once
a variant was chosen, or none, has no variants.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from emu.base.errors import Problem, ScenarioError
from emu.base.records import MistakesError, RefusedError
from emu.base.spelling import did_you_mean, listed, shown
from emu.scenario.expect import path_steps
from emu.scenario.readers.config_db import put_config_in_place
from emu.scenario.schema import Scenario
from emu.scenario.sections.graph import put_graphs_in_place
from emu.scenario.sections.nccl_names import put_names_in_place
from emu.scenario.sections.switch import SwitchSection
from emu.scenario.set_options import Override, apply_override
from emu.scenario.traffic_classes import mark_data
from emu.scenario.yaml.document import MAX_FILE_BYTES, Node, Place, decode, from_plain, read_document
from emu.scenario.yaml.problems import problems_of

VARIANTS: Final = "variants"
VARIANT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
VARIANTS_MEANING: Final = "Runs of their own: name to what each changes, as with `--set`: paths to values."
PATHS_ACCEPTED: Final = 'paths with their values, like {"ncclx.channels": 2}'


def variants_schema() -> dict[str, object]:
    """What an editor knows of `variants`."""
    changes = {"type": "object", "minProperties": 1}
    names = {"pattern": f"^{VARIANT_NAME.pattern}$"}
    return {
        "description": VARIANTS_MEANING,
        "type": "object",
        "propertyNames": names,
        "additionalProperties": changes,
    }


def choose_variant(tree: Node, variant: str, file: str) -> tuple[tuple[str, ...], list[Problem]]:
    """Apply a variant, if one is named, and take all out of the tree: their names, and what is wrong."""
    assert isinstance(tree.value, dict), tree.value
    place = tree.keys.get(VARIANTS)
    node = tree.value.pop(VARIANTS, None)
    tree.keys.pop(VARIANTS, None)
    line = place.line if place is not None else 0
    if node is None or node.value is None:
        return (), [_unknown_variant(variant, (), file, line)] if variant else []
    if not isinstance(node.value, dict):
        return (), [Problem(file, line, VARIANTS, "is not a mapping", "names, each with what it changes")]
    problems: list[Problem] = []
    for name, changes in node.value.items():
        overrides, wrong = _changes_of(name, changes, node, file)
        problems += wrong
        if name == variant and not wrong:
            _name_variant(tree, name)
            for override in overrides:
                try:
                    apply_override(tree, override)
                except ScenarioError as error:
                    problems += error.problems
    if variant and variant not in node.value:
        problems.append(_unknown_variant(variant, tuple(node.value), file, line))
    return tuple(node.value), problems


def _unknown_variant(variant: str, names: tuple[str, ...], file: str, line: int) -> Problem:
    reason = f"there is no variant {variant!r}{did_you_mean(variant, names)}"
    return Problem(file, line, VARIANTS, reason, listed(names) or "no --variant: the scenario has none")


def _name_variant(tree: Node, variant: str) -> None:
    """Give the run of a variant its name; what it sets itself comes after."""
    assert isinstance(tree.value, dict), tree.value
    name = tree.value.get("name")
    if name is not None and isinstance(name.value, str):
        tree.value["name"] = Node(f"{name.value}_{variant}", name.place)


def _changes_of(name: str, changes: Node, variants: Node, file: str) -> tuple[list[Override], list[Problem]]:
    """What a variant sets, and what is wrong with how it says so."""
    line = variants.keys[name].line
    here = f"{VARIANTS}.{name}"
    if not VARIANT_NAME.fullmatch(name):
        return [], [Problem(file, line, VARIANTS, f"{name!r} is not a name", "letters, digits, - and _")]
    if not isinstance(changes.value, dict) or not changes.value:
        return [], [Problem(file, line, here, "changes nothing", PATHS_ACCEPTED)]
    overrides, problems = [], []
    for path, value in changes.value.items():
        place = changes.keys[path]
        try:
            steps = path_steps(path)
        except RefusedError as error:
            problems.append(Problem(file, place.line, here, error.reason, PATHS_ACCEPTED))
        else:
            overrides.append(Override(steps, value, here, place))
    return overrides, problems


class Source:
    """The tree a scenario was read from, overrides included."""

    def __init__(self, tree: Node, file: str) -> None:
        self.tree = tree
        self.file = file

    def located(self, error: ScenarioError) -> ScenarioError:
        """The same problems, in the order of the file, each with file and line if its key can be found."""
        return ScenarioError(in_file_order([self._placed(problem) for problem in error.problems], self.file))

    def _placed(self, problem: Problem) -> Problem:
        if problem.line > 0:
            return problem
        try:
            place = self.tree.find(path_steps(problem.key))
        except RefusedError:
            return problem._replace(file=self.file)
        return problem._replace(file=place.file, line=place.line)


def in_file_order(problems: list[Problem], file: str) -> list[Problem]:
    """Those of the scenario's own file first, by line; then the others (tables, options) as they were
    found."""
    return sorted(problems, key=lambda problem: (problem.file != file, problem.line))


STANDARD_INPUT = "-"
_BARRIER: Final = [{"name": "none", "workload": {"kind": "collective", "op": "barrier", "sizes": ["4B"]}}]
_OPEN: Final = {"name": "open", "workload": {"kind": "open"}}


@cache
def _switch_defaults() -> dict[str, Any]:
    """The section `switch` without any key, as it is written."""
    return SwitchSection.defaults().model_dump(by_alias=True)


class Loaded(NamedTuple):
    """A scenario, and where each of its values came from."""

    scenario: Scenario
    source: Source
    variants: tuple[str, ...] = ()
    """The names of those that its file has."""
    notes: tuple[str, ...] = ()
    """What its author should know of it, and is no error."""


def load(
    path: str | Path,
    overrides: Iterable[Override] = (),
    variant: str = "",
    *,
    jobless: bool = False,
    opens: bool = False,
) -> Loaded:
    """The scenario in a file, or a variant of it; "-" reads standard input.

    `jobless`: a file without `jobs` is read, too, and gets a barrier of all ranks. `opens`: one without an
    open job gets one of all ranks. Raises ScenarioError with every problem.
    """
    if str(path) == STANDARD_INPUT:
        file = "<stdin>"
        raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        text = decode(raw, file)
        return load_text(text, file, Path(), overrides, variant, jobless=jobless, opens=opens)
    found = Path(path)
    text = decode(read_file(found), str(path))
    return load_text(text, str(path), found.parent, overrides, variant, jobless=jobless, opens=opens)


def load_text(
    text: str,
    file: str = "<text>",
    directory: Path | None = None,
    overrides: Iterable[Override] = (),
    variant: str = "",
    *,
    jobless: bool = False,
    opens: bool = False,
) -> Loaded:
    """The scenario in a text. `file` is what errors call it; tables are looked for in `directory`."""
    tree, problems = read_document(text, file)
    if jobless and isinstance(tree.value, dict) and "jobs" not in tree.value:
        tree.value["jobs"] = from_plain(_BARRIER, tree.place)
    if opens:
        _open(tree)
    return _checked(tree, problems, file, directory or Path(), overrides, variant)


def load_mapping(
    mapping: Mapping[str, object],
    directory: Path | None = None,
    overrides: Iterable[Override] = (),
    variant: str = "",
    *,
    opens: bool = False,
) -> Loaded:
    """The scenario in a mapping with the keys that YAML has. Errors name keys, and no lines."""
    file = "<mapping>"
    tree = from_plain(dict(mapping), Place(file, 0))
    if opens:
        _open(tree)
    return _checked(tree, [], file, directory or Path(), overrides, variant)


def _open(tree: Node) -> None:
    """Add an open job to a scenario that has none, or enable the one that it has."""
    if not isinstance(tree.value, dict):
        return
    jobs = tree.value.setdefault("jobs", from_plain([], tree.place))
    if not isinstance(jobs.value, list):
        return
    for job in jobs.value:
        if not isinstance(job.value, dict):
            continue
        workload = job.value.get("workload")
        if workload is not None and isinstance(workload.value, dict):
            kind = workload.value.get("kind")
            if kind is not None and kind.value == "open":
                job.value["enabled"] = Node(value=True, place=tree.place)
                return
    jobs.value.append(from_plain(_OPEN, tree.place))


def read_file(path: Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a file, at most one more than it may have. ScenarioError if it cannot be read."""
    accepted = "a file that can be read"
    try:
        with path.open("rb") as opened:
            return opened.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise ScenarioError([Problem(str(path), 0, "", "there is no such file", accepted)]) from error
    except IsADirectoryError as error:
        raise ScenarioError([Problem(str(path), 0, "", "is a directory", accepted)]) from error
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ScenarioError([Problem(str(path), 0, "", reason, accepted)]) from error


def _has(node: Node | None, *path: str) -> bool:
    """Whether a key is there, in any item where there are lists. What reads a file is loaded only then."""
    if node is None or not path:
        return node is not None
    if isinstance(node.value, list):
        return any(_has(item, *path) for item in node.value)
    return _has(node.child(path[0]), *path[1:])


def _checked(
    tree: Node,
    problems: list[Problem],
    file: str,
    directory: Path,
    overrides: Iterable[Override],
    variant: str,
) -> Loaded:
    if not isinstance(tree.value, dict):
        what = "a list" if isinstance(tree.value, list) else shown(tree.value)
        reason = f"a scenario is a mapping, this is {what}"
        raise ScenarioError(
            [Problem(file, tree.place.line, "", reason, "keys with values, see `emu schema`")]
        )
    variants, wrong = choose_variant(tree, variant, file)
    problems.extend(wrong)
    for override in overrides:
        try:
            apply_override(tree, override)
        except ScenarioError as error:
            problems.extend(error.problems)
    # Files that the tree names are put in as its own keys before anything is checked, with notes on what was
    # left out; problems are gathered, so that one run names all of them.
    notes: list[str] = []
    problems.extend(put_config_in_place(tree, directory, read_file, _switch_defaults, notes))
    problems.extend(put_names_in_place(tree, directory, read_file, notes))
    if _has(tree, "ncclx", "tuner", "table"):
        from emu.scenario.readers.tuner_table import put_tuner_in_place  # noqa: PLC0415

        problems.extend(put_tuner_in_place(tree, directory, read_file, notes))
    mark_data(tree, notes)
    from_files = _has(tree, "jobs", "workload", "file")
    if from_files:
        from emu.scenario.readers.workload_files import put_tables_in_place  # noqa: PLC0415

        problems.extend(put_tables_in_place(tree, directory, read_file, notes))
    problems.extend(put_graphs_in_place(tree, directory, read_file))
    if _has(tree, "topology", "path"):
        from emu.scenario.readers.topology_files import put_fabric_in_place  # noqa: PLC0415

        problems.extend(put_fabric_in_place(tree, directory, read_file, notes))
    if from_files:
        from emu.scenario.readers.chakra import MOST_FILE_BYTES  # noqa: PLC0415
        from emu.scenario.readers.workload_files import put_traces_in_place  # noqa: PLC0415

        problems.extend(put_traces_in_place(tree, directory, partial(read_file, most_bytes=MOST_FILE_BYTES)))
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(tree.plain())
    except MistakesError as error:
        problems.extend(problems_of(error, tree, Scenario))
    if problems or scenario is None:
        raise ScenarioError(in_file_order(problems, file))
    return Loaded(scenario, Source(tree, file), variants, tuple(notes))
