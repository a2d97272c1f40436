"""Do the right bytes come out, whatever happens to the packets that carry them?"""

from __future__ import annotations

import itertools
import re
import struct
from typing import Any

import pytest

from actors.gpu.memory import Order, RankMemory, decode, encode, write_order
from actors.ncclx.graph import Call
from actors.ncclx.operations import ALGORITHMS
from actors.ncclx.payload import RankContents, numbers
from emu import api
from emu.base.errors import ScenarioError
from emu.engine.outcome import Ending, RunOptions
from emu.engine.recovery.snapshots import fingerprint, from_bytes, to_bytes
from emu.results.summary import Collective
from emu.workload.composing import Program
from tests.engine.spread_runs import SpreadRun, plan_of
from tests.scenario.plain import plain
from tests.summary.known import known

DTYPES = ("fp32", "bf16", "int32")
REDUCTIONS = ("sum", "prod", "min", "max")
PAIRS = [(algorithm, op) for algorithm, ops in ALGORITHMS.items() for op in ops]
LOSSY: dict[str, Any] = {"nic": {"corrupt_every": 23}, "transport": {"mtu": 1024, "timeout": 3}}
"""Every 23rd data packet of every NIC is lost: with so few packets, one in a thousand would lose none."""


def result_of(op: str, algorithm: str = "default", *, parts: int = 1, **more: Any) -> api.Result:
    ranks = more.pop("ranks", 2 if algorithm == "nvls" else 4)
    workload: dict[str, Any] = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": ["6KiB"]}
    if op == "barrier":
        workload["sizes"] = ["4B"]
    if op == "all_to_allv":
        workload["counts"] = [[1, 2, 0, 3] + [1] * (ranks - 4)]
    workload |= more.pop("workload", {})
    scenario = plain(
        {
            "name": "payload",
            "payload": "real",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 2},
            "ncclx": {"buffsize": "8KiB"} | more.pop("ncclx", {}),
            "jobs": [{"name": "bench", "ranks": ranks, "order": "strided", "workload": workload}],
        }
    )
    options = RunOptions(local=True, parts=parts, metrics=False)
    return api.run_prepared(api.prepare(api.load(plain(scenario | more))), options, diagnose=False)


def row_of(result: api.Result) -> Collective:
    return result.summary.jobs["bench"].collectives[0]


@pytest.mark.parametrize(("algorithm", "op"), PAIRS)
def test_no_element_is_wrong(algorithm: str, op: str) -> None:
    # Types, and losses or none, in turn over the pairs; all products in a soak.
    at = PAIRS.index((algorithm, op))
    more: dict[str, Any] = LOSSY if at % 2 else {}
    result = result_of(op, algorithm, workload={"dtype": DTYPES[at % 3]}, **more)
    row = row_of(result)
    assert (row.status, row.wrong) == ("success", None if op == "barrier" else 0)
    assert result.exit_status == 0


@pytest.mark.parametrize(("algorithm", "op"), PAIRS)
def test_with_zero_copy_no_element_is_wrong_and_no_time_differs(algorithm: str, op: str) -> None:
    # Losses or none, and one channel or two, in turn over the pairs.
    at = PAIRS.index((algorithm, op))
    more: dict[str, Any] = LOSSY if at % 2 else {}
    ncclx = {"zero_copy": True, "channels": 1 + at // 2 % 2}
    real, sizes = (
        result_of(op, algorithm, payload=payload, ncclx=ncclx, workload={"iterations": 2}, **more)
        for payload in ("real", "sizes")
    )
    rows = real.summary.jobs["bench"].collectives
    nothing = None if op == "barrier" else 0
    assert [(row.status, row.wrong) for row in rows] == [("success", nothing)] * 2
    assert real.summary.virtual_ps == sizes.summary.virtual_ps
    assert real.exit_status == 0


def payload_rows(result: api.Result) -> list[list[int]]:
    """Job, operation, rank, wrong elements, elements compared, checksum; GPU by GPU or host by host."""
    return sorted(list(row) for one in result.outcome.devices for row in one.results.get("payload", ()))


def test_with_zero_copy_every_rank_ends_with_the_same_bytes_as_without() -> None:
    for op in ("all_reduce", "all_to_all"):
        ways = [result_of(op, ncclx={"zero_copy": zero_copy}) for zero_copy in (False, True)]
        copied, moved = map(payload_rows, ways)
        assert copied == moved
        assert [row[:4] for row in moved] == [[0, 0, rank, 0] for rank in range(4)]
        assert len({row[5] for row in moved}) == (1 if op == "all_reduce" else 4)


@pytest.mark.soak
@pytest.mark.parametrize(("algorithm", "op"), PAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", [None, "1/1000"])
def test_no_element_is_wrong_in_any_product(algorithm: str, op: str, dtype: str, loss: str | None) -> None:
    if op == "barrier":
        return
    redops = REDUCTIONS if op in ("all_reduce", "reduce", "reduce_scatter") else ("sum",)
    fault = {"kind": "degrade", "target": "rtsw-*:*", "loss": loss}
    # Of what goes to one rank or comes from it, too little would be sent for one in a thousand to be lost.
    sizes = ["192KiB", "768KiB"] if op in ("gather", "scatter") else ["24KiB", "96KiB"]
    for redop, ranks in itertools.product(redops, (4, 8)):
        workload = {"dtype": dtype, "redop": redop, "sizes": sizes}
        transport = {"mtu": 256, "timeout": 4}
        result = result_of(
            op, algorithm, ranks=ranks, workload=workload, transport=transport, faults=[fault] if loss else []
        )
        assert [row.wrong for row in result.summary.jobs["bench"].collectives] == [0, 0]
        assert loss is None or known(result.summary.drops).by_reason["corrupt"] > 0


WAYS: dict[str, dict[str, Any]] = {
    "split": {"ncclx": {"qp_policy": "split", "qps_per_connection": 3, "channels": 2}},
    "round_robin": {"ncclx": {"qp_policy": "round_robin", "qps_per_connection": 3, "channels": 2}},
    "dqplb": {
        "ncclx": {
            "qp_policy": "dqplb",
            "qps_per_connection": 2,
            "dqplb": {"segment": "512B", "most_outstanding": 1},
        }
    },
    "least_loaded": {"ncclx": {"qp_policy": "least_loaded", "qps_per_connection": 2, "channels": 2}},
    "lines of 16 B": {"ncclx": {"protocol": "ll", "channels": 2, "ll_buffsize": "4KiB"}},
    "lines of 16 B, dqplb": {
        "ncclx": {
            "protocol": "ll",
            "qp_policy": "dqplb",
            "qps_per_connection": 2,
            "dqplb": {"segment": "512B", "most_outstanding": 1},
        }
    },
    "lines of 128 B, split": {
        "ncclx": {"protocol": "ll128", "qp_policy": "split", "qps_per_connection": 3, "slices": "even"}
    },
    "zero-copy": {"ncclx": {"zero_copy": True, "channels": 2}},
    "zero-copy, split": {
        "ncclx": {"zero_copy": True, "qp_policy": "split", "qps_per_connection": 3, "channels": 2}
    },
    "blind": {"ncclx": {"admission": "none", "channels": 2}},
    "go_back_0": {"transport": {"mtu": 1024, "timeout": 3, "recovery": {"kind": "go_back_0"}}},
    "sprayed, go-back-N": {
        "routing": {"kind": "spray"},
        "transport": {
            "mtu": 256,
            "timeout": 3,
            "recovery": {"kind": "go_back_n", "placement": "out_of_order"},
        },
    },
    "sprayed, selective repeat": {
        "routing": {"kind": "spray"},
        "transport": {"mtu": 256, "timeout": 3, "recovery": {"kind": "selective_repeat", "reorder": 8}},
    },
    "telemetry beside the bytes": {"transport": {"congestion_control": {"kind": "hpcc"}, "timeout": 3}},
    "a slow way to memory": {"nic": {"receive": {"enabled": True, "rate": "50G"}, "corrupt_every": 23}},
    "credits": {"link": {"flow_control": "credits"}},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_no_element_is_wrong_on_any_way_and_in_any_parts(way: dict[str, Any]) -> None:
    given = {**LOSSY, **way, "workload": {"sizes": ["24KiB"], "dtype": "bf16"}}
    whole = result_of("all_reduce", "ring", ranks=8, **given)
    assert row_of(whole).wrong == 0
    assert known(whole.summary.fabric.nic_retransmitted_frames) > 0
    cut = result_of("all_reduce", "ring", ranks=8, parts=3, **given)
    assert cut.outcome.digest == whole.outcome.digest


def test_a_nic_goes_on_through_its_other_port_with_the_same_bytes() -> None:
    topology = {
        "kind": "dcn_plus",
        "pods": 1,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 1,
    }
    fault = {"kind": "nic_port_down", "target": "nic-1-0", "port": 0, "at": "8us", "for": "15us"}
    result = result_of(
        "all_reduce",
        topology=topology,
        faults=[fault, fault | {"port": 1, "at": "25us"}],
        routing={"convergence": "1us"},
        transport={"timeout": 3},
        workload={"sizes": ["96KiB"]},
    )
    assert row_of(result).wrong == 0
    assert known(result.summary.fabric.nic_retransmitted_frames) > 0
    assert sum(known(one.frames_lost) for one in result.summary.faults) > 0


@pytest.mark.parametrize(("time_us", "zero_copy"), [(12, False), (31, False), (55, False), (23, True)])
def test_snapshot_holds_memory_and_bytes_in_flight(time_us: int, zero_copy: bool) -> None:
    smaller = {
        "jobs[0].workload.sizes": ["32KiB"],
        "jobs[0].workload.iterations": 2,
        "ncclx.zero_copy": zero_copy,
    }
    first = SpreadRun(plan_of("payload_real", 2, smaller))
    first.snapshot_at(time_us * 10**6)
    first.start()
    assert first.run() is Ending.FINISHED
    assert first.snapshot is not None
    packed = to_bytes(first.snapshot)
    # At some of these times bytes are in packets, in messages, in slots; always in memory.
    assert len(packed) > 8 * 32 * 1024
    second = SpreadRun(plan_of("payload_real", 3, smaller))
    second.resume(from_bytes(packed, fingerprint(second.plan.scenario)))
    assert second.run() is Ending.FINISHED
    assert second.digest() == first.digest()


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_times_are_those_of_sizes(op: str) -> None:
    real, sizes = (result_of(op, payload=payload, **LOSSY) for payload in ("real", "sizes"))
    assert row_of(real).end_ps == row_of(sizes).end_ps
    assert real.summary.virtual_ps == sizes.summary.virtual_ps
    assert row_of(sizes).wrong is None


def test_one_bit_that_turns_over_is_found() -> None:
    # Rank 1's part of its own chunk, 4 KiB from 4 KiB on, is added last, and reaches all four ranks.
    fault = {"kind": "bit_flip", "target": "gpu-1-0", "at": "3us", "bit": 8 * 4096 + 5}
    workload = {"sizes": ["16KiB"], "dtype": "int32"}
    found = flipped([fault], workload)
    assert (row_of(found).wrong, found.exit_status, found.wrong_jobs()) == (4, 1, ["bench"])
    fine = flipped([], workload)
    assert (row_of(fine).wrong, fine.exit_status) == (0, 0)


def flipped(faults: list[dict[str, Any]], workload: dict[str, Any]) -> api.Result:
    scenario = plain(
        {
            "name": "flipped",
            "payload": "real",
            "topology": {"kind": "star", "hosts": 4},
            "jobs": [{"name": "bench", "workload": {"kind": "collective", "op": "all_reduce"} | workload}],
            "faults": faults,
        }
    )
    options = RunOptions(local=True, metrics=False)
    return api.run_prepared(api.prepare(api.load(scenario)), options, diagnose=False)


def test_a_bit_that_turns_over_too_soon_is_reported() -> None:
    result = flipped([{"kind": "bit_flip", "target": "gpu-1-0"}], {"sizes": ["1KiB"]})
    reported = [one.reason for one in result.summary.never_fired if one.feature == "faults[0]"]
    assert reported == ["no collective of that GPU was under way"]
    assert row_of(result).wrong == 0


def test_sums_and_products_are_exact_however_many_ranks_there_are() -> None:
    name = (7, 0, 0, 0)
    for dtype, reduction, ranks in itertools.product(DTYPES, ("sum", "prod"), (3, 64, 200)):
        inputs = [numbers(name, rank, ranks, dtype, reduction, 5, 16) for rank in range(ranks)]
        if dtype == "int32":
            continue
        exact = [sum(column) for column in zip(*inputs, strict=True)]
        if reduction == "prod":
            exact = [1] * 16
            for row in inputs:
                exact = [one * other for one, other in zip(exact, row, strict=True)]
        assert list(decode(dtype, encode(dtype, exact))) == exact
        assert all(any(row) for row in inputs)


def memory_of(call: Call) -> RankMemory:
    contents = RankContents(1, 0, 1, [call, call], range(call.ranks), [("int32", "sum")] * 2)
    return RankMemory(contents)


def test_what_an_operation_left_is_compared_when_the_next_begins() -> None:
    call = Call("all_gather", 2, 32, 1, 0, 1 << 20, 1 << 20)
    memory = memory_of(call)
    # Nothing was ever received: the other rank's four elements are missing after both operations.
    assert memory.compared() == [[0, 4, 8, memory.compared()[0][3]], [1, 4, 8, memory.compared()[1][3]]]
    (_, _, expected), _ = memory.contents.ending(0)
    order = Order(0, 1, 0, 1, (), ((0, 0, 16),), expected)
    assert memory.carry_out(order) is None
    assert [row[1] for row in memory.compared()] == [0, 4]
    memory.carry_out(order._replace(turn=1, data=struct.pack("<4i", 1, 2, 3, 4)))
    memory.carry_out(order._replace(turn=2))
    assert [row[1] for row in memory.compared()] == [0, 8]


def test_an_order_says_what_is_sent_on() -> None:
    call = Call("all_gather", 2, 32, 1, 0, 1 << 20, 1 << 20)
    memory = memory_of(call)
    (_, _, mine), *_ = memory.contents.beginning(0)
    packed = write_order(0, 1, 0, [(0, 16, 16)], [], None, sends=True)
    assert len(packed) == 6 * 8 + 3 * 8
    assert memory.carry_out(Order(0, 1, 0, 2, ((0, 16, 16),), (), b"")) == mine


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"op": "all_reduce", "sizes": ["6B"]},
            "ring cuts 6 B between the bytes of an element of 4 B; accepted: a multiple of 16B",
        ),
        (
            {"op": "reduce_scatter", "algorithm": "halving_doubling", "sizes": ["4104B"]},
            "halving_doubling cuts 4104 B between",
        ),
        ({"op": "all_gather", "sizes": ["1GiB"]}, "real payload takes 4GiB of memory"),
        ({"op": "all_gather", "sizes": ["1KiB"], "redop": "max"}, "all_gather reduces nothing"),
    ],
)
def test_what_has_no_result_to_compare_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(reason)):
        result_of(given["op"], ranks=4, workload=given)


def test_a_bit_cannot_turn_over_where_there_is_none() -> None:
    fault = {"kind": "bit_flip", "target": "gpu-0-1"}
    with pytest.raises(ScenarioError, match=r"faults\[0\].kind: GPUs hold nothing"):
        result_of("all_reduce", payload="sizes", faults=[fault])
    with pytest.raises(ScenarioError, match=r"faults\[0\].kind: what NICs read and write themselves cannot"):
        result_of("all_reduce", ncclx={"zero_copy": True}, faults=[fault])


def program_result(payload: str, faults: Any = (), **ncclx: Any) -> api.Result:
    """Two steps: a sum and an exchange in pairs, beside a gather, a broadcast and a send among all four."""
    program = Program(ranks=4, name="mixed", steps=2)
    pairs = program.communicator("tp", split=[0, 1, 0, 1])
    side = program.stream("side")
    program.main.all_reduce("8KiB", on=pairs)
    program.main.all_to_all("4KiB", on=pairs)
    side.all_gather("6KiB")
    side.all_to_allv("6KiB", [[1, 2, 0, 3]])
    side.rooted("broadcast", "6KiB", root=2)
    side.send("4KiB", 1, ranks=[0])
    side.recv("4KiB", 0, ranks=[1])
    topology = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 2}
    sections = {"payload": payload, "ncclx": {"buffsize": "8KiB"} | ncclx, "faults": list(faults)}
    given = api.prepare(api.load(plain(program.scenario(topology, **sections))))
    return api.run_prepared(given, RunOptions(local=True, metrics=False), diagnose=False)


@pytest.mark.parametrize("ncclx", [{}, {"channels": 2}, {"zero_copy": True, "channels": 2}])
def test_collectives_of_a_program_move_the_right_bytes_in_the_same_time(ncclx: dict[str, Any]) -> None:
    real, sizes = (program_result(payload, **ncclx) for payload in ("real", "sizes"))
    rows = real.summary.jobs["mixed"].collectives
    wrong: dict[str, int | None] = {
        "all_reduce": 0,
        "all_to_all": 0,
        "all_gather": 0,
        "all_to_allv": 0,
        "broadcast": 0,
    }
    wrong |= {"send": 0, "recv": 0}
    assert [(row.op, row.wrong) for row in rows] == [*wrong.items()] * 2
    assert real.exit_status == 0
    assert real.summary.virtual_ps == sizes.summary.virtual_ps
    assert {row.wrong for row in sizes.summary.jobs["mixed"].collectives} == {None}


def test_a_bit_that_turns_over_in_a_program_is_found() -> None:
    # Byte 5,000 of the sum is in the half that GPU 1-0 adds its own to last, for both of its pair. In the
    # gather it is another rank's block, which comes later.
    fault = {"kind": "bit_flip", "target": "gpu-1-0", "at": "2us", "bit": 8 * 5000 + 5}
    result = program_result("real", [fault])
    found = [row.wrong for row in result.summary.jobs["mixed"].collectives]
    assert found == [2, 0, 0, 0, 0, 0, 0] * 2
    assert (result.exit_status, result.wrong_jobs()) == (1, ["mixed"])


def test_a_program_with_more_payload_than_fits_memory_is_refused() -> None:
    program = Program(ranks=4)
    program.main.all_gather("256MiB")
    program.stream("side").all_gather("4KiB", on=program.communicator("small"))
    given = plain(program.scenario({"kind": "star", "hosts": 4}, payload="real"))
    with pytest.raises(ScenarioError, match=r"payload: real payload takes 1048592KiB of memory"):
        api.prepare(api.load(given))


def test_a_program_that_cuts_through_elements_is_refused() -> None:
    program = Program(ranks=4)
    program.main.all_reduce("6B")
    reason = r"workload.operations\[0\].size: ring cuts 6 B between the bytes of an element of 4 B"
    with pytest.raises(ScenarioError, match=reason):
        api.prepare(api.load(plain(program.scenario({"kind": "star", "hosts": 4}, payload="real"))))
