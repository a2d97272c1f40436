"""A campaign file: how long a run lasts, how long its steps take, what interrupts it, and what follows.

Where `measured` names a key, its value is measured by a run of a scenario (`emu.campaign.measured`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import Field

from emu.campaign.campaign_file import UNITS_MS, AutoSpan, PositiveSpan, Span, checked
from emu.campaign.failure_tables import TABLES, Shows
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
    """Of one step, with nothing in the way."""


class CheckpointSection(Section):
    """Checkpoints, in two stages: the job stands still for the first, and goes on during the second."""

    every_ms: AutoSpan = None
    """Time of computing between two; `auto`: as Daly (2006) has it for the failures and costs given."""
    stalls_ms: Span = 5 * UNITS_MS["s"]
    """How long the job stands still: from GPU memory to host memory."""
    written_after_ms: Span = 33 * UNITS_MS["s"]
    """From there until it is whole in storage."""
    loads_ms: Span = 33 * UNITS_MS["s"]
    """How long a job takes to read one."""
    kept: Annotated[int, Field(ge=1, le=1 << 16)] = 100
    """How many are kept, for what is noticed late."""


class DetectionSection(Section):
    """How long it takes to notice, by how it shows."""

    stop_ms: Span = 1 * UNITS_MS["min"]
    """Of a job that broke off: heartbeats."""
    hang_ms: Span = 10 * UNITS_MS["min"]
    """Of a job that waits for ever: the watchdog of the collective library."""
    slow_ms: Span = 30 * UNITS_MS["min"]
    """Of a job that is slower."""
    silent_ms: Span = 1 * UNITS_MS["h"]
    """Of a job that computes what is wrong."""


class RecoverySection(Section):
    """What follows when the job stands still."""

    self_check_ms: Span = 6 * UNITS_MS["min"]
    """The suite that finds the broken hosts."""
    replace_ms: Span = 1 * UNITS_MS["min"]
    """Until spare hosts are in their place; not where no host was lost."""
    init_ms: Span = 30 * UNITS_MS["s"]
    """Until the job's processes have met and its communicators are made."""
    repaired_after_ms: Span = 1 * UNITS_MS["d"]
    """Until a broken host is a spare one."""


class CauseSection(Section):
    """One cause of interruptions."""

    name: Name
    """What the results call it."""
    shows: Shows
    """How it shows: stop, hang, slow, silent, or planned."""
    per_hour: PerHour
    """How often it happens in an hour."""
    of: Literal["gpu", "host", "job"] = "gpu"
    """For each of these."""
    hosts: Annotated[int, Field(ge=0, le=1 << 17)] | None = None
    """How many are taken out for repair: by default 1, and none of what is planned. Several fail together."""
    noticed_after_ms: Span | None = None
    """In place of what `detection` has."""
    slower_by: Share = Fraction(1, 10)
    """Of one that shows as `slow`: the share of its speed that the job loses."""
    takes_ms: Span = 10 * UNITS_MS["min"]
    """Of one that is `planned`: how long it takes."""

    def check(self) -> Iterator[Refusal]:
        """What a way to show does not have."""
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
    """What interrupts the job: a published table, causes of one's own, or both."""

    table: Literal["llama3", "megascale"] | None = None
    """Causes of a published run, by their rates per GPU."""
    times: PerHour = Fraction(1)
    """How many times as often as `table` has it."""
    causes: Annotated[tuple[CauseSection, ...], Field(max_length=256)] = ()
    """Further ones."""

    def all(self) -> tuple[CauseSection, ...]:
        """Those of the table, and the others."""
        if self.table is None:
            return self.causes
        table = TABLES[self.table]
        rows = tuple(
            CauseSection(
                name=row.name,
                shows=row.shows,
                per_hour=table.per_hour(row) * self.times,
                hosts=row.hosts,
            )
            for row in table.rows
        )
        return (*rows, *self.causes)


class MeasuredSection(Section):
    """A key whose value a run of a scenario gives."""

    key: SummaryPath
    """Where in the campaign, like step.takes."""
    scenario: str
    """Its name, or its file as seen from this one."""
    variant: str = ""
    """Of the scenario."""
    set: tuple[str, ...] = ()
    """Changes of it, as of `emu run --set`."""
    value: SummaryPath
    """Where in its summary, like jobs.train.training.step."""
    less: SummaryPath | None = None
    """What is subtracted: a time from the beginning of a fault is value: ..., less: faults[0].at."""
    times: PerHour = Fraction(1)
    """By which the value is multiplied: how much smaller the scenario is."""


class Campaign(Section):
    """Weeks of one training job."""

    name: Name
    """What the results call it."""
    seed: Annotated[int, Field(ge=0, lt=1 << 62)] = 1
    """Of the draws of failures."""
    lasts_ms: PositiveSpan
    """How long."""
    gpus: Gpus
    """Of the job."""
    gpus_per_host: Annotated[int, Field(ge=1, le=64)] = 8
    """In one server: what is replaced at a time."""
    spare_hosts: Annotated[int, Field(ge=0, le=1 << 17)] | None = None
    """That wait for the place of a broken one. Default: one for each 64 hosts of the job, at least one."""
    step: StepSection
    """Steps."""
    checkpoint: CheckpointSection = CheckpointSection()
    """Checkpoints."""
    detection: DetectionSection = DetectionSection()
    """Until somebody notices."""
    recovery: RecoverySection = RecoverySection()
    """What follows."""
    failures: FailuresSection = FailuresSection()
    """What happens."""
    measured: Annotated[tuple[MeasuredSection, ...], Field(max_length=64)] = ()
    """Keys above whose values come from runs of scenarios."""
    expect: Annotated[tuple[Expectation, ...], Field(max_length=256)] = ()
    """What must come out."""

    @property
    def hosts(self) -> int:
        """Servers of the job."""
        return -(-self.gpus // self.gpus_per_host)

    def per_hour(self, cause: CauseSection) -> Fraction:
        """How often a cause strikes the whole job."""
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
        if sum(self.per_hour(one) for one in self.failures.all()) * hours > MOST_STRIKES:
            reason, accepted = "strike too often", f"at most {MOST_STRIKES:,} times in the campaign"
            yield Refusal(("failures",), reason, accepted)
        names = [cause.name for cause in self.failures.all()]
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
