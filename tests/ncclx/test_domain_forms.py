"""Do the algorithms that know servers take the time of their closed forms, alone on a fabric?

M servers of L GPUs on one switch; terms as in `tests.ncclx.test_closed_forms`, and for NVLink

    over(m)    m bytes, or 64 B for none, at the NVLink's rate
    nsent(m)   post to completion: 2 h, over(m), two NVLink delays
    nfirst(m)  the later of copy(m) and nsent(64 B)
    nstep(m)   nsent(m) and copy(m)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.ncclx.test_closed_forms import (
    SIZES,
    SLICE,
    H,
    blocks,
    copy,
    first,
    line,
    memory,
    part,
    shared,
    step,
    took_ps,
    weights,
    wire,
)

NVLINK_BPS: Final = 3600 * 10**9
NVLINK_PS: Final = 150_000
NVLS_PS: Final = 2_000_000
NVLS_EFFICIENCY: Final = 0.8

SHAPES: Final = ((2, 2), (2, 3), (4, 2), (4, 3))
"""GPUs of a server, and servers: 4, 6, 8 and 12 ranks."""


def over(m: float) -> float:
    return max(m, 64) * 8 * 10**12 / NVLINK_BPS


def nsent(m: float) -> float:
    return 2 * H + over(m) + 2 * NVLINK_PS


def nfirst(m: float) -> float:
    return max(copy(m), nsent(64))


def nstep(m: float) -> float:
    return nsent(m) + copy(m)


def last_slice(m: float) -> tuple[float, float]:
    """The bytes before the last slice of a message, and those of it."""
    before = (max(1, -(-int(m) // SLICE)) - 1) * SLICE
    return before, m - before


def inside(m: float, gpus: int) -> float:
    """A round in which every GPU gives each neighbour a message: all leave on one NVLink."""
    before, last = last_slice(m)
    return over(before) * (before > 0) + nstep(last) + (gpus - 2) * over(m)


def rail(m: float) -> float:
    """A round from server to server."""
    before, last = last_slice(m)
    return (line(wire(before)) if before else 0) + step(last)


def hierarchical_all_reduce(gpus: int, servers: int, s: int) -> float:
    """In, M - 1 rounds that reduce, M - 1 that gather, and in again. Before each a copy into the slot."""
    m = part(s, gpus)
    b = part(m, servers)
    time = nfirst(min(m, SLICE)) + inside(m, gpus)
    time += 2 * (servers - 1) * (memory(min(b, SLICE)) + rail(b))
    return time + memory(min(m, SLICE)) + inside(m, gpus)


def hierarchical_scatter(gpus: int, servers: int, s: int) -> float:
    """In, with the blocks of a rail in a message; M - 1 rounds of a block."""
    b = blocks(gpus * servers, s)
    m = b * servers
    return nfirst(min(m, SLICE)) + inside(m, gpus) + (servers - 1) * (memory(b) + rail(b))


def hierarchical_gather(gpus: int, servers: int, s: int) -> float:
    """The same backwards."""
    b = blocks(gpus * servers, s)
    m = b * servers
    time = first(b) + rail(b) + (servers - 2) * (memory(b) + rail(b))
    return time + memory(min(m, SLICE)) + inside(m, gpus)


def pxn_all_to_all(gpus: int, servers: int, s: int) -> float:
    """What is for this server and for the next leaves first; then a message of the whole server for the next
    one, and the others behind it on the rail.
    """
    b = blocks(gpus * servers, s)
    m = b * gpus
    before, last = last_slice(m)
    time = max(2 * H + 400_000 + 2 * memory(b), nsent(64))
    time += nsent(b) + (2 * (gpus - 1) - 1) * over(b)
    time += copy(b) + memory(min(m, SLICE))
    time += (line(wire(before)) if before else 0) + step(last)
    return time + (servers - 2) * line(wire(m))


def pxn_unequal(gpus: int, servers: int, s: int) -> float:
    """The same with sizes of their own: of each place in a server, what comes from its neighbours for the
    first rail message, that message, and the others behind it; the last place of all ends it.
    """
    n = gpus * servers
    far = [s * weight // sum(weights(n)) for weight in weights(n)]
    ends = []
    for target in range(gpus):

        def one(hop: int, origin: int, place: int) -> int:
            return far[(hop * gpus + place - origin) % n]

        ready = 0.0
        for origin in set(range(gpus)) - {target}:
            sends = [(hop, (origin + turn) % gpus) for hop in (0, 1) for turn in range(1, gpus)]
            before = [over(one(hop, origin, place)) for hop, place in sends[: sends.index((1, target))]]
            last = one(1, origin, target)
            begins = max(2 * H + 400_000 + memory(far[0]) + memory(one(0, origin, sends[0][1])), nsent(64))
            ready = max(ready, begins + sum(before) + nsent(last) + copy(last))
        rail = [sum(one(hop, origin, target) for origin in range(gpus)) for hop in range(1, servers)]
        early, late = last_slice(rail[-1])
        time = ready + memory(min(rail[0], SLICE)) + shared(*rail[:-1])
        ends.append(time + (line(wire(early)) if early else 0) + step(late))
    return max(ends)


def flat_ring(gpus: int, servers: int, s: int, channels: int) -> float:
    """A chunk goes round twice but for two hops, which are within a server where it can choose: 2 M hops over
    the network, 2 M - 1 of two GPUs each, and the others over NVLink. Channels have a NIC each to leave by.
    All begin at once, so chunks meet where they leave the first server, if NVLink brings them faster.
    """
    n = gpus * servers
    b = part(part(s, channels), n)
    far = 2 * servers - (gpus == 2)
    meeting = (gpus - 1) * max(0.0, line(wire(b)) - nstep(b))
    return first(b) + far * step(b) + (2 * (n - 1) - far) * nstep(b) + meeting


FORMS: Final[dict[tuple[str, str], Callable[[int, int, int], float]]] = {
    ("hierarchical", "all_reduce"): hierarchical_all_reduce,
    ("hierarchical", "reduce_scatter"): hierarchical_scatter,
    ("hierarchical", "all_gather"): hierarchical_gather,
    ("pxn", "all_to_all"): pxn_all_to_all,
    ("pxn", "all_to_allv"): pxn_unequal,
}


def test_a_tree_goes_along_a_chain_in_each_server_and_between_the_first_of_them() -> None:
    """A chunk m of each tree: up and down L - 1 edges and the tree of servers, whose siblings meet."""
    wrong = []
    for gpus, servers in (*SHAPES, (4, 4)):
        for size in (4 << 10, 32 << 10, 128 << 10, 2 * SLICE):
            took = took_ps("all_reduce", "double_binary_tree", gpus * servers, size, gpus)
            m, (hops, meeting) = size / 2, {2: (2, 0), 3: (4, 0), 4: (4, 2)}[servers]
            form = (
                nfirst(m) + 2 * (gpus - 1) * nstep(m) + 2 * over(m) + hops * step(m) + shared(*[m] * meeting)
            )
            if abs(took - form) > 0.02 * form:
                wrong.append((gpus, servers, size, took, round(form), round(took / form, 4)))
    assert wrong == []


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_flat_ring_has_a_nic_of_each_server_for_every_channel(channels: int) -> None:
    wrong = []
    for gpus, servers in ((2, 2), (4, 2), (4, 4)):
        if channels > gpus:
            continue
        for size in SIZES:
            took = took_ps("all_reduce", "ring", gpus * servers, size, gpus, {"channels": channels})
            form = flat_ring(gpus, servers, size, channels)
            if abs(took - form) > 0.02 * form:
                wrong.append((gpus, servers, size, took, round(form), round(took / form, 4)))
    assert wrong == []


def test_channels_with_the_same_order_share_the_nic_that_they_leave_by() -> None:
    size = 4 << 20
    turned, same = (
        took_ps("all_reduce", "ring", 8, size, 4, {"channels": 4, "ring_order": order})
        for order in ("by_channel", "same")
    )
    # What leaves a server by one NIC: twice the data but for a chunk of each round.
    assert same > line(wire(2 * size * 7 / 8))
    assert turned < same / 2


def nvls_reduce(m: float, gpus: int) -> float:
    """Each sends every head its part, itself among them; a head's link takes the sum once, with the last."""
    return 2 * H + gpus * over(m) / NVLS_EFFICIENCY + 2 * NVLINK_PS + copy(m)


def nvls_multicast(m: float, gpus: int) -> float:
    """A head sends once, and a link takes the parts of all heads, its own GPU's among them: of n GPUs n - 1
    transfers of 1 / (n - 1) and of n / (n - 1), the first of which arrives while it leaves.
    """
    taken = 1 / (gpus - 1) + (gpus - 2) * gpus / (gpus - 1)
    return 2 * H + taken * over(m) / NVLS_EFFICIENCY + 2 * NVLINK_PS + copy(m)


def nvls_tree(gpus: int, servers: int, s: int) -> float:
    """One chunk of each part: up and down a tree of servers in between (`tree_all_reduce`)."""
    m = part(s, gpus)
    hops, meeting = {1: (0, 0), 2: (2, 0), 4: (4, 1)}[servers]
    between = hops * step(m) + meeting * 2 * line(wire(m)) + memory(m) * (hops > 0)
    return NVLS_PS + nfirst(m) + nvls_reduce(m, gpus) + between + memory(m) + nvls_multicast(m, gpus)


@pytest.mark.parametrize(("gpus", "servers"), [(2, 1), (4, 1), (8, 1), (4, 2), (2, 4), (4, 4)])
def test_a_switch_that_reduces_and_multicasts_takes_the_time_of_its_closed_form(
    gpus: int, servers: int
) -> None:
    wrong = []
    for size in (4 << 10, 16 << 10, 32 << 10):
        algorithm = "nvls_tree" if servers > 1 else "nvls"
        took, form = (
            took_ps("all_reduce", algorithm, gpus * servers, size, gpus),
            nvls_tree(gpus, servers, size),
        )
        if abs(took - form) > 0.02 * form:
            wrong.append((size, took, round(form), round(took / form, 4)))
    assert wrong == []


def test_an_nvls_all_reduce_of_many_chunks_passes_each_link_once_and_an_eighth() -> None:
    """S to reduce and S / L to multicast leave a GPU at the same time as they arrive, and eight chunks of
    reducing before the first multicast. A direct exchange has S (L - 1) / L twice, at the whole rate.
    """
    size = 32 << 20
    took = took_ps("all_reduce", "nvls", 8, size, 8, {"channels": 2})
    each = over(size) * 9 / 8 / NVLS_EFFICIENCY
    assert each < took < each + 3 * 8 * 7 * over(128 << 10)
    direct = took_ps("all_reduce", "hierarchical", 8, size, 8, {"channels": 2})
    assert direct > 2 * over(size) * 7 / 8


@pytest.mark.parametrize(("algorithm", "op"), FORMS)
def test_on_servers_an_algorithm_takes_the_time_of_its_closed_form(algorithm: str, op: str) -> None:
    wrong = []
    for gpus, servers in SHAPES:
        for size in SIZES:
            took = took_ps(op, algorithm, gpus * servers, size, gpus)
            form = FORMS[algorithm, op](gpus, servers, size)
            if abs(took - form) > 0.02 * form:
                wrong.append((gpus, servers, size, took, round(form), round(took / form, 4)))
    assert wrong == []
