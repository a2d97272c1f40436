"""Check that everyone who sends can reach whom they send to.

Most fabrics join all their NICs, and then there is nothing to ask. Rails that nothing joins do not: a job
whose ranks would have to send from rail to rail is refused before it runs, rather than time out in it.
"""

from __future__ import annotations

from actors.fabric.model import FABRIC, Topology, prefix_of
from actors.fabric.routing import routes
from actors.ncclx.plan import Plan
from emu.errors import Problem, ScenarioError
from emu.scenario.schema import Scenario


def check_connections(scenario: Scenario, topology: Topology, plan: Plan) -> None:
    """Raises ScenarioError with a problem for each job that connects NICs without a path between them."""
    found = routes(topology)
    if found.all_reachable():
        return
    reached: dict[int, int] = {}
    problems: dict[int, Problem] = {}
    for nic, pairs in plan.pairs.items():
        for pair in pairs:
            if pair.job in problems:
                continue
            if nic not in reached:
                ports = [port for port in topology.ports(nic) if port.kind == FABRIC]
                reached[nic] = 0
                for port in ports:
                    reached[nic] |= found.reached_from(port.peer)
            if not reached[nic] >> prefix_of(pair.remote_address) & 1:
                names = topology.nodes[nic].name, topology.nodes[pair.remote_nic].name
                reason = f"{names[0]} sends to {names[1]}, and the fabric has no path between them"
                problems[pair.job] = Problem(
                    scenario.name, 0, f"jobs[{pair.job}].ranks", reason, "ranks whose NICs reach each other"
                )
    if problems:
        raise ScenarioError(problems.values())
