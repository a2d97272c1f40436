"""What devices count: each counter is declared here, once, as an object.

A device increments a plain attribute of its own, and hands out the object with the value (`Device.series`,
`Device.count`). The exporter, the tables and samples of a run directory, `expect`, the summary and the
diagnosis take the same object, so a counter has one name, one unit and one line of help, and a wrong name
does not import.

- The object is the text of its name. The unit is its last word where the counter is not plainly a count. The
  name in Prometheus and in `expect` is made from it: `emu_` before it, base units (seconds for `ps`, ratio
  for `ppm`), `_total` behind a counter.
- Labels are bounded: a device, one of its ports, one of eight priorities, one of the reasons of drops. There
  is no label per flow, queue pair or collective.
- A counter only rises during a run. A peak is a gauge, because a restored run may set it back.

To add one: declare it here, keep and increment its attribute in the device (of a NIC's transport, in the half
that counts: `queue_pair/requester.py` or `responder.py`), name it in the device's `series` and write it in
`count`. `tests/summary/test_every_counter.py` finds one that is forgotten, swapped, or never counted.

Source of the NIC's names: the hardware counters of mlx5 (`/sys/class/infiniband/*/ports/*/hw_counters`),
under the prefix `emu_nic_`, so that one relabel rule turns ours into theirs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


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

_BASE_UNIT: Final = {Unit.PS: "seconds", Unit.PPM: "ratio"}
"""How Prometheus names what the emulator counts in integers of a smaller unit."""


class Metric(str):
    """One family of series. The text itself is the counter's one name.

    It is a text, and not a record that has one, so that tables, JSON and messages to other workers take it as
    they take any name.
    """

    __slots__ = ("field", "help", "kind", "labels", "start", "unit")

    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    """In the order in which they are rendered."""
    help: str
    start: int
    """Its value before anything happened."""
    field: str
    """The attribute of the device that has it; empty where the value is worked out."""

    def __new__(
        cls,
        key: str,
        kind: Kind,
        unit: Unit,
        labels: tuple[str, ...],
        text: str,
        start: int = 0,
        field: str = "",
    ) -> Self:
        """Declare one."""
        made = super().__new__(cls, key)
        made.kind, made.unit, made.labels, made.help = kind, unit, labels, text
        made.start, made.field = start, field
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Other processes get the plain name."""
        return str, (self.key,)

    @property
    def key(self) -> str:
        """The plain name."""
        return str.__str__(self)

    @property
    def name(self) -> str:
        """The name in Prometheus and in `expect`: that of the counter with prefix, base unit and `_total`."""
        own, base = self.key, _BASE_UNIT.get(self.unit)
        if base is not None:
            assert own.endswith(f"_{self.unit.value}"), own
            own = own.removesuffix(self.unit.value) + base
        return f"emu_{own}_total" if self.kind is Kind.COUNTER else f"emu_{own}"


def counter(key: str, unit: Unit, labels: tuple[str, ...], text: str, field: str = "") -> Metric:
    """A series that only rises."""
    return Metric(key, Kind.COUNTER, unit, labels, text, 0, field)


def gauge(
    key: str, unit: Unit, labels: tuple[str, ...], text: str, start: int = 0, field: str = ""
) -> Metric:
    """A series that may fall."""
    return Metric(key, Kind.GAUGE, unit, labels, text, start, field)


PORT_TRANSMIT_FRAMES: Final = counter("port_transmit_frames", Unit.FRAMES, PORT, "Frames sent, PFC excluded.")
PORT_TRANSMIT_BYTES: Final = counter(
    "port_transmit_bytes",
    Unit.BYTES,
    PORT,
    "Bytes sent on the wire, preamble and inter-frame gap included, PFC excluded.",
)
PORT_TRANSMIT_PAYLOAD_BYTES: Final = counter(
    "port_transmit_payload_bytes", Unit.BYTES, PORT, "RoCE payload bytes sent."
)
PORT_RECEIVE_FRAMES: Final = counter(
    "port_receive_frames", Unit.FRAMES, PORT, "Frames received, PFC excluded."
)
PORT_RECEIVE_BYTES: Final = counter(
    "port_receive_bytes",
    Unit.BYTES,
    PORT,
    "Bytes received from the wire, preamble and inter-frame gap included, PFC excluded.",
)
PORT_DROPPED_FRAMES: Final = counter("port_dropped_frames", Unit.FRAMES, REASON, "Frames dropped, by reason.")
PORT_UP: Final = gauge("port_up", Unit.COUNT, PORT, "Whether the port has a signal.", start=1)
PORT_LINK_DOWNED: Final = counter("port_link_downed", Unit.COUNT, PORT, "Times the port went down.")
PFC_TRANSMIT_XOFF_FRAMES: Final = counter(
    "pfc_transmit_xoff_frames", Unit.FRAMES, PRIORITY, "XOFF frames sent for this priority."
)
PFC_TRANSMIT_XON_FRAMES: Final = counter(
    "pfc_transmit_xon_frames", Unit.FRAMES, PRIORITY, "XON frames sent for this priority."
)
PFC_RECEIVE_XOFF_FRAMES: Final = counter(
    "pfc_receive_xoff_frames", Unit.FRAMES, PRIORITY, "XOFF frames received for this priority."
)
PFC_RECEIVE_XON_FRAMES: Final = counter(
    "pfc_receive_xon_frames", Unit.FRAMES, PRIORITY, "XON frames received for this priority."
)
PFC_TRANSMIT_TRANSITIONS: Final = counter(
    "pfc_transmit_transitions",
    Unit.COUNT,
    PRIORITY,
    "Times this port paused this priority of its peer, refreshes not counted.",
)
PFC_RECEIVE_TRANSITIONS: Final = counter(
    "pfc_receive_transitions",
    Unit.COUNT,
    PRIORITY,
    "Times the peer paused this priority of this port, refreshes not counted.",
)
PFC_TRANSMIT_PAUSED_PS: Final = counter(
    "pfc_transmit_paused_ps",
    Unit.PS,
    PRIORITY,
    "Virtual time for which this port paused this priority of its peer.",
)
PFC_PAUSED_PS: Final = counter(
    "pfc_paused_ps", Unit.PS, PRIORITY, "Virtual time for which the peer paused this priority of this port."
)
CREDIT_TRANSMIT_UPDATES: Final = counter(
    "credit_transmit_updates", Unit.COUNT, PRIORITY, "Credit updates sent."
)
PORT_TRANSMIT_WAIT_PS: Final = counter(
    "port_transmit_wait_ps",
    Unit.PS,
    PRIORITY,
    "Virtual time during which this virtual lane had credits for less than a largest frame.",
)
CREDIT_PEAK_BLOCKS: Final = gauge("credit_peak_blocks", Unit.COUNT, PRIORITY, "Peak blocks of 64 B held.")
QUEUE_MARKED_FRAMES: Final = counter(
    "queue_marked_frames", Unit.FRAMES, PRIORITY, "Frames that left this egress queue with an ECN mark."
)
PFC_WATCHDOG_STORMS: Final = counter(
    "pfc_watchdog_storms", Unit.COUNT, PRIORITY, "PFC storms that the watchdog found on this egress queue."
)
QUEUE_BYTES: Final = gauge("queue_bytes", Unit.BYTES, PRIORITY, "Depth of the egress queue.")
QUEUE_PEAK_BYTES: Final = gauge(
    "queue_peak_bytes", Unit.BYTES, PRIORITY, "Largest depth of the egress queue."
)
INGRESS_BYTES: Final = gauge(
    "ingress_bytes",
    Unit.BYTES,
    PRIORITY,
    "Buffer in use by this ingress port and priority (a priority group).",
)
INGRESS_PEAK_BYTES: Final = gauge(
    "ingress_peak_bytes",
    Unit.BYTES,
    PRIORITY,
    "Peak use of the shared buffer by this ingress port and priority.",
)
HEADROOM_PEAK_BYTES: Final = gauge(
    "headroom_peak_bytes", Unit.BYTES, PRIORITY, "Peak use of the headroom of this port and priority."
)
NIC_RECEIVE_BUFFER_BYTES: Final = gauge(
    "nic_receive_buffer_bytes", Unit.BYTES, PRIORITY, "Receive buffer in use."
)
HEADROOM_POOL_PEAK_BYTES: Final = gauge("headroom_pool_peak_bytes", Unit.BYTES, DEVICE, "Shared headroom.")
NIC_RECEIVE_BUFFER_PEAK_BYTES: Final = gauge(
    "nic_receive_buffer_peak_bytes", Unit.BYTES, PRIORITY, "Receive buffer peak."
)
NIC_PCIE_WAIT_PS: Final = counter("nic_pcie_wait_ps", Unit.PS, DEVICE, "Time that ports waited for PCIe.")
NIC_CONTEXT_MISSES: Final = counter(
    "nic_context_misses", Unit.COUNT, DEVICE, "Contexts of queue pairs that a NIC had to fetch."
)
BUFFER_USED_BYTES: Final = gauge("buffer_used_bytes", Unit.BYTES, DEVICE, "Shared buffer in use.")
BUFFER_PEAK_BYTES: Final = gauge("buffer_peak_bytes", Unit.BYTES, DEVICE, "Largest use of the shared buffer.")
TE_ENTRIES: Final = gauge(
    "te_entries", Unit.COUNT, DEVICE, "Entries of traffic engineering in a leaf's table."
)
TE_MATCHED_FRAMES: Final = counter(
    "te_matched_frames", Unit.FRAMES, DEVICE, "Frames that left by an entry's port."
)
TE_ENTRIES_WITHDRAWN: Final = counter(
    "te_entries_withdrawn", Unit.COUNT, DEVICE, "Entries withdrawn because a link on their path went down."
)
TE_ENTRIES_REFUSED: Final = counter(
    "te_entries_refused",
    Unit.COUNT,
    DEVICE,
    "Installs refused: the table was full, or the port did not lead to the prefix.",
)
TE_ROUNDS: Final = counter("te_rounds", Unit.COUNT, DEVICE, "Collections that the controller started.")
TE_INSTALLS: Final = counter("te_installs", Unit.COUNT, DEVICE, "Entries that the controller sent.")
TE_UNPLACED_DEMANDS: Final = counter(
    "te_unplaced_demands", Unit.COUNT, DEVICE, "Demands without room in a path or table, counted each round."
)
HOST_CTS_RECEIVED: Final = counter(
    "host_cts_received", Unit.COUNT, DEVICE, "Clear-to-sends received by senders."
)
HOST_CTS_WAIT_PS: Final = counter(
    "host_cts_wait_ps",
    Unit.PS,
    DEVICE,
    "Time these clear-to-sends were in flight beyond their unloaded flight.",
)
HOST_CTS_WAIT_PEAK_PS: Final = gauge(
    "host_cts_wait_peak_ps", Unit.PS, DEVICE, "Longest such wait of one clear-to-send."
)
HOST_HELD_SLICES: Final = counter(
    "host_held_slices",
    Unit.COUNT,
    DEVICE,
    "Slices that waited for a connection's limit on outstanding bytes.",
)
HOST_DIVERTED_SLICES: Final = counter(
    "host_diverted_slices",
    Unit.COUNT,
    DEVICE,
    "Slices that least_loaded gave to another queue pair than the next in turn.",
)
HOST_MADE_QUEUE_PAIRS: Final = counter(
    "host_made_queue_pairs", Unit.COUNT, DEVICE, "Queue pairs made on demand (ncclx.connect)."
)
HOST_CONNECT_WAIT_PS: Final = counter(
    "host_connect_wait_ps", Unit.PS, DEVICE, "Time calls waited for queue pairs that were made on demand."
)
HOST_DEFERRED_SEGMENTS: Final = counter(
    "host_deferred_segments",
    Unit.COUNT,
    DEVICE,
    "Segments that waited because every queue pair had its maximum of messages outstanding.",
)
HOST_COMPUTE_PS: Final = counter(
    "host_compute_ps", Unit.PS, PORT, "Compute time of programs on the GPU behind the port, over all streams."
)
HOST_COMPUTE_WORK_PS: Final = counter(
    "host_compute_work_ps", Unit.PS, PORT, "Compute time of the same work on a GPU that is not slow."
)
NVLINK_TRANSMIT_BYTES: Final = counter("nvlink_transmit_bytes", Unit.BYTES, PORT, "Bytes sent on an NVLink.")
NVLINK_TRANSFERS: Final = counter("nvlink_transfers", Unit.COUNT, PORT, "Transfers sent on an NVLink.")
GPU_OVERTAKEN_COPIES: Final = counter(
    "gpu_overtaken_copies",
    Unit.COUNT,
    DEVICE,
    "Copies that waited at a GPU while a communicator of higher priority passed them.",
)
HOST_DIRECT_SLICES: Final = counter("host_direct_slices", Unit.COUNT, DEVICE, "Slices moved by zero-copy.")
HOST_SLOWER_COMPUTE_PS: Final = counter(
    "host_slower_compute_ps", Unit.PS, DEVICE, "Compute time lost to channels."
)
HOST_SM_WAIT_PS: Final = counter(
    "host_sm_wait_ps", Unit.PS, DEVICE, "Time collectives waited for SMs that others held."
)
HOST_OVERTAKEN_CALLS: Final = counter(
    "host_overtaken_calls",
    Unit.COUNT,
    DEVICE,
    "Collectives that waited for SMs while a communicator of higher priority passed them.",
)
GPU_COPIES: Final = counter("gpu_copies", Unit.COUNT, DEVICE, "Copies that the GPU started.")
GPU_COPIED_BYTES: Final = counter("gpu_copied_bytes", Unit.BYTES, DEVICE, "Bytes of these copies.")
GPU_COPY_PS: Final = counter(
    "gpu_copy_ps", Unit.PS, DEVICE, "Duration of these copies without the wait for their turn."
)
GPU_UNRESPONSIVE_PS: Final = gauge(
    "gpu_unresponsive_ps", Unit.PS, DEVICE, "Longest time for which the GPU did not respond to requests."
)
CREDIT_GRANTS: Final = counter("credit_grants", Unit.COUNT, PORT, "Credit granted to virtual output queues.")
VOQ_BYTES: Final = gauge(
    "voq_bytes", Unit.BYTES, PORT, "Depth of the virtual output queues towards this port."
)
VOQ_PEAK_BYTES: Final = gauge(
    "voq_peak_bytes", Unit.BYTES, PORT, "Largest depth of a virtual output queue towards this port."
)
CUT_THROUGH_FRAMES: Final = counter(
    "cut_through_frames",
    Unit.FRAMES,
    DEVICE,
    "Frames that left a cut-through switch before their tail arrived.",
)
QOS_MOVED_FRAMES: Final = counter(
    "qos_moved_frames",
    Unit.FRAMES,
    DEVICE,
    "Frames that a map moved from the queue or priority group of their DSCP's class selector.",
)
NIC_OUT_OF_SEQUENCE: Final = counter(
    "nic_out_of_sequence",
    Unit.COUNT,
    DEVICE,
    "Packets that arrived with a sequence number other than the expected one.",
    field="out_of_sequence",
)
NIC_PACKET_SEQ_ERR: Final = counter(
    "nic_packet_seq_err",
    Unit.COUNT,
    DEVICE,
    "NAKs for a sequence error received by the requester.",
    field="packet_seq_err",
)
NIC_LOCAL_ACK_TIMEOUT_ERR: Final = counter(
    "nic_local_ack_timeout_err",
    Unit.COUNT,
    DEVICE,
    "Times the requester's acknowledgement timer expired.",
    field="local_ack_timeout_err",
)
NIC_LATE_NAKS: Final = counter(
    "nic_late_naks",
    Unit.COUNT,
    DEVICE,
    "NAKs that an acknowledgement of what they ask for has overtaken; they are dropped.",
    field="late_naks",
)
NIC_DUPLICATE_REQUEST: Final = counter(
    "nic_duplicate_request",
    Unit.COUNT,
    DEVICE,
    "Packets that arrived a second time.",
    field="duplicate_request",
)
NIC_UNKNOWN_QPN: Final = counter(
    "nic_unknown_qpn",
    Unit.COUNT,
    DEVICE,
    "Packets for a queue pair that the NIC does not have.",
    field="unknown_qpn",
)
NIC_RETRANSMITTED_FRAMES: Final = counter(
    "nic_retransmitted_frames", Unit.FRAMES, DEVICE, "Data frames sent again."
)
NIC_ROCE_ADP_RETRANS: Final = counter(
    "nic_roce_adp_retrans",
    Unit.COUNT,
    DEVICE,
    "Times a timer of adaptive retransmission expired before the full timeout.",
    field="roce_adp_retrans",
)
NIC_RX_ICRC_ENCAPSULATED: Final = counter(
    "nic_rx_icrc_encapsulated",
    Unit.FRAMES,
    DEVICE,
    "Data packets lost because their ICRC was wrong.",
    field="rx_icrc_encapsulated",
)
NIC_RNR_NAK_RETRY_ERR: Final = counter(
    "nic_rnr_nak_retry_err",
    Unit.COUNT,
    DEVICE,
    "RNR NAKs received by the requester, retries not used up.",
    field="rnr_nak_retry_err",
)
NIC_OUT_OF_BUFFER: Final = counter(
    "nic_out_of_buffer",
    Unit.COUNT,
    DEVICE,
    "Packets refused because no receive was posted.",
    field="out_of_buffer",
)
NIC_BOND_FAILOVERS: Final = counter(
    "nic_bond_failovers",
    Unit.COUNT,
    DEVICE,
    "Queue pairs that failed over to another port because theirs was down.",
    field="bond_failovers",
)
NIC_PATHS_FAILED: Final = counter(
    "nic_paths_failed", Unit.COUNT, DEVICE, "Paths of queue pairs that were given up."
)
NIC_PATHS_RESTORED: Final = counter(
    "nic_paths_restored",
    Unit.COUNT,
    DEVICE,
    "Paths of queue pairs that came back.",
)
NIC_PATH_PROBES: Final = counter("nic_path_probes", Unit.FRAMES, DEVICE, "Probes sent on failed paths.")
NIC_NP_CNP_SENT: Final = counter(
    "nic_np_cnp_sent", Unit.FRAMES, DEVICE, "CNPs sent by the receiver.", field="np_cnp_sent"
)
NIC_NP_ECN_MARKED_ROCE_PACKETS: Final = counter(
    "nic_np_ecn_marked_roce_packets",
    Unit.FRAMES,
    DEVICE,
    "Packets received that a switch had marked.",
    field="np_ecn_marked_roce_packets",
)
NIC_RP_CNP_HANDLED: Final = counter(
    "nic_rp_cnp_handled", Unit.FRAMES, DEVICE, "CNPs handled by the sender.", field="rp_cnp_handled"
)
NIC_TRANSMIT_ACKS: Final = counter(
    "nic_transmit_acks", Unit.FRAMES, DEVICE, "Acknowledgements sent.", field="transmit_acks"
)
NIC_TRANSMIT_NAKS: Final = counter(
    "nic_transmit_naks", Unit.FRAMES, DEVICE, "NAKs sent.", field="transmit_naks"
)
NIC_DELIVERED_BYTES: Final = counter(
    "nic_delivered_bytes",
    Unit.BYTES,
    DEVICE,
    "Payload bytes that arrived in sequence.",
    field="delivered_bytes",
)
NIC_POSTED_BYTES: Final = counter(
    "nic_posted_bytes", Unit.BYTES, DEVICE, "Payload bytes of posted work requests.", field="posted_bytes"
)

DEVICE_METRICS: Final[tuple[Metric, ...]] = tuple(
    one for one in list(globals().values()) if isinstance(one, Metric)
)
"""All that is declared above, in that order, in which families are rendered."""
