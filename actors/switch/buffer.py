"""The shared buffer of a switch: admission, XOFF and XON, headroom.

One shared pool per switch, accounted at ingress per port and priority group, in bytes of frames without
preamble and gap:

* a *reserve* per group comes first and is never lent out;
* then the *shared* pool. A group may hold up to its threshold, XOFF: dynamic, alpha x (pool - used by all),
  or static, so many bytes. A lossy group's frame that would pass it, or the pool's end, is dropped. A
  lossless group's frame after which the group holds more than that is still charged to the pool, and the
  group's sender is told to stop;
* then, for a lossless group that has stopped its sender, *headroom*: what may still arrive before the sender
  obeys, of the group's own or up to so much of a pool of headroom that all groups share. A frame beyond it is
  dropped and counted as headroom overrun: the one congestion loss of a lossless
  class, and a sign of misconfiguration.

A frame is released when its transmission begins; headroom empties first, then the shared part, then the
reserve. The sender may resume once headroom is empty and the shared part is at XON or below: the larger of a
static XON (0 if there is none, so that a threshold of nothing cannot stop a class for ever) and what lies
`xon_offset` below the threshold of that moment. A frame that leaves at the instant it arrived never occupies
the buffer.

How much a group may hold is the seam (`Admission`): a policy gives the threshold of a group, and reserve,
headroom, XON and the pool's end stay as above. Each pool has a policy of its own: that of a switch, or in a
modular switch that of a port. A pool without one pays a branch for it. To write one: derive from `Admission`,
list its knobs in `knobs`, override `threshold_bytes`, and `save` and `load` if it keeps state. An interpreted
subclass works in a compiled install.

What waits is accounted at egress too, per port and queue (`actors.switch.egress`), where lossy queues can
have limits.

Sources: IEEE 802.1Qbb; dynamic thresholds after Choudhury and Hahne (1998), as shared-buffer switches do; XON
as the larger of two after SAI's buffer profiles.

Not modelled: cells, pools per service class.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.counters import HEADROOM_PEAK_BYTES, HEADROOM_POOL_PEAK_BYTES
from actors.kernel.device import Plain, Tally
from actors.kernel.knobs import Knob
from actors.kernel.state import as_list, load_fields, save_fields
from actors.kernel.vectors import append, vec
from actors.port.pfc import Pfc
from actors.wire.frame import PAUSE_WIRE_BYTES

ALPHA_BITS: Final = 16
"""Alpha is a fixed-point number with this many fractional bits."""

PRIORITY_BITS: Final[i64] = 3
NO_ALPHA: Final[i64] = 1 << 20
"""Larger than any."""
ADMITTED: Final[i64] = 0
NO_SHARED_ROOM: Final[i64] = 1
HEADROOM_OVERRUN: Final[i64] = 2

_FIELDS: Final = (
    "shared_used_bytes",
    "held_bytes",
    "peak_bytes",
    "headroom_used_bytes",
    HEADROOM_POOL_PEAK_BYTES,
)
_GROUP_FIELDS: Final = (
    "held_bytes",
    "reserve_used_bytes",
    "shared_bytes",
    "headroom_used_bytes",
    "stopped",
    "peak_bytes",
    HEADROOM_PEAK_BYTES,
)


def ordered(place: i64, bits: i64) -> i64:
    """A place (port << 3 | priority) in a table by priority and port, the latter of so many bits."""
    return ((place & 7) << bits) | (place >> PRIORITY_BITS)


class PriorityGroup:
    """What one priority of one ingress port may hold, and holds."""

    def __init__(self, priority: int, lossless: bool, reserve_bytes: int, headroom_bytes: int) -> None:
        # What every frame that is held reads and writes comes first, in one cache line; then the thresholds.
        self.lossless: bool = lossless
        self.stopped: bool = False
        self.reserve_left_bytes: i64 = reserve_bytes
        self.shared_bytes: i64 = 0
        self.held_bytes: i64 = 0
        self.peak_bytes: i64 = 0
        self.headroom_used_bytes: i64 = 0
        """Where this is above 0, the sender is stopped."""
        self.reserve_bytes: i64 = reserve_bytes
        self.xoff_bytes: i64 = 0
        """The static threshold; 0 for a dynamic one."""
        self.alpha_fixed: i64 = -1
        """Alpha of a dynamic threshold; 0 for a static one, and -1 for the buffer's, until it is added there.
        """
        self.xon_bytes: i64 = 0
        """Static XON; 0 for none."""
        self.xon_offset_bytes: i64 = 0
        """How far below XOFF the other XON lies."""
        self.pfc: Pfc | None = None
        self.priority: i64 = priority
        self.headroom_bytes: i64 = headroom_bytes
        self.headroom_peak_bytes: i64 = 0
        self.port: i64 = 0
        """By which port its frames come in, once it is added to a buffer."""
        self.built_lossless: bool = lossless
        self.built_headroom_bytes: i64 = headroom_bytes
        self.built_alpha_fixed: i64 = -1

    def set_thresholds(
        self, alpha_fixed: int, xoff_bytes: int, xon_bytes: int, xon_offset_bytes: int
    ) -> None:
        """Thresholds of its own: alpha of a dynamic one, or 0 and the bytes of a static one."""
        assert alpha_fixed >= 0 and xoff_bytes >= 0 and xon_bytes >= 0, (alpha_fixed, xoff_bytes, xon_bytes)
        self.alpha_fixed = self.built_alpha_fixed = alpha_fixed
        self.xoff_bytes = xoff_bytes
        self.xon_bytes = xon_bytes
        self.xon_offset_bytes = xon_offset_bytes

    @property
    def reserve_used_bytes(self) -> i64:
        """What of its reserve is taken."""
        return self.reserve_bytes - self.reserve_left_bytes

    @reserve_used_bytes.setter
    def reserve_used_bytes(self, value: i64) -> None:
        self.reserve_left_bytes = self.reserve_bytes - value


class Buffer:
    """The shared memory of one switch. Group number = port x 8 + priority."""

    def __init__(self, pool_bytes: int, alpha_fixed: int, xon_offset_bytes: int) -> None:
        assert pool_bytes * alpha_fixed < 1 << 62, (pool_bytes, alpha_fixed)  # the threshold's native product
        # What frames that are held read and write comes first, in two cache lines.
        self.shared_used_bytes: i64 = 0
        self.held_bytes: i64 = 0
        self.peak_bytes: i64 = 0
        self.pool_bytes: i64 = pool_bytes
        self.policed: bool = False
        """Whether an admission policy gives the thresholds."""
        self._bits: i64 = 0
        """Of a port's number in `_ordered`."""
        self._ordered: vec[PriorityGroup] = vec[PriorityGroup]()
        """Groups by priority and port: few priorities are in use, and their groups stand close here."""
        self._least_xoff_bytes: i64 = pool_bytes
        self._least_alpha: i64 = NO_ALPHA
        """Least alpha of all groups with a static or a dynamic threshold."""
        self.alpha_fixed: i64 = alpha_fixed
        self.built_alpha_fixed: i64 = alpha_fixed
        self.xon_offset_bytes: i64 = xon_offset_bytes
        self.headroom_pool_bytes: i64 = 0
        """Headroom that all groups share; 0 where each has its own."""
        self.headroom_used_bytes: i64 = 0
        self.headroom_pool_peak_bytes: i64 = 0
        self.groups: vec[PriorityGroup] = vec[PriorityGroup]()
        self.filling: i64 = 0
        """Nothing, as in `actors.switch.egress.EgressQueue`."""

    def add(self, group: PriorityGroup) -> None:
        """The next group in the order of their numbers. One without thresholds of its own has the
        buffer's."""
        if group.alpha_fixed < 0:
            group.set_thresholds(self.alpha_fixed, 0, 0, self.xon_offset_bytes)
        alpha = int(group.alpha_fixed)
        assert int(self.pool_bytes) * alpha < 1 << 62, (self.pool_bytes, alpha)  # as above
        self._compare(group)
        group.port = len(self.groups) >> 3
        self.groups = append(self.groups, group)
        place: i64 = len(self.groups) - 1
        if len(self._ordered) == 0 or place >> (self._bits + PRIORITY_BITS) > 0:
            self._order(group)
        self._ordered[ordered(place, self._bits)] = group

    def _order(self, group: PriorityGroup) -> None:
        """Make `_ordered` anew, with room for more ports; the group is in place of those to come."""
        if len(self._ordered) > 0:
            self._bits += 1
        everywhere: list[PriorityGroup] = [group] * (1 << (self._bits + PRIORITY_BITS))
        self._ordered = vec[PriorityGroup](everywhere)
        for place, known in enumerate(self.groups):
            self._ordered[ordered(place, self._bits)] = known

    def group_at(self, number: int) -> PriorityGroup:
        """A group by its number."""
        return self.groups[number]

    def all_parts(self) -> list[Buffer]:
        """The pools that it consists of, each with a threshold of its own: itself."""
        return [self]

    def set_alpha(self, alpha_fixed: int) -> None:
        """Another alpha for every dynamic threshold from now on; -1 for what each was built with."""
        self.alpha_fixed = self.built_alpha_fixed
        if alpha_fixed >= 0:
            self.alpha_fixed = alpha_fixed
        for group in self.groups:
            group.alpha_fixed = group.built_alpha_fixed
            if alpha_fixed >= 0 and group.xoff_bytes == 0:
                group.alpha_fixed = alpha_fixed
        self._least_alpha = NO_ALPHA
        for group in self.groups:
            self._compare(group)

    def _compare(self, group: PriorityGroup) -> None:
        """Take a group's threshold into the least of all."""
        if group.xoff_bytes > 0:
            self._least_xoff_bytes = min(self._least_xoff_bytes, group.xoff_bytes)
        else:
            self._least_alpha = min(self._least_alpha, group.alpha_fixed)

    def threshold_bytes(self, group: PriorityGroup) -> i64:
        """XOFF of a group now: alpha times what is left of the pool, its static threshold, or what the
        admission policy says."""
        if self.policed:
            return self.policy_bytes(group)
        return group.xoff_bytes + self.share_bytes(group.alpha_fixed)

    def policy_bytes(self, group: PriorityGroup) -> i64:
        """XOFF of a group as the admission policy has it."""
        raise NotImplementedError

    def share_bytes(self, alpha_fixed: i64) -> i64:
        """Alpha times what is left of the pool, now."""
        return ((self.pool_bytes - self.shared_used_bytes) * alpha_fixed) >> ALPHA_BITS

    def _nears(self, shared_bytes: i64) -> bool:
        """Whether a group that holds so much could be beyond its threshold: it has the least of all or more,
        which stands here and not in the group's second cache line."""
        return (
            self.policed
            or shared_bytes >= self._least_xoff_bytes
            or shared_bytes >= self.share_bytes(self._least_alpha)
        )

    def admit(self, number: i64, size_bytes: i64, now: i64) -> i64:
        """Take a frame in: ADMITTED, or the reason why it is dropped."""
        at: i64 = ordered(number, self._bits)
        group = self._ordered[at]
        if size_bytes <= group.reserve_left_bytes:
            group.reserve_left_bytes -= size_bytes
        elif not group.lossless:
            if (
                group.shared_bytes + size_bytes > self.threshold_bytes(group)
                or self.shared_used_bytes + size_bytes > self.pool_bytes  # alpha may be above 1
            ):
                return NO_SHARED_ROOM
            group.shared_bytes += size_bytes
            self.shared_used_bytes += size_bytes
        elif not group.stopped and self.shared_used_bytes + size_bytes <= self.pool_bytes:
            group.shared_bytes += size_bytes
            self.shared_used_bytes += size_bytes
            if self._nears(group.shared_bytes) and group.shared_bytes > self.threshold_bytes(group):
                self._stop(group, now)
        elif group.headroom_used_bytes + size_bytes <= group.headroom_bytes and (
            self.headroom_pool_bytes == 0 or self.headroom_used_bytes + size_bytes <= self.headroom_pool_bytes
        ):
            group.headroom_used_bytes += size_bytes
            self.headroom_used_bytes += size_bytes
            if self.headroom_used_bytes > self.headroom_pool_peak_bytes:
                self.headroom_pool_peak_bytes = self.headroom_used_bytes
            if group.headroom_used_bytes > group.headroom_peak_bytes:
                group.headroom_peak_bytes = group.headroom_used_bytes
            if not group.stopped:
                self._stop(group, now)
        else:
            if not group.stopped and group.held_bytes > 0:  # what holds nothing would never be resumed
                self._stop(group, now)
            return HEADROOM_OVERRUN
        group.held_bytes += size_bytes
        if group.held_bytes > group.peak_bytes:
            group.peak_bytes = group.held_bytes
        self.held_bytes += size_bytes
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes
        return ADMITTED

    def holds_briefly(self, number: i64, size_bytes: i64) -> bool:
        """Whether a group may hold frames one after the other, each for a moment, and that changes only the
        most that was ever held; then it does."""
        group = self.groups[number]
        if group.held_bytes != 0 or group.stopped or not self._fits(group, size_bytes, size_bytes):
            return False
        if size_bytes > group.peak_bytes:
            group.peak_bytes = size_bytes
        if self.held_bytes + size_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes + size_bytes
        return True

    def endures(self, number: i64, size_bytes: i64, other_bytes: i64, more_bytes: i64) -> bool:
        """Whether a group could hold a frame more, and other groups that hold nothing one of at most
        `other_bytes`, though so much more than now were held in all; and that would not be the most ever."""
        group = self.groups[number]
        if self.held_bytes + more_bytes > self.peak_bytes or group.stopped:
            return False
        if not self._fits(group, size_bytes, more_bytes):
            return False
        left: i64 = self.pool_bytes - self.shared_used_bytes - more_bytes
        return (
            other_bytes <= self._least_xoff_bytes and other_bytes <= (left * self._least_alpha) >> ALPHA_BITS
        )

    def _fits(self, group: PriorityGroup, size_bytes: i64, more_bytes: i64) -> bool:
        """Whether a group may hold one frame more, the last of so many bytes more in the pool."""
        if size_bytes <= group.reserve_left_bytes:
            return True
        self.shared_used_bytes += more_bytes
        fits: bool = (
            group.shared_bytes + size_bytes <= self.threshold_bytes(group)
            and self.shared_used_bytes <= self.pool_bytes
        )
        self.shared_used_bytes -= more_bytes
        return fits

    def release(self, number: i64, size_bytes: i64, now: i64) -> None:
        """A frame that was admitted under this group leaves."""
        at: i64 = ordered(number, self._bits)
        group = self._ordered[at]
        group.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        left: i64 = size_bytes
        if group.stopped and group.headroom_used_bytes > 0:
            part: i64 = group.headroom_used_bytes
            if part > left:
                part = left
            group.headroom_used_bytes -= part
            self.headroom_used_bytes -= part
            left -= part
        if left > 0 and group.shared_bytes > 0:
            shared: i64 = group.shared_bytes
            if shared > left:
                shared = left
            group.shared_bytes -= shared
            self.shared_used_bytes -= shared
            left -= shared
        group.reserve_left_bytes += left
        assert group.held_bytes >= 0, (number, group.held_bytes, size_bytes)
        if group.stopped and group.headroom_used_bytes == 0:
            limit: i64 = self.threshold_bytes(group) - group.xon_offset_bytes
            if limit < group.xon_bytes:
                limit = group.xon_bytes
            if group.shared_bytes <= limit:
                group.stopped = False
                pfc = group.pfc
                if pfc is not None:
                    pfc.resume(group.priority, now)

    def _stop(self, group: PriorityGroup, now: i64) -> None:
        group.stopped = True
        pfc = group.pfc
        if pfc is not None:
            pfc.stop(group.priority, now)

    def count(self, into: Tally) -> None:
        """Write what the pool holds and the most that it held; of shared headroom the most too."""
        into.add(self.held_bytes)
        into.add(self.peak_bytes)
        if self.headroom_pool_bytes > 0:
            into.add(self.headroom_pool_peak_bytes)

    def count_groups(self, into: Tally, first: i64, end: i64, part: i64) -> i64:
        """Write what these groups hold, the most that they held, and the most of their headroom, a part of
        the numbers of its own. Returns what they hold in all."""
        held: i64 = 0
        mark: i64 = 1
        at: i64 = first
        while at < end:
            group = self.groups[at]
            held += group.held_bytes
            mark += group.peak_bytes + group.headroom_peak_bytes
            at += 1
        if held != 0:
            mark = 0  # what is held may move from one to another; each peak only grows
        if into.stands(part, mark):
            return held
        at = first
        while at < end:
            into.add(self.groups[at].held_bytes)
            at += 1
        at = first
        while at < end:
            into.add(self.groups[at].peak_bytes)
            at += 1
        at = first
        while at < end:
            into.add(self.groups[at].headroom_peak_bytes)
            at += 1
        into.keep(part, mark)
        return held

    def save(self) -> list[Plain]:
        """What is held, and where."""
        groups: list[Plain] = [save_fields(group, _GROUP_FIELDS) for group in self.groups]
        return [save_fields(self, _FIELDS), groups]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        own, groups = as_list(state)
        load_fields(self, _FIELDS, own)
        for group, fields in zip(self.groups, as_list(groups), strict=True):
            load_fields(group, _GROUP_FIELDS, fields)


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission:
    """Base of admission policies, built from a pool and the values of the policy's knobs: the thresholds of
    the groups."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

    def __init__(self, pool: Buffer, knobs: object = None) -> None:
        self.pool: Buffer = pool

    def threshold_bytes(self, group: PriorityGroup, now: i64) -> i64:
        """What a group may hold of the shared pool now, without preamble and gap. A frame that would take a
        lossy group beyond it is dropped; a lossless group that is beyond it stops its sender."""
        return group.xoff_bytes + self.pool.share_bytes(group.alpha_fixed)

    def on_admit(self, group: PriorityGroup, size_bytes: i64, now: i64) -> None:
        """A frame of a group was admitted; all that the group and the pool hold includes it."""

    def on_release(self, group: PriorityGroup, size_bytes: i64, now: i64) -> None:
        """A frame of a group leaves; what the group and the pool hold still includes it."""

    def save(self) -> list[Plain]:
        """The policy's own state."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built policy returned."""


class PolicedBuffer(Buffer):
    """A pool whose thresholds an admission policy gives."""

    def __init__(self, pool_bytes: int, alpha_fixed: int, xon_offset_bytes: int) -> None:
        super().__init__(pool_bytes, alpha_fixed, xon_offset_bytes)
        self.policed = True
        self.admission: Admission | None = None
        self.now_ps: i64 = 0

    def policy_bytes(self, group: PriorityGroup) -> i64:
        admission = self.admission
        assert admission is not None, self.pool_bytes
        return admission.threshold_bytes(group, self.now_ps)

    def admit(self, number: i64, size_bytes: i64, now: i64) -> i64:
        self.now_ps = now
        verdict: i64 = super().admit(number, size_bytes, now)
        admission = self.admission
        if verdict == ADMITTED and admission is not None:
            admission.on_admit(self.groups[number], size_bytes, now)
        return verdict

    def release(self, number: i64, size_bytes: i64, now: i64) -> None:
        self.now_ps = now
        admission = self.admission
        if admission is not None:
            admission.on_release(self.groups[number], size_bytes, now)
        super().release(number, size_bytes, now)

    def save(self) -> list[Plain]:
        admission = self.admission
        return [super().save(), None if admission is None else admission.save()]

    def load(self, state: Plain) -> None:
        pool, kept = as_list(state)
        super().load(pool)
        if self.admission is not None:
            self.admission.load(as_list(kept))


def headroom_bytes(
    rate_bps: int, delay_ps: int, largest_frame_bytes: int, response_ps: int, ingress_latency_ps: int
) -> int:
    """What may still arrive after XOFF, for one port and class: the least headroom that loses nothing.

    2 x propagation x rate, two largest frames (one already started at each end), the pause frame itself,
    what arrives during the peer's response time and is still in our own ingress pipeline, and one more
    largest frame: where the pool is full, the frame that crosses XOFF itself goes whole into headroom.
    `largest_frame_bytes` is over all classes of the port, with headers and FCS. Source: IEEE 802.1Qbb
    annex N.
    """
    blind_ps = 2 * delay_ps + response_ps + ingress_latency_ps
    return -(-blind_ps * rate_bps // (8 * 10**12)) + 3 * largest_frame_bytes + PAUSE_WIRE_BYTES
