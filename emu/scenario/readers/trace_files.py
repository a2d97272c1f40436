"""Traces kept in files: what is in them takes the place of their names in the scenario.

A text of SimAI as it is; of Chakra's binary traces what is read of them, in Base64, for there is no other way
to write bytes in YAML.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from emu.errors import Problem, ScenarioError
from emu.scenario.readers.chakra import MOST_FILE_BYTES, MOST_RANKS, MOST_TRACE_BYTES, pared
from emu.scenario.yaml.document import Node, Place, decode

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
        file, kind = given.get("file"), given.get("kind")
        known = kind in ("simai_trace", "chakra_trace") and not {"text", "traces"} & set(given)
        if not known or not isinstance(file, str) or not file:
            continue
        place = workload.keys["file"]
        try:
            key, content = _content(directory / file, kind == "chakra_trace", place, read_file)
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
        files = [path]
    else:
        files = []
        while len(files) < MOST_RANKS:
            one = path.with_name(f"{path.name}.{len(files)}.et")
            if files and not one.exists():
                break
            files.append(one)
    return "traces", Node([Node(one, place) for one in _encoded(files, read_file)], place)


def _encoded(files: Sequence[Path], read_file: ReadFile) -> Iterator[str]:
    """What is read of each file, in Base64."""
    whole = kept = 0
    for path in files:
        data = read_file(path)
        whole += len(data)
        if whole > MOST_FILE_BYTES:
            reason = "the traces are too large"
            raise ScenarioError(
                [Problem(str(path), 0, "", reason, f"at most {MOST_FILE_BYTES} bytes in all")]
            )
        data = pared(data)
        kept += len(data)
        if kept > MOST_TRACE_BYTES:
            reason = "there is too much in the traces"
            accepted = f"at most {MOST_TRACE_BYTES} bytes of nodes, dependencies and attributes in all"
            raise ScenarioError([Problem(str(path), 0, "", reason, accepted)])
        yield base64.b64encode(data).decode("ascii")
