"""How does a trace that is kept in a file get into the scenario? Its text takes the place of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emu.errors import Problem, ScenarioError
from emu.scenario.document import decode
from emu.scenario.tree import Node


def put_traces_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Replace the `file` of every trace in `jobs` by its `text`; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(jobs.value if jobs is not None and isinstance(jobs.value, list) else ()):
        workload = job.child("workload")
        if workload is None or not isinstance(workload.value, dict) or "text" in workload.value:
            continue
        kind, file = workload.child("kind"), workload.child("file")
        if kind is None or kind.value != "trace" or file is None or not isinstance(file.value, str):
            continue
        place = workload.keys["file"]
        path = directory / file.value
        try:
            text = decode(read_file(path), str(path))
        except ScenarioError as error:
            key = f"jobs[{index}].workload.file"
            problems.extend(
                Problem(place.file, place.line, key, f"{path}: {one.reason}", one.accepted)
                for one in error.problems
            )
            continue
        del workload.value["file"]
        del workload.keys["file"]
        workload.value["text"] = Node(text, place)
        workload.keys["text"] = place
    return problems
