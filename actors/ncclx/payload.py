"""Real payload of the collectives of a job.

Each communicator of a rank has buffers of its own: its memory goes by the group's number and the rank's place
in it, and its turns are the calls of that group. Data is drawn and compared as `actors.ncclx.verifying` says,
of the type and with the reduction that each call says. The rows name an operation by its number in a
benchmark, by its place in a program's list over all groups and steps. A transfer is a broadcast to one: the
receiver ends with the sender's bytes.

Not modelled: data that goes from one collective to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from actors.gpu.memory import Contents, RankMemory
from actors.gpu.reductions import ELEMENT_BYTES
from actors.ncclx.collectives import REDUCING
from actors.ncclx.graph import Call, Step
from actors.ncclx.operations import Operation
from actors.ncclx.orders import Orders
from actors.ncclx.plan import JobWork, Plan
from actors.ncclx.schedule import Schedule, operations_of
from actors.ncclx.script import TRANSFER, UNLABELLED
from actors.ncclx.verifying import RankContents, aligned, cut_through, too_much
from emu.errors import Problem, ScenarioError
from emu.scenario.schema import Scenario

_GROUP: Final = 1 << 20
"""A group's memories go by numbers from its own times this on."""


class _Part:
    """One rank in one group."""

    def __init__(self, scenario: Scenario, job: JobWork, rank: int, place: int) -> None:
        assert job.script is not None, job.name
        self.job = job.job
        script = job.script.scripts[rank]
        self.number = script.groups[place]
        self.calls = script.calls[place]
        self.ranks = len(job.script.groups[self.number].members)
        self.at = job.script.groups[self.number].members.index(rank)
        self.schedule: Schedule = job.schedules[self.number].with_operations(operations_of(self.calls))
        self._scenario = scenario

    def contents(self) -> RankContents:
        first = self.number * _GROUP
        labels = [call.label for call in self.calls]
        return RankContents(
            self._scenario.seed,
            self.job,
            first + self.at,
            [self._whole(one) for one in self.schedule.operations],
            range(first, first + self.ranks),
            [(call.dtype, call.redop) for call in self.calls],
            [] if UNLABELLED in labels else labels,
        )

    def _whole(self, operation: Operation) -> Call:
        call = replace(self.schedule.call(operation, 0), channels=1)
        return replace(call, op="broadcast") if call.op == TRANSFER else call

    def orders(self, first_channel: int) -> Orders:
        """`first_channel` is the number of the group's first channel at its rank."""
        contents = self.contents()
        steps = partial(_steps, self.schedule, first_channel, self.at)
        found = Orders(self.job, contents.rank, steps)
        if self._scenario.ncclx.zero_copy:
            found.memory = RankMemory(contents)
        return found


def _steps(schedule: Schedule, first: int, rank: int, operation: int, walker: int) -> Sequence[Step]:
    return schedule.steps(operation, (walker - first) % schedule.ncclx.channels, rank)


def _parts(scenario: Scenario, job: JobWork, rank: int) -> Iterator[_Part]:
    if job.script is not None and job.real:
        for place in range(len(job.script.scripts[rank].groups)):
            yield _Part(scenario, job, rank, place)


def group_orders(
    scenario: Scenario, job: JobWork, rank: int, place: int, first_channel: int
) -> Orders | None:
    """What tells the GPU what to do with slices of one group; None where they are sizes only."""
    return _Part(scenario, job, rank, place).orders(first_channel) if job.real else None


def contents_of(scenario: Scenario, plan: Plan, gpu: int) -> list[Contents]:
    """What the ranks on a GPU work on."""
    return [
        part.contents()
        for job in plan.jobs
        for rank, mine in enumerate(job.gpus)
        if mine == gpu
        for part in _parts(scenario, job, rank)
    ]


def check_payload(scenario: Scenario, plan: Plan) -> None:
    """Refuse collectives that cut through elements that they reduce, and more than fits memory."""
    problems: dict[str, Problem] = {}
    held_bytes = 0
    for job in plan.jobs:
        seen: dict[int, None] = {}
        for rank in range(len(job.gpus)):
            for part in _parts(scenario, job, rank):
                held_bytes += max(call.size_bytes for call in part.calls)
                if part.number not in seen:
                    problems |= {one.key: one for one in _cut(scenario, part)} | problems
                    seen[part.number] = None
    found = [*problems.values(), *too_much(scenario, held_bytes)]
    if found:
        raise ScenarioError(found)


def _cut(scenario: Scenario, part: _Part) -> Iterator[Problem]:
    """Calls of one rank whose steps cut through elements."""
    for number, (one, call) in enumerate(zip(part.schedule.operations, part.calls, strict=True)):
        width = ELEMENT_BYTES[call.dtype]
        if one.op in REDUCING and not aligned(part.schedule, number, width):
            key = "sizes" if call.label == UNLABELLED else f"operations[{call.label}].size"
            accepted = f"a multiple of {width * part.ranks}B"
            where = f"jobs[{part.job}].workload.{key}"
            yield Problem(scenario.name, 0, where, cut_through(one, call.dtype), accepted)
