"""What a call waits for before it begins: the launch of its kernel, queue pairs, and its first byte.

With `pair_ps` above 0 queue pairs are made before the first call that uses them, one after the other for all
groups of the rank; their numbers then go to the peers and back. Only then does the call begin, so that a peer
that comes later is waited for by way of its clear-to-sends. With `launch_ps` above 0 every call begins that
much after its stream came to it.

Source: NCCL 2.30, `src/enqueue.cc` and `src/group.cc` (peers are marked when a send or receive is called, and
connected before the launch; rings and trees likewise with NCCL_RUNTIME_CONNECT), `src/transport.cc`
(ncclTransportP2pSetup).

Not modelled: rounds of 128 peers in which NCCL connects; what a NIC does with packets for a queue pair that
is not ready.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain, Tally
from actors.kernel.state import load_fields, save_fields
from actors.kernel.vectors import vec
from actors.ncclx.rank.group_calls import NOT_WAITED, Call, GroupCalls
from actors.ncclx.rank.timer_subjects import CONNECTED, PIECE_PS, Timers
from actors.ncclx.transport.channel import Channel

_FIELDS: Final = ("busy_until_ps", "made", "waited_ps")


class Connecting:
    """How the calls of one rank wait until they may begin."""

    def __init__(self, timers: Timers, pair_ps: int, exchange_ps: int, launch_ps: int) -> None:
        self.timers: Timers = timers
        self.pair_ps: i64 = pair_ps
        """What it takes to make a queue pair; 0: all are there."""
        self.exchange_ps: i64 = exchange_ps
        """What it takes to exchange their numbers."""
        self.launch_ps: i64 = launch_ps
        """From when a stream comes to a call until the call begins."""
        self.busy_until_ps: i64 = 0
        """Until when the rank makes queue pairs."""
        self.made: i64 = 0
        """Queue pairs made on demand."""
        self.waited_ps: i64 = 0
        """How long calls waited for them."""

    def ask(
        self, host: Host, number: i64, group: GroupCalls, call: Call, at: i64, channels: vec[Channel]
    ) -> None:
        """A stream has come to a call, which is `at` among those of its group: make the queue pairs that it
        is the first to use, and launch it.
        """
        now: i64 = call.asked_ps
        if self.pair_ps > 0:
            pairs: i64 = 0
            place: i64 = group.first_channel(at)
            end: i64 = group.end_channel(at)
            while place < end:
                pairs += channels[place].connect()
                place += 1
            if pairs > 0:
                self._connect(host, number, call, pairs, now)
        if self.launch_ps > 0 and call.ready_ps < now + self.launch_ps:
            self.wait(host, number, call, now + self.launch_ps, now)

    def wait(self, host: Host, number: i64, call: Call, until_ps: i64, now: i64) -> None:
        """A group's call waits until then."""
        call.ready_ps = until_ps
        self._set_timer(host, number, call, now)

    def on_timer(self, host: Host, number: i64, call: Call | None, now: i64) -> bool:
        """The timer of a group whose call waits; whether that is over."""
        if call is None or call.ready_ps < 0:
            return False  # the communicator was aborted
        host.progress += 1
        if call.ready_ps > now:
            self._set_timer(host, number, call, now)
            return False
        call.ready_ps = NOT_WAITED
        return True

    def _connect(self, host: Host, number: i64, call: Call, pairs: i64, now: i64) -> None:
        if self.busy_until_ps < now:
            self.busy_until_ps = now
        self.busy_until_ps += pairs * self.pair_ps
        self.made += pairs
        ready_ps: i64 = self.busy_until_ps + self.exchange_ps
        self.waited_ps += ready_ps - now
        self.wait(host, number, call, ready_ps, now)

    def _set_timer(self, host: Host, number: i64, call: Call, now: i64) -> None:
        """Set a group's timer for when its call may go on, or a piece before."""
        at_ps: i64 = call.ready_ps
        if at_ps > now + PIECE_PS:
            at_ps = now + PIECE_PS
        self.timers.set(host, at_ps, CONNECTED, number)

    def count(self, total: Tally) -> bool:
        """Add what was made on demand to what others made; whether any is."""
        if self.pair_ps == 0:
            return False
        total.increase(0, self.made)
        total.increase(1, self.waited_ps)
        return True

    def save(self) -> Plain:
        """State for a snapshot."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        load_fields(self, _FIELDS, state)
