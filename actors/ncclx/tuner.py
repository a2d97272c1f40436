"""Which algorithm does `algorithm: auto` take for a collective of some size?

NCCL's model: the time of an algorithm is a base latency, a latency for each of its hops, one after another,
and what a rank sends at the rate of its NIC. The latencies are configuration (`ncclx.tuner`), as in NCCL
they are tables in the source; nothing is measured. So a model tuned for one network picks wrongly on
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
    double_binary_tree   all_reduce                  2 l             2 S
                         broadcast, reduce           l               S

with l = log2 n, rounded up. Source: NCCL 2.30, `src/graph/tuning.cc` (ncclTopoTuneModel).

Not modelled: protocols, channels that share a NIC, correction factors of the tree's bandwidth.
"""

from __future__ import annotations

from emu.scenario.ncclx import TunerSection
from emu.scenario.operations import ALGORITHMS, BLOCKWISE
from emu.units import serialisation_ps


def modelled(algorithm: str, op: str, ranks: int, size_bytes: int) -> tuple[int, int]:
    """Hops and bytes of the table above."""
    rounds = (ranks - 1).bit_length()
    once = size_bytes * (ranks - 1) // ranks
    hops, sent = 1, once if op in BLOCKWISE else size_bytes
    if algorithm == "ring":
        hops = ranks - 1
    elif algorithm == "direct":
        sent = size_bytes * (ranks - 1) if op in ("broadcast", "reduce") else sent
    else:
        hops = rounds
    if op in ("all_reduce", "barrier"):
        sent = size_bytes * rounds if algorithm == "recursive_doubling" else 2 * once
        if algorithm == "double_binary_tree":
            sent = 2 * size_bytes
        hops *= 1 if algorithm == "recursive_doubling" else 2
    elif algorithm == "bruck" and op in ("all_to_all", "all_to_allv"):
        sent = size_bytes * rounds // 2
    return hops, sent


def model_ps(tuner: TunerSection, algorithm: str, op: str, ranks: int, size_bytes: int, rate_bps: int) -> int:
    """The time that the model gives an algorithm."""
    hops, sent = modelled(algorithm, op, ranks, size_bytes)
    moving_ps = sum(serialisation_ps(min(sent - at, 1 << 19), rate_bps) for at in range(0, sent, 1 << 19))
    return tuner.base_ps + hops * tuner.hop_ps + moving_ps


def choose(tuner: TunerSection, op: str, ranks: int, size_bytes: int, rate_bps: int) -> str:
    """The algorithm that the model likes best; direct where none in `among` has the operation."""
    able = [name for name in tuner.among if op in ALGORITHMS[name]]
    if not able:
        return "direct"
    return min(able, key=lambda name: model_ps(tuner, name, op, ranks, size_bytes, rate_bps))
