"""What the steps and calls of a rank took, for the tables `steps` and `calls` of a run.

A job that begins again, and a step that another membership repeats, replace the rows that they had before.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list

STEP: int = 2
"""Where a row has its step."""


class Results:
    """The rows of one rank."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        """By step: job, rank, step, begin, end, computing, and waiting by reason."""
        self.calls: list[list[int]] = []
        """Of each labelled call that ended: job, rank, step, label, begun_ps, end_ps."""

    def note_step(self, row: list[int], repeats: bool) -> None:
        """A step is over; it may be one of before, in another membership."""
        step: i64 = row[STEP]
        if self.steps and self.steps[0][STEP] == step:  # the job began again
            self.steps.pop(0)
        if repeats and self.steps and self.steps[-1][STEP] == step:
            self.steps.pop()
        self.steps.append(row)

    def save(self) -> Plain:
        """State for a snapshot."""
        return [_saved(self.steps), _saved(self.calls)]

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        steps, calls = as_list(state)
        self.steps = _loaded(steps)
        self.calls = _loaded(calls)


def _saved(rows: list[list[int]]) -> Plain:
    found: list[Plain] = [list[Plain](row) for row in rows]
    return found


def _loaded(state: Plain) -> list[list[int]]:
    return [[as_int(value) for value in as_list(row)] for row in as_list(state)]
