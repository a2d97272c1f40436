"""The collectives, and which algorithm can do which: one line each in `ALGORITHMS`."""

from __future__ import annotations

from typing import Final, Literal, get_args

Operation = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_allv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
    "barrier",
]
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)
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
}
"""Algorithm -> the operations it can do."""
BLOCKWISE: Final = ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter")
"""Those whose buffer consists of a block for each rank."""
BY_SERVER: Final = ("hierarchical", "pxn")
"""Those that need equally many ranks on each server."""
BARRIER_BYTES: Final = 4
"""A barrier is an all_reduce of one element, as in PyTorch's NCCL back end."""
