"""How many queue pairs the hashes of switches lead to each port.

MMR of flows is the most over the mean of these numbers at a switch's uplinks: what a hash does with few large
flows, whatever each of them carries. Queue pairs that send data count, with every link up. Where the load, a
gap or every packet chooses, or a controller does, there are no such numbers.

Source: MMR (max-mean ratio) in draft-calabria-bmwg-ai-fabric-training-bench, section on terminology.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import Role, Topology
from actors.wire.frame import WRITE_MIDDLE
from emu.devices.hashed_paths import HashedPaths
from emu.devices.plan import Plan
from emu.scenario.schema import Scenario

HASHED: Final = ("ecmp", "e_ecmp")

FlowCounts = dict[tuple[int, int], int]
"""By switch and port."""


def flow_counts(scenario: Scenario, topology: Topology, plan: Plan) -> FlowCounts | None:
    """How many queue pairs leave each switch by each port; None where no hash of a flow decides that."""
    routing = scenario.routing
    if routing.kind not in HASHED or routing.by_packet or plan.over_ports:
        return None
    running = {work.job for work in plan.jobs if work.enabled}
    paths = HashedPaths(scenario, topology)
    found: FlowCounts = {}
    for nic, pairs in plan.pairs.items():
        for pair in pairs:
            if not pair.sends or pair.job not in running:
                continue
            ends = paths.ends(
                nic,
                pair.turn,
                pair.remote_nic,
                pair.udp_source,
                pair.remote_qpn,
                pair.priority,
                int(WRITE_MIDDLE),
            )
            for device, end in ends:
                if topology.nodes[device].role is Role.SWITCH:
                    port = topology.ports(device).index(end)
                    found[device, port] = found.get((device, port), 0) + 1
    return found
