"""What does a NIC count, and under which names?

A counter of a feature that is off is not there, so that a scenario without it has the digest it had before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from actors.kernel.device import Series, by_priority, series_of
from actors.kernel.tally import Tally
from actors.port.counters import count_port, port_is_steady, port_series
from actors.port.link import PRIORITIES

if TYPE_CHECKING:
    from actors.nic.nic import Nic

PLAIN: Final = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "duplicate_request",
    "transmit_acks",
    "transmit_naks",
    "delivered_bytes",
    "posted_bytes",
    "unknown_qpn",
)
CONTROL: Final = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled")
RECEIVES: Final = ("rnr_nak_retry_err", "out_of_buffer")
STATE: Final = (
    *PLAIN,
    *CONTROL,
    *RECEIVES,
    "bond_failovers",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
    "data_packets",
)
"""What a snapshot keeps, on or off."""


def _optional(nic: Nic) -> list[str]:
    names: list[str] = []
    if nic.corrupt_every > 0:
        names.append("rx_icrc_encapsulated")
    if nic.first_timeout_ps != nic.timeout_ps:
        names.append("roce_adp_retrans")
    if len(nic.ports()) > 1:
        names.append("bond_failovers")
    if nic.controlled:
        names += list(CONTROL)
    if nic.counted:
        names += list(RECEIVES)
    return names


def _count_optional(nic: Nic, into: Tally) -> None:
    """Write their values, in the order of `_optional`."""
    if nic.corrupt_every > 0:
        into.add(nic.rx_icrc_encapsulated)
    if nic.first_timeout_ps != nic.timeout_ps:
        into.add(nic.roce_adp_retrans)
    if len(nic.ports()) > 1:
        into.add(nic.bond_failovers)
    if nic.controlled:
        into.add(nic.np_cnp_sent)
        into.add(nic.np_ecn_marked_roce_packets)
        into.add(nic.rp_cnp_handled)
    if nic.counted:
        into.add(nic.rnr_nak_retry_err)
        into.add(nic.out_of_buffer)


def nic_is_steady(nic: Nic) -> bool:
    """Whether no counter of time is going on."""
    return all(port_is_steady(port) for port in nic.ports())


def nic_series(nic: Nic) -> list[Series]:
    """The counters of a NIC, in the order of `count_nic`."""
    rows = [series_of("nic_" + name) for name in PLAIN]
    rows.append(series_of("nic_retransmitted_frames"))
    rows += [series_of("nic_" + name) for name in _optional(nic)]
    if nic.ports()[0].fetch is not None:
        rows.append(series_of("nic_pcie_wait_ps"))
    for port in nic.ports():
        rows += port_series(port)
        n: int = port.number
        rows.append(series_of("port_dropped_frames", n, -1, "receive_overrun"))
        if nic.counts_receive:
            rows += by_priority("nic_receive_buffer_bytes", n)
            rows += by_priority("nic_receive_buffer_peak_bytes", n)
    return rows


def count_nic(nic: Nic, into: Tally) -> None:
    """Write their values, now."""
    into.add(nic.out_of_sequence)
    into.add(nic.packet_seq_err)
    into.add(nic.local_ack_timeout_err)
    into.add(nic.duplicate_request)
    into.add(nic.transmit_acks)
    into.add(nic.transmit_naks)
    into.add(nic.delivered_bytes)
    into.add(nic.posted_bytes)
    into.add(nic.unknown_qpn)
    retransmitted: i64 = 0
    for port in nic.ports():
        retransmitted += port.retransmitted
    into.add(retransmitted)
    _count_optional(nic, into)
    fetch = nic.ports()[0].fetch
    if fetch is not None:
        into.add(fetch.wait_ps)
    for port in nic.ports():
        count_port(into, port, nic.queue.now_ps)
        receive = nic.receive
        n: int = port.number
        into.add(0 if receive is None else receive.dropped_at(n))
        if nic.counts_receive and receive is not None:
            for priority in range(PRIORITIES):
                into.add(receive.held_at(n, priority))
            for priority in range(PRIORITIES):
                into.add(receive.peak_at(n, priority))


def pair_states(nic: Nic) -> list[int]:
    """Of every queue pair: state, PSNs acknowledged and expected, messages received."""
    values: list[int] = []
    for pair in nic.pairs:
        values += [pair.state, pair.una_psn, pair.end_psn, pair.expected_psn, pair.messages]
    return values
