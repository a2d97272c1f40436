"""Which arguments do commands share that read a scenario?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from emu.scenario.load import Loaded, load
from emu.scenario.overrides import parse_override

SCENARIO_DIRECTORY: Final = Path("scenarios")
SCENARIO_SUFFIX: Final = ".yaml"

Command = Callable[..., Any]


def overriding(function: Command) -> Command:
    """Add `--set` and `--seed`, as `assignments` and `seed`."""
    function = click.option("--seed", type=str, metavar="N", help="Another seed: short for --set seed=N.")(
        function
    )
    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one value, like ncclx.channels=2 or jobs[0].ranks=8. Can be repeated.",
    )(function)


def scenario_path(given: str) -> str:
    """The file that is meant: as given, or the name of one in ./scenarios."""
    path = Path(given)
    named = SCENARIO_DIRECTORY / f"{given}{SCENARIO_SUFFIX}"
    is_name = not path.suffix and len(path.parts) == 1 and given != "-"
    return str(named) if is_name and not path.exists() and named.is_file() else given


def load_scenario(given: str, assignments: Sequence[str], seed: str | None) -> Loaded:
    """The scenario with its overrides. Raises ScenarioError."""
    overrides = [parse_override(text) for text in assignments]
    if seed is not None:
        overrides.append(parse_override(f"seed={seed}", "--seed"))
    return load(scenario_path(given), overrides)
