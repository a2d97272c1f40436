"""The root section of a scenario, complete: whatever a run depends on is in it.

The sections are in modules of their own, one per subject; kinds, policies and patterns are tables in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from emu.base.records import Field, Location
from emu.base.spelling import did_you_mean, listed
from emu.base.units import format_time
from emu.results.metrics import DROP_REASONS
from emu.results.places import Flaw, bound_flaw, place_flaw
from emu.scenario.environment import Environment
from emu.scenario.expect import EXPECTATIONS, Expectation, SeriesExpectation, deadline, path_steps
from emu.scenario.faults.kinds import FAULTS, FaultSection
from emu.scenario.section import Refusal
from emu.scenario.sections.operator import OperatorSection
from emu.scenario.workloads.jobs import JobSection
from emu.scenario.workloads.workload import OF_KINDS


class Scenario(Environment):
    """One run: a fabric, how its devices behave, the jobs on it, what breaks, and what must come out."""

    jobs: Annotated[tuple[JobSection, ...], Field(min_length=1, max_length=1024)]
    """The jobs."""
    faults: Annotated[tuple[Annotated[FaultSection, FAULTS], ...], Field(max_length=65536)] = ()
    """Faults, at their times."""
    operator: OperatorSection | None = None
    """A control plane that detects failures of a job and restarts it."""
    expect: Annotated[
        tuple[Annotated[Expectation | SeriesExpectation, EXPECTATIONS], ...], Field(max_length=4096)
    ] = ()
    """Conditions that the results must meet."""

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
        if self.operator is not None:
            yield from self._check_operator(self.operator, names)
        watched = self.operator is not None and self.operator.heartbeat.rows > 0
        for index, fault in enumerate(self.faults):
            if fault.kind == "row_remap" and not watched:
                accepted = "with operator.heartbeat.rows"
                yield Refusal(("faults", index, "kind"), "nobody looks at remapped rows", accepted)
        yield from self._check_expectations(names)

    def _check_operator(self, operator: OperatorSection, names: list[str]) -> Iterator[Refusal]:
        """Refuse what an operator cannot do."""
        where = ("operator", "job")
        if operator.job not in names:
            reason = f"there is no job {operator.job!r}{did_you_mean(operator.job, names)}"
            yield Refusal(where, reason, listed(names))
            return
        job = self.jobs[names.index(operator.job)]
        if not job.workload.calls_library:
            yield Refusal(where, f"{job.name} has no steps", "a collective, training, a trace or a program")
        for key in ("shrink", "recover", "mismatch", "submitted"):
            if getattr(job, key):
                reason = f"{job.name} has `{key}`, and the operator decides how it goes on"
                yield Refusal(where, reason, f"a job without `{key}`")
        if not job.enabled:
            yield Refusal(where, f"{job.name} does not run", "a job that is enabled")
        if self.fidelity == "flow":
            yield Refusal(("operator",), "flow level has no heartbeats", "fidelity: packet")
        if self.run.repeat:
            yield Refusal(("run", "repeat"), "a job that is tended ends with its last step", "repeat: false")
        if self.payload == "real":
            yield Refusal(("payload",), "checkpoints hold sizes, no content", "payload: sizes")
        least_ps = 10 * self.control.management_delay_ps
        if operator.heartbeat.every_ps < least_ps:
            reason = "the next heartbeat would leave before the last one was looked at"
            accepted = f"at least {format_time(least_ps)}, ten times control.management_delay"
            yield Refusal(("operator", "heartbeat", "every"), reason, accepted)

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
            where: Location = ("expect", index, "value")
            steps = path_steps(expectation.value)
            if steps[0] == "jobs" and len(steps) > 1 and steps[1] not in names:
                reason = f"there is no job {steps[1]!r}{did_you_mean(str(steps[1]), names)}"
                yield Refusal(where, reason, f"jobs.NAME with {listed(names)}")
                continue
            place = steps[1] if steps[0] == "faults" and len(steps) > 1 else None
            if isinstance(place, int) and not -count <= place < count:
                reason = f"there is no fault {place}: the scenario has {count}"
                yield Refusal(where, reason, "an index into faults")
                continue
            flaw = place_flaw(steps) or self._without_value(steps)
            if flaw is not None:
                yield Refusal(where, *flaw)
            elif (flaw := bound_flaw(steps, expectation.comparison, expectation.bounds)) is not None:
                yield Refusal(("expect", index, expectation.comparison), *flaw)

    def _without_value(self, steps: Location) -> Flaw | None:
        """Why this scenario has nothing at a path that others have."""
        if "by_reason" in steps[:-1] and steps[-1] not in DROP_REASONS:
            reason = f"there is no reason {steps[-1]!r}{did_you_mean(str(steps[-1]), DROP_REASONS)}"
            return Flaw(reason, listed(DROP_REASONS, 32))
        if "engineering" in steps and self.routing.kind != "traffic_engineering":
            return Flaw("there is no engineering", "routing.kind: traffic_engineering")
        if steps[0] != "jobs" or len(steps) < 3:
            return None
        job = next(job for job in self.jobs if job.name == steps[1])
        part, parts = str(steps[2]), job.workload.parts
        if part in OF_KINDS and part not in parts:
            return Flaw(f"job {job.name} has no {part}", listed(f"jobs.{job.name}.{one}" for one in parts))
        place = steps[3] if len(steps) > 3 and part == "collectives" and not self.run.repeat else None
        rows = job.workload.rows()
        if isinstance(place, int) and rows is not None and not -rows <= place < rows:
            return Flaw(f"there is no collective {place}: the job has {rows}", f"{-rows} to {rows - 1}")
        return None
