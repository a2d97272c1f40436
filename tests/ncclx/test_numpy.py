"""Do collectives with real payload come to what numpy makes of the same inputs?

`#wrong` compares with whole numbers that the model works out itself; numpy is a witness from outside, for the
arithmetic and for which bytes belong where. bf16, which numpy does not have, is the upper half of an fp32;
with these inputs every result fits it exactly.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pytest

from actors.gpu.memory import encode
from actors.ncclx.payload import numbers, stream
from emu import api
from tests.ncclx.test_payload import DTYPES, LOSSY, REDUCTIONS, payload_rows, result_of

RANKS = 4
SIZE = 6 * 1024
SEED = 1
Array = npt.NDArray[np.generic]
COMBINE = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
}


def as_array(dtype: str, data: bytes) -> Array:
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, {"fp32": "<f4", "int32": "<i4"}[dtype])


def as_bytes(dtype: str, array: Array) -> bytes:
    if dtype == "bf16":
        bits = array.astype("<f4").view("<u4")
        assert not (bits & 0xFFFF).any()
        return (bits >> 16).astype("<u2").tobytes()
    return array.tobytes()


def checksums(result: api.Result) -> list[int]:
    rows = payload_rows(result)
    assert [row[2:4] for row in rows] == [[rank, 0] for rank in range(RANKS)]
    return [row[5] for row in rows]


@pytest.mark.parametrize("redop", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_are_those_of_numpy(dtype: str, redop: str) -> None:
    # Algorithms and losses in turn; every product of them ends with 0 wrong in another test.
    at = DTYPES.index(dtype) + REDUCTIONS.index(redop)
    algorithm = ("ring", "double_binary_tree", "direct", "recursive_doubling")[at % 4]
    more = LOSSY if at % 2 else {}
    result = result_of("all_reduce", algorithm, workload={"dtype": dtype, "redop": redop}, **more)
    count = SIZE // (2 if dtype == "bf16" else 4)
    name = (SEED, 0, 0, 0)
    inputs = [
        as_array(dtype, encode(dtype, numbers(name, rank, RANKS, dtype, redop, 0, count)))
        for rank in range(RANKS)
    ]
    assert len({one.tobytes() for one in inputs}) == RANKS
    array = COMBINE[redop](np.stack(inputs), axis=0, dtype=inputs[0].dtype)
    expected = as_bytes(dtype, array)
    assert checksums(result) == [zlib.crc32(expected)] * RANKS


@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather", "broadcast", "all_to_all"])
def test_bytes_are_where_numpy_puts_them(op: str) -> None:
    result = result_of(op)
    name = (SEED, 0, 0, 0)
    if op == "reduce_scatter":
        count = SIZE // 4
        inputs = np.stack(
            [
                as_array("fp32", encode("fp32", numbers(name, rank, RANKS, "fp32", "sum", 0, count)))
                for rank in range(RANKS)
            ]
        )
        expected = [one.tobytes() for one in np.split(inputs.sum(axis=0, dtype="<f4"), RANKS)]
    else:
        streams = np.stack([np.frombuffer(stream(name, rank, 0, SIZE), "u1") for rank in range(RANKS)])
        blocks = streams.reshape(RANKS, RANKS, SIZE // RANKS)
        if op == "all_gather":
            whole = np.concatenate([blocks[rank, rank] for rank in range(RANKS)])
            expected = [whole.tobytes()] * RANKS
        elif op == "broadcast":
            expected = [streams[0].tobytes()] * RANKS
        else:
            expected = [one.tobytes() for one in blocks.transpose(1, 0, 2).reshape(RANKS, SIZE)]
    assert checksums(result) == [zlib.crc32(one) for one in expected]
