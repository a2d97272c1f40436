"""A campaign file: how long a run lasts, how long its steps take, what interrupts it, and what follows.

Where `measured` names a key, its value is measured by a run of a scenario (`emu.doors.weeks.measured`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from emu.base.records import Field
from emu.doors.weeks.campaign_file import UNITS_MS, AutoSpan, PositiveSpan, Span, checked
from emu.doors.weeks.failure_tables import TABLES, Shows
from emu.scenario.expect import Expectation, SummaryPath
from emu.scenario.faults.draws import PerHour
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.document import Node
from emu.scenario.yaml.values import AUTO, Name, Share

MOST_STRIKES: Final = 1_000_000
"""In a campaign, in the mean; and as many checkpoints: each is a row, or a turn of a loop."""
Gpus = Annotated[int, Field(ge=1, le=1 << 20)]


class StepSection(Section):
    """The steps of the job."""

    takes_ms: PositiveSpan
    """Time of one step, with nothing in the way."""


class CheckpointSection(Section):
    """Checkpoints, in two stages: the job stands still for the first, and goes on during the second."""

    every_ms: AutoSpan = None
    """Time of computing between two; `auto`: as Daly (2006) has it for the failures and costs given."""
    stalls_ms: Span = 5 * UNITS_MS["s"]
    """Time that the job stops: from GPU memory to host memory."""
    written_after_ms: Span = 33 * UNITS_MS["s"]
    """From there until it is whole in storage."""
    loads_ms: Span = 33 * UNITS_MS["s"]
    """Time to read a checkpoint."""
    kept: Annotated[int, Field(ge=1, le=1 << 16)] = 100
    """Checkpoints that are kept, for failures that are noticed late."""


class DetectionSection(Section):
    """How long it takes to notice, by how it shows."""

    stop_ms: Span = 1 * UNITS_MS["min"]
    """Time to notice a job that broke off: heartbeats."""
    hang_ms: Span = 10 * UNITS_MS["min"]
    """Time to notice a job that waits for ever: the watchdog of the collective library."""
    slow_ms: Span = 30 * UNITS_MS["min"]
    """Time to notice a job that is slower."""
    silent_ms: Span = 1 * UNITS_MS["h"]
    """Time to notice a job that computes what is wrong."""


class RecoverySection(Section):
    """What follows when the job stands still."""

    self_check_ms: Span = 6 * UNITS_MS["min"]
    """The suite that finds the broken hosts."""
    replace_ms: Span = 1 * UNITS_MS["min"]
    """Time until spare hosts are in place; 0 if no host was lost."""
    init_ms: Span = 30 * UNITS_MS["s"]
    """Time until the job's processes have met and its communicators are made."""
    repaired_after_ms: Span = 1 * UNITS_MS["d"]
    """Time until a broken host is repaired and a spare."""


class CauseSection(Section):
    """One cause of interruptions."""

    name: Name
    """Name of the cause, in results."""
    shows: Shows
    """Symptom: stop, hang, slow, silent, or planned."""
    per_hour: PerHour | None = None
    """Failures in an hour for each `of`. Without it: a cause of `failures.log`."""
    of: Literal["gpu", "host", "job"] | None = None
    """Unit of `per_hour`; required with it."""
    hosts: Annotated[int, Field(ge=0, le=1 << 17)] | None = None
    """Hosts that leave for repair together: by default 1, none if `planned`."""
    noticed_after_ms: Span | None = None
    """In place of what `detection` has."""
    slower_by: Share = Fraction(1, 10)
    """Share of its speed that the job loses, for a cause that shows as `slow`."""
    takes_ms: Span = 10 * UNITS_MS["min"]
    """Length of a `planned` interruption."""

    def check(self) -> Iterator[Refusal]:
        """What a way to show does not have, and rates that are of nothing."""
        if self.per_hour is not None and self.of is None:
            yield Refusal(("of",), "is required with per_hour", "gpu, host or job")
        if self.per_hour is None and self.of is not None:
            yield Refusal(("per_hour",), "is required with of", 'a rate like "1/500"')
        if self.shows != "slow" and "slower_by" in self.model_fields_set:
            yield Refusal(("slower_by",), f"a cause that shows as {self.shows} slows nothing", "shows: slow")
        if self.shows != "planned" and "takes_ms" in self.model_fields_set:
            yield Refusal(("takes",), f"a cause that shows as {self.shows} has no length", "shows: planned")
        if self.shows == "planned" and self.noticed_after_ms is not None:
            yield Refusal(("noticed_after",), "what is planned needs no notice", "no noticed_after")
        if self.slower_by >= 1:
            yield Refusal(
                ("slower_by",), "a job that slow stands still", "a fraction below 1, or shows: hang"
            )


class FailuresSection(Section):
    """What interrupts the job: a published table, recorded failures, causes of your own, or several of
    these."""

    table: Literal["llama3", "megascale"] | None = None
    """Causes of a published run, by their rates per GPU."""
    times: PerHour = Fraction(1)
    """Factor of the rates of `table` and `log`."""
    log: str | None = None
    """A file of recorded failures beside this one: a CSV of time, host and cause, or InfiniteHBD's JSON."""
    log_use: Literal["resampled", "replayed"] = "resampled"
    """`resampled`: each host of the job gets the record of a drawn host of the log. `replayed`: every failure
    at its time and host."""
    log_hosts: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Hosts that the log is of, with those that never failed. Default: the job's, or those named if more."""
    log_lasts_ms: PositiveSpan | None = None
    """Length of the log. Default: until its last failure."""
    causes: Annotated[tuple[CauseSection, ...], Field(max_length=256)] = ()
    """Further ones; and how causes of the log show, where that is not `stop` with one host."""

    def check(self) -> Iterator[Refusal]:
        """Keys about what is not there."""
        if self.table is None and self.log is None and "times" in self.model_fields_set:
            accepted = "failures.table, failures.log, or another per_hour for each cause"
            yield Refusal(
                ("times",), "multiplies the rates of a table or a log, and there is neither", accepted
            )
        if self.log_use == "replayed" and "times" in self.model_fields_set and self.table is None:
            yield Refusal(("times",), "a replayed log has every failure once", "log_use: resampled")
        if self.log is None:
            for key in ("log_use", "log_hosts", "log_lasts"):
                if key in self.model_fields_set or f"{key}_ms" in self.model_fields_set:
                    yield Refusal((key,), "is about a log, and there is none", "failures.log")
            for at, cause in enumerate(self.causes):
                if cause.per_hour is None and cause.of is None:
                    yield Refusal(("causes", at, "per_hour"), "is required", 'a rate like "1/500"')

    def drawn(self) -> tuple[CauseSection, ...]:
        """Those with a rate: of the table, and the others."""
        own = tuple(one for one in self.causes if one.per_hour is not None)
        if self.table is None:
            return own
        table = TABLES[self.table]
        rows = tuple(
            CauseSection(
                name=row.name,
                shows=row.shows,
                per_hour=table.per_hour(row) * self.times,
                of="gpu",
                hosts=row.hosts,
            )
            for row in table.rows
        )
        return (*rows, *own)


class MeasuredSection(Section):
    """A key whose value a run of a scenario gives."""

    key: SummaryPath
    """Key of the campaign, like step.takes."""
    scenario: str
    """Its name, or its file as seen from this one."""
    variant: str = ""
    """Variant of the scenario."""
    set: tuple[str, ...] = ()
    """Changes of it, as `--set` of `emu run` takes them."""
    value: SummaryPath
    """Path in its summary, like jobs.train.training.step."""
    less: SummaryPath | None = None
    """Path whose value is subtracted: a time from the beginning of a fault is value: ..., less:
    faults[0].at."""
    times: PerHour = Fraction(1)
    """By which the value is multiplied: how much smaller the scenario is."""


class Campaign(Section):
    """Weeks of one training job."""

    name: Name
    """Name of the campaign, in results."""
    seed: Annotated[int, Field(ge=0, lt=1 << 62)] = 1
    """Seed of the draws of failures."""
    lasts_ms: PositiveSpan
    """Length of the campaign."""
    gpus: Gpus
    """GPUs of the job."""
    gpus_per_host: Annotated[int, Field(ge=1, le=64)] = 8
    """In one server: what is replaced at a time."""
    spare_hosts: Annotated[int, Field(ge=0, le=1 << 17)] | None = None
    """Hosts in reserve for broken ones. Default: one for each 64 hosts of the job, at least one."""
    step: StepSection
    """Steps."""
    checkpoint: CheckpointSection = CheckpointSection()
    """Checkpoints."""
    detection: DetectionSection = DetectionSection()
    """Times until a failure is noticed."""
    recovery: RecoverySection = RecoverySection()
    """Times of a recovery."""
    failures: FailuresSection = FailuresSection()
    """Failures."""
    measured: Annotated[tuple[MeasuredSection, ...], Field(max_length=64)] = ()
    """Keys above whose values come from runs of scenarios."""
    expect: Annotated[tuple[Expectation, ...], Field(max_length=256)] = ()
    """Conditions that the results must meet."""

    @property
    def hosts(self) -> int:
        """Servers of the job."""
        return -(-self.gpus // self.gpus_per_host)

    def per_hour(self, cause: CauseSection) -> Fraction:
        """How often a cause with a rate strikes the whole job."""
        assert cause.per_hour is not None, cause.name
        assert cause.of is not None, cause.name
        return cause.per_hour * {"gpu": self.gpus, "host": self.hosts, "job": 1}[cause.of]

    @property
    def spares(self) -> int:
        """Spare hosts, also where the file does not say."""
        return max(self.hosts // 64, 1) if self.spare_hosts is None else self.spare_hosts

    def check(self) -> Iterator[Refusal]:
        """What does not go together."""
        if self.spare_hosts is not None and self.spare_hosts > self.hosts:
            reason = f"{self.spare_hosts} spare hosts for a job of {self.hosts}"
            yield Refusal(("spare_hosts",), reason, f"0 to {self.hosts}")
        for at, cause in enumerate(self.failures.causes):
            if cause.hosts is not None and cause.hosts > self.hosts:
                reason = f"{cause.hosts} hosts fail together, and the job has {self.hosts}"
                yield Refusal(("failures", "causes", at, "hosts"), reason, f"0 to {self.hosts}")
        every_ms, written_ms = self.checkpoint.every_ms, self.checkpoint.written_after_ms
        if every_ms is not None and every_ms < written_ms:
            reason = "the next checkpoint would begin before the last one is written"
            yield Refusal(("checkpoint", "every"), reason, f"at least checkpoint.written_after, or {AUTO}")
        if every_ms is not None and every_ms < self.step.takes_ms:
            yield Refusal(("checkpoint", "every"), "is shorter than a step", "at least step.takes")
        if every_ms is not None and self.lasts_ms > every_ms * MOST_STRIKES:
            reason, accepted = "makes too many checkpoints", f"at most {MOST_STRIKES:,} in the campaign"
            yield Refusal(("checkpoint", "every"), reason, accepted)
        hours = Fraction(self.lasts_ms, UNITS_MS["h"])
        if sum(self.per_hour(one) for one in self.failures.drawn()) * hours > MOST_STRIKES:
            reason, accepted = "strike too often", f"at most {MOST_STRIKES:,} times in the campaign"
            yield Refusal(("failures",), reason, accepted)
        names = [cause.name for cause in self.failures.drawn()]
        names += [cause.name for cause in self.failures.causes if cause.per_hour is None]
        for at, cause in enumerate(self.failures.causes):
            if names.count(cause.name) > 1:
                where = ("failures", "causes", at, "name")
                yield Refusal(where, f"{cause.name!r} is used twice", "a name of its own")


def measurements(tree: Node, file: str) -> tuple[MeasuredSection, ...]:
    """What is to be measured before the campaign can be checked. Raises ScenarioError."""

    class _Measured(Section):
        measured: tuple[MeasuredSection, ...] = ()

    assert isinstance(tree.value, dict), tree.value
    listed = {key: node for key, node in tree.value.items() if key == "measured" and node.value is not None}
    return checked(_Measured, Node(dict(listed), tree.place), file).measured
