"""Rows that the results of a job list: which operation, or call of a program, each is about."""

from __future__ import annotations

from typing import NamedTuple


class CollectivePlan(NamedTuple):
    """One operation of a job: which of the rows `operations` of the controller are about it."""

    operation: int
    op: str
    algorithm: str
    size_bytes: int
    ranks: int
    iteration: int
    warmup: bool = False
    dtype: str = "fp32"
    redop: str = "sum"
    checked: bool = False
    """Whether payload is real, and results are compared."""
    protocol: str = "simple"
    channels: int = 1
    """That have a share in it."""


class CallShare(NamedTuple):
    """What another membership of a job has of a call: `ranks`, `callers` and `ends` of `CallPlan`."""

    ranks: int
    callers: int
    ends: tuple[tuple[int, int], ...]


class CallPlan(NamedTuple):
    """One collective or transfer in a program's list: which of the rows `calls` of the hosts are about it."""

    label: int
    """Its place in the list."""
    op: str
    algorithm: str
    communicator: str
    size_bytes: int
    ranks: int
    """Ranks of the largest group."""
    callers: int
    """How many ranks call it, over all groups."""
    step: int
    ends: tuple[tuple[int, int], ...] = ()
    """The other ends of transfers: rank and label of the calls there."""
    later: tuple[CallShare, ...] = ()
    """The same in its other memberships, for a job that goes on without ranks."""

    def of(self, membership: int) -> CallPlan:
        """The same in a membership of the job."""
        if membership == 0:
            return self
        share = self.later[membership - 1]
        return self._replace(ranks=share.ranks, callers=share.callers, ends=share.ends)
