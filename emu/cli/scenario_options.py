"""Which arguments do commands share that read a scenario?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from emu.errors import UsageError
from emu.scenario.load import Loaded, load
from emu.scenario.overrides import parse_override
from emu.scenario.spelling import did_you_mean

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
    named = SCENARIO_DIRECTORY / f"{given}{SCENARIO_SUFFIX}"
    return str(named) if _is_name(given) and not Path(given).exists() and named.is_file() else given


def _is_name(given: str) -> bool:
    """Whether this could be the name of a scenario rather than of a file."""
    path = Path(given)
    return given != "-" and not path.suffix and len(path.parts) == 1


def load_scenario(given: str, assignments: Sequence[str], seed: str | None) -> Loaded:
    """The scenario with its overrides. Raises ScenarioError."""
    overrides = [parse_override(text) for text in assignments]
    if seed is not None:
        overrides.append(parse_override(f"seed={seed}", "--seed"))
    path = scenario_path(given)
    if _is_name(path) and not Path(path).exists():
        names = sorted(file.stem for file in SCENARIO_DIRECTORY.glob(f"*{SCENARIO_SUFFIX}"))
        reason = f"{given}: there is no such file, nor a scenario of that name in ./{SCENARIO_DIRECTORY}"
        raise UsageError(f"{reason}{did_you_mean(given, names) or '; `emu list` names them'}")
    return load(path, overrides)
