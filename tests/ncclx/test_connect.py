"""Does the first use of a connection cost what its queue pairs take to make, and no later one anything?

A rank makes queue pairs one after the other, and exchanges their numbers with its peers: two messages over
the management network, of 100 us each.
"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.workload.composing import Program
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.ncclx.test_programs import STAR, calls, ran, rows, transfer_ps
from tests.ncclx.test_shrink import LOST, MANAGED_PS, WATCHDOG_PS
from tests.ncclx.test_shrink import ran as shrunk
from tests.ncclx.test_shrink import times_ps as shrunk_times_ps
from tests.ncclx.toy import US
from tests.scenario.plain import plain

PAIR_PS = 1_400 * US
EXCHANGE_PS = 200 * US
ON_DEMAND: dict[str, Any] = {"connect": {"when": "first_use"}}
SIZE = 65_536


def test_the_first_transfer_waits_for_its_queue_pairs_and_the_second_for_none() -> None:
    """One for data and one for clear-to-sends, at either end."""
    program = Program(ranks=2)
    for _ in range(2):
        program.main.send("64KiB", 1, ranks=[0])
        program.main.recv("64KiB", 0, ranks=[1])
    toy = ran(program, ncclx=ON_DEMAND)
    found = calls(toy)
    ready_ps = 2 * PAIR_PS + EXCHANGE_PS
    assert found[1, 1] == (ready_ps, ready_ps + transfer_ps(SIZE))
    assert found[1, 3] == (ready_ps + transfer_ps(SIZE), ready_ps + 2 * transfer_ps(SIZE))
    connecting = [one.calling.connecting for one in toy.ranks()]
    assert [(one.made, one.waited_ps) for one in connecting] == [(2, ready_ps)] * 2


def test_the_other_way_and_another_peer_are_connections_of_their_own() -> None:
    program = Program(ranks=4)
    for one, other in ((0, 1), (1, 0), (0, 2)):
        program.main.send("64KiB", other, ranks=[one])
        program.main.recv("64KiB", one, ranks=[other])
    made = [one.calling.connecting.made for one in ran(program, ncclx=ON_DEMAND).ranks()]
    assert made == [6, 4, 2, 0]


def test_a_group_makes_the_queue_pairs_of_its_peers_one_after_the_other_and_exchanges_them_once() -> None:
    program = Program(ranks=4)
    with program.main.group():
        for peer in (1, 2, 3):
            program.main.send("64KiB", peer, ranks=[0])
            program.main.recv("64KiB", 0, ranks=[peer])
    toy = ran(program, ncclx=ON_DEMAND)
    begun = sorted(begin_ps for (rank, _), (begin_ps, _) in calls(toy).items() if rank == 0)
    assert begun == [turn * 2 * PAIR_PS + EXCHANGE_PS for turn in (1, 2, 3)]
    assert toy.ranks()[0].calling.connecting.made == 6


def test_rings_and_trees_of_a_communicator_are_made_when_each_is_first_used() -> None:
    """In the second step nothing is made."""
    program = Program(ranks=4, steps=2)
    for _ in range(2):
        program.main.all_reduce("4KiB", algorithm="ring")
        program.main.all_reduce("4KiB", algorithm="double_binary_tree")
    toy = ran(program, ncclx=ON_DEMAND)
    made = [one.calling.connecting.made for one in toy.ranks()]
    planned = [len(toy.plan.pairs[nic]) for nic in toy.topology.nics]
    assert made == planned
    assert all(count > 4 for count in made)
    for step, _, end_ps, *_ in rows(toy):
        begun_ps = 0 if step == 0 else max(row[2] for row in rows(toy) if row[0] == 0)
        assert (end_ps - begun_ps > PAIR_PS) == (step == 0)


def measured(op: str, algorithm: str, connect: dict[str, Any]) -> tuple[list[int], int]:
    """The times of two iterations over eight ranks, and the queue pairs of a NIC."""
    workload = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": ["64KiB"], "iterations": 2}
    given = {
        "name": "connect",
        "topology": {"kind": "star", "hosts": 8},
        "ncclx": {"channels": 2, "channels_per_peer": 2, **connect},
        "jobs": [{"name": "bench", "workload": workload}],
    }
    result = api.run(plain(given), local=True, diagnose=False)
    found = result.summary.jobs["bench"].collectives
    prepared = api.prepare(plain(given))
    counts = {len(pairs) for pairs in prepared.plan.pairs.values()}
    assert len(counts) == 1
    return [(one.end_ps or 0) - (one.start_ps or 0) for one in found], counts.pop()


@pytest.mark.parametrize(
    ("op", "algorithm", "connections"),
    [("all_reduce", "ring", 2), ("all_to_all", "direct", 2 * 7)],
)
def test_an_operation_makes_a_connection_to_each_peer_once(op: str, algorithm: str, connections: int) -> None:
    """Two channels; a queue pair for data and one for clear-to-sends. Eight ranks that exchange make seven
    times as many as in a ring."""
    (first_ps, second_ps), pairs = measured(op, algorithm, ON_DEMAND)
    assert pairs == connections * 2 * 2
    assert first_ps == second_ps + pairs * PAIR_PS + EXCHANGE_PS
    assert measured(op, algorithm, {})[0] == [second_ps, second_ps]


def test_a_communicator_that_shrinks_connects_anew() -> None:
    connect = {"connect": {"when": "first_use", "pair": "10us"}}
    usual, made = {"ncclx": {"watchdog": "300us"}}, {"ncclx": {"watchdog": "300us", **connect}}
    fewer = shrunk_times_ps(shrunk({"ranks": [0, 1, 3]}, **usual))[0]
    found = shrunk_times_ps(shrunk(faults=[LOST["faults"][0] | {"at": "453us"}], **made))
    lost = next(at for at, time_ps in enumerate(found) if time_ps > WATCHDOG_PS + MANAGED_PS)
    connects_ps = 4 * 10 * US + EXCHANGE_PS
    # The first communicator's queue pairs are reset meanwhile.
    assert found[lost] == WATCHDOG_PS + 2 * MANAGED_PS + connects_ps + fewer
    assert set(found[lost + 1 :]) == {fewer}


def test_the_answer_depends_neither_on_parts_nor_on_a_snapshot() -> None:
    overrides: dict[str, object] = {
        "jobs[0].workload.sizes": ["16KiB"],
        "ncclx.watchdog": "400us",
        "ncclx.connect": {"when": "first_use", "pair": "10us"},
        "control.management_delay": "10us",
        "faults[0].at": "250us",
    }
    whole = SpreadRun(plan_of("shrink_on_loss", 1, overrides))
    whole.start()
    assert whole.run() in ENDINGS
    for parts, at_ps in ((2, 30 * US), (3, 700 * US)):
        first = SpreadRun(plan_of("shrink_on_loss", parts, overrides))
        first.snapshot_at(at_ps)
        first.start()
        assert first.run() in ENDINGS
        assert first.snapshot is not None
        second = SpreadRun(plan_of("shrink_on_loss", parts + 1, overrides), seed=2)
        second.resume(first.snapshot)
        assert second.run() in ENDINGS
        assert (first.digest(), second.digest()) == (whole.digest(), whole.digest()), at_ps


def test_senders_that_nobody_admits_cannot_connect_on_demand() -> None:
    with pytest.raises(ScenarioError, match="would not wait for the other end"):
        api.prepare(
            plain(
                {
                    "name": "connect",
                    "topology": STAR,
                    "ncclx": {"admission": "none", **ON_DEMAND},
                    "jobs": [
                        {
                            "name": "a",
                            "workload": {"kind": "collective", "op": "barrier", "sizes": ["4B"]},
                        }
                    ],
                }
            )
        )
