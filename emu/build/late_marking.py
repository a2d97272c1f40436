"""Marking that begins above XOFF: ECN can then not act before PFC does.

A switch marks by the depth of an egress queue, and pauses by what an ingress priority group holds. Frames
that come in by one port fill both alike, so where Kmin lies above the most that a group may hold before it
pauses, a queue fed by one port pauses its senders and never tells them to slow down. DCQCN (Zhu et al.,
SIGCOMM 2015, section 4) therefore sets Kmin below what XOFF leaves.

The dynamic threshold is alpha x (pool - used), so that a group alone holds alpha / (1 + alpha) of the pool.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from actors.fabric.model import FABRIC, Topology
from actors.kernel.counters import PFC_TRANSMIT_XOFF_FRAMES, QUEUE_MARKED_FRAMES
from emu.base.foreseen import LATE_MARKING, Foreseen
from emu.build.buffer_sizes import is_deep, shared_pool_bytes
from emu.scenario.schema import Scenario
from emu.scenario.sections.switch import BufferProfile, EcnSection, MarkingProfile


class _Late(NamedTuple):
    kmin_bytes: int
    xoff_bytes: int
    priority: int
    switch: str
    value_bytes: int
    """Kmin with which marking begins at half of XOFF there."""

    @property
    def excess_bytes(self) -> int:
        """How far Kmin lies above XOFF."""
        return self.kmin_bytes - self.xoff_bytes


def late_marking_foreseen(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    """A warning for each Kmin that lies above the XOFF of its lossless queue, of the worst port."""
    if scenario.credited or not any(one.ecn_capable for one in scenario.transports):
        return []
    worst: dict[str, _Late] = {}
    switches: dict[str, dict[str, None]] = {}
    for switch in topology.switches:
        section = scenario.at(topology, switch).switch
        if not section.pfc.enabled or not isinstance(section.ecn, EcnSection) or not section.ecn.enabled:
            continue
        if is_deep(scenario, topology, switch) or section.buffer.admission.kind != "thresholds":
            continue
        pool_bytes = shared_pool_bytes(scenario, topology, switch)
        rate_bps = max(end.rate_bps for end in topology.ports(switch) if end.kind == FABRIC)
        marking, groups = section.ecn.profiles_of(), section.buffer.profiles_of()
        for priority in section.pfc.priorities:
            profile = marking[priority]
            if profile is None:
                continue
            kmin_bytes, _ = section.ecn.thresholds_at(rate_bps, profile)
            xoff_bytes = xoff_at_most_bytes(groups[priority], pool_bytes)
            if kmin_bytes <= xoff_bytes:
                continue
            key = scenario.key_at(topology, switch, f"{_key_of(section.ecn, profile)}.kmin")
            name = topology.nodes[switch].name
            switches.setdefault(key, {})[name] = None
            value_bytes = profile.kmin_bytes * xoff_bytes // (2 * kmin_bytes)
            late = _Late(kmin_bytes, xoff_bytes, priority, name, value_bytes)
            if key not in worst or late.excess_bytes > worst[key].excess_bytes:
                worst[key] = late
    return [
        Foreseen(
            f"{key}: marking begins at {one.kmin_bytes}B, above XOFF of priority group {one.priority}"
            f" ({one.xoff_bytes}B at most on {one.switch})",
            "ECN cannot act before PFC where frames come in by one port",
            f"{one.value_bytes}B would be half of XOFF",
            LATE_MARKING,
            tuple(switches[key]),
            (),
            (key, f"{one.value_bytes}B"),
            (PFC_TRANSMIT_XOFF_FRAMES,),
            (QUEUE_MARKED_FRAMES,),
        )
        for key, one in sorted(worst.items())
    ]


def xoff_at_most_bytes(profile: BufferProfile, pool_bytes: int) -> int:
    """The most that a priority group holds, its reserve included, before it pauses."""
    share = Fraction(profile.alpha)
    dynamic_bytes = int(pool_bytes * share / (1 + share))
    return profile.reserve_bytes + (profile.xoff_bytes or dynamic_bytes)


def _key_of(section: EcnSection, profile: MarkingProfile) -> str:
    places = [f".profiles[{at}]" for at, one in enumerate(section.profiles) if one is profile]
    return "".join(["switch.ecn", *places])
