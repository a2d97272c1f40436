"""Credit-based flow control, as InfiniBand links have it.

Each virtual lane (here: each priority) has a buffer at the receiver, counted in blocks of 64 bytes. The
receiver tells its peer up to which block, counted from when the link came up, it may send:

    limit = blocks that arrived + blocks of the buffer - blocks that are held

and the peer never sends a frame that would take what it has sent beyond that. So nothing is ever dropped for
want of room, and nothing is ever paused too late: there is no headroom. The two halves of one port:

* as sender: `spend` counts what leaves; a lane with credits for less than one largest frame is blocked until
  `hear` brings a higher limit;
* as receiver: `arrived` counts what came, `hold` and `free` what is held of it. An update is sent when the
  limit is `update_blocks` above the one that was advertised last. It goes ahead of everything that waits, but
  waits for the frame in progress; each lane's is a flow control packet of its own, of 8 bytes.

When a link goes down both halves begin anew; when it comes back the receiver tells each lane's limit first.
A frame whose bits were wrong did arrive, and holds nothing.

Source: InfiniBand Architecture Specification volume 1, section 7.9 (FCTBS, FCCL and ABR), with counters that
do not wrap.

Not modelled: updates that are lost to bit errors, and their refresh every 65,536 symbols; sizes of a frame
are RoCE's (Ethernet, IP and UDP in place of LRH); VL arbitration tables (see `switch.scheduling`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.counters import CREDIT_PEAK_BLOCKS, CREDIT_TRANSMIT_UPDATES, PORT_TRANSMIT_WAIT_PS
from actors.kernel.device import Plain, Series, by_priority
from actors.kernel.event import Message
from actors.kernel.state import load_fields, save_fields
from actors.kernel.vectors import vec
from actors.port.link import PRIORITIES, LinkEnd
from actors.wire.frame import CREDIT_WIRE_BYTES, PREAMBLE_GAP_BYTES
from actors.wire.message import CREDIT_UPDATE

BLOCK_BYTES: Final[i64] = 64
_FIELDS: Final = (
    "pending",
    "spent",
    "limit",
    "taken",
    "held",
    "advertised",
    "updates",
    "peak_blocks",
    "since_ps",
    "waited_ps",
)


def blocks_of(wire_bytes: i64) -> i64:
    """The blocks of a frame; preamble and gap are not kept."""
    return (wire_bytes - PREAMBLE_GAP_BYTES + BLOCK_BYTES - 1) // BLOCK_BYTES


class Credits:
    """Credits of both directions at one port; also the port's flow-control hook."""

    def __init__(self, port: LinkEnd, buffer_blocks: int, update_blocks: int, largest_blocks: int) -> None:
        assert buffer_blocks >= update_blocks + 2 * largest_blocks, (buffer_blocks, update_blocks)
        self.port: LinkEnd = port
        self.buffer_blocks: i64 = buffer_blocks
        self.update_blocks: i64 = update_blocks
        self.largest_blocks: i64 = largest_blocks
        self.spent: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.limit: vec[i64] = vec[i64]([buffer_blocks] * PRIORITIES)
        """As sender: blocks sent, and up to where they may be."""
        self.taken: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.held: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.advertised: vec[i64] = vec[i64]([buffer_blocks] * PRIORITIES)
        """As receiver: blocks that arrived, those held, and the limit that was advertised to the peer."""
        self.pending: i64 = 0
        """The lanes whose update waits to be sent."""
        self.updates: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.peak_blocks: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.since_ps: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.waited_ps: vec[i64] = vec[i64]([0] * PRIORITIES)

    def spend(self, lane: i64, wire_bytes: i64, now: i64) -> None:
        """A frame leaves."""
        spent: i64 = self.spent[lane] + blocks_of(wire_bytes)
        assert spent <= self.limit[lane], (self.port.number, lane, spent, self.limit[lane])
        self.spent[lane] = spent
        if self.limit[lane] - spent < self.largest_blocks:
            self._block(lane, now)

    def hear(self, message: Message, now: i64) -> None:
        """The peer's update is here: a = lane, b = limit, f = when it was sent."""
        port = self.port
        if port.ever_down and port.was_down(message.f, now):
            return
        lane: i64 = message.a
        if message.b > self.limit[lane]:
            self.limit[lane] = message.b
        if self.limit[lane] - self.spent[lane] >= self.largest_blocks:
            self._release(lane, now)
            port.kick(now)

    def arrived(self, lane: i64, wire_bytes: i64, now: i64) -> None:
        """A frame came, and what of it is held has been reported by `hold`."""
        self.taken[lane] += blocks_of(wire_bytes)
        self._settle(lane, now)

    def hold(self, lane: i64, wire_bytes: i64) -> None:
        """A frame that comes now is kept."""
        held: i64 = self.held[lane] + blocks_of(wire_bytes)
        assert held <= self.buffer_blocks, (self.port.number, lane, held)
        self.held[lane] = held
        if held > self.peak_blocks[lane]:
            self.peak_blocks[lane] = held

    def free(self, lane: i64, wire_bytes: i64, now: i64) -> None:
        """A frame that was kept leaves."""
        self.held[lane] -= blocks_of(wire_bytes)
        self._settle(lane, now)

    def _settle(self, lane: i64, now: i64) -> None:
        """Tell the peer its new limit once it is worth an update."""
        limit: i64 = self.taken[lane] + self.buffer_blocks - self.held[lane]
        if limit - self.advertised[lane] >= self.update_blocks:
            self.pending |= 1 << lane
            port = self.port
            if port.up:
                port.control_pending = True
                port.kick(now)

    def transmit(self, now: i64) -> None:
        """Send the update of the highest lane that has one; the wire is free."""
        lane: i64 = 7
        while (self.pending >> lane) & 1 == 0:
            lane -= 1
        self.pending &= ~(1 << lane)
        port = self.port
        port.control_pending = self.pending != 0
        limit: i64 = self.taken[lane] + self.buffer_blocks - self.held[lane]
        self.advertised[lane] = limit
        self.updates[lane] += 1
        port.transmit_pause(Message(CREDIT_UPDATE, lane, limit, 0, 0, 0, now), CREDIT_WIRE_BYTES, now)

    def link_down(self, now: i64) -> None:
        """The link went down: nothing may be sent, and counting begins anew."""
        lane: i64 = 0
        while lane < 8:
            self.spent[lane] = 0
            self.limit[lane] = 0
            self.taken[lane] = 0
            self.advertised[lane] = 0
            self._block(lane, now)
            lane += 1
        self.pending = 0
        self.port.control_pending = False

    def link_up(self, now: i64) -> None:
        """The link came back: tell the peer what room there is."""
        self.pending = 0xFF
        self.port.control_pending = True

    def waited_time_ps(self, lane: i64, now: i64) -> i64:
        """How long a lane of this port had credits for less than a largest frame, up to now."""
        total: i64 = self.waited_ps[lane]
        if (self.port.blocked >> lane) & 1:
            total += now - self.since_ps[lane]
        return total

    def _block(self, lane: i64, now: i64) -> None:
        if (self.port.blocked >> lane) & 1 == 0:
            self.port.blocked |= 1 << lane
            self.since_ps[lane] = now

    def _release(self, lane: i64, now: i64) -> None:
        if (self.port.blocked >> lane) & 1:
            self.port.blocked &= ~(1 << lane)
            self.waited_ps[lane] += now - self.since_ps[lane]

    def save(self) -> list[Plain]:
        """Both halves' state."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, state)


def credit_series(number: int) -> list[Series]:
    """The counters of a port with credits, in the order of `credit_counters`."""
    rows: list[Series] = []
    for metric in (CREDIT_TRANSMIT_UPDATES, PORT_TRANSMIT_WAIT_PS, CREDIT_PEAK_BLOCKS):
        rows += by_priority(metric, number)
    return rows


def credit_counters(lanes: Credits, now: i64) -> list[int]:
    """The values of `credit_series` now."""
    values: list[int] = list(lanes.updates)
    values += [lanes.waited_time_ps(lane, now) for lane in range(PRIORITIES)]
    return values + list(lanes.peak_blocks)
