"""The tuner of `tuner.model: hops`: the algorithm that `algorithm: auto` takes for a collective of some size.

By default (`tuner.model: nccl`) NCCL's own table chooses (`emu.workload.nccl_tuning`). Here the time of an
algorithm is a base latency, a latency for each of its hops, one after another, and what it sends through a
NIC and over NVLink at the rates of those. A hop between servers and one inside a server have latencies of
their own. They are configuration (`ncclx.tuner`), as in NCCL they are tables in the source; nothing is
measured, rates are those of the fabric's description. So a model tuned for one network picks wrongly on
another: rings have 2 (n - 1) hops and move the least, trees have 2 log2 n and move more, and where they are
equally good depends on the hop. Among equals the first of `among` is taken.

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
    double_binary_tree   all_reduce                  2 log2 M        2 S
                         broadcast, reduce           l               S
    hierarchical         all_reduce                  2 (M - 1)       2 S / L (M - 1) / M
                         all_gather, reduce_scatter  M - 1           S / L (M - 1) / M

with l = log2 n, rounded up, and M servers of L ranks. Besides, `hierarchical` has a hop inside (two for
all_reduce), and the chains of an all_reduce's tree 2 (L - 1). Of the others' hops are inside a server: of a
ring those that its ranks' order makes inside; of l, as many as log2 L; of one round, none; of a single server
all.

What goes over NVLink, of the GPU that sends most there:

    hierarchical         S (L - 1) / L, twice for all_reduce, before and after the bytes of the NIC
    ring, tree           the same as through a NIC, at the same time; less where each GPU of a server is the
                         last of it on some channel
    direct               of its bytes (L - 1) of n - 1, at the same time
    recursive_doubling   S for each round inside, before the others; all_gather as halving_doubling
    halving_doubling     S / M - S / n, twice for all_reduce, in rounds of their own; the rest is the NIC's
    bruck                nothing: the first rank of a server has all its peers elsewhere

and everything in a single server. Where both go on at the same time the longer counts, else their sum.

NICs. A rank's channels have as many NICs as its GPU has, in turn. A ring, or the tree of an all_reduce,
leaves a server by one GPU, which sends the whole of its bytes; with `ring_order: by_channel` each channel
leaves by another, up to as many as the server has.

Source: NCCL 2.30, `src/graph/tuning.cc` (ncclTopoTuneModel).

With `tuner.model: nccl`, the default, NCCL's own table chooses (`emu.workload.nccl_tuning`): latencies in us
by algorithm and protocol, its factors of bandwidth (Hopper, Intel CPUs), the correction of trees by size, and
the number of channels by the bytes that a thread has at least. Of an algorithm that is given it chooses
protocol and channels. What NCCL makes of sends and receives is direct. Latencies of `tuner` have no say then.

Not modelled: copies by the GPU; of the table, CollNet and other GPUs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.kernel.units import serialisation_ps
from actors.ncclx.operations import ALGORITHMS, BLOCKWISE, BY_SERVER, SIMPLE_ONLY
from actors.ncclx.settings import channel_count


class TunerSettings(NamedTuple):
    """Latencies of the model, and the algorithms to choose among."""

    base_ps: int
    """Time that any operation takes."""
    hop_ps: int
    """Time of a hop between servers."""
    hop_inside_ps: int
    """Time of a hop over NVLink."""
    among: tuple[str, ...]


class Shape(NamedTuple):
    """What the model knows of a communicator. A GPU without NVLink is a server of its own."""

    ranks: int
    inside: int = 1
    """Ranks of each server; 1 where they have unequally many."""
    crossings: int = -1
    """From rank to rank and round to the first: how often the next is on another server; -1: every time."""
    channels: int = 1
    nics: int = 1
    """NICs of a GPU."""
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

    @property
    def turns(self) -> bool:
        """Whether each channel leaves a server by another of its GPUs."""
        return self.turned and self.compact and self.servers > 1

    def per_nic(self, sent: int, gpus: int = 1) -> int:
        """The most bytes of `sent` that one NIC carries, where channels leave by so many GPUs in turn."""
        if self.servers == 1:
            return 0
        leaving = min(self.channels, self.nics * gpus)
        return sent * -(-self.channels // leaving) // self.channels


class Work(NamedTuple):
    """What the table above says of an algorithm."""

    far: int
    """Hops between servers."""
    near: int
    """Hops inside."""
    nic_bytes: int
    nvlink_bytes: int = 0
    together: bool = True
    """Whether NIC and NVLink are busy at the same time."""


class Rates(NamedTuple):
    """What a NIC and the NVLinks of a GPU carry, each way."""

    nic_bps: int
    nvlink_bps: int


def shape_of(topology: Topology, gpus: Sequence[int], asked: int = 0, *, turned: bool) -> Shape:
    """The shape of a communicator of these GPUs, in the order of its ranks, with so many channels, or as many
    as it comes to.
    """
    domains = [topology.host_of(gpu) if topology.nvlink_end(gpu) is not None else -1 - gpu for gpu in gpus]
    counts = list(Counter(domains).values())
    crossings = sum(one != domains[at - 1] for at, one in enumerate(domains))
    return Shape(
        len(gpus),
        counts[0] if min(counts) == max(counts) else 1,
        crossings,
        channel_count(topology, gpus, asked),
        len(topology.nics_of_gpu(gpus[0])),
        turned,
    )


def modelled(algorithm: str, op: str, shape: Shape, size_bytes: int) -> Work:
    """Hops and bytes of the tables above."""
    ranks = shape.ranks
    once = size_bytes * (ranks - 1) // ranks
    twice = op in ("all_reduce", "barrier")
    if algorithm == "hierarchical":
        times, servers = 1 + twice, shape.servers
        part = size_bytes // shape.inside
        sent = shape.per_nic(times * part * (servers - 1) // servers)
        return Work(times * (servers - 1), times, sent, times * part * (shape.inside - 1), together=False)
    if algorithm == "ring":
        return _ring(op, shape, size_bytes, once)
    if algorithm == "direct":
        times = 1 + twice
        sent = size_bytes * (ranks - 1) if op in ("broadcast", "reduce") else times * once
        inside = sent * (shape.inside - 1) // (ranks - 1)
        return _alone(shape, Work(times, 0, shape.per_nic(sent - inside), inside), sent)
    rounds = (ranks - 1).bit_length()
    near = min(shape.inside.bit_length() - 1, rounds) if shape.compact else 0
    inside = size_bytes // shape.servers - size_bytes // ranks if near else 0
    sent = once if op in BLOCKWISE else size_bytes
    if algorithm == "double_binary_tree":
        sent = (1 + twice) * size_bytes
        inside = sent if shape.inside > 1 else 0
        leaving = shape.inside if twice and shape.turns else 1
        far = rounds - near
        if twice:  # chains in servers, and a tree of those
            far, near = 2 * (shape.servers - 1).bit_length(), 2 * (shape.inside - 1)
        work = Work(far, near, shape.per_nic(sent, leaving), inside)
        return _alone(shape, work, sent)
    if algorithm == "bruck":
        inside = 0
        if op in ("all_to_all", "all_to_allv"):
            sent = size_bytes * rounds // 2
    elif algorithm == "recursive_doubling" and twice:
        sent, inside = size_bytes * rounds, size_bytes * near
    elif twice:
        rounds, near, sent, inside = 2 * rounds, 2 * near, 2 * once, 2 * inside
    work = Work(rounds - near, near, shape.per_nic(sent - inside), inside, together=False)
    return _alone(shape, work, sent)


def _alone(shape: Shape, work: Work, sent: int) -> Work:
    """The same in a single server: everything is inside."""
    if shape.servers > 1:
        return work
    return work._replace(far=0, near=work.far + work.near, nic_bytes=0, nvlink_bytes=sent)


def _ring(op: str, shape: Shape, size_bytes: int, once: int) -> Work:
    times = 2 if op in ("all_reduce", "barrier") else 1
    hops = times * (shape.ranks - 1)
    far = -(-hops * shape.crossings // shape.ranks) if shape.crossings >= 0 else hops
    sent = size_bytes if op in ("broadcast", "reduce") else times * once
    inside = sent if far < hops else 0
    if shape.turns:  # each GPU of a server is its last on so many channels
        inside -= inside * (shape.channels // shape.inside) // shape.channels
    return Work(far, hops - far, shape.per_nic(sent, shape.inside if shape.turns else 1), inside)


def moving_ps(size_bytes: int, rate_bps: int) -> int:
    """How long so many bytes take."""
    whole, rest = divmod(size_bytes, 1 << 19)
    return whole * serialisation_ps(1 << 19, rate_bps) + serialisation_ps(rest, rate_bps)


def model_ps(
    tuner: TunerSettings, algorithm: str, op: str, shape: Shape, size_bytes: int, rates: Rates
) -> int:
    """The time that the model gives an algorithm."""
    work = modelled(algorithm, op, shape, size_bytes)
    nic_ps = moving_ps(work.nic_bytes, rates.nic_bps)
    nvlink_ps = moving_ps(work.nvlink_bytes, rates.nvlink_bps)
    longer_ps = max(nic_ps, nvlink_ps) if work.together else nic_ps + nvlink_ps
    return tuner.base_ps + work.far * tuner.hop_ps + work.near * tuner.hop_inside_ps + longer_ps


def choose(tuner: TunerSettings, op: str, shape: Shape, size_bytes: int, rates: Rates) -> str:
    """The algorithm that the model likes best; direct where none in `among` has the operation."""
    able = [name for name in tuner.among if op in ALGORITHMS[name] and name not in SIMPLE_ONLY]
    if shape.inside == 1:
        able = [name for name in able if name not in BY_SERVER]
    if not able:
        return "direct"
    if len(able) == 1:
        return able[0]
    return min(able, key=lambda name: model_ps(tuner, name, op, shape, size_bytes, rates))


def pick(tuner: TunerSettings, shapes: Sequence[Shape], op: str, size_bytes: int, rates: Rates) -> str:
    """The algorithm of a collective of several communicators: what the largest would take."""
    largest = max(shapes, key=lambda shape: shape.ranks)
    if min(shape.inside for shape in shapes) == 1:
        largest = largest._replace(inside=1)
    return choose(tuner, op, largest, size_bytes, rates)
