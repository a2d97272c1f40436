"""Taps: a port mirror for frames, flow control and drops, and the capture of a port.

A `Tap` is shown what enters and leaves a port. A frame is only lent: it goes on, and changes. What a tap
keeps is never part of the answer.

`Capture` is the tap behind `run.capture`: it keeps one row of bytes for each frame that its span and filter
let pass. A row has what a dissector needs (`FIELDS`) and the payload where that is real; who writes a file
makes packets of rows. Rows are saved with the port, so that a run that resumes has each frame once.

Times of rows are those of the wire: first bit out for what is sent, last bit in for what is received, before
the ingress pipeline and a pause's response time. A frame that is dropped where it arrived is one row, with
the reason; a frame that is dropped where it waited to leave has a row of its own at that time.

Not modelled: captures of host links, NVLink and the management network; time stamps with a clock's error.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.state import as_int, as_list
from actors.kernel.vectors import vec
from actors.port.link import LinkEnd
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    CREDIT_WIRE_BYTES,
    PATHED,
    PAUSE_WIRE_BYTES,
    READ_REQUEST,
    SYNDROME_ACK,
    SYNDROME_NAK_SEQUENCE,
    Frame,
)
from actors.wire.message import PAUSE_FRAME

KINDS: Final = ("data", "read_request", "ack", "nak", "rnr", "cnp", "pfc", "credit")
"""What a frame is, for filters; by number."""
PFC_KIND: Final[i64] = 6
CREDIT_KIND: Final[i64] = 7
REASONS: Final = (
    "",
    "no_shared_room",
    "headroom_overrun",
    "no_route",
    "egress_limit",
    "watchdog",
    "ttl",
    "aqm",
    "link_down",
    "corrupt",
    "icrc",
    "unknown_qpn",
    "receive_overrun",
)
"""Why a frame is dropped, by number; a switch's reasons have the numbers of `actors.switch.switch`."""
LINK_DOWN: Final[i64] = 8
CORRUPT: Final[i64] = 9
BAD_ICRC: Final[i64] = 10
UNKNOWN_PAIR: Final[i64] = 11
RECEIVE_OVERRUN: Final[i64] = 12

FIELDS: Final = (
    "time_ps",
    "event",
    "reason",
    "ttl",
    "priority",
    "kind",
    "flags",
    "opcode",
    "dscp",
    "ecn",
    "syndrome",
    "udp_source",
    "src",
    "dst",
    "qpn",
    "psn",
    "payload_bytes",
    "wire_bytes",
    "message_bytes",
    "immediate",
)
ROW: Final = Struct("<q10BH8I")
"""One row; real payload follows it, or the vector of an acknowledgement of a path. A PFC frame has in `src`
the classes that it stops, in `dst` those that it resumes, in `message_bytes` the quanta; a credit update has
the lane in `src`, the limit in `dst`."""
SENT: Final = 1
DROPPED: Final = 2
"""Bits of `event`."""
ASKS: Final = 1
SPOILT: Final = 2
LOADED: Final = 4
"""Bits of `flags`: an acknowledgement is asked for, the FCS is wrong, real payload follows."""
_PLACE: Final = 12
"""Where in a row begins what stays equal from a frame's arrival to its drop."""
_LOOK_BACK: Final = 64
"""Rows among which a dropped frame is looked for: it arrived just before, beside what came meanwhile."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Tap:
    """Sees what enters and leaves a port, as a port mirror does; `Port.set_tap` puts it there.

    Subclass it for checks. What a tap keeps is not part of a snapshot, unless it is a `Recorder`.
    """

    def __init__(self) -> None:
        pass

    def saw(self, frame: Frame, now: i64) -> None:
        """A frame arrived whole at `now`, before the device does anything with it."""
        raise NotImplementedError

    def sent(self, frame: Frame, now: i64) -> None:
        """The first bit of a frame leaves now."""

    def dropped(self, frame: Frame, reason: i64, at_ps: i64, arrived: bool) -> None:
        """A frame is lost: one that arrived here with its last bit at `at_ps`, or one that was to leave."""

    def controlled(self, message: Message, at_ps: i64, arrived: bool, lost: bool) -> None:
        """A PFC frame or a credit update was sent, or arrived; it is lost if the link was down meanwhile."""


def kind_of(frame: Frame) -> i64:
    """What a frame is, for filters: a number of `KINDS`."""
    opcode: int = frame.opcode
    if opcode >= PATHED:
        opcode &= ~PATHED
    if opcode == ACKNOWLEDGE:
        syndrome: int = frame.syndrome
        if syndrome == SYNDROME_ACK:
            return 2
        return 3 if syndrome >= SYNDROME_NAK_SEQUENCE else 4
    if opcode == READ_REQUEST:
        return 1
    return 5 if opcode == CNP else 0


class Recorder(Tap):
    """A tap whose rows are part of the state: they are saved with the port."""

    def save(self) -> list[Plain]:
        """What was recorded so far."""
        raise NotImplementedError

    def load(self, state: Plain) -> None:
        """Take what `save` of the same recorder returned; leave what another one's did."""
        raise NotImplementedError


class Capture(Recorder):
    """Rows of one capture at one port. `number` is the capture's place in the scenario.

    `response_ps` is the time that the port takes to obey a pause.
    """

    def __init__(
        self,
        number: int,
        end: LinkEnd,
        head: bool,
        response_ps: int,
        from_ps: int,
        until_ps: int,
        snap_bytes: int,
        most: int,
    ) -> None:
        super().__init__()
        self.number: i64 = number
        self.end: LinkEnd = end
        self.head: bool = head
        """Whether frames are seen with their head: the device cuts through."""
        self.response_ps: i64 = response_ps
        self.from_ps: i64 = from_ps
        self.until_ps: i64 = until_ps
        self.snap_bytes: i64 = snap_bytes
        self.most: i64 = most
        self.kinds: i64 = (1 << len(KINDS)) - 1
        """The kinds that are kept (a mask)."""
        self.priorities: i64 = 0xFF
        self.addresses: vec[i64] = vec[i64]()
        """Frames from or to these NICs are kept; empty for all."""
        self.pairs: vec[i64] = vec[i64]()
        """Frames for these queue pairs are kept; empty for all."""
        self.rows: list[bytes] = []
        self.missed: i64 = 0
        """Frames beyond `most`."""

    def set_filter(self, kinds: int, priorities: int, addresses: list[int], pairs: list[int]) -> None:
        """Keep frames of these kinds and priorities (masks), NICs and queue pairs only."""
        self.kinds, self.priorities = kinds, priorities
        self.addresses, self.pairs = vec[i64](addresses), vec[i64](pairs)

    def over(self, now: i64) -> bool:
        """Whether nothing of its span can come any more: what is received is seen a pipeline later."""
        return now >= self.until_ps + max(self.end.own_ingress_latency_ps, self.response_ps)

    def saw(self, frame: Frame, now: i64) -> None:
        at_ps: i64 = self.end.received_ps(i64(frame.wire_bytes), now, self.head)
        if self._wants(frame, at_ps):
            self._keep(_row(frame, at_ps, 0, 0), frame)

    def sent(self, frame: Frame, now: i64) -> None:
        if self._wants(frame, now):
            self._keep(_row(frame, now, SENT, 0), frame)

    def dropped(self, frame: Frame, reason: i64, at_ps: i64, arrived: bool) -> None:
        if not self._wants(frame, at_ps):
            return
        row = _row(frame, at_ps, DROPPED if arrived else SENT | DROPPED, reason)
        rows = self.rows
        place = len(rows) - 1
        while arrived and place >= 0 and place >= len(rows) - _LOOK_BACK:
            before = rows[place]
            if before[:8] == row[:8] and before[_PLACE : ROW.size] == row[_PLACE:]:
                rows[place] = before[:8] + bytes((DROPPED, int(reason))) + before[10:]
                return
            place -= 1
        self._keep(row, frame)

    def controlled(self, message: Message, at_ps: i64, arrived: bool, lost: bool) -> None:
        time_ps: i64 = at_ps - self.response_ps if arrived else at_ps
        paused: bool = message.op == PAUSE_FRAME
        kind: i64 = PFC_KIND if paused else CREDIT_KIND
        if (self.kinds >> kind) & 1 == 0 or not self.from_ps <= time_ps < self.until_ps:
            return
        if len(self.addresses) > 0 or len(self.pairs) > 0:
            return
        size: i64 = PAUSE_WIRE_BYTES if paused else CREDIT_WIRE_BYTES
        event: i64 = (0 if arrived else SENT) | (DROPPED if lost else 0)
        reason: i64 = LINK_DOWN if lost else 0
        values = (time_ps, event, reason, 0, 0, kind, 0, 0, 0, 0, 0, 0)
        counts = (message.a, message.b & 0xFFFFFFFF, 0, 0, 0, size, message.c, 0)
        self._keep(ROW.pack(*values, *counts), None)

    def _wants(self, frame: Frame, at_ps: i64) -> bool:
        if not self.from_ps <= at_ps < self.until_ps:
            return False
        if (self.kinds >> kind_of(frame)) & 1 == 0 or (self.priorities >> i64(frame.priority)) & 1 == 0:
            return False
        if len(self.addresses) > 0 and frame.src not in self.addresses and frame.dst not in self.addresses:
            return False
        return len(self.pairs) == 0 or frame.qpn in self.pairs

    def _keep(self, row: bytes, frame: Frame | None) -> None:
        if len(self.rows) >= self.most:
            self.missed += 1
            return
        data = None if frame is None else frame.payload
        if frame is not None and i64(frame.opcode) == PATHED | ACKNOWLEDGE:
            data = frame.tail
        self.rows.append(row if data is None else row + data[: self.snap_bytes])

    def save(self) -> list[Plain]:
        """What was captured so far."""
        rows: list[Plain] = []
        rows += self.rows
        return [self.number, self.from_ps, self.missed, rows]

    def load(self, state: Plain) -> None:
        """Take what `save` of the same capture returned."""
        fields = as_list(state)
        if as_int(fields[0]) != self.number or as_int(fields[1]) != self.from_ps:
            return
        missed, rows = fields[2], fields[3]
        self.missed = as_int(missed)
        self.rows = [cast("bytes", row) for row in as_list(rows)]


def _row(frame: Frame, at_ps: i64, event: i64, reason: i64) -> bytes:
    flags: i64 = i64(frame.ack_request)
    if frame.corrupt != 0:
        flags |= SPOILT
    if frame.payload is not None:
        flags |= LOADED
    return ROW.pack(
        at_ps,
        event,
        reason,
        frame.ttl,
        frame.priority,
        kind_of(frame),
        flags,
        frame.opcode,
        frame.dscp,
        frame.ecn,
        frame.syndrome,
        frame.udp_source,
        frame.src,
        frame.dst,
        frame.qpn,
        frame.psn,
        frame.payload_bytes,
        frame.wire_bytes,
        frame.message_bytes & 0xFFFFFFFF,
        frame.immediate & 0xFFFFFFFF,
    )
