"""How do flows that are kept in a CSV file get into the scenario?

`pattern: csv` becomes `pattern: list` with the rows of the file, in the tree, before anything is validated.
Each flow remembers its line in the CSV file, so an error names it there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emu.errors import Problem, ScenarioError
from emu.scenario.readers.flow_table import FlowRow, FlowTableError, read_flow_table
from emu.scenario.yaml.core_schema import resolved
from emu.scenario.yaml.document import decode
from emu.scenario.yaml.tree import Node, Place


def put_tables_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Replace every table named in `jobs` by its flows; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(jobs.value if jobs is not None and isinstance(jobs.value, list) else ()):
        workload = job.child("workload")
        if workload is None or not isinstance(workload.value, dict):
            continue
        file = _named_table(workload.value)
        if file is None:
            continue
        path = directory / file
        key = f"jobs[{index}].workload.file"
        try:
            rows = read_flow_table(decode(read_file(path), str(path)))
        except ScenarioError as error:
            place = workload.keys["file"]
            problems.extend(
                Problem(place.file, place.line, key, f"{path}: {problem.reason}", problem.accepted)
                for problem in error.problems
            )
        except FlowTableError as error:
            problems.append(Problem(str(path), error.line, key, error.reason, error.accepted))
        else:
            _replace(workload, workload.value, [_flow(row, str(path)) for row in rows])
    return problems


def _named_table(workload: dict[str, Node]) -> str | None:
    """The file of a workload that is right in all but its rows; the others are for validation to judge."""
    given = {key: node.value for key, node in workload.items()}
    file = given.get("file")
    is_table = given.get("kind") == "flows" and given.get("pattern") == "csv" and "flows" not in given
    return file if is_table and isinstance(file, str) and file else None


def _replace(workload: Node, values: dict[str, Node], flows: list[Node]) -> None:
    place = workload.keys.pop("file")
    del values["file"]
    values["pattern"] = Node("list", workload.keys["pattern"])
    values["flows"] = Node(list(flows), place)
    workload.keys["flows"] = place


def _flow(row: FlowRow, file: str) -> Node:
    place = Place(file, row.line)
    cells = {
        name: Node(resolved(text) if name in ("src", "dst") else text, place)
        for name, text in row.cells.items()
    }
    node = Node(dict(cells), place)
    node.keys = dict.fromkeys(cells, place)
    return node
