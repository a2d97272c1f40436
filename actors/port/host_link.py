"""Host links and the management network: messages between the devices of a server, and to the control plane.

A host link carries messages one after the other: each occupies the link for 64 B at its rate, then takes
the link's delay. Nothing is lost and nothing blocks; a message sent while the link is busy waits its
turn, so no two arrive at one port at the same time. The management network is one such link from every
host to the controller, told apart by the sender's number.

Not modelled: PCIe credits, posted and non-posted ordering.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.queue import EventQueue
from actors.kernel.units import serialisation_ps
from actors.port.link import Outbox
from actors.wire.message import MESSAGE_BYTES

MANAGEMENT_PORT: Final[i64] = 2047
"""The port number under which every host and the controller know the management network."""


class MessagePort:
    """One direction of a host link: `send` stamps a message with its arrival at the peer."""

    def __init__(
        self,
        queue: EventQueue,
        rate_bps: int,
        delay_ps: int,
        peer: int,
        peer_port: int,
        subject: int,
        outbox: Outbox | None,
    ) -> None:
        self.queue: EventQueue = queue
        self.delay_ps: i64 = delay_ps
        self.message_ps: i64 = serialisation_ps(MESSAGE_BYTES, rate_bps)
        self.free_ps: i64 = 0
        self.outbox: Outbox | None = outbox
        self._key: i64 = pack_key(peer, MESSAGE, peer_port, subject)

    def send(self, message: Message, now: i64) -> None:
        """Send a message now, or as soon as those before it are on their way."""
        start: i64 = self.free_ps
        if now > start:
            start = now
        self.free_ps = start + self.message_ps
        message.time_ps = self.free_ps + self.delay_ps
        message.key = self._key
        if self.outbox is None:
            self.queue.push(message)
        else:
            self.outbox.add_message(message)
