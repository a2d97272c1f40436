"""The knobs that are fitted: what nobody knows of his machine, each within a range that has a source.

A knob's *coordinate* is what times are nearly linear in: a time itself, or the reciprocal of a rate.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from emu.base.units import format_rate, format_time, parse_rate, parse_time
from emu.scenario.schema import Scenario


class Knob(NamedTuple):
    """One knob of a scenario."""

    key: str
    kind: Literal["time", "rate", "count"]
    least: int
    most: int
    probe: int
    """The value at which its effect is first measured."""
    why: str
    """What it stands for."""
    source: str
    """Where the range comes from."""
    with_it: tuple[tuple[str, str], ...] = ()
    """What else has to be set for it to act."""


NIC_KNOB: Final = "host.pcie.rate"
NVLINK_KNOB: Final = "host.nvlink.rate"

FIXED: Final = (
    Knob(
        "host.nic_link_delay",
        "time",
        parse_time("100ns"),
        parse_time("2us"),
        parse_time("1600ns"),
        "host and NIC: from a post to the first bit, from the last bit to the CPU",
        "0.8 us gives the published 64 B times of RoCE (arXiv 2505.09343)",
    ),
    Knob(
        "host.proxy_cost",
        "time",
        0,
        parse_time("2us"),
        parse_time("400ns"),
        "a proxy's CPU time for a post or a completion",
        "62 and 175 ns (Zambre et al., ICPP'19); NCCL's own table has 1 us a post",
    ),
    Knob(
        "gpu.copy_latency",
        "time",
        0,
        parse_time("5us"),
        parse_time("1us"),
        "fence and barrier of a copy",
        "3.4 us a hop of Simple over NVLink (NCCL 2.30, src/graph/tuning.cc)",
    ),
    Knob(
        "gpu.copy_rate",
        "rate",
        parse_rate("160G"),
        parse_rate("24T"),
        parse_rate("1T"),
        "rate of a GPU's copies between user and channel buffers",
        "at most HBM3 of an H100, 3 TB/s; at least one channel's 20 GB/s",
    ),
    Knob(
        "gpu.channel_rate",
        "rate",
        parse_rate("10GB/s"),
        parse_rate("70GB/s"),
        parse_rate("18GB/s"),
        "what a channel, which is a thread block, writes over NVLink",
        "half of Ampere's 20 to Blackwell's 70 GB/s of a channel (NCCL 2.30, src/graph/tuning.cc)",
    ),
)
COUNTS: Final = (
    Knob("ncclx.channels", "count", 1, 32, 0, "channels of a communicator", "NCCL_MAX_NCHANNELS"),
    Knob(
        "ncclx.qps_per_connection",
        "count",
        1,
        8,
        0,
        "queue pairs of a connection",
        "NCCL_IB_QPS_PER_CONNECTION",
    ),
)
COUNT_VALUES: Final = (1, 2, 4, 8, 16, 32)
LAUNCH: Final = Knob(
    "ncclx.launch",
    "time",
    0,
    parse_time("15us"),
    parse_time("5us"),
    "launch of a kernel, and the start of a call",
    "6.6 us of any call with LL, 14 us with LL128 (NCCL 2.30, src/graph/tuning.cc)",
)


def knobs_of(scenario: Scenario, nic_bps: int) -> list[Knob]:
    """The knobs of a scenario whose NICs have this rate, in the order of preference."""
    nvlink_bps = scenario.host.nvlink.rate_bps
    relative = [
        Knob(
            NIC_KNOB,
            "rate",
            nic_bps * 3 // 10,
            nic_bps,
            nic_bps * 8 // 10,
            "what passes between GPU memory and NIC",
            "PCIe of the last three generations, from 0.3 of the NIC's rate on",
            (("host.pcie.enabled", "true"),),
        ),
        Knob(
            NVLINK_KNOB,
            "rate",
            nvlink_bps * 3 // 10,
            nvlink_bps * 5 // 4,
            nvlink_bps * 7 // 10,
            "what NVLinks of a GPU carry of payload",
            "from PCIe in their place to the line rate over the payload's, 1.25",
        ),
    ]
    return [LAUNCH, *relative, *FIXED]


def coordinate(knob: Knob, value: float) -> float:
    """The coordinate of a value: ps, or seconds a terabit."""
    return value if knob.kind == "time" else 1e12 / value


def value_at(knob: Knob, place: float) -> int:
    """The value at a coordinate, within the range and to three digits."""
    value = place if knob.kind == "time" else 1e12 / place
    value = min(max(value, knob.least), knob.most)
    digits = max(len(str(int(value))) - 3, 0)
    step: int = 10**digits
    return min(max(round(value / step) * step, knob.least), knob.most)


def text_of(knob: Knob, value: int) -> str:
    """A value as it is written in a scenario."""
    if knob.kind == "count":
        return str(value)
    return format_time(value) if knob.kind == "time" else format_rate(value)


def start_of(knob: Knob, scenario: Scenario, nic_bps: int) -> int:
    """The value that the scenario has; of what limits nothing there, the least rate that does not either."""
    host, gpu = scenario.host, scenario.gpu
    if knob.key == NIC_KNOB:
        return min(host.pcie.rate_bps, nic_bps) if host.pcie.enabled else nic_bps
    values = {
        NVLINK_KNOB: host.nvlink.rate_bps,
        "host.nic_link_delay": host.link_delay_ps
        if host.nic_link_delay_ps is None
        else host.nic_link_delay_ps,
        "host.proxy_cost": host.proxy_cost_ps,
        "gpu.copy_latency": gpu.copy_latency_ps,
        "gpu.copy_rate": gpu.copy_rate_bps,
        "gpu.channel_rate": gpu.channel_rate_bps,
        LAUNCH.key: scenario.ncclx.launch_ps,
    }
    return values[knob.key]
