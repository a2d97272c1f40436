"""What does a host remember of its programs: their proxies' lines, their queue pairs, their init?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from actors.host.program import Program
from actors.kernel.device import Plain
from actors.kernel.event import JOB, Message
from actors.kernel.state import load_fields, save_fields
from actors.kernel.vectors import append, vec
from actors.wire.message import STORE_ASK

if TYPE_CHECKING:
    from actors.host.host import Host

MEETING: Final[i64] = 0xFFFFFFF
"""Subject of the timer that ends the patience of a rank at the store; programs' own are below."""

_ATTENDANCE: Final = ("left", "operation", "patience_ps")


class Proxy:
    """The line of one program's proxy: messages to handle (completions) or to send (posts), and their
    ports.
    """

    def __init__(self) -> None:
        self.busy: bool = False
        """Whether an operation is under way: its end is a pending event."""
        self.messages: list[Message] = []
        self.ports: list[int] = []


class PairTable:
    """For one port: which program, and with which context, owns each queue pair of the NIC behind it."""

    def __init__(self) -> None:
        self.programs: vec[i64] = vec[i64]()
        self.contexts: vec[i64] = vec[i64]()

    def bound(self, pair: i64) -> bool:
        """Whether a program owns the queue pair."""
        return pair < len(self.programs) and self.programs[pair] >= 0

    def bind(self, pair: int, program: int, context: int) -> None:
        """Give a queue pair to a program."""
        while len(self.programs) <= pair:
            self.programs = append(self.programs, -1)
            self.contexts = append(self.contexts, 0)
        assert self.programs[pair] == -1, f"queue pair {pair} is bound to program {self.programs[pair]}"
        self.programs[pair] = program
        self.contexts[pair] = context


class Attendance:
    """How one rank meets the others at the store. One that is `absent` never comes. After `patience_ps` (0:
    never) it gives up.
    """

    def __init__(self, rank: int, rounds: int, absent: bool, patience_ps: int) -> None:
        self.rank: i64 = rank
        self.left: i64 = rounds
        """Rounds that are not over."""
        self.absent: bool = absent
        self.patience_ps: i64 = patience_ps
        self.operation: i64 = 0
        """What is to begin then."""

    def come(self, host: Host, program: Program, operation: i64, now: i64) -> None:
        """Come to the next round, after which, or after those that follow, an operation is to begin."""
        if self.absent:
            return
        if self.patience_ps > 0:
            host.push_timer(now + self.patience_ps, JOB, program.number, MEETING)
            self.patience_ps = 0
        self.operation = operation
        host.management.send(Message(STORE_ASK, program.job, self.rank, now, 0, 0, 0), now)

    def save(self) -> list[Plain]:
        """How far the rank is."""
        return save_fields(self, _ATTENDANCE)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _ATTENDANCE, state)
