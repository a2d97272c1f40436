"""Do calls of a group run together, and operations of a communicator one after another or side by side?

The forms are those of `tests.ncclx.test_programs`: 6 messages, a clear-to-send, the slice and its copy for a
receive whose sender is ready.
"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.workload.composing import Program
from tests.ncclx.test_programs import (
    DELAY_PS,
    MESSAGE_PS,
    SMALL,
    STAR,
    calls,
    ran,
    rows,
    transfer_ps,
    wire_ps,
)
from tests.ncclx.toy import RATE_BPS, US
from tests.scenario.plain import plain

SIZE = 65_536
COPY_PS = -(-SIZE * 8 // 10**6)
NEXT_PS = (SIZE + 64) * 8 * 10**12 // RATE_BPS
"""What a slice adds that follows another at a NIC."""


def exchange(program: Program, size: str = "64KiB") -> None:
    """Two ranks send to each other; rank 0 sends first."""
    for rank, first in ((0, "send"), (1, "recv")):
        for do in (first, "recv" if first == "send" else "send"):
            getattr(program.main, do)(size, 1 - rank, ranks=[rank])


def test_both_ways_of_an_exchange_take_one_transfer_in_a_group_and_two_without() -> None:
    together, apart = Program(ranks=2), Program(ranks=2)
    with together.main.group():
        exchange(together)
    exchange(apart)
    once_ps = transfer_ps(SIZE)
    found = calls(ran(together))
    assert found[0, 1] == found[1, 2] == (0, once_ps)
    # Rank 1 sends when it has received; rank 0 has cleared that long ago.
    second_ps = 6 * MESSAGE_PS + wire_ps(SIZE) + 2 * COPY_PS
    found = calls(ran(apart))
    assert found[1, 2] == (0, once_ps)
    assert found[0, 1][1] == once_ps + second_ps


def test_a_stream_goes_on_when_all_of_its_group_is_over() -> None:
    program = Program(ranks=4)
    with program.main.group():
        for peer in (1, 2, 3):
            program.main.send("64KiB", peer, ranks=[0])
            program.main.recv("64KiB", 0, ranks=[peer])
            program.main.recv("64KiB", peer, ranks=[0])
            program.main.send("64KiB", 0, ranks=[peer])
    program.main.compute("5us")
    toy = ran(program)
    # A NIC sends three clear-to-sends and three slices; on this fabric nobody's line is short to receive.
    once_ps, clear_ps = transfer_ps(SIZE), 3 * 128 * 8 * 10**12 // RATE_BPS
    ends = sorted(end_ps for (rank, place), (_, end_ps) in calls(toy).items() if rank and place % 4 == 1)
    for turn, end_ps in enumerate(ends):
        assert 0 <= end_ps - once_ps - turn * NEXT_PS <= clear_ps
    step, begin_ps, end_ps, computed_ps, waited_ps, _ = rows(toy)[0]
    assert (step, begin_ps, computed_ps) == (0, 0, 5 * US)
    assert once_ps <= waited_ps <= once_ps + clear_ps
    assert end_ps == waited_ps + 5 * US


def test_ranks_that_all_send_first_hang_without_a_group_and_take_the_line_with_one() -> None:
    """64 MiB are far more than the slots of a connection hold."""
    program = Program(ranks=2)
    with program.main.group():
        for rank in (0, 1):
            program.main.send("64MiB", 1 - rank, ranks=[rank])
            program.main.recv("64MiB", 1 - rank, ranks=[rank])
    line_ps = (64 << 20) * 8 * 10**12 // RATE_BPS
    found = calls(ran(program))
    for begin_ps, end_ps in (found[0, 1], found[1, 3]):
        assert begin_ps == 0
        assert line_ps * 98 // 100 < end_ps < line_ps * 102 // 100 + 4 * DELAY_PS


@pytest.mark.parametrize("size", ["64KiB", "4MiB"])
def test_all_to_all_by_hand_takes_as_long_as_the_collective(size: str) -> None:
    """`size` to each of three others, and a quarter of the buffer stays."""
    by_hand, collective = Program(ranks=4), Program(ranks=4)
    with by_hand.main.group():
        for rank in range(4):
            for turn in (1, 2, 3):
                by_hand.main.send(size, (rank + turn) % 4, ranks=[rank])
                by_hand.main.recv(size, (rank - turn) % 4, ranks=[rank])
    whole = {"64KiB": "256KiB", "4MiB": "16MiB"}[size]
    collective.main.all_to_all(whole, algorithm="direct")
    (ends, others) = ([row[2] for row in rows(ran(one))] for one in (by_hand, collective))
    assert abs(max(ends) - max(others)) <= max(others) // 100


def two_broadcasts(program: Program) -> None:
    """From rank 0 on one communicator, then from rank 1 on another."""
    for root, name in enumerate("ab"):
        pair = program.communicator(name)
        program.main.rooted("broadcast", "64KiB", root=root, on=pair, algorithm="ring")


def test_collectives_of_two_communicators_run_at_once_in_a_group_and_in_turn_without() -> None:
    """Each is one slice, in its own direction: as long as a transfer."""
    together, apart = Program(ranks=2), Program(ranks=2)
    with together.main.group():
        two_broadcasts(together)
    two_broadcasts(apart)
    once_ps = transfer_ps(SIZE)
    found = calls(ran(together))
    assert found[1, 0] == found[0, 1] == (0, once_ps)
    # Without, rank 1 sends when it has received; rank 0 has cleared that long ago.
    found = calls(ran(apart))
    assert found[1, 0] == (0, once_ps)
    assert found[0, 1][1] == once_ps + 6 * MESSAGE_PS + wire_ps(SIZE) + 2 * COPY_PS


def test_ranks_that_call_two_communicators_in_different_orders_hang_without_a_group() -> None:
    """An all_reduce ends at nobody before everybody is there."""
    ends = []
    for grouped in (True, False):
        program = Program(ranks=2)
        a, b = (program.communicator(name) for name in "ab")
        for rank, order in ((0, (a, b)), (1, (b, a))):
            for one in order:
                program.main.all_reduce("64KiB", on=one, algorithm="ring", ranks=[rank])
        if grouped:
            program.operations = [{**one, "group": "g"} for one in program.operations]
        given = plain(program.scenario(SMALL, ncclx={"watchdog": "1ms"}))
        ends.append(api.run(given, local=True, diagnose=False).summary.jobs["program"].status)
    assert ends == ["success", "timed_out"]


def test_collectives_of_one_communicator_in_a_group_are_done_in_turn_the_larger_first() -> None:
    """Sends and receives come after them; those of another communicator do not wait."""
    program = Program(ranks=2)
    pair, other = program.communicator("pair"), program.communicator("other")
    with program.main.group():
        program.main.send("64KiB", 1, on=pair, ranks=[0])
        program.main.recv("64KiB", 0, on=pair, ranks=[1])
        program.main.all_reduce("64KiB", on=pair, algorithm="ring")
        program.main.all_reduce("256KiB", on=pair, algorithm="ring")
        program.main.send("64KiB", 0, on=other, ranks=[1])
        program.main.recv("64KiB", 1, on=other, ranks=[0])
    turns = Program(ranks=2)
    for size in ("256KiB", "64KiB"):
        turns.main.all_reduce(size, algorithm="ring")
    found = calls(ran(program))
    for rank, transfer, elsewhere in ((0, 0, 5), (1, 1, 4)):
        assert (found[rank, 3][0], found[rank, 2][0], found[rank, transfer][0]) == (
            0,
            found[rank, 3][1],
            found[rank, 2][1],
        )
        assert found[rank, elsewhere][0] == 0
    alone = calls(ran(turns))
    # The other communicator's slice of 64 KiB is before theirs at one NIC.
    assert 0 <= found[0, 2][1] - alone[0, 1][1] <= NEXT_PS + 128 * 8 * 10**12 // RATE_BPS


def on_two_streams(in_flight: int, *, later: str = "") -> dict[tuple[int, int], tuple[int, int]]:
    """Two transfers of one communicator, each on a stream; the first one's may begin later."""
    program = Program(ranks=2)
    pair = program.communicator("pair", in_flight=in_flight)
    side = program.stream("side")
    if later:
        program.main.compute(later)
    else:
        program.main.record()
    for stream in (program.main, side):
        stream.send("64KiB", 1, on=pair, ranks=[0])
        stream.recv("64KiB", 0, on=pair, ranks=[1])
    return calls(ran(program))


def test_operations_of_a_communicator_keep_the_order_of_the_list_on_any_streams() -> None:
    found = on_two_streams(1, later="30us")
    assert found[1, 2] == (30 * US, 30 * US + transfer_ps(SIZE))
    assert found[1, 4][0] == found[1, 2][1]
    assert found[0, 3][0] == found[0, 1][1]


def test_an_operation_passes_one_that_waits_where_two_may_be_in_flight() -> None:
    found = on_two_streams(2, later="30us")
    assert found[1, 4] == (0, transfer_ps(SIZE))
    assert found[1, 2] == (30 * US, 30 * US + transfer_ps(SIZE))


def test_two_operations_in_flight_cost_a_slice_and_two_in_turn_a_transfer() -> None:
    once_ps = transfer_ps(SIZE)
    clear_ps = 128 * 8 * 10**12 // RATE_BPS
    both, turns = on_two_streams(2), on_two_streams(1)
    assert both[1, 2] == (0, once_ps)
    assert once_ps + NEXT_PS <= both[1, 4][1] <= once_ps + NEXT_PS + clear_ps
    # The sender's second copy is in its slot when the second clear-to-send comes.
    assert turns[1, 2] == (0, once_ps)
    assert turns[1, 4] == (once_ps, 2 * once_ps)


def test_a_third_operation_waits_for_the_first_of_two_in_flight() -> None:
    program = Program(ranks=2)
    pair = program.communicator("pair", in_flight=2)
    for stream in (program.main, program.stream("b"), program.stream("c")):
        stream.send("64KiB", 1, on=pair, ranks=[0])
        stream.recv("64KiB", 0, on=pair, ranks=[1])
    found = calls(ran(program))
    assert [found[1, place][0] for place in (1, 3, 5)] == [0, 0, found[1, 1][1]]


def test_collectives_of_one_communicator_on_two_streams_give_one_answer_in_parts() -> None:
    program = Program(ranks=4, steps=2)
    world = program.communicator("world", in_flight=2)
    side = program.stream("side")
    program.main.all_reduce("64KiB", on=world)
    side.all_gather("64KiB", on=world)
    with side.group():
        for rank in range(4):
            side.send("16KiB", (rank + 1) % 4, ranks=[rank])
            side.recv("16KiB", (rank - 1) % 4, ranks=[rank])
    program.main.all_reduce("32KiB", on=world)
    given = plain(program.scenario(SMALL, payload="real"))
    runs = [api.run(given, local=True, parts=parts).summary for parts in (1, 3)]
    assert runs[0].digest == runs[1].digest
    rows = runs[0].jobs["program"].collectives
    assert len(rows) == 22
    assert all(row.wrong == 0 and row.status == "success" for row in rows)


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (
            {"operations": [{"do": "compute", "time": "1us", "group": "g"}]},
            "operations[0].group: compute begins by itself",
        ),
        (
            {"operations": [{"do": "record", "event": "e", "group": "g"}]},
            "operations[0].group: record begins by itself",
        ),
        (
            {"operations": [{"do": "barrier"}], "communicators": [{"name": "a", "in_flight": 0}]},
            "communicators[0].in_flight",
        ),
    ],
)
def test_what_cannot_be_grouped_is_refused(workload: dict[str, Any], problem: str) -> None:
    job = {"name": "program", "workload": {"kind": "program", **workload}}
    with pytest.raises(ScenarioError) as caught:
        api.prepare(plain({"name": "group", "topology": STAR, "jobs": [job]}))
    assert problem in str(caught.value)
