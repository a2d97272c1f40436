"""Channels of a rank, and the ends of all their connections.

The channels of each group lie one behind the other. A queue pair is bound with a context, which is the end's
place among the rank's sends or receives, and the queue pair's role there
(`actors.ncclx.transport.clear_to_send`).
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain, Tally
from actors.kernel.state import as_list
from actors.kernel.vectors import append, vec
from actors.ncclx.rank.flight_records import WAITS_ACKNOWLEDGEMENT, WAITS_CTS, WAITS_DATA, WAITS_NOTHING
from actors.ncclx.transport.channel import Channel
from actors.ncclx.transport.clear_to_send import ROLES, SEND_CONTROL, SEND_DATA, ReceiveEnd, SendEnd, Waits
from actors.ncclx.transport.posting import LEAST_LOADED, Totals


class Ends:
    """The channels and ends of one rank."""

    def __init__(self) -> None:
        self.channels: vec[Channel] = vec[Channel]([])
        self.group_of: vec[i64] = vec[i64]([])
        """The group of each channel."""
        self.sends: vec[SendEnd] = vec[SendEnd]([])
        self.receives: vec[ReceiveEnd] = vec[ReceiveEnd]([])
        self.waits: Waits = Waits()
        """Waits of the clear-to-sends that came to its ends."""
        self.totals: Totals = Totals()
        self.chooses: bool = False
        """Whether slices go to the least loaded queue pair."""

    def add_channels(self, channels: list[Channel], group: i64) -> None:
        """The channels of the next group."""
        for channel in channels:
            self.channels = append(self.channels, channel)
            self.group_of = append(self.group_of, group)

    def add_send(self, send: SendEnd) -> None:
        """One more end of the channels that come next."""
        self.sends = append(self.sends, send)
        if send.sender.policy == LEAST_LOADED:
            self.chooses = True

    def add_receive(self, receive: ReceiveEnd) -> None:
        """One more end of the channels that come next."""
        self.receives = append(self.receives, receive)

    def settle(self, program: i64) -> None:
        """Give channels and ends the number that the host gave to their program, and one sum for all of them
        to count in, beginning with what each has counted.
        """
        totals = self.totals = Totals()
        for send in self.sends:
            send.program = program
            sender = send.sender
            sender.totals = totals
            totals.held += sender.held
            totals.deferred += sender.deferred
            totals.diverted += sender.diverted
        for receive in self.receives:
            receive.program = program
        for channel in self.channels:
            channel.program = program
            channel.totals = totals
            totals.direct += channel.direct

    def channel_of(self, context: i64) -> i64:
        """The channel of a queue pair."""
        role: i64 = context % ROLES
        if role == SEND_DATA or role == SEND_CONTROL:
            return self.sends[context // ROLES].channel
        return self.receives[context // ROLES].channel

    def waiting(self, first: i64, last: i64) -> tuple[i64, i64, i64, i64]:
        """What the channels from `first` to before `last` wait for first: what it is, the peer, the host's
        port and the queue pair.
        """
        for receive in self.receives:
            if not first <= receive.channel < last:
                continue
            if receive.ready < receive.expected:
                return WAITS_DATA, receive.peer, receive.nic_port, receive.control
        for send in self.sends:
            if not first <= send.channel < last:
                continue
            sender = send.sender
            if send.freed < send.posted:
                place: i64 = sender.waiting_place()
                return (
                    WAITS_ACKNOWLEDGEMENT,
                    send.peer,
                    sender.ports[place // sender.each],
                    sender.pairs[place],
                )
            if send.stuck():
                return WAITS_CTS, send.peer, sender.ports[0], send.control
        return WAITS_NOTHING, -1, -1, -1

    def failed(self, context: i64, request: i64) -> tuple[i64, i64]:
        """The peer and the host's port of a queue pair that is in error."""
        if context % ROLES == SEND_DATA:
            send = self.sends[context // ROLES]
            sender = send.sender
            place: i64 = request % len(sender.pairs)
            return send.peer, sender.ports[place // sender.each]
        receive = self.receives[context // ROLES]
        return receive.peer, receive.nic_port

    def count(self, total: Tally) -> None:
        """Add what waited, was held back or went directly to what other ranks counted."""
        waits = self.waits
        totals = self.totals
        total.increase(0, waits.count)
        total.increase(1, waits.total_ps)
        total.increase(2, totals.held)
        total.increase(3, totals.deferred)
        total.increase(4, totals.direct)
        total.reach(8, waits.most_ps)

    def save(self) -> Plain:
        """State for a snapshot."""
        channels: list[Plain] = [channel.save() for channel in self.channels]
        sends: list[Plain] = [send.save() for send in self.sends]
        receives: list[Plain] = [receive.save() for receive in self.receives]
        found: list[Plain] = [channels, sends, receives, self.waits.save()]
        return found

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        channels, sends, receives, waits = as_list(state)
        for channel, saved in zip(list(self.channels), as_list(channels), strict=True):
            channel.load(as_list(saved))
        for send, saved in zip(list(self.sends), as_list(sends), strict=True):
            send.load(saved)
        for receive, saved in zip(list(self.receives), as_list(receives), strict=True):
            receive.load(saved)
        self.waits.load(waits)
