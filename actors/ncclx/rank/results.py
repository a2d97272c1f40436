"""What the steps and calls of a rank took, for the tables `steps` and `calls` of a run.

A job that begins again, and a step that another membership repeats, replace the rows that they had before.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields

STEP: Final = 2
"""Where a row has its step."""

_FIELDS: Final = ("steps", "calls")


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

    def save(self) -> list[Plain]:
        """State for a snapshot."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        load_fields(self, _FIELDS, state)
