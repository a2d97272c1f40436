"""Section `ncclx`: how the collective library moves data, in knobs with NCCL's names.

Defaults are NCCL's, as far as the model has what they turn (`docs/defaults.md` has them side by side).

Sources: NCCL 2.30 (BUFFSIZE 4 MiB per channel in 8 steps; a ring chunk is 4 steps, a slice 2;
P2P_NET_CHUNKSIZE 128 KiB; IB_QPS_PER_CONNECTION 1; IB_SPLIT_DATA_ON_QPS 0, so round robin; number of
channels: `src/graph/connect.cc`, `src/graph/paths.cc`); Meta (SIGCOMM'24) for receiver-driven admission and
for control messages in a class of their own.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from actors.ncclx.settings import MOST_CHANNELS
from emu.base.records import Field
from emu.base.units import format_time, parse_size, parse_time
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.nccl_names import EnvMapping
from emu.scenario.yaml.values import (
    AutoChannels,
    AutoPositiveSizeBytes,
    AutoPositiveTimePs,
    AutoRateBps,
    PositiveSizeBytes,
    PositiveTimePs,
    SizeBytes,
    TimePs,
)


class OutstandingSection(Section):
    """How many bytes a connection may have posted and not acknowledged; a slice that would pass the limit
    waits, unless nothing is outstanding."""

    connection_bytes: AutoPositiveSizeBytes = None
    """Limit of every connection. `auto`: what its slots hold, so none."""
    rack_bytes: AutoPositiveSizeBytes = None
    """Limit where one switch is between the two NICs. `auto`: that of `connection`."""
    zone_bytes: AutoPositiveSizeBytes = None
    """Limit where three are (leaf, spine, leaf). `auto`: that of `connection`."""
    pod_bytes: AutoPositiveSizeBytes = None
    """Limit where more are. `auto`: that of `connection`."""


class DqplbSection(Section):
    """Segments of `qp_policy: dqplb`, NCCLX's dynamic balance over queue pairs."""

    segment_bytes: PositiveSizeBytes = parse_size("512KiB")
    """Largest segment (NCCL_CTRAN_IB_QP_SCALING_THRESHOLD)."""
    most_outstanding: Annotated[int, Field(ge=1, le=4096)] = 128
    """Segments that one queue pair may have outstanding (NCCL_CTRAN_IB_QP_MAX_MSGS)."""


class InitSection(Section):
    """How the ranks of a job come to know each other before its first operation. Costs are fitted to
    MegaScale (NSDI'24), section 3.5: 2,048 GPUs, 1,047 s with a serial store, 361 s with a concurrent one."""

    store: Literal["none", "serial", "concurrent"] = "none"
    """Bootstrap store: none, in no time; one that serves one request after the other (TCPStore), or several
    at a time (Redis)."""
    operation_ps: PositiveTimePs = parse_time("125us")
    """Time of one operation of the store: 1,047 s / (2 x 2,048 x 2,048)."""
    lanes: Annotated[int, Field(ge=1, le=1024)] = 3
    """Requests that a concurrent store serves at a time: 1,047 s / 361 s."""
    barriers: Literal["quadratic", "linear"] = "quadratic"
    """A barrier over all ranks for each of about as many groups as there are ranks, or one in all."""

    def rounds(self, ranks: int) -> int:
        """How often every rank of so many comes to the store."""
        if self.store == "none":
            return 0
        return 1 + (ranks if self.barriers == "quadratic" else 1)


class ConnectSection(Section):
    """When queue pairs are made. NCCL makes those of sends and receives before the first that needs them, and
    with NCCL_RUNTIME_CONNECT (1 by default) those of rings and trees too."""

    when: Literal["beforehand", "first_use"] = "beforehand"
    """When time begins, as after a warm-up; or before the first operation that uses them, at both ends."""
    pair_ps: PositiveTimePs = parse_time("1.4ms")
    """Time in which a rank makes a queue pair and brings it to RTS, one after another: 712 a second at a NIC
    (KRCORE, USENIX ATC'22)."""


class TunerRowSection(Section):
    """A row of a tuner's table: how calls of some sizes are done. A call takes the first row that it matches
    and that can be done."""

    op: Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
    """The operation."""
    at_least_bytes: SizeBytes = 0
    """The smallest size, that of the whole buffer."""
    at_most_bytes: SizeBytes = 1 << 50
    """The largest size."""
    algorithm: Literal["ring", "double_binary_tree", "nvls", "nvls_tree", "pat"] | None = None
    """Algorithm; without it that of NCCL's table."""
    protocol: Literal["simple", "ll", "ll128"] | None = None
    """Protocol; without it that of NCCL's table."""
    channels: Annotated[int, Field(ge=1, le=64)] | None = None
    """On how many channels, at most those of the communicator; without it as NCCL's table has it."""
    servers: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Only communicators in this many servers; without it any."""
    ranks: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Only communicators of this many ranks; without it any."""


class TunerSection(Section):
    """The model by which `algorithm: auto` picks."""

    model: Literal["nccl", "hops"] = "nccl"
    """NCCL's table, which chooses algorithm, protocol and channels of the collectives that NCCL has; or hops
    and bytes at the latencies below, which choose an algorithm, also among those that NCCL lacks."""
    base_ps: TimePs = parse_time("8.4us")
    """Latency of any operation (NCCL's base latency of ring and tree, Simple protocol)."""
    hop_ps: TimePs = parse_time("5us")
    """Latency of a hop between servers: half of a round trip of 10 us."""
    hop_inside_ps: TimePs = parse_time("3.4us")
    """Latency of a hop over NVLink (NCCL's, of a ring with the Simple protocol)."""
    gpu: Literal["auto", "ampere", "hopper", "blackwell"] = "auto"
    """GPU whose constants NCCL's table has. `auto`: Hopper, or Blackwell from 600 GB/s of NVLink on. With
    `ampere` there is no NVLS."""
    cpu: Literal["intel", "amd"] = "intel"
    """CPU whose constants NCCL's table has: with AMD, LL carries less between servers, and a post takes 2
    us, not 1."""
    nic_rate_bps: AutoRateBps = None
    """Rate of a NIC. `auto`: that of its port, or of `host.pcie` if that limits and is less."""
    nvlink_rate_bps: AutoRateBps = None
    """Rate of a GPU inside its server. `auto`: `host.nvlink.rate`."""
    among: Annotated[
        tuple[
            Literal[
                "ring",
                "direct",
                "recursive_doubling",
                "halving_doubling",
                "bruck",
                "double_binary_tree",
                "hierarchical",
                "pat",
                "nvls",
                "nvls_tree",
            ],
            ...,
        ],
        Field(min_length=1),
    ] = ("ring", "double_binary_tree", "pat", "nvls", "nvls_tree")
    """Algorithms to choose among, those of NCCL by default. `nccl` knows these five alone; `hops` all but the
    last three, and hierarchical only where servers have equally many ranks, two or more."""
    table: str | None = None
    """A file with the table of NCCL's example tuner plug-in (NCCL_TUNER_CONFIG_FILE): it becomes `rows`."""
    rows: Annotated[tuple[TunerRowSection, ...], Field(max_length=4096)] = ()
    """Rows that take precedence over NCCL's table, as with a tuner plug-in."""

    def check(self) -> Iterator[Refusal]:
        """Rows overrule NCCL's table alone."""
        if self.rows and self.model != "nccl":
            yield Refusal(("rows",), "overrule NCCL's table, which is not used", "model: nccl, or no rows")


class NcclxSection(Section):
    """Channels, their buffers, queue pairs and admission."""

    version: Literal["auto", "2.30.7"] = "auto"
    """NCCL's version whose rule `channels_per_peer: auto` follows. `auto`: that of 2.29 for one peer, with
    the halving of 2.30 for several."""
    channels: AutoChannels = None
    """Channels of a communicator; each carries its share of every operation. `auto`: as NCCL on Hopper GPUs,
    a ring for each NIC of a server, each on two channels; twice as many between servers where that is below
    16."""
    channels_per_peer: AutoChannels = None
    """Channels between two ranks of all_to_all, all_to_allv, gather, scatter, sendrecv and transfers
    (NCCL_NCHANNELS_PER_NET_PEER), no more than `channels`. `auto`: two, or one for each NIC of a GPU if those
    are more; with `version: 2.30.7` as many as the rate of the GPU's NICs has 14 GB/s, or one for each NIC if
    those are more; half of it, and again, where peers are too many for a round over all channels."""
    pxn: bool = True
    """Whether `algorithm: auto` of an all_to_all or all_to_allv is `pxn` where there are several servers with
    equally many GPUs, several each, on NVLink; otherwise `direct` (NCCL_PXN_DISABLE)."""
    ring_order: Literal["by_channel", "crossing", "one_rail", "same"] = "by_channel"
    """Order of a ring through the GPUs of each server: another on each channel, turned round on every other
    server so that the ring stays on a rail between them (NCCL_CROSS_NIC 2, NCCL's default); another on each
    channel and alike on all servers, so that rings change rails (1); the same with messages that leave by the
    NIC on the receiver's rail, over NVLink or PCIe, which costs nothing here (0); or that of the ranks on all
    channels."""
    sms_per_channel: Annotated[int, Field(ge=0, le=1024)] = 0
    """SMs that a channel holds while its collective runs, and that computing lacks meanwhile; all channels
    together must leave one of `gpu.sms`. NCCL's kernel has a thread block per channel, so 1; 0: none are
    taken."""
    launch_ps: TimePs = 0
    """From when a rank comes to a collective, send or receive until it begins: launch of the kernel, and what
    any call costs. Fitted (`emu fit`): nobody has published it by itself, so the default is 0."""
    buffsize_bytes: PositiveSizeBytes = parse_size("4MiB")
    """Channel buffer, per channel and connection (NCCL_BUFFSIZE)."""
    steps: Annotated[int, Field(ge=1, le=64)] = 8
    """Slots of a channel buffer (NCCL_STEPS)."""
    chunk_steps: Annotated[int, Field(ge=1, le=64)] = 4
    """Slots of a chunk, the unit of an algorithm's step."""
    slice_steps: Annotated[int, Field(ge=1, le=64)] = 2
    """Slots of a slice, the unit that is sent and admitted."""
    slices: Literal["filled", "even"] = "even"
    """Division of a ring's chunk: into slices as large as possible, the last shorter; or, as in NCCL, into
    `chunk_steps` / `slice_steps` equal ones of at least a 32nd of the largest."""
    protocol: Literal["simple", "ll", "ll128", "auto"] = "auto"
    """How a receiver knows that data of a collective is there (NCCL_PROTO): by a flag after a whole slice, by
    flags in lines of 8 B of data and 8 B of flags, or in lines of 120 B and 8 B. Sends and receives, and
    algorithms that NCCL lacks, are `simple`. `auto`: NCCL's table chooses for each size, with `tuner.model:
    hops` it is `simple`."""
    ll_buffsize_bytes: PositiveSizeBytes = parse_size("512KiB")
    """Channel buffer of `ll`, lines with their flags: 32 KiB of data for each of eight `steps`
    (NCCL_LL_BUFFSIZE)."""
    ll128_buffsize_bytes: PositiveSizeBytes = parse_size("4800KiB")
    """Channel buffer of `ll128`: 576,000 B of data for each of eight `steps` (NCCL_LL128_BUFFSIZE)."""
    p2p_chunk_bytes: AutoPositiveSizeBytes = parse_size("128KiB")
    """Slice of all_to_all, all_to_allv, gather, scatter, sendrecv and the transfers of training, which then
    has a slot for each of `steps` (NCCL_P2P_NET_CHUNKSIZE); no more than one step of the buffer. `auto`:
    slices and slots as the others have."""
    qps_per_connection: Annotated[int, Field(ge=1, le=128)] = 1
    """Queue pairs between two ranks and channel (NCCL_IB_QPS_PER_CONNECTION); with `port_use: merged` so many
    on each port."""
    port_use: Literal["merged", "apart", "bonded"] = "merged"
    """A NIC with several ports: one device with a queue pair of each connection on every port, over which
    every slice is cut (NCCL_IB_MERGE_NICS 1, NCCL's default); a device for each port, which channels take in
    turn (NCCL_IB_MERGE_NICS 0); or one device whose driver deals queue pairs over its ports. NICs with
    `bond: first` and `transport.kind: multipath` are one device."""
    qp_policy: Literal["round_robin", "split", "dqplb", "least_loaded"] = "round_robin"
    """Whole slices to one queue pair after another; every slice split over all (NCCL_IB_SPLIT_DATA_ON_QPS);
    segments of slices to the next queue pair with room (NCCLX); or whole slices to the NIC of the host with
    the fewest bytes outstanding, each connection having its queue pairs on every NIC, and there to the
    queue pair with the fewest (`least_loaded_over`)."""
    least_loaded_over: Literal["host", "nic"] = "host"
    """Among which queue pairs `least_loaded` chooses: those of all NICs of the host, or of the connection's
    own pair of NICs, as HPN's library does."""
    dqplb: DqplbSection = DqplbSection.defaults()
    """Segments of `dqplb`."""
    outstanding: OutstandingSection = OutstandingSection.defaults()
    """Limits on what is under way."""
    zero_copy: bool = False
    """Whether user buffers are registered, so that NICs read and write them: no copy into and out of channel
    buffers, except where something is reduced."""
    admission: Literal["receiver_driven", "none"] = "receiver_driven"
    """Whether a slice waits for the receiver's clear-to-send."""
    control: Literal["own_class", "data_class"] = "own_class"
    """Whether clear-to-send travels at `transport.control_priority` or with the data."""

    init: InitSection = InitSection.defaults()
    """Start-up of a job before its first operation."""
    connect: ConnectSection = ConnectSection.defaults()
    """When queue pairs are made."""
    tuner: TunerSection = TunerSection.defaults()
    """The choice by `algorithm: auto`."""
    watchdog_ps: AutoPositiveTimePs = None
    """Time after which ranks give an operation up with status `timed_out`; PyTorch gives NCCL 10 min.
    `auto`: no watchdog, a hang ends the run at `run.stall_after`."""
    flight_recorder: Annotated[int, Field(ge=0, le=10_000)] = 16
    """Operations that each rank remembers (TORCH_NCCL_TRACE_BUFFER_SIZE); written into the run directory when
    a job of collectives does not end well."""
    env: EnvMapping = Field(default_factory=dict)
    """NCCL's variables under their own names, `NCCL_BUFFSIZE: 1048576`, or the path of a script that exports
    them: translated into the keys above, into those of `transport`, and into `algorithm` of jobs. See
    `docs/data_path.md`."""

    @property
    def most_channels(self) -> int:
        """Most channels of any communicator."""
        return self.channels or MOST_CHANNELS

    @property
    def in_line(self) -> bool:
        """Whether some slices need no copy of the GPU."""
        return self.zero_copy or self.protocol in ("ll", "auto")

    def check(self) -> Iterator[Refusal]:
        """Refuse a buffer that does not divide into slots, chunks and slices."""
        if self.connect.when == "first_use" and self.admission == "none":
            reason = "a sender that is not admitted would not wait for the other end"
            yield Refusal(("connect", "when"), reason, "with `admission: receiver_driven`")
        watchdog_ps, pair_ps = self.watchdog_ps, self.connect.pair_ps
        if self.connect.when == "first_use" and watchdog_ps is not None and watchdog_ps <= pair_ps:
            reason = f"is over before the first queue pair is made, which takes {format_time(pair_ps)}"
            yield Refusal(("watchdog",), reason, "longer than all queue pairs of a rank take, or auto")
        buffers = (
            ("ll_buffsize", 16, self.ll_buffsize_bytes),
            ("ll128_buffsize", 128, self.ll128_buffsize_bytes),
        )
        for key, line, size in buffers:
            if size < self.steps * line:
                reason = f"has no line of {line} B for each of {self.steps} steps"
                yield Refusal((key,), reason, f"at least {self.steps * line}B")
        if self.buffsize_bytes % self.steps:
            yield Refusal(("buffsize",), f"does not divide into {self.steps} steps", "a multiple of `steps`")
        if self.steps % self.chunk_steps:
            reason = f"{self.chunk_steps} does not divide the {self.steps} steps"
            yield Refusal(("chunk_steps",), reason, "a divisor of `steps`")
        if self.chunk_steps % self.slice_steps:
            reason = f"{self.slice_steps} does not divide the {self.chunk_steps} steps of a chunk"
            yield Refusal(("slice_steps",), reason, "a divisor of `chunk_steps`")
