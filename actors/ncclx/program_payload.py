"""What do the collectives of a program work on, where payload is real?

Each communicator of a rank has buffers of its own: its memory goes by the group's number and the rank's place
in it, and its turns are the calls of that group. Data is drawn and compared as for a benchmark
(`actors.ncclx.verifying`), of the type and with the reduction that each call says; the rows name an operation
by its place in the program's list, over all groups and steps. A transfer is a broadcast to one: the receiver
ends with the sender's bytes.

Not modelled: data that goes from one collective to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from actors.gpu.memory import Contents, RankMemory
from actors.gpu.reductions import ELEMENT_BYTES
from actors.ncclx.collectives import REDUCING
from actors.ncclx.graph import Step
from actors.ncclx.orders import Orders
from actors.ncclx.plan import JobWork, Plan
from actors.ncclx.schedule import Schedule
from actors.ncclx.script import GRAPH, LINE
from actors.ncclx.verifying import RankContents, aligned, cut_through, too_much
from actors.ncclx.wiring import group_schedule
from emu.errors import Problem, ScenarioError
from emu.scenario.schema import Scenario
from emu.scenario.sections.program import ProgramWorkload

_GROUP: Final = 1 << 20
"""A group's memories go by numbers from here on, times the number of the group."""


def is_real(scenario: Scenario, job: JobWork) -> bool:
    """Whether a job's collectives carry bytes, though they are those of a script."""
    return scenario.payload == "real" and isinstance(scenario.jobs[job.job].workload, ProgramWorkload)


class _Part:
    """One rank in one group."""

    def __init__(self, scenario: Scenario, job: JobWork, rank: int, place: int) -> None:
        assert job.training is not None, job.name
        self.job = job.job
        script = job.training.scripts[rank]
        self.number = script.groups[place]
        self.group = job.training.groups[self.number]
        self.calls = script.calls[place]
        self.at = self.group.members.index(rank)
        self._scenario, self._job, self._rank = scenario, job, rank

    def schedule(self) -> Schedule:
        group, calls = self.group, self.calls
        if group.kind == LINE:
            group = group._replace(kind=GRAPH, algorithm="direct")
            calls = [call._replace(op="broadcast") for call in calls]
        return group_schedule(self._scenario.ncclx, group, calls, [work.host for work in self._job.works])

    def contents(self) -> RankContents:
        schedule = self.schedule()
        places = schedule.groups[0]
        calls = [replace(schedule.call(one, 0, places), channels=1) for one in schedule.operations]
        first = (self.number + 1) * _GROUP
        return RankContents(
            self._scenario.seed,
            self._job.job,
            first + self.at,
            calls,
            range(first, first + len(places)),
            [(call.dtype, call.redop) for call in self.calls],
            [call.label for call in self.calls],
        )

    def orders(self, first_channel: int) -> Orders:
        """`first_channel` is the number of the group's first channel at its rank."""
        contents = self.contents()
        steps = partial(_steps, self.schedule(), first_channel, self.at)
        found = Orders(self._job.job, contents.rank, steps)
        if self._scenario.ncclx.zero_copy:
            found.memory = RankMemory(contents)
        return found


def _steps(schedule: Schedule, first: int, rank: int, operation: int, channel: int) -> Sequence[Step]:
    return schedule.steps(operation, channel - first, rank)


def _parts(scenario: Scenario, job: JobWork, rank: int) -> list[_Part]:
    assert job.training is not None, job.name
    return [_Part(scenario, job, rank, place) for place in range(len(job.training.scripts[rank].groups))]


def group_orders(
    scenario: Scenario, job: JobWork, rank: int, place: int, first_channel: int
) -> Orders | None:
    """What tells the GPU what to do with slices of one group; None where they are sizes only."""
    if not is_real(scenario, job):
        return None
    return _Part(scenario, job, rank, place).orders(first_channel)


def program_contents(scenario: Scenario, plan: Plan, gpu: int) -> list[Contents]:
    """What the programs of a GPU work on."""
    return [
        part.contents()
        for job in plan.jobs
        if is_real(scenario, job)
        for work in job.works
        if work.gpu == gpu
        for part in _parts(scenario, job, work.rank)
    ]


def check_programs(scenario: Scenario, plan: Plan) -> None:
    """Refuse programs whose collectives cut through elements that they reduce, and more than fits memory."""
    problems: list[Problem] = []
    held_bytes = 0
    parts = (
        part
        for job in plan.jobs
        if is_real(scenario, job)
        for work in job.works
        for part in _parts(scenario, job, work.rank)
    )
    for part in parts:
        held_bytes += max(call.size_bytes for call in part.calls)
        schedule = part.schedule()
        for number, (one, call) in enumerate(zip(schedule.operations, part.calls, strict=True)):
            width = ELEMENT_BYTES[call.dtype]
            if one.op in REDUCING and not aligned(schedule, number, width):
                key = f"jobs[{part.job}].workload.operations[{call.label}].size"
                accepted = f"a multiple of {width * len(part.group.members)}B"
                problems.append(Problem(scenario.name, 0, key, cut_through(one, call.dtype), accepted))
    problems += too_much(scenario, held_bytes)
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))
