"""`emu import` of PyTorch's traces: two real ones of an H200, and traces of several ranks in the same form.

`traces/two_streams_*.json.gz` are two steps of three layers whose gradients are copied on a second stream, as
torch 2.11 wrote them, one with `enable_cuda_sync_events`; `traces/flight_recorder.*` are both dumps of one
rank, of one moment, with five calls.
"""

import gzip
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from emu.api import run
from emu.base.errors import ScenarioError
from emu.base.shipped import folder
from emu.cli.main import main
from emu.doors.pytorch.flight_dumps import DumpError, dump_of, literal
from emu.doors.pytorch.kernels import GPUS, KernelTimes
from emu.doors.pytorch.kineto import KinetoError, is_trace, read_trace, record_of
from emu.doors.pytorch.record import Call, Kernel, Mark, Record, Step, Wait
from emu.doors.pytorch.traces import job_of
from emu.results.summary import Summary
from emu.workload.composing import Program

TRACES = Path(__file__).with_name("traces")
FABRIC = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1}


def ran(job: Mapping[str, Any], fabric: Mapping[str, Any] = FABRIC) -> Summary:
    scenario = {"name": "trace", "topology": dict(fabric), "jobs": [dict(job)]}
    return run(scenario, local=True, diagnose=False).summary


def step_of(name: str) -> Record:
    return record_of(read_trace((TRACES / name).read_bytes()), name)


class Profiler:
    """Writes traces as torch.profiler does, by hand: times in microseconds."""

    def __init__(self, rank: int, world: int = 4) -> None:
        self.rank, self.world = rank, world
        self.events: list[dict[str, Any]] = []

    def _event(self, kind: str, name: str, begin: float, lasts: float, **arguments: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 9, "ts": begin, "dur": lasts,
             "args": arguments}
        )  # fmt: skip

    def kernel(
        self, launched: float, stream: int, begin: float, lasts: float, name: str = "gemm", **said: Any
    ) -> None:
        correlation = len(self.events)
        self._event("cuda_runtime", "cudaLaunchKernel", launched, 1, correlation=correlation)
        self._event("kernel", name, begin, lasts, stream=stream, correlation=correlation, **said)

    def waits(self, at: float) -> None:
        self._event("cuda_runtime", "cudaStreamWaitEvent", at, 1, correlation=len(self.events))

    def collective(
        self,
        launched: float,
        begin: float,
        lasts: float,
        name: str,
        elements: int,
        group: str,
        ranks: Sequence[int],
    ) -> None:
        whole = elements * len(ranks)
        said = {
            "Collective name": name, "dtype": "Float", "Group size": len(ranks),
            "In msg nelems": whole if "scatter" in name else elements,
            "Out msg nelems": whole if "gather" in name else elements,
            "Process Group Name": group, "Process Group Description": f"mesh_{group}",
            "Process Group Ranks": str(list(ranks)),
        }  # fmt: skip
        self.kernel(
            launched, 20, begin, lasts, "ncclDevKernel_Ring(ncclDevKernelArgsStorage<4096ul>)", **said
        )

    def write(self, path: Path, *, zipped: bool = False) -> Path:
        facts = {
            "schemaVersion": 1, "distributedInfo": {"rank": self.rank, "world_size": self.world},
            "traceEvents": self.events,
        }  # fmt: skip
        data = json.dumps(facts).encode()
        path.write_bytes(gzip.compress(data) if zipped else data)
        return path


def data_parallel(rank: int) -> Profiler:
    """Two buckets reduced in a group of every other rank while the next computes, then the optimizer."""
    made = Profiler(rank)
    ranks = [0, 2] if rank % 2 == 0 else [1, 3]
    made.kernel(0, 7, 10, 100)
    made.waits(2)
    made.collective(3, 110, 500, "allreduce", 1 << 18, "dp", ranks)
    made.kernel(5, 7, 110, 100)
    made.waits(6)
    made.collective(7, 610, 500, "_allgather_base", 1 << 16, "dp", ranks)
    made.waits(8)
    made.waits(9)
    made.kernel(11, 7, 1110, 50)
    return made


def by_hand() -> Program:
    program = Program(ranks=4, name="trace")
    groups = program.communicator("dp", split=[0, 1, 0, 1])
    side = program.stream("stream20")
    program.main.compute("100us")
    side.wait(program.main.record())
    side.all_reduce("1MiB", on=groups)
    program.main.compute("100us")
    side.wait(program.main.record())
    side.all_gather("512KiB", on=groups)
    program.main.wait(side.record())
    program.main.compute("50us")
    return program


@pytest.mark.parametrize("ranks", [[0], [1], [0, 1], [0, 1, 2, 3]])
def test_collectives_are_emulated_between_measured_kernels(tmp_path: Path, ranks: Sequence[int]) -> None:
    """One rank stands for all, groups of a mesh are completed; the measured times of collectives are gone."""
    files = [data_parallel(rank).write(tmp_path / f"r{rank}.json.gz", zipped=rank % 2 == 1) for rank in ranks]
    job = yaml.safe_load(job_of(files).text)[0]
    wanted = ran({"name": "trace", "ranks": 4, "workload": by_hand().workload()})
    found = ran(job)
    times = [one.jobs["trace"].training.step_ps for one in (found, wanted) if one.jobs["trace"].training]
    assert times[0] == times[1]
    assert (times[0] or 0) > 250 * 10**6  # the kernels, and more
    assert len(ranks) > 1 or found.digest == wanted.digest


def test_waits_found_by_order_are_those_that_were_written_down() -> None:
    """Of the same two streams, once with the waiting stream in the trace and once without."""
    reported, found = (
        [
            (type(one), one.stream, getattr(one, "event", None), getattr(one, "op", None))
            for one in step_of(f"two_streams_{name}.json.gz").operations
            if not isinstance(one, Step) and getattr(one, "op", "") != "host"
        ]
        for name in ("sync", "plain")
    )
    assert reported == found
    waits = [one for one in reported if one[0] is Wait]
    assert [stream for _, stream, _, _ in waits] == [20, 20, 20, 0]


@pytest.mark.parametrize(("name", "lost_ns"), [("sync", 0), ("plain", 15_648)])
def test_a_step_without_collectives_lasts_as_long_as_on_the_gpu(name: str, lost_ns: int) -> None:
    """To the picosecond, but for what the last copy of one trace waited until a product left it an SM."""
    trace = read_trace((TRACES / f"two_streams_{name}.json.gz").read_bytes())
    begin_ns, end_ns = trace.steps[-1]
    inside = [one for one in trace.operations if begin_ns <= one.launched_ns < end_ns]
    measured_ns = max(one.end_ns for one in inside) - min(one.begin_ns for one in inside)
    job = yaml.safe_load(job_of([TRACES / f"two_streams_{name}.json.gz"]).text)[0]
    training = ran(job, {"kind": "star", "hosts": 2}).jobs["trace"].training
    assert training is not None
    assert training.step_ps == (measured_ns - lost_ns) * 1000


def test_a_trace_is_a_table_of_kernel_times() -> None:
    times = KernelTimes(GPUS["h200"], TRACES / "two_streams_plain.json.gz")
    product = Kernel(0, "mm", "float32", ((1024, 4096), (4096, 1024)), 2 * 2**32, 1)
    assert 160 < times.us(product) < 190
    assert times.us(product) != KernelTimes(GPUS["h200"]).us(product)


def test_older_traces_say_sizes_by_annotation(tmp_path: Path) -> None:
    made = Profiler(0)
    made._event(
        "user_annotation", "nccl:all_reduce", 0, 5, **{"Input Dims": [[300, 7]], "Input type": ["float"]}
    )
    made.kernel(1, 20, 10, 5, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    record = record_of(read_trace(made.write(tmp_path / "old.json").read_bytes()), "old")
    assert [(one.op, one.bytes) for one in record.operations if isinstance(one, Call)] == [
        ("all_reduce", 8400)
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:-100], "is cut off"),
        (lambda data: gzip.compress(gzip.decompress(data)[:-100]), "is no JSON"),
        (lambda _: gzip.compress(b'{"traceEvents": [{"ph": "X"}, 3]}'), "event 1: is no event"),
        (lambda _: gzip.compress(b'{"traceEvents": []}'), "no kernel in it"),
        (lambda _: gzip.compress(b'{"traceEvents": [3' + b" " * 2**22 + b"]}"), "no kernel in it"),
        (
            lambda _: gzip.compress(
                b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_X", "ts": 1, "dur": 1,'
                b' "tid": 3}]}'
            ),
            "size is not written down",
        ),
        (
            lambda _: gzip.compress(
                b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": -1, "dur": 1, "tid": 3}]}'
            ),
            "ts is -1; accepted: microseconds",
        ),
    ],
)
def test_a_damaged_trace_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, says: str
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(change((TRACES / "two_streams_plain.json.gz").read_bytes()))
    status = main(["import", str(path), "--output", "-"])
    assert status == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error


def test_a_group_that_no_mesh_has_needs_the_other_ranks(tmp_path: Path) -> None:
    made = Profiler(0)
    made.collective(1, 5, 5, "allreduce", 64, "odd", [0, 1, 3])
    with pytest.raises(ScenarioError, match="the files of all ranks"):
        job_of([made.write(tmp_path / "r0.json")])


# ------------------------------------------------------------------------------------- flight recorder


def test_both_forms_of_one_dump_have_the_same_calls() -> None:
    pickled, plain = (
        dump_of((TRACES / f"flight_recorder.{end}").read_bytes(), "0") for end in ("pickle", "json")
    )
    assert pickled.operations == plain.operations
    calls = [(one.op, one.bytes) for one in pickled.operations if isinstance(one, Call)]
    size = 4 << 20
    assert calls == [
        ("all_reduce", size),
        ("all_gather", size),
        ("reduce_scatter", size),
        ("broadcast", size),
        ("barrier", 0),
    ]
    assert sum(isinstance(one, Mark) for one in pickled.operations) == 6


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value", [{"a": [1, -7, 2**40, 2**80, 1.5], "b": (None, True, ("x", "é" * 300), {})}, [[], ()]]
)
def test_plain_values_are_read_of_any_protocol(protocol: int, value: Any) -> None:
    assert literal(pickle.dumps(value, protocol)) == value


class Evil:
    def __reduce__(self) -> Any:
        return print, ("pwned",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_anything_is_refused(protocol: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DumpError, match="the pickle wants"):
        literal(pickle.dumps({"entries": [Evil()]}, protocol))
    assert capsys.readouterr().out == ""


def test_every_cut_of_a_dump_is_refused() -> None:
    data = (TRACES / "flight_recorder.pickle").read_bytes()
    for end in range(2, len(data) - 1, 13):
        with pytest.raises(DumpError):
            dump_of(data[:end], "0")


@pytest.mark.parametrize("form", ["", "pickle/"])
def test_dumps_of_a_hang_hang_again_at_the_same_call(tmp_path: Path, form: str) -> None:
    """Dumps that emu itself wrote of a run with a mismatched call."""
    shipped = folder("scenarios") / "incidents" / "program_mismatch.yaml"
    first = run(shipped, local=True, diagnose=False, out=tmp_path / "run").summary.jobs["train"]
    dumps = sorted((tmp_path / "run" / "flight_recorder" / "train").glob(f"{form}nccl_trace_rank_*"))
    assert len(dumps) == 6
    job = yaml.safe_load(job_of(dumps).text)[0]
    lines = shipped.read_text("utf-8").split("jobs:")[0]
    again = {**yaml.safe_load(lines), "jobs": [{**job, "name": "train"}]}
    second = run(again, local=True, diagnose=False).summary.jobs["train"]
    assert first.status == second.status == "timed_out"
    assert second.suspects[0].split("(")[0] == first.suspects[0].split("(")[0]


def test_what_is_no_trace_is_left_to_other_readers() -> None:
    assert not is_trace(b'{"entries": []}')
    assert not is_trace(b"\x1f\x8bnot gzip")
    with pytest.raises(KinetoError, match="has no traceEvents"):
        read_trace(b"{}")
