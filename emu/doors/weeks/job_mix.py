"""A job mix: the jobs that come to a cluster, and how its scheduler goes about them.

Jobs are listed, drawn as they arrive (a Poisson process; sizes by share, run times fixed or exponential),
read from a recorded trace (`emu.doors.weeks.job_trace`), or several of these. The traffic is what a written
moment of the cluster emulates (`emu.doors.weeks.running_jobs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from emu.base.records import Field
from emu.doors.weeks.campaign_file import PositiveSpan, Span
from emu.doors.weeks.rank_order import AlongFabric, AsPlaced, ByTraffic, DrawnOrder, RankOrder
from emu.doors.weeks.server_placement import (
    Contiguous,
    Drawn,
    MinCut,
    Rails,
    Scattered,
    ServerPlacement,
    Zones,
)
from emu.scenario.expect import Expectation
from emu.scenario.faults.draws import PerHour
from emu.scenario.knobs import Policies, PolicySection
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.section import OneOf, Refusal, Section
from emu.scenario.sections.topology import TOPOLOGIES, TopologySection
from emu.scenario.workloads.collective import CollectiveWorkload
from emu.scenario.workloads.training import TrainingWorkload
from emu.scenario.yaml.values import Name, Share

MOST_JOBS: Final = 1_000_000
JobGpus = Annotated[int, Field(ge=1, le=1 << 20)]


class PlacementSection(PolicySection):
    """Choice of a job's servers."""

    kind: str
    """Which policy."""


PLACEMENTS: Final = OneOfOrPlugin(
    Policies(
        {
            "contiguous": (PlacementSection, Contiguous, "Those with the lowest numbers."),
            "scattered": (PlacementSection, Scattered, "One from each rack in turn."),
            "random": (PlacementSection, Drawn, "Drawn among those that are free."),
            "min_cut": (PlacementSection, MinCut, "Out of the fewest and smallest parts that have room."),
            "rails": (
                PlacementSection,
                Rails,
                "Out of the fewest groups of servers that share rails' leaves.",
            ),
            "zones": (PlacementSection, Zones, "Within a pod, for which a job waits; else as `min_cut`."),
        }
    ),
    "min_cut",
    PlacementSection,
    ServerPlacement,
    ("servers",),
)


class RankOrderSection(PolicySection):
    """In which order a job's ranks go through its servers."""

    kind: str
    """Which policy."""


RANK_ORDERS: Final = OneOfOrPlugin(
    Policies(
        {
            "placed": (RankOrderSection, AsPlaced, "As the placement lists them."),
            "topology": (
                RankOrderSection,
                AlongFabric,
                "Along the fabric: a ring leaves each part of it once.",
            ),
            "random": (RankOrderSection, DrawnOrder, "Drawn, as by a launcher that knows no topology."),
            "traffic": (RankOrderSection, ByTraffic, "Ranks that send each other most near one another."),
        }
    ),
    "placed",
    RankOrderSection,
    RankOrder,
    ("order",),
)
TRAFFIC: Final = OneOf("kind", {"collective": CollectiveWorkload, "training": TrainingWorkload}, "collective")
Workload = Annotated[CollectiveWorkload | TrainingWorkload, TRAFFIC]


class ListedJobSection(Section):
    """A job at a known time."""

    name: Name
    """Name of the job, in results."""
    at_ms: Span = 0
    """When it arrives."""
    gpus: JobGpus
    """GPUs of the job: fewer than a server has, or whole servers."""
    lasts_ms: PositiveSpan
    """Run time, in any place."""
    traffic: Workload | None = None
    """Traffic. Default: that of the mix."""


class SizeSection(Section):
    """One size of drawn jobs."""

    gpus: JobGpus
    """GPUs of a job: fewer than a server has, or whole servers."""
    share: Share
    """Share of the jobs."""
    lasts_ms: PositiveSpan
    """Mean run time."""
    traffic: Workload | None = None
    """Traffic. Default: that of the mix."""


class ArrivalsSection(Section):
    """Jobs that arrive by a Poisson process."""

    per_hour: PerHour
    """Jobs in an hour, on average."""
    sizes: Annotated[tuple[SizeSection, ...], Field(min_length=1, max_length=64)]
    """Sizes of the jobs."""
    run_times: Literal["exponential", "fixed"] = "exponential"
    """Distribution of the run times of a size."""

    def check(self) -> Iterator[Refusal]:
        """Shares are of all jobs."""
        total = sum((one.share for one in self.sizes), Fraction(0))
        if total != 1:
            yield Refusal(("sizes",), f"the shares add up to {float(total):g}", "shares that add up to 1")


class TraceSection(Section):
    """Jobs of a recorded trace, at their times of submission and with their run times."""

    file: str
    """A file, as seen from this one: of Acme, Helios, Philly or Alibaba, or a CSV with `submit_time`,
    `gpu_num` and `duration`."""
    from_ms: Span = 0
    """Time in the trace at which the mix begins; the window is as long as `lasts`."""
    share: Share = Fraction(1)
    """Share of the jobs that come, drawn: for a cluster smaller than the recorded one."""
    gpus_times: PerHour = Fraction(1)
    """By which the GPUs of each job are multiplied; the result is rounded up."""

    def check(self) -> Iterator[Refusal]:
        """Without a share no job comes."""
        if not self.share:
            yield Refusal(("share",), "no job comes", "a share above 0")


class JobMix(Section):
    """A cluster, its jobs and its scheduler."""

    name: Name
    """Name of the mix, in results."""
    seed: Annotated[int, Field(ge=0, lt=1 << 62)] = 1
    """Seed of the draws."""
    lasts_ms: PositiveSpan
    """Length of the simulation."""
    warm_up_ms: Span = 0
    """Time at the beginning that does not count, because an empty cluster has no queue."""
    topology: Annotated[TopologySection, TOPOLOGIES]
    """The fabric, as in a scenario."""
    placement: Annotated[PlacementSection, PLACEMENTS] = PLACEMENTS.section()
    """Choice of a job's servers."""
    rank_order: Annotated[RankOrderSection, RANK_ORDERS] = RANK_ORDERS.section()
    """In which order a job's ranks go through them."""
    queue: Literal["first_come", "backfill", "any_that_fits"] = "backfill"
    """Order of waiting jobs: as they came; smaller ones ahead if that does not delay the first of the queue
    (EASY backfilling, by the true run times); any that fits."""
    jobs: Annotated[tuple[ListedJobSection, ...], Field(max_length=65536)] = ()
    """Those with a time."""
    arrivals: ArrivalsSection | None = None
    """Those that are drawn."""
    trace: TraceSection | None = None
    """Those of a recorded trace."""
    traffic: Workload = CollectiveWorkload.model_validate({"op": "all_gather", "sizes": ("16MiB",)})
    """Traffic of a job, a workload of a scenario: for a written moment, and for rank order by `traffic`."""
    expect: Annotated[tuple[Expectation, ...], Field(max_length=256)] = ()
    """Conditions that the results must meet."""

    def check(self) -> Iterator[Refusal]:
        """A mix has jobs, and time that counts."""
        if not self.jobs and self.arrivals is None and self.trace is None:
            yield Refusal(("jobs",), "no job ever comes", "jobs, arrivals, a trace, or several")
        if self.warm_up_ms >= self.lasts_ms:
            yield Refusal(("warm_up",), "nothing is left to be counted", "less than lasts")
        names = [job.name for job in self.jobs]
        for at, name in enumerate(names):
            if name in names[:at]:
                yield Refusal(("jobs", at, "name"), f"{name!r} is used twice", "a name of its own")
        if self.arrivals is not None and self.arrivals.per_hour * self.lasts_ms > MOST_JOBS * 3_600_000:
            yield Refusal(("arrivals", "per_hour"), "makes too many jobs", f"at most {MOST_JOBS:,} in all")
