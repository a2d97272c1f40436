"""Placement: which worker hosts which device, and in which block of that worker's it runs.

A pure function of the topology and a number of workers. Nothing it decides can change a result; it decides
how long one takes.

* `packed`: as many parts as asked, racks whole, neighbouring racks together (ring neighbours are often in
  neighbouring racks), switches above the racks spread so that the expected loads balance and, where that
  leaves a choice, next to most of their links. A rack, or whatever hangs together below the second tier,
  that weighs more than one and a half even shares falls apart into servers and leaves; where there are
  still too few pieces, into devices.
* `node`: a worker for each server (host, GPUs, NICs and NVSwitch together) and one for each switch.
* `device`: a worker for each device.

The controller always lives on worker 0, which spares `node` and `device` an actor. `--local --parts N`
packs the same way.

Where a plan says what its jobs send (`emu.devices.pricing.planned_traffic`), `packed` tries two packings: the
one above, and one by the plan, which takes racks in the order in which they send to each other, counts what
devices handle of it, and puts switches next to most of what their links carry. Of both that one is taken
which costs less by the plan (`cost_of`): what the busiest worker handles, and what crosses.

Packing goes twice over the racks: once as if they were all there is, then again with the room that the
switches placed meanwhile have left; the better of the two stays.

Expected loads: packets that each device handles if everybody sends to everybody. An estimate for placement:
it decides how devices are spread over workers and never touches a result. Every NIC sends at its full rate to
all others evenly; switches pass upwards what does not stay below them, in proportion to the rates of their
links upwards, and as much comes back down. A NIC handles what it sends and what it receives; a host and a GPU
work per message, a small fraction of that.

Loads are integers without a unit, comparable within one fabric, at least 1 for every device but the
controller.

Not modelled: what a hash makes of the paths of a plan, links between switches of the same tier, the cost of
one kind of packet against another.

Blocks (`actors.kernel.block`): one worker's devices are cut into parts that fit the cache, as `packed` cuts
them between workers: racks whole, switches next to most of their links. A server with its NICs is never cut.
There is one block up to `NICS_AT_ONCE`, and where a window between blocks would be so short that each port
has fewer than `LEAST_FRAMES` frames in it: what changing blocks costs would not be earned.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology
from actors.kernel.event import NEVER_PS
from actors.kernel.units import serialisation_ps
from emu.base.errors import UsageError
from emu.devices.devices import Blocks, crossings
from emu.devices.drawing import Blueprint

if TYPE_CHECKING:
    from emu.devices.pricing.planned_traffic import PlannedTraffic

UNIT_BPS: Final = 10**6
HOST_SHARE: Final = 8
GPU_SHARE: Final = 16


def expected_loads(topology: Topology) -> tuple[int, ...]:
    """A load for each node, by node number; 0 for the controller."""
    nodes = topology.nodes
    loads = [0 if node.role is Role.CONTROLLER else 1 for node in nodes]
    from_below = [0] * len(nodes)
    below: dict[int, int] = {}
    for nic in topology.nics:
        sent = 0
        for port in topology.ports(nic):
            if port.kind == FABRIC:
                sent += port.rate_bps // UNIT_BPS
                from_below[port.peer] += port.rate_bps // UNIT_BPS
        loads[nic] += 2 * sent
        loads[topology.host_of(nic)] += sent // HOST_SHARE
    for gpu in topology.gpus:
        for nic in topology.nics_of_gpu(gpu):
            loads[gpu] += loads[nic] // (2 * GPU_SHARE)
    for prefix in range(topology.prefixes):
        for switch in topology.prefix_switches(prefix):
            below[switch] = below.get(switch, 0) | 1 << prefix
    for switch in sorted(topology.switches, key=lambda number: (nodes[number].tier, number)):
        arriving = from_below[switch]
        beneath = below.get(switch, 0)
        upwards = [port for port in topology.ports(switch) if nodes[port.peer].tier > nodes[switch].tier]
        crossing = arriving * (len(topology.nics) - _nics_in(topology, beneath)) // len(topology.nics)
        total_bps = sum(port.rate_bps for port in upwards)
        crossing = min(crossing, total_bps // UNIT_BPS)
        for port in upwards:
            from_below[port.peer] += crossing * port.rate_bps // total_bps
            below[port.peer] = below.get(port.peer, 0) | beneath
        loads[switch] += arriving + crossing
    return tuple(loads)


def _nics_in(topology: Topology, prefixes: int) -> int:
    """How many NICs have one of these prefixes."""
    if prefixes == (1 << topology.prefixes) - 1:
        return len(topology.nics)
    count = 0
    while prefixes:
        lowest = prefixes & -prefixes
        count += len(topology.prefix_nics(lowest.bit_length() - 1))
        prefixes ^= lowest
    return count


Placement = Literal["packed", "node", "device"]
PLACEMENTS: Final[tuple[Placement, ...]] = ("packed", "node", "device")

Assignment = tuple[int, ...]
"""A worker's index for each node, by node number."""


def assign(
    topology: Topology,
    workers: int,
    kind: Placement = "packed",
    loads: Sequence[int] | None = None,
    planned: "PlannedTraffic | None" = None,
) -> Assignment:
    """A worker for each node. Workers are numbered without gaps and each has a device.

    `workers` is for `packed`; the other kinds have as many as the fabric demands (`workers_of` counts them).
    `loads` is a weight for each node; without it, what uniform traffic would load them with. `planned` is
    what the jobs send, if that is known: a packing that costs less by it is taken.

    UsageError where there are more workers than devices.
    """
    if kind == "packed" and workers == 1:
        return (0,) * len(topology.nodes)
    if kind == "packed":
        even = _packed(topology, workers, expected_loads(topology) if loads is None else loads)
        if planned is None:
            return even
        by_plan = _packed(topology, workers, planned.loads, planned)
        return min(even, by_plan, key=lambda one: cost_of(topology, one, planned))
    assigned = [0] * len(topology.nodes)
    if kind == "node":
        servers = [topology.server(host) for host in range(len(topology.hosts))]
        for worker, nodes in enumerate([*servers, *((switch,) for switch in topology.switches)]):
            for node in nodes:
                assigned[node] = worker
    else:
        assigned = list(range(len(topology.nodes)))
    assigned[topology.controller] = 0
    return tuple(assigned)


CROSSING_SHARE: Final = 2
"""A packet that crosses costs its two workers as much more as so much of a hop, the divisor of it."""


def planned_cut(topology: Topology, assignment: Assignment, planned: "PlannedTraffic") -> int:
    """How much of what is planned crosses between workers, in the unit of `planned`."""
    return sum(
        planned.links[link.number] for link in topology.links if assignment[link.a] != assignment[link.b]
    )


def cost_of(topology: Topology, assignment: Assignment, planned: "PlannedTraffic") -> int:
    """How long the busiest worker takes for what is planned: what it handles, its share of what crosses."""
    handled = [0] * workers_of(assignment)
    for node, load in enumerate(planned.loads):
        handled[assignment[node]] += load
    return max(handled) + planned_cut(topology, assignment, planned) // (len(handled) * CROSSING_SHARE)


def workers_of(assignment: Assignment) -> int:
    """How many workers an assignment has."""
    return max(assignment) + 1


def cut_links(topology: Topology, assignment: Assignment) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each ordered pair (from, to) of workers with links between them, these links, ascending.

    The lookahead from one worker to the other is the least over these links, and over the management path
    between the controller's worker and those that have hosts. Pairs are in ascending order.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for link in topology.links:
        a, b = assignment[link.a], assignment[link.b]
        if a != b:
            found.setdefault((a, b), []).append(link.number)
            found.setdefault((b, a), []).append(link.number)
    return {pair: tuple(found[pair]) for pair in sorted(found)}


def traffic_of(blueprint: Blueprint, workers: int, kind: Placement) -> "PlannedTraffic | None":
    """What decides with the fabric where devices go; None where that is nothing."""
    if workers == 1 or kind != "packed":
        return None
    from emu.devices.pricing.planned_traffic import planned_traffic  # noqa: PLC0415  a run in one part does without

    return planned_traffic(blueprint.scenario, blueprint.topology, blueprint.plan)


class _Piece(NamedTuple):
    """Devices that stay together."""

    nodes: tuple[int, ...]
    weight: int


class _Packing(NamedTuple):
    """A part for each piece, racks first, then switches; the heaviest part's load; how many links are cut, or
    how much of what is planned crosses."""

    parts: list[int]
    heaviest: int
    cut: int


def _packed(
    topology: Topology, workers: int, loads: Sequence[int], planned: "PlannedTraffic | None" = None
) -> Assignment:
    devices = len(topology.nodes) - 1
    if not 1 <= workers <= devices:
        accepted = f"from 1 to {devices}, the number of devices" if devices > 1 else "1"
        raise UsageError(f"{workers} workers for {devices} devices; accepted: {accepted}")
    assert len(loads) == len(topology.nodes), f"{len(loads)} loads for {len(topology.nodes)} nodes"
    racks, above = _pieces(topology, workers, loads)
    if planned is not None:
        racks = _by_affinity(racks, planned)
    share = -(-sum(piece.weight for piece in (*racks, *above)) // workers)
    best: _Packing | None = None
    room = [share] * workers
    for _ in range(2):
        packing, room = _pack(topology, racks, above, room, share, planned)
        if best is None or (packing.heaviest, packing.cut) < (best.heaviest, best.cut):
            best = packing
    assert best is not None, "two rounds leave a packing"
    return _spread(topology, [*racks, *above], best.parts)


def _pieces(topology: Topology, workers: int, loads: Sequence[int]) -> tuple[list[_Piece], list[_Piece]]:
    """What is packed in order (racks, or what they fell into), and the switches that go where room is."""
    nodes = topology.nodes
    racks: list[_Piece] = []
    above: list[int] = []
    heavy = 3 * sum(loads)
    for rack in _racks(topology):
        piece = _piece(rack, loads)
        if 2 * workers * piece.weight <= heavy:
            racks.append(piece)
            continue
        servers = [topology.server(nodes[node].host) for node in rack if nodes[node].role is Role.HOST]
        racks += [_piece(server, loads) for server in servers]
        above += [node for node in rack if nodes[node].role is Role.SWITCH]
    above += [switch for switch in topology.switches if nodes[switch].tier > 1]
    if len(racks) + len(above) < workers:
        racks = [_piece((node.number,), loads) for node in nodes if node.role in _IN_SERVERS]
        above = list(topology.switches)
    above.sort(key=lambda switch: (nodes[switch].tier, switch))
    return racks, [_piece((switch,), loads) for switch in above]


_IN_SERVERS: Final = (Role.HOST, Role.GPU, Role.NIC, Role.NVSWITCH)


def _piece(nodes: tuple[int, ...], loads: Sequence[int]) -> _Piece:
    return _Piece(nodes, sum(loads[node] for node in nodes))


def _racks(topology: Topology) -> list[tuple[int, ...]]:
    """Servers and leaves that hang together, each in node order, by their first node."""
    nodes = topology.nodes
    root = list(range(len(nodes)))

    def top(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for link in topology.links:
        if nodes[link.a].tier <= 1 and nodes[link.b].tier <= 1:
            a, b = sorted((top(link.a), top(link.b)))
            root[b] = a
    found: dict[int, list[int]] = {}
    for node in nodes:
        if node.role is not Role.CONTROLLER and node.tier <= 1:
            found.setdefault(top(node.number), []).append(node.number)
    return [tuple(members) for members in found.values()]


def _by_affinity(racks: list[_Piece], planned: "PlannedTraffic") -> list[_Piece]:
    """Racks in such an order that each follows those with which it exchanges most; the first comes first."""
    rack_of = {node: at for at, rack in enumerate(racks) for node in rack.nodes}
    sent: list[dict[int, int]] = [{} for _ in racks]
    for (one, other), size in planned.between.items():
        a, b = rack_of[one], rack_of[other]
        if a != b:
            sent[a][b] = sent[a].get(b, 0) + size
            sent[b][a] = sent[b].get(a, 0) + size
    left = list(range(len(racks)))
    order: list[int] = []
    pulled = [0] * len(racks)
    """What each exchanges with those that are in order already; with the last of them twice, so that
    neighbours stay together."""
    while left:
        last = sent[order[-1]] if order else {}
        following = max(left, key=lambda at: (pulled[at] + last.get(at, 0), -at))
        left.remove(following)
        order.append(following)
        for other, size in sent[following].items():
            pulled[other] += size
    return [racks[at] for at in order]


def _pack(
    topology: Topology,
    racks: list[_Piece],
    above: list[_Piece],
    room: list[int],
    share: int,
    planned: "PlannedTraffic | None" = None,
) -> tuple[_Packing, list[int]]:
    """One packing, and the room each part would have for racks with the switches as placed here."""
    parts = _in_order(racks, room)
    load = [0] * len(room)
    where: dict[int, int] = {}
    for piece, part in zip(racks, parts, strict=True):
        load[part] += piece.weight
        where.update(dict.fromkeys(piece.nodes, part))
    left = [share] * len(room)
    for piece in above:
        part = _best_part(topology, piece, where, load, share, planned)
        parts.append(part)
        load[part] += piece.weight
        left[part] -= piece.weight
        where[piece.nodes[0]] = part
    _fill_empty(parts, [*racks, *above], load)
    assigned = _spread(topology, [*racks, *above], parts)
    if planned is None:
        cut = sum(1 for link in topology.links if assigned[link.a] != assigned[link.b])
    else:
        cut = planned_cut(topology, assigned, planned)
    return _Packing(parts, max(load), cut), [max(room, 0) for room in left]


def _in_order(pieces: list[_Piece], room: list[int]) -> list[int]:
    """Pieces in order onto parts in order: each where its middle falls, with both stretched to one length."""
    weight = sum(piece.weight for piece in pieces)
    total = sum(room)
    if total == 0:
        room, total = [1] * len(room), len(room)
    parts: list[int] = []
    part, end, before = 0, room[0], 0
    for piece in pieces:
        middle = (2 * before + piece.weight) * total
        while middle >= 2 * end * weight and part + 1 < len(room):
            part += 1
            end += room[part]
        parts.append(part)
        before += piece.weight
    return parts


def _best_part(
    topology: Topology,
    piece: _Piece,
    where: dict[int, int],
    load: list[int],
    share: int,
    planned: "PlannedTraffic | None",
) -> int:
    """Where a switch goes: of the parts with room the one with most of its links (of what these carry, where
    that is planned), else the least loaded."""
    links = [0] * len(load)
    for port in topology.ports(piece.nodes[0]):
        if port.kind == FABRIC and port.peer in where:
            links[where[port.peer]] += 1 if planned is None else planned.links[port.link]
    roomy = [part for part, carried in enumerate(load) if carried + piece.weight <= share]
    if roomy:
        return min(roomy, key=lambda part: (-links[part], load[part], part))
    return min(range(len(load)), key=lambda part: (load[part], part))


def _fill_empty(parts: list[int], pieces: list[_Piece], load: list[int]) -> None:
    """Give each part that got nothing the last piece of the most loaded part that can spare one."""
    held = [parts.count(part) for part in range(len(load))]
    for empty in range(len(load)):
        if held[empty]:
            continue
        giver = max(
            (part for part, count in enumerate(held) if count > 1), key=lambda part: (load[part], -part)
        )
        moved = max(index for index, part in enumerate(parts) if part == giver)
        parts[moved] = empty
        for part, sign in ((giver, -1), (empty, 1)):
            held[part] += sign
            load[part] += sign * pieces[moved].weight


def _spread(topology: Topology, pieces: list[_Piece], parts: Sequence[int]) -> Assignment:
    """The part of each piece, for each of its nodes; the controller on 0."""
    assigned = [0] * len(topology.nodes)
    for piece, part in zip(pieces, parts, strict=True):
        for node in piece.nodes:
            assigned[node] = part
    return tuple(assigned)


NICS_AT_ONCE: Final = 128
"""NICs that are one block with their servers and their share of the switches: more would not pay."""
NICS_PER_BLOCK: Final = 32
"""NICs of a larger fabric that leave room, with their frames, in a second-level cache of 1 MiB."""
LEAST_FRAMES: Final = 4
ELSEWHERE: Final = -1


def cut_into_blocks(
    blueprint: Blueprint, assignment: Assignment, worker: int, nics: int | None = None
) -> Blocks:
    """The blocks of a worker's devices, of about `nics` NICs each; None for what suits the fabric: NICs
    without queue pairs take no room in a cache."""
    topology = blueprint.topology
    every = nics is not None or any(job.attended for job in blueprint.scenario.jobs)
    busy = topology.nics if every else blueprint.plan.pairs
    hosted = sum(assignment[nic] == worker for nic in busy)
    count = 1
    if nics is not None or hosted > NICS_AT_ONCE:
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
