"""Which free GPUs does a job get, when several jobs share a fabric?

Jobs are placed in the order of the scenario; a GPU that one of them has, or that a job lists, is taken.

- contiguous: the first free ones in number order, server by server.
- scattered: from every rack in turn, one from each, the racks in the order of the fabric.
- min_cut: within the smallest part of the fabric that has room (server, rack, pod, zone); of several, in the
  one with the least room to spare, so that large holes stay whole. Where no part has room, the fewest: the
  fullest first, and the rest in the one that fits it best. Ranks follow one another part by part, so that a
  ring leaves each part once.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), section 5.1: a scheduler
that knows where servers sit and cuts traffic across zones to a minimum.

Not modelled: jobs that end and make room for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.fabric.model import Topology
from emu.topology.blocks import Block, blocks
from emu.workload.ranks import PlacementError


class _Part:
    """A part of the fabric: its free GPUs and the parts in it."""

    def __init__(self, free: list[int], below: list[_Part]) -> None:
        self.free = free
        self.below = below


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
    return tuple(_pick(_parts(topology, taken), count))


def _in_turn(free: list[int], racks: Sequence[int]) -> list[int]:
    in_rack: dict[int, list[int]] = {rack: [] for rack in racks}
    for gpu in free:
        in_rack[racks[gpu]].append(gpu)
    deepest = max(len(gpus) for gpus in in_rack.values())
    return [gpus[place] for place in range(deepest) for gpus in in_rack.values() if place < len(gpus)]


def _parts(topology: Topology, taken: Sequence[bool]) -> _Part:
    on_host: dict[int, list[int]] = {host: [] for host in topology.hosts}
    for index, gpu in enumerate(topology.gpus):
        if not taken[index]:
            on_host[topology.host_of(gpu)].append(index)

    def part(block: Block) -> _Part:
        below = [part(one) for one in block.below]
        below += [_Part(on_host[host], []) for host in block.hosts]
        return _Part([gpu for one in below for gpu in one.free], below)

    tops = [part(block) for block in blocks(topology)]
    return _Part([gpu for one in tops for gpu in one.free], tops)


def _pick(part: _Part, count: int) -> list[int]:
    """`count` of a part's free GPUs out of as few of its parts as can be."""
    if count == 0:
        return []
    if not part.below:
        return part.free[:count]
    fitting = [one for one in part.below if len(one.free) >= count]
    if fitting:
        return _pick(min(fitting, key=lambda one: len(one.free)), count)
    fullest = max(part.below, key=lambda one: len(one.free))
    rest = _Part(part.free, [one for one in part.below if one is not fullest])
    return _pick(fullest, len(fullest.free)) + _pick(rest, count - len(fullest.free))
