"""Which GPUs does a job use, and in which order are they ranks?

Rules. GPUs are numbered host by host, as the topology ranks them. `all` and a number take them from the
first; a list takes those it names. The order then says which of them is rank 0, rank 1 and so on:

- contiguous: as taken. Neighbours in a ring sit in one host, then in one rack.
- strided: one from each rack in turn, so that neighbours in a ring sit in different racks as long as the
  racks last. The racks come in the order in which the chosen GPUs first name them.
- a list: the places, among those taken, of rank 0, of rank 1 and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.errors import KnobError
from emu.units import counted


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
