"""In which states can a queue pair be, what may follow what, and what does each allow?

The table is that of `ibv_modify_qp` for reliable connections:

    from    to RESET  INIT  RTR  RTS  SQD  ERR
    RESET      x       x
    INIT       x       x     x              x
    RTR        x                  x         x
    RTS        x                  x    x    x
    SQD        x                  x    x    x
    SQE        x                  x         x
    ERR        x                            x

Anything else is refused (status EINVAL of MODIFIED) and changes nothing. SQE is in the standard for other
transports; a reliable connection never enters it.

    state   work requests posted           packets that arrive
    RESET   refused (LOC_QP_OP_ERR)        dropped, silently
    INIT    refused                        dropped; receives may be posted
    RTR     refused                        requests are answered
    RTS     sent                           answered; acknowledgements and responses are taken
    SQD     wait, once those begun are done  as in RTS
    ERR     flushed                        dropped

Connections exist when time begins, in RTS; a host that wants another state asks for it (MODIFY), with the PSN
that its packets begin with (RTS) or that it expects first (RTR). On the way into ERR what is posted comes
back flushed, in order, work requests first and then receives; on the way into RESET it is forgotten.

Source: InfiniBand Architecture Specification volume 1, section 10.3.1; `qp_state_table` of the Linux kernel
(`drivers/infiniband/core/verbs.c`).

Not modelled: the attributes that each transition must name, the event of a drained queue, migration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from actors.kernel.event import Message
from actors.nic.queue_pair.queue_pair import (
    ERROR,
    INITIALISED,
    READY,
    READY_TO_RECEIVE,
    RESET,
    SEND_ERROR,
    SEND_QUEUE_DRAINED,
    QueuePair,
)
from actors.nic.queue_pair.timeout import flush
from actors.wire.message import (
    COMPLETED_RECEIVE,
    MODIFIED,
    MODIFY,
    RECEIVE,
    STATUS_FLUSHED,
    STATUS_INVALID,
    STATUS_SUCCESS,
)

if TYPE_CHECKING:
    from actors.nic.nic import Nic

STATE_NAMES: Final = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
TRANSITIONS: Final[dict[int, tuple[int, ...]]] = {
    int(RESET): (int(RESET), int(INITIALISED)),
    int(INITIALISED): (int(RESET), int(INITIALISED), int(READY_TO_RECEIVE), int(ERROR)),
    int(READY_TO_RECEIVE): (int(RESET), int(READY), int(ERROR)),
    int(READY): (int(RESET), int(READY), int(SEND_QUEUE_DRAINED), int(ERROR)),
    int(SEND_QUEUE_DRAINED): (int(RESET), int(READY), int(SEND_QUEUE_DRAINED), int(ERROR)),
    int(SEND_ERROR): (int(RESET), int(READY), int(ERROR)),
    int(ERROR): (int(RESET), int(ERROR)),
}
"""State to the states that may follow."""


def modify(nic: Nic, pair: QueuePair, state: i64, psn: i64, now: i64) -> i64:
    """Bring a queue pair into a state, and return how that went: STATUS_SUCCESS or STATUS_INVALID."""
    before: i64 = pair.state
    if state not in TRANSITIONS[before]:
        return STATUS_INVALID
    if state == ERROR:
        flush(nic, pair, STATUS_FLUSHED)
        return STATUS_SUCCESS
    pair.state = state
    if state == RESET:
        pair.forget()
    elif state == READY_TO_RECEIVE:
        pair.expect_from(psn)
    elif state == READY and before == READY_TO_RECEIVE:
        pair.begin_at(psn)
        nic.recovery.begin(pair)
    pair.hold()
    if pair.has_packets():
        nic.activate(pair, now)
    return STATUS_SUCCESS


def managed(nic: Nic, pair: QueuePair, message: Message) -> None:
    """The host posts receives, or wants a queue pair in another state."""
    if message.op == RECEIVE:
        if pair.state == ERROR:
            nic.tell(pair, 0, 0, COMPLETED_RECEIVE, STATUS_FLUSHED)
        elif pair.state != RESET:
            pair.receives += message.b
        return
    assert message.op == MODIFY, message.op
    now: i64 = nic.queue.now_ps
    status: i64 = modify(nic, pair, message.b, message.c, now)
    nic.host.send(Message(MODIFIED, pair.index, pair.state, 0, 0, status, 0), now)
