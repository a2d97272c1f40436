"""Which options say where a run that is watched or repeated is carried out?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from actors.runtime.launch import check_options
from actors.runtime.outcome import RunOptions
from emu.errors import UsageError

Command = Callable[..., Any]


def placed(function: Command) -> Command:
    """Add `--workers`, `--local` and `--parts`, to be given to `where`."""
    function = click.option("--parts", type=click.IntRange(1, 64), help="With --local: how many parts [1].")(
        function
    )
    function = click.option("--local", is_flag=True, help="In this process, without Ray.")(function)
    return click.option(
        "--workers", type=click.IntRange(1, 1024), help="Ray workers [as many as there are cores]."
    )(function)


def where(workers: int | None, local: bool, parts: int | None) -> RunOptions:
    """The options of a run. Raises UsageError for what cannot be meant."""
    if local and workers is not None:
        raise UsageError("--workers is for Ray; with --local use --parts")
    if parts is not None and not local:
        raise UsageError("--parts is for --local; on Ray use --workers")
    options = RunOptions(local=local, parts=parts or 1, workers=workers)
    check_options(options)
    return options
