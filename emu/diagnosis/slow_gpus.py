"""GPUs and servers behind their peers: slow, hung, gone.

Every GPU counts its copies and how long they took without waiting for their turn; what a copy of that size
should take is known from the configuration. The median GPU is the measure, so that whatever slows all alike
blames none. Where all GPUs of a server are slow, the server is named. A GPU that does nothing of what it is
asked for hangs; one that fell off the bus is in its host's log (Xid 79).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.fabric.model import Role
from actors.kernel.units import serialisation_ps
from emu.diagnosis.finding import Finding
from emu.diagnosis.slow_jobs import median, operations
from emu.diagnosis.view import View
from emu.measure.device_state import GPU_GONE
from emu.measure.formatting import about_time, shown_time

SLOW_PERMILLE: Final = 1030
"""Of the median GPU's time for the same."""
HARM_PERMILLE: Final = 200
"""Of a job's time: by so much longer copies are felt, though they overlap with others and with the wire."""
HUNG_PS: Final = 1_000_000
"""A GPU that let everything wait for so long was not just busy."""


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
        silent_ps = view.total("gpu_unresponsive_ps", gpu)
        if silent_ps < HUNG_PS:
            continue
        when = view.when("gpu_unresponsive_ps", gpu)
        yield Finding(
            "gpu_hung",
            view.name(gpu),
            945,
            f"{view.name(gpu)} did nothing of what it was asked for during {about_time(silent_ps)}, and the "
            "other ranks waited for it",
            (f"{view.name(gpu)}: gpu_unresponsive {about_time(silent_ps)}{when}",),
            view.since("gpu_unresponsive_ps", gpu),
            harms=True,
        )


def _ratios(view: View) -> dict[int, int]:
    """By GPU that copied: the time that its copies took, in thousandths of what they should take."""
    section = view.scenario.gpu
    ratios = {}
    for gpu in view.numbers(Role.GPU):
        copies = view.total("gpu_copies", gpu)
        if copies:
            copied = view.total("gpu_copied_bytes", gpu)
            meant_ps = copies * section.copy_latency_ps + serialisation_ps(1, section.copy_rate_bps) * copied
            ratios[gpu] = view.total("gpu_copy_ps", gpu) * 1000 // max(meant_ps, 1)
    return ratios


def _slow(view: View) -> Iterator[Finding]:
    ratios = _ratios(view)
    if len(ratios) < 2:
        return
    usual = max(median(list(ratios.values())), 1)
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
    whose = "its copies" if cause == "gpu_slow" else f"the copies of all its {len(gpus)} GPUs"
    evidence = [
        f"{view.name(gpu)}: gpu_copy {about_time(view.total('gpu_copy_ps', gpu))} for "
        f"{view.total('gpu_copies', gpu)} copies, {slow[gpu] // 10}% of what its peers take"
        for gpu in gpus
    ]
    return Finding(
        cause,
        view.name(place),
        800 + min((least - 1000) // 20, 80),
        f"{view.name(place)} is behind its peers: {whose} took {times} times as long as the median GPU's",
        tuple(evidence),
        -1,
        harms=any(_excess_ps(view, gpu, slow[gpu]) * 1000 >= _busy_ps(view) * HARM_PERMILLE for gpu in gpus),
    )


def _excess_ps(view: View, gpu: int, ratio: int) -> int:
    """How much longer the copies of a GPU took than those of its peers."""
    return view.total("gpu_copy_ps", gpu) * (ratio - 1000) // ratio


def _busy_ps(view: View) -> int:
    """How long the job that was busy for longest was in operations."""
    times = [
        sum(done.end_ps - done.start_ps for done in operations(view, plan))
        for plan in view.plans
        if plan.enabled
    ]
    return max(times, default=0)
