"""What do NICs do? Sections `nic` (the device) and `transport` (its reliable-connection queue pairs).

Sources: InfiniBand Architecture Specification volume 1, chapter 9, for timeout exponent, retry count and
MTU; NCCL for what libraries set (IB_TIMEOUT 14 up to 2.13, 18 and then 20 since; IB_RETRY_CNT 7); Meta
(SIGCOMM'24) for control messages in a class of their own and for UDP source ports that are equal for all
queue pairs of a pair.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from emu.scenario.section import Section
from emu.scenario.switch import pause_response_ps
from emu.scenario.values import AutoTimePs, MtuBytes, Priority, TimePs
from emu.units import parse_time


class NicSection(Section):
    """Every NIC of the fabric."""

    latency_ps: TimePs = parse_time("300ns")
    """Fixed latency from a frame's last bit in until the NIC acts on it. A choice, not one vendor's
    figure."""
    pfc_response_ps: AutoTimePs = None
    """Time a NIC takes to obey a pause. `auto`: 905 quanta, up to 100G 394."""

    def response_at(self, rate_bps: int) -> int:
        """Time in ps that a NIC's port of `rate_bps` takes to obey a pause."""
        return pause_response_ps(self.pfc_response_ps, rate_bps)


class TransportSection(Section):
    """Reliable-connection queue pairs: go-back-N with a timeout."""

    mtu_bytes: MtuBytes = 4096
    """Payload of a full packet."""
    timeout: Annotated[int, Field(ge=0, le=31)] = 14
    """Local ACK timeout 4.096 us x 2^timeout; 0 waits for ever."""
    retry_count: Annotated[int, Field(ge=0, le=7)] = 7
    """Retries before the queue pair goes into error."""
    ack_every: Annotated[int, Field(ge=1, le=4096)] = 1
    """Packets per ACK; the last packet of a message is always acknowledged."""
    udp_source_port: Literal["per_qp", "per_pair"] = "per_qp"
    """Whether each queue pair has a UDP source port of its own, or all between two NICs share one."""
    data_priority: Priority = 3
    """Priority of data packets."""
    control_priority: Priority = 6
    """Priority of the library's control messages (clear-to-send)."""
    ack_priority: Priority = Field(default_factory=lambda known: int(known["control_priority"]))
    """Priority of ACK and NAK. Default: that of `control_priority`."""

    @property
    def timeout_ps(self) -> int:
        """The local ACK timeout; 0 if the queue pair waits for ever."""
        return 4_096_000 << self.timeout if self.timeout else 0
