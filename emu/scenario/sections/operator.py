"""Section `operator`: who tends a job, by which rules, with which self-checks, spares and checkpoints."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from emu.base.records import Field
from emu.base.units import about_time, parse_size, parse_time
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    Name,
    PositiveFraction,
    PositiveSizeBytes,
    PositiveTimePs,
    Share,
    TimePs,
)

LEAST_SAMPLE_PS: Final = parse_time("100us")
"""More often would be most of a run's events."""


class StragglerSection(Section):
    """When a host that computes for longer than its peers is found out."""

    steps: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Over how many steps its computing is looked at. 0: no such rule."""
    slower_by: PositiveFraction = Fraction(1, 20)
    """Excess over the median of the other hosts of the job. MegaScale saw 0.5 % of hosts about 10 % slower
    (section 6.3); half of that is a choice. Set it above the normal differences between ranks, such as
    those of pipeline stages."""
    then: Literal["evict", "tell"] = "evict"
    """`evict`: it goes at the next checkpoint, as with `rows`. `tell`: results and journal name it."""


class SamplesSection(Section):
    """What hosts look at between heartbeats: MegaScale's millisecond-level monitoring (section 4.2)."""

    every_ps: TimePs = 0
    """From look to look at what NICs have acknowledged. 0: never."""
    stalled_ps: TimePs = 0
    """A host whose NICs had nothing acknowledged for so long, though bytes were under way, is reported. 0: no
    such rule."""


class HeartbeatSection(Section):
    """What hosts tell the operator, and what it takes for trouble."""

    every_ps: PositiveTimePs = parse_time("1s")
    """From one heartbeat of a host to its next. A choice: MegaScale has seconds."""
    missed: Annotated[int, Field(ge=1, le=1000)] = 3
    """A host that was not heard for so many is lost. A choice."""
    silent: Annotated[int, Field(ge=0, le=1000)] = 0
    """A job in a step that handed no byte to any NIC for so many hangs; make it longer than its longest
    computing. 0: no such rule."""
    rows: Annotated[int, Field(ge=0, le=1 << 16)] = 0
    """A GPU with so many remapped rows of memory is evicted at the next checkpoint, before it fails. 0: no
    such rule."""
    straggler: StragglerSection = StragglerSection.defaults()
    """A rule for hosts that compute for longer than others."""
    samples: SamplesSection = SamplesSection.defaults()
    """Health by the millisecond."""


class SelfCheckSection(Section):
    """The suite that finds the hosts that are to go."""

    size_bytes: PositiveSizeBytes = parse_size("1MiB")
    """Size of each flow and each collective. A choice."""
    deadline_ps: PositiveTimePs = parse_time("5s")
    """Time limit of one test. A choice; MegaScale's suite ends within 10 minutes."""
    slower_by: Share = Fraction(1, 2)
    """Excess over the median of the hosts at which a host fails a test that each does by itself (loopback,
    NIC to NIC): a NIC that came up with 4 of its 16 lanes takes some three times as long. Half is a choice.
    0: no such rule."""


class OperatorCheckpointSection(Section):
    """Checkpoints of the job that is tended, in two stages, to the storage of the front-end network."""

    every: Annotated[int, Field(ge=1, le=1 << 20)]
    """Steps between two."""
    size_bytes: PositiveSizeBytes
    """Size of one rank's part."""
    block_bytes: PositiveSizeBytes = parse_size("8MiB")
    """Size of a block of a file, as in a `checkpoint` job."""


class OperatorSection(Section):
    """The operator of one job: heartbeats, alerts, self-checks, eviction, restart from a checkpoint."""

    job: Name
    """The job that it tends: a collective, training, a trace or a program."""
    spare_hosts: Annotated[int, Field(ge=0, le=16)] = 0
    """Hosts that wait for the place of a broken one: the first ones without a job."""
    restarts: Annotated[int, Field(ge=0, le=8)] = 1
    """Restarts of the job at most. All its possible placements are built beforehand."""
    heartbeat: HeartbeatSection = HeartbeatSection.defaults()
    """Heartbeats and rules."""
    self_check: SelfCheckSection = SelfCheckSection.defaults()
    """The suite."""
    launch_ps: TimePs = 0
    """From placement until the processes run: containers, drivers, imports. Not emulated, only time."""
    checkpoint: OperatorCheckpointSection | None = None
    """Checkpoints; without them a job begins from its first step again."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a rule that nothing could follow."""
        beat = self.heartbeat
        slow, samples = beat.straggler, beat.samples
        keys = [("heartbeat", "rows")] if beat.rows else []
        keys += [("heartbeat", "straggler")] if slow.steps and slow.then == "evict" else []
        for key in keys:
            if self.checkpoint is None:
                reason = "a host goes after a checkpoint, and there are none"
                yield Refusal(key, reason, "with operator.checkpoint")
            if not self.spare_hosts:
                reason = "a host that works is evicted for a spare one, and there is none"
                yield Refusal(key, reason, "with operator.spare_hosts")
        every = ("heartbeat", "samples", "every")
        if samples.every_ps and not LEAST_SAMPLE_PS <= samples.every_ps < beat.every_ps:
            reason = "samples stand between heartbeats"
            accepted = f"{about_time(LEAST_SAMPLE_PS)} or more, and less than heartbeat.every"
            yield Refusal(every, reason, accepted)
        if samples.stalled_ps and not 0 < samples.every_ps <= samples.stalled_ps:
            reason = "a stall is seen by samples, and is as long as one at least"
            yield Refusal(
                ("heartbeat", "samples", "stalled"), reason, "with samples.every, no longer than it"
            )
