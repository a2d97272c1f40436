"""Where did a scenario come from, so that a fault found late still names its line?

What needs the topology (more ranks than GPUs, a link that does not exist) is found after loading, by code
that knows only keys. `Source.located` looks those keys up in the tree the scenario was read from.
"""

from __future__ import annotations

from emu.errors import Problem, ScenarioError
from emu.scenario.expect.expect import path_steps
from emu.scenario.sections.section import RefusedError
from emu.scenario.yaml.tree import Node


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
