"""The sizes that nccl-tests runs for `-b`, `-e`, `-i` and `-f`, and their elements.

A scan goes from `-b` to `-e`, times `-f` if that is above 1, else plus `-i`. What is run is what fits into
whole elements: of the whole buffer for all_reduce, broadcast, reduce and sendrecv; for the others every rank
has an equal block of whole 16 bytes, so that small sizes run with nothing at all, as they do there.

`count` is what nccl-tests prints: elements of the whole buffer for the first kind, of one rank's block for
the second.

Source: nccl-tests 2.17, `src/common.cu` (parsesize, TimeTest) and `*GetCollByteCount` of each test.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final, NamedTuple

from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean, listed

TYPES: Final = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
}
"""Data type -> bytes of an element."""
REDUCTIONS: Final = ("sum", "prod", "max", "min", "avg", "mulsum")
IN_BLOCKS: Final = ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter")
"""Operations whose buffer is one block for each rank."""
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
TESTS: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_allv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "sendrecv",
    "hypercube": "hypercube",
}
"""Test of nccl-tests -> operation."""
MOST_SIZES: Final = 256
_BLOCK_ALIGN_BYTES: Final = 16
_SIZE: Final = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([KMGkmg]?)(?:i?[Bb])?"
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


class ScanSize(NamedTuple):
    """One row to be: bytes of the whole buffer, 0 where nothing fits, and the elements as printed."""

    size_bytes: int
    elements: int


def which_test(name: str, modelled: Iterable[str]) -> tuple[str, str]:
    """(test, operation) that a name means: `all_reduce`, `alltoall`, `all_to_all`, `all_reduce_perf`.

    Raises UsageError for one that is not known, or known and not `modelled`.
    """
    plain = name.lower().removesuffix("_perf").replace("_", "").replace("-", "")
    available = list(modelled)
    tests = listed(test for test, operation in TESTS.items() if operation in available)
    for test, operation in TESTS.items():
        if plain in (test.replace("_", ""), operation.replace("_", "")):
            if operation in available:
                return test, operation
            raise UsageError(f"{test} is known and not modelled; accepted: {tests}")
    raise UsageError(f"there is no test {name!r}{did_you_mean(name, TESTS)}; accepted: {tests}")


def parse_size(text: str, flag: str) -> int:
    """Bytes of "8", "32M", "1.5G": powers of 1024, as nccl-tests reads them. Raises UsageError."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise UsageError(
            f"{flag} {text!r} is not a size; accepted: bytes, or with K, M or G, like 8, 64K, 1G"
        )
    return int(Decimal(match[1]) * _UNITS[match[2].lower()])


def scan(first: int, last: int, step_bytes: int, factor: int) -> list[int]:
    """The sizes asked for, in bytes. UsageError if that is none or too many, or has no end."""
    if first > last:
        raise UsageError(f"-b {first} is above -e {last}; accepted: a least size up to the greatest")
    if factor <= 1 and step_bytes < 1:
        raise UsageError("-i 0 without -f never comes to an end; accepted: a step, or a factor from 2")
    if factor > 1 and first == 0:
        raise UsageError("-b 0 times a factor never comes to an end; accepted: -b from 1")
    sizes: list[int] = []
    size = first
    while size <= last:
        sizes.append(size)
        if len(sizes) > MOST_SIZES:
            raise UsageError(f"more than {MOST_SIZES} sizes; accepted: a larger -i, or -f 2")
        size = size * factor if factor > 1 else size + step_bytes
    return sizes


def fitted(operation: str, size_bytes: int, ranks: int, element_bytes: int) -> ScanSize:
    """What of a size is run, over so many ranks."""
    count = size_bytes // element_bytes
    if operation not in IN_BLOCKS:
        return ScanSize(count * element_bytes, count)
    whole = max(_BLOCK_ALIGN_BYTES // element_bytes, 1)
    block = count // ranks // whole * whole
    return ScanSize(block * element_bytes * ranks, block)
