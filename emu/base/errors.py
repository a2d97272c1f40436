"""The errors that end a run, and their exit statuses.

Three kinds of trouble are never mixed. Modelled misfortune (a drop, a QP in error, a link down) is data and
is not here. A programmer's mistake is an assert with its operands. Everything else is an `EmuError`: facts in
fields, one line that says what is wrong, where, and what to do, and the exit status of the `emu` command.

    1  an expectation of the scenario failed (an outcome, not an exception)
    2  bad input: the command line, the scenario, a file, an address
    3  the fabric stalled or a collective timed out
    4  the runtime failed: a worker, a socket, the Ray cluster
  130  interrupted

An `EmuError` crosses process boundaries, so every subclass keeps its arguments in `args` and pickles.
"""

from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from actors.kernel.errors import EmuError, ProtocolError, RuntimeFailure

__all__ = [
    "INTERRUPTED_STATUS",
    "EmuError",
    "FormatError",
    "KnobError",
    "Problem",
    "ProtocolError",
    "QuantityError",
    "RuntimeFailure",
    "ScenarioError",
    "StallError",
    "UsageError",
]

INTERRUPTED_STATUS: Final = 130
"""Exit status after Ctrl-C or SIGTERM: 128 + SIGINT, as shells have it."""


class UsageError(EmuError):
    """The command line or a call of the Python API asked for something that cannot be done."""

    exit_status: ClassVar[int] = 2


class QuantityError(UsageError, ValueError):
    """A quantity that cannot be read. `reason` says why, `accepted` what would have been read.

    Also a `ValueError`, so that schema validation collects it with the rest.
    """

    def __init__(self, reason: str, accepted: str) -> None:
        super().__init__(reason, accepted)
        self.reason = reason
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.reason}; accepted: {self.accepted}"


class Problem(NamedTuple):
    """One fault found in a scenario. `line` is 1-based; 0 where no line can be named. `str()` is one line."""

    file: str
    line: int
    key: str
    reason: str
    accepted: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line > 0 else self.file
        key = f" {self.key}:" if self.key else ""
        accepted = f"; accepted: {self.accepted}" if self.accepted else ""
        return _on_one_line(f"{where}:{key} {self.reason}{accepted}")


def _on_one_line(text: str) -> str:
    """Without what a terminal would act on: line breaks and control characters are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class ScenarioError(EmuError):
    """A scenario that cannot be run, with every problem found in it, in the order of the file."""

    exit_status: ClassVar[int] = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        assert self.problems, "a ScenarioError needs at least one problem"
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class KnobError(EmuError):
    """A knob that asks for what cannot be had here: which, why, and what could."""

    exit_status: ClassVar[int] = 2

    def __init__(self, key: str, reason: str, accepted: str) -> None:
        super().__init__(key, reason, accepted)
        self.key = key
        self.reason = reason
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}; accepted: {self.accepted}"


class FormatError(EmuError):
    """A file of another tool that is not of its form: at which line (or message, counted from 1), why, and
    what would have been read.
    """

    exit_status: ClassVar[int] = 2
    unit: ClassVar[str] = "line"
    """What `line` counts."""

    def __init__(self, line: int, reason: str, accepted: str) -> None:
        super().__init__(line, reason, accepted)
        self.line = line
        self.reason = reason
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.reason}; accepted: {self.accepted}"


class StallError(EmuError):
    """The fabric stalled, or a collective did not end in time. The text names who waits for whom."""

    exit_status: ClassVar[int] = 3
