"""GPUs and servers behind their peers: slow, hung, gone.

Every GPU counts its copies and how long they took without waiting for their turn; what a copy of that size
should take is known from the configuration. Its host counts how long programs computed on it, and how long
that takes on a GPU that is not slow. The median GPU is the measure, so that whatever slows all alike blames
none. Where all GPUs of a server are slow, the server is named. A GPU that does nothing of what it is asked
for hangs; one that fell off the bus is in its host's log (Xid 79).
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import Final

from actors.fabric.model import Role
from actors.kernel.counters import (
    GPU_COPIED_BYTES,
    GPU_COPIES,
    GPU_COPY_PS,
    GPU_UNRESPONSIVE_PS,
    HOST_COMPUTE_PS,
    HOST_COMPUTE_WORK_PS,
)
from actors.kernel.units import serialisation_ps
from emu.base.units import about_time, shown_time
from emu.counts.device_state import GPU_GONE
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.impact import operations
from emu.views.diagnosis.view import View

SLOW_PERMILLE: Final = 1030
"""From which part of the median GPU's time for the same a GPU counts as slow. A choice: GPUs that nothing is
wrong with differ by copies that wait for one another, by less than this."""
IMPACT_PERMILLE: Final = 200
"""Share of a job's time by which longer copies are felt, though they overlap with others and with the wire.
"""
COMPUTE_IMPACT_PERMILLE: Final = 50
"""Share of a job's time by which longer computing is felt."""
HUNG_PS: Final = 1_000_000
"""A GPU that let everything wait for so long (1 us) was not just busy. A choice: what a busy one copies later
is not counted as unresponsive at all."""


def found(view: View) -> Iterator[Finding]:
    """Lost, hung and slow ones."""
    yield from _lost(view)
    yield from _hung(view)
    yield from _slow(view)


def _lost(view: View) -> Iterator[Finding]:
    for host in view.numbers(Role.HOST):
        for at_ps, item, port, *_ in view.rows(host, "log"):
            if item == GPU_GONE:
                gpu = view.name(view.topology.ports(host)[port].peer)
                yield Finding(
                    "gpu_lost",
                    gpu,
                    970,
                    f"{gpu} fell off the bus at {shown_time(at_ps)} (Xid 79), and its rank failed",
                    (f"{view.name(host)} log at {shown_time(at_ps)}: {gpu} is gone",),
                    at_ps,
                    alarms=True,
                )


def _hung(view: View) -> Iterator[Finding]:
    for gpu in view.numbers(Role.GPU):
        silent_ps = view.total(GPU_UNRESPONSIVE_PS, gpu)
        if silent_ps < HUNG_PS:
            continue
        when = view.when(GPU_UNRESPONSIVE_PS, gpu)
        yield Finding(
            "gpu_hung",
            view.name(gpu),
            945,
            f"{view.name(gpu)} did nothing of what it was asked for during {about_time(silent_ps)}, and the "
            "other ranks waited for it",
            (f"{view.name(gpu)}: gpu_unresponsive {about_time(silent_ps)}{when}",),
            view.since(GPU_UNRESPONSIVE_PS, gpu),
            has_impact=True,
        )


def _ratios(view: View) -> dict[int, int]:
    """By GPU that copied or computed: the time that it took, in thousandths of what that should take."""
    ratios = {}
    for gpu in view.numbers(Role.GPU):
        section = view.scenario.at(view.topology, gpu).gpu
        copies = view.total(GPU_COPIES, gpu)
        computed_ps, work_ps = _computed(view, gpu)
        if copies or work_ps:
            copied = view.total(GPU_COPIED_BYTES, gpu)
            meant_ps = copies * section.copy_latency_ps + serialisation_ps(copied, section.copy_rate_bps)
            taken_ps = view.total(GPU_COPY_PS, gpu) + computed_ps
            ratios[gpu] = taken_ps * 1000 // max(meant_ps + work_ps, 1)
    return ratios


def excesses_ps(view: View) -> dict[int, int]:
    """By GPU: how much longer its copies and computing took than at the ratio of the median GPU."""
    ratios = _ratios(view)
    usual = median_low(ratios.values()) if ratios else 0
    return {
        gpu: (view.total(GPU_COPY_PS, gpu) + _computed(view, gpu)[0]) * (ratio - usual) // ratio
        for gpu, ratio in ratios.items()
        if ratio > usual
    }


def _computed(view: View, gpu: int) -> tuple[int, int]:
    """How long programs computed on a GPU, and how long that takes where it is not slow."""
    end = view.topology.host_end(gpu)
    place = end.peer, end.peer_port
    return view.total(HOST_COMPUTE_PS, *place), view.total(HOST_COMPUTE_WORK_PS, *place)


def _slow(view: View) -> Iterator[Finding]:
    ratios = _ratios(view)
    if len(ratios) < 2:
        return
    usual = max(median_low(ratios.values()), 1)
    slow = {
        gpu: ratio * 1000 // usual for gpu, ratio in ratios.items() if ratio * 1000 >= usual * SLOW_PERMILLE
    }
    topology = view.topology
    whole: dict[int, bool] = {}
    for gpu in slow:
        host = topology.host_of(gpu)
        peers = [one for one in topology.server(topology.nodes[host].host) if one in ratios]
        if len(peers) > 1 and all(one in slow for one in peers):
            if host not in whole:
                whole[host] = True
                yield _behind(view, "straggler", host, peers, slow)
        else:
            yield _behind(view, "gpu_slow", gpu, [gpu], slow)


def _behind(view: View, cause: str, place: int, gpus: list[int], slow: dict[int, int]) -> Finding:
    least = min(slow[gpu] for gpu in gpus)
    times = f"{least // 1000}.{least % 1000 // 10:02d}"
    what = "copies and computing" if any(_computed(view, gpu)[0] for gpu in gpus) else "copies"
    whose = f"its {what}" if cause == "gpu_slow" else f"the {what} of all its {len(gpus)} GPUs"
    evidence = [_evidence(view, gpu, slow[gpu]) for gpu in gpus]
    return Finding(
        cause,
        view.name(place),
        800 + min((least - 1000) // 20, 80),
        f"{view.name(place)} is behind its peers: {whose} took {times} times as long as the median GPU's",
        tuple(evidence),
        -1,
        has_impact=any(_has_impact(view, gpu, slow[gpu]) for gpu in gpus),
    )


def _evidence(view: View, gpu: int, ratio: int) -> str:
    """What a slow GPU and its host counted."""
    parts = []
    if copies := view.total(GPU_COPIES, gpu):
        parts.append(f"gpu_copy {about_time(view.total(GPU_COPY_PS, gpu))} for {copies} copies")
    computed_ps, work_ps = _computed(view, gpu)
    if computed_ps:
        parts.append(f"host_compute {about_time(computed_ps)} for {about_time(work_ps)} of computing")
    return f"{view.name(gpu)}: {', '.join(parts)}, {ratio // 10}% of what its peers take"


def _has_impact(view: View, gpu: int, ratio: int) -> bool:
    """Whether a slow GPU is felt without a comparison."""
    busy_ps = _busy_ps(view)
    computed_ps, work_ps = _computed(view, gpu)
    late_ps = computed_ps - work_ps
    return (
        _longer_copies_ps(view, gpu, ratio) * 1000 >= busy_ps * IMPACT_PERMILLE
        or late_ps * 1000 >= max(busy_ps, 1) * COMPUTE_IMPACT_PERMILLE
    )


def _longer_copies_ps(view: View, gpu: int, ratio: int) -> int:
    """How much longer the copies of a GPU took than those of its peers."""
    return view.total(GPU_COPY_PS, gpu) * (ratio - 1000) // ratio


def _busy_ps(view: View) -> int:
    """How long the job that was busy for longest was in operations."""
    times = [
        sum(done.end_ps - done.start_ps for done in operations(view, plan))
        for plan in view.plans
        if plan.enabled
    ]
    return max(times, default=0)
