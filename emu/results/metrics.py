"""The declaration of every series: devices, ports, NICs, GPUs, jobs, collectives, faults.

One declaration. The exporter, the tables of a run directory, the page `docs/metrics.md` and the tests all
read it, so a series has one name, one unit and one line of help wherever it shows up.

- A counter has one name, its `key`: in devices (`Series.metric`), `ports.csv`, samples and diagnoses. The
  unit is its last word where the counter is not plainly a count. The name in Prometheus and in `expect` is
  made from it: `emu_` before it, base units (seconds for `ps`, ratio for `ppm`), `_total` behind a counter.
- Inside, time is integer picoseconds; it becomes seconds, exactly and in decimal, when it is rendered
  (`seconds`), and nowhere else.
- Labels are bounded: a device, one of its ports, one of eight priorities, one of the reasons listed here.
  There is no label per flow, queue pair or collective.
- A counter only rises during a run. A peak is a gauge, because a restored run may set it back.

Source of the NIC's names: the hardware counters of mlx5 (`/sys/class/infiniband/*/ports/*/hw_counters`),
under the prefix `emu_nic_`, so that one relabel rule turns ours into theirs.

State series (jobs, collectives, faults) are read at a scrape, from devices that keep this state anyway, and
cost a run nothing. They are not in the samples of a run directory: there the summary, the journal and the
tables say the same, and from these expectations know them over time (`emu.measure.summary.series`).

The labels of collectives are those of NCCL Inspector's Prometheus output (NCCL, ext-profiler/inspector):
`comm_name` is the job, `collective` as NCCL spells it, `message_size` a range of powers of two. Slurm job,
node and GPU are left out: a collective is told of once, and not by each rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from actors.kernel.device import Series
from actors.kernel.units import PS_PER_S


class Kind(StrEnum):
    """The Prometheus type of a series."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Unit(StrEnum):
    """What a value is counted in inside the emulator."""

    BYTES = "bytes"
    FRAMES = "frames"
    COUNT = "count"
    PS = "ps"
    """Rendered in seconds."""
    PPM = "ppm"
    """Millionths; rendered as a ratio."""
    BYTES_PER_SECOND = "bytes_per_second"


DEVICE: Final = ("device",)
PORT: Final = ("device", "port")
PRIORITY: Final = ("device", "port", "priority")
REASON: Final = ("device", "port", "reason")


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series. `labels` are in the order in which they are rendered."""

    key: str
    """The counter's one name: in devices, `ports.csv`, samples and diagnoses."""
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    help: str
    start: int = 0
    """Its value before anything happened."""

    @property
    def name(self) -> str:
        """The name in Prometheus and in `expect`: that of the counter with prefix, base unit and `_total`."""
        own, base = self.key, _BASE_UNIT.get(self.unit)
        if base is not None:
            assert own.endswith(f"_{self.unit.value}"), own
            own = own.removesuffix(self.unit.value) + base
        return f"emu_{own}_total" if self.kind is Kind.COUNTER else f"emu_{own}"


_BASE_UNIT: Final = {Unit.PS: "seconds", Unit.PPM: "ratio"}
"""How Prometheus names what the emulator counts in integers of a smaller unit."""


def counter(key: str, unit: Unit, labels: tuple[str, ...], text: str) -> Metric:
    """A series that only rises."""
    return Metric(key, Kind.COUNTER, unit, labels, text)


def gauge(key: str, unit: Unit, labels: tuple[str, ...], text: str, start: int = 0) -> Metric:
    """A series that may fall."""
    return Metric(key, Kind.GAUGE, unit, labels, text, start)


NIC_METRICS: Final[tuple[Metric, ...]] = (
    counter(
        "nic_out_of_sequence",
        Unit.COUNT,
        DEVICE,
        "Packets that arrived with a sequence number other than the expected one.",
    ),
    counter(
        "nic_packet_seq_err",
        Unit.COUNT,
        DEVICE,
        "NAKs for a sequence error received by the requester.",
    ),
    counter(
        "nic_local_ack_timeout_err",
        Unit.COUNT,
        DEVICE,
        "Times the requester's acknowledgement timer expired.",
    ),
    counter(
        "nic_duplicate_request",
        Unit.COUNT,
        DEVICE,
        "Packets that arrived a second time.",
    ),
    counter(
        "nic_unknown_qpn",
        Unit.COUNT,
        DEVICE,
        "Packets for a queue pair that the NIC does not have.",
    ),
    counter("nic_retransmitted_frames", Unit.FRAMES, DEVICE, "Data frames sent again."),
    counter(
        "nic_roce_adp_retrans",
        Unit.COUNT,
        DEVICE,
        "Times a timer of adaptive retransmission expired before the full timeout.",
    ),
    counter(
        "nic_rx_icrc_encapsulated",
        Unit.FRAMES,
        DEVICE,
        "Data packets lost because their ICRC was wrong.",
    ),
    counter(
        "nic_rnr_nak_retry_err",
        Unit.COUNT,
        DEVICE,
        "RNR NAKs received by the requester, retries not used up.",
    ),
    counter(
        "nic_out_of_buffer",
        Unit.COUNT,
        DEVICE,
        "Packets refused because no receive was posted.",
    ),
    counter(
        "nic_bond_failovers",
        Unit.COUNT,
        DEVICE,
        "Queue pairs that failed over to another port because theirs was down.",
    ),
    counter("nic_np_cnp_sent", Unit.FRAMES, DEVICE, "CNPs sent by the receiver."),
    counter(
        "nic_np_ecn_marked_roce_packets",
        Unit.FRAMES,
        DEVICE,
        "Packets received that a switch had marked.",
    ),
    counter("nic_rp_cnp_handled", Unit.FRAMES, DEVICE, "CNPs handled by the sender."),
    counter("nic_transmit_acks", Unit.FRAMES, DEVICE, "Acknowledgements sent."),
    counter("nic_transmit_naks", Unit.FRAMES, DEVICE, "NAKs sent."),
    counter(
        "nic_delivered_bytes",
        Unit.BYTES,
        DEVICE,
        "Payload bytes that arrived in sequence.",
    ),
    counter("nic_posted_bytes", Unit.BYTES, DEVICE, "Payload bytes of posted work requests."),
)
"""In the order in which families are rendered."""


GPU_METRICS: Final[tuple[Metric, ...]] = (
    counter("gpu_copies", Unit.COUNT, DEVICE, "Copies that the GPU started."),
    counter("gpu_copied_bytes", Unit.BYTES, DEVICE, "Bytes of these copies."),
    counter(
        "gpu_copy_ps",
        Unit.PS,
        DEVICE,
        "Duration of these copies without the wait for their turn.",
    ),
    gauge(
        "gpu_unresponsive_ps",
        Unit.PS,
        DEVICE,
        "Longest time for which the GPU did not respond to requests.",
    ),
)
"""In the order in which families are rendered."""


JOB: Final = ("job_name",)
"""Not `job`: a scrape gives every series a label of that name, and would call ours `exported_job`."""
MEMBER: Final = ("device", "group", "port", "peer", "direction")
COLLECTIVE: Final = ("comm_name", "n_nodes", "nranks", "collective", "message_size", "algo_proto")

STATE_METRICS: Final[tuple[Metric, ...]] = (
    gauge(
        "port_info",
        Unit.COUNT,
        ("device", "port", "peer", "direction"),
        "Always 1; the port's peer, and whether that is above (up), below (down) or beside (level).",
    ),
    counter(
        "routing_group_member_payload_bytes",
        Unit.BYTES,
        MEMBER,
        "Payload that a member of a routing group has sent, to whatever destination; a group is named by its "
        "ports.",
    ),
    gauge("buffer_pool_bytes", Unit.BYTES, ("device",), "Size of the shared buffer's pool."),
    counter("job_operations", Unit.COUNT, JOB, "Operations of the job that have ended."),
    gauge("job_running", Unit.COUNT, JOB, "Whether the job goes on: 0 once it ended."),
    gauge("job_failed", Unit.COUNT, JOB, "Whether the job ended with an error."),
    counter("collectives", Unit.COUNT, COLLECTIVE, "Collectives that ended well."),
    gauge(
        "collective_exec_time_ps",
        Unit.PS,
        COLLECTIVE,
        "Duration of the last collective, in virtual time.",
    ),
    gauge(
        "collective_algorithm_bandwidth_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        COLLECTIVE,
        "Algorithm bandwidth (algbw) of the last collective.",
    ),
    gauge(
        "collective_bus_bandwidth_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        COLLECTIVE,
        "Bus bandwidth (busbw) of the last collective.",
    ),
    gauge(
        "job_step_time_ps",
        Unit.PS,
        JOB,
        "Duration of the last training step, from the first rank's start to the last rank's end.",
    ),
    gauge(
        "job_mfu_ppm",
        Unit.PPM,
        JOB,
        "Model FLOPs of that step over what the GPUs could have done at peak rate.",
    ),
    counter("faults", Unit.COUNT, (), "Faults that have begun, scripted and injected."),
    gauge("faults_active", Unit.COUNT, (), "Faults that have begun and are not over."),
)
"""In the order in which families are rendered."""

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def size_range(size_bytes: int) -> str:
    """The range of powers of two that a size is in: 1_500_000 is "1-2MB"."""
    power = max(size_bytes, 1).bit_length() - 1
    unit = min(power // 10, len(_UNITS) - 1)
    low = 1 << (power - 10 * unit)
    return f"{low}-{2 * low}{_UNITS[unit]}"


def algorithm_name(algorithm: str) -> str:
    """Algorithm and protocol as NCCL Inspector has them; ours is the simple one."""
    return f"{algorithm.upper()}_SIMPLE"


def collective_name(op: str) -> str:
    """An operation as NCCL spells it: all_reduce is "AllReduce"."""
    return "".join(word.capitalize() for word in op.split("_"))


DROP_REASONS: Final[dict[str, str]] = {
    "link_down": "the link was down at some moment of the frame's flight",
    "no_route": "no egress port leads to the destination",
    "no_shared_room": "a lossy class found no room under its dynamic threshold",
    "headroom_overrun": "a lossless class overran its headroom",
    "egress_limit": "an egress queue was at its limit",
    "aqm": "active queue management dropped a lossy frame",
    "ttl": "the packet had passed as many switches as its TTL allows",
    "corrupt": "bits of the frame were wrong",
    "receive_overrun": "a NIC's receive buffer was full",
    "watchdog": "a PFC watchdog held a storm off its queue",
}
"""Why a frame can be dropped."""

DROPPED_LEAVING: Final = frozenset({"link_down", "watchdog"})
"""Reasons of frames that are counted at the port by which they were to leave; others are counted where they
came in. Both ends of a link that is down count what they lost, that which was in flight too."""

CONGESTION_REASONS: Final = frozenset(
    {"no_shared_room", "headroom_overrun", "egress_limit", "aqm", "receive_overrun"}
)
"""Reasons that mean a buffer was full; every other reason is a fault or a mistake."""

DEVICE_METRICS: Final[tuple[Metric, ...]] = (
    counter("port_transmit_frames", Unit.FRAMES, PORT, "Frames sent, PFC excluded."),
    counter(
        "port_transmit_bytes",
        Unit.BYTES,
        PORT,
        "Bytes sent on the wire, preamble and inter-frame gap included, PFC excluded.",
    ),
    counter("port_transmit_payload_bytes", Unit.BYTES, PORT, "RoCE payload bytes sent."),
    counter("port_receive_frames", Unit.FRAMES, PORT, "Frames received, PFC excluded."),
    counter(
        "port_receive_bytes",
        Unit.BYTES,
        PORT,
        "Bytes received from the wire, preamble and inter-frame gap included, PFC excluded.",
    ),
    counter("port_dropped_frames", Unit.FRAMES, REASON, "Frames dropped, by reason."),
    gauge("port_up", Unit.COUNT, PORT, "Whether the port has a signal.", start=1),
    counter("port_link_downed", Unit.COUNT, PORT, "Times the port went down."),
    counter(
        "pfc_transmit_xoff_frames",
        Unit.FRAMES,
        PRIORITY,
        "XOFF frames sent for this priority.",
    ),
    counter(
        "pfc_transmit_xon_frames",
        Unit.FRAMES,
        PRIORITY,
        "XON frames sent for this priority.",
    ),
    counter(
        "pfc_receive_xoff_frames",
        Unit.FRAMES,
        PRIORITY,
        "XOFF frames received for this priority.",
    ),
    counter(
        "pfc_receive_xon_frames",
        Unit.FRAMES,
        PRIORITY,
        "XON frames received for this priority.",
    ),
    counter(
        "pfc_transmit_transitions",
        Unit.COUNT,
        PRIORITY,
        "Times this port paused this priority of its peer, refreshes not counted.",
    ),
    counter(
        "pfc_receive_transitions",
        Unit.COUNT,
        PRIORITY,
        "Times the peer paused this priority of this port, refreshes not counted.",
    ),
    counter(
        "pfc_transmit_paused_ps",
        Unit.PS,
        PRIORITY,
        "Virtual time for which this port paused this priority of its peer.",
    ),
    counter(
        "pfc_paused_ps",
        Unit.PS,
        PRIORITY,
        "Virtual time for which the peer paused this priority of this port.",
    ),
    counter("credit_transmit_updates", Unit.COUNT, PRIORITY, "Credit updates sent."),
    counter(
        "port_transmit_wait_ps",
        Unit.PS,
        PRIORITY,
        "Virtual time during which this virtual lane had credits for less than a largest frame.",
    ),
    gauge("credit_peak_blocks", Unit.COUNT, PRIORITY, "Peak blocks of 64 B held."),
    counter(
        "queue_marked_frames",
        Unit.FRAMES,
        PRIORITY,
        "Frames that left this egress queue with an ECN mark.",
    ),
    counter(
        "pfc_watchdog_storms",
        Unit.COUNT,
        PRIORITY,
        "PFC storms that the watchdog found on this egress queue.",
    ),
    gauge("queue_bytes", Unit.BYTES, PRIORITY, "Depth of the egress queue."),
    gauge("queue_peak_bytes", Unit.BYTES, PRIORITY, "Largest depth of the egress queue."),
    gauge(
        "ingress_bytes",
        Unit.BYTES,
        PRIORITY,
        "Buffer in use by this ingress port and priority (a priority group).",
    ),
    gauge(
        "ingress_peak_bytes",
        Unit.BYTES,
        PRIORITY,
        "Peak use of the shared buffer by this ingress port and priority.",
    ),
    gauge(
        "headroom_peak_bytes",
        Unit.BYTES,
        PRIORITY,
        "Peak use of the headroom of this port and priority.",
    ),
    gauge("nic_receive_buffer_bytes", Unit.BYTES, PRIORITY, "Receive buffer in use."),
    gauge("headroom_pool_peak_bytes", Unit.BYTES, DEVICE, "Shared headroom."),
    gauge("nic_receive_buffer_peak_bytes", Unit.BYTES, PRIORITY, "Receive buffer peak."),
    counter("nic_pcie_wait_ps", Unit.PS, DEVICE, "Time that ports waited for PCIe."),
    counter("nic_context_misses", Unit.COUNT, DEVICE, "Contexts of queue pairs that a NIC had to fetch."),
    gauge("buffer_used_bytes", Unit.BYTES, DEVICE, "Shared buffer in use."),
    gauge("buffer_peak_bytes", Unit.BYTES, DEVICE, "Largest use of the shared buffer."),
    gauge("te_entries", Unit.COUNT, DEVICE, "Entries of traffic engineering in a leaf's table."),
    counter("te_matched_frames", Unit.FRAMES, DEVICE, "Frames that left by an entry's port."),
    counter(
        "te_entries_withdrawn",
        Unit.COUNT,
        DEVICE,
        "Entries withdrawn because a link on their path went down.",
    ),
    counter(
        "te_entries_refused",
        Unit.COUNT,
        DEVICE,
        "Installs refused: the table was full, or the port did not lead to the prefix.",
    ),
    counter("te_rounds", Unit.COUNT, DEVICE, "Collections that the controller started."),
    counter("te_installs", Unit.COUNT, DEVICE, "Entries that the controller sent."),
    counter(
        "te_unplaced_demands",
        Unit.COUNT,
        DEVICE,
        "Demands without room in a path or table, counted each round.",
    ),
    counter("host_cts_received", Unit.COUNT, DEVICE, "Clear-to-sends received by senders."),
    counter(
        "host_cts_wait_ps",
        Unit.PS,
        DEVICE,
        "Time these clear-to-sends were in flight beyond their unloaded flight.",
    ),
    gauge(
        "host_cts_wait_peak_ps",
        Unit.PS,
        DEVICE,
        "Longest such wait of one clear-to-send.",
    ),
    counter(
        "host_held_slices",
        Unit.COUNT,
        DEVICE,
        "Slices that waited for a connection's limit on outstanding bytes.",
    ),
    counter(
        "host_diverted_slices",
        Unit.COUNT,
        DEVICE,
        "Slices that least_loaded gave to another queue pair than the next in turn.",
    ),
    counter(
        "host_made_queue_pairs",
        Unit.COUNT,
        DEVICE,
        "Queue pairs made on demand (ncclx.connect).",
    ),
    counter(
        "host_connect_wait_ps",
        Unit.PS,
        DEVICE,
        "Time calls waited for queue pairs that were made on demand.",
    ),
    counter(
        "host_deferred_segments",
        Unit.COUNT,
        DEVICE,
        "Segments that waited because every queue pair had its maximum of messages outstanding.",
    ),
    counter(
        "host_compute_ps",
        Unit.PS,
        PORT,
        "Compute time of programs on the GPU behind the port, over all streams.",
    ),
    counter(
        "host_compute_work_ps",
        Unit.PS,
        PORT,
        "Compute time of the same work on a GPU that is not slow.",
    ),
    counter("nvlink_transmit_bytes", Unit.BYTES, PORT, "Bytes sent on an NVLink."),
    counter("nvlink_transfers", Unit.COUNT, PORT, "Transfers sent on an NVLink."),
    counter(
        "gpu_overtaken_copies",
        Unit.COUNT,
        DEVICE,
        "Copies that waited at a GPU while a communicator of higher priority passed them.",
    ),
    counter("host_direct_slices", Unit.COUNT, DEVICE, "Slices moved by zero-copy."),
    counter(
        "host_slower_compute_ps",
        Unit.PS,
        DEVICE,
        "Compute time lost to channels.",
    ),
    counter(
        "host_sm_wait_ps",
        Unit.PS,
        DEVICE,
        "Time collectives waited for SMs that others held.",
    ),
    counter(
        "host_overtaken_calls",
        Unit.COUNT,
        DEVICE,
        "Collectives that waited for SMs while a communicator of higher priority passed them.",
    ),
    *GPU_METRICS,
    counter("credit_grants", Unit.COUNT, PORT, "Credit granted to virtual output queues."),
    gauge("voq_bytes", Unit.BYTES, PORT, "Depth of the virtual output queues towards this port."),
    gauge(
        "voq_peak_bytes",
        Unit.BYTES,
        PORT,
        "Largest depth of a virtual output queue towards this port.",
    ),
    counter(
        "cut_through_frames",
        Unit.FRAMES,
        DEVICE,
        "Frames that left a cut-through switch before their tail arrived.",
    ),
    counter(
        "qos_moved_frames",
        Unit.FRAMES,
        DEVICE,
        "Frames that a map moved from the queue or priority group of their DSCP's class selector.",
    ),
    *NIC_METRICS,
)
"""What devices count, in the order in which families are rendered."""

ENGINE_METRICS: Final[tuple[Metric, ...]] = (
    counter("virtual_ps", Unit.PS, (), "Virtual time that the worker has reached."),
    counter("events", Unit.COUNT, (), "Events executed."),
    counter(
        "packet_hops",
        Unit.FRAMES,
        (),
        "Frames received over a fabric link, PFC excluded.",
    ),
    counter("data_packet_hops", Unit.FRAMES, (), "Packet-hops of frames with payload."),
    counter("windows", Unit.COUNT, (), "Windows of the protocol between workers."),
    counter(
        "window_wait_wall_ps",
        Unit.PS,
        (),
        "Wall time for which the worker waited for the others between windows.",
    ),
    counter(
        "refused_connections",
        Unit.COUNT,
        (),
        "Connections that the worker refused before it decoded any of their bytes.",
    ),
    gauge("resident_memory_bytes", Unit.BYTES, (), "Resident memory of the worker."),
)
"""What a worker counts of itself."""

INFO_METRICS: Final[tuple[Metric, ...]] = (
    gauge("build_info", Unit.COUNT, ("version", "compiled"), "Always 1; which build the worker runs."),
    gauge("run_info", Unit.COUNT, ("scenario", "seed"), "Always 1; which run the worker is part of."),
)
"""Constants that carry their meaning in labels."""

METRICS: Final[tuple[Metric, ...]] = DEVICE_METRICS + STATE_METRICS + ENGINE_METRICS + INFO_METRICS

METRIC_OF: Final[dict[str, Metric]] = {metric.key: metric for metric in METRICS}


def seconds(time_ps: int) -> str:
    """`time_ps` in seconds, exact, in decimal: 1_167_760 is "0.000001167760"."""
    assert time_ps >= 0, time_ps
    return f"{time_ps // PS_PER_S}.{time_ps % PS_PER_S:012d}"


def shown_value(metric: Metric, value: int) -> str:
    """A value as the text formats have it, in the unit of the series' name."""
    if metric.unit is Unit.PS:
        return seconds(value)
    if metric.unit is Unit.PPM:
        return f"{value // 10**6}.{value % 10**6:06d}"
    return str(value)


def label_text(value: str) -> str:
    """A label's value as the text format wants it."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_of(metric: Metric, device: str, series: Series) -> str:
    """The label set of one series of a device, braces included, e.g. `{device="rtsw-0",port="3"}`."""
    return f'{{device="{label_text(device)}"{inner_labels(metric, series)}}}'


def inner_labels(metric: Metric, series: Series) -> str:
    """What tells a device's series apart, behind the device itself: `,port="3",priority="6"`."""
    labels = metric.labels
    if labels is DEVICE:
        return ""
    port = series.port
    assert port >= 0, (metric.key, port)
    if labels is PORT:
        return f',port="{port}"'
    if labels is PRIORITY:
        assert 0 <= series.priority < 8, (metric.key, series.priority)
        return f',port="{port}",priority="{series.priority}"'
    assert labels is REASON, (metric.key, labels)
    assert series.reason in DROP_REASONS, (metric.key, port, series.reason)
    return f',port="{port}",reason="{series.reason}"'


def markdown(metrics: Iterable[Metric] = METRICS) -> str:
    """The table of `docs/metrics.md`."""
    lines = ["| series | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        unit = {Unit.PS: "seconds", Unit.COUNT: "", Unit.PPM: "ratio"}.get(metric.unit, metric.unit.value)
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {unit} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
