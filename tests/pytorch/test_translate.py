"""From records to programs: the same program written by hand gives the same run, to the bit."""

import pytest

from emu.api import run
from emu.doors.pytorch.kernels import GPUS, KernelTimes
from emu.doors.pytorch.record import Call, Kernel, Mark, Operation, Record, Step, Wait
from emu.doors.pytorch.torchrun import ScriptError, scenario_of
from emu.doors.pytorch.translate import Role, Translation
from emu.workload.composing import Program

FABRIC = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1}
ADD = Kernel(0, "add", "float32", ((1 << 20,),), 0, 12 << 20)


def record(operations: list[Operation], groups: dict[str, list[int]] | None = None, rank: int = 0) -> Record:
    before: list[Operation] = [Kernel(0, "warm_up", "float32", ((1 << 24,),), 0, 1 << 26), Step()]
    return Record(
        rank, 4, "train.py", "2.13", [*before, *operations, Step()], {"0": [0, 1, 2, 3], **(groups or {})},
        dict.fromkeys(groups or {}, "mesh_tp"),
    )  # fmt: skip


def digest(program: Program) -> str:
    found = run(program.scenario(FABRIC), local=True, diagnose=False).summary.digest
    assert found is not None
    return found


def translated(*roles: Role, host_us: float = 0.0) -> Program:
    return Translation(roles, KernelTimes(GPUS["h100"]), host_us=host_us, name="program", steps=1).program


def test_a_call_on_a_side_stream_overlaps_what_computes_until_it_is_awaited() -> None:
    us = KernelTimes(GPUS["h100"]).us(ADD)
    period = f"{round(us * 1e6)}ps"
    found = translated(
        Role(
            record(
                [
                    ADD,
                    Mark(0, 1),
                    Wait(1, 1),
                    Call(1, "all_reduce", "0", 1 << 20, "float32", 1),
                    Mark(1, 2),
                    ADD,
                    Wait(0, 2),
                ]
            )
        )
    )  # fmt: skip
    byhand = Program(ranks=4)
    side = byhand.stream("stream1")
    byhand.main.compute(period)
    side.wait(byhand.main.record())
    side.all_reduce("1MiB")
    done = side.record()
    byhand.main.compute(period)
    byhand.main.wait(done)
    assert digest(found) == digest(byhand)


def test_groups_of_a_mesh_dimension_are_one_communicator_that_every_rank_calls() -> None:
    found = translated(
        Role(record([Call(0, "all_gather", "1", 1 << 16, "float32", 1)], {"1": [0, 1], "2": [2, 3]}))
    )
    byhand = Program(ranks=4)
    byhand.main.all_gather("64KiB", on=byhand.communicator("tp", split=[0, 0, 1, 1]))
    assert digest(found) == digest(byhand)


def test_a_transfer_goes_to_the_peer_at_the_same_place_of_each_rank() -> None:
    stages = {"1": [0, 2], "2": [1, 3]}
    first = record([Call(0, "send", "1", 1 << 16, "float32", 1, peer=2)], stages)
    second = record([Call(0, "recv", "1", 1 << 16, "float32", 1, peer=0)], stages, rank=2)
    found = translated(Role(first, [0, 1]), Role(second, [2, 3]))
    sent = [(one["ranks"], one["peer"]) for one in found.operations if one["do"] == "send"]
    received = [(one["ranks"], one["peer"]) for one in found.operations if one["do"] == "recv"]
    assert sent == [([0], 2), ([1], 3)]
    assert received == [([2], 0), ([3], 1)]
    assert digest(found)


def test_a_step_is_as_long_as_the_host_takes_to_launch_it_where_kernels_are_shorter() -> None:
    operations: list[Operation] = [ADD] * 10
    us = KernelTimes(GPUS["h100"]).us(ADD)
    assert translated(Role(record(operations))).operations[0]["time"] == f"{round(10 * us * 1e6)}ps"
    assert translated(Role(record(operations)), host_us=50.0).operations[0]["time"] == f"{500 * 10**6}ps"


def test_a_group_of_one_rank_calls_nothing() -> None:
    alone = record(
        [ADD, Call(0, "all_reduce", "1", 64, "float32", 1)], {"1": [0], "2": [1], "3": [2], "4": [3]}
    )
    assert [one["do"] for one in translated(Role(alone)).operations] == ["compute"]


def call(op: str, size: int = 64, group: str = "0", dtype: str = "float32", peer: int = -1) -> Call:
    return Call(0, op, group, size, dtype, 1, peer)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([call("all_reduce")], [call("all_reduce", 32)], "64 B of float32, rank 2 all_reduce of 32 B"),
        ([call("all_reduce")], [call("all_reduce", dtype="int32")], "rank 2 all_reduce of 64 B of int32"),
        ([call("all_gather")], [call("all_reduce")], "rank 0 called all_gather of 64 B .*, rank 2 all_red"),
        ([call("all_reduce")], [], "call 1 of a step in the group of ranks 0, 1, 2, 3: .* rank 2 nothing"),
        ([call("barrier")], [call("barrier"), call("all_reduce")], "call 2 of .*: rank 0 called nothing"),
        ([call("broadcast", peer=0)], [call("broadcast", peer=1)], "root rank 0, rank 2 .*, root rank 1"),
        ([call("all_to_all")], [call("all_to_all", 32)], ""),
        ([call("all_reduce", group="1")], [call("all_reduce", 32, group="2")], ""),
    ],
    ids=["size", "type", "call", "none", "more", "root", "parts of an all_to_all", "groups of their own"],
)  # fmt: skip
def test_ranks_of_a_group_that_call_unlike_collectives_are_refused_in_one_line(
    first: list[Operation], second: list[Operation], told: str
) -> None:
    groups = {"1": [0, 1], "2": [2, 3]}
    roles = [Role(record(first, groups), [0, 1]), Role(record(second, groups, rank=2), [2, 3])]
    times = KernelTimes(GPUS["h100"])
    if not told:
        assert scenario_of(roles, times, {"topology": FABRIC}, name="train", host_us=0, steps=1)
        return
    with pytest.raises(ScriptError, match=told) as refused:
        scenario_of(roles, times, {"topology": FABRIC}, name="train", host_us=0, steps=1)
    assert str(refused.value).startswith("train.py: ranks disagree about call ")
    assert "\n" not in str(refused.value)
