"""The node of each worker, and its next one when that is lost.

A worker whose process is gone is started again on its own node if that is still there. If not, it goes to the
node that is left with the fewest workers for its CPUs; they share CPUs with those that are there. If no node
with a CPU is left (the coordinator's may have none), the run waits for one, up to a limit, and says so once.

Whether a node is there, its raylet says by answering: Ray itself is sure only after a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Final

from emu.build.devices import Blueprint
from emu.errors import RuntimeFailure
from emu.runtime.blueprint import RunPlan, spread
from emu.runtime.cluster.nodes import Node, answering, cluster_nodes, moves_for, pin_of, share_out
from emu.runtime.cluster.session import Interruption
from emu.runtime.sync.placement import Placement
from emu.topology.traffic_load import expected_loads

WAIT_S: Final = 300.0
"""How long to wait for a node."""
LOOK_S: Final = 1.0

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
        told = False
        while True:
            nodes = [node for node in cluster_nodes() if answering(node)]
            if nodes or self._interruption.asked:
                return nodes
            if time.monotonic() > begun_s + WAIT_S:
                raise RuntimeFailure(f"no node of the Ray cluster with a CPU came within {WAIT_S:.0f} s")
            if not told:
                told = True
                self.tell(f"no node with a CPU is left; the run waits up to {WAIT_S:.0f} s for one")
            time.sleep(LOOK_S)


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
