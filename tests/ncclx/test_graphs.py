"""Is every algorithm the collective it says it is? Carried out with symbols, independently of time.

`actors.ncclx.checking` says what each collective starts from and must end with: the right contributions, each
once, in the right place.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from actors.ncclx.algorithms.nvls import Nvls
from actors.ncclx.algorithms.ring import OPERATION_CODES
from actors.ncclx.algorithms.trees import chains, double_tree, place_in, tree_chunk_bytes
from actors.ncclx.checking import GraphError, check
from actors.ncclx.graph import DATA, NOBODY, Call, Extent, Step, StepList, cut, waits
from actors.ncclx.operations import ALGORITHMS, ROOTED
from actors.ncclx.schedule import LIBRARY, KnownPlans, Schedule, byte_counts
from actors.ncclx.transport.channel import GraphChannel
from tests.conftest import SOAK
from tests.ncclx.test_channel import check_bounds
from tests.ncclx.toy import Toy, scenario

CASES = [
    (algorithm, op)
    for algorithm, ops in ALGORITHMS.items()
    for op in ops
    if algorithm != "ring" or op not in OPERATION_CODES
]
SLICE_BYTES, SLOTS = 128, 4
RANKS = range(2, 18) if SOAK else (2, 3, 4, 5, 6, 7, 8, 9, 12, 17)


def calls(op: str, ranks: int, channels: int, size: int, root: int = 0) -> list[Call]:
    """Chunks of two slices, as many slots as by default, uneven counts."""
    counts: tuple[tuple[int, ...], ...] = ()
    if op == "all_to_allv":
        counts = tuple(
            tuple((7 * source + 13 * target) % 5 * 37 for target in range(ranks)) for source in range(ranks)
        )
    # A multiple of 3 has three ranks on each server, another even number two, the others one.
    rails = next(count for count in (3, 2, 1) if ranks % count == 0)
    nodes = tuple(rank // rails for rank in range(ranks))
    return [Call(op, ranks, size, channels, at, 256, 64, root, counts, nodes) for at in range(channels)]


def graphs(algorithm: str, given: list[Call]) -> list[list[list[Step]]]:
    return [[LIBRARY[algorithm].steps(call, rank) for rank in range(call.ranks)] for call in given]


@pytest.mark.parametrize(("algorithm", "op"), CASES)
def test_every_rank_ends_with_every_contribution_once(algorithm: str, op: str) -> None:
    for ranks in RANKS:
        for channels, size in ((3, 2222), (1, 1000), (2, 5)) if ranks < 8 else ((3, 1111),):
            given = calls(op, ranks, channels, size, ranks // 2 if op in ROOTED else 0)
            if algorithm == "nvls":
                given = [one._replace(nodes=(0,) * ranks) for one in given]
            check(given, graphs(algorithm, given), SLICE_BYTES, SLOTS)


def test_the_table_of_the_schema_is_what_the_algorithms_say() -> None:
    known = {name: tuple(one.collectives) for name, one in LIBRARY.items()}
    known["ring"] = (*OPERATION_CODES, *known["ring"])
    assert {name: sorted(ops) for name, ops in known.items()} == {
        name: sorted(ops) for name, ops in ALGORITHMS.items()
    }


def halves(ranks: int) -> tuple[list[Call], list[list[list[Step]]]]:
    """A correct all_reduce, to be spoiled."""
    given = calls("all_reduce", ranks, 1, 64)
    return given, graphs("recursive_doubling", given)


def refused(given: list[Call], made: list[list[list[Step]]]) -> str:
    with pytest.raises(GraphError) as caught:
        check(given, made, SLICE_BYTES, SLOTS)
    return str(caught.value)


def test_a_missing_contribution_is_named() -> None:
    given, made = halves(4)
    # Ranks 0 and 2 do not talk, nor 1 and 3.
    made = [[steps[:2] for steps in made[0]]]
    assert refused(given, made) == "rank 0: byte 0 lacks rank 3"


def test_a_contribution_that_comes_twice_is_named() -> None:
    given, made = halves(2)
    made = [[steps * 2 for steps in made[0]]]
    assert refused(given, made) in (
        "rank 0, channel 0, step 3: adds the contribution of rank 1 a second time",
        "rank 1, channel 0, step 3: adds the contribution of rank 1 a second time",
    )


def test_a_size_that_differs_at_the_two_ends_is_named() -> None:
    given, made = halves(2)
    made[0][0][0] = made[0][0][0]._replace(source=(Extent(DATA, 0, 32),), size_bytes=32)
    assert refused(given, made) == "rank 1, channel 0, step 1: gets 32 B from rank 0 where it expects 64"


def test_waiting_for_one_another_is_named() -> None:
    given, made = halves(2)
    made = [[list(reversed(steps)) for steps in made[0]]]
    assert refused(given, made) == "rank 0, channel 0, step 0: waits for data from rank 1 for ever"


def test_what_nobody_receives_is_named() -> None:
    given, made = halves(2)
    made[0][0].append(made[0][0][0])
    assert refused(given, made) == "rank 1 never receives what rank 0 sends on lane 0"


def test_an_exchange_larger_than_the_channel_buffer_stops_unless_it_is_cut() -> None:
    """Both send all before they receive: with 4 slots, 5 slices do not fit."""
    whole = (Extent(DATA, 0, 5 * SLICE_BYTES),)
    given = calls("all_reduce", 2, 1, 5 * SLICE_BYTES)
    made = []
    for rank in range(2):
        steps = StepList(5 * SLICE_BYTES)
        steps.exchange(1 - rank, whole, whole, reduce=True)
        made.append(steps.steps)
    assert "for ever" in refused(given, [made])
    check(given, graphs("recursive_doubling", given), SLICE_BYTES, SLOTS)


def test_a_peer_that_is_not_there_is_named() -> None:
    given, made = halves(2)
    made[0][1][0] = made[0][1][0]._replace(sends=(2,))
    assert refused(given, made).startswith("rank 1, channel 0, step 0: talks to rank 2")


def test_a_step_waits_for_writers_of_what_it_reads_and_readers_of_what_it_writes() -> None:
    def step(source: tuple[Extent, ...], destination: tuple[Extent, ...]) -> Step:
        return Step(NOBODY, source, destination, (), 0)

    low, high, both = Extent(DATA, 0, 8), Extent(DATA, 8, 8), Extent(DATA, 0, 16)
    steps = [
        step((), (both,)),
        step((low,), ()),
        step((high,), ()),
        step((), (low,)),
        step((both,), ()),
        step((), (Extent(DATA, 4, 8),)),
    ]
    assert waits(steps) == [(), (0,), (0,), (1,), (0, 3), (2, 4)]


def test_pieces_have_all_bytes_and_no_more_than_they_may() -> None:
    extents = (Extent(0, 10, 5), Extent(1, 0, 9), Extent(0, 40, 2))
    assert cut(extents, 6) == [
        (Extent(0, 10, 5), Extent(1, 0, 1)),
        (Extent(1, 1, 6),),
        (Extent(1, 7, 2), Extent(0, 40, 2)),
    ]


@pytest.mark.parametrize("ranks", range(2, 34))
def test_no_rank_is_an_inner_node_of_both_trees_but_the_roots(ranks: int) -> None:
    """Roots have one child, so that they may be inner nodes of the other tree."""
    for rank in range(ranks):
        nodes = [double_tree(ranks, rank, tree) for tree in (0, 1)]
        inner = [node for node in nodes if node.parent >= 0 and node.children]
        assert len(inner) <= 1
        for tree, node in enumerate(nodes):
            assert len(node.children) <= (2 if node.parent >= 0 else 1)
            for child in node.children:
                assert double_tree(ranks, child, tree).parent == rank


def test_counts_are_in_proportion_to_the_rank_that_sends_most() -> None:
    assert byte_counts(((1, 3), (1, 1)), 1000) == ((250, 750), (250, 250))


def workload(algorithm: str, op: str, ranks: int) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": "collective", "op": op, "algorithm": algorithm}
    made["sizes"] = ("4B",) if op == "barrier" else ("99991B", "7B")
    if op == "all_to_allv":
        made["counts"] = (tuple(range(1, ranks + 1)),)
    if op in ROOTED:
        made["root"] = ranks - 1
    return {"name": "bench", "workload": made}


def test_a_tree_of_an_all_reduce_is_a_chain_in_each_server_below_a_tree_of_servers() -> None:
    """Four servers of two; on channel 1 chains begin with the second rank (trees.cc, worked by hand)."""
    call = Call("all_reduce", 8, 64, 2, 1, 256, 64, nodes=(0, 0, 1, 1, 2, 2, 3, 3), turned=True)
    first = {rank: place_in(chains(call), rank, 0) for rank in range(8)}
    assert first[1] == (-1, (0, 5))
    assert first[5] == (1, (4, 3, 7))
    assert first[3] == (5, (2,))
    assert first[2] == (3, ())
    second = place_in(chains(call), 7, 1)
    assert second == (-1, (6, 3))
    assert chains(call).depth == 1 + 2


@pytest.mark.parametrize(
    ("algorithm", "servers", "size_mib", "chunk_kib"),
    [
        ("nvls", 1, 1, 16),
        ("nvls", 1, 32, 32),
        ("nvls", 1, 1024, 128),
        ("nvls_tree", 2, 4, 32),
        ("nvls_tree", 2, 32, 64),
        ("nvls_tree", 2, 128, 128),
        ("nvls_tree", 4, 1, 32),
        ("nvls_tree", 4, 1024, 64),
    ],
)
def test_chunks_of_nvls_are_those_of_calc_coll_chunking(
    algorithm: str, servers: int, size_mib: int, chunk_kib: int
) -> None:
    """Of 16 channels and 8 heads: 128 parts, worked by hand from NCCL 2.30 on Hopper GPUs."""
    nodes = tuple(rank // 8 for rank in range(8 * servers))
    call = Call("all_reduce", len(nodes), size_mib << 20, 16, 0, 2 << 20, 512 << 10, nodes=nodes)
    way = LIBRARY[algorithm]
    assert isinstance(way, Nvls)
    assert way.chunk_bytes(call, 8) == chunk_kib << 10


@pytest.mark.parametrize(
    ("size", "servers", "chunk"),
    [(32 << 20, 8, 72_000), (8 << 20, 8, 36_000), (1 << 20, 8, 18_000), (32 << 20, 64, 18_000)],
)
def test_a_tree_with_ll128_halves_its_chunk_while_there_are_few(size: int, servers: int, chunk: int) -> None:
    """64 ranks, 16 channels. calcCollChunking on 8 servers: 38.4 chunks down to 128 KiB, 9.6 below."""
    nodes = tuple(rank * servers // 64 for rank in range(64))
    call = Call("all_reduce", 64, size, 16, 0, 576_000, 576_000, nodes=nodes, protocol=2)
    assert tree_chunk_bytes(call) == chunk
    assert tree_chunk_bytes(call._replace(protocol=0)) == 576_000


@pytest.mark.parametrize(("algorithm", "op"), CASES)
def test_graphs_keep_the_bounds_of_the_data_path_and_end(algorithm: str, op: str) -> None:
    for ranks, knobs in ((3, {"admission": "none"}), (5, {"qps_per_connection": 2, "qp_policy": "split"})):
        ncclx = {"buffsize": "16KiB", "channels": 2, **knobs}
        fabric = {"hosts": 1, "gpus_per_host": ranks} if algorithm == "nvls" else {"hosts": ranks}
        toy = Toy(scenario([workload(algorithm, op, ranks)], ncclx=ncclx, **fabric))
        toy.run(partial(check_bounds, toy))
        assert [row[4] for row in toy.controller.operations] == [0] * (1 if op == "barrier" else 2)
        for program in toy.ranks():
            assert not any(group.copied for group in program.calling.groups)
            assert all(send.freed == send.issued for send in program.ends.sends)
            assert all(receive.recycled == receive.expected for receive in program.ends.receives)


LOOPED = [
    ("nvls", "all_reduce"),
    ("nvls", "all_gather"),
    ("nvls", "reduce_scatter"),
    ("nvls_tree", "all_reduce"),
    ("double_binary_tree", "all_reduce"),
    ("double_binary_tree", "broadcast"),
]


@pytest.mark.parametrize(("algorithm", "op"), LOOPED)
def test_steps_of_a_long_call_are_those_of_its_loops(algorithm: str, op: str) -> None:
    fabric = {"hosts": 1 if algorithm == "nvls" else 3, "gpus_per_host": 3}
    for channels, size in ((1, "300003B"), (2, "400000B"), (6, "1MB"), (16, "2000016B")):
        job = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": (size,)}
        ncclx = {"buffsize": "16KiB", "channels": channels}
        toy = Toy(scenario([{"name": "bench", "workload": job}], ncclx=ncclx, **fabric))
        (schedule,) = toy.plan.wired()[0].schedules
        last = len(schedule.nodes) - 1
        for rank in range(last + 1) if SOAK else {0, 1, last // 2, last}:
            for channel in {0, channels // 2, channels - 1}:
                steps = schedule.steps(0, channel, rank)
                sends = sorted({(peer, step.lane) for step in steps for peer in step.sends})
                receives = sorted({(step.receive, step.lane) for step in steps} - {(NOBODY, 0)})
                made = schedule.tasks(0, channel, rank, sends, receives)
                assert made.begun < made.count == len(steps)
                assert len(made.plans) < len(steps) / 2
                for number, (step, after) in enumerate(zip(steps, waits(steps), strict=True)):
                    shift = made.shift(number)
                    receive, targets, size_bytes, reduces, waited = made.plans[number - shift]
                    assert [one + shift for one in waited] == list(after)
                    assert [sends[one] for one in targets] == [(peer, step.lane) for peer in step.sends]
                    assert (NOBODY if receive < 0 else receives[receive][0]) == step.receive
                    assert (size_bytes, reduces) == (step.size_bytes, receive >= 0 and bool(step.source))


def test_ranks_have_the_same_steps_where_their_groups_are_alike() -> None:
    job = {"kind": "collective", "op": "reduce_scatter", "algorithm": "hierarchical", "sizes": ("64KiB",)}
    toy = Toy(scenario([{"name": "bench", "workload": job}], hosts=2, gpus_per_host=2))
    (schedule,) = toy.plan.wired()[0].schedules
    known, found = KnownPlans(), []
    for nodes in ((4, 4, 9, 9), (9, 9, 2, 2), (2, 9, 2, 9)):
        one = copy(schedule)
        one.nodes = nodes
        steps = one.steps(0, 0, 1)
        sends = [(peer, step.lane) for step in steps for peer in step.sends]
        receives = [(step.receive, step.lane) for step in steps if step.receive != NOBODY]
        found.append(known.of(one, 0, 1, sends, receives)(0))
        assert found[-1].plans == one.tasks(0, 0, 1, sends, receives).plans
    assert found[0] is found[1]
    assert found[2] is not found[0]


@pytest.mark.parametrize(("algorithm", "op"), LOOPED)
def test_steps_that_are_made_in_turn_are_done_as_if_all_were_there(
    algorithm: str, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two channels, of which a small buffer keeps the ends of connections full."""
    fabric = {"hosts": 1 if algorithm == "nvls" else 3, "gpus_per_host": 3}
    job = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": ("99991B", "400000B")}
    ncclx = {"buffsize": "16KiB", "channels": 2}
    given = scenario([{"name": "bench", "workload": job}], ncclx=ncclx, **fabric)
    most: list[int] = []

    def reported() -> tuple[list[list[int]], list[tuple[int, ...]]]:
        toy = Toy(given)
        walkers = [
            one for program in toy.ranks() for one in program.ends.channels if isinstance(one, GraphChannel)
        ]
        largest = [0] * len(walkers)

        def look() -> None:
            largest[:] = [max(kept, len(one.tasks)) for kept, one in zip(largest, walkers, strict=True)]

        toy.run(look)
        most.append(max(largest))
        return toy.controller.operations, [tuple(one.all_mixes()) for one in toy.kernel.hosted()]

    in_turn = reported()
    monkeypatch.setattr(Schedule, "_loops", lambda *_: (0, 0))
    assert reported() == in_turn
    assert most[0] < most[1]


def test_a_slice_of_events_ends_early_where_ranks_work_out_their_steps() -> None:
    """So that a signal does not wait for all of them."""
    job = {"kind": "collective", "op": "all_to_all", "algorithm": "direct", "sizes": ("64KiB",)}
    toy = Toy(scenario([{"name": "bench", "workload": job}], hosts=16, ncclx={"channels": 1}))
    toy.kernel.start()
    begun: list[int] = []
    while toy.kernel.run(1 << 61, 64) == 64:
        begun.append(sum(program.running for program in toy.ranks()))
    assert {after - before for before, after in pairwise(begun)} >= {0, 1}
    assert max(after - before for before, after in pairwise(begun)) == 1
