"""Protocols of the library: how a receiver knows that data is there, and what that costs.

    simple   whole buffer slots, and a flag after them: a fence, a barrier of threads, the CPU proxy on both
             sides
    ll       8 B lines of 4 B of data and 4 B of flag: the threads that wait for the data see it at once
    ll128    128 B lines of 120 B of data and 8 B of flag, which NVLinks and GPUDirect deliver whole

Each has channel buffers of its own, in `steps` steps; with LL and LL128 a slice and a chunk are one step.

Costs. What is on a link is the lines: LL sends twice the data, LL128 16/15 of it. A slice of Simple is a
copy of the GPU, which takes `gpu.copy_latency` beside its bytes: fence and barrier. With LL128 threads
need no fence, so the copy has no latency. With LL they poll for the data and pass it on line by line:
there is no copy to ask for, and a slice goes on the moment it is here.

Source: NCCL 2.30, `src/include/device.h` (ncclLLFifoLine, NCCL_LL128_LINESIZE), `src/init.cc` (buffer sizes),
`src/device/prims_ll.h`, `prims_ll128.h`, `prims_simple.h`.

Not modelled: LL's slots in host memory, which the proxy reads; the rate at which threads pack lines for a NIC
(`actors.ncclx.tuner` knows NCCL's figures for it); clean-up of flags.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SIMPLE: Final[i64] = 0
LL: Final[i64] = 1
LL128: Final[i64] = 2
PROTOCOLS: Final = {"simple": 0, "ll": 1, "ll128": 2}

LL_DATA_BYTES: Final[i64] = 8
LL_LINE_BYTES: Final[i64] = 16
"""Size of a line that a thread writes at once: twice 4 B of data and 4 B of flag."""
LL128_DATA_BYTES: Final[i64] = 120
LL128_LINE_BYTES: Final[i64] = 128


def on_wire(protocol: i64, size: i64) -> i64:
    """What so many bytes of data are in lines."""
    if protocol == LL:
        return (size + LL_DATA_BYTES - 1) // LL_DATA_BYTES * LL_LINE_BYTES
    if protocol == LL128:
        return (size + LL128_DATA_BYTES - 1) // LL128_DATA_BYTES * LL128_LINE_BYTES
    return size
