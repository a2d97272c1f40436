"""How much time a suspect can have cost a job at most, by what counters and the configuration say.

Of many suspects only some can be healed one by one. Those that can cost most come first: a link by what its
lost rate takes for the payload that it carried, by how late its frames were, or by how long it was down; a
GPU by how much longer it took than the median one; a port by how long it kept its peer waiting. A component
that carried nothing costs nothing. Of a difference of configuration nothing tells what it costs, so it is
bounded by the share of the busiest port's payload that passed the device.
"""

from __future__ import annotations

import re
from typing import Final

from actors.fabric.model import FABRIC, Role, TopologyError
from actors.kernel.counters import (
    GPU_UNRESPONSIVE_PS,
    PFC_PAUSED_PS,
    PORT_TRANSMIT_PAYLOAD_BYTES,
)
from actors.kernel.units import serialisation_ps
from emu.views.diagnosis.bad_links import speeds
from emu.views.diagnosis.finding import CONTENTION, GIVEN, Finding
from emu.views.diagnosis.slow_gpus import excesses_ps
from emu.views.diagnosis.view import View

_GPUS: Final = ("gpu_slow", "straggler")
_PAUSES: Final = ("pause_storm", "slow_receiver")
_DOWN: Final = ("link_down", "link_flap", "nic_down", "switch_down")


def most_ps(view: View, finding: Finding) -> int:
    """The bound for one suspect, never more than what was left of the run when it began."""
    left_ps = view.end_ps - max(min(finding.since_ps, view.end_ps), 0)
    return min(_bound_ps(view, finding, left_ps), left_ps)


def _bound_ps(view: View, finding: Finding, left_ps: int) -> int:
    # Bounds from counters alone, to order suspects by what they may have cost; emulation says what they did.
    cause = finding.cause
    if cause == CONTENTION:
        return _job_ps(view, finding.place)
    if cause in ("miscabling", GIVEN):
        return left_ps
    numbers = _numbers(view, finding.place)
    if cause in _GPUS:
        late_ps = excesses_ps(view)
        return max((late_ps.get(gpu, 0) for gpu in _gpus(view, numbers)), default=0)
    if cause == "gpu_hung":
        return max((view.total(GPU_UNRESPONSIVE_PS, gpu) for gpu in numbers), default=0)
    ports = _ports(view, numbers)
    if not ports:
        return left_ps
    if cause in _PAUSES:
        peers = [view.peer(*port) for port in ports]
        return max(left_ps // 20, *(view.total(PFC_PAUSED_PS, *peer) for peer in peers))
    carried = max(view.total(PORT_TRANSMIT_PAYLOAD_BYTES, *port) for port in ports)
    if cause in _DOWN:
        return left_ps if carried else left_ps // 100
    if not carried:
        return 0
    if cause == "degraded_link" and not finding.alarms:
        return max(_lost_rate_ps(view, *port) for port in ports)
    if cause == "delayed_link":
        return max(
            (row[2] for number in numbers for row in view.rows(number, "late") if (number, row[0]) in ports),
            default=0,
        )
    busiest = max(
        view.total(PORT_TRANSMIT_PAYLOAD_BYTES, number, port)
        for number in view.networked()
        for port, _ in view.fabric_ports(number)
    )
    return left_ps * carried // max(busiest, 1)


def _job_ps(view: View, name: str) -> int:
    """How long the busiest NIC of a job's servers was busy sending."""
    hosts = {host for plan in view.plans if plan.name == name for host in plan.hosts}
    times = [
        serialisation_ps(view.total(PORT_TRANSMIT_PAYLOAD_BYTES, nic, port), end.rate_bps)
        for nic in view.numbers(Role.NIC)
        if view.topology.host_of(nic) in hosts
        for port, end in view.fabric_ports(nic)
    ]
    return max(times, default=0)


def _numbers(view: View, place: str) -> list[int]:
    """The devices that a place names."""
    found = []
    for name in re.split("[:>]", place.partition("/")[0]):
        try:
            found.append(view.topology.node_named(name).number)
        except TopologyError:
            continue
    return found


def _gpus(view: View, numbers: list[int]) -> list[int]:
    """GPUs themselves, and those of servers."""
    return [
        one
        for number in numbers
        for one in (
            [number]
            if view.role(number) is Role.GPU
            else view.topology.server(view.topology.nodes[number].host)
        )
    ]


def _ports(view: View, numbers: list[int]) -> list[tuple[int, int]]:
    """Ports of a device, of a server's NICs, or between two devices, both ends."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        devices = [number]
        if view.role(number) is Role.HOST:
            devices = [
                one
                for one in view.topology.server(view.topology.nodes[number].host)
                if view.role(one) is Role.NIC
            ]
        for device in devices:
            for port, end in enumerate(view.topology.ports(device)):
                if end.kind == FABRIC and (len(numbers) == 1 or end.peer in numbers):
                    found += [(device, port), (end.peer, end.peer_port)]
    return list(dict.fromkeys(found))


def _lost_rate_ps(view: View, number: int, port: int) -> int:
    """How much longer a port took for what it carried than at the speed it was built with."""
    rate_bps, built_bps, _ = speeds(view, number).get(port, (0, 0, 0))
    built_bps = built_bps or view.topology.ports(number)[port].rate_bps
    carried = view.total(PORT_TRANSMIT_PAYLOAD_BYTES, number, port)
    return serialisation_ps(carried, rate_bps) - serialisation_ps(carried, built_bps) if rate_bps else 0
