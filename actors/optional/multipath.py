"""Multipath: one queue pair over all ports of its NIC, on paths that the NIC owns; MetaRoCE's shape.

A *path* is a port and a UDP source port, by which switches hash, so that its packets stay in order. Each has
a window, a smoothed round trip and a sequence of its own. A queue pair has `paths` of them at every port and
sends by each in turn; whichever has room takes the next packet. Every WRITE says where it goes, so the
receiver places it at once; messages complete in order.

Loss. Every acknowledgement says of its path the highest sequence that came and, as 256 bits, which of the
last 256 did. A gap is a loss, since a path keeps its order: the packet is sent again at once, on that path,
under a new sequence, so that a second loss of it shows as the first did. What nothing later follows is sent
again when the path was silent for its timeout; a path that is silent `silent_after` times is failed and its
packets go by others. One whose own port lost its link fails at once. A failed path is probed every `probe`;
an answer brings it back with a window of one packet. After a probe that was not answered, it takes another
UDP source port.

Congestion. Every path has a window by AIMD: a marked packet halves it, once a round trip; otherwise it grows
by a packet in a round trip. So has the connection, which halves when more than half of a round's packets were
marked. The receiver puts into every acknowledgement the share of its inbound rate that is the sender's: the
rate of its ports over the connections that it heard of within the last one or two `share_interval`. The
connection has no more in flight than that share sends in a smoothed round trip, or in 1.5 of the fabric's
longest unloaded one if that is less. Loss is no sign of congestion.

On the wire a data packet has 8 bytes more behind BTH (path, sequence, time of sending) and RETH in every
packet of a WRITE; an acknowledgement has the 8 bytes of the packet that it answers, the vector of 32 bytes
and the share of 4. Its mark is the packet's.

Source: Meta, MetaRoCE (Engineering at Meta, 24 August 2026), for the shape: paths with source port, window,
round trip and sequence, the vector of 256 bits, a gap as loss, AIMD by path and by connection, the receiver's
share. No specification was public when this was written. All numbers are choices of ours: how many paths,
windows, increase and decrease, timeouts, probes, the interval of shares, and the layout of headers.

Not modelled: several ordered streams in one connection, READs, a vector that is longer than 256 packets: a
path never has more in flight.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from actors.kernel.device import Plain
from actors.kernel.knobs import AUTO, MTU, Knob, Knobs
from actors.kernel.mixing import MASK62, scramble
from actors.kernel.state import as_bytes, as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.numbers import FIRST_UDP_SOURCE, UDP_SOURCES
from actors.nic.queue_pair.queue_pair import ERROR, READY, HeldPackets, QueuePair, unwrap
from actors.nic.transport import LaneNic, Transport
from actors.wire.frame import (
    ACKNOWLEDGE,
    ECN_CAPABLE,
    ECN_CONGESTED,
    ECN_NOT_CAPABLE,
    PATH_PROBE,
    PATHED,
    PSN_MASK,
    SYNDROME_ACK,
    WRITE_ONLY_IMM,
    Frame,
    pathed_size,
)
from actors.wire.message import STATUS_RETRY_EXCEEDED

VECTOR: Final[i64] = 256
"""Sequences that an acknowledgement speaks of."""
VECTOR_BYTES: Final = 32
WHOLE: Final = b"\xff" * VECTOR_BYTES
"""Everything came."""
_ONES: Final = (1 << 256) - 1
ONE: Final[i64] = 256
"""A packet, in the unit of windows."""
LEAST_RING: Final = 16
NO_PATH: Final[i64] = -1
SHARE_BPS: Final[i64] = 1_000_000
"""The unit of the share in an acknowledgement."""
_PATH_FIELDS: Final = (
    "udp_source",
    "drawn",
    "next_seq",
    "una_seq",
    "window",
    "srtt_ps",
    "heard_ps",
    "cut_seq",
    "silences",
    "failed",
    "probe_ps",
    "psns",
    "left_ps",
    "again",
)
_FIELDS: Final = ("_down", "_epoch", "_heard", "_heard_before", "failed", "restored", "probes")
_INFLOW_FIELDS: Final = ("highest", "gap_seq", "unanswered")
_SET_FIELDS: Final = (
    "in_flight",
    "window",
    "share_mbps",
    "srtt_ps",
    "round_left",
    "round_acks",
    "round_marks",
    "good",
    "silent_ps",
    "epoch",
    "moved",
    "turns",
)


class Path:
    """The sender's half of a path."""

    def __init__(self, number: int, port: int, window: int) -> None:
        self.number: i64 = number
        self.port: i64 = port
        self.udp_source: i64 = 0
        self.drawn: i64 = 0
        """How many UDP source ports it has had."""
        self.next_seq: i64 = 0
        self.una_seq: i64 = 0
        """What is before is resolved: it came, or it is sent again."""
        self.window: i64 = window
        """In units of 1/256 packet."""
        self.srtt_ps: i64 = 0
        self.heard_ps: i64 = 0
        """When it was heard last, or began to send."""
        self.cut_seq: i64 = 0
        """Marks of what is before close the window no more."""
        self.silences: i64 = 0
        self.failed: bool = False
        self.probe_ps: i64 = 0
        """When it is probed next."""
        self.psns: vec[i64] = vec[i64]([0] * LEAST_RING)
        """By sequence: which packet."""
        self.left_ps: vec[i64] = vec[i64]([0] * LEAST_RING)
        """By sequence: when it left."""
        self.again: list[int] = []
        """Packets that were lost on it, to be sent again."""

    def carries(self, psn: i64, now: i64) -> i64:
        """A packet leaves by it; returns its sequence."""
        seq: i64 = self.next_seq
        if seq - self.una_seq == len(self.psns):
            self._widen()
        slot: i64 = seq & (len(self.psns) - 1)
        self.psns[slot] = psn
        self.left_ps[slot] = now
        if self.una_seq == seq:
            self.heard_ps = now
        self.next_seq = seq + 1
        return seq

    def _widen(self) -> None:
        old: i64 = len(self.psns)
        psns = vec[i64]([0] * int(2 * old))
        left = vec[i64]([0] * int(2 * old))
        seq: i64 = self.una_seq
        while seq < self.next_seq:
            psns[seq & (2 * old - 1)] = self.psns[seq & (old - 1)]
            left[seq & (2 * old - 1)] = self.left_ps[seq & (old - 1)]
            seq += 1
        self.psns = psns
        self.left_ps = left

    def save(self) -> list[Plain]:
        """The state."""
        return [self.number, self.port, save_fields(self, _PATH_FIELDS)]


def load_path(state: Plain) -> Path:
    """The path that `save` returned."""
    number, port, fields = as_list(state)
    path = Path(as_int(number), as_int(port), 0)
    load_fields(path, _PATH_FIELDS, fields)
    return path


class Inflow:
    """The receiver's half of a path."""

    def __init__(self) -> None:
        self.highest: i64 = -1
        """The highest sequence that came."""
        self.gap_seq: i64 = -VECTOR - 1
        """The last sequence that had not come when a later one did."""
        self.bits: int = _ONES
        """Bit i: whether `highest` - i came; of meaning while a gap is in the vector."""
        self.unanswered: i64 = 0

    def came(self, seq: i64) -> bool:
        """A packet of the path is here. Whether the answer has something new to say of a gap."""
        step: i64 = seq - self.highest
        if step == 1:
            self.highest = seq
            if seq - self.gap_seq <= VECTOR:
                self.bits = ((self.bits << 1) | 1) & _ONES
            return False
        if step > 1:
            if self.highest - self.gap_seq > VECTOR:
                self.bits = _ONES
            self.bits = ((self.bits << int(min(step, VECTOR))) | 1) & _ONES
            self.highest = seq
            self.gap_seq = seq - 1
        elif -step < VECTOR and self.highest - self.gap_seq <= VECTOR:
            self.bits |= 1 << int(-step)
        return True

    def vector(self) -> bytes:
        """The 256 bits of an acknowledgement."""
        if self.highest - self.gap_seq > VECTOR:
            return WHOLE
        return self.bits.to_bytes(VECTOR_BYTES, "little")

    def save(self) -> list[Plain]:
        """The state."""
        return [save_fields(self, _INFLOW_FIELDS), self.bits.to_bytes(VECTOR_BYTES, "little")]


def load_inflow(state: Plain) -> Inflow:
    """The inflow that `save` returned."""
    fields, bits = as_list(state)
    inflow = Inflow()
    load_fields(inflow, _INFLOW_FIELDS, fields)
    inflow.bits = int.from_bytes(as_bytes(bits), "little")
    return inflow


class PathSet:
    """What a queue pair remembers of its paths."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        """By number, port by port; none before the queue pair sends."""
        self.turns: vec[i64] = vec[i64]()
        """By port: the path whose turn it is."""
        self.inflows: list[Inflow] = []
        """By number, as far as any came."""
        self.moved: list[int] = []
        """Packets of failed paths, to be sent by any."""
        self.in_flight: i64 = 0
        self.window: i64 = 0
        """Window of the connection, in units of 1/256 packet."""
        self.share_mbps: i64 = -1
        """What the receiver said; -1 for nothing yet."""
        self.srtt_ps: i64 = 0
        """The smoothed round trip over all paths."""
        self.round_left: i64 = 0
        """Packets until a round trip's worth was acknowledged."""
        self.round_acks: i64 = 0
        self.round_marks: i64 = 0
        self.good: i64 = 0
        """Paths that are not failed."""
        self.silent_ps: i64 = 0
        """Since when no path is good."""
        self.epoch: i64 = -1
        """As receiver: the last interval of shares in which it came."""

    def save(self) -> list[Plain]:
        """The state."""
        paths: list[Plain] = [path.save() for path in self.paths]
        inflows: list[Plain] = [inflow.save() for inflow in self.inflows]
        return [save_fields(self, _SET_FIELDS), paths, inflows]


def load_set(state: Plain) -> PathSet:
    """The set that `save` returned."""
    fields, paths, inflows = as_list(state)
    found = PathSet()
    load_fields(found, _SET_FIELDS, fields)
    found.paths = [load_path(path) for path in as_list(paths)]
    found.inflows = [load_inflow(inflow) for inflow in as_list(inflows)]
    return found


@mypyc_attr(allow_interpreted_subclasses=True)
class Multipath(Transport):
    """The transport."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("paths", "number", 8, 1, 31, "Paths of a queue pair at each port of its NIC."),
        Knob(
            "window",
            "bytes",
            AUTO,
            MTU,
            doc="In flight of a queue pair at most. `auto`: what all ports of its NIC send in 1.5 of the"
            " fabric's longest unloaded round trips (the largest window of UEC).",
        ),
        Knob(
            "placement",
            "bytes",
            AUTO,
            MTU,
            doc="How far a packet may be ahead of one that is missing. `auto`: what all ports send in 128 us,"
            " at least eight windows.",
        ),
        Knob(
            "silence",
            "ps",
            "8us",
            "1us",
            doc="A path with packets in flight that is not heard for so long, and two of its smoothed round"
            " trips, sends its oldest packet again; 16 times as long before its first answer.",
        ),
        Knob("silent_after", "number", 2, 1, 16, "Such silences in a row after which a path is failed."),
        Knob("probe", "ps", "100us", "1us", doc="How often a failed path is probed."),
        Knob(
            "share_interval",
            "ps",
            "20us",
            "1us",
            doc="A sender has a share of the receiver's rate until it was not heard of for one to two of it.",
        ),
    )

    def __init__(self, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(mtu_bytes, knobs)
        self.paths: i64 = knobs.paths
        self.silence_ps: i64 = knobs.silence_ps
        self.silent_after: i64 = knobs.silent_after
        self.probe_ps: i64 = knobs.probe_ps
        self.interval_ps: i64 = knobs.share_interval_ps
        self.ports: i64 = 1
        self.line_mbps: i64 = 0
        self.most: i64 = ONE
        """The largest window of a connection."""
        self.most_of_path: i64 = ONE
        self.longest_ps: i64 = 0
        """The longest round trip in which a connection fills its share."""
        self.ps_per_unit: i64 = 1
        """Mb/s times ps in which 1/256 of a packet leaves."""
        self._given_window: i64 = knobs.window_bytes or 0
        self._given_placement: i64 = knobs.placement_bytes or 0
        self._down: i64 = 0
        """Ports (a mask) whose link is down."""
        self._epoch: i64 = -1
        self._heard: i64 = 0
        """Connections that were heard in this interval, and in the one before."""
        self._heard_before: i64 = 0
        self._sets: list[PathSet] = []

    def set_fabric(self, ports: int, line_bps: int, round_trip_ps: int) -> None:
        mtu: i64 = self.mtu_bytes
        all_bps: i64 = i64(ports) * i64(line_bps)
        window: i64 = self._given_window
        if window == 0:
            window = all_bps // 8_000_000 * (i64(round_trip_ps) * 3 // 2) // 1_000_000
        packets: i64 = max(window // mtu, 4)
        placed: i64 = self._given_placement // mtu
        if placed == 0:
            placed = max(all_bps // 8_000_000 * 128 // mtu, 8 * packets)
        self.ports = ports
        self.line_mbps = all_bps // SHARE_BPS
        self.most = packets * ONE
        self.longest_ps = i64(round_trip_ps) * 3 // 2
        self.ps_per_unit = pathed_size(WRITE_ONLY_IMM, mtu) * 8_000_000 // ONE
        each: i64 = packets * 4 // (self.paths * i64(ports))
        self.most_of_path = min(max(each, 8), VECTOR) * ONE
        self.hold_packets = placed
        self.window_packets = placed

    # ---- beginnings

    def prepare(self, pair: QueuePair) -> None:
        assert pair.index == len(self._sets), (pair.index, len(self._sets))
        self._sets.append(PathSet())
        window: int = 1
        while window < self.hold_packets:
            window *= 2
        pair.held = HeldPackets(window)
        self.begin(pair)
        pair.ecn = ECN_CAPABLE

    def begin(self, pair: QueuePair) -> None:
        super().begin(pair)
        self._sets[pair.index] = PathSet()

    def _open(self, pair: QueuePair, of: PathSet, now: i64) -> None:
        """The paths of a queue pair that sends for the first time."""
        number: i64 = 0
        first: i64 = min(self.most_of_path, max(2 * self.most // (self.paths * self.ports), 2 * ONE))
        while number < self.paths * self.ports:
            path = Path(int(number), int(number // self.paths), int(first))
            self._draw(pair, path)
            of.paths.append(path)
            number += 1
        of.turns = vec[i64]([0] * int(self.ports))
        of.window = self.most
        of.round_left = self.most // ONE
        of.good = number
        port: i64 = 0
        while port < self.ports:
            if (self._down >> port) & 1:
                self._fail_port(pair, of, port, now)
            port += 1

    def _draw(self, pair: QueuePair, path: Path) -> None:
        """Give a path a UDP source port, another than it had."""
        word: i64 = (pair.qpn << 24) ^ (path.number << 16) ^ path.drawn ^ (i64(pair.udp_source) << 40)
        path.udp_source = FIRST_UDP_SOURCE + (scramble(word & MASK62) >> 31) % UDP_SOURCES
        path.drawn += 1

    # ---- sender

    def _bound(self, of: PathSet) -> i64:
        """How much a connection may have in flight, in units of 1/256 packet."""
        bound: i64 = of.window
        if 0 <= of.share_mbps < self.line_mbps:
            round_trip_ps: i64 = of.srtt_ps
            if round_trip_ps > self.longest_ps:
                round_trip_ps = self.longest_ps
            share: i64 = of.share_mbps * round_trip_ps // self.ps_per_unit
            if share < bound:
                bound = share
        return max(bound, ONE)

    def _choose(self, pair: QueuePair, of: PathSet, port: i64) -> i64:
        """The number of the path that takes the next packet at a port; NO_PATH if none does."""
        if len(of.paths) == 0:
            return port * self.paths if pair.has_packets() else NO_PATH
        new: bool = (len(of.moved) > 0 or pair.has_packets()) and of.in_flight * ONE < self._bound(of)
        turn: i64 = of.turns[port]
        step: i64 = 0
        first: i64 = port * self.paths
        while step < self.paths:
            at: i64 = turn + step
            if at >= self.paths:
                at -= self.paths
            path = of.paths[first + at]
            step += 1
            if path.failed:
                continue
            if len(path.again) > 0:
                return first + at
            flying: i64 = path.next_seq - path.una_seq
            if new and flying * ONE < path.window and flying < VECTOR:
                return first + at
        return NO_PATH

    def waits_at(self, pair: QueuePair, port: i64) -> bool:
        if pair.state < READY or pair.state == ERROR or pair.paced or (self._down >> port) & 1:
            return False
        return self._choose(pair, self._sets[pair.index], port) != NO_PATH

    def next_packet(self, nic: Endpoint, pair: QueuePair, port: i64, now: i64) -> Frame | None:
        of = self._sets[pair.index]
        if pair.state == ERROR:
            return None
        if len(of.paths) == 0:
            self._open(pair, of, now)
        while True:
            number: i64 = self._choose(pair, of, port)
            if number == NO_PATH:
                return None
            path = of.paths[number]
            psn: i64 = NO_PATH
            if len(path.again) > 0:
                psn = path.again.pop(0)
            elif len(of.moved) > 0:
                psn = of.moved.pop(0)
            # A packet to be sent again may have been acknowledged meanwhile, by its copy on another path.
            if psn == NO_PATH or psn >= pair.una_psn:
                break
        of.turns[port] = (number - port * self.paths + 1) % self.paths
        if psn == NO_PATH:
            psn = pair.next_psn
            frame = pair.next_frame()
            pair.high_psn = pair.next_psn
        else:
            frame = pair.frame_again(psn)
            assert isinstance(nic, LaneNic), nic.number
            nic.lane_port(port).sent_again(pair, psn, now)
        seq: i64 = path.carries(psn, now)
        of.in_flight += 1
        size: i64 = pathed_size(i64(frame.opcode), i64(frame.payload_bytes))
        frame.wire_bytes = i16(size)
        frame.opcode = u8(i64(frame.opcode) | PATHED)
        frame.udp_source = i32(path.udp_source)
        frame.message_bytes = (number << 24) | (seq & PSN_MASK)
        if pair.begun_repair().due_ps == 0:
            nic.set_recovery_timer(pair, now + self.silence_ps)
        return frame

    def _answered(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        """An acknowledgement came: of a path, and of everything before a PSN."""
        of = self._sets[pair.index]
        word: i64 = frame.message_bytes
        number: i64 = word >> 24
        if pair.state < READY or number >= len(of.paths):
            return
        path = of.paths[number]
        near: i64 = path.next_seq
        highest: i64 = unwrap(word & PSN_MASK, near)
        share: i64 = frame.immediate
        of.share_mbps = share
        if path.una_seq <= highest < path.next_seq:
            marked: bool = frame.ecn == ECN_CONGESTED
            acked: i64 = self._resolve(of, path, highest, frame.tail, now)
            if path.failed:
                path.failed = False
                path.window = ONE
                of.good += 1
                self.restored += 1
            self._adapt(of, path, highest, acked, marked)
        una: i64 = unwrap(i64(frame.psn), pair.una_psn) + 1
        if una > pair.una_psn and una <= pair.high_psn:
            assert isinstance(nic, LaneNic), nic.number
            nic.progressed(pair, una, frame, now)
        nic.activate(pair, now)

    def _resolve(self, of: PathSet, path: Path, highest: i64, vector: bytes | None, now: i64) -> i64:
        """Everything up to a sequence of a path came or is lost; returns how much came."""
        mask: i64 = len(path.psns) - 1
        seq: i64 = path.una_seq
        if not path.failed:
            of.in_flight -= highest + 1 - seq
        took_ps: i64 = now - path.left_ps[highest & mask]
        path.srtt_ps = took_ps if path.srtt_ps == 0 else path.srtt_ps + (took_ps - path.srtt_ps) // 8
        of.srtt_ps = took_ps if of.srtt_ps == 0 else of.srtt_ps + (took_ps - of.srtt_ps) // 8
        path.heard_ps = now
        path.silences = 0
        acked: i64 = highest + 1 - seq
        if vector is not None and vector != WHOLE:
            bits = int.from_bytes(vector, "little")
            acked = 0
            while seq <= highest:
                if (bits >> int(highest - seq)) & 1:
                    acked += 1
                elif path.psns[seq & mask] != NO_PATH:
                    path.again.append(int(path.psns[seq & mask]))
                seq += 1
        path.una_seq = highest + 1
        return acked

    def _adapt(self, of: PathSet, path: Path, highest: i64, acked: i64, marked: bool) -> None:
        """AIMD of a path, and of the connection."""
        if marked:
            if highest >= path.cut_seq:
                path.cut_seq = path.next_seq
                path.window = max(path.window // 2, ONE)
        elif path.window < self.most_of_path:
            path.window = min(path.window + acked * ONE * ONE // path.window, self.most_of_path)
        of.round_acks += acked
        if marked:
            of.round_marks += acked
        of.round_left -= acked
        if of.round_left > 0:
            return
        if of.round_marks * 2 > of.round_acks:
            of.window = max(of.window // 2, ONE)
        else:
            of.window = min(of.window + self.ports * ONE, self.most)
        of.round_acks = 0
        of.round_marks = 0
        of.round_left = max(of.in_flight, 1)

    # ---- paths that are silent

    def _fail(self, of: PathSet, path: Path, now: i64) -> None:
        """Give a path up: what it has goes by others."""
        path.failed = True
        path.probe_ps = now + self.probe_ps
        path.silences = 0
        mask: i64 = len(path.psns) - 1
        seq: i64 = path.una_seq
        of.in_flight -= path.next_seq - seq
        moved: list[int] = path.again
        path.again = []
        while seq < path.next_seq:
            if path.psns[seq & mask] != NO_PATH:
                moved.append(int(path.psns[seq & mask]))
            seq += 1
        path.una_seq = path.next_seq
        of.moved += moved
        of.moved.sort()
        of.good -= 1
        if of.good == 0:
            of.silent_ps = now
        self.failed += 1

    def _fail_port(self, pair: QueuePair, of: PathSet, port: i64, now: i64) -> None:
        for path in of.paths:
            if path.port == port and not path.failed:
                self._fail(of, path, now)

    def port_changed(self, nic: Endpoint, port: i64, up: bool, now: i64) -> None:
        if up:
            self._down &= ~(1 << port)
        else:
            self._down |= 1 << port
        for pair in nic.pairs:
            of = self._sets[pair.index]
            if up:
                for path in of.paths:
                    if path.port == port and path.failed:
                        path.probe_ps = now
                if len(of.paths) > 0 and self._works(pair, of):
                    nic.set_recovery_timer(pair, now + 1)
            else:
                self._fail_port(pair, of, port, now)
            nic.activate(pair, now)

    def on_cut_off(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        if pair.begun_repair().due_ps > 0:
            return
        of = self._sets[pair.index]
        if of.good == 0:
            of.silent_ps = now
        nic.set_recovery_timer(pair, now + 1)

    def _patience_ps(self, path: Path) -> i64:
        """How long a path may be silent: the first packets may stand in a queue that all others fill, too."""
        if path.srtt_ps == 0:
            return 16 * self.silence_ps
        return max(self.silence_ps, 2 * path.srtt_ps)

    def _works(self, pair: QueuePair, of: PathSet) -> bool:
        """Whether anything is posted or in flight."""
        return pair.una_psn < pair.end_psn or of.in_flight > 0

    def on_timer(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        of = self._sets[pair.index]
        if not self._works(pair, of) or (len(of.paths) == 0 and not nic.cut_off(pair)):
            return
        if of.good == 0 and self.give_up_ps > 0 and now - of.silent_ps >= self.give_up_ps:
            nic.flush(pair, STATUS_RETRY_EXCEEDED)
            return
        # One pending timer a queue pair, whatever the number of its paths: each look finds the next deadline.
        due_ps: i64 = now + self.silence_ps
        for path in of.paths:
            at_ps: i64 = due_ps
            if path.failed:
                if path.probe_ps <= now:
                    self._probe(nic, pair, path, now)
                at_ps = path.probe_ps
            elif path.next_seq > path.una_seq:
                patience_ps: i64 = self._patience_ps(path)
                if now - path.heard_ps >= patience_ps:
                    path.heard_ps = now
                    path.silences += 1
                    if path.silences >= self.silent_after:
                        self._fail(of, path, now)
                    else:  # a lost tail shows by silence alone: its first packet is sent again
                        slot: i64 = path.una_seq & (len(path.psns) - 1)
                        if path.psns[slot] != NO_PATH:
                            path.again.append(int(path.psns[slot]))
                            path.psns[slot] = NO_PATH
                        patience_ps = self._patience_ps(path)
                at_ps = path.heard_ps + patience_ps
            if at_ps < due_ps:
                due_ps = at_ps
        nic.set_recovery_timer(pair, due_ps if due_ps > now else now + 1)
        nic.activate(pair, now)

    def _probe(self, nic: Endpoint, pair: QueuePair, path: Path, now: i64) -> None:
        """Ask whether a failed path leads anywhere; by another way than what was not answered."""
        path.probe_ps = now + self.probe_ps
        if (self._down >> path.port) & 1:
            return
        if path.next_seq > path.una_seq:
            path.una_seq = path.next_seq
            self._draw(pair, path)
        seq: i64 = path.carries(NO_PATH, now)
        probe = pair.frame(PATH_PROBE, pair.una_psn, 0)
        probe.wire_bytes = i16(pathed_size(PATH_PROBE, 0))
        probe.opcode = u8(PATHED | PATH_PROBE)
        probe.ecn = ECN_NOT_CAPABLE
        probe.udp_source = i32(path.udp_source)
        probe.message_bytes = (path.number << 24) | (seq & PSN_MASK)
        self.probes += 1
        assert isinstance(nic, LaneNic), nic.number
        nic.lane_port(path.port).send_frame(probe, now)

    # ---- receiver

    def arrived(self, nic: Endpoint, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        opcode: int = frame.opcode
        if opcode == ACKNOWLEDGE:
            self._answered(nic, pair, frame, now)
            pair.spares.keep(frame)
            return
        of = self._sets[pair.index]
        word: i64 = frame.message_bytes
        number: i64 = word >> 24
        while len(of.inflows) <= number:
            of.inflows.append(Inflow())
        inflow = of.inflows[number]
        seq: i64 = word & PSN_MASK
        if inflow.highest >= 0:
            seq = unwrap(seq, inflow.highest)
        urgent: bool = inflow.came(seq) or frame.ecn == ECN_CONGESTED or opcode > WRITE_ONLY_IMM
        inflow.unanswered += 1
        if frame.ack_request != 0 or inflow.unanswered >= pair.ack_every:
            urgent = True
        share: i64 = self._share(of, now)
        marked: bool = frame.ecn == ECN_CONGESTED
        if marked:
            assert isinstance(nic, LaneNic), nic.number
            nic.np_ecn_marked_roce_packets += 1
        udp_source: i32 = (
            frame.udp_source
        )  # read now: `_place` may pass the frame on, which is then another's
        if opcode <= WRITE_ONLY_IMM:
            frame.message_bytes = (
                0  # it had path and sequence, which nothing from here on may take for a length
            )
            self._place(nic, pair, frame, port, now)
        if not urgent:
            return
        inflow.unanswered = 0
        answer = pair.acknowledgement(pair.expected_psn - 1, SYNDROME_ACK, pair.spares.take())
        answer.opcode = u8(PATHED | ACKNOWLEDGE)
        answer.wire_bytes = i16(pathed_size(ACKNOWLEDGE, 0))
        answer.udp_source = udp_source
        answer.ecn = ECN_CONGESTED if marked else ECN_NOT_CAPABLE
        answer.message_bytes = (number << 24) | (inflow.highest & PSN_MASK)
        answer.immediate = share
        answer.tail = inflow.vector()
        nic.transmit_acks += 1
        assert isinstance(nic, LaneNic), nic.number
        nic.lane_port(port).send_frame(answer, now)

    def _place(self, nic: Endpoint, pair: QueuePair, frame: Frame, port: i64, now: i64) -> None:
        """Data is here: it is in memory, and what is complete in order is reported."""
        psn: i64 = unwrap(i64(frame.psn), pair.expected_psn)
        if psn == pair.expected_psn:
            frame.ack_request = 0
            nic.respond(pair, frame, port, now)
            pair.spares.keep(frame)
            return
        held = pair.held
        assert held is not None, pair.qpn
        if psn < pair.expected_psn or psn - pair.expected_psn >= held.window or not held.put(psn, frame):
            nic.duplicate_request += 1

    def _share(self, of: PathSet, now: i64) -> i64:
        """The share of this NIC's inbound rate that is one sender's, of those heard of lately; Mb/s."""
        epoch: i64 = now // self.interval_ps
        if epoch != self._epoch:
            self._heard_before = self._heard if epoch == self._epoch + 1 else 0
            self._heard = 0
            self._epoch = epoch
        if of.epoch != epoch:
            of.epoch = epoch
            self._heard += 1
        return self.line_mbps // max(self._heard, self._heard_before)

    def acknowledgement(
        self, nic: Endpoint, pair: QueuePair, psn: i64, syndrome: i64, port: i64, now: i64
    ) -> Frame | None:
        return None  # each answer is about a path, and leaves when the packet is dealt with

    def on_mark(self, pair: QueuePair) -> None:
        """Marks are told by path."""

    def save(self) -> list[Plain]:
        sets: list[Plain] = [one.save() for one in self._sets]
        return [save_fields(self, _FIELDS), sets]

    def load(self, state: list[Plain]) -> None:
        fields, sets = state
        load_fields(self, _FIELDS, fields)
        self._sets = [load_set(one) for one in as_list(sets)]
