"""Does every algorithm take the time of its closed form, alone on a fabric?

One switch, four sizes, three numbers of ranks (8 and others than powers of two). Every term is configuration;
nothing here asks the model.

    h        a message on a host link: its delay, and 64 B at its rate
    copy(m)  ask the GPU, latency, m bytes at its copy rate, answer: 2 h + latency + m / rate
    wire(m)  m bytes and 82 B for each packet of the MTU, 20 B more for the address and the immediate
    sent(m)  post to completion: 2 h, wire(m) at the line's rate, one more packet of it at the switch, two
             propagations, the latency of the switch and of the receiving NIC
    cts      sent(64 B)
    first(m) the later of copy(m) and cts
    step(m)  sent(m) and copy(m)

A round ends with step(m); what it brought is in memory when the next message is copied in, straight after it
in the GPU: m bytes at its copy rate. Messages that share a line with a round add their wire(m) to it. ACKs
(one per message) and all CTS but the first go in between and are not in the forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from actors.control.controller import Controller
from actors.ncclx.schedule import LIBRARY
from emu.devices.devices import build_kernel
from emu.devices.drawing import draw
from emu.scenario.schema import Scenario
from tests.scenario.plain import plain

LINE_BPS: Final = 400 * 10**9
DELAY_PS: Final = 500_000
NIC_PS: Final = 300_000
SWITCH_PS: Final = 700_000
HOST_DELAY_PS: Final = 250_000
HOST_BPS: Final = 512 * 10**9
COPY_BPS: Final = 24 * 10**12
COPY_PS: Final = 400_000
MTU: Final = 4096
SLICE: Final = 128 << 10

H: Final = HOST_DELAY_PS + 64 * 8 * 10**12 // HOST_BPS
SIZES: Final = (4 << 10, 32 << 10, 128 << 10, 512 << 10)
TREE_SIZES: Final = (2 << 10, 8 << 10, 32 << 10, 64 << 10)
"""Those of which each tree has one chunk; more are in `tests.ncclx.test_tree_forms`. PAT's blocks fit a
step of the buffer, n/2 at once.
"""
LARGE: Final = (16 << 20, 24 << 20, 32 << 20, 40 << 20)
"""Those of which each tree has so many chunks that their pipeline weighs more than filling it."""
RING_SIZES: Final = (1 << 20, 2 << 20, 3 << 20, 4 << 20)
"""Those of which a block has two slices to eight, a whole chunk."""
RANKS: Final = (4, 6, 8)


def line(wire_bytes: float) -> float:
    return wire_bytes * 8 * 10**12 / LINE_BPS


def packets(m: float) -> int:
    return max(1, math.ceil(m / MTU))


def wire(m: float) -> float:
    return m + 82 * packets(m) + 20


def copy(m: float) -> float:
    return 2 * H + COPY_PS + m * 8 * 10**12 / COPY_BPS


def sent(m: float) -> float:
    return 2 * H + line(wire(m)) + line(wire(min(m, MTU))) + 2 * DELAY_PS + NIC_PS + SWITCH_PS


CTS: Final = sent(64)


def first(m: float) -> float:
    return max(copy(m), CTS)


def step(m: float) -> float:
    return sent(m) + copy(m)


def memory(m: float) -> float:
    return m * 8 * 10**12 / COPY_BPS


def rounds(sizes: list[float]) -> float:
    """Rounds one after another. The first waits for its CTS; what the last slice of a message brings is
    copied or reduced, and the first slice of the next is copied in straight after it.
    """
    time = first(min(sizes[0], SLICE))
    for turn, m in enumerate(sizes):
        before = (max(1, math.ceil(m / SLICE)) - 1) * SLICE
        time += line(wire(before)) if before else 0
        time += step(m - before)
        time += memory(min(sizes[turn + 1], SLICE)) if turn + 1 < len(sizes) else 0
    return time


def blocks(n: int, s: int) -> int:
    return -(-s // n)


def part(s: int, n: int) -> int:
    return math.ceil(math.ceil(s / n) / 16) * 16


def pof2(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def log2(n: int) -> int:
    return n.bit_length() - 1


def shared(*sizes: float) -> float:
    """What messages that share a line with a round add to it."""
    return sum(line(wire(m)) for m in sizes)


def doubling_all_reduce(n: int, s: int) -> float:
    """6 ranks: two that do not fold are a round ahead, so they meet the first round of those who do; and the
    last send to the peer leaves with that to the folded.
    """
    return rounds([s] * 3) + shared(s, s) if n == 6 else rounds([s] * log2(n))


def doubling_gather(n: int, s: int) -> float:
    """6 ranks: a block; two blocks from each of two; four blocks to the peer and to the folded at once."""
    b = blocks(n, s)
    if n == 6:
        return rounds([b, 2 * b, 4 * b]) + shared(2 * b, 4 * b)
    return rounds([b << turn for turn in range(log2(n))])


def halving_scatter(n: int, s: int) -> float:
    """6 ranks: the whole, with it four blocks from one who does not fold; two blocks each to two; one
    back."""
    b = blocks(n, s)
    if n == 6:
        return rounds([s, 2 * b, b]) + shared(4 * b, 2 * b)
    return rounds([b << turn for turn in reversed(range(log2(n)))])


def halving_doubling(n: int, s: int) -> float:
    p = pof2(n)
    each = part(s, p)
    halves: list[float] = [each * (p >> turn) for turn in range(1, log2(n) + 1)]
    fold: list[float] = [s] if n != p else []
    return rounds(fold + halves + halves[::-1] + fold) + (shared(2 * each, 2 * each) if fold else 0)


def bruck_gather(n: int, s: int) -> float:
    """6 ranks: the last two rounds need only the first."""
    b = blocks(n, s)
    if n == 6:
        return rounds([b, 2 * b]) + shared(2 * b)
    return rounds([b << turn for turn in range(log2(n))])


def pat(n: int, s: int) -> float:
    """Blocks to n/2 further on, then n/4, .. 1. 6 ranks: nobody is 6 further on; the first two messages are
    own blocks, and the last has what came 4 further on.
    """
    b = blocks(n, s)
    if n == 6:
        return rounds([b, 3 * b]) + shared(b)
    return rounds([b << turn for turn in range(log2(n))])


def pat_scattered(n: int, s: int) -> float:
    """The same backwards."""
    b = blocks(n, s)
    if n == 6:
        return rounds([3 * b, b]) + shared(b)
    return rounds([b << turn for turn in reversed(range(log2(n)))])


def bruck_all_to_all(n: int, s: int) -> float:
    b = blocks(n, s)
    if n == 6:
        return rounds([3 * b, 2 * b]) + shared(2 * b)
    return rounds([b * n // 2] * log2(n))


def direct_exchange(n: int, s: int) -> float:
    """All messages share the line; their copies take turns."""
    b = blocks(n, s)
    return rounds([b]) + shared(*[b] * (n - 2))


def weights(n: int) -> list[int]:
    """Of all_to_allv: how much a rank has for itself, the next rank, the one after that .."""
    return [2, 3, 1, 4, 2, 1, 5, 3, 2, 4, 1, 3][:n]


def unequal(n: int, s: int) -> list[int]:
    """Bytes for the next rank, the one after that .."""
    return [s * weight // sum(weights(n)) for weight in weights(n)[1:]]


def direct_unequal(n: int, s: int) -> float:
    """Every turn is a permutation of the ranks, so that messages share the sender's line and no other."""
    first_one, *others = unequal(n, s)
    return rounds([others[-1]]) + shared(first_one, *others[:-1])


def bruck_unequal(n: int, s: int) -> float:
    """Round k carries what is for those 2^k, .. further on. 6 ranks: the last two need only the first."""
    far = [0, *unequal(n, s)]
    sizes = [sum(far[at] for at in range(n) if at >> turn & 1) for turn in range((n - 1).bit_length())]
    if n == 6:
        return rounds([sizes[0], sizes[2]]) + shared(sizes[1])
    return rounds(list(map(float, sizes)))


def direct_all_reduce(n: int, s: int) -> float:
    b = part(s, n)
    return rounds([b, b]) + 2 * shared(*[b] * (n - 2))


def direct_whole(n: int, s: int) -> float:
    return rounds([s]) + shared(*[s] * (n - 2))


def ring_whole(n: int, s: int) -> float:
    """The first slice goes all the way; the others follow at the line's rate."""
    a_slice = min(s, SLICE)
    return first(a_slice) + (n - 1) * step(a_slice) + line(wire(s) - wire(a_slice))


def ring_rounds(count: int, b: int) -> float:
    """Slices follow one another round the ring: a round takes the line's time of all of them, or a step of
    one, whichever is longer.
    """
    one, before = min(b, SLICE), (max(1, math.ceil(b / SLICE)) - 1) * SLICE
    time = first(one) + (count - 1) * max(line(wire(b)), step(one))
    return time + (line(wire(before)) if before else 0) + step(b - before)


def ring_blocks(n: int, s: int) -> float:
    return ring_rounds(n - 1, blocks(n, s))


def ring_all_reduce(n: int, s: int) -> float:
    return ring_rounds(2 * (n - 1), part(s, n))


def pairwise(n: int, s: int) -> float:
    return rounds([s])


def two_hops(n: int, s: int) -> float:
    return rounds([4, 4])


def tree(c: float, hops: int, meeting: int) -> float:
    """One chunk in each tree takes `hops`, sharing a line `meeting` times."""
    return first(c) + hops * step(c) + shared(*[c] * meeting)


def tree_all_reduce(n: int, s: int) -> float:
    """0 is above n/2, which is above two, and so on. Siblings meet at their parent, and on the way back."""
    return tree(s // 2, *{4: (4, 2), 6: (6, 3), 8: (6, 4)}[n])


def tree_pipeline(n: int, s: int) -> float:
    """Many chunks: the first pair takes its hops; each after it costs the four messages that one rank
    receives, three as an inner node of one tree and one as a leaf of the other.
    """
    chunks, hops = s // 2 // SLICE, {4: 4, 6: 6, 8: 6}[n]
    return first(SLICE) + hops * step(SLICE) + shared(*[SLICE] * 4) * (chunks - 1)


def tree_broadcast(n: int, s: int) -> float:
    """Trees over n - 1; the root sends both halves, an inner node what it has to two."""
    return tree(s // 2, *{4: (3, 1), 6: (4, 2), 8: (4, 3)}[n])


def tree_reduce(n: int, s: int) -> float:
    return tree(s // 2, *{4: (3, 1), 6: (4, 2), 8: (4, 2)}[n])


FORMS: Final[dict[tuple[str, str], Callable[[int, int], float]]] = {
    ("ring", "all_reduce"): ring_all_reduce,
    ("ring", "all_gather"): ring_blocks,
    ("ring", "reduce_scatter"): ring_blocks,
    ("ring", "broadcast"): ring_whole,
    ("ring", "reduce"): ring_whole,
    ("direct", "all_reduce"): direct_all_reduce,
    ("direct", "all_gather"): direct_exchange,
    ("direct", "reduce_scatter"): direct_exchange,
    ("direct", "all_to_all"): direct_exchange,
    ("direct", "gather"): direct_exchange,
    ("direct", "scatter"): direct_exchange,
    ("direct", "broadcast"): direct_whole,
    ("direct", "reduce"): direct_whole,
    ("direct", "sendrecv"): pairwise,
    ("direct", "barrier"): two_hops,
    ("recursive_doubling", "all_reduce"): doubling_all_reduce,
    ("recursive_doubling", "all_gather"): doubling_gather,
    ("recursive_doubling", "barrier"): lambda n, s: doubling_all_reduce(n, 4),
    ("halving_doubling", "all_reduce"): halving_doubling,
    ("halving_doubling", "all_gather"): doubling_gather,
    ("halving_doubling", "reduce_scatter"): halving_scatter,
    ("bruck", "all_gather"): bruck_gather,
    ("pat", "all_gather"): pat,
    ("pat", "reduce_scatter"): pat_scattered,
    ("bruck", "all_to_all"): bruck_all_to_all,
    ("double_binary_tree", "all_reduce"): tree_all_reduce,
    ("double_binary_tree", "broadcast"): tree_broadcast,
    ("double_binary_tree", "reduce"): tree_reduce,
    ("double_binary_tree", "barrier"): lambda n, s: tree_all_reduce(n, 8),
    ("direct", "all_to_allv"): direct_unequal,
    ("bruck", "all_to_allv"): bruck_unequal,
    ("bruck", "barrier"): lambda n, s: rounds([0] * (n - 1).bit_length()),
}


def took_ps(
    op: str,
    algorithm: str,
    ranks: int,
    size: int,
    gpus_per_host: int = 1,
    ncclx: dict[str, Any] | None = None,
) -> int:
    """How long the model takes, on servers of so many GPUs; `ncclx` holds what differs in that section."""
    workload: dict[str, Any] = {
        "kind": "collective",
        "op": op,
        "algorithm": algorithm,
        "sizes": (f"{size}B",),
    }
    if op == "all_to_allv":
        turns = [weights(ranks)[-rank:] + weights(ranks)[:-rank] for rank in range(ranks)]
        workload["counts"] = tuple(map(tuple, turns))
    given: dict[str, Any] = plain(
        {
            "name": "alone",
            "topology": {"kind": "star", "hosts": ranks // gpus_per_host, "gpus_per_host": gpus_per_host},
            "switch": {"latency": "700ns"},
            "nic": {"latency": "300ns"},
            "host": {
                "link_delay": "250ns",
                "link_rate": "512G",
                "nvlink": {
                    "rate": "3600G",
                    "delay": "150ns",
                    "nvls_latency": "2us",
                    "nvls_efficiency": 0.8,
                },
            },
            "gpu": {"copy_rate": "24T", "copy_latency": "400ns", "channel_rate": "3600G"},
            "ncclx": {"buffsize": "2MiB", "steps": 16, "chunk_steps": 8, "slice_steps": 1} | (ncclx or {}),
            "transport": {"ack_every": 64, "ack_priority": 6},
            "jobs": ({"name": "bench", "workload": workload},),
        }
    )
    blueprint = draw(Scenario.model_validate(given))
    kernel, _ = build_kernel(blueprint, [0] * len(blueprint.topology.nodes), 0)
    kernel.start()
    while kernel.run(1 << 61, 1 << 20) == 1 << 20:
        pass
    controller = kernel.device(blueprint.topology.controller)
    assert isinstance(controller, Controller)
    ((_, _, start_ps, end_ps, status),) = controller.operations
    assert status == 0
    return end_ps - start_ps


@pytest.mark.parametrize(("algorithm", "op"), FORMS)
def test_alone_an_algorithm_takes_the_time_of_its_closed_form(algorithm: str, op: str) -> None:
    wrong = []
    for ranks in RANKS:
        for size in (
            (4,) if op == "barrier" else TREE_SIZES if algorithm in ("double_binary_tree", "pat") else SIZES
        ):
            took, form = took_ps(op, algorithm, ranks, size), FORMS[algorithm, op](ranks, size)
            if abs(took - form) > 0.02 * form:
                wrong.append((ranks, size, took, round(form), round(took / form, 4)))
    assert wrong == []


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_of_many_slices_takes_the_time_of_its_closed_form(op: str) -> None:
    wrong = []
    for ranks in RANKS:
        for size in RING_SIZES:
            took, form = took_ps(op, "ring", ranks, size), FORMS["ring", op](ranks, size)
            if abs(took - form) > 0.02 * form:
                wrong.append((ranks, size, took, round(form), round(took / form, 4)))
    assert wrong == []


@pytest.mark.parametrize("ranks", RANKS)
def test_a_tree_of_many_chunks_takes_the_time_of_its_pipeline(ranks: int) -> None:
    wrong = []
    for size in LARGE:
        took, form = took_ps("all_reduce", "double_binary_tree", ranks, size), tree_pipeline(ranks, size)
        if abs(took - form) > 0.02 * form:
            wrong.append((size, took, round(form), round(took / form, 4)))
    assert wrong == []


def test_every_collective_of_every_algorithm_has_a_form() -> None:
    by_server = ("hierarchical", "pxn", "nvls", "nvls_tree")  # tests.ncclx.test_domain_forms
    pairs = {(name, op) for name, one in LIBRARY.items() for op in one.collectives if name not in by_server}
    assert pairs - set(FORMS) == set()
