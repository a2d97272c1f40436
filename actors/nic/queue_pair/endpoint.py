"""What the parts of a NIC's transport share: queue pairs, counters, and the way to the host.

A NIC's bond and recovery scheme are objects of their own. Each knows its NIC as an `Endpoint`: it counts
there, lets queue pairs wait for their turn, and reports to the host. Requester and responder are layers of
the NIC itself (`Endpoint`, `Requester`, `Responder`, `Nic`): as objects beside it they cost each packet two
cache lines more.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Device
from actors.kernel.event import RETRANSMIT, Message
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import vec
from actors.nic.queue_pair.queue_pair import ERROR, NO_PSN, QueuePair
from actors.port.link import MessagePort
from actors.port.port import Port
from actors.wire.fault import PAIR_ERROR
from actors.wire.frame import Frame
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    STATUS_FLUSHED,
    STATUS_RETRY_EXCEEDED,
)

RNR_PORT: Final[i64] = 2047
"""A RETRANSMIT timer's port number says which timer it is: its own port is the queue pair's timeout, and the
last numbers of `PORT_BITS`, which no port has, are the others. This one ends a wait for a receiver."""
RECOVERY_PORT: Final[i64] = 2046
"""A timer of the loss recovery scheme."""
CNP_PORT: Final[i64] = 2045
"""The delay of a CNP."""


class EndpointSettings:
    """How a NIC's transport is set up. Its layers read this as they are built, and packets never do."""

    def __init__(
        self,
        timeout_ps: int,
        first_timeout_ps: int,
        retry_count: int,
        rnr_retry: int,
        rnr_timer: int,
        access: int,
        receives_run_out: bool,
        corrupt_every: int,
    ) -> None:
        self.timeout_ps: i64 = timeout_ps
        """How long a queue pair waits for an acknowledgement; 0 for ever."""
        self.first_timeout_ps: i64 = first_timeout_ps
        """The first timeout of adaptive retransmission; else the only one."""
        self.retry_count: i64 = retry_count
        self.rnr_retry: i64 = rnr_retry
        self.rnr_timer: i64 = rnr_timer
        """The timer code of RNR NAKs."""
        self.access: i64 = access
        """What peers may do here: ACCESS_* of the responder."""
        self.receives_run_out: bool = receives_run_out
        """Whether receives are counted."""
        self.corrupt_every: i64 = corrupt_every
        """Every so many-th data packet is lost here; 0 for none."""


class Endpoint(Device):
    """A device with queue pairs and a host behind it; `Nic` is the one there is."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        settings: EndpointSettings,
        whole_messages: bool,
    ) -> None:
        super().__init__(number, queue)
        # What every packet reads comes first, behind the device's counters.
        self.whole_messages: bool = whole_messages
        """Whether what came of a message counts for nothing before all of it is there."""
        self.guarded: bool = False
        """Whether a request may be refused: receives run out (`counted`), or not everything is allowed."""
        self.controlled: bool = False
        """Whether queue pairs have congestion control."""
        self.repeating: bool = False
        """Whether answers repeat something of the packet that they answer: INT, or what `echoes` says."""
        self.echoes: bool = False
        """Whether they repeat PSN, mark and UDP source port, and controls hear of these."""
        self.self_clocked: bool = False
        """Whether the loss recovery scheme decides when to answer and how far a window reaches."""
        self.counts_receive: bool = False
        """Whether it counts what a slow way to memory refused."""
        self.receives_slowly: bool = False
        """Whether there is a slow way to memory."""
        self.delivered_bytes: i64 = 0
        self.transmit_acks: i64 = 0
        self.corrupt_every: i64 = settings.corrupt_every
        self._mask: i64 = 0
        self._table: vec[QueuePair | None] = vec[QueuePair | None]()
        """Queue pairs by the last bits of their numbers, which are all different there."""
        self.first_port: Port | None = None
        """Its port 0, which most have alone."""
        self.first_timeout_ps: i64 = settings.first_timeout_ps
        self.telemetry_bytes: i64 = -1
        """What INT adds to an acknowledgement on the wire; below 0 where packets collect none."""
        self.host: MessagePort = host
        self.pairs: list[QueuePair] = []
        self.settings: EndpointSettings = settings
        self.deliveries: list[list[int]] = []
        """Messages that are here whole: queue pair, number of the message, time, size."""
        self.out_of_sequence: i64 = 0
        self.packet_seq_err: i64 = 0
        self.local_ack_timeout_err: i64 = 0
        self.duplicate_request: i64 = 0
        self.bond_failovers: i64 = 0
        """Queue pairs that went on through another port because theirs was down."""

    def activate(self, pair: QueuePair, now: i64) -> None:
        """A queue pair has packets to send: it takes its turn at its port."""
        raise NotImplementedError

    def cut_off(self, pair: QueuePair) -> bool:
        """Whether a queue pair has packets to send, none in flight, and no port whose link is up."""
        raise NotImplementedError

    def linked(self, pair: QueuePair) -> bool:
        """Whether the link of a port that a queue pair sends by is up."""
        raise NotImplementedError

    def respond(self, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        """Take a request packet that came through a port, and answer it."""
        raise NotImplementedError

    def answer(
        self,
        pair: QueuePair,
        psn: i64,
        syndrome: i64,
        selective: i64,
        port: i64,
        now: i64,
        spare: Frame | None = None,
    ) -> None:
        """Send an acknowledgement or a NAK for `psn` through a port; what is selective travels in AETH's
        24 bits.
        """
        raise NotImplementedError

    def set_recovery_timer(self, pair: QueuePair, at_ps: i64) -> None:
        """Have the loss recovery scheme called (`on_timer`) at a time to come; 0 for not at all. A queue
        pair has one such timer: set again it moves, and an earlier time waits for the one that is pending.
        """
        repair = pair.begun_repair()
        repair.due_ps = at_ps
        if at_ps > 0 and repair.timer_ps == 0:
            now: i64 = self.queue.now_ps
            repair.timer_ps = at_ps if at_ps > now else now + 1
            self.push_timer(repair.timer_ps, RETRANSMIT, RECOVERY_PORT, pair.index)

    def complete(self, pair: QueuePair, number: i64, size_bytes: i64, status: i64) -> None:
        """Tell the host that a work request ended."""
        self.tell(pair, number, size_bytes, COMPLETED_SEND, status)

    def tell(self, pair: QueuePair, number: i64, size_bytes: i64, kind: i64, status: i64) -> None:
        """Tell the host that a work request or a receive ended."""
        cut_off: i64 = 0
        if status == STATUS_RETRY_EXCEEDED and not self.linked(pair):
            cut_off = 1
        done = Message(COMPLETION, pair.index, number, size_bytes, kind, status, cut_off)
        self.host.send(done, self.queue.now_ps)

    def delivered(self, pair: QueuePair, size_bytes: i64, now: i64) -> None:
        """A message is here whole."""
        if pair.log_deliveries:
            self.deliveries.append([pair.index, pair.messages, now, size_bytes])
            if len(self.deliveries) > pair.log_deliveries:
                self.deliveries = self.deliveries[len(self.deliveries) // 2 :]
        pair.messages += 1

    def flush(self, pair: QueuePair, status: i64) -> None:
        """Put a queue pair into error. Its oldest work request ends with this status; what else is posted is
        flushed, in order, and after it the receives.
        """
        pair.state = ERROR
        self.note(int(PAIR_ERROR), int(pair.index), [int(pair.qpn), int(status), 0])
        pair.sending = None
        pair.resend_psn = NO_PSN
        pair.pending = None
        pair.waits = 0
        while pair.head is not None:
            request = pair.drop_head()
            pair.sending = None
            self.complete(pair, request.number, request.size_bytes, status)
            status = STATUS_FLUSHED
        while pair.receives > 0:
            pair.receives -= 1
            self.tell(pair, 0, 0, COMPLETED_RECEIVE, STATUS_FLUSHED)
