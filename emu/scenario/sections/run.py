"""How is a run bounded and observed? Sections `run` and `control` (the management network)."""

from __future__ import annotations

from emu.scenario.sections.section import Section
from emu.scenario.yaml.values import AutoPositiveTimePs, DelayPs, PositiveTimePs
from emu.units import parse_time


class ControlSection(Section):
    """The control plane: devices reached over the management network."""

    management_delay_ps: DelayPs = parse_time("100us")
    """One way between a host and the controller."""


class RunSection(Section):
    """When a run samples, gives up, and ends. All times are virtual."""

    stall_after_ps: AutoPositiveTimePs = None
    """A run with an unfinished job, and no payload delivered nor compute done for so long, has stalled.
    `auto`: long enough for every retry of a queue pair, and at least 10 ms."""
    sample_every_ps: PositiveTimePs = parse_time("100us")
    """Distance of the sync points at which counters are sampled."""
    max_time_ps: PositiveTimePs = parse_time("60s")
    """A run that is still going then ends as if it had stalled; with `repeat`, this is its end."""
    repeat: bool = False
    """Whether each job begins again when it is done, until `max_time`. A job that failed stays ended."""
