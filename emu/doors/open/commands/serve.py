"""`emu serve`: an open run for programs in other processes."""

from __future__ import annotations

import click

from emu import api
from emu.base.errors import INTERRUPTED_STATUS, RuntimeFailure, UsageError
from emu.base.units import format_time
from emu.doors.open.open_server import OpenServer, Stalling
from emu.engine.live.open_run import MAIN
from emu.terminal.scenario_options import load_scenario, overriding, reading


@click.command()
@click.argument("scenario")
@overriding
@click.option("--socket", "path", metavar="PATH", help="Listen on this Unix socket.")
@click.option("--port", type=int, help="Listen on this loopback port; 0 takes a free one.")
@click.option("--callers", default=MAIN, show_default=True, metavar="A,B", help="The names of all callers.")
@click.option("--caller-timeout", type=float, default=0.0, metavar="SECONDS", help="End if callers stall.")
@click.option("--parts", type=int, default=1, help="Cut the fabric into so many parts, without Ray.")
@click.option("--workers", type=int, help="Run on so many Ray workers.")
@click.option("--placement", default="packed", metavar="KIND", help="What lives together (emu run --help).")
@reading
def command(
    scenario: str,
    assignments: tuple[str, ...],
    path: str | None,
    port: int | None,
    callers: str,
    caller_timeout: float,
    parts: int,
    workers: int | None,
    placement: str,
    seed: str | None,
    variant: str,
) -> int:
    """Let programs post to the open job of SCENARIO over a socket, and print the digest when all have ended.

    The first line has the address, and the token that callers prove to know.
    """
    if (path is None) == (port is None):
        raise UsageError("serve: accepted: one of --socket PATH and --port N")
    names = callers.split(",")
    if len(set(names)) != len(names) or not all(names):
        raise UsageError(f"--callers {callers}: accepted: names, each once")
    loaded = load_scenario(scenario, assignments, seed, variant, opens=True)
    run = api.open(loaded, parts=parts, workers=workers, placement=placement)
    address = path if path is not None else port
    assert address is not None
    server = OpenServer(run, address, names, caller_timeout, click.echo)
    where = path if path is not None else f"127.0.0.1:{server.port}"
    click.echo(f"serving {where} token {server.token}")
    try:
        digest = server.serve()
    except Stalling as stall:
        click.echo(f"emu: interrupted: {stall}", err=True)
        return INTERRUPTED_STATUS
    except OSError as error:
        raise RuntimeFailure(f"{where}: {error}") from None
    click.echo(f"{format_time(run.now_ps)} of virtual time\ndigest {digest}")
    return 0
