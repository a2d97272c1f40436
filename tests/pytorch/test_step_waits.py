"""Which calls computing waits for: a step of known times, counted by hand."""

import pytest

from emu.doors.pytorch.kernels import GPUS, KernelTimes
from emu.doors.pytorch.record import Call, Kernel, Mark, Operation, Record, Step, Wait
from emu.doors.pytorch.step_waits import durations, totals, waits

TIMES = KernelTimes(GPUS["h100"])
MB = 10**6


def kernel(us: float, module: str) -> Kernel:
    return Kernel(0, "mm", "bfloat16", ((1, 1),), 0, 0, module, us)


def record(operations: list[Operation]) -> Record:
    return Record(0, 8, "train.py", "2.13", [*operations, Step()], {"0": list(range(8))}, {"0": "mesh_dp"})


def gather(number: int, module: str) -> list[Operation]:
    """A gather on stream 1, behind what the computing stream has."""
    return [
        Mark(0, 10 * number),
        Wait(1, 10 * number),
        Call(1, "all_gather", "0", 8 * MB, "bfloat16", number, module=module),
        Mark(1, 10 * number + 1),
    ]


def test_a_gather_waits_for_what_computing_between_does_not_hide_and_its_remedy_names_the_module() -> None:
    """Of 300 us, 100 us of kernels hide a third; 200 us earlier, `layers.0` was computing."""
    step = [
        kernel(250.0, "layers.0"),
        kernel(150.0, "layers.1"),
        *gather(1, "layers.3"),
        kernel(100.0, "layers.2"),
        Wait(0, 11),
        kernel(100.0, "layers.3"),
    ]
    (one,) = waits(record(step), TIMES, {1: 300.0})
    assert (one.op, one.group, one.module, one.bytes) == ("all_gather", "dp", "layers.3", 8 * MB)
    assert one.exposed_us == pytest.approx(200.0)
    assert one.hidden_by == "begin it 200 us earlier, in layers.0"
    assert waits(record(step), TIMES, {1: 90.0}) == []  # hidden whole


def test_the_last_bucket_has_no_kernel_to_hide_it() -> None:
    step: list[Operation] = [kernel(400.0, "backward.layers.1")]
    for number, module in ((1, "backward.layers.1"), (2, "backward.layers.0")):
        event = 10 * number
        step += [
            Mark(0, event),
            Wait(1, event),
            Call(1, "all_reduce", "0", 25 * MB, "float32", number, module=module),
            Mark(1, event + 1),
        ]
        step += [kernel(350.0, "backward.layers.0")] if number == 1 else []
    step += [Wait(0, 11), Wait(0, 21), kernel(50.0, "AdamW")]
    (one,) = waits(record(step), TIMES, {1: 300.0, 2: 300.0})
    assert one.module == "backward.layers.0"
    assert one.exposed_us == pytest.approx(300.0)
    assert one.hidden_by == "a smaller last bucket: no kernel is left to hide it"


def test_a_call_on_the_computing_stream_is_exposed_whole_and_alike_ones_are_one_row() -> None:
    calls = [Call(0, "all_reduce", "0", MB, "bfloat16", n, module="layers.0.out") for n in (1, 2)]
    step: list[Operation] = [kernel(100.0, "layers.0"), *calls]
    rows = totals(waits(record(step), TIMES, {1: 40.0, 2: 60.0}))
    ((one, count),) = rows
    assert count == 2
    assert one.exposed_us == pytest.approx(100.0)


def test_durations_are_those_of_the_slowest_group_of_each_call() -> None:
    step = [*gather(1, "a"), *gather(2, "b")]
    rows = [
        {
            "op": "all_gather",
            "bytes": str(8 * MB),
            "start_ps": str(at),
            "end_ps": str(end),
            "status": "success",
        }
        for at, end in ((0, 5_000_000), (0, 7_000_000), (9_000_000, 12_000_000), (9_000_000, 11_000_000))
    ]
    assert durations(record(step), rows) == {1: 7.0, 2: 3.0}
