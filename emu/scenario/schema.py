"""The root section of a scenario, complete: whatever a run depends on is in it.

The sections are in modules of their own, one per subject; kinds, policies and patterns are tables in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from emu.scenario.environment import Environment
from emu.scenario.expect.expect import Expectation, path_steps
from emu.scenario.expect.series import EXPECTATIONS, SeriesExpectation, deadline
from emu.scenario.faults.table import FAULTS, FaultSection
from emu.scenario.section import Refusal
from emu.scenario.sections.jobs import JobSection
from emu.spelling import did_you_mean, listed


class Scenario(Environment):
    """One run: a fabric, how its devices behave, the jobs on it, what breaks, and what must come out."""

    jobs: Annotated[tuple[JobSection, ...], Field(min_length=1, max_length=1024)]
    """What runs on it."""
    faults: Annotated[tuple[Annotated[FaultSection, FAULTS], ...], Field(max_length=65536)] = ()
    """What breaks."""
    expect: Annotated[
        tuple[Annotated[Expectation | SeriesExpectation, EXPECTATIONS], ...], Field(max_length=4096)
    ] = ()
    """What must be true of the results."""

    def check(self) -> Iterator[Refusal]:
        """Refuse sections that contradict each other."""
        names = [job.name for job in self.jobs]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Refusal(("jobs", index, "name"), f"{name!r} is used twice", "a name of its own")
        for index, job in enumerate(self.jobs):
            if job.mismatch is not None and self.payload == "real":
                reason = "ranks that call other sizes have no result that could be compared (payload: real)"
                yield Refusal(("jobs", index, "mismatch"), reason, "payload: sizes")
        if not any(job.enabled for job in self.jobs):
            yield Refusal(("jobs",), "no job is enabled", "a job that runs")
        yield from super().check()
        yield from self._check_expectations(names)

    def _check_expectations(self, names: list[str]) -> Iterator[Refusal]:
        """Refuse what speaks of jobs and faults that the scenario has not."""
        count = len(self.faults)
        for index, expectation in enumerate(self.expect):
            if isinstance(expectation, SeriesExpectation):
                within = expectation.within
                if within is not None and deadline(within).fault >= count:
                    reason = f"there is no fault {deadline(within).fault}: the scenario has {count}, from 0"
                    yield Refusal(("expect", index, "within"), reason, "a fault by its place in faults")
                for label in ("comm_name", "job_name"):
                    wanted = getattr(expectation.where, label)
                    if wanted is not None and not any(fnmatchcase(name, wanted) for name in names):
                        reason = f"there is no job {wanted!r}{did_you_mean(wanted, names)}"
                        yield Refusal(("expect", index, "where", label), reason, listed(names))
                continue
            steps = path_steps(expectation.value)
            if steps[0] == "jobs" and len(steps) > 1 and steps[1] not in names:
                reason = f"there is no job {steps[1]!r}{did_you_mean(str(steps[1]), names)}"
                yield Refusal(("expect", index, "value"), reason, f"jobs.NAME with {listed(names)}")
            place = steps[1] if steps[0] == "faults" and len(steps) > 1 else None
            if isinstance(place, int) and not -count <= place < count:
                reason = f"there is no fault {place}: the scenario has {count}"
                yield Refusal(("expect", index, "value"), reason, "an index into faults")
