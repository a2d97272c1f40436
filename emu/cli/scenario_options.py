"""Arguments that commands share that read a scenario.

A time is read as in a scenario, and what is wrong with it is told with its option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from emu.errors import UsageError
from emu.scenario.load import Loaded, load
from emu.scenario.set_options import parse_override
from emu.shipped import is_name, scenario_files, scenario_path
from emu.spelling import did_you_mean
from emu.units import parse_time

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


def load_scenario(given: str, assignments: Sequence[str], seed: str | None) -> Loaded:
    """The scenario with its overrides. Raises ScenarioError."""
    overrides = [parse_override(text) for text in assignments]
    if seed is not None:
        overrides.append(parse_override(f"seed={seed}", "--seed"))
    path = scenario_path(given)
    if not Path(path).exists() and (is_name(path) or Path(path).stem in scenario_files()):
        raise no_such_scenario(given)
    return load(path, overrides)


def no_such_scenario(given: str) -> UsageError:
    """What to say where `given` is neither a file nor the name of a scenario."""
    files = scenario_files()
    if (moved := files.get(Path(given).stem)) is not None:
        name = moved.stem
        return UsageError(f"{given}: there is no such file; the scenario {name} is {moved}: `emu run {name}`")
    hint = did_you_mean(given, sorted(files)) or "; `emu list` names them"
    return UsageError(f"{given}: there is no such file, nor a scenario of that name{hint}")


forcing = click.option("--force", is_flag=True, help="Replace the results of an earlier run in --out.")
"""The option of every command that keeps a run in a directory."""


def positive_time_ps(option: str, text: str) -> int:
    """A time above zero. Raises UsageError."""
    try:
        time_ps = parse_time(text)
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    if time_ps <= 0:
        raise UsageError(f"{option} {text}: must be more than 0")
    return time_ps
