"""Options on recovery: how a run survives the loss of a worker, and what it keeps."""

from __future__ import annotations

import functools
from typing import Any, Final

import click

from actors.kernel.units import PS_PER_S
from emu.cli.scenario_options import Command, positive_time_ps
from emu.errors import UsageError

OFF: Final = "off"
AUTO: Final = "auto"


def recovering(function: Command) -> Command:
    """Add `--recoveries`, `--liveness`, `--snapshot-every` and `--snapshot-at`.

    They are given as `recovery`: fields of RunOptions.
    """

    @functools.wraps(function)
    def command(
        *,
        recoveries: int | None,
        liveness: str | None,
        snapshot_every: str,
        snapshot_at: tuple[str, ...],
        **others: Any,
    ) -> Any:
        if (recoveries is not None or liveness is not None) and others["where"].local:
            raise UsageError("--recoveries and --liveness are for Ray; with --local no worker is lost")
        recovery: dict[str, Any] = {
            "snapshot_every_s": _every_s(snapshot_every),
            "snapshot_at_ps": tuple(
                sorted({positive_time_ps("--snapshot-at", text) for text in snapshot_at})
            ),
        }
        if recoveries is not None:
            recovery["recoveries"] = recoveries
        if liveness is not None:
            recovery["liveness_s"] = positive_time_ps("--liveness", liveness) / PS_PER_S
        return function(recovery=recovery, **others)

    command = click.option(
        "--snapshot-at",
        multiple=True,
        metavar="TIME",
        help="Keep a snapshot of this virtual time, for `emu fork`. Can be repeated.",
    )(command)
    command = click.option(
        "--snapshot-every",
        default=AUTO,
        metavar="TIME",
        help="Wall time between snapshots, or off [auto: as often as 3% of the time allows].",
    )(command)
    command = click.option(
        "--liveness",
        metavar="TIME",
        help="How long a worker may give no sign of life before another takes its place [60s].",
    )(command)
    return click.option(
        "--recoveries",
        type=click.IntRange(0, 1000),
        help="How often in a row to go back to a snapshot without getting farther [5].",
    )(command)


def _every_s(text: str) -> float | None:
    if text == AUTO:
        return None
    if text == OFF:
        return 0.0
    return positive_time_ps("--snapshot-every", text) / PS_PER_S
