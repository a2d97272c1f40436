"""Do streams overlap, events order and priorities shorten as a user works out by hand?"""

from fractions import Fraction
from typing import Any

import pytest

from actors.gpu.gpu import Gpu
from actors.ncclx.rank.rank_program import ScriptProgram
from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.load import load_mapping
from emu.workload.composing import Program
from tests.ncclx.toy import US, Toy
from tests.scenario.plain import plain

HOSTS = {"link_delay": "1ns", "link_rate": "512T"}
STAR = {"kind": "star", "hosts": 4, "link": "400G"}
# A message of 64 B on a host link: 1 ps and 1 ns. On the wire of the toy: 64 B of headers, 1 us of delay.
MESSAGE_PS = 1_001
DELAY_PS = 1 * US


def wire_ps(size: int) -> int:
    """What a WRITE takes from NIC to NIC."""
    return (size + 64) * 8 * 10**12 // (400 * 10**9) + DELAY_PS


def transfer_ps(size: int) -> int:
    """What a rank waits that receives one slice, from its call to its GPU's copy, if the sender is ready.

    Doorbell of the clear-to-send, 64 B to the sender, its completion there, doorbell, the slice, its
    completion, the copy asked for and done at 10^18 bit/s.
    """
    copy_ps = -(-size * 8 // 10**6)
    return 6 * MESSAGE_PS + wire_ps(64) + wire_ps(size) + copy_ps


def ran(program: Program, **sections: Any) -> Toy:
    given = {"host": HOSTS, "gpu": {"copy_rate": "1000000T"}, **sections}
    return Toy(load_mapping(plain(program.scenario(STAR, **given))).scenario).run()


def calls(toy: Toy) -> dict[tuple[int, int], tuple[int, int]]:
    """(rank, place in the list) to begin and end."""
    found = {}
    for program in toy.ranks():
        assert isinstance(program, ScriptProgram)
        found.update({(row[1], row[3]): (row[4], row[5]) for row in program.results.calls})
    return found


def rows(toy: Toy) -> list[list[int]]:
    """By rank: step, begin, end, compute, waits by communicator."""
    programs = toy.ranks()
    assert all(isinstance(program, ScriptProgram) for program in programs)
    return [row[2:] for program in programs for row in program.results.steps]


def test_two_streams_overlap_computing_and_communication() -> None:
    program = Program(ranks=4)
    side = program.stream("side")
    program.main.compute("30us")
    side.send("64KiB", 1, ranks=[0])
    side.recv("64KiB", 0, ranks=[1])
    toy = ran(program)
    assert calls(toy)[1, 2] == (0, transfer_ps(65_536))
    for row in rows(toy)[:2]:
        assert row[1:] == [0, 30 * US, 30 * US, 0, 0]


def test_one_stream_does_one_after_the_other() -> None:
    program = Program(ranks=4)
    program.main.compute("30us")
    program.main.send("64KiB", 1, ranks=[0])
    program.main.recv("64KiB", 0, ranks=[1])
    toy = ran(program)
    end_ps = 30 * US + transfer_ps(65_536)
    assert calls(toy)[1, 2] == (30 * US, end_ps)
    assert rows(toy)[1][1:] == [0, end_ps, 30 * US, transfer_ps(65_536), 0]


def test_an_event_orders_two_streams_and_the_wait_is_reported_by_communicator() -> None:
    program = Program(ranks=4)
    pair = program.communicator("pair", [0, 0, -1, -1])
    side = program.stream("side")
    program.main.compute("20us")
    side.wait(program.main.record())
    side.send("64KiB", 1, on=pair, ranks=[0])
    side.recv("64KiB", 0, on=pair, ranks=[1])
    done = side.record(ranks=[1])
    program.main.compute("1us")
    program.main.wait(done, ranks=[1])
    program.main.compute("5us")
    toy = ran(program)
    arrived_ps = 20 * US + transfer_ps(65_536)
    assert calls(toy)[1, 4] == (20 * US, arrived_ps)
    # world, pair, events
    assert rows(toy)[1][1:] == [0, arrived_ps + 5 * US, 26 * US, 0, arrived_ps - 21 * US, 0]
    assert rows(toy)[2][1:] == [0, 26 * US, 26 * US, 0, 0, 0]


def test_a_wait_is_for_the_last_record_above_it() -> None:
    program = Program(ranks=2)
    side = program.stream("side")
    program.main.compute("10us")
    program.operations.append({"do": "record", "event": "e"})
    program.main.compute("10us")
    program.operations.append({"do": "wait", "event": "e", "stream": "side"})
    side.compute("1us")
    program.operations.append({"do": "record", "event": "e"})
    last = side.record()
    program.main.wait(last)
    toy = ran(program)
    assert rows(toy)[0][2] == 20 * US


def test_a_step_begins_when_all_ranks_are_through() -> None:
    program = Program(ranks=2, steps=3)
    program.main.compute("10us", ranks=[0])
    program.main.compute("25us", ranks=[1])
    begins = [row[1] for row in rows(ran(program))]
    assert begins[:3] == begins[3:]
    # A report and a begin over the management network, 100 us each, and a message's time on 10 Gbit/s.
    gap_ps = begins[1] - 25 * US
    assert begins[2] == 2 * begins[1]
    assert 200 * US <= gap_ps < 201 * US


COPY_PS = 131_072 * 8 * 10**12 // 8_000_000_000
"""A slice of 128 KiB at 8 Gbit/s."""
SLOW_COPIES = {"gpu": {"copy_rate": "8G"}, "ncclx": {"buffsize": "512KiB"}}


def two_senders(priority: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Rank 0 sends four slices on each of two streams."""
    program = Program(ranks=4)
    low = program.communicator("low")
    high = program.communicator("high", priority=priority)
    for name, on, peer in (("one", low, 1), ("other", high, 2)):
        program.stream(name).send("512KiB", peer, on=on, ranks=[0])
        program.stream(name).recv("512KiB", 0, on=on, ranks=[peer])
    return calls(ran(program, **SLOW_COPIES))


def test_without_priorities_copies_are_done_in_the_order_in_which_they_are_asked_for() -> None:
    found = two_senders(0)
    assert found[0, 0][1] == pytest.approx(4 * COPY_PS, abs=100_000)
    assert found[0, 2][1] == pytest.approx(8 * COPY_PS, abs=100_000)


def test_a_priority_shortens_what_has_it_and_delays_the_rest() -> None:
    found = two_senders(1)
    # The first slice of the other is under way, and is finished.
    assert found[0, 2][1] == pytest.approx(5 * COPY_PS, abs=100_000)
    assert found[0, 0][1] == pytest.approx(8 * COPY_PS, abs=100_000)
    # The receiver has its own GPU: the last slice's way, and one more copy.
    assert found[2, 3][1] == pytest.approx(6 * COPY_PS + wire_ps(131_072), abs=100_000)


def test_a_prioritised_gpu_is_saved_and_loaded_in_the_middle_of_its_line() -> None:
    program = Program(ranks=4)
    high = program.communicator("high", priority=2)
    program.stream("one").send("512KiB", 1, ranks=[0])
    program.stream("one").recv("512KiB", 0, ranks=[1])
    program.stream("other").send("512KiB", 2, on=high, ranks=[0])
    program.stream("other").recv("512KiB", 0, on=high, ranks=[2])
    toy = Toy(load_mapping(plain(program.scenario(STAR, host=HOSTS, **SLOW_COPIES))).scenario)
    toy.kernel.start()
    gpu = toy.kernel.device(toy.topology.gpus[0])
    assert isinstance(gpu, Gpu)
    toy.kernel.run(3 * COPY_PS, 10**6)
    assert gpu.armed
    assert len(gpu.line) > 2
    state = gpu.save()
    gpu.line, gpu.armed, gpu.free_ps = [], False, 0
    gpu.load(state)
    assert gpu.save() == state
    assert [copy.f for copy in gpu.line] == sorted(copy.f for copy in gpu.line)


SMALL: dict[str, Any] = {"kind": "star", "hosts": 4, "link": "100G"}


def urgent_ps(data_priority: int | None) -> int:
    """When an all_gather of 1 MiB is over that runs beside one of 2 MiB."""
    program = Program(ranks=4)
    bulk = program.communicator("bulk")
    urgent = program.communicator("urgent", data_priority=data_priority)
    program.stream("one").all_gather("2MiB", on=bulk)
    program.stream("other").all_gather("1MiB", on=urgent)
    pfc = {"pfc": {"priorities": [3, 5, 6]}}
    result = api.run(plain(program.scenario(SMALL, switch=pfc)), local=True)
    assert result.passed
    end_ps = result.summary.jobs["program"].collectives[1].end_ps
    assert end_ps is not None
    return end_ps


def test_a_communicator_s_traffic_class_shortens_it_on_the_wire() -> None:
    # Three quarters of 1 MiB at 100 Gbit/s; strict priority leaves headers, latency and frames under way.
    alone_ps = 3 * 2**18 * 8 * 10
    assert alone_ps < urgent_ps(5) < 1.25 * alone_ps
    assert urgent_ps(None) > 2 * alone_ps


def test_a_priority_that_nothing_waited_for_is_reported() -> None:
    def reported(priority: int, *, both: bool) -> list[str]:
        program = Program(ranks=4)
        high = program.communicator("high", priority=priority)
        if both:
            program.stream("one").all_to_all("1MiB")
        program.stream("other").all_to_all("1MiB", on=high)
        slow = {"gpu": {"copy_rate": "50G"}}
        unfired = api.run(plain(program.scenario(SMALL, **slow)), local=True).summary.never_fired
        return [one.reason for one in unfired if "communicators" in one.feature]

    assert reported(0, both=False) == []
    assert reported(1, both=False) == ["no copy or call passed one of a lower priority"]
    assert reported(1, both=True) == []


@pytest.mark.parametrize(
    ("op", "sent"),
    [
        ("all_reduce", Fraction(2 * 3)),
        ("all_gather", Fraction(3)),
        ("reduce_scatter", Fraction(3)),
        ("all_to_all", Fraction(3)),
        ("broadcast", Fraction(3)),
        ("reduce", Fraction(3)),
        ("gather", Fraction(3, 4)),
        ("scatter", Fraction(3, 4)),
    ],
)
def test_every_collective_runs_in_a_program_and_sends_its_bytes(op: str, sent: Fraction) -> None:
    size = 1 << 18
    operations = [{"do": op, "size": "256KiB"}]
    scenario = plain(
        {
            "name": "one",
            "topology": {"kind": "star", "hosts": 4},
            "jobs": [{"name": "program", "workload": {"kind": "program", "operations": operations}}],
            "ncclx": {"admission": "none", "channels": 2},
        }
    )
    summary = api.run(scenario, local=True).summary
    (row,) = summary.jobs["program"].collectives
    assert (row.op, row.bytes, row.ranks, row.status) == (op, size, 4, "success")
    assert summary.fabric.tiers[0].up_bytes == size * sent


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        ([{"do": "compute"}], "operations[0].time: compute needs it"),
        ([{"do": "all_reduce", "size": "1KiB", "time": "1us"}], "operations[0].time: all_reduce has none"),
        (
            [{"do": "all_reduce", "size": "1KiB", "on": "tp"}],
            "operations[0].on: there is no communicator 'tp'",
        ),
        (
            [{"do": "all_reduce", "size": "1KiB", "algorithm": "pxn"}],
            "operations[0].algorithm: pxn has no all_r",
        ),
        ([{"do": "broadcast", "size": "1KiB", "root": 4}], "operations[0].root: a group of 4 has no root 4"),
        ([{"do": "wait", "event": "e"}], "operations[0].event: nothing before it records 'e' on rank 0"),
        (
            [{"do": "send", "size": "1B", "peer": 0}],
            "operations[0].peer: rank 0 cannot reach rank 0 on world",
        ),
        ([{"do": "compute", "time": "1us", "ranks": [4]}], "operations[0].ranks: there is no rank 4"),
    ],
)
def test_a_list_that_no_rank_could_carry_out_is_refused_at_its_operation(
    operations: list[dict[str, Any]], problem: str
) -> None:
    program = Program(ranks=4)
    program.operations += operations
    with pytest.raises(ScenarioError) as caught:
        api.prepare(plain(program.scenario(SMALL)))
    assert problem in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_program_gives_one_answer_in_parts_and_after_a_snapshot() -> None:
    program = Program(ranks=4, steps=2)
    pairs = program.communicator("pairs", [0, 1, 0, 1], priority=1)
    side = program.stream("side")
    program.main.compute("5us")
    side.wait(program.main.record())
    side.all_reduce("256KiB", on=pairs)
    side.all_to_all("64KiB", on=pairs)
    program.main.all_reduce("128KiB", algorithm="halving_doubling")
    program.main.wait(side.record())
    runs = [api.run(plain(program.scenario(SMALL)), local=True, parts=parts).summary for parts in (1, 3)]
    assert runs[0].digest == runs[1].digest
    (job,) = runs[0].jobs.values()
    assert [(row.op, row.communicator, row.iteration) for row in job.collectives] == [
        (op, communicator, step)
        for step in (0, 1)
        for op, communicator in (("all_reduce", "pairs"), ("all_to_all", "pairs"), ("all_reduce", "world"))
    ]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([[1, 2, 3]], "the rows are not those of a group of 4; accepted: one row of 4 numbers, or 4 of them"),
        ([[1, 2, 3, 4]] * 3, "the rows are not those of a group of 4"),
        ([[0, 0, 0, 0]], "a row has nothing for anybody"),
        ([], "all_to_allv needs them"),
    ],
)
def test_counts_that_do_not_fit_are_refused_by_place(counts: list[list[int]], reason: str) -> None:
    program = Program(ranks=4)
    program.main.all_to_allv("64KiB", counts)
    with pytest.raises(ScenarioError, match=rf"operations\[0\].counts: {reason}"):
        api.prepare(api.load(plain(program.scenario(STAR))))


@pytest.mark.parametrize("late", [0, 1])
def test_a_transfer_is_timed_from_the_first_call_at_either_end_to_the_last_end(late: int) -> None:
    """Rank `late` calls 50 us after the other: both rows have that time in them, and one bandwidth."""
    program = Program(ranks=2)
    program.main.compute("50us", ranks=[late])
    program.main.send("64KiB", 1, ranks=[0])
    program.main.recv("64KiB", 0, ranks=[1])
    result = api.run(plain(program.scenario(STAR)), local=True)
    send, receive = result.summary.jobs["program"].collectives
    assert (send.op, receive.op) == ("send", "recv")
    assert (send.start_ps, send.end_ps) == (receive.start_ps, receive.end_ps)
    assert send.start_ps == 0
    assert send.end_ps is not None
    assert send.end_ps > 50 * US + wire_ps(65_536) - DELAY_PS
    assert send.busbw == receive.busbw == 65_536 * 8 * 10**12 // send.end_ps


def test_no_transfer_is_faster_than_its_wire() -> None:
    program = Program(ranks=2)
    program.main.send("64KiB", 1, ranks=[0])
    program.main.recv("64KiB", 0, ranks=[1])
    result = api.run(plain(program.scenario(STAR)), local=True)
    for row in result.summary.jobs["program"].collectives:
        assert row.busbw is not None
        assert row.busbw < 400 * 10**9


def test_calls_that_do_not_fit_one_another_are_noted_before_the_run() -> None:
    program = Program(ranks=4)
    program.main.send("64KiB", 1, ranks=[0])
    program.main.recv("4KiB", 0, ranks=[1])
    program.main.send("4KiB", 3, ranks=[2])
    program.main.all_reduce("8KiB", ranks=[0, 1, 2])
    program.main.all_reduce("16KiB", ranks=[3])
    transfer, collective, lone = api.prepare(plain(program.scenario(STAR))).notes
    assert transfer.endswith(
        ": rank 0 sends 65536 B in operations[0], rank 1 receives 4096 B in operations[1]"
    )
    calls = (
        "rank 0 calls all_reduce of 8192 B in operations[3]",
        "rank 3 all_reduce of 16384 B in operations[4]",
    )
    assert collective == f"job program: {', '.join(calls)}"
    assert lone == "job program: rank 2 sends 1 times on world, rank 3 receives 0 times"
    program = Program(ranks=4)
    program.main.rooted("broadcast", "8KiB", root=1)
    program.main.send("4KiB", 3, ranks=[2])
    program.main.recv("4KiB", 2, ranks=[3])
    assert api.prepare(plain(program.scenario(STAR))).notes == ()


@pytest.mark.parametrize("name", ["program", "training"])
def test_one_rank_alone_computes_and_calls_nobody(name: str) -> None:
    own = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "sequence": 128}
    work: dict[str, dict[str, Any]] = {
        "program": {"operations": [{"do": "compute", "time": "3us"}, {"do": "all_reduce", "size": "1KiB"}]},
        "training": {"model": "own", "own": own},
    }
    job = {"name": "a", "ranks": 1, "workload": {"kind": name, **work[name]}}
    given = {"name": "alone", "topology": {"kind": "star", "hosts": 2}, "jobs": [job]}
    result = api.run(given, local=True)
    step = result.summary.jobs["a"].training
    assert step is not None
    assert (result.exit_status, step.compute) == (0, 1.0)
    if name == "program":
        assert step.step_ps == 3_000_000
