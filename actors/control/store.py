"""The store where the ranks of a job meet before their first operation, and how long that takes.

Before its first operation every rank of a job meets the others at the store, in *rounds*: one in which it
writes its own address and reads the root's, then the *barriers*. In each round a rank asks once over the
management network, which is two operations of the store (a write, and a read that is answered when all have
written); when the store has served everybody it answers all hosts, and the next round begins.

    serial       one request at a time, in the order in which they came: a single thread that blocks
    concurrent   `lanes` requests at a time

    quadratic    a barrier over all ranks after each group that is set up; a job of n ranks has about n
                 groups, so n barriers of n ranks
    linear       one barrier, when groups are set up in an order that needs no others

So with n ranks, an operation of t and c lanes, init takes

    rounds x (2 management delays + ceil(n / c) x 2 t),   rounds = 1 + n or 2

Source: MegaScale (NSDI'24), section 3.5: TCPStore, which is single-threaded and blocks, replaced by Redis,
which does not, brought 1,047 s down to 361 s on 2,048 GPUs; barriers O(n) in place of O(n^2), to under 5 s.

Not modelled: bootstrap connections between ranks, the exchange of queue pair numbers, detection of the
topology inside a server, a store that fails.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS
from actors.kernel.state import as_list, load_fields, save_fields

OPERATIONS: Final[i64] = 2
"""Operations of the store in a request: a write and a read."""

MOST_NAMED: Final = 8

_FIELDS: Final = ("ranks", "round", "arrived", "begun_ps", "end_ps", "asked", "among")


class Meeting:
    """How far the ranks of one job are. `asked` says, by rank, who came in the present round."""

    def __init__(self, job: int, ranks: int, rounds: int) -> None:
        self.job: i64 = job
        self.ranks: i64 = ranks
        self.rounds: i64 = rounds
        self.round: i64 = 0
        self.arrived: i64 = 0
        """Ranks that were served in this round."""
        self.begun_ps: i64 = NEVER_PS
        """When the first rank asked for the first time."""
        self.end_ps: i64 = -1
        """When the last host had the last answer."""
        self.asked: list[bool] = [False] * ranks
        self.among: list[int] = list(range(ranks))
        """The ranks that meet."""

    def row(self) -> list[int]:
        """For the table `inits`: job, begun_ps, end_ps (-1 while it goes on), rounds that are over, of how
        many, and the first ranks that the present round waits for.
        """
        row: list[int] = [self.job, self.begun_ps, self.end_ps, self.round, self.rounds]
        if self.end_ps < 0:
            row += [rank for rank in self.among if not self.asked[rank]][:MOST_NAMED]
        return row


class Store:
    """The bootstrap store: requests in line, and how long each takes. Clock and links are not its own."""

    def __init__(self, lanes: int, operation_ps: int, meetings: list[Meeting]) -> None:
        self.request_ps: i64 = operation_ps * OPERATIONS
        self.meetings: dict[int, Meeting] = {int(meeting.job): meeting for meeting in meetings}
        self.serving: list[int] = [-1] * lanes
        """By lane, the job whose request is served; -1 if it is idle."""
        self.line: list[int] = []
        """Jobs of the requests that wait."""

    def admits(self, job: i64, rank: i64) -> bool:
        """Whether a job meets here and has such a rank."""
        meeting = self.meetings.get(job)
        return meeting is not None and 0 <= rank < len(meeting.asked)

    def ask(self, job: i64, rank: i64, sent_ps: i64) -> i64:
        """A rank asks; the lane that serves it now, or -1 where it has to wait."""
        meeting = self.meetings[job]
        assert not meeting.asked[rank], (job, rank, meeting.round)
        meeting.asked[rank] = True
        if sent_ps < meeting.begun_ps:
            meeting.begun_ps = sent_ps
        lane: i64 = 0
        while lane < len(self.serving):
            if self.serving[lane] < 0:
                self.serving[lane] = job
                return lane
            lane += 1
        self.line.append(job)
        return -1

    def served(self, lane: i64) -> Meeting | None:
        """A lane is done; the meeting of which a round is over by that. The lane takes the next request."""
        meeting = self.meetings[self.serving[lane]]
        self.serving[lane] = -1
        if self.line:
            self.serving[lane] = self.line.pop(0)
        meeting.arrived += 1
        if meeting.arrived < meeting.ranks:
            return None
        meeting.arrived = 0
        meeting.round += 1
        meeting.asked = [False] * len(meeting.asked)
        return meeting

    def meet_again(self, job: i64, among: tuple[int, ...]) -> None:
        """The ranks of a job begin to meet anew, and only some of them; `rows` is about them from now on."""
        meeting = self.meetings[job]
        meeting.ranks = len(among)
        meeting.among = list(among)
        meeting.round = 0
        meeting.arrived = 0
        meeting.begun_ps = NEVER_PS
        meeting.end_ps = -1
        meeting.asked = [False] * len(meeting.asked)

    def rows(self) -> list[list[int]]:
        """Rows of the table `inits`, of jobs that have begun."""
        return [meeting.row() for meeting in self.meetings.values() if meeting.begun_ps < NEVER_PS]

    def save(self) -> list[Plain]:
        """The store's state."""
        meetings: list[Plain] = [save_fields(meeting, _FIELDS) for meeting in self.meetings.values()]
        return [meetings, save_fields(self, ("serving", "line"))]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        meetings, fields = as_list(state)
        for meeting, saved in zip(self.meetings.values(), as_list(meetings), strict=True):
            load_fields(meeting, _FIELDS, saved)
        load_fields(self, ("serving", "line"), fields)
