"""What can go wrong with a NIC?

Besides its ports: a queue pair, or with a reset all of them, goes into error and flushes what is posted; and
memory takes what arrives more slowly than the link brings it (`actors.nic.receive`). When that ends memory
is faster than any link again, and what waited is taken at once.

Not modelled: firmware that hangs, a NIC that computes a wrong checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from actors.kernel.event import CONFIGURATION, LINK_STATE
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair
from actors.nic.queue_pair.timeout import flush
from actors.port.faults import afflict_port
from actors.wire.fault import FAULT_OPERATIONS, HOLD, PAIR_ERROR, RECEIVE, RESET, ROUTE
from actors.wire.frame import Frame
from actors.wire.message import STATUS_FLUSHED, STATUS_NOT_SENDING

if TYPE_CHECKING:
    from actors.nic.nic import Nic

NO_BOTTLENECK_BPS: Final = 10**15
ICRC_DROP: Final[i64] = 10


def afflict_nic(nic: Nic, op: int, place: int, values: list[int] | None) -> None:
    """Let something of a NIC be as a fault wants it; None: as it was built."""
    if op == HOLD:
        nic.on_timer(LINK_STATE, place, 1 if values is None else 0)
    elif op == ROUTE:
        nic.on_timer(CONFIGURATION, 0, place * 2 + (1 if values is None else 0))
    elif op == RESET:
        if values is not None:
            for pair in nic.pairs:
                _break(nic, pair, STATUS_FLUSHED)
    elif op == PAIR_ERROR:
        if values is not None and place < len(nic.pairs):
            _break(nic, nic.pairs[place], STATUS_NOT_SENDING)
    elif op == RECEIVE:
        _slow_down(nic, values)
    else:
        now: i64 = nic.queue.now_ps
        known: bool = afflict_port(nic.ports()[place], op, values, now)
        assert known, (nic.number, FAULT_OPERATIONS[op])


def corrupts(nic: Nic, frame: Frame, port_number: i64) -> bool:
    """Whether the data packet that came now is one to lose (`corrupt_every`)."""
    nic.data_packets += 1
    if nic.data_packets % nic.corrupt_every != 0:
        return False
    nic.rx_icrc_encapsulated += 1
    nic.mix_drop(port_number, ICRC_DROP, frame)
    return True


def _break(nic: Nic, pair: QueuePair, status: i64) -> None:
    if pair.state != ERROR:
        flush(nic, pair, status)


def _slow_down(nic: Nic, values: list[int] | None) -> None:
    maker = nic.make_receive
    assert maker is not None, nic.number
    if nic.receive is None:
        nic.receive = maker()
    receive = nic.receive
    assert receive is not None, nic.number
    if values is not None:
        receive.rate_bps = values[0]
    else:
        receive.rate_bps = receive.built_rate_bps if nic.counts_receive else NO_BOTTLENECK_BPS
