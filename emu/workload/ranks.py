"""The GPUs of a job and their order: placement of jobs on a shared fabric.

Order. GPUs are numbered host by host, as the topology ranks them. `all` and a number take them from the
first; a list takes those it names. The order then says which of them is rank 0, rank 1 and so on:

- contiguous: as taken. Neighbours in a ring sit in one host, then in one rack.
- strided: one from each rack in turn, so that neighbours in a ring sit in different racks as long as the
  racks last. The racks come in the order in which the chosen GPUs first name them.
- a list: the places, among those taken, of rank 0, of rank 1 and so on.

Placement. Where several jobs share a fabric, jobs are placed in the order of the scenario; a GPU that one of
them has, or that a job lists, is taken.

- contiguous: the first free ones in number order, server by server.
- scattered: from every rack in turn, one from each, the racks in the order of the fabric.
- min_cut: within the smallest part of the fabric that has room (server, rack, pod, zone); of several, in the
  one with the least room to spare, so that large holes stay whole. Where no part has room, the fewest: the
  fullest first, and the rest in the one that fits it best. Ranks follow one another part by part, so that a
  ring leaves each part once.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), section 5.1: a scheduler
that knows where servers sit and cuts traffic across zones to a minimum.

Jobs that end and make room for others are `emu schedule` (`emu.doors.weeks.job_queue`).
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.fabric.model import Topology
from emu.base.errors import KnobError
from emu.base.units import counted
from emu.topology.fabric_blocks import blocks
from emu.workload.parts import Part, fewest_parts, parts_of


class PlacementError(KnobError):
    """Ranks that a fabric has no room for. `key` is `ranks` or `order`."""


def place_ranks(
    racks: Sequence[int], ranks: str | int | tuple[int, ...], order: str | tuple[int, ...]
) -> tuple[int, ...]:
    """The GPU of each rank, as an index into `racks`, which holds the rack of each GPU of the fabric.

    `ranks` is "all", how many, or a list of GPUs; `order` is "contiguous", "strided", or a list of places.
    Raises `PlacementError` if the fabric has too few GPUs or the order does not fit.
    """
    chosen = _chosen(len(racks), ranks)
    if order == "contiguous":
        return chosen
    if order == "strided":
        return _strided(chosen, racks)
    if sorted(order) != list(range(len(chosen))):
        raise PlacementError("order", f"does not order {len(chosen)} ranks", _each_once(len(chosen)))
    return tuple(chosen[int(place)] for place in order)


def _each_once(count: int) -> str:
    return f"each of 0 to {count - 1} once"


def _chosen(gpus: int, ranks: str | int | tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(ranks, str):
        if gpus < 2:
            raise PlacementError(
                "ranks", f"the fabric has {counted(gpus, 'GPU')}", "a fabric of at least 2 GPUs"
            )
        return tuple(range(gpus))
    if isinstance(ranks, int):
        if ranks > gpus:
            raise PlacementError(
                "ranks", f"{ranks} ranks on a fabric of {counted(gpus, 'GPU')}", f"at most {gpus}"
            )
        return tuple(range(ranks))
    for gpu in ranks:
        if gpu >= gpus:
            reason = f"there is no GPU {gpu}: the fabric has {gpus}"
            raise PlacementError("ranks", reason, f"numbers from 0 to {gpus - 1}")
    return ranks


def _strided(chosen: tuple[int, ...], racks: Sequence[int]) -> tuple[int, ...]:
    in_rack: dict[int, list[int]] = {}
    for gpu in chosen:
        in_rack.setdefault(racks[gpu], []).append(gpu)
    deepest = max(len(gpus) for gpus in in_rack.values())
    return tuple(gpus[place] for place in range(deepest) for gpus in in_rack.values() if place < len(gpus))


def allocate(
    topology: Topology, racks: Sequence[int], taken: Sequence[bool], count: int, placement: str
) -> tuple[int, ...]:
    """`count` GPUs that are not taken, as indices into `topology.gpus`, in rank order.

    `racks` has the rack of each GPU, `taken` whether it is taken. Raises `PlacementError` if too few are
    free.
    """
    free = [gpu for gpu in range(len(taken)) if not taken[gpu]]
    if count > len(free):
        reason = f"{count} ranks, but {len(free)} of {len(taken)} GPUs are free"
        raise PlacementError("ranks", reason, f"at most {len(free)}")
    if placement == "contiguous":
        return tuple(free[:count])
    if placement == "scattered":
        return tuple(_in_turn(free, racks)[:count])
    assert placement == "min_cut", placement
    return tuple(fewest_parts(_parts(topology, taken), count))


def _in_turn(free: list[int], racks: Sequence[int]) -> list[int]:
    in_rack: dict[int, list[int]] = {rack: [] for rack in racks}
    for gpu in free:
        in_rack[racks[gpu]].append(gpu)
    deepest = max(len(gpus) for gpus in in_rack.values())
    return [gpus[place] for place in range(deepest) for gpus in in_rack.values() if place < len(gpus)]


def _parts(topology: Topology, taken: Sequence[bool]) -> list[Part]:
    on_host: dict[int, list[int]] = {host: [] for host in topology.hosts}
    for index, gpu in enumerate(topology.gpus):
        if not taken[index]:
            on_host[topology.host_of(gpu)].append(index)
    return [parts_of(block, lambda host: Part(0, (), on_host[host])) for block in blocks(topology)]
