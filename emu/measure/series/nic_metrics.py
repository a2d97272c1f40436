"""Which series does a NIC have besides those of its ports?

Source of the NIC's names: the hardware counters of mlx5 (`/sys/class/infiniband/*/ports/*/hw_counters`),
under the prefix `emu_nic_`, so that one relabel rule turns ours into theirs.
"""

from __future__ import annotations

from typing import Final

from emu.measure.series.metric import DEVICE, Metric, Unit, counter

NIC_METRICS: Final[tuple[Metric, ...]] = (
    counter(
        "nic_out_of_sequence",
        "nic_out_of_sequence",
        Unit.COUNT,
        DEVICE,
        "Packets that arrived with a sequence number other than the expected one.",
    ),
    counter(
        "nic_packet_seq_err",
        "nic_packet_seq_err",
        Unit.COUNT,
        DEVICE,
        "NAKs for a sequence error received by the requester.",
    ),
    counter(
        "nic_local_ack_timeout_err",
        "nic_local_ack_timeout_err",
        Unit.COUNT,
        DEVICE,
        "Times the requester's acknowledgement timer expired.",
    ),
    counter(
        "nic_duplicate_request",
        "nic_duplicate_request",
        Unit.COUNT,
        DEVICE,
        "Packets that arrived a second time.",
    ),
    counter(
        "nic_unknown_qpn",
        "nic_unknown_qpn",
        Unit.COUNT,
        DEVICE,
        "Packets for a queue pair that the NIC does not have.",
    ),
    counter(
        "nic_retransmitted_frames", "nic_retransmitted_frames", Unit.FRAMES, DEVICE, "Data frames sent again."
    ),
    counter(
        "nic_roce_adp_retrans",
        "nic_roce_adp_retrans",
        Unit.COUNT,
        DEVICE,
        "Times a timer of adaptive retransmission expired before the full timeout.",
    ),
    counter(
        "nic_rx_icrc_encapsulated",
        "nic_rx_icrc_encapsulated",
        Unit.FRAMES,
        DEVICE,
        "Data packets lost because their ICRC was wrong.",
    ),
    counter(
        "nic_rnr_nak_retry_err",
        "nic_rnr_nak_retry_err",
        Unit.COUNT,
        DEVICE,
        "RNR NAKs received by the requester, retries not used up.",
    ),
    counter(
        "nic_out_of_buffer",
        "nic_out_of_buffer",
        Unit.COUNT,
        DEVICE,
        "Packets refused because no receive was posted.",
    ),
    counter(
        "nic_failovers",
        "nic_bond_failovers",
        Unit.COUNT,
        DEVICE,
        "Queue pairs that went on through another port because theirs was down.",
    ),
    counter("nic_np_cnp_sent", "nic_np_cnp_sent", Unit.FRAMES, DEVICE, "CNPs sent by the receiver."),
    counter(
        "nic_np_ecn_marked_roce_packets",
        "nic_np_ecn_marked_roce_packets",
        Unit.FRAMES,
        DEVICE,
        "Packets received that a switch had marked.",
    ),
    counter("nic_rp_cnp_handled", "nic_rp_cnp_handled", Unit.FRAMES, DEVICE, "CNPs handled by the sender."),
    counter("nic_acks_sent", "nic_transmit_acks", Unit.FRAMES, DEVICE, "Acknowledgements sent."),
    counter("nic_naks_sent", "nic_transmit_naks", Unit.FRAMES, DEVICE, "NAKs sent."),
    counter(
        "nic_delivered_bytes",
        "nic_delivered_bytes",
        Unit.BYTES,
        DEVICE,
        "Payload bytes that arrived in sequence.",
    ),
    counter(
        "nic_posted_bytes", "nic_posted_bytes", Unit.BYTES, DEVICE, "Payload bytes of posted work requests."
    ),
)
"""In the order in which families are rendered."""
