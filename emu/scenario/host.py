"""What is inside a server? Sections `host` (CPU proxies and host links) and `gpu` (the copy engine).

Costs without a published figure are zero, so that nothing is charged by guess. Sources: PCIe Gen5 x16 carries
32 GT/s x 16 = 512 Gbit/s; HBM3 of an H100 moves about 3 TB/s.
"""

from __future__ import annotations

from emu.scenario.section import Section
from emu.scenario.values import DelayPs, RateBps, TimePs
from emu.units import parse_rate, parse_time


class HostSection(Section):
    """Every server: its CPU proxies, and the links to its GPUs and NICs."""

    link_rate_bps: RateBps = parse_rate("512G")
    """Rate of a host link (GPU to host, NIC to host). PCIe Gen5 x16."""
    link_delay_ps: DelayPs = parse_time("250ns")
    """Propagation of a host link, which is also the least time of a doorbell or a completion."""
    proxy_cost_ps: TimePs = 0
    """CPU time a proxy spends on one operation (a post, a completion, a clear-to-send)."""


class GpuSection(Section):
    """Every GPU."""

    copy_rate_bps: RateBps = parse_rate("24T")
    """Rate of a copy between compute and channel buffer. 3 TB/s."""
    copy_latency_ps: TimePs = 0
    """Fixed time before a copy moves its first byte."""
