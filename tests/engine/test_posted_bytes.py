"""Collectives of an open run that carry a program's own bytes: results, faults, parts, forks and files."""

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.ncclx.operations import ALGORITHMS, ROOTED
from emu import api
from emu.base.errors import UsageError
from emu.engine.live.open_run import FailedCall, OpenRun

TOPOLOGY = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 2}
FABRIC: dict[str, Any] = {"name": "bytes", "payload": "real", "topology": TOPOLOGY}
AT_THE_GPU = {**FABRIC, "ncclx": {"protocol": "simple", "channels": 1}}
LOSSY = {**FABRIC, "faults": [{"kind": "degrade", "target": "rtsw-*:ctsw-*", "loss": "1/50"}]}
NUMPY = {
    "fp32": "f4",
    "int32": "i4",
    "fp16": "f2",
    "fp64": "f8",
    "int64": "i8",
    "int8": "i1",
    "uint8": "u1",
}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
BY_SWITCH = ("nvls", "nvls_tree")


def drawn(dtype: str, count: int, seed: int) -> Any:
    """Whole numbers, whose sums are exact in every type and any order."""
    return np.random.default_rng(seed).integers(0, 9, count).astype(NUMPY[dtype])


def expected(op: str, inputs: list[Any], root: int, rank: int) -> Any:
    block = len(inputs[0]) // len(inputs)
    whole = np.add.reduce(inputs, dtype=inputs[0].dtype)
    mine = slice(rank * block, (rank + 1) * block)
    none = inputs[0][:0]
    return {
        "all_reduce": whole,
        "reduce": whole if rank == root else none,
        "reduce_scatter": whole[mine],
        "broadcast": inputs[root],
        "all_gather": np.concatenate(inputs),
        "gather": np.concatenate(inputs) if rank == root else none,
        "scatter": inputs[root][mine],
        "all_to_all": np.concatenate([one[mine] for one in inputs]),
    }[op]


@pytest.mark.parametrize("algorithm", [one for one in ALGORITHMS if one not in BY_SWITCH])
def test_every_algorithm_does_to_given_bytes_what_numpy_does(algorithm: str) -> None:
    run = api.open(AT_THE_GPU if algorithm in ("ring", "direct", "double_binary_tree") else LOSSY)
    sizes = [("fp32", 4), ("int64", 4 * 1231), ("uint8", 8), ("fp16", 4 * 77)]
    for op in [one for one in OPS if one in ALGORITHMS[algorithm]]:
        for turn, (dtype, count) in enumerate(sizes):
            inputs = [drawn(dtype, count, 10 * turn + rank) for rank in range(4)]
            root = turn if op in ROOTED else 0
            given = [
                one if op not in ("broadcast", "scatter") or rank == root else b""
                for rank, one in enumerate(inputs)
            ]
            found = run.carry(op, given, root=root, algorithm=algorithm)
            for rank, result in enumerate(found):
                right = expected(op, inputs, root, rank)
                assert bytes(result) == right.tobytes(), (op, algorithm, dtype, rank)
    run.close()


def test_inside_an_nvswitch_too() -> None:
    inside = {**FABRIC, "host": {"nvlink": {"enabled": True}}}
    run = api.open({**inside, "topology": {**TOPOLOGY, "racks": 1, "gpus_per_host": 4}})
    inputs = [drawn("fp32", 1000, rank) for rank in range(4)]
    for algorithm in ("nvls", "ring"):
        found = run.all_reduce(inputs, algorithm=algorithm)
        assert {bytes(one) for one in found} == {sum(inputs).tobytes()}


def play(run: OpenRun) -> list[bytes]:
    """Calls that overlap, of two communicators, whose results are taken late."""
    found: list[bytes] = []
    for turn in range(3):
        data = [drawn("fp32", 3000, 7 * turn + rank) for rank in range(4)]
        for on in ("", "other"):
            run.collective(
                "all_reduce", 12_000, range(4), on=on, data=data, at_ps=run.now_ps + 3_000_000 * turn
            )
        run.collective("all_gather", 8_000, (3, 1), data=[data[0][:1000], data[1][:1000]], each=turn == 1)
    while run.outstanding:
        done = run.next()
        found += done.data if isinstance(done.data, list) else [done.data]
    return found


def test_results_and_digest_are_those_of_any_parts_and_of_a_fork_and_a_file(tmp_path: Path) -> None:
    run = api.open(LOSSY)
    results = play(run)
    assert len(results) == 6 * 4 + 3 * 2
    digest = run.close()
    other = api.open(LOSSY, parts=2)
    assert (play(other), other.close()) == (results, digest)
    for fabric in (LOSSY, AT_THE_GPU):
        alone = api.open(fabric)
        inputs = [drawn("fp32", 3000, rank) for rank in range(4)]
        number = alone.collective("all_reduce", 12_000, range(4), data=inputs)
        alone.collective("all_reduce", 12_000, range(4), data=inputs, at_ps=90_000_000)
        alone.until(5_000_000)
        alone.save(tmp_path / "run")
        twins = [alone.fork(), api.open(fabric, resume=tmp_path / "run"), alone]
        ends = []
        for twin in twins:
            done = twin.next()
            assert done.number == number
            assert done.data == [sum(inputs).tobytes()] * 4
            assert twin.next().data == done.data
            ends.append(twin.close())
        assert len(set(ends)) == 1


def test_what_callers_bring_changes_no_time() -> None:
    times = []
    for payload in ("real", "sizes"):
        run = api.open({**LOSSY, "payload": payload})
        data = [drawn("fp32", 3000, rank) for rank in range(4)] if payload == "real" else None
        run.collective("all_reduce", 12_000, range(4), data=data)
        times.append(run.next())
    assert times[0]._replace(data=None) == times[1]


@pytest.mark.parametrize("during", [True, False])
def test_a_bit_that_turns_over_is_one_of_the_call_under_way_or_of_the_next(during: bool) -> None:
    run = api.open(AT_THE_GPU)
    zeros = [array("i", [0] * 40_000) for _ in range(4)]
    assert not any(map(any, run.all_reduce(zeros)))
    at_ps = run.now_ps
    if during:
        run.collective("all_reduce", 160_000, range(4), data=zeros, dtype="int32")
        run.until(at_ps + 2_000_000)
        run.inject({"kind": "bit_flip", "target": "gpu-1-0", "bit": 32 * 39_990})
        results = [memoryview(one).cast("i") for one in run.next().data]
    else:
        run.inject({"kind": "bit_flip", "target": "gpu-1-0", "bit": 32 * 5})
        run.until(at_ps + 50_000_000)
        results = run.all_reduce(zeros)
    assert sum(map(sum, results)) == 4  # one element is 1 at each rank
    assert not any(map(any, run.all_reduce(zeros)))


def test_a_link_that_stays_down_fails_the_call() -> None:
    down = {"kind": "link_down", "target": "rtsw-*:ctsw-*", "at": "0s"}
    impatient = {"transport": {"timeout": 4, "retry_count": 1}, "ncclx": {"watchdog": "20ms"}}
    run = api.open({**FABRIC, "faults": [down], **impatient})
    with pytest.raises(FailedCall, match="all_reduce of 4 buffers failed with status 12"):
        run.all_reduce([array("f", [1.0] * 100)] * 4)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda run: run.all_reduce([b"ab", b"abc", b"ab", b"ab"]), "rank 0 brings 2 B; accepted: 3 B"),
        (lambda run: run.all_reduce([b"ab"]), "1 inputs; accepted: one for each of 4 ranks"),
        (lambda run: run.all_reduce([b"ab"] * 4, dtype="fp8"), "dtype='fp8'"),
        (lambda run: run.all_reduce([b"abcd"] * 4, redop="avg"), "redop='avg'"),
        (lambda run: run.reduce_scatter([b"abcdef"] * 4), "accepted: a multiple of 4 B"),
        (lambda run: run.all_reduce([1, 2, 3, 4]), "a buffer is a int"),
        (lambda run: run.all_reduce([array("f"), array("d", [1])] * 2), "accepted: a multiple of 8 B|brings"),
    ],
)
def test_what_is_no_call_is_refused_in_one_line(call: Any, reason: str) -> None:
    run = api.open(FABRIC)
    with pytest.raises(UsageError, match=reason) as refused:
        call(run)
    assert "\n" not in str(refused.value)
    assert bytes(run.all_reduce([b"\1"] * 4)[0]) == b"\4"


def test_a_run_of_sizes_takes_no_bytes() -> None:
    run = api.open({**FABRIC, "payload": "sizes"})
    with pytest.raises(UsageError, match="payload: real"):
        run.all_reduce([b"ab"] * 4)
