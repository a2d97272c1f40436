"""The workers of a run as the coordinator calls them, any of which may be gone at any time.

The actors of a run, by worker. Every call waits with a limit, notices who died meanwhile, and says so: in
`gone`, with Ray's reason. Who is gone is replaced by `hire`.

The node of each worker. A worker whose process is gone is started again on its own node if that is still
there. If not, it goes to the node that is left with the fewest workers for its CPUs; they share CPUs with
those that are there. If no node with a CPU is left (the coordinator's may have none), the run waits for one,
up to a limit, and says so once.

Whether a node is there, its raylet says by answering: Ray itself is sure only after a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final

from emu.base.errors import EmuError, RuntimeFailure
from emu.base.units import counted
from emu.cluster.ray.lost_servers import ClusterWatch, fault_of, gone_errors, why_gone
from emu.cluster.ray.nodes import Node, answering, cluster_nodes, moves_for, pin_of, share_out
from emu.cluster.workers.idle_workers import worker_pool_of_session
from emu.cluster.workers.worker import Worker, edition
from emu.devices.drawing import Blueprint
from emu.engine.blueprint import RunPlan, spread
from emu.engine.interruption import Interruption
from emu.engine.sync.placement import Placement, expected_loads

NODE_WAIT_S: Final = 300.0
"""How long to wait for a node."""
NODE_LOOK_S: Final = 1.0

Tell = Callable[[str], None]


class WorkerPlacement:
    """The node of each worker; none at all where Ray may choose, on a machine that is the whole cluster."""

    def __init__(self, of: Sequence[str], tell: Tell, interruption: Interruption) -> None:
        self.of = list(of)
        """The Ray node of each worker."""
        self.tell = tell
        self._interruption = interruption

    def reassign(self, workers: Iterable[int]) -> None:
        """Give those of these workers another home whose node is lost. Raises RuntimeFailure."""
        wanted = sorted(workers)
        if not self.of or not wanted:
            return
        nodes = self._nodes()
        before, self.of = self.of, reassigned(self.of, wanted, nodes)
        for node in nodes:
            moved = [str(one) for one in wanted if self.of[one] == node.ident != before[one]]
            if moved:
                name = f"{node.name} ({node.address})" if node.name else node.address
                self.tell(f"a node is lost; its workers are started again on {name}: {', '.join(moved)}")

    def lost(self, workers: Iterable[int]) -> list[int]:
        """Those of these workers whose node is lost."""
        if not self.of:
            return []
        known = {node.ident for node in cluster_nodes() if answering(node)}
        return [worker for worker in workers if self.of[worker] not in known]

    def _nodes(self) -> list[Node]:
        """The nodes that are left. Raises RuntimeFailure if none comes in time."""
        begun_s = time.monotonic()
        reported = False
        while True:
            nodes = [node for node in cluster_nodes() if answering(node)]
            if nodes or self._interruption.asked:
                return nodes
            if time.monotonic() > begun_s + NODE_WAIT_S:
                raise RuntimeFailure(f"no node of the Ray cluster with a CPU came within {NODE_WAIT_S:.0f} s")
            if not reported:
                reported = True
                self.tell(f"no node with a CPU is left; the run waits up to {NODE_WAIT_S:.0f} s for one")
            time.sleep(NODE_LOOK_S)


def reassigned(worker_nodes: Sequence[str], workers: Sequence[int], nodes: Sequence[Node]) -> list[str]:
    """The home of each worker, where these `workers` are to be started again and these `nodes` are left."""
    found = list(worker_nodes)
    known = {node.ident for node in nodes}
    for worker in workers:
        if found[worker] in known or not nodes:
            continue
        carried = [sum(home == node.ident for home in found) for node in nodes]
        loads = [(Fraction(carried[place] + 1, node.cpus), place) for place, node in enumerate(nodes)]
        found[worker] = nodes[min(loads)[1]].ident
    return found


def housed(
    blueprint: Blueprint, workers: int, placement: Placement, pins: Sequence[str]
) -> tuple[RunPlan, list[str]]:
    """The run spread over the nodes of a cluster, and the node of each worker. Raises UsageError."""
    plan = spread(blueprint, workers, placement)
    nodes = cluster_nodes()
    worker_nodes = share_out(plan.workers, [node.cpus for node in nodes])
    if pins:
        topology = blueprint.topology
        wanted = [pin_of(text) for text in pins]
        loads = expected_loads(topology)
        moves = moves_for(topology, plan.assignment, loads, worker_nodes, nodes, wanted)
        plan = spread(blueprint, workers, placement, moves)
    return plan, [nodes[home].ident for home in worker_nodes]


START_S: Final = 300.0
"""How long actors may take to start, to build, and to connect, each."""
LOOK_S: Final = 0.2
PATIENCE_S: Final = 10.0
"""After so long without an actor it is told what it may wait for."""
START: Final = "start"
PROBE_S: Final = 2.0
"""How often the nodes of actors that do not answer are asked whether they are there."""
ASK_S: Final = 5.0
GO_BACK_S: Final = 20.0
KEEP_S: Final = 60.0
"""How long workers may take to close that are to be kept; one that takes longer is ended."""
MISSED: Final = 2
"""Who is silent has left so many questions in a row unanswered: one may be due to who asks."""
SMALL_SHARE: Final = 0.001
IN_CREATION: Final = "error raised in its creation task"
"""What Ray says of an actor whose class its process could not import; the same would happen again."""
NEEDED: Final = (
    "every node needs emu and what it imports (docs/cluster.md), or everything but emu and --wheel"
)

Call = Callable[[int, Any], Any]
"""Calls an actor, given its worker's number; returns the reference of the answer."""


class WorkerGone(RuntimeFailure):
    """An actor's process is gone."""

    def __init__(self, worker: int, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker = worker
        self.reason = reason

    def __str__(self) -> str:
        return f"worker {self.worker} died before the run began: {self.reason}"


class WorkerGroup:
    """The actors of one run."""

    def __init__(
        self, workers: int, interruption: Interruption, placement: WorkerPlacement, watch: ClusterWatch
    ) -> None:
        self.workers = workers
        self.watch = watch
        self.placement = placement
        self.actors: list[Any] = []
        self.gone: dict[int, str] = {}
        """Which actors are gone, and why."""
        self._heard_s: dict[int, float] = {}
        """When each answered last."""
        self._missed: dict[int, int] = {}
        """How many questions in a row each has left unanswered."""
        self._interruption = interruption
        self._lacks_cpus = False
        """Whether others had CPUs that those need who were hired last. Asked before: they have theirs long
        before they answer, and Ray does not tell of actors that wait for a node of their own."""

    def hire(self) -> None:
        """Have an actor for every worker: new ones in place of those that are gone.

        They live on their homes; where there are none, Ray spreads them. Who comes in place of another takes
        no CPU of its own: those of a node that was lost are gone. Raises RuntimeFailure if no node is left,
        and ClusterLost.
        """
        import ray  # noqa: PLC0415  Ray only where it is needed
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  as above

        self.watch.look()
        self.placement.reassign(self.gone)
        worker_nodes = self.placement.of
        worker_pool = worker_pool_of_session()
        fresh = not self.actors
        share = 1.0 if fresh and worker_pool is None and cluster_cpus() >= self.workers else SMALL_SHARE
        share = share if fresh else 0.0
        self._lacks_cpus = bool(worker_nodes) and share * self.workers > _free_cpus()
        remote = ray.remote(num_cpus=share, max_restarts=0, scheduling_strategy="SPREAD")(Worker)

        def begin(worker: int) -> Any:
            if not worker_nodes:
                return remote.remote()
            home = NodeAffinitySchedulingStrategy(worker_nodes[worker], soft=fresh)
            return remote.options(scheduling_strategy=home).remote()

        if fresh:
            self.actors = [] if worker_pool is None else worker_pool.take(self.workers)
            self.actors += [begin(worker) for worker in range(len(self.actors), self.workers)]
        for worker in sorted(self.gone):
            ray.kill(self.actors[worker])
            self.actors[worker] = begin(worker)
        self.gone.clear()

    def check_editions(self) -> None:
        """Refuse actors that run other sources than this process. Raises RuntimeFailure; else as `all`."""
        found = self.all(lambda _, actor: actor.edition.remote(), "say what they run")
        for worker, (host, theirs) in enumerate(found):
            if theirs != edition():
                raise RuntimeFailure(
                    f"worker {worker} on {host} runs another edition of emu than this process, and may give "
                    "another answer; install the same on every node, or bring it with --wheel"
                )

    @property
    def living(self) -> list[int]:
        """The workers whose actors are not known to be gone."""
        return [worker for worker in range(len(self.actors)) if worker not in self.gone]

    def all(
        self, call: Call, what: str, when_gone: Call | None = None, within_s: float = START_S
    ) -> list[Any]:
        """What every actor answers; once one is gone, `when_gone` is called on the others.

        Raises WorkerGone once all have answered or died, RuntimeFailure, ClusterLost, or KeyboardInterrupt.
        """
        import ray  # noqa: PLC0415  as above

        refs = [call(worker, actor) for worker, actor in enumerate(self.actors)]
        of = {ref: worker for worker, ref in enumerate(refs)}
        answers: dict[int, Any] = {}
        reported = what != START or not self._lacks_cpus
        begun_s = time.monotonic()
        deadline_s = begun_s + within_s
        probe_s = time.monotonic() + PROBE_S
        waiting = list(refs)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_S)
            for ref in done:
                answers[of[ref]] = self.answer(of[ref], ref)
            if waiting and not reported and time.monotonic() > begun_s + PATIENCE_S:
                reported = True
                self.placement.tell(_lack_of_cpus(len(waiting)))
            if waiting and time.monotonic() > probe_s:
                probe_s = time.monotonic() + PROBE_S
                lost = self.placement.lost(of[ref] for ref in waiting)
                self.gone.update(dict.fromkeys(lost, "its node is lost"))
                waiting = [ref for ref in waiting if of[ref] not in lost]
            if self.gone and when_gone is not None:
                for worker in self.living:
                    when_gone(worker, self.actors[worker])
                when_gone = None
            if self._interruption.asked:
                raise KeyboardInterrupt
            self.watch.check()
            if time.monotonic() > deadline_s:
                raise RuntimeFailure(
                    f"{len(waiting)} of {len(refs)} workers did not {what} within {within_s:.0f} s"
                )
        for worker, reason in sorted(self.gone.items()):
            raise WorkerGone(worker, reason)
        return [answers[worker] for worker in range(len(refs))]

    def answer(self, worker: int, ref: Any) -> Any:
        """An answer that has come; None, and the actor noted as gone, if it is that. Raises WorkerFault."""
        import ray  # noqa: PLC0415  as above

        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise fault_of(worker, error) from None
        except gone_errors() as error:
            if IN_CREATION in str(error):
                raise RuntimeFailure(
                    f"worker {worker} cannot be started: {_last_line(error)}; {NEEDED}"
                ) from None
            self.gone.setdefault(worker, why_gone(error))
            return None
        self._answered(worker)
        return answer

    def ask(
        self, call: Call, workers: Iterable[int] | None = None, within_s: float = ASK_S
    ) -> dict[int, Any]:
        """What the living of these workers answer in time, by worker. Raises WorkerFault."""
        import ray  # noqa: PLC0415  as above

        asked = self.living if workers is None else [one for one in workers if one not in self.gone]
        of = {call(worker, self.actors[worker]): worker for worker in asked}
        done: list[Any] = []
        if of:
            done, _ = ray.wait(list(of), num_returns=len(of), timeout=within_s)
        answers: dict[int, Any] = {}
        for ref in done:
            try:
                answers[of[ref]] = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                raise fault_of(of[ref], error) from None
            except gone_errors():
                continue
            self._answered(of[ref])
        for worker in asked:
            if worker not in answers:
                self._missed[worker] = self._missed.get(worker, 0) + 1
        return dict(sorted(answers.items()))

    def _answered(self, worker: int) -> None:
        self._heard_s[worker] = time.monotonic()
        self._missed[worker] = 0

    def note_silent(self, workers: Iterable[int], limit_s: float) -> None:
        """Note those of these workers as gone that were asked and gave no sign of life for so long."""
        for worker in workers:
            silent_s = time.monotonic() - self._heard_s[worker]
            if silent_s > limit_s and self._missed.get(worker, 0) >= MISSED:
                self.gone.setdefault(worker, f"it gave no sign of life for {limit_s:.0f} s")

    def send_back(self) -> None:
        """Have the living forget their incarnation; who does not in time is ended, and gone."""
        closed = self.ask(lambda _, actor: actor.close.remote(keep_page=True), within_s=GO_BACK_S)
        for worker in self.living:
            if worker not in closed:
                self.gone[worker] = f"it did not go back within {GO_BACK_S:.0f} s"

    def close(self, keep: bool) -> None:
        """End the actors, or leave them to the session if `keep`. Raises nothing: who does not close is
        ended, and where the cluster is gone, so are they.
        """
        import ray  # noqa: PLC0415  as above

        if self.watch.lost:
            return
        worker_pool = worker_pool_of_session()
        keep = keep and worker_pool is not None
        closed: dict[int, Any] = {}
        with suppress(EmuError):  # a worker that fails to close
            closed = self.ask(lambda _, actor: actor.close.remote(), within_s=KEEP_S if keep else ASK_S)
        kept = list(closed) if keep else []
        for worker, actor in enumerate(self.actors):
            if worker not in kept:
                with suppress(*gone_errors()):
                    ray.kill(actor)
        if worker_pool is not None:
            worker_pool.give_back([self.actors[worker] for worker in kept])


def _lack_of_cpus(workers: int) -> str:
    """What workers wait for that do not start, as CPUs were lacking when they were hired."""
    free, cpus = int(_free_cpus()), counted(cluster_cpus(), "CPU")
    return (
        f"{counted(workers, 'worker')} cannot start yet: {free} of {cpus} of the Ray cluster are free; "
        "accepted: patience, or fewer --workers"
    )


def _free_cpus() -> float:
    """How many CPUs of the cluster nobody has."""
    import ray  # noqa: PLC0415  as above

    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return free.get("CPU", 0.0)


def without_errors(answers: list[Any]) -> list[Any]:
    """The answers. Raises the first of them that is an EmuError."""
    for answer in answers:
        if isinstance(answer, EmuError):
            raise answer
    return answers


def cluster_cpus() -> int:
    """How many CPUs the cluster has."""
    import ray  # noqa: PLC0415  as above

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(int(resources.get("CPU", 1)), 1)


def _last_line(error: Exception) -> str:
    """The last line of a traceback that is reported in an error."""
    reported = [line for line in str(error).splitlines() if line and line[0].isalpha()]
    return (reported or [type(error).__name__])[-1][:300]
