"""Messages between the devices of a server, and to and from the control plane.

GPU, host and NIC have no call into one another: verbs are messages over host links, completions are messages
back. A message is an operation and up to six integers; this page says what each integer means.

| operation | from, to | a | b | c | d | e | f |
|---|---|---|---|---|---|---|---|
| POST | host, NIC | QP index | work request id | bytes | POST_* flags | immediate | 0 |
| RECEIVE | host, NIC | QP index | receives posted | 0 | 0 | 0 | 0 |
| MODIFY | host, NIC | QP index | state | PSN (to RTR, RTS) | 0 | 0 | 0 |
| MODIFIED | NIC, host | QP index | state now | 0 | 0 | status | 0 |
| COMPLETION | NIC, host | QP index | work request id, or the immediate | bytes | COMPLETED_* | status | cut |
| COPY | host, GPU | channel | bytes | COPY_* kind | program | note | priority |
| COPIED | GPU, host | channel | bytes | COPY_* kind | program | note | 0 |
| BEGIN | controller, host | job | operation | membership | 1: what heartbeats are about | 1: meet first | 0 |
| REPORT | host, controller | job | operation | rank | start_ps | end_ps | status |
| TE_COLLECT | controller, switch | round | 0 | 0 | 0 | 0 | 0 |
| TE_DEMAND | switch, controller | round | ingress port | prefix | bytes | span in ps | entry: port or -1 |
| TE_PORT_DOWN | switch, controller | round | port | 0 | 0 | 0 | 0 |
| TE_COLLECTED | switch, controller | round | 0 | 0 | 0 | 0 | 0 |
| STORE_ASK | host, controller | job | rank | when it was sent | 0 | 0 | 0 |
| STORE_ANSWER | controller, host | job | 0 | 0 | 0 | 0 | 0 |
| HEARTBEAT | host, controller | host | job | bytes to its NICs | status | remapped rows | 0 |
| HEALTH | host, controller | host | computed ps of a rank | its steps | bytes in a sample | stall in ps | 0 |
| HALT | controller, host | job | 0 | 0 | 0 | 0 | 0 |
| SHARE | host, NIC | bit/s that a copy takes of the GPU's link, more or less | 0 | 0 | 0 | 0 | 0 |
| TRANSFER | GPU, NVSwitch, GPU | port there | pair of the last | bytes | 0 | immediate | 1: a flag |
| TE_INSTALL | controller, switch | ingress port | prefix | egress port; -1 removes | 0 | 0 | 0 |

POST and COMPLETION pass between host and GPU as well, for transfers over NVLink: the queue pair is then a
pair of the GPU (`actors.gpu.nvlink`).

In COMPLETION, `cut` is 1 if no retry is left and every link that the queue pair may send by is down.

In COPY, `program` is the number of the host's program that asked, and `note` is that program's own: COPIED
returns both as they came. In REPORT, `rank` is the sender's rank in the job (for flows, its host's number).

Where payload is real the bytes of a DMA ride in the message that speaks of it (`data`), so that times are
those of sizes: POST takes a message to the NIC, COMPLETION of a receive what arrived to the host, COPY a
slice and the order what to do with it (`actors.gpu.memory`) to the GPU, COPIED what goes into the send
slot.

A PFC frame's content travels as PAUSE: a = classes to stop (bit mask), b = classes to resume, c = quanta. So
does a CREDIT_UPDATE: a = virtual lane, b = up to which block the peer may send. In both f = when it was sent.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

PAUSE_FRAME: Final[i64] = 0
POST: Final[i64] = 1
COMPLETION: Final[i64] = 2
COPY: Final[i64] = 3
COPIED: Final[i64] = 4
BEGIN: Final[i64] = 5
REPORT: Final[i64] = 6
TE_COLLECT: Final[i64] = 7
TE_DEMAND: Final[i64] = 8
TE_PORT_DOWN: Final[i64] = 9
TE_COLLECTED: Final[i64] = 10
TE_INSTALL: Final[i64] = 11
RECEIVE: Final[i64] = 12
MODIFY: Final[i64] = 13
MODIFIED: Final[i64] = 14
CREDIT_UPDATE: Final[i64] = 15
TRANSFER: Final[i64] = 16
STORE_ASK: Final[i64] = 17
STORE_ANSWER: Final[i64] = 18
HEARTBEAT: Final[i64] = 19
HALT: Final[i64] = 20
SHARE: Final[i64] = 21
HEALTH: Final[i64] = 22

OPERATIONS: Final = (
    "pause_frame",
    "post",
    "completion",
    "copy",
    "copied",
    "begin",
    "report",
    "te_collect",
    "te_demand",
    "te_port_down",
    "te_collected",
    "te_install",
    "receive",
    "modify",
    "modified",
    "credit_update",
    "transfer",
    "store_ask",
    "store_answer",
    "heartbeat",
    "halt",
    "share",
    "health",
)

POST_WITH_IMMEDIATE: Final[i64] = 1
"""Flag of POST: the last packet carries the immediate, and the receiver gets a completion."""
POST_SEND: Final[i64] = 2
"""Flag of POST: a SEND, which takes a receive at the other end, and gives it a completion. Without it, and
without `POST_READ`, a WRITE."""
POST_READ: Final[i64] = 4
"""Flag of POST: a READ of so many bytes from the other end."""
POST_PROTOCOL: Final[i64] = 8
"""Factor of the protocol (`actors.ncclx.protocols`) in the flags of a POST to a GPU."""

COMPLETED_SEND: Final[i64] = 0
"""The work request was acknowledged (or failed): b is its id."""
COMPLETED_RECEIVE: Final[i64] = 1
"""A SEND, or a WRITE with immediate, arrived whole: b is the immediate."""

STATUS_SUCCESS: Final[i64] = 0
STATUS_RETRY_EXCEEDED: Final[i64] = 12
"""Transport retry counter exceeded (IBV_WC_RETRY_EXC_ERR)."""
STATUS_RNR_RETRY_EXCEEDED: Final[i64] = 13
"""RNR retry counter exceeded (IBV_WC_RNR_RETRY_EXC_ERR)."""
STATUS_NOT_SENDING: Final[i64] = 2
"""The queue pair cannot send in its state (IBV_WC_LOC_QP_OP_ERR)."""
STATUS_REMOTE_INVALID: Final[i64] = 9
"""The responder cannot do what was asked (IBV_WC_REM_INV_REQ_ERR)."""
STATUS_REMOTE_ACCESS: Final[i64] = 10
"""The responder does not allow it (IBV_WC_REM_ACCESS_ERR)."""
STATUS_REMOTE_OPERATION: Final[i64] = 11
"""The responder failed to do it (IBV_WC_REM_OP_ERR)."""
STATUS_TIMED_OUT: Final[i64] = 110
"""A collective that its watchdog gave up (ETIMEDOUT)."""
STATUS_INVALID: Final[i64] = 22
"""A state that may not follow the present one (EINVAL)."""
STATUS_FLUSHED: Final[i64] = 5
"""Flushed because the queue pair is in error (IBV_WC_WR_FLUSH_ERR)."""

STATUS_GPU_LOST: Final[i64] = 100
"""The GPU is gone (Xid 79)."""
STATUS_HOST_LOST: Final[i64] = 101
"""The host was gone, and what it ran with it."""

STATUS_ALIVE: Final[i64] = 102
"""Status of a report that ends nothing: the rank goes on."""
BLAME_BITS: Final[i64] = 8
"""Bits of a REPORT's status; above them, where a job goes on without ranks that it loses, the rank with which
a connection failed, or the rank itself if its own links are down, plus one."""
MEMBERSHIP_BITS: Final[i64] = 40
"""Bits of a report below the membership in which the rank takes part."""
PRESENT_OPERATION: Final[i64] = 1 << 30
"""In a REPORT of who no longer knows: whatever operation of the job is under way."""
ONLY_ANSWER: Final[i64] = (1 << 30) + 1
"""In place of an operation in BEGIN: nobody begins, and whoever is at work says so."""
ONLY_MEET: Final[i64] = 1 << 30
"""In a BEGIN: the ranks meet at the store, and nothing begins."""

COPY_PLAIN: Final[i64] = 0
COPY_REDUCE: Final[i64] = 1
COPY_FLAGGED: Final[i64] = 2
"""Added to either: the data is in lines of LL128, with flags of their own."""
COPY_LINES: Final[i64] = 4
"""Added to either: the data is in lines of LL."""
COPY_TO_NIC: Final[i64] = 8
"""Added to either: a NIC sends what was copied."""
COPY_FROM_NIC: Final[i64] = 16
"""Added to either: a NIC received what is copied."""
COPY_BLOCK: Final[i64] = 32
"""Added to either: the channel's thread block moves the bytes in this copy, and not in a transfer over
NVLink."""
COPY_ORDERED: Final[i64] = 64
"""Added to either: the channel has copies for NICs, and this one keeps its place among them."""
COPY_KINDS: Final = 128
"""How many kinds of copies there are. Above them: which thread block of the channel copies, of several."""

MOST_ORDER_BYTES: Final[i64] = 1 << 20
"""The longest order to a GPU, without the bytes that it is about."""

MESSAGE_BYTES: Final[i64] = 64
"""What any message occupies on a host link: a doorbell, a completion entry or a flag is one cache line."""


def speaks_of(op: int, b: int, c: int) -> int:
    """How many bytes a message that carries some must carry, from its operation and numbers; -1 if it may
    carry none, for an order to a GPU the most.
    """
    if op in (POST, COMPLETION, TRANSFER):
        return c
    if op == COPIED:
        return b
    return b + MOST_ORDER_BYTES if op == COPY else -1
