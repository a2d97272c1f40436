"""What a post to an open run and its completion cost: CPU time of the caller and of the fabric together.

Sixteen hosts under two leaves, and transfers of one packet, each to the next host: what is emulated for a
post is a dozen events, so that nearly all of the price is that of posting and telling. `open-posts` answers
each completion with a post; `open-outstanding` posts everything for one time and then waits; `open-socket`
is `open-posts` with the caller in another process, over a Unix socket.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import emu
from emu.api import open as open_run
from emu.base.errors import RuntimeFailure
from emu.cli.bench.cases import open_fabric
from emu.doors.open.open_client import Client
from emu.doors.open.open_server import OpenServer
from emu.engine.live.open_run import OpenRun

RANKS: Final = 16
SIZE_BYTES: Final = 64


class PostCase(NamedTuple):
    """How many posts a case makes, and how many of them are outstanding at most."""

    name: str
    title: str
    posts: int
    outstanding: int
    socket: bool = False


POSTING: Final = {
    case.name: case
    for case in (
        PostCase("open-posts", "each completion is answered by a post", 20_000, 64),
        PostCase("open-outstanding", "all posts at one time", 100_000, 100_000),
        PostCase(
            "open-socket", "each completion is answered by a post, over a socket", 10_000, 64, socket=True
        ),
    )
}
"""By name, in the order in which they are run."""


class Posted(NamedTuple):
    """One run of one case, as its process printed it."""

    posts: int
    cpu_s: float
    """CPU time of both processes, where there are two."""
    wall_s: float
    peak_rss_bytes: int
    virtual_ps: int
    digest: str
    compiled: bool


def scenario_of(case: PostCase) -> dict[str, Any]:
    """The fabric that is posted to, with every key."""
    return open_fabric(case.name, RANKS)


def measure_posts(case: PostCase) -> Posted:
    """Run a case to its end. Raises RuntimeFailure if a post fails."""
    run = open_run(scenario_of(case))
    begun_s, begun_cpu_s = time.monotonic(), _cpu_s()
    digest = _served(run, case) if case.socket else _driven(run, case)
    return Posted(
        case.posts,
        _cpu_s() - begun_cpu_s,
        time.monotonic() - begun_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        run.now_ps,
        digest,
        emu.is_compiled(),
    )


def _cpu_s() -> float:
    """CPU time of this process, and of those that it waited for."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def _driven(run: OpenRun, case: PostCase) -> str:
    _drive(run, case)
    return run.close()


def _drive(run: OpenRun | Client, case: PostCase) -> None:
    """Post everything, and take every completion."""
    posted = 0
    while posted < case.posts or run.outstanding:
        if run.outstanding >= case.outstanding or posted == case.posts:
            done = run.next()
            if done.status:
                raise RuntimeFailure(f"bench {case.name}: post {done.number} ended with {done.status}")
        if posted < case.posts:
            run.post(posted % RANKS, (posted + 1) % RANKS, SIZE_BYTES)
            posted += 1


def _served(run: OpenRun, case: PostCase) -> str:
    """The caller is a process of its own. Its CPU time is this process's once it has been waited for."""
    with TemporaryDirectory() as directory:
        path = str(Path(directory, "socket"))
        server = OpenServer(run, path)
        caller = os.fork()
        if caller == 0:
            os._exit(_call(path, server.token, lambda client: _drive(client, case)))
        digest = server.serve()
        _, status = os.waitpid(caller, 0)
    if status:
        raise RuntimeFailure(f"bench {case.name}: the caller ended with status {status}")
    return digest


def _call(path: str, token: str, drive: Callable[[Client], None]) -> int:
    with Client(path, token) as client:
        drive(client)
    return 0
