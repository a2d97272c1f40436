"""The counters of every fabric port, and their names.

Read at sync points and at scrapes: integers that the port keeps anyway, and times that go on while a class
is stopped.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Series, Tally, by_priority, series_of
from actors.port.credits import credit_counters, credit_series
from actors.port.link import PRIORITIES
from actors.port.port import Port

PORT_METRICS: Final = (
    "port_transmit_frames",
    "port_transmit_bytes",
    "port_transmit_payload_bytes",
    "port_receive_frames",
    "port_receive_bytes",
)
PFC_METRICS: Final = (
    "pfc_transmit_xoff_frames",
    "pfc_transmit_xon_frames",
    "pfc_receive_xoff_frames",
    "pfc_receive_xon_frames",
    "pfc_transmit_transitions",
    "pfc_receive_transitions",
    "pfc_transmit_paused_ps",
    "pfc_paused_ps",
)
"""What is counted of each priority, in the order of `count_port`."""


def port_series(port: Port) -> list[Series]:
    """The counters that every fabric port has, in the order of `count_port`."""
    number: int = port.number
    rows = [series_of(metric, number) for metric in PORT_METRICS]
    rows += [series_of("port_dropped_frames", number, -1, reason) for reason in ("link_down", "corrupt")]
    rows += [series_of("port_up", number), series_of("port_link_downed", number)]
    for metric in PFC_METRICS:
        rows += by_priority(metric, number)
    if port.credits is not None:
        rows += credit_series(number)
    return rows


def port_is_steady(port: Port) -> bool:
    """Whether none of these is a time that goes on."""
    return port.blocked == 0 and (port.pfc is None or port.pfc.told == 0)


def count_port(into: Tally, port: Port, now: i64) -> None:
    """Write the values of `port_series`, now."""
    into.add(port.sent_frames)
    into.add(port.sent_bytes)
    into.add(port.sent_data_bytes)
    into.add(port.received_frames)
    into.add(port.received_bytes)
    into.add(port.lost_link_down)
    into.add(port.corrupted)
    into.add(1 if port.up else 0)
    into.add(port.downs)
    pfc = port.pfc
    if pfc is None:
        into.add_list([0] * (len(PFC_METRICS) * PRIORITIES))
        lanes = port.credits
        if lanes is not None:
            into.add_list(credit_counters(lanes, now))
        return
    into.add_table(pfc.sent)
    into.add_table(pfc.resumed)
    into.add_table(pfc.received)
    into.add_table(pfc.received_resumes)
    into.add_table(pfc.stops)
    into.add_table(pfc.pauses)
    for priority in range(PRIORITIES):
        into.add(pfc.told_time_ps(priority, now))
    for priority in range(PRIORITIES):
        into.add(pfc.paused_time_ps(priority, now))
