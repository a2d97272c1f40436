"""Options of every command that runs something: where it is carried out, and how it survives a lost worker.

In this process, on Ray here, or on a cluster: commands take the same options, and refuse the same
combinations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from actors.kernel.units import PS_PER_S
from emu.api import Interrupted, Result, session
from emu.base.cores import usable_cores
from emu.base.errors import UsageError
from emu.engine.outcome import RunOptions
from emu.engine.sync.placement import PLACEMENTS
from emu.launch import check_options
from emu.terminal.scenario_options import Command, positive_time_ps

_RAY: Final = ("workers", "placement", "address")
_CLUSTER: Final = ("pins", "wheel", "unprotected")
_ADDRESS: Final = click.option(
    "--address",
    metavar="ADDRESS",
    help="A Ray cluster that runs already: auto, HOST:PORT or ray://HOST:PORT.",
)
_WHEEL: Final = click.option(
    "--wheel",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="With --address: the package, for nodes that lack it.",
)
_UNPROTECTED: Final = click.option(
    "--unprotected", is_flag=True, help="With --address: use a cluster without a token."
)
JOBS: Final = click.option(
    "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Runs at a time, here  [one for each core]."
)
_ON_RAY: Final = (
    click.option(
        "--workers",
        type=click.IntRange(1, 1024),
        help="Distribute the run over Ray workers [where they end it 20 % sooner].",
    ),
    click.option(
        "--placement",
        type=click.Choice(list(PLACEMENTS)),
        help="Devices of a worker: whole racks (packed), a server or switch (node), one (device) [packed].",
    ),
    _ADDRESS,
    click.option(
        "--pin",
        "pins",
        multiple=True,
        metavar="PATTERN=NODE",
        help="With --address: devices that a node is to host, such as 'ctsw-*=10.0.0.7'. Can be repeated.",
    ),
    _WHEEL,
    _UNPROTECTED,
)
_PARTS: Final = click.option(
    "--parts", type=click.IntRange(1, 64), help="In this process: separately built partitions [1]."
)
_BLOCK: Final = click.option(
    "--block",
    type=click.IntRange(min=1),
    metavar="NICS",
    help="NICs whose events run together while their devices are in the cache [32, where that pays].",
)
_TRAINS: Final = click.option(
    "--trains/--no-trains",
    default=True,
    help="Handle packets that follow one another as one event a hop; the answer is the same [on].",
)
_LOCAL: Final = click.option("--local", is_flag=True, help="In this process alone, without Ray.")


def placed(function: Command) -> Command:
    """Add the options of a command that runs something; they are given as `where`."""
    return _placed(function, (*_ON_RAY, _LOCAL, _PARTS, _BLOCK, _TRAINS), _where)


def side_by_side(function: Command) -> Command:
    """Add the options of a command that carries out independent runs; they are given as `machines`."""

    @functools.wraps(function)
    def command(
        *, jobs: int | None, address: str | None, wheel: Path | None, unprotected: bool, **others: Any
    ) -> Any:
        from emu.many_runs import Machines  # noqa: PLC0415  processes, only for several runs

        machines = Machines(jobs or 0, address, wheel, unprotected).checked()
        return function(machines=machines, **others)

    found: Command = command
    for option in reversed((JOBS, _ADDRESS, _WHEEL, _UNPROTECTED)):
        found = option(found)
    return found


def session_of(where: RunOptions) -> AbstractContextManager[None]:
    """What several runs of one command share: Ray and the workers, if they are on Ray."""
    if where.local or where.chooses:
        return nullcontext()
    return session(where.address, unprotected=where.unprotected, wheel=where.wheel)


@contextmanager
def ray_beside(where: RunOptions) -> Iterator[Callable[[], None]]:
    """Ray starts beside what is inside, where a run will be on a Ray of its own; what it is given ends that
    Ray where it turns out that it is not.
    """
    if where.local or where.chooses or where.address is not None:
        yield lambda: None
        return
    from emu.cluster.ray.session import begun, drop_begun  # noqa: PLC0415 - only where Ray is started

    with begun(where.workers or usable_cores()):
        yield drop_begun


def _placed(
    function: Command, options: tuple[Callable[[Command], Command], ...], read: Callable[..., RunOptions]
) -> Command:
    @functools.wraps(function)
    def placed_command(**given: Any) -> Any:
        names = ("parts", "block", "trains", "local", *_RAY, *_CLUSTER)
        mine = {name: given.pop(name) for name in names if name in given}
        return function(where=read(**mine), **given)

    command: Command = placed_command
    for option in reversed(options):
        command = option(command)
    return command


def _where(
    *, local: bool, parts: int | None, block: int | None, placement: str | None, **ray: Any
) -> RunOptions:
    """The options of a run, which choose where nothing belongs to one process or to Ray. Raises UsageError
    for what cannot be meant.
    """
    on_ray = placement is not None or ray["workers"] is not None or ray["address"] is not None
    if local and on_ray:
        raise UsageError("--workers, --placement and --address are for Ray; with --local use --parts")
    if parts is not None and on_ray:
        raise UsageError("--workers is for Ray, --parts for this process; accepted: one of them")
    if ray["address"] is None and any(ray[name] for name in _CLUSTER):
        raise UsageError("--pin, --wheel and --unprotected are for a cluster; say which with --address")
    here = local or parts is not None
    options = RunOptions(
        local=here,
        chooses=not here and not on_ray,
        parts=parts or 1,
        placement=placement or "packed",
        block=block,
        **ray,
    )
    check_options(options)
    return options


pageless: Final = click.option("--no-page", is_flag=True, help="Serve no live page.")
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
        if recoveries is not None or liveness is not None:
            others["where"] = others["where"]._replace(chooses=False)
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
        help="Replace a worker that is silent for so long [60s].",
    )(command)
    return click.option(
        "--recoveries",
        type=click.IntRange(0, 1000),
        help="Roll-backs in a row without progress [5].",
    )(command)


def _every_s(text: str) -> float | None:
    if text == AUTO:
        return None
    if text == OFF:
        return 0.0
    return positive_time_ps("--snapshot-every", text) / PS_PER_S


def result_of(run: Callable[[], Result]) -> Result:
    """What a run came to, also where Ctrl-C or SIGTERM ended it, for a command that shows what there is."""
    try:
        return run()
    except Interrupted as error:
        return error.result
