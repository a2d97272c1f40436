"""Traces of queue pairs: what each may send, has in flight, and sent again, over time.

A `FlowTrace` is a tap at the ports of one NIC (`run.trace`). It writes a row for a queue pair when the first
of its packets leaves, or the first acknowledgement comes, in each interval of `every_ps`: as the queue pair
is just before that. So a row has the true time, a pair that is idle has none, and no event is added to a run.

The round trip is that of the last packet that asked for its acknowledgement and was sent once (Karn's rule):
from its first bit on the wire to the acknowledgement's last bit here, the ingress pipeline included.

Not modelled: responses of READs, which are paced by the responder's control.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.nic.queue_pair.queue_pair import QueuePair, unwrap
from actors.port.tap import Recorder
from actors.wire.frame import ACKNOWLEDGE, READ_REQUEST, SYNDROME_ACK, Frame

COLUMNS: Final = (
    "virtual_ps",
    "queue_pair",
    "remote_address",
    "remote_queue_pair",
    "rate_bps",
    "window_packets",
    "in_flight_packets",
    "rtt_ps",
    "alpha_fixed",
    "sent_packets",
    "sent_bytes",
    "retransmissions",
)
"""Columns of a row. Rate and window are 0 where nothing bounds them; round trip and alpha (2^-20) -1 where
there is none; the last three grow."""
TRACE: Final = -1
"""In the place of a capture's number, in what is saved."""
_FIELDS: Final = (
    "due_ps",
    "beyond_psn",
    "timed_psn",
    "timed_ps",
    "rtt_ps",
    "packets",
    "bytes",
    "again",
)


class PairTrace:
    """What is known of one queue pair."""

    def __init__(self, pair: QueuePair) -> None:
        self.pair: QueuePair = pair
        self.due_ps: i64 = 0
        """From when on the next row is written."""
        self.beyond_psn: i64 = pair.high_psn
        """Everything before was sent."""
        self.timed_psn: i64 = -1
        self.timed_ps: i64 = 0
        self.rtt_ps: i64 = -1
        self.packets: i64 = 0
        self.bytes: i64 = 0
        self.again: i64 = 0

    def save(self) -> list[Plain]:
        """All but the queue pair."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        load_fields(self, _FIELDS, state)


class FlowTrace(Recorder):
    """Rows of the queue pairs of one NIC, at most `most` of them; the NIC's ports share it."""

    def __init__(self, every_ps: int, most: int, pairs: list[QueuePair]) -> None:
        super().__init__()
        self.every_ps: i64 = every_ps
        self.most: i64 = most
        self.rows: list[list[int]] = []
        self.missed: i64 = 0
        """Rows beyond `most`."""
        self._traces: list[PairTrace] = [PairTrace(pair) for pair in pairs]
        self._own: dict[int, PairTrace] = {int(one.pair.qpn): one for one in self._traces}
        self._remote: dict[int, PairTrace] = {
            int(one.pair.remote_address) << 24 | int(one.pair.remote_qpn): one for one in self._traces
        }

    def sent(self, frame: Frame, now: i64) -> None:
        if frame.opcode > READ_REQUEST:
            return
        trace = self._remote.get(int(frame.dst) << 24 | int(frame.qpn))
        if trace is None:
            return
        self._look(trace, now)
        psn: i64 = unwrap(i64(frame.psn), trace.beyond_psn)
        trace.packets += 1
        trace.bytes += i64(frame.payload_bytes)
        if psn < trace.beyond_psn:
            trace.again += 1
            if psn <= trace.timed_psn:
                trace.timed_psn = -1
            return
        trace.beyond_psn = psn + 1
        if trace.timed_psn < 0 and frame.ack_request != 0 and frame.opcode != READ_REQUEST:
            trace.timed_psn = psn
            trace.timed_ps = now

    def saw(self, frame: Frame, now: i64) -> None:
        if frame.opcode != ACKNOWLEDGE:
            return
        trace = self._own.get(int(frame.qpn))
        if trace is None:
            return
        self._look(trace, now)
        if trace.timed_psn >= 0 and unwrap(i64(frame.psn), trace.timed_psn) >= trace.timed_psn:
            if frame.syndrome == SYNDROME_ACK:
                trace.rtt_ps = now - trace.timed_ps
            trace.timed_psn = -1

    def _look(self, trace: PairTrace, now: i64) -> None:
        """Write a row if it is time for one."""
        if now < trace.due_ps:
            return
        trace.due_ps = (now // self.every_ps + 1) * self.every_ps
        if len(self.rows) >= self.most:
            self.missed += 1
            return
        pair = trace.pair
        rate_bps: i64 = 0
        window: i64 = 0
        alpha: i64 = -1
        control = pair.control
        if control is not None:
            rate_bps = control.rate_bps
            window = control.window_packets
            alpha = control.marked_share()
        in_flight: i64 = trace.beyond_psn - pair.una_psn
        row: list[int] = [now, pair.qpn, pair.remote_address, pair.remote_qpn, rate_bps, window, in_flight]
        row += [trace.rtt_ps, alpha, trace.packets, trace.bytes, trace.again]
        self.rows.append(row)

    def save(self) -> list[Plain]:
        traces: list[Plain] = [trace.save() for trace in self._traces]
        return [TRACE, save_fields(self, ("missed", "rows")), traces]

    def load(self, state: Plain) -> None:
        number, fields, traces = as_list(state)
        if as_int(number) != TRACE:
            return
        load_fields(self, ("missed", "rows"), fields)
        for trace, saved in zip(self._traces, as_list(traces), strict=True):
            trace.load(saved)
