"""Preparation of a scenario: load it, build its fabric, and check the one against the other.

What `emu validate` needs and every run begins with. It knows nothing of how a scenario is run, so that a
command that runs nothing need not import that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from actors.compiled.finder import is_compiled
from actors.fabric.model import Topology
from emu.base.errors import ScenarioError
from emu.base.shipped import scenario_named
from emu.devices.checks import blaming, check_made, disagreements
from emu.devices.drawing import Blueprint, blueprint_of
from emu.devices.plan import Plan
from emu.scenario.load import Loaded, Source, load_mapping
from emu.scenario.load import load as load_file
from emu.scenario.resolve import Resolved, build_topology
from emu.scenario.schema import Scenario
from emu.scenario.set_options import override_with
from emu.scenario.spans import check_devices

if TYPE_CHECKING:
    from emu.counts.collected import JobPlan
    from emu.devices.pricing.estimate import Estimate

ScenarioSource = str | Path | Mapping[str, object] | Loaded
"""A file's path, a name that `emu list` shows, a mapping with the keys of YAML, or what `load` returned."""


@dataclass(frozen=True)
class Prepared:
    """A scenario on its fabric: all that can be wrong with it has been looked for."""

    scenario: Scenario
    source: Source
    topology: Topology
    resolved: Resolved
    plan: Plan = field(compare=False, repr=False)
    """What the hosts and NICs do; `jobs` has it in the words of the results."""
    notes: tuple[str, ...] = ()
    """What the author of the scenario should know of it, and is no error."""

    @cached_property
    def jobs(self) -> tuple[JobPlan, ...]:
        """The plan of each job, as results list it. A command that runs nothing has no use for it."""
        from emu.devices.job_plans import job_plans  # noqa: PLC0415

        return job_plans(self.plan, self.topology)

    @cached_property
    def cost(self) -> Estimate | None:
        """What a run of this costs one worker of this build, on the machine of docs/scale.md; None at flow
        level, where to count it may take longer than the run."""
        if self.scenario.fidelity == "flow":
            return None
        from emu.devices.pricing.estimate import estimate  # noqa: PLC0415 - only of what is going to run

        return estimate(self.scenario, self.topology, self.plan, compiled=is_compiled())

    def _repr_html_(self) -> str:
        """What a notebook shows: the fabric."""
        from emu.topology.svg import draw, to_svg  # noqa: PLC0415 - only for a drawing

        return to_svg(draw(self.topology))

    @property
    def blueprint(self) -> Blueprint:
        """What a run begins from, whatever carries it out."""
        return Blueprint(self.scenario, self.topology, self.resolved, self.plan)


def load(
    source: str | Path | Mapping[str, object],
    overrides: Mapping[str, object] | None = None,
    *,
    variant: str = "",
    opens: bool = False,
) -> Loaded:
    """Read a scenario, or a variant of it.

    `overrides` maps paths to values: {"jobs[0].ranks": 8, "topology.link": "200G"}. A text is read as
    `--set` reads it, as YAML: "8" is a number, "[1MiB, 8MiB]" a list. With `opens`, a scenario without an
    open job gets one.

    Raises ScenarioError with every problem found.
    """
    changes = [override_with(path, value) for path, value in (overrides or {}).items()]
    if isinstance(source, Mapping):
        return load_mapping(source, overrides=changes, variant=variant, opens=opens)
    if isinstance(source, str):
        source, named = scenario_named(source)
        variant = variant or named
    return load_file(source, changes, variant, opens=opens)


def prepare(source: ScenarioSource, overrides: Mapping[str, object] | None = None) -> Prepared:
    """Build the fabric of a scenario and fit ranks, flows and faults to it.

    Raises ScenarioError with file and line if it does not fit.
    """
    loaded = source if isinstance(source, Loaded) else load(source, overrides)
    scenario, why = loaded.scenario, ""
    try:
        topology = build_topology(scenario)
        check_devices(scenario, topology)  # before the plan, which takes longest
        check_made(scenario, topology)
        with blaming(scenario):
            blueprint = blueprint_of(scenario, topology)
        if scenario.fidelity == "auto":
            from emu.flow.choosing import choose  # noqa: PLC0415 - flow level, only where it may be asked for

            scenario, why = choose(scenario, topology, blueprint.plan, blueprint.resolved.faults)
        elif scenario.fidelity == "flow":
            from emu.flow.refusals import check_flow_level  # noqa: PLC0415

            check_flow_level(scenario, topology, blueprint.plan, blueprint.resolved.faults)
    except ScenarioError as error:
        raise loaded.source.located(error) from error
    notes = (*loaded.notes, *([why] if why else []), *disagreements(blueprint.plan))
    return Prepared(scenario, loaded.source, topology, blueprint.resolved, blueprint.plan, notes)
