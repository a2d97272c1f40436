"""What does `summary.json` say of how the ranks of a job came to know each other?"""

from __future__ import annotations

from collections.abc import Sequence

from emu.measure.summary.training import Part


class Init(Part):
    """A job's init at the bootstrap store (`ncclx.init`)."""

    begun_ps: int
    """When the first rank asked the store."""
    end_ps: int | None
    """When the last host had the last answer; null if some rank never came."""
    time_ps: int | None
    """From the one to the other."""
    rounds: int
    """How often every rank has to come to the store."""
    done: int
    """How many of these rounds are over."""
    missing: list[int]
    """The first ranks that did not come to the present round."""


def init_result(row: Sequence[int]) -> Init:
    """From the controller's row: job, begun_ps, end_ps or -1, rounds over, rounds, missing ranks."""
    _, begun_ps, end_ps, done, rounds, *missing = row
    ended = end_ps >= 0
    return Init(
        begun_ps=begun_ps,
        end_ps=end_ps if ended else None,
        time_ps=end_ps - begun_ps if ended else None,
        rounds=rounds,
        done=done,
        missing=missing,
    )
