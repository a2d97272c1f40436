"""Files of lanes: a first line `lanes`, then RANKS SHIFT SIZE."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from emu.base.doors import FileReader, Part
from emu.base.errors import Problem, ScenarioError


def knows(path: Path) -> bool:
    """Whether a file begins as one of lanes."""
    with path.open("rb") as file:
        return file.read(6) == b"lanes\n"


def read(paths: Sequence[Path]) -> Part:
    """The jobs of these files. Raises ScenarioError with file and line."""
    jobs, most = "", 0
    for path in paths:
        words = path.read_text("utf-8").splitlines()[1].split()
        if len(words) != 3 or not words[0].isdecimal() or not words[1].isdecimal():
            raise ScenarioError([Problem(str(path), 2, "", "is no lane", "RANKS SHIFT SIZE")])
        ranks, shift, size = words
        work = f"{{kind: lanes, shift: {shift}, size: {size}}}"
        jobs += f"  - {{name: {path.stem}, ranks: {ranks}, workload: {work}}}\n"
        most = max(most, int(ranks))
    return Part(jobs=jobs, ranks=most)


READER: Final = FileReader("a file of lanes", knows, read)
