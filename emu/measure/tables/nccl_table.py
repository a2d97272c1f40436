"""Collectives in the columns of nccl-tests.

One row for each size of a job, when its last timed iteration is done, with the mean time of those iterations
(warm-up left out), as nccl-tests prints it. `count` is in elements: of the whole buffer for all_reduce,
broadcast, reduce and sendrecv, of one rank's share for the others. GB/s are powers of ten. `#wrong` is N/A
where packets carry sizes only. Where they carry bytes, it is known when the run is over: rows wait until
then.

Source: nccl-tests, src/common.cu.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from actors.wire.message import STATUS_SUCCESS
from emu.measure.collected import CollectivePlan, JobPlan
from emu.measure.summary.jobs_and_bandwidth import bandwidth_bps, bus_factor, status_name
from emu.measure.summary.summary import Job
from emu.units import TIME_PS

TYPES: Final = {"fp32": ("float", 4), "bf16": ("bfloat16", 2), "int32": ("int32", 4)}
"""NCCL's name of a type, and the size of an element."""
WIDTHS: Final = (11, 11, 8, 6, 4, 11, 7, 7, 6)
"""Eighty columns in all, with a space between."""
COLUMNS: Final = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
UNITS: Final = ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")
REDUCES: Final = ("all_reduce", "reduce_scatter", "reduce", "barrier")
WHOLE: Final = ("all_reduce", "broadcast", "reduce", "sendrecv", "barrier")
"""What counts the whole buffer, and not one rank's share of it."""


def _aligned(cells: Sequence[str]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    return " ".join(padded).rstrip()


def gigabytes_per_s(rate_bps: int | None) -> str:
    """A rate in GB/s with two decimals, or N/A."""
    return "N/A" if rate_bps is None else f"{rate_bps / 8e9:.2f}"


def header(job: str, plan: CollectivePlan) -> list[str]:
    """The lines above the rows of a job."""
    return [
        f"# {job}: {plan.op} ({plan.algorithm}), {plan.ranks} ranks",
        "#" + _aligned(COLUMNS)[1:],
        "#" + _aligned(UNITS)[1:],
    ]


def row(plan: CollectivePlan, times_ps: Sequence[int], wrong: int | None = None) -> str:
    """The row of one size, from the times of its iterations; `wrong` is None where nothing was compared."""
    name, element_bytes = TYPES[plan.dtype]
    shared = plan.size_bytes // (1 if plan.op in WHOLE else plan.ranks)
    mean_ps = sum(times_ps) // len(times_ps)
    factor = bus_factor(plan.op, plan.ranks)
    return _aligned(
        (
            str(plan.size_bytes),
            str(shared // element_bytes),
            name,
            plan.redop if plan.op in REDUCES else "none",
            "-1",
            f"{mean_ps / TIME_PS['us']:.2f}",
            gigabytes_per_s(bandwidth_bps(plan.size_bytes, mean_ps)),
            gigabytes_per_s(bandwidth_bps(plan.size_bytes, mean_ps, factor)),
            "N/A" if wrong is None else str(wrong),
        )
    )


class _Group(NamedTuple):
    """The iterations of one size of one job."""

    job: JobPlan
    plan: CollectivePlan
    waiting: set[int]
    times_ps: list[int]


class NcclTable:
    """Turns the controller's rows into lines, as operations finish."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self._jobs = jobs
        self.wrong: dict[tuple[int, int], int] | None = None
        """By job and operation, elements that came out wrong; None while that is not known."""
        self._groups: dict[tuple[int, int], _Group] = {}
        self._seen: set[tuple[int, int]] = set()
        self._headed = -1
        for job in jobs:
            by_size: dict[tuple[str, str, int], _Group] = {}
            for plan in job.collectives:
                if plan.warmup:
                    continue
                kind = (plan.op, plan.algorithm, plan.size_bytes)
                group = by_size.setdefault(kind, _Group(job, plan, set(), []))
                group.waiting.add(plan.operation)
                self._groups[job.job, plan.operation] = group

    def learn(self, jobs: Mapping[str, Job]) -> None:
        """The run is over: what came out wrong is known."""
        self.wrong = {}
        for plan in self._jobs:
            listed = [one for one in plan.collectives if not one.warmup]
            rows = jobs[plan.name].collectives if listed else []
            for one, done in zip(listed, rows, strict=True):
                if done.wrong is not None:
                    self.wrong[plan.job, one.operation] = done.wrong

    def take(self, operations: Iterable[Sequence[int]]) -> list[str]:
        """The lines that these rows complete; rows that were taken before are passed over."""
        lines: list[str] = []
        for job, operation, start_ps, end_ps, status in operations:
            group = self._groups.get((job, operation))
            if group is None or (job, operation) in self._seen:
                continue
            if group.plan.checked and self.wrong is None:
                continue
            self._seen.add((job, operation))
            group.waiting.discard(operation)
            group.times_ps.append(end_ps - start_ps)
            if group.waiting and status == STATUS_SUCCESS:
                continue
            if self._headed != job:
                lines += header(group.job.name, group.plan)
                self._headed = job
            if status == STATUS_SUCCESS:
                lines.append(row(group.plan, group.times_ps, self._wrong_of(group)))
            else:
                lines.append(f"{group.plan.size_bytes:>12} failed: {status_name(status)}")
        return lines

    def _wrong_of(self, group: _Group) -> int | None:
        """What came out wrong over all iterations of a size; None if nothing was compared."""
        if self.wrong is None:
            return None
        found = [
            self.wrong[key] for key, other in self._groups.items() if other is group and key in self.wrong
        ]
        return sum(found) if found else None
