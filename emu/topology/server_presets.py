"""Builds of servers: which PCIe switch GPUs, NICs and NVMe drives hang on, by name (`host.node`).

All links of a build are PCIe with 16 lanes. Below a switch hang GPUs and the NICs that read and write their
memory (GPUDirect), above it is a CPU with host memory. So

- what a NIC sends goes up the link of its GPU to their switch, and down to the NIC;
- what a GPU saves goes up the same link, and on over the switch's link to the CPU, which all GPUs below the
  switch share;
- what a front-end NIC sends comes out of host memory, over a link of the CPU's own.

So a copy from GPU to host memory meets what the NIC of that GPU sends, and the copies of its neighbours. It
gets what is fair: of the switch's link as much as each neighbour that copies too, of the GPU's link half.

Sources. Grand Teton: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24): 2 CPUs, 4
PCIe Gen5 switches, 8 H100, 8 RDMA NICs of 400G, one for each GPU, front-end NICs apart; which tray has what,
and 16 drives behind the switches, are from memory of Meta's contribution to the Open Compute Project (2022).
ZionEX: Mudigere et al., Software-Hardware Co-design for Fast and Scalable Training of Deep Learning
Recommendation Models (ISCA'22), from memory: 4 CPUs with a front-end NIC of 100G each, 8 A100 (PCIe Gen4)
with a RoCE NIC of 200G each. HPN: Alibaba HPN (SIGCOMM'24): 8 GPUs and 9 NICs of 2 x 200G, of which one is
the front end's. Assumed: two GPUs and their NICs below each of four switches in ZionEX and HPN too; HPN's
two CPUs; one front-end NIC in Grand Teton; the front end's NICs on CPUs. Drives are left out where we know of
none. Rates: PCI Express 4.0 and 5.0, 16 and 32 GT/s a lane.

Not modelled: more than one front-end NIC, whatever the build has; traffic between CPUs; the bandwidth of host
memory, which is more than the links of all switches of a CPU carry; what NVMe drives read and write.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import Node, Role, Topology
from emu.topology.front_end import FRONT_END

PCIE_GEN4_BPS: Final = 252 * 10**9
"""16 lanes of 16 GT/s, payload."""
PCIE_GEN5_BPS: Final = 504 * 10**9
"""16 lanes of 32 GT/s, payload."""


class PcieSwitch(NamedTuple):
    """What hangs on a PCIe switch: GPUs and back-end NICs by position, and how many drives."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    nvme: int


class ServerPreset(NamedTuple):
    """A build of a server."""

    cpus: int
    frontend_nics: int
    """On the CPUs."""
    switches: tuple[PcieSwitch, ...]
    link_bps: int
    """Rate of every link of its PCIe, payload each way."""
    trays: tuple[str, str, str]
    """What holds CPUs, switches with NICs and drives, and GPUs."""

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return sum(len(one.gpus) for one in self.switches)

    def switch_of(self, gpu: int) -> int:
        """The switch that the GPU at a position hangs on."""
        return next(place for place, one in enumerate(self.switches) if gpu in one.gpus)

    def copy_bps(self, gpu: int, copying: Collection[int]) -> int:
        """What a GPU gets to host memory while those at the positions `copying` copy there, itself among
        them.
        """
        neighbours = [other for other in self.switches[self.switch_of(gpu)].gpus if other in copying]
        return self.link_bps // max(len(neighbours), 2)


def _pairs(nvme: int) -> tuple[PcieSwitch, ...]:
    """Four switches, each with two GPUs, their NICs, and so many drives."""
    return tuple(PcieSwitch((2 * at, 2 * at + 1), (2 * at, 2 * at + 1), nvme) for at in range(4))


_ONE_BOX: Final = ("server", "server", "server")
SERVER_PRESETS: Final[dict[str, ServerPreset]] = {
    "zionex": ServerPreset(4, 4, _pairs(0), PCIE_GEN4_BPS, _ONE_BOX),
    "grand_teton": ServerPreset(2, 1, _pairs(4), PCIE_GEN5_BPS, ("CPU tray", "switch tray", "GPU tray")),
    "hpn": ServerPreset(2, 1, _pairs(0), PCIE_GEN5_BPS, _ONE_BOX),
}
"""By `host.node`."""


def misfits(preset: ServerPreset, topology: Topology) -> Iterator[str]:
    """Why servers of a fabric cannot be of a build; one that has fewer of its GPUs can."""
    for index, host in enumerate(topology.hosts):
        gpus = [number for number in topology.server(index) if topology.nodes[number].role is Role.GPU]
        nics = [nic for gpu in gpus for nic in topology.nics_of_gpu(gpu)]
        if len(gpus) > preset.gpus or not len(gpus) == len(nics) == len(set(nics)):
            yield f"{topology.nodes[host].name} has {len(gpus)} GPUs with {len(set(nics))} NICs of their own"


def gpu_link_bps(build: str, nic: Node) -> int:
    """What the link of the GPU behind a NIC carries, over which it reads and writes; 0 where no build says,
    and at the front end.
    """
    preset = SERVER_PRESETS.get(build)
    return 0 if preset is None or nic.network == FRONT_END else preset.link_bps


def copy_rates_bps(build: str, link_bps: int, topology: Topology, gpus: Sequence[int]) -> list[int]:
    """What each GPU gets to host memory while all of these copy there; without a build a link of its own."""
    preset = SERVER_PRESETS.get(build)
    if preset is None:
        return [link_bps] * len(gpus)
    seats = [(topology.host_of(gpu), topology.nodes[gpu].position) for gpu in gpus]
    copying: dict[int, list[int]] = {}
    for host, position in seats:
        copying.setdefault(host, []).append(position)
    return [preset.copy_bps(position, copying[host]) for host, position in seats]


def described(name: str, built: int) -> list[str]:
    """Where things sit in a server of a build that has `built` GPUs, in lines."""
    preset = SERVER_PRESETS[name]
    cpu_tray, switch_tray, gpu_tray = preset.trays
    nics = "1 front-end NIC" if preset.frontend_nics == 1 else f"{preset.frontend_nics} front-end NICs"
    lines = [f"servers: {name}, PCIe of {preset.link_bps // 10**9}G; {cpu_tray}: {preset.cpus} CPUs, {nics}"]
    for place, one in enumerate(preset.switches):
        gpus = " ".join(f"gpu {gpu}" for gpu in one.gpus if gpu < built)
        if not gpus:
            continue
        below = " ".join(f"nic {nic}" for nic in one.nics if nic < built)
        drives = f", {one.nvme} NVMe" if one.nvme else ""
        where = f"{switch_tray}: " if switch_tray != cpu_tray else ""
        behind = f" ({gpu_tray})" if gpu_tray != switch_tray else ""
        lines.append(f"  {where}PCIe switch {place}: {below}{drives}; below it {gpus}{behind}")
    return lines
