"""Section `transport.congestion_control`: the congestion control of queue pairs.

An algorithm is one line in `CONTROLS`: its name and the model of its knobs. One of your own is
`module:Class`, and brings its model with it.

Sources: Zhu et al. (SIGCOMM'15) for DCQCN's constants at 40G (R_AI 40 Mb/s, 55 us, 10 MB, g 1/256, CNPs
50 us apart); Kumar et al. (SIGCOMM'20) for Swift's (beta 0.8, at most 0.5 a round trip); MegaScale
(NSDI'24) for the hybrid's idea. Llama 3's fabric ran without (`none`): receiver-driven admission and PFC
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    AutoPositiveSizeBytes,
    AutoPositiveTimePs,
    PositiveFraction,
    PositiveSizeBytes,
    PositiveTimePs,
    Priority,
    RateBps,
    SizeBytes,
)
from emu.units import parse_rate, parse_size, parse_time


class CongestionSection(Section):
    """What every algorithm shares."""

    per_packet: ClassVar[bool] = False
    """Whether packets of a queue pair go by different ways, by UDP source ports that the control chooses."""

    kind: str
    """Which algorithm."""
    cnp_interval_ps: PositiveTimePs = parse_time("50us")
    """A receiver sends at most one CNP per queue pair and interval."""
    cnp_priority: Priority = 6
    """Priority of CNPs."""

    @property
    def collects(self) -> bool:
        """Whether packets collect telemetry (INT) from switches."""
        return False

    @property
    def telemetry_bytes(self) -> int:
        """What that adds to packets and acknowledgements on the wire."""
        return 0


class NoControl(CongestionSection):
    """Only pauses slow a queue pair down."""

    kind: Literal["none"] = "none"
    """PFC only."""


class Dcqcn(CongestionSection):
    """The rate follows what switches mark."""

    kind: Literal["dcqcn"] = "dcqcn"
    """DCQCN."""
    gain_bits: Annotated[int, Field(ge=1, le=16)] = 8
    """g is 2^-gain_bits: 8 is 1/256."""
    alpha_timer_ps: PositiveTimePs = parse_time("55us")
    """Without a CNP for so long, alpha falls."""
    increase_timer_ps: PositiveTimePs = parse_time("55us")
    """Distance of the steps up by time."""
    byte_counter_bytes: PositiveSizeBytes = parse_size("10MB")
    """Distance of the steps up by bytes sent."""
    fast_recovery: Annotated[int, Field(ge=0, le=1000)] = 5
    """Steps that only halve the distance to the target rate."""
    additive_bps: RateBps = parse_rate("40M")
    """R_AI: what a step adds to the target rate after that. The paper's value, at 40G; at 400G it
    recovers very slowly.
    """
    hyper_bps: RateBps = parse_rate("400M")
    """R_HAI: what a step adds once both counters have passed `fast_recovery`. A choice: ten times R_AI."""
    least_bps: RateBps = parse_rate("10M")
    """The least rate. A choice."""


class Swift(CongestionSection):
    """The window follows the round-trip time."""

    kind: Literal["swift"] = "swift"
    """Swift."""
    target_ps: PositiveTimePs = parse_time("25us")
    """The round trip to aim at. A choice; deep-buffer spines alone take 22 us."""
    additive_thousandths: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Packets by which a short round trip opens the window, in thousandths."""
    beta_thousandths: Annotated[int, Field(ge=1, le=1000)] = 800
    """How much of the excess closes the window, in thousandths."""
    most_decrease_thousandths: Annotated[int, Field(ge=1, le=999)] = 500
    """The most by which a round trip closes the window, in thousandths."""
    window_bytes: PositiveSizeBytes = parse_size("1MB")
    """The largest window, and the first: 20 us at 400G."""


class Hybrid(Dcqcn):
    """DCQCN's answer to marks and Swift's to delay."""

    kind: Literal["hybrid"] = "hybrid"  # type: ignore[assignment]  # a kind of its own
    """Both."""
    target_ps: PositiveTimePs = parse_time("25us")
    """A longer round trip lowers the rate and holds steps up."""
    beta_thousandths: Annotated[int, Field(ge=1, le=1000)] = 800
    """How much of the excess lowers the rate, in thousandths."""
    most_decrease_thousandths: Annotated[int, Field(ge=1, le=999)] = 500
    """The most by which a round trip lowers the rate, in thousandths."""


class Hpcc(CongestionSection):
    """The window follows what links on the way say of themselves."""

    kind: Literal["hpcc"] = "hpcc"
    """HPCC."""
    LONGEST_RTT_PS: ClassVar[int] = parse_time("100us")

    base_rtt_ps: AutoPositiveTimePs = None
    """T: a little more than the longest unloaded round trip, 1 us to 100 us. The paper has 13 us at 100G.
    `auto`: that of the fabric, worked out from its links and latencies and rounded up to a whole
    microsecond."""
    eta: PositiveFraction = Fraction(19, 20)
    """The utilisation to aim at (0.95)."""
    max_stage: Annotated[int, Field(ge=0, le=1000)] = 5
    """Additive steps, of a round trip each, before the next one that follows the measurement."""
    flows: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """How many flows are to fit into what `eta` leaves: W_AI is (1 - eta) x rate x T / flows."""
    additive_bytes: AutoPositiveSizeBytes = None
    """W_AI. `auto`: by `flows`."""
    int_bytes: SizeBytes = parse_size("42B")
    """What INT adds to a packet and its acknowledgement on the wire: 2 B and 8 B for each of five hops. 0: as
    if it took no room."""

    def check(self) -> Iterator[Refusal]:
        """Refuse more than all of a link, and more INT than a packet holds."""
        if self.base_rtt_ps is not None and not parse_time("1us") <= self.base_rtt_ps <= self.LONGEST_RTT_PS:
            yield Refusal(("base_rtt",), "is no round trip of a fabric", "1us to 100us")
        if self.eta > 1:
            yield Refusal(("eta",), "is more than a whole link", "at most 1")
        if self.int_bytes > 512:
            yield Refusal(("int",), "is more than INT takes", "at most 512B")

    @property
    def collects(self) -> bool:
        """They do."""
        return True

    @property
    def telemetry_bytes(self) -> int:
        """As configured."""
        return self.int_bytes


CONTROLS: Final = OneOfOrPlugin(
    "kind",
    {"none": NoControl, "dcqcn": Dcqcn, "swift": Swift, "hybrid": Hybrid, "hpcc": Hpcc},
    default="none",
    base=CongestionSection,
    methods=("on_send", "on_ack", "on_cnp"),
    parent="actors.nic.congestion.control.CongestionControl",
    arguments={"on_ack": ("packets", "rtt_ps", "now", "marked")},
)


def misfits(section: CongestionSection, mtu_bytes: int) -> Iterator[Refusal]:
    """What of an algorithm's knobs does not go with the packets."""
    if isinstance(section, Swift) and section.window_bytes < mtu_bytes:
        reason = f"the window of {section.window_bytes} bytes holds no packet of {mtu_bytes}"
        yield Refusal(("congestion_control", "window"), reason, "at least `mtu`")
