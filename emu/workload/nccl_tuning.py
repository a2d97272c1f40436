"""NCCL's table: the algorithm, protocol and channels that it takes for a collective of some size.

Latencies in us, factors of bandwidth by GPU generation and CPU, corrections of trees, bytes of a thread.

Source: NCCL 2.30, `src/graph/tuning.cc` (ncclTopoTuneModel, ncclTopoGetAlgoTime), `src/enqueue.cc`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.ncclx.operations import ALGORITHMS
from actors.ncclx.settings import nvls_channels, search_speeds
from actors.ncclx.tuner import Rates, Shape


class Choice(NamedTuple):
    """How a collective is done; "" and 0 leave protocol and channels to the settings."""

    algorithm: str
    protocol: str = ""
    channels: int = 0


NCCL_ALGORITHMS: Final = ("double_binary_tree", "ring", "nvls", "nvls_tree", "pat")
"""Those of the table."""
_NAMES: Final = ("ll", "ll128", "simple")
"""Protocols, in the order of NCCL's tables."""
LL, LL128, SIMPLE = range(len(_NAMES))
_BASE: Final = {"ring": (6.6, 14.0, 8.4), "double_binary_tree": (6.8, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)}
_INSIDE: Final = {"ring": (0.6, 1.9, 3.4), "double_binary_tree": (0.6, 1.25, 4.0)}
_BETWEEN: Final = {"ring": (2.7, 4.0, 14.0), "double_binary_tree": (5.0, 8.5, 14.0)}
"""By protocol, us: of any operation, of a hop over NVLink, of a hop over the network."""


class _Limits(NamedTuple):
    """Constants of a GPU generation: GB/s, those of a channel by servers: one, two, and more."""

    nvls_efficiency: float
    """0: without NVLS."""
    ll: float
    """Rate of all channels with LL, in a server."""
    ring_ll128: float
    tree_ll128: tuple[float, float, float]
    tree: tuple[float, float, float]
    nvls_tree: tuple[float, float, float]


_LIMITS: Final = {
    "ampere": _Limits(0.0, 87.7, 20.0, (20.0, 20.0, 20.0), (24.0, 23.6, 17.8), (0.0, 0.0, 0.0)),
    "hopper": _Limits(0.85, 141.0, 36.7, (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), (0.0, 57.7, 45.5)),
    "blackwell": _Limits(0.74, 282.0, 40.0, (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), (0.0, 96.0, 80.0)),
}
_BLACKWELL_GBPS: Final = 600
"""GB/s of a GPU's NVLinks, from which `auto` takes it for a Blackwell GPU."""
_LL: Final = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""GB/s of all channels with LL between two servers, and more."""
_POST_US: Final = {"intel": 1.0, "amd": 2.0}
"""Time of a post; three of them with Simple."""


class Processors(NamedTuple):
    """The GPUs and CPUs that the constants are of."""

    gpu: str = "auto"
    """One of `_LIMITS`, or `auto`: Hopper, or Blackwell by the rate of NVLinks."""
    cpu: str = "intel"


USUAL: Final = Processors()


_NVLS_US: Final = (25.0, 20.9)
"""What NVLS takes of any operation, and of a hop over the network."""
_CORRECTION: Final = (
    (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10),
    (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10),
    (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9),
)
"""Tenths of a tree's bandwidth, by protocol and power of two from 64 B on; the last is for NVLSTree alone."""
_LEAST_BYTES: Final = (512 * 8, 640 * 8, 512 * 64)
"""That a channel has, by protocol: threads x bytes of each; with LL on a ring, of each rank."""


def nccl_choice(
    op: str,
    shape: Shape,
    size_bytes: int,
    rates: Rates,
    nvls: bool,
    among: Sequence[str] = NCCL_ALGORITHMS,
    protocols: Sequence[str] = _NAMES,
    processors: Processors = USUAL,
) -> Choice | None:
    """What NCCL's table takes; None of an operation that it does not have, or where it has nothing `among`
    these. `nvls`: whether there is an NVSwitch. A barrier is an all_reduce.
    """
    done_as = "all_reduce" if op == "barrier" else op
    if done_as not in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"):
        return None
    able = [name for name in NCCL_ALGORITHMS if name in among and op in ALGORITHMS[name]]
    found: list[tuple[float, Choice]] = []
    for protocol, name in enumerate(_NAMES):
        for algorithm in able if name in protocols else ():
            time_us = _nccl_us(algorithm, protocol, done_as, shape, size_bytes, rates, nvls, processors)
            if time_us is not None:
                found.append((time_us, Choice(algorithm, name)))
    if not found:
        return None
    _, best = min(found, key=lambda one: one[0])
    channels = shape.channels
    if best.algorithm.startswith("nvls"):
        channels = nvls_channels(channels, rates.nvlink_bps)
    elif best.algorithm != "pat":
        least = _LEAST_BYTES[_NAMES.index(best.protocol)] * (shape.ranks if best[:2] == ("ring", "ll") else 1)
        channels = min(max(size_bytes // least, 1), channels)
    return best._replace(channels=channels)


def _nccl_us(
    algorithm: str,
    protocol: int,
    op: str,
    shape: Shape,
    size_bytes: int,
    rates: Rates,
    nvls: bool,
    processors: Processors = USUAL,
) -> float | None:
    """The time of the table, in us; None where it has no such thing."""
    n, servers, inside, channels = shape.ranks, shape.servers, shape.inside, shape.channels
    reduces = op == "all_reduce"
    link = rates.nvlink_bps if servers == 1 else rates.nic_bps * min(channels, shape.nics * inside)
    bus = link / 8e6  # bytes in a us
    nvlink_gbps = rates.nvlink_bps / 8e9
    gpu = processors.gpu
    if gpu == "auto":
        gpu = "blackwell" if nvlink_gbps >= _BLACKWELL_GBPS else "hopper"
    limits = _LIMITS[gpu]
    known = min(servers, 3) - 1
    ll = limits.ll if servers == 1 else _LL[processors.cpu][known - 1]
    if algorithm == "ring":
        return _ring_us(
            protocol, op, shape, size_bytes, bus, (ll, limits.ring_ll128), _POST_US[processors.cpu]
        )
    hops = servers.bit_length() - 1
    if algorithm == "double_binary_tree":
        if not reduces:
            return None
        searched = _searched(channels) * 1e3
        # 0.92 of the links is what trees reach, and 1/3.8 of that with LL, as NCCL measured them
        bus = min(bus * 0.92, limits.tree[known] * searched)
        lines = 7 / 9 if servers == 1 else 120 / 128
        line_bus = min(bus * lines, limits.tree_ll128[known] * searched)
        bus = (min(bus / 3.8, ll * 1e3), line_bus, bus)[protocol]
        bus *= _correction(protocol, size_bytes, len(_CORRECTION[protocol]) - 1)
        hop, far = _INSIDE[algorithm][protocol], _BETWEEN[algorithm][protocol]
        latency = _BASE[algorithm][protocol] + 2 * ((inside - 1) * hop + hops * far)
        return latency + size_bytes / (bus / 2)
    if protocol != SIMPLE:
        return None
    if algorithm == "pat":
        if reduces or inside > 1 or servers != n or op in ("broadcast", "reduce"):
            return None
        # base, hops over the network, a copy of each rank, and three quarters of the rate: NCCL's constants
        # of PAT
        return 8.0 + hops * 14.0 / 3.5 + n * 2.8 + size_bytes / (bus * 0.75)
    if not nvls or not limits.nvls_efficiency or inside == 1 or channels < 2 or op in ("broadcast", "reduce"):
        return None
    # The first of its speeds that fits once for each head, and once more for the GPU that is the head
    # (`src/graph/search.cc`, ncclTopoSearchTryNvls).
    speed = next(one for one in (*search_speeds(rates.nvlink_bps), 0) if one * (inside + 1) <= nvlink_gbps)
    if not speed:  # of so many heads none has a speed that the search tries, so NCCL finds no graph
        return None
    own = speed * 1e3 * inside * limits.nvls_efficiency * (inside - 1) / inside
    own *= 2 if reduces else (inside - 1) / inside
    of_ring = n / _steps(op, n) if reduces else 1
    if algorithm == "nvls":
        return None if servers > 1 else _NVLS_US[0] + size_bytes / (own * of_ring)
    if servers == 1 or not reduces:
        return None
    bus = min(own, bus * (2 if servers == 2 else 1), limits.nvls_tree[known] * inside * 1e3)
    if gpu == "blackwell":
        bus *= _correction(protocol, size_bytes, len(_CORRECTION[protocol]))
    return _NVLS_US[0] + 2 * hops * _NVLS_US[1] + size_bytes / (bus * of_ring)


def _searched(channels: int) -> int:
    """The channels that NCCL's search found: a communicator does each on two (`src/graph/connect.cc`)."""
    return max(channels // 2, 1)


def _correction(protocol: int, size_bytes: int, powers: int) -> float:
    """The part of its bandwidth that a tree has at a size, of so many powers of two that are known."""
    power = (size_bytes >> 6).bit_length() - 1
    return _CORRECTION[protocol][power] / 10 if 0 <= power < powers else 1.0


def _ring_us(
    protocol: int,
    op: str,
    shape: Shape,
    size_bytes: int,
    bus: float,
    most: tuple[float, float],
    post_us: float,
) -> float:
    """`most`: GB/s of all channels with LL, and of one with LL128."""
    n, servers, inside, channels = shape.ranks, shape.servers, shape.inside, shape.channels
    reduces = op == "all_reduce"
    steps = _steps(op, n)
    simple = protocol == SIMPLE
    bus = (min(most[0] * 1e3, bus / 2), min(bus * 0.92, most[1] * _searched(channels) * 1e3), bus)[protocol]
    hop = _INSIDE["ring"][protocol]
    latency = _BASE["ring"][protocol]
    if op in ("broadcast", "reduce"):
        # Rings that all channels have in the same order count one hop, as those of an NVSwitch do.
        far = _BETWEEN["double_binary_tree" if simple else "ring"][protocol]
        latency += hop if servers == 1 else n * far
    else:
        between = 0 if servers == 1 else (1 + reduces) * (servers - 1)
        if servers > 1:
            hop = max(hop, post_us * (3 if simple else 1))
        far = _BETWEEN["double_binary_tree" if inside == 1 else "ring"][protocol]
        latency += (steps - between) * hop + between * far
    if simple and servers > 1 and reduces and size_bytes // (channels * n) >= 64:
        latency *= 1.4  # NCCL's "plateau effect of ring"
    return latency + size_bytes / (bus * n / steps)


def _steps(op: str, ranks: int) -> int:
    """Hops of a ring."""
    return {"all_reduce": 2 * (ranks - 1), "broadcast": ranks, "reduce": ranks}.get(op, ranks - 1)
