"""Which algorithm does `algorithm: auto` take for a collective of some size?

NCCL's model: the time of an algorithm is a base latency, a latency for each of its hops, one after another,
and what it sends through a NIC at that one's rate. A hop between servers and one inside a server (over
NVLink) have latencies of their own. They are configuration (`ncclx.tuner`), as in NCCL they are tables in the
source; nothing is measured. So a model tuned for one network picks wrongly on another: rings have 2 (n - 1)
hops and move the least, trees have 2 log2 n and move more, and where they are equally good depends on the
hop. Among equals the first of `among` is taken.

    algorithm            operation                   hops            bytes
    ring                 all_reduce                  2 (n - 1)       2 S (n - 1) / n
                         all_gather, reduce_scatter  n - 1           S (n - 1) / n
                         broadcast, reduce           n - 1           S
    direct               all_reduce                  2               2 S (n - 1) / n
                         broadcast, reduce           1               S (n - 1)
                         others                      1               S (n - 1) / n
    recursive_doubling   all_reduce                  l               S l
    halving_doubling     all_reduce                  2 l             2 S (n - 1) / n
    both, bruck          all_gather, reduce_scatter  l               S (n - 1) / n
    bruck                all_to_all                  l               S l / 2
    double_binary_tree   all_reduce                  2 l             2 S
                         broadcast, reduce           l               S
    hierarchical         all_reduce                  2 (M - 1)       2 S / L (M - 1) / M
                         all_gather, reduce_scatter  M - 1           S / L (M - 1) / M

with l = log2 n, rounded up, and for `hierarchical` M servers of L ranks and a hop inside (two for all_reduce)
besides. Of the others' hops are inside a server: of a ring those that its ranks' order makes inside; of l, as
many as log2 L; of one round, none.

NICs. A rank's channels have as many NICs as its GPU has, in turn. A ring leaves a server by one GPU, which
sends the whole of its bytes; with `ring_order: by_channel` each channel leaves by another, up to as many as
the server has.

Source: NCCL 2.30, `src/graph/tuning.cc` (ncclTopoTuneModel).

Not modelled: protocols, correction factors of the tree's bandwidth, the time of bytes inside a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from emu.scenario.ncclx import NcclxSection, TunerSection
from emu.scenario.operations import ALGORITHMS, BLOCKWISE, BY_SERVER
from emu.topology.model import Topology
from emu.units import serialisation_ps


class Shape(NamedTuple):
    """What the model knows of a communicator. A GPU without NVLink is a server of its own."""

    ranks: int
    inside: int = 1
    """Ranks of each server; 1 where they have unequally many."""
    crossings: int = -1
    """From rank to rank and round to the first: how often the next is on another server; -1: every time."""
    channels: int = 1
    nics: int = 1
    """Of a GPU."""
    turned: bool = True
    """Whether each channel's ring leaves a server by another GPU."""

    @property
    def servers(self) -> int:
        """How many there are."""
        return self.ranks // self.inside

    @property
    def compact(self) -> bool:
        """Whether the ranks of a server follow one another."""
        return self.crossings == (self.servers if self.servers > 1 else 0)

    def per_nic(self, sent: int, gpus: int = 1) -> int:
        """The most bytes of `sent` that one NIC carries, where channels leave by so many GPUs in turn."""
        if self.servers == 1:
            return 0
        leaving = min(self.channels, self.nics * gpus)
        return sent * -(-self.channels // leaving) // self.channels


def shape_of(ncclx: NcclxSection, topology: Topology, gpus: Sequence[int]) -> Shape:
    """The shape of a communicator of these GPUs, in the order of its ranks."""
    domains = [topology.host_of(gpu) if topology.nvlink_end(gpu) is not None else -1 - gpu for gpu in gpus]
    counts = list(Counter(domains).values())
    crossings = sum(one != domains[at - 1] for at, one in enumerate(domains))
    return Shape(
        len(gpus),
        counts[0] if min(counts) == max(counts) else 1,
        crossings,
        ncclx.channels,
        len(topology.nics_of_gpu(gpus[0])),
        ncclx.ring_order == "by_channel",
    )


def modelled(algorithm: str, op: str, shape: Shape, size_bytes: int) -> tuple[int, int, int]:
    """Hops between servers and inside, and bytes of a NIC, of the table above."""
    ranks = shape.ranks
    once = size_bytes * (ranks - 1) // ranks
    twice = op in ("all_reduce", "barrier")
    if algorithm == "hierarchical":
        times, servers = 1 + twice, shape.servers
        part = size_bytes // shape.inside
        return times * (servers - 1), times, shape.per_nic(times * part * (servers - 1) // servers)
    if algorithm == "ring":
        return _ring(op, shape, size_bytes, once)
    rounds = (ranks - 1).bit_length()
    near = min(shape.inside.bit_length() - 1, rounds) if shape.compact else 0
    sent = once if op in BLOCKWISE else size_bytes
    if algorithm == "direct":
        rounds, near = 1, 0
        sent = size_bytes * (ranks - 1) if op in ("broadcast", "reduce") else sent
    if twice:
        sent = size_bytes * rounds if algorithm == "recursive_doubling" else 2 * once
        if algorithm == "double_binary_tree":
            sent = 2 * size_bytes
        if algorithm != "recursive_doubling":
            rounds, near = 2 * rounds, 2 * near
    elif algorithm == "bruck" and op in ("all_to_all", "all_to_allv"):
        sent = size_bytes * rounds // 2
    return rounds - near, near, shape.per_nic(sent)


def _ring(op: str, shape: Shape, size_bytes: int, once: int) -> tuple[int, int, int]:
    times = 2 if op in ("all_reduce", "barrier") else 1
    hops = times * (shape.ranks - 1)
    far = -(-hops * shape.crossings // shape.ranks) if shape.crossings >= 0 else hops
    sent = size_bytes if op in ("broadcast", "reduce") else times * once
    turns = shape.turned and shape.compact and shape.servers > 1
    return far, hops - far, shape.per_nic(sent, shape.inside if turns else 1)


def model_ps(
    tuner: TunerSection, algorithm: str, op: str, shape: Shape, size_bytes: int, rate_bps: int
) -> int:
    """The time that the model gives an algorithm."""
    far, near, sent = modelled(algorithm, op, shape, size_bytes)
    moving_ps = sum(serialisation_ps(min(sent - at, 1 << 19), rate_bps) for at in range(0, sent, 1 << 19))
    return tuner.base_ps + far * tuner.hop_ps + near * tuner.hop_inside_ps + moving_ps


def choose(tuner: TunerSection, op: str, shape: Shape, size_bytes: int, rate_bps: int) -> str:
    """The algorithm that the model likes best; direct where none in `among` has the operation."""
    able = [name for name in tuner.among if op in ALGORITHMS[name]]
    if shape.inside == 1:
        able = [name for name in able if name not in BY_SERVER]
    if not able:
        return "direct"
    return min(able, key=lambda name: model_ps(tuner, name, op, shape, size_bytes, rate_bps))


def pick(
    ncclx: NcclxSection, topology: Topology, groups: Sequence[Sequence[int]], op: str, size_bytes: int
) -> str:
    """What `algorithm: auto` stands for in a collective among groups of GPUs: what the largest would take."""
    shapes = [shape_of(ncclx, topology, gpus) for gpus in groups]
    largest = max(shapes, key=lambda shape: shape.ranks)
    if min(shape.inside for shape in shapes) == 1:
        largest = largest._replace(inside=1)
    rate_bps = topology.ports(topology.nics_of_gpu(groups[0][0])[0])[0].rate_bps
    return choose(ncclx.tuner, op, largest, size_bytes, rate_bps)
