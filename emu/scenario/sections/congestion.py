"""Section `transport.congestion_control`: the congestion control of queue pairs.

A control is one line in `CONTROLS`: its name, its class, which lists its knobs, and what it is. One of your
own is `module:Class`.

Sources: Zhu et al. (SIGCOMM'15) for CNPs 50 us apart; the controls name theirs. Llama 3's fabric ran without
(`none`): receiver-driven admission and PFC alone.
"""

from __future__ import annotations

from typing import Final

from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.congestion.hpcc import Hpcc
from actors.nic.congestion.hybrid import Hybrid
from actors.nic.congestion.swift import Swift
from emu.scenario.knobs import PolicySection, section_of
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.yaml.values import PositiveTimePs, Priority
from emu.units import parse_time


class CongestionSection(PolicySection):
    """What every algorithm shares."""

    kind: str
    """Which algorithm."""
    cnp_interval_ps: PositiveTimePs = parse_time("50us")
    """A receiver sends at most one CNP per queue pair and interval."""
    cnp_priority: Priority = 6
    """Priority of CNPs."""

    @property
    def by_packet(self) -> bool:
        """Whether packets of a queue pair go by different ways, by UDP source ports of its choice."""
        return bool(self.policy.by_packet(self))

    @property
    def collects(self) -> bool:
        """Whether packets collect telemetry (INT) from switches."""
        return self.policy.telemetry_on_wire(self) is not None

    @property
    def telemetry_bytes(self) -> int:
        """What that adds to packets and acknowledgements on the wire."""
        return int(self.policy.telemetry_on_wire(self) or 0)


CONTROLS: Final = OneOfOrPlugin(
    {
        "none": section_of(
            CongestionSection, "none", CongestionControl, "Only pauses slow a queue pair down."
        ),
        "dcqcn": section_of(CongestionSection, "dcqcn", Dcqcn, "The rate follows what switches mark."),
        "swift": section_of(CongestionSection, "swift", Swift, "The window follows the round-trip time."),
        "hybrid": section_of(
            CongestionSection, "hybrid", Hybrid, "DCQCN's answer to marks and Swift's to delay."
        ),
        "hpcc": section_of(
            CongestionSection, "hpcc", Hpcc, "The window follows what links on the way say of themselves."
        ),
    },
    default="none",
    base=CongestionSection,
    parent=CongestionControl,
    methods=("on_send", "on_ack", "on_cnp"),
    arguments={"on_ack": ("packets", "rtt_ps", "now", "marked")},
)
