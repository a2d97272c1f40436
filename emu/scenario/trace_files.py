"""How does a trace that is kept in files get into the scenario? What is in them takes the place of the name.

A text of SimAI as it is; Chakra's binary traces in Base64, for there is no other way to write bytes in YAML.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from emu.errors import Problem, ScenarioError
from emu.scenario.document import decode
from emu.scenario.tree import Node, Place
from emu.workload.chakra import MOST_RANKS, MOST_TRACE_BYTES

ReadFile = Callable[[Path], bytes]


def put_traces_in_place(tree: Node, directory: Path, read_file: ReadFile) -> list[Problem]:
    """Replace the `file` of every trace in `jobs` by what is in it; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(jobs.value if jobs is not None and isinstance(jobs.value, list) else ()):
        workload = job.child("workload")
        if workload is None or not isinstance(workload.value, dict):
            continue
        given = {key: node.value for key, node in workload.value.items()}
        file, form = given.get("file"), given.get("form", "simai")
        known = form in ("simai", "chakra") and not {"text", "traces"} & set(given)
        if given.get("kind") != "trace" or not known or not isinstance(file, str) or not file:
            continue
        place = workload.keys["file"]
        try:
            key, content = _content(directory / file, form == "chakra", place, read_file)
        except ScenarioError as error:
            problems.extend(
                Problem(
                    place.file,
                    place.line,
                    f"jobs[{index}].workload.file",
                    f"{one.file}: {one.reason}",
                    one.accepted,
                )
                for one in error.problems
            )
            continue
        del workload.value["file"]
        del workload.keys["file"]
        workload.value[key] = content
        workload.keys[key] = place
    return problems


def _content(path: Path, binary: bool, place: Place, read_file: ReadFile) -> tuple[str, Node]:
    """The key that takes the place of `file`, and its value."""
    if not binary:
        return "text", Node(decode(read_file(path), str(path)), place)
    if path.suffix == ".et":
        files = [_bounded(path, 0, read_file)]
    else:
        files = []
        while len(files) < MOST_RANKS:
            one = path.with_name(f"{path.name}.{len(files)}.et")
            if files and not one.exists():
                break
            files.append(_bounded(one, sum(map(len, files)), read_file))
    return "traces", Node([Node(base64.b64encode(one).decode("ascii"), place) for one in files], place)


def _bounded(path: Path, before: int, read_file: ReadFile) -> bytes:
    data = read_file(path)
    if before + len(data) > MOST_TRACE_BYTES:
        reason = "the traces are too large"
        raise ScenarioError([Problem(str(path), 0, "", reason, f"at most {MOST_TRACE_BYTES} bytes in all")])
    return data
