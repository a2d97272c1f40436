"""Numbers of queue pairs, UDP source ports, first PSNs and hash seeds, drawn from the scenario's seed.

Real drivers hand out QPNs and UDP source ports in ways that look random to a switch's hash, and a
fabric's luck depends on them. Here they are drawn from the scenario's seed, so that every worker can
compute those of every NIC, and counting up never flatters a hash. A QPN's low bits are a random
permutation of the NIC's slots, so that a NIC finds the queue pair of a packet with one look.
"""

from __future__ import annotations

from typing import Final

from actors.kernel.mixing import Stream

QPN_PURPOSE: Final = 1
UDP_PURPOSE: Final = 2
PSN_PURPOSE: Final = 3
HASH_PURPOSE: Final = 4

FIRST_UDP_SOURCE: Final = 49152
UDP_SOURCES: Final = 65536 - 49152


def slots_for(count: int) -> int:
    """The size of a NIC's table for `count` queue pairs: a power of two."""
    return max(16, 1 << (count - 1).bit_length())


def assign_qpns(seed: int, nic: int, count: int) -> list[int]:
    """The 24-bit numbers of a NIC's queue pairs by index, all different in low bits (`slots_for(count)`)."""
    slots = slots_for(count)
    assert slots <= 1 << 24, count
    stream = Stream(seed, nic, QPN_PURPOSE)
    order = list(range(slots))
    for at in range(slots - 1, 0, -1):
        other = stream.below(at + 1)
        order[at], order[other] = order[other], order[at]
    high_values = (1 << 24) // slots
    return [stream.below(high_values) * slots + order[index] for index in range(count)]


def assign_udp_source(seed: int, nic: int, number: int) -> int:
    """A UDP source port of the dynamic range, for the `number`th flow (or peer) of a NIC."""
    stream = Stream(seed, nic, UDP_PURPOSE)
    stream.counter = number
    return FIRST_UDP_SOURCE + stream.below(UDP_SOURCES)


def first_psn(seed: int, nic: int, index: int) -> int:
    """The 24-bit PSN with which the sender of a queue pair starts."""
    stream = Stream(seed, nic, PSN_PURPOSE)
    stream.counter = index
    return stream.below(1 << 24)


def hash_seed(seed: int, switch: int) -> int:
    """The 32-bit seed of a switch's hash; pass switch -1 for one that is equal everywhere."""
    return Stream(seed, switch + 1, HASH_PURPOSE).below(1 << 31)
