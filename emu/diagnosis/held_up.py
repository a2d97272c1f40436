"""The rank that holds the others up, and who waits for whom.

The flight recorders and failures of a job that did not end well already name ranks that never joined, or
called another size (`emu.measure.run_directory.flight_recorder`). Where no other cause is found the chain of
waits is told, from a rank by its queue pair and port to what holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from actors.fabric.model import Role
from emu.diagnosis.finding import Finding
from emu.diagnosis.view import View
from emu.diagnosis.wait_chain import TIME_LIMIT, breaks_off, chain_of_waits, stuck
from emu.measure.device_state import WAITS
from emu.measure.summary.jobs import SUCCESS

MOST_LINES: Final = 8


def found(view: View) -> Iterator[Finding]:
    """Ranks that are behind by themselves; last, who waits for whom."""
    for name, job in view.jobs.items():
        if job.status == SUCCESS:
            continue
        for line in job.suspects:
            for sign, cause, score in (
                ("never joined", "rank_absent", 500),
                (" called ", "rank_mismatch", 955),
            ):
                if sign in line:
                    rank = line.split()[1]
                    yield Finding(
                        cause, f"{name} rank {rank}", score, f"{name}: {line}", (line,), alarms=True
                    )
    lines = waits(view)
    if lines:
        chain = chain_of_waits(view) or lines[0]
        yield Finding("unexplained_wait", chain.split()[0], 100, chain, tuple(lines), alarms=True)


def waits(view: View) -> list[str]:
    """Who waits for whom at the end of a run that came to none: ranks, queue pairs, ports."""
    if view.ending == "finished" or (view.ending == TIME_LIMIT and not breaks_off(view)):
        return []
    lines: list[str] = []
    for host in view.numbers(Role.HOST):
        for job, rank, operation, why, peer, port, pair in view.rows(host, "ranks"):
            where = view.name(view.topology.ports(host)[port].peer) if port >= 0 else "its NIC"
            lines.append(
                f"{view.plans[job].name} rank {rank} waits in operation {operation} for {WAITS[why]} from "
                f"rank {peer}, on {where} queue pair {pair}"
            )
    lines += [_outstanding(view, nic, row) for nic, row in stuck(view)]
    for number in view.networked():
        for port, waiting, blocked, _, up in view.rows(number, "held"):
            if waiting & blocked:
                lines.append(f"{view.port_name(number, port)} holds frames and is told to hold them")
            elif waiting and not up:
                lines.append(f"{view.port_name(number, port)} holds frames and its link is down")
    return lines[:MOST_LINES]


def _outstanding(view: View, nic: int, row: Sequence[int]) -> str:
    _, qpn, remote, left, sent, *_ = row
    towards = view.name(view.topology.nic_at(remote))
    return (
        f"{view.name(nic)} waits for {towards}: queue pair {qpn} has {left} packets unacknowledged, {sent} "
        "of them sent"
    )
