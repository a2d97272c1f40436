"""Arguments that commands share that read a scenario.

A time is read as in a scenario, and what is wrong with it is reported with its option.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from emu.base.errors import UsageError
from emu.base.outside import file_text
from emu.base.shipped import CAMPAIGNS, JOB_MIXES, files_of, is_name, scenario_named, scenario_names
from emu.base.spelling import did_you_mean, listed
from emu.base.units import parse_time
from emu.scenario.load import Loaded, load
from emu.scenario.plugins import VARIABLE, asking
from emu.scenario.set_options import parse_override

Command = Callable[..., Any]
choosing = click.option(
    "--variant", default="", metavar="NAME", help="A variant of the scenario: one of its `variants`."
)
"""Adds `--variant`, as `variant`."""


def overriding(function: Command) -> Command:
    """Add `--set`, `--seed` and `--variant`, as `assignments`, `seed` and `variant`."""
    function = choosing(function)
    function = click.option("--seed", type=str, metavar="N", help="Another seed: short for --set seed=N.")(
        function
    )
    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _context, _option, texts: expanded(texts),
        help="Change one value, like ncclx.channels=2 or jobs[0].ranks=8, or all in @FILE. Can be repeated.",
    )(function)


def expanded(texts: Sequence[str]) -> tuple[str, ...]:
    """The assignments, those of `@FILE` in its place: a line each; lines that begin with # are comments.
    Raises UsageError."""
    found: list[str] = []
    for text in texts:
        if not text.startswith("@"):
            found.append(text)
            continue
        try:
            lines = file_text(Path(text[1:]), "a file with key=value lines", strict=True).splitlines()
        except UsageError as error:
            raise UsageError(f"--set @{error}") from error
        found += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return tuple(found)


def load_scenario(
    given: str,
    assignments: Sequence[str],
    seed: str | None,
    variant: str = "",
    *,
    jobless: bool = False,
    opens: bool = False,
) -> Loaded:
    """The scenario, or a variant of it, with its overrides; `jobless` and `opens` as of `load`. Raises
    ScenarioError."""
    overrides = [parse_override(text) for text in assignments]
    if seed is not None:
        overrides.append(parse_override(f"seed={seed}", "--seed"))
    path, named = scenario_named(given)
    if not Path(path).exists() and (is_name(path) or Path(path).stem in scenario_names()):
        raise no_such_scenario(given)
    return load(path, overrides, variant or named, jobless=jobless, opens=opens)


def file_named(given: str, folder: str, what: str) -> Path:
    """The file that is meant: a path, or the name of one in a folder of `scenarios`. Raises UsageError."""
    if not is_name(given) or Path(given).exists():
        return Path(given)
    known = files_of(folder)
    if given not in known:
        reason = f"there is no {what} {given!r}{did_you_mean(given, known)}"
        raise UsageError(f"{reason}; accepted: a file, or {listed(known)}")
    return known[given]


def no_such_scenario(given: str) -> UsageError:
    """What to say where `given` is neither a file nor the name of a scenario."""
    known = scenario_names()
    name = Path(given).stem
    if name in known:
        reason = f"there is no such file; the scenario {name} is in {known[name][0]}: `emu run {name}`"
        return UsageError(f"{given}: {reason}")
    for folder, verb in ((CAMPAIGNS, "campaign"), (JOB_MIXES, "schedule")):
        if given in files_of(folder):
            return UsageError(f"{given}: is no scenario; accepted: `emu {verb} {given}`, or a scenario")
    hint = did_you_mean(given, known) or "; `emu list` names them"
    return UsageError(f"{given}: there is no such file, nor a scenario of that name{hint}")


_CLASS: Final = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def reading(function: Command) -> Command:
    """Add `--plugins` to a command that reads a scenario and does not run it.

    Without it no module that the file names is imported, but for those of emu; a class that the user's own
    `--set` names is.
    """

    @functools.wraps(function)
    def command(*arguments: Any, plugins: bool, **options: Any) -> Any:
        if plugins:
            return function(*arguments, **options)
        given = [name for text in options.get("assignments", ()) for name in _CLASS.findall(text)]
        with asking(given):
            return function(*arguments, **options)

    return click.option(
        "--plugins", is_flag=True, envvar=VARIABLE, help="Import the plug-ins that a file names."
    )(command)


unjudged = click.option("--no-expect", is_flag=True, help="Judge no expectation.")
"""Adds `--no-expect`, as `no_expect`."""
NO_EXPECT: Final = "expect=[]"
"""What `--no-expect` sets."""

forcing = click.option("--force", is_flag=True, help="Replace the results of an earlier run in --out.")
"""The option of every command that keeps a run in a directory."""


def refuse_results(option: str, out: Path | None, *, force: bool) -> None:
    """Refuse a directory for results that is a file, or has results. Raises UsageError."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise UsageError(f"{option} {out} is a file; accepted: a directory")
    if not force and out.is_dir() and any(out.iterdir()):
        raise UsageError(f"{option} {out} exists; accepted: another directory, or --force")


def made(out: Path | None) -> Path | None:
    """The directory for results, made before what takes long. OSError if it cannot be."""
    if out is not None:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    return out


def positive_time_ps(option: str, text: str) -> int:
    """A time above zero. Raises UsageError."""
    try:
        time_ps = parse_time(text)
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    if time_ps <= 0:
        raise UsageError(f"{option} {text}: must be more than 0")
    return time_ps
