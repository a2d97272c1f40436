"""What is inside a server? Sections `host` (CPU proxies, host links, NVLink) and `gpu` (the copy engine).

Costs without a published figure are zero, so that nothing is charged by guess. Sources: PCIe Gen5 x16 carries
32 GT/s x 16 = 512 Gbit/s; HBM3 of an H100 moves about 3 TB/s, its 18 NVLinks 450 GB/s each way (NVIDIA, H100
data sheet: 900 GB/s both ways).
"""

from __future__ import annotations

from emu.scenario.section import Section
from emu.scenario.values import DelayPs, RateBps, TimePs
from emu.units import parse_rate, parse_time


class NvlinkSection(Section):
    """The NVSwitch domain of a server with several GPUs."""

    enabled: bool = True
    """Whether GPUs of one server exchange over it; otherwise through their NICs (NCCL_P2P_DISABLE)."""
    rate_bps: RateBps = parse_rate("3600G")
    """What a GPU's NVLinks carry of payload, each way. 18 links of 25 GB/s of an H100."""
    delay_ps: DelayPs = parse_time("250ns")
    """Propagation between a GPU and the NVSwitch. A choice."""


class HostSection(Section):
    """Every server: its CPU proxies, and the links to its GPUs and NICs."""

    link_rate_bps: RateBps = parse_rate("512G")
    """Rate of a host link (GPU to host, NIC to host). PCIe Gen5 x16."""
    link_delay_ps: DelayPs = parse_time("250ns")
    """Propagation of a host link, which is also the least time of a doorbell or a completion."""
    proxy_cost_ps: TimePs = 0
    """CPU time a proxy spends on one operation (a post, a completion, a clear-to-send)."""
    nvlink: NvlinkSection = NvlinkSection()
    """What joins the GPUs of a server."""


class GpuSection(Section):
    """Every GPU."""

    copy_rate_bps: RateBps = parse_rate("24T")
    """Rate of a copy between compute and channel buffer. 3 TB/s."""
    copy_latency_ps: TimePs = 0
    """Fixed time before a copy moves its first byte."""
