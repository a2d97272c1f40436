"""Result of a serving job, `jobs.NAME.serving`: its requests, the times of their tokens, and its report."""

from __future__ import annotations

from collections.abc import Sequence

from emu.base.units import about_time, aligned
from emu.results.percentiles import FlowTimes
from emu.results.summary_part import KindResult


class ServingResult(KindResult):
    """What became of the requests of a serving job. Times are percentiles over requests."""

    requests: int
    """How many arrived."""
    answered: int
    """How many were given all their tokens."""
    prefill_wait: FlowTimes | None
    """From arrival to the beginning of prefill."""
    transfer: FlowTimes | None
    """From the end of prefill to the last page of keys and values at the decode instance."""
    first_token: FlowTimes | None
    """TTFT: from arrival to the first token; null where no request was answered."""
    each_token: FlowTimes | None
    """TPOT: from the first token to the last, by the tokens after the first; null where none has two."""
    tokens_per_s: float | None
    """Tokens of answered requests, from the job's start to the last of them."""

    def lines(self, job: str) -> list[str]:
        """How many requests were answered, and percentiles of their times."""
        rows: list[Sequence[str]] = [("", "P50", "P90", "P99", "longest")]
        for what, times in (
            ("prefill wait", self.prefill_wait),
            ("keys and values", self.transfer),
            ("first token", self.first_token),
            ("each token", self.each_token),
        ):
            if times is not None:
                shown = (times.p50_ps, times.p90_ps, times.p99_ps, times.max_ps)
                rows.append((what, *map(about_time, shown)))
        given = f", {self.tokens_per_s:,.0f} tokens a second" if self.tokens_per_s else ""
        return [f"# {job}: {self.answered} of {self.requests} requests answered{given}", *aligned(rows)]
