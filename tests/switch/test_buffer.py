"""Does the shared buffer keep its books, and stop and resume senders exactly when it should?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.kernel.device import Device
from actors.kernel.queue import EventQueue
from actors.port.link import Wire
from actors.port.pfc import Pfc
from actors.port.port import Port
from actors.switch.buffer import (
    ADMITTED,
    HEADROOM_OVERRUN,
    NO_SHARED_ROOM,
    Buffer,
    PriorityGroup,
)

ONE = 1 << 16
"""Alpha 1 as a fixed-point number."""
Own = tuple[int, int, int, int] | None
"""A group's own alpha, static XOFF (0: none), static XON and distance from XOFF to XON, or the buffer's."""


def lone_port(queue: EventQueue) -> Port:
    """A port with flow control and nothing to send."""
    port = Port(Device(0, queue), 0, Wire(400 * 10**9, 500_000, 1, 0, 0, 0, None), 0)
    port.pfc = Pfc(port, 65535)
    return port


def buffer_of(pool_bytes: int, alpha: Fraction, xon_offset_bytes: int, *groups: dict[str, Any]) -> Buffer:
    """A buffer with these groups: `reserve`, `headroom` (None for a lossy group)."""
    buffer = Buffer(pool_bytes, int(alpha * ONE), xon_offset_bytes)
    queue = EventQueue()
    for number, group in enumerate(groups):
        headroom = group.get("headroom")
        made = PriorityGroup(number % 8, headroom is not None, group.get("reserve", 0), headroom or 0)
        made.pfc = lone_port(queue).pfc
        buffer.add(made)
    return buffer


def is_stopped(group: PriorityGroup) -> bool:
    """Whether the group's sender is to be stopped (a type checker takes an attribute for constant)."""
    return bool(group.stopped)


def test_the_reserve_comes_first_then_the_pool_then_headroom() -> None:
    buffer = buffer_of(10_000, Fraction(1), 0, {"reserve": 1000, "headroom": 2000})
    group = buffer.groups[0]
    assert buffer.admit(0, 900, 0) == ADMITTED
    assert (group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes) == (900, 0, 0)
    assert buffer.admit(0, 4000, 0) == ADMITTED  # does not fit the 100 B left of the reserve
    assert buffer.admit(0, 100, 0) == ADMITTED  # does
    assert (group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes) == (1000, 4000, 0)
    assert not is_stopped(group)
    assert buffer.admit(0, 1001, 0) == ADMITTED  # 5,001 > 10,000 - 5,001
    assert is_stopped(group)
    assert buffer.admit(0, 2000, 0) == ADMITTED
    assert (group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes) == (1000, 5001, 2000)
    assert buffer.admit(0, 1, 0) == HEADROOM_OVERRUN


def test_a_group_at_its_threshold_is_not_stopped_and_one_byte_more_is() -> None:
    # alpha 1/2: 1/2 x (9,000 - 3,000) = 3,000; 1/2 x (9,000 - 3,001) = 2,999.
    for size, stopped in ((3000, False), (3001, True)):
        buffer = buffer_of(9_000, Fraction(1, 2), 0, {"headroom": 1000})
        assert buffer.admit(0, size, 0) == ADMITTED
        assert buffer.groups[0].stopped == stopped


def test_what_others_hold_lowers_the_threshold() -> None:
    buffer = buffer_of(9_000, Fraction(1), 0, {"headroom": 1000}, {"headroom": 1000})
    assert buffer.admit(0, 4_000, 0) == ADMITTED
    assert buffer.admit(1, 2_500, 0) == ADMITTED  # 9,000 - 6,500
    assert not is_stopped(buffer.groups[1])
    assert buffer.admit(1, 1, 0) == ADMITTED  # 2,501 > 9,000 - 6,501
    assert is_stopped(buffer.groups[1])


def test_a_lossy_group_drops_what_would_pass_its_threshold_and_nobody_is_reported() -> None:
    buffer = buffer_of(9_000, Fraction(1, 2), 0, {"reserve": 500})
    assert buffer.admit(0, 4_500, 0) == ADMITTED  # 1/2 x 9,000, as it was when the frame arrived
    assert buffer.admit(0, 501, 0) == NO_SHARED_ROOM
    assert buffer.admit(0, 500, 0) == ADMITTED  # the reserve
    assert not buffer.groups[0].stopped
    assert buffer.held_bytes == 5_000


def test_an_alpha_above_one_lends_out_no_more_than_there_is() -> None:
    buffer = buffer_of(5_000, Fraction(8), 0, {})
    assert buffer.admit(0, 4_178, 0) == ADMITTED
    assert buffer.admit(0, 823, 0) == NO_SHARED_ROOM
    assert buffer.admit(0, 822, 0) == ADMITTED


def test_the_sender_may_resume_only_below_xoff_by_the_offset_and_with_headroom_empty() -> None:
    # Threshold 1/2 x (12,000 - shared): XON at shared <= 1/2 x (12,000 - shared) - 1,000, so at 3,333.
    buffer = buffer_of(12_000, Fraction(1, 2), 1_000, {"headroom": 4000})
    group = buffer.groups[0]
    for size in (3000, 1001, 500):
        assert buffer.admit(0, size, 0) == ADMITTED
    assert (group.stopped, group.shared_bytes, group.headroom_used_bytes) == (True, 4001, 500)
    buffer.release(0, 500, 0)  # headroom empties first
    assert (group.stopped, group.shared_bytes, group.headroom_used_bytes) == (True, 4001, 0)
    buffer.release(0, 667, 0)
    assert (group.stopped, group.shared_bytes) == (True, 3334)
    buffer.release(0, 1, 0)
    assert (group.stopped, group.shared_bytes) == (False, 3333)


def test_a_stopped_group_is_looked_at_when_a_frame_of_its_own_leaves_and_not_when_others_make_room() -> None:
    """So does the switch of HPCC's ns-3 (switch-node.cc): it compares with XON the group of the packet that
    left, and no other."""
    buffer = buffer_of(10_000, Fraction(1), 0, {"headroom": 4000}, {"headroom": 4000})
    first, second = buffer.groups
    assert buffer.admit(0, 4_000, 0) == buffer.admit(1, 3_500, 0) == ADMITTED  # 3,500 > 10,000 - 7,500
    assert (first.stopped, second.stopped) == (False, True)
    buffer.release(0, 4_000, 0)  # 3,500 <= 10,000 - 3,500, which XON would allow
    assert is_stopped(second)
    buffer.release(1, 1, 0)
    assert not is_stopped(second)


def test_a_threshold_of_nothing_stops_no_class_for_ever() -> None:
    buffer = buffer_of(10_000, Fraction(1, ONE), 5_000, {"reserve": 1000, "headroom": 4000})
    group = buffer.groups[0]
    for size in (1000, 500, 700):
        assert buffer.admit(0, size, 0) == ADMITTED
    assert group.stopped
    buffer.release(0, 700, 0)
    assert group.stopped
    buffer.release(0, 500, 0)
    assert (group.stopped, group.held_bytes) == (False, 1000)


def test_who_holds_nothing_is_not_stopped_because_nothing_would_resume_it() -> None:
    buffer = buffer_of(5_000, Fraction(8), 0, {"headroom": 4000}, {"headroom": 1000})
    assert buffer.admit(0, 4_000, 0) == ADMITTED
    assert buffer.admit(1, 2_000, 0) == HEADROOM_OVERRUN
    assert not buffer.groups[1].stopped
    pfc = buffer.groups[1].pfc
    assert pfc is not None
    assert pfc.stopping == 0


def test_a_threshold_that_would_not_fit_native_integers_is_refused() -> None:
    with pytest.raises(AssertionError, match="4398046511104"):
        Buffer(1 << 42, 1 << 20, 0)


def own(buffer: Buffer, number: int, alpha: Fraction, xoff: int, xon: int, offset: int) -> PriorityGroup:
    """Give a group thresholds of its own."""
    group = buffer.groups[number]
    group.set_thresholds(int(alpha * ONE), xoff, xon, offset)
    buffer.set_alpha(-1)  # the least of all thresholds is another one
    return group


def test_a_static_threshold_is_the_same_whatever_others_hold() -> None:
    for others in (0, 6_000):
        buffer = buffer_of(9_000, Fraction(1, 2), 0, {"headroom": 1000}, {"headroom": 1000})
        group = own(buffer, 0, Fraction(0), 2_000, 0, 0)
        if others:
            assert buffer.admit(1, others, 0) == ADMITTED
        assert buffer.admit(0, 2_000, 0) == ADMITTED
        assert not is_stopped(group)
        assert buffer.admit(0, 1, 0) == ADMITTED
        assert is_stopped(group)


def test_a_static_threshold_larger_than_what_is_left_goes_to_headroom_and_stops_at_the_end_of_the_pool() -> (
    None
):
    buffer = buffer_of(5_000, Fraction(1, 2), 0, {"headroom": 1000}, {"headroom": 4000})
    group = own(buffer, 0, Fraction(0), 4_000, 0, 0)
    assert buffer.admit(1, 3_000, 0) == ADMITTED
    assert buffer.admit(0, 2_000, 0) == ADMITTED
    assert not is_stopped(group)
    assert buffer.admit(0, 600, 0) == ADMITTED  # not in the pool, which is full
    assert (group.shared_bytes, group.headroom_used_bytes, group.stopped) == (2_000, 600, True)
    assert buffer.admit(0, 401, 0) == HEADROOM_OVERRUN


def test_a_lossy_group_drops_beyond_its_static_threshold() -> None:
    buffer = buffer_of(9_000, Fraction(1, 2), 0, {"reserve": 100})
    own(buffer, 0, Fraction(0), 2_000, 0, 0)
    assert buffer.admit(0, 2_000, 0) == ADMITTED
    assert buffer.admit(0, 101, 0) == NO_SHARED_ROOM
    assert buffer.admit(0, 100, 0) == ADMITTED


@pytest.mark.parametrize(
    ("xon", "offset", "resumed_at"),
    # Static XON alone; offset alone, 1,000 below XOFF at 4,000; with both, the higher counts.
    [(500, 1 << 40, 500), (0, 1_000, 3_000), (500, 1_000, 3_000), (3_500, 1_000, 3_500)],
)
def test_a_sender_resumes_at_the_higher_of_static_xon_and_the_offset(
    xon: int, offset: int, resumed_at: int
) -> None:
    buffer = buffer_of(9_000, Fraction(1, 2), 0, {"headroom": 1000})
    group = own(buffer, 0, Fraction(0), 4_000, xon, offset)
    assert buffer.admit(0, 4_001, 0) == ADMITTED
    assert buffer.admit(0, 500, 0) == ADMITTED
    buffer.release(0, 500, 0)  # headroom
    buffer.release(0, 4_001 - resumed_at - 1, 0)
    assert (group.stopped, group.shared_bytes) == (True, resumed_at + 1)
    buffer.release(0, 1, 0)
    assert (group.stopped, group.shared_bytes) == (False, resumed_at)


def test_groups_share_a_pool_of_headroom_each_up_to_its_own() -> None:
    buffer = buffer_of(2_000, Fraction(1, ONE), 0, {"headroom": 900}, {"headroom": 900}, {"headroom": 900})
    buffer.headroom_pool_bytes = 1_500
    for number in range(3):
        assert buffer.admit(number, 600, 0) == ADMITTED
        assert is_stopped(buffer.groups[number])
    assert buffer.admit(0, 900, 0) == ADMITTED
    assert buffer.admit(0, 1, 0) == HEADROOM_OVERRUN  # its own is full
    assert buffer.admit(1, 600, 0) == ADMITTED
    assert buffer.admit(2, 1, 0) == HEADROOM_OVERRUN  # everybody's is
    buffer.release(0, 500, 0)
    assert buffer.admit(2, 500, 0) == ADMITTED
    assert (buffer.headroom_used_bytes, buffer.headroom_pool_peak_bytes) == (1_500, 1_500)
    other = buffer_of(2_000, Fraction(1, ONE), 0, {"headroom": 900}, {"headroom": 900}, {"headroom": 900})
    other.headroom_pool_bytes = 1_500
    other.load(buffer.save())
    assert other.admit(1, 1, 0) == HEADROOM_OVERRUN
    assert other.save() == buffer.save()


def test_another_alpha_is_that_of_dynamic_thresholds_and_ends() -> None:
    buffer = buffer_of(8_000, Fraction(1, 2), 0, {}, {}, {})
    own(buffer, 1, Fraction(1, 4), 0, 0, 0)
    own(buffer, 2, Fraction(0), 3_000, 0, 0)
    thresholds = [4_000, 2_000, 3_000]
    assert [buffer.threshold_bytes(group) for group in buffer.groups] == thresholds
    buffer.set_alpha(ONE // 8)
    assert [buffer.threshold_bytes(group) for group in buffer.groups] == [1_000, 1_000, 3_000]
    buffer.set_alpha(-1)
    assert [buffer.threshold_bytes(group) for group in buffer.groups] == thresholds


class Books(RuleBasedStateMachine):
    """Frames of any size come and go; a second set of books is kept by the rules of the module."""

    @initialize(
        pool=st.integers(1, 40_000),
        alpha=st.sampled_from([1, 1024, ONE // 8, ONE // 2, ONE, 8 * ONE]),
        offset=st.sampled_from([0, 500, 8_000]),
        groups=st.lists(
            st.tuples(
                st.booleans(),
                st.sampled_from([0, 100, 4096]),
                st.sampled_from([0, 3000, 12_000]),
                st.sampled_from(
                    [None, (ONE // 4, 0, 0, 500), (0, 5_000, 1_000, 1 << 40), (0, 9_000, 0, 400)]
                ),
            ),
            min_size=1,
            max_size=6,
        ),
        together=st.sampled_from([0, 0, 4_000, 13_000]),
    )
    def build(
        self, pool: int, alpha: int, offset: int, groups: list[tuple[bool, int, int, Own]], together: int
    ) -> None:
        self.buffer = Buffer(pool, alpha, offset)
        self.buffer.headroom_pool_bytes = together
        self.together = together or 10**9
        self.pool = pool
        queue = EventQueue()
        self.thresholds: list[tuple[int, int, int, int]] = []
        for number, (lossless, reserve, headroom, thresholds) in enumerate(groups):
            group = PriorityGroup(number, lossless, reserve, headroom)
            group.pfc = lone_port(queue).pfc
            if thresholds is not None:
                group.set_thresholds(*thresholds)
            self.thresholds.append(thresholds or (alpha, 0, 0, offset))
            self.buffer.add(group)
        self.frames: list[tuple[int, int]] = []
        self.now_ps = 0

    def threshold(self, number: int) -> int:
        used = sum(group.shared_bytes for group in self.buffer.groups)
        alpha, static, _, _ = self.thresholds[number]
        return static or (self.pool - used) * alpha // ONE

    def xon(self, number: int) -> int:
        _, _, static, offset = self.thresholds[number]
        return max(static, self.threshold(number) - offset)

    @rule(pick=st.integers(0, 5), size=st.integers(44, 4178))
    def arrive(self, pick: int, size: int) -> None:
        self.now_ps += 1000
        number = pick % len(self.buffer.groups)
        group = self.buffer.groups[number]
        before = self.threshold(number)
        fits_reserve = group.reserve_used_bytes + size <= group.reserve_bytes
        fits_threshold = group.shared_bytes + size <= before
        # An alpha above 1 must not lend out what is not there.
        fits_pool = sum(g.shared_bytes for g in self.buffer.groups) + size <= self.pool
        fits_headroom = group.headroom_used_bytes + size <= group.headroom_bytes
        fits_headroom &= sum(g.headroom_used_bytes for g in self.buffer.groups) + size <= self.together
        parts = [group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes]
        stopped = bool(group.stopped)
        verdict = self.buffer.admit(number, size, self.now_ps)
        expected, place = ADMITTED, 0
        if fits_reserve:
            pass
        elif not group.lossless:
            expected, place = (ADMITTED if fits_threshold and fits_pool else NO_SHARED_ROOM), 1
        elif not stopped and fits_pool:
            place = 1
        else:
            expected, place = (ADMITTED if fits_headroom else HEADROOM_OVERRUN), 2
        assert verdict == expected
        if expected == ADMITTED:
            parts[place] += size
            self.frames.append((number, size))
        assert parts == [group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes]
        crossed = place == 2 or (
            place == 1 and group.lossless and group.shared_bytes > self.threshold(number)
        )
        assert group.stopped == (stopped or (crossed and group.held_bytes > 0))

    @rule(pick=st.integers(0, 1000))
    def leave(self, pick: int) -> None:
        if not self.frames:
            return
        self.now_ps += 1000
        number, size = self.frames.pop(pick % len(self.frames))
        group = self.buffer.groups[number]
        headroom = max(0, group.headroom_used_bytes - size)
        left = size - (group.headroom_used_bytes - headroom)
        shared = max(0, group.shared_bytes - left)
        reserve = group.reserve_used_bytes - (left - (group.shared_bytes - shared))
        stopped = bool(group.stopped)
        self.buffer.release(number, size, self.now_ps)
        assert [reserve, shared, headroom] == [
            group.reserve_used_bytes,
            group.shared_bytes,
            group.headroom_used_bytes,
        ]
        may_resume = headroom == 0 and shared <= self.xon(number)
        assert group.stopped == (stopped and not may_resume)

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "buffer"):
            return
        buffer = self.buffer
        for number, group in enumerate(buffer.groups):
            held = sum(size for owner, size in self.frames if owner == number)
            parts = (group.reserve_used_bytes, group.shared_bytes, group.headroom_used_bytes)
            assert min(parts) >= 0
            assert sum(parts) == group.held_bytes == held
            assert group.reserve_used_bytes <= group.reserve_bytes
            assert group.headroom_used_bytes <= group.headroom_bytes
            assert group.peak_bytes >= held
            assert not group.stopped or (group.lossless and held > 0)
            assert group.pfc is not None
            assert group.pfc.stopping == (1 << group.priority if group.stopped else 0)
        assert buffer.shared_used_bytes == sum(group.shared_bytes for group in buffer.groups)
        assert 0 <= buffer.shared_used_bytes <= self.pool
        headroom = sum(group.headroom_used_bytes for group in buffer.groups)
        assert buffer.headroom_used_bytes == headroom <= min(buffer.headroom_pool_peak_bytes, self.together)
        assert buffer.held_bytes == sum(size for _, size in self.frames)

    def teardown(self) -> None:
        while getattr(self, "frames", []):
            self.leave(0)
            self.books_agree()


TestBooks = Books.TestCase
TestBooks.settings = settings(stateful_step_count=40)
