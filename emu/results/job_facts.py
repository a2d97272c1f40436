"""What a kind of workload knows of a job that its results need: the seam between a plan and the summary.

A kind with results of its own derives a class from `JobFacts`, and a part of the summary from `KindResult`.
Nothing else in the tool asks what kind of job it is: the summary takes what `results` gives, progress counts
`payload_bytes`, and a job has ended when all `outcomes` are there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from emu.results.summary import Flow
from emu.results.summary_part import KindResult


class Outcome(NamedTuple):
    """Begin, end and status of an operation, a call, a flow or a client of storage."""

    start_ps: int
    end_ps: int
    status: int


class JobRows(NamedTuple):
    """What devices reported about one job."""

    ranks: int
    """Ranks of the job."""
    start_ps: int
    """When the job began."""
    operations: Mapping[int, Outcome]
    """Operations that ended, by number."""
    flows: Sequence[Flow]
    """All flows of the job, by number."""
    steps: Sequence[Sequence[int]]
    """Rank, step, begin, end, compute, waits by reason."""
    clients: Sequence[Outcome]
    """Clients of storage that are through."""
    staged_ps: int
    """How long the last client took until it made its first request."""
    requests: Sequence[Sequence[int]]
    """Kind, answered, ps in all, ps at most, refused, bytes moved, written elsewhere."""


class JobFacts:
    """Facts of a job; those of a kind with results of its own override what applies to it."""

    __slots__ = ()

    def results(self, rows: JobRows) -> dict[str, KindResult]:
        """What the kind adds to the results: fields of `Job`."""
        del rows
        return {}

    def outcomes(self, rows: JobRows) -> list[Outcome | None]:
        """What has to end beside the listed collectives and flows; None for what has not."""
        del rows
        return []

    def payload_bytes(self) -> int:
        """Payload that the job moves beside collectives and flows."""
        return 0

    def planned_steps(self) -> int:
        """How many steps the job does; 0 for a job without steps."""
        return 0

    def memberships(self) -> Sequence[Sequence[int]]:
        """Sets of ranks that can take over from one another in a job that goes on without lost ranks."""
        return ()

    def membership_of(self, ranks: int, through: Collection[int]) -> int | None:
        """The membership that did a step which these ranks have finished; None if the step is not over. A job
        without memberships has one, of all ranks.
        """
        for number, members in enumerate(self.memberships() or (range(ranks),)):
            if all(rank in through for rank in members):
                return number
        return None

    def step_mfu_ppm(self, ranks: int, step_ps: int) -> int | None:
        """The MFU of a step, in millionths; None for a job without FLOPs."""
        del ranks, step_ps
        return None


NO_FACTS: Final = JobFacts()
"""Facts of a job whose kind adds nothing to the results."""
