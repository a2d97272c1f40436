"""The devices of an open run on Ray workers.

The workers exchange packets and sync messages among themselves, as in any run; the process of whoever posts
calls them once for each advance, with all that was posted since the last. Each call takes a millisecond or
two.

Not modelled: recovery. A worker that dies ends the run; a run that was saved goes on from its file.
"""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

from actors.kernel.device import Plain
from emu.base.errors import RuntimeFailure
from emu.cluster.ray.lost_servers import ClusterWatch, WorkerFault, watch_of_cluster
from emu.cluster.ray.session import ray_session
from emu.cluster.workers.idle_workers import worker_pool_of_session
from emu.cluster.workers.peers import FORCING_TCP, SECRET_BYTES
from emu.cluster.workers.record_columns import merged
from emu.cluster.workers.worker import Order, WorkerSpec
from emu.cluster.workers.worker_group import (
    START,
    WorkerGone,
    WorkerGroup,
    WorkerPlacement,
    housed,
    without_errors,
)
from emu.counts.collected import DeviceRecord
from emu.devices.drawing import Blueprint
from emu.devices.open_site import Post
from emu.engine.blueprint import RunPlan, spread
from emu.engine.interruption import Interruption
from emu.engine.live.open_engine import Outlook, Reports, together
from emu.engine.live.open_run import OpenRun, check_open, open_job, run_of
from emu.engine.outcome import RunOptions
from emu.engine.recovery.rules import named
from emu.engine.sync.placement import Placement
from emu.engine.waiting import Wait
from emu.scenario.dump import to_yaml


class _Cluster:
    """Ray, for an open run and its forks: it goes with the last of them."""

    def __init__(self, options: RunOptions, workers: int) -> None:
        self.options = options
        self.users = 0
        self.opened = ExitStack()
        self.opened.enter_context(ray_session(options.address, workers, options.unprotected, options.wheel))
        own = options.address is None and worker_pool_of_session() is None
        self.watch: ClusterWatch = self.opened.enter_context(closing(watch_of_cluster(own=own)))
        atexit.register(self.opened.close)

    def leave(self) -> None:
        """One of them has ended."""
        self.users -= 1
        if self.users == 0:
            atexit.unregister(self.opened.close)
            self.opened.close()


class RayEngine:
    """The devices of an open run, one worker for each part of the plan."""

    def __init__(self, plan: RunPlan, job: int, nodes: Sequence[str], cluster: _Cluster) -> None:
        self.now_ps = 0
        self.through_ps = 0
        self._plan = plan
        self._job = job
        self._nodes = nodes
        self._cluster = cluster
        self._orders: list[Order] = []
        """What the workers are to do with the next call."""
        self._outlook = Outlook(0, 0, 0, 0)
        self._closed = False
        self._pids: list[int] = []
        interruption = Interruption()
        self._group = WorkerGroup(
            plan.workers, interruption, WorkerPlacement(nodes, _nobody, interruption), cluster.watch
        )
        cluster.users += 1
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Have workers that have built their devices and are connected."""
        group, options = self._group, self._cluster.options
        group.hire()
        places = group.all(lambda _, actor: actor.where.remote(), START)
        self._pids = [place.pid for place in places]
        if options.address is not None:
            group.check_editions()
        run, secret, text = (
            secrets.token_hex(8),
            secrets.token_bytes(SECRET_BYTES),
            to_yaml(self._plan.scenario),
        )
        spans_hosts = len({place.host for place in places}) > 1
        near = "127.0.0.1" if options.sockets in FORCING_TCP else ""

        def prepare(worker: int, actor: Any) -> Any:
            spec = WorkerSpec(
                worker=worker,
                workers=self._plan.workers,
                placement=cast("Placement", options.placement),
                scenario=text,
                run=run,
                secret=secret,
                sockets=options.sockets,
                tcp_host=places[worker].ip if spans_hosts else near,
                metrics=False,
                moves=self._plan.moves,
                opens=self._job,
            )
            return actor.prepare.remote(spec)

        prepared = without_errors(group.all(prepare, "build"))
        addresses = [one.address for one in prepared]
        connected = group.all(
            lambda _, actor: actor.connect.remote(addresses),
            "connect",
            when_gone=lambda _, actor: actor.close.remote(),
        )
        without_errors(connected)

    def start(self) -> None:
        """See `emu.engine.live.open_engine.Engine`."""
        self._orders.append(("start", ()))

    def next_ps(self) -> int:
        """See `Engine`; what is ordered may be for now."""
        return self.now_ps if self._orders else self._outlook.next_ps

    def outlook(self) -> Outlook:
        """See `Engine`."""
        return self._outlook

    def post(self, post: Post) -> None:
        """See `Engine`."""
        self._orders.append(("post", (post, self.now_ps)))

    def change(self, text: str) -> None:
        """See `Engine`."""
        self._orders.append(("change", (text, self.through_ps, self.now_ps)))

    def advance(self, limit_ps: int) -> Reports:
        """See `Engine`."""
        answers = self._call("advance", self.through_ps, limit_ps)
        reported: Reports = [row for _, rows, _ in answers for row in rows]
        self._outlook = together([outlook for _, _, outlook in answers])
        self.through_ps = answers[0][0]
        self.now_ps = self.through_ps - 1 if reported else self.through_ps
        self._orders.append(("stand", (self.now_ps,)))
        return reported

    def records(self) -> list[DeviceRecord]:
        """See `Engine`."""
        answers = self._call("records", self.through_ps, self.now_ps)
        return merged(answers)

    def waits(self) -> list[Wait]:
        """See `Engine`."""
        return [Wait(*wait) for waits in self._call("waits") for wait in waits]

    def save(self) -> list[Plain]:
        """See `Engine`."""
        return self._call("save", self.through_ps, self.now_ps)

    def restore(self, ledger: Sequence[tuple[int, Post]], states: list[Plain], at: tuple[int, int]) -> None:
        """See `Engine`."""
        self.now_ps, self.through_ps = at
        self._call("restore", ledger, states, self.through_ps, self.now_ps)

    def twin(self) -> RayEngine:
        """See `Engine`: on workers of its own."""
        return RayEngine(self._plan, self._job, self._nodes, self._cluster)

    def close(self) -> None:
        """See `Engine`."""
        if not self._closed:
            self._closed = True
            self._group.close(keep=not self._group.gone)
            self._cluster.leave()

    def _call(self, name: str, *arguments: Any) -> list[Any]:
        """What every worker answers, once it has done what was ordered before. Raises RuntimeFailure."""
        orders, self._orders = [*self._orders, (name, arguments)], []
        try:
            answers = self._group.all(
                lambda _, actor: actor.carry_out.remote(orders), name, within_s=float("inf")
            )
        except WorkerGone as error:
            who = named(self._plan, self._pids, error.worker)
            raise RuntimeFailure(f"{who} died: {error.reason}; an open run that was saved goes on") from None
        except WorkerFault as error:
            raise RuntimeFailure(f"{error}\n{error.details}") from None
        return without_errors(answers)


def opened_on_ray(
    blueprint: Blueprint,
    workers: int,
    placement: str = "packed",
    address: str | None = None,
    unprotected: bool = False,
    resume: str | Path | None = None,
) -> OpenRun:
    """An open run on Ray, which is started for it without an address. Raises EmuError."""
    options = RunOptions(workers=workers, placement=placement, address=address, unprotected=unprotected)
    check_open(blueprint.scenario)
    layout = cast("Placement", placement)
    plan, nodes = spread(blueprint, workers, layout), list[str]()
    cluster = _Cluster(options, plan.workers)
    if address is not None:
        plan, nodes = housed(blueprint, workers, layout, ())
    engine = RayEngine(plan, open_job(blueprint.scenario), nodes, cluster)
    try:
        return run_of(plan, engine, resume)
    except BaseException:
        engine.close()
        raise


def _nobody(line: str) -> None:
    """Nobody is notified."""
