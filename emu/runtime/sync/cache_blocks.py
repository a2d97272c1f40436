"""Cut of one worker's devices into blocks that fit the cache (`actors.kernel.block`).

A pure function of topology, placement and size; nothing that it decides can change a result. Devices are cut
as `packed` cuts them between workers: racks whole, switches next to most of their links. A server with its
NICs is never cut.

There is one block where all fits one, and where a window between blocks would be so short that each port
has fewer than `LEAST_FRAMES` frames in it: what changing blocks costs would not be earned.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import FABRIC, Topology
from actors.kernel.event import NEVER_PS
from actors.kernel.units import serialisation_ps
from emu.build.devices import Blocks, Blueprint, crossings
from emu.runtime.sync.placement import Assignment, assign, expected_loads

NICS_PER_BLOCK: Final = 128
"""So many NICs, with their servers and their share of the switches, fit a second-level cache of 2 MiB."""
LEAST_FRAMES: Final = 4
ELSEWHERE: Final = -1


def cut(blueprint: Blueprint, assignment: Assignment, worker: int, nics: int | None = None) -> Blocks:
    """The blocks of a worker's devices, of about `nics` NICs each; None for what suits the fabric."""
    topology = blueprint.topology
    hosted = sum(assignment[nic] == worker for nic in topology.nics)
    count = -(-hosted // (nics or NICS_PER_BLOCK))
    loads: tuple[int, ...] = ()
    while count > 1:
        loads = loads or _loads_here(topology, assignment, worker)
        block_of = _numbered(assign(topology, count, "packed", loads), assignment, worker)
        if not _cuts_a_server(topology, block_of):
            found = Blocks(block_of, _lookaheads(blueprint, block_of))
            if nics is None and min(found.lookahead_ps) < LEAST_FRAMES * _frame_ps(blueprint):
                break
            return found
        count -= 1
    return Blocks(tuple(0 if at == worker else ELSEWHERE for at in assignment), (int(NEVER_PS),))


def _loads_here(topology: Topology, assignment: Assignment, worker: int) -> tuple[int, ...]:
    loads = expected_loads(topology)
    return tuple(load if at == worker else 0 for load, at in zip(loads, assignment, strict=True))


def _numbered(parts: Assignment, assignment: Assignment, worker: int) -> tuple[int, ...]:
    """The parts that have devices of this worker, numbered without gaps."""
    used = sorted({part for part, at in zip(parts, assignment, strict=True) if at == worker})
    number = {part: place for place, part in enumerate(used)}
    return tuple(
        number[part] if at == worker else ELSEWHERE for part, at in zip(parts, assignment, strict=True)
    )


def _cuts_a_server(topology: Topology, block_of: tuple[int, ...]) -> bool:
    servers = (topology.server(host) for host in range(len(topology.hosts)))
    return any(len({block_of[node] for node in server} - {ELSEWHERE}) > 1 for server in servers)


def _lookaheads(blueprint: Blueprint, block_of: tuple[int, ...]) -> tuple[int, ...]:
    """The end that the controller announces reaches every block after the management delay."""
    least = [int(NEVER_PS)] * (max(block_of) + 1)
    centre = block_of[blueprint.topology.controller]
    if centre != ELSEWHERE:
        least[centre] = blueprint.scenario.control.management_delay_ps
    for crossing in crossings(blueprint, block_of):
        if ELSEWHERE not in (crossing.sender, crossing.receiver):
            least[crossing.sender] = min(least[crossing.sender], crossing.least_ps)
    return tuple(least)


def _frame_ps(blueprint: Blueprint) -> int:
    """How long the fastest link takes for a full frame."""
    fastest_bps = max(link.rate_bps for link in blueprint.topology.links if link.kind == FABRIC)
    mtu_bytes = max(transport.mtu_bytes for transport in blueprint.scenario.transports)
    return serialisation_ps(mtu_bytes, fastest_bps)
