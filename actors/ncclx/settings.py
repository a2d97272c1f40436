"""The settings of the library for one job: channels, their buffers, queue pairs, admission, watchdog."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Topology
from actors.fabric.paths import Delays
from actors.ncclx.operations import IN_NVSWITCH
from actors.ncclx.protocols import LL, LL128, SIMPLE

MOST_CHANNELS: Final = 64
_DOUBLED_BELOW: Final = 16
"""Channels between servers."""
_PEERS_OF_A_ROUND: Final = 8
"""That a channel serves at once."""
_GBPS: Final = 8 * 10**9
"""Bit/s in a GB/s."""
EXCHANGE_GBPS: Final = 14
"""GB/s of NICs for each channel between two ranks, as NCCL 2.30.7 counts (P2P_PER_CHANNEL_NET_BW)."""
_HOPPER_GBPS: Final = 300
_SPEEDS: Final = (
    (600, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)),
    (_HOPPER_GBPS, (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)),
    (0, (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)),
)
"""GB/s that a channel may have of the NVLinks, by what these carry: of Blackwell GPUs, Hopper, and before."""
_NVLS_CHANNELS: Final = ((600, 24), (0, 16))
"""Channels of NVLS in a server, by rate."""


MERGED: Final = "merged"
"""One device with a queue pair on every port."""
APART: Final = "apart"
"""Each port is a device of its own."""
BONDED: Final = "bonded"
"""One device, whose driver deals queue pairs over the ports."""


def fabric_ports(topology: Topology, nic: int) -> int:
    """How many ports of a NIC lead into the fabric."""
    return sum(end.kind == FABRIC for end in topology.ports(nic))


def channel_count(topology: Topology, gpus: Sequence[int], asked: int = 0, *, port_use: str = MERGED) -> int:
    """Channels of a communicator of these GPUs, unless so many are asked for.

    NCCL 2.30 on Hopper GPUs (`src/graph/connect.cc`, ncclTopoPostset): a ring for each NIC of the server that
    has fewest, each on two channels; between servers twice that, if it is below 16. Inside a server as many
    as feed its NVLinks. Ports that are devices of their own count as NICs.
    """
    if asked:
        return asked
    end = topology.nvlink_end(gpus[0])
    if end is not None and len(gpus) > 1 and len({topology.host_of(gpu) for gpu in gpus}) == 1:
        return nvlink_channels(end.rate_bps)
    nics: dict[int, dict[int, int]] = {}
    for gpu in gpus:
        own = {
            nic: fabric_ports(topology, nic) if port_use == APART else 1 for nic in topology.nics_of_gpu(gpu)
        }
        nics.setdefault(topology.host_of(gpu), {}).update(own)
    count = 2 * max(min(sum(one.values()) for one in nics.values()), 1)
    if len(nics) > 1 and count < _DOUBLED_BELOW:
        count *= 2
    return min(count, MOST_CHANNELS)


def search_speeds(nvlink_bps: int) -> tuple[int, ...]:
    """What NCCL's search tries to give a channel of a GPU's NVLinks, GB/s, highest first."""
    return next(speeds for least, speeds in _SPEEDS if nvlink_bps >= least * _GBPS)


def nvlink_channels(rate_bps: int) -> int:
    """Channels of a communicator inside a server, whose GPUs have so much NVLink each.

    NCCL 2.30 (`src/graph/search.cc`, ncclTopoCompute): rings of the speed at which most of the rate is used,
    the highest of such, down to half of it; few or fast ones are split in two (ncclTopoDupChannels), and each
    is done on two channels.
    """
    best = rings = 0
    for speed in search_speeds(rate_bps):
        if best and (best * rings * _GBPS >= rate_bps or 100 * speed <= 49 * best):
            break
        many = min(rate_bps // (speed * _GBPS), MOST_CHANNELS // 2)
        if many * speed > best * rings:
            best, rings = speed, many
    recent = rate_bps >= _HOPPER_GBPS * _GBPS
    if best >= 25 and not (recent and best < 50 and rings > 4):
        rings *= 2
    return min(max(2 * rings, 2), MOST_CHANNELS)


def nvls_channels(channels: int, nvlink_bps: int) -> int:
    """Channels of NVLS in a communicator with so many.

    NCCL 2.30, `src/transport/nvls.cc`, ncclNvlsTuning.
    """
    return min(channels, next(most for least, most in _NVLS_CHANNELS if nvlink_bps >= least * _GBPS))


def exchange_channels(
    topology: Topology, gpus: Sequence[int], channels: int, asked: int = 0, each_gbps: int = 0
) -> int:
    """Channels between two ranks that send and receive, of a communicator with so many channels.

    NCCL 2.30 (`src/graph/paths.cc`, ncclTopoComputeP2pChannels): two, or one for each NIC of a GPU if those
    are more; with `each_gbps` one for so many GB/s of a GPU's NICs, as 2.30.7 has it; between servers half of
    it, and again, while the peers of a round need more channels than there are. Over NVLink all that there
    are, to a power of two, among the peers. Not modelled: fewer for messages of less than 64 KiB a channel
    (`src/enqueue.cc`, addP2pToPlan).
    """
    if asked:
        return min(asked, channels)
    if topology.nvlink_end(gpus[0]) is not None and len({topology.host_of(gpu) for gpu in gpus}) == 1:
        every = 1 << (channels - 1).bit_length()
        return max(every >> (len(gpus) - 1).bit_length(), 1)
    nics = topology.nics_of_gpu(gpus[0])
    each = max(2, len(nics))
    if each_gbps:
        rate_bps = sum(port.rate_bps for nic in nics for port in topology.ports(nic) if port.kind == FABRIC)
        each = max(len(nics), -(-(rate_bps // _GBPS) // each_gbps))
    each = 1 << (each - 1).bit_length()
    rounds = -(-len(gpus) // _PEERS_OF_A_ROUND)
    if len({topology.host_of(gpu) for gpu in gpus}) > 1:
        while each > 1 and each * rounds > channels:
            each //= 2
    return min(each, channels)


class Cut(NamedTuple):
    """A channel buffer: slices, slots, and the most that an exchange sends before it receives."""

    slice_bytes: int
    slots: int
    chunk_bytes: int


class Outstanding(NamedTuple):
    """Most bytes posted and not acknowledged on a connection, by the switches in between; 0: any."""

    rack_bytes: int = 0
    """Most bytes outstanding over one switch."""
    zone_bytes: int = 0
    """Most bytes outstanding over up to three switches (leaf, spine, leaf)."""
    pod_bytes: int = 0
    """Most bytes outstanding over more switches."""

    def differs(self) -> bool:
        """Whether the distance decides."""
        return not self.rack_bytes == self.zone_bytes == self.pod_bytes

    def at_distance(self, switches: int) -> int:
        """The limit of a connection with so many switches in between."""
        return self.rack_bytes if switches <= 1 else self.zone_bytes if switches <= 3 else self.pod_bytes


class Settings(NamedTuple):
    """What the library goes by in a job. `emu.scenario.sections.ncclx` says more of each, by NCCL's names."""

    channels: int
    """Channels of a communicator; 0: by its NICs, as `channel_count` says."""
    channels_per_peer: int
    """Channels of what is made of sends and receives; 0: as `exchange_channels` says."""
    turned_rings: bool
    """Whether a ring goes through the GPUs of a server in another order on each channel."""
    crossing_rings: bool
    """Whether that order is the same on every server."""
    one_rail: bool
    """Whether what a collective sends leaves a server on the rail on which it arrives."""
    sms_per_channel: int
    """SMs that a channel holds while its collective runs."""
    step_bytes: int
    """One slot of a channel buffer."""
    steps: int
    """Slots of a channel buffer."""
    chunk_steps: int
    slice_steps: int
    p2p_chunk_bytes: int
    """Slice of what is made of sends and receives; 0: as of the others."""
    qps_per_connection: int
    port_use: str
    """What the library makes of a NIC with several ports: MERGED, APART or BONDED."""
    qp_policy: str
    """One of `actors.ncclx.transport.posting.POLICIES`."""
    over_nics: bool
    """Whether with `least_loaded` a connection to another host has queue pairs on every NIC."""
    segment_bytes: int
    """Largest segment of the policy `dqplb`."""
    segments_per_qp: int
    """Most that are outstanding on a queue pair with `dqplb`."""
    outstanding: Outstanding
    protocol: str
    """Protocol of collectives by rings, trees and other graphs: one of `actors.ncclx.protocols.PROTOCOLS`;
    `auto`: as each call says, else Simple."""
    ll_bytes: int
    """Channel buffer of LL, in lines; and of LL128."""
    ll128_bytes: int
    even_slices: bool
    """Whether a ring cuts each chunk into as many slices as the largest."""
    zero_copy: bool
    """Whether NICs read and write user buffers."""
    admitted: bool
    """Whether a slice waits for the receiver's clear-to-send."""
    data_priority: int
    control_priority: int | None
    """Priority of clear-to-sends; None: that of the data."""
    watchdog_ps: int
    """How long an operation may take; 0: any time."""
    flight_recorder: int
    """Operations that each rank remembers."""
    delays: Delays
    """Delays of a message on an idle fabric."""
    launch_ps: int = 0
    """From a rank's call until it begins."""
    copies_by_nic: bool = False
    """Whether copies for NICs cost more than others, so that GPUs are told which they are."""
    exchange_gbps: int = 0
    """GB/s of a GPU's NICs for each channel between two ranks; 0: by the number of NICs."""
    nvls_latency_ps: int = 0
    """From a call of NVLS or NVLSTree until its first byte moves."""
    connect_pair_ps: int = 0
    """What a rank takes to make a queue pair at its first use; 0: all are there when time begins."""
    connect_exchange_ps: int = 0
    """Time to exchange the numbers of queue pairs with its peers."""

    def late_ps(self, algorithm: str) -> int:
        """How long after a call by this algorithm its first byte moves."""
        return self.nvls_latency_ps if algorithm in IN_NVSWITCH else 0

    @property
    def slice_bytes(self) -> int:
        """Largest slice."""
        return self.step_bytes * self.slice_steps

    @property
    def chunk_bytes(self) -> int:
        """Largest chunk."""
        return self.step_bytes * self.chunk_steps

    @property
    def in_line(self) -> bool:
        """Whether some slices need no GPU."""
        return self.zero_copy or self.protocol in ("ll", "auto")

    def cut(self, *, point_to_point: bool, protocol: int = int(SIMPLE)) -> Cut:
        """How the channel buffer of a connection is used."""
        if protocol == LL:
            size = self.ll_bytes // self.steps // 16 * 8
            return Cut(size, self.steps, size)
        if protocol == LL128:
            size = self.ll128_bytes // self.steps // 128 * 120 // 16 * 16
            return Cut(size, self.steps, size)
        if not point_to_point or not self.p2p_chunk_bytes:
            return Cut(self.slice_bytes, self.steps // self.slice_steps, self.chunk_bytes)
        size = min(self.p2p_chunk_bytes, self.step_bytes)
        return Cut(size, self.steps, max(size * self.steps // 2, size))
