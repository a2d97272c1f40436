"""Sections `host` (proxies, host links, PCIe, NVLink) and `gpu` (the copy engine).

Costs are zero unless `costs` or the scenario sets them (`emu.scenario.profiles`, docs/costs.md). Sources:
"Breaking Band: A Breakdown of High-performance Communication" (Zambre et al., ICPP'19, server CPUs with
ConnectX-4) for posts, 175.4 ns with descriptor, barriers, doorbell and the copy to the NIC, and for polled
completions, 61.6 ns, so (175.4 + 2 x 61.6) / 3 = 99.6 ns on average over a slice's operations; PCIe Gen5 x16
carries 32 GT/s x 16 = 512 Gbit/s; HBM3 of an H100 moves about 3 TB/s (NVIDIA, H100 data sheet), and it has
132 SMs (H100 white paper). What NVLinks carry of payload, and what operations of the NVSwitch lose, are NCCL
2.30's constants (`src/graph/topo.h`, `src/graph/tuning.cc`); docs/servers.md has them beside measurements.
"""

from fractions import Fraction
from typing import Annotated, Literal

from emu.base.records import Field
from emu.base.units import parse_rate, parse_size, parse_time
from emu.scenario.section import Section
from emu.scenario.yaml.values import (
    AutoDelayPs,
    AutoRateBps,
    AutoTimePs,
    DelayPs,
    PositiveSizeBytes,
    RateBps,
    Share,
    TimePs,
)


class NvlinkSection(Section):
    """The NVSwitch domain of a server with several GPUs."""

    enabled: bool = True
    """Whether GPUs of one server exchange over it; otherwise through their NICs (NCCL_P2P_DISABLE)."""
    rate_bps: RateBps = parse_rate("2966.4G")
    """Payload rate of a GPU's NVLinks, each way: 18 links of 20.6 GB/s of an H100, whose line rate is 25
    GB/s a link."""
    delay_ps: DelayPs = parse_time("250ns")
    """Propagation between a GPU and the NVSwitch. A choice."""
    nvls_latency_ps: TimePs = parse_time("25us")
    """From a call of `nvls` or `nvls_tree` until its first byte moves: NCCL's table has 25 us for all of a
    small one."""
    nvls_efficiency: Annotated[float, Field(gt=0, le=1)] = 0.85
    """Share of `rate` that reductions and multicasts of the NVSwitch reach. 0.85 on Hopper, 0.74 on
    Blackwell."""

    @property
    def nvls_share(self) -> int:
        """The efficiency in units of 2^-16."""
        return max(round(self.nvls_efficiency * 65536), 1)


class PcieSection(Section):
    """What GPUDirect moves between GPU memory and a NIC."""

    enabled: bool = False
    """Whether it limits. It is off because as shipped it is faster than a NIC of 400G."""
    rate_bps: RateBps = parse_rate("504G")
    """Payload each way, for all ports of a NIC. 504G (63 GB/s) is PCIe Gen5 with 16 lanes."""


class HostSection(Section):
    """Every server: its CPU proxies, and the links to its GPUs and NICs."""

    node: Literal["none", "zionex", "grand_teton", "hpn"] = "none"
    """Which build servers are of: where GPUs, NICs and drives hang on PCIe switches, and what their links
    carry. A checkpoint that is saved then takes its part of the link over which the NIC reads from the GPU.
    `none`: the two have nothing in common, and only `pcie` limits."""
    link_rate_bps: RateBps = parse_rate("512G")
    """Rate of a host link (GPU to host, NIC to host). PCIe Gen5 x16."""
    link_delay_ps: DelayPs = parse_time("250ns")
    """Propagation of a host link, which is also the least time of a message to a GPU. A choice."""
    nic_link_delay_ps: AutoDelayPs = parse_time("800ns")
    """The same of the links to NICs: the floor of host and NIC between a post and the NIC's first bit, and
    between the last bit and the CPU that polls (doorbell, fetch of descriptor and payload, writes to memory).
    800 ns on each side leave the published times of 64 B messages over RoCE and InfiniBand (DeepSeek, arXiv
    2505.09343) to switches and cables (docs/nic.md). `auto`: `link_delay`."""
    memory_bytes: PositiveSizeBytes = parse_size("2TiB")
    """Memory of a server, in which a checkpoint waits for storage. A choice."""
    proxy_cost_ps: TimePs = parse_time("100ns")
    """CPU time a proxy spends on one operation: a post (of data or a clear-to-send) or a completion. A slice
    is one post and two completions at either end; Zambre et al. (ICPP'19) measured 175 ns and 62 ns."""
    proxy_poll_ps: TimePs = 0
    """CPU time in which a proxy looks at one connection over NICs; its round is as long as the connections of
    its rank's calls under way need. 0: it knows at once what came up."""
    proxy_batched_ps: AutoTimePs = None
    """CPU time of each operation of a round but the first: no doorbell of its own. For `proxy_poll` above 0.
    `auto`: `proxy_cost`."""
    tail_delay_ps: TimePs = 0
    """From when a GPU's threads write a flag into host memory until the proxy can see it."""
    head_delay_ps: TimePs = 0
    """From when the proxy, or a NIC, writes a flag into host memory until GPU threads that poll it go on."""
    gpudirect: bool = True
    """Whether NICs read and write GPU memory. Otherwise data passes through host memory at both ends: all
    copies of a GPU for NICs share `pcie.rate`, and each takes a `tail_delay` or `head_delay` more."""
    pcie: PcieSection = PcieSection.defaults()
    """The way of data between GPUs and NICs."""
    nvlink: NvlinkSection = NvlinkSection.defaults()
    """The link between the GPUs of a server."""

    @property
    def delay_to_nic_ps(self) -> int:
        """Propagation of a host link to a NIC."""
        return self.link_delay_ps if self.nic_link_delay_ps is None else self.nic_link_delay_ps


class GpuSection(Section):
    """Every GPU."""

    model: Literal["auto", "a100", "h100", "h200", "h20", "h800", "b200"] = "auto"
    """A GPU whose constants are those of `copy_rate`, `channel_rate`, `sms`, `host.nvlink.rate`,
    `host.nvlink.nvls_efficiency` and `ncclx.tuner.gpu`, where the scenario does not write them. `auto`: each
    by its own default, an H100's."""
    copy_rate_bps: RateBps = parse_rate("24T")
    """Rate of a copy between compute and channel buffer. 3 TB/s."""
    copy_latency_ps: TimePs = 0
    """Fixed time of a copy with Simple, beside its bytes: barriers of the thread block."""
    lines_latency_ps: TimePs = 0
    """The same with LL128: lines are put together from registers of several threads."""
    fence_ps: TimePs = 0
    """Fence of the system before the flag of what a NIC is to send, with Simple and LL128; lines of LL need
    none."""
    flush_ps: TimePs = 0
    """The library's flush, a READ of the NIC to itself, before what it has received with Simple is used."""
    nic_copy_rate_bps: AutoRateBps = None
    """What a channel, which is a thread block, copies into and out of buffers of NICs; lines as with
    `channel_rate`. What goes on over NVLink passes it there. `auto`: no limit but `copy_rate`."""
    channel_rate_bps: RateBps = parse_rate("24GB/s")
    """What a channel, which is a thread block, writes over NVLink with Simple; 7/8 of it with LL128 and 5/8
    with LL, lines included. From `host.nvlink.rate` on it is no limit. One channel of NCCL 2.30's ring moved
    22.3 GB/s between two ranks, 26.4 among four, on one H100 (docs/ncclx.md)."""
    sms: Annotated[int, Field(ge=1, le=1024)] = 132
    """Streaming multiprocessors, which channels and computing share (`ncclx.sms_per_channel`). An H100
    SXM's."""
    speed_spread: Share = Fraction(0)
    """Standard deviation of the speeds of GPUs, drawn once for each: what computes takes as much longer or
    shorter. 0.02 makes the slowest of 128 GPUs 2.4 % slower than the slowest of 8, which is what torchtitan
    loses from 8 to 128 GPUs (97.7 %, December 2024). 0: all are alike."""
