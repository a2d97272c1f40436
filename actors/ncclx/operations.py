"""The collectives and who can do which; the operations of a job, and when one of them is over.

A collective benchmark runs, for each size, its warm-up iterations and then the timed ones. A job of flows
is one operation. An operation is over when everybody who takes part has reported; the next one begins after
that.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from actors.ncclx.graph import Algorithm

_OfData = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_allv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
]
Collective = Literal[_OfData, "barrier"]
"""What a communicator of a program calls; two of its ranks send and receive besides."""
OperationName = Literal[_OfData, "sendrecv", "barrier"]
"""What a benchmark calls, as nccl-tests has it."""
OPERATIONS: Final[tuple[str, ...]] = get_args(OperationName)
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
REDUCING: Final = ("all_reduce", "reduce_scatter", "reduce")
ALGORITHMS: Final = {
    "ring": ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
    "direct": OPERATIONS,
    "recursive_doubling": ("all_reduce", "all_gather", "barrier"),
    "halving_doubling": ("all_reduce", "all_gather", "reduce_scatter"),
    "bruck": ("all_gather", "all_to_all", "all_to_allv", "barrier"),
    "double_binary_tree": ("all_reduce", "broadcast", "reduce", "barrier"),
    "hierarchical": ("all_reduce", "all_gather", "reduce_scatter"),
    "pxn": ("all_to_all", "all_to_allv"),
    "pat": ("all_gather", "reduce_scatter"),
    "nvls": ("all_reduce", "all_gather", "reduce_scatter"),
    "nvls_tree": ("all_reduce",),
}
"""Algorithm -> the operations it can do."""
BLOCKWISE: Final = ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter")
"""Those whose buffer consists of a block for each rank."""
TO_ALL: Final = ("all_to_all", "all_to_allv")
"""Those in which everybody has something else for everybody."""
IN_NVSWITCH: Final = ("nvls", "nvls_tree")
"""Algorithms in which the NVSwitch reduces and multicasts."""
BY_SERVER: Final = ("hierarchical", "pxn", "nvls", "nvls_tree")
"""Those that need equally many ranks on each server."""
SIMPLE_ONLY: Final = ("pat", "nvls", "nvls_tree")
"""Those for which NCCL has no other protocol."""

CALLS: Final = (*OPERATIONS, "send", "recv")
"""What a rank can call; devices know a call by its place here."""
TYPES: Final = ("fp32", "bf16", "int32", "fp16", "fp64", "int64", "int8", "uint8")
"""Those that a benchmark or a program can name come first."""
REDUCTIONS: Final = ("sum", "prod", "min", "max")


class Announcement(NamedTuple):
    """What a rank announces of a call beside its size; devices keep it as one number."""

    op: str
    dtype: str = TYPES[0]
    redop: str = REDUCTIONS[0]
    root: int = 0
    """By place in the group."""

    def packed(self) -> int:
        """As devices keep it."""
        kind = TYPES.index(self.dtype) << 8 | REDUCTIONS.index(self.redop) << 12
        return CALLS.index(self.op) | kind | self.root << 16


def announced(packed: int) -> Announcement:
    """What `Announcement.packed` made one number of."""
    op, dtype, redop = packed & 0xFF, packed >> 8 & 0xF, packed >> 12 & 0xF
    return Announcement(CALLS[op], TYPES[dtype], REDUCTIONS[redop], packed >> 16)


POINT_TO_POINT: Final = ("all_to_all", "all_to_allv", "gather", "scatter", "sendrecv")
"""Those that NCCL makes of sends and receives."""


class Operation(NamedTuple):
    """One collective operation. `size_bytes` as nccl-tests counts it; iterations (and warm-ups) from 0 for
    each size.
    """

    op: str
    algorithm: str
    size_bytes: int
    iteration: int
    warmup: bool
    root: int = 0
    """Root of broadcast, reduce, gather and scatter."""
    weights: tuple[tuple[int, ...], ...] = ()
    """How much each rank of an all_to_allv has for each, in proportion."""
    own: Algorithm | None = None
    """The algorithm, where it is not one of the library's."""
    protocol: str = ""
    """Nothing: that of the settings."""
    channels: int = 0
    """How many have a share; 0: all of the communicator's."""


class JobOutline(NamedTuple):
    """What the controller knows of a job."""

    job: int
    operations: int
    """How many operations it runs, at least one."""
    hosts: tuple[int, ...]
    """Node numbers of the hosts that take part, ascending."""
    reports: int
    """How many reports end an operation."""
    listed: bool
    """Whether its operations are rows of the table `operations`. One failed report ends an operation of
    such a job, because the other ranks wait for ever; flows do not wait for one another, so all of them
    report.
    """
    submitted: bool = False
    """Whether each operation waits to be submitted (see `emu.engine.live.stepping`)."""
    enabled: bool = True
    """Whether it runs at all."""
    period: int = 0
    """After so many operations they begin again with the first: operation n is what operation n modulo
    `period` was. 0 where none comes again."""
    spared: tuple[int, ...] = ()
    """Ranks without which the others may go on: after a failure, once all others have reported."""
    memberships: tuple[tuple[int, ...], ...] = ()
    """Memberships of a job that goes on without ranks that it loses, whoever they are: ranks that can take
    over from one another; the first ones begin."""
    quorum_ps: int = 0
    """How long such a job waits for reports after the first failure."""
    patience_ps: int = 0
    """How long it waits after the first report that is none."""
    rejoins: bool = False
    """Whether ranks that come back join again, in another membership that is as the first."""


def benchmark(
    op: str,
    algorithm: str,
    sizes_bytes: Sequence[int],
    iterations: int,
    warmup: int,
    root: int = 0,
    weights: tuple[tuple[int, ...], ...] = (),
) -> tuple[Operation, ...]:
    """The operations of a collective benchmark, in their order."""
    return tuple(
        Operation(
            op, algorithm, size_bytes, turn - warmup if turn >= warmup else turn, turn < warmup, root, weights
        )
        for size_bytes in sizes_bytes
        for turn in range(warmup + iterations)
    )


def misfit(algorithm: str, servers: Sequence[int]) -> tuple[str, str] | None:
    """Why an algorithm cannot run on ranks of these servers, and what could; None where it can."""
    counts = Counter(servers).values()
    if algorithm in BY_SERVER and min(counts) != max(counts):
        reason = f"a server has {min(counts)} ranks, another {max(counts)}"
        return reason, "another algorithm, or equally many ranks on each server"
    if algorithm == "nvls" and len(counts) > 1:
        reason = f"nvls works in one NVSwitch, and there are {len(counts)} servers"
        return reason, "nvls_tree for an all_reduce, or another algorithm"
    return None
