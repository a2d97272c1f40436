"""Contention: jobs that ran at the same time and met at a port.

A job beside another may cost it time without anything being broken. What shows is that their times overlap,
and that frames waited at a switch, or that both ran on one server, whose NICs and GPUs they shared. Whether
one cost the other anything, and where they met, is found by emulating the run without it
(`emu.views.diagnosis.healing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.fabric.model import Role
from actors.kernel.counters import INGRESS_PEAK_BYTES, QUEUE_PEAK_BYTES, VOQ_PEAK_BYTES
from emu.summary.jobs import DISABLED
from emu.views.diagnosis.finding import CONTENTION, Finding
from emu.views.diagnosis.view import View

WAITING_FRAMES: Final = 4
"""A port that never held more frames than this at once kept nobody waiting."""


def found(view: View) -> Iterator[Finding]:
    """Each job that ran beside another with which it met: the later it began, the likelier."""
    spans = {
        name: (job.start_ps or 0, view.end_ps if job.end_ps is None else job.end_ps)
        for name, job in view.jobs.items()
        if job.status != DISABLED
    }
    if len(spans) < 2:
        return
    waited = _waited(view)
    hosts = {plan.name: {*plan.hosts} for plan in view.plans}
    for name, (begin_ps, end_ps) in spans.items():
        beside = [
            other
            for other, span in spans.items()
            if other != name and span[0] < end_ps and begin_ps < span[1]
        ]
        met = "frames waited"
        if not waited:
            beside = [other for other in beside if hosts[name] & hosts[other]]
            met = "both used the same servers"
        if beside:
            later = sum(spans[other][0] < begin_ps for other in beside)
            yield Finding(
                CONTENTION,
                name,
                400 + min(later, 99),
                f"{name} ran at the same time as {' and '.join(beside[:3])}, and {met}",
                (),
                begin_ps,
            )


def _waited(view: View) -> bool:
    """Whether some port held more than a few frames."""
    most_bytes = WAITING_FRAMES * (max(one.mtu_bytes for one in view.scenario.transports) + 100)
    peaks = (INGRESS_PEAK_BYTES, QUEUE_PEAK_BYTES, VOQ_PEAK_BYTES)
    return any(
        metric in peaks and value > most_bytes
        for switch in view.numbers(Role.SWITCH)
        for (metric, *_), value in view.counters(switch).items()
    )
