"""The order of a channel's ring through the GPUs of each server.

A ring that had the ranks' order on every channel would leave each server by the NIC of its last GPU, and
enter it by that of its first, however many channels there are. NCCL looks for rings with other NICs on every
channel, two at a time: the second of a pair comes in where the first goes out. On every other server the two
change places, so that a ring comes in on the rail on which it left the server before. Here a server's GPUs,
in the ranks' order, begin with another GPU for every pair:

    channel    server 0, 2 ..    server 1, 3 ..     over, from an even server and from an odd one
    0          0 1 2 3           3 2 1 0            rail 3, rail 0
    1          3 2 1 0           0 1 2 3            rail 0, rail 3
    2          2 3 0 1           1 0 3 2            rail 1, rail 2
    3          1 0 3 2           2 3 0 1            rail 2, rail 1

After a round through the GPUs it goes on one further, where their number is even, so that a GPU's second NIC
has its turn. With an odd number of channels NCCL does not change places: there every channel begins one GPU
further, in the same direction on all servers, and its ring changes rails between them. One channel has the
ranks' order.

A server is what ranks in a row have in common; an order of ranks that goes from server to server at every
step stays as it is, and so does a ring inside one server.

Source: NCCL 2.30, `src/graph/search.cc` (ncclTopoSearchRecNet with crossNic 2) and `src/graph/connect.cc`
(ncclTopoPostset, "Alternate rings to avoid crossing rails").

Not modelled: NCCL_CROSS_NIC 0 and 1, the order of a search over PCIe, NICs that are closer to one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby


@lru_cache(maxsize=256)
def ring_order(nodes: tuple[int, ...], channels: int, channel: int) -> tuple[int, ...]:
    """The places of ranks, which are on these servers, in the order of a channel's ring."""
    runs = [list(run) for _, run in groupby(range(len(nodes)), key=nodes.__getitem__)]
    if channels == 1 or len(runs) == 1:
        return tuple(range(len(nodes)))
    found: list[int] = []
    for number, run in enumerate(runs):
        found += _turned(run, channels, channel, odd=number % 2 == 1)
    return tuple(found)


def _turned(run: Sequence[int], channels: int, channel: int, *, odd: bool) -> list[int]:
    """The ranks of one server."""
    first = channel if channels % 2 else channel - channel % 2
    if len(run) % 2 == 0:
        first += first // len(run)
    first %= len(run)
    found = [*run[first:], *run[:first]]
    backwards = channels % 2 == 0 and (channel % 2 == 1) != odd
    return found[::-1] if backwards else found
