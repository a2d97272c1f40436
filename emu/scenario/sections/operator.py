"""Section `operator`: who tends a job, by which rules, with which self-checks, spares and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    Name,
    PositiveSizeBytes,
    PositiveTimePs,
    TimePs,
)
from emu.units import parse_size, parse_time


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


class SelfCheckSection(Section):
    """The suite that finds the hosts that are to go."""

    size_bytes: PositiveSizeBytes = parse_size("1MiB")
    """Of each flow and each collective. A choice."""
    deadline_ps: PositiveTimePs = parse_time("5s")
    """How long one test may take. A choice; MegaScale's suite ends within 10 minutes."""


class OperatorCheckpointSection(Section):
    """Checkpoints of the job that is tended, in two stages, to the storage of the front-end network."""

    every: Annotated[int, Field(ge=1, le=1 << 20)]
    """Steps between two."""
    size_bytes: PositiveSizeBytes
    """Of one rank."""
    block_bytes: PositiveSizeBytes = parse_size("8MiB")
    """Of a file, as in a `checkpoint` job."""


class OperatorSection(Section):
    """The operator of one job: heartbeats, alerts, self-checks, eviction, restart from a checkpoint."""

    job: Name
    """The job that it tends: a collective, training, a trace or a program."""
    spare_hosts: Annotated[int, Field(ge=0, le=16)] = 0
    """Hosts that wait for the place of a broken one: the first ones without a job."""
    restarts: Annotated[int, Field(ge=0, le=8)] = 1
    """How often the job may be restarted. All ways in which it can be placed by then are built beforehand."""
    heartbeat: HeartbeatSection = HeartbeatSection()
    """Heartbeats and rules."""
    self_check: SelfCheckSection = SelfCheckSection()
    """The suite."""
    launch_ps: TimePs = 0
    """From placement until the processes run: containers, drivers, imports. Not emulated, only time."""
    checkpoint: OperatorCheckpointSection | None = None
    """Checkpoints; without them a job begins from its first step again."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a rule that nothing could follow."""
        if self.heartbeat.rows and self.checkpoint is None:
            reason = "a host goes after a checkpoint, and there are none"
            yield Refusal(("heartbeat", "rows"), reason, "with operator.checkpoint")
        if self.heartbeat.rows and not self.spare_hosts:
            reason = "a host that works is evicted for a spare one, and there is none"
            yield Refusal(("heartbeat", "rows"), reason, "with operator.spare_hosts")
