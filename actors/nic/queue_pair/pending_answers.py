"""Answers that a responder has pending, in the order of PSNs.

These are responses of READs, and acknowledgements of what came after them. They leave in the order of their
PSNs, since whoever hears of a PSN may take everything before it for answered. A request that is repeated is
answered anew; where that covers what is pending already, nothing is sent twice.

Source: InfiniBand Architecture Specification volume 1, sections 9.4.4 and 9.7.5.1.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_list, load_fields, save_fields
from actors.wire.frame import (
    READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST,
    READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
    SYNDROME_ACK,
)

NO_SYNDROME: Final[i64] = -1
_FIELDS: Final = ("psn", "end_psn", "size_bytes", "begun", "syndrome")


class PendingAnswer:
    """Responses with PSNs from `psn` to before `end_psn`, of `size_bytes` together; or, with a `syndrome`,
    an acknowledgement for `psn`.
    """

    __slots__ = ("begun", "end_psn", "following", "psn", "size_bytes", "syndrome")

    def __init__(self, psn: i64, end_psn: i64, size_bytes: i64, syndrome: i64) -> None:
        self.psn: i64 = psn
        self.end_psn: i64 = end_psn
        self.size_bytes: i64 = size_bytes
        self.begun: bool = False
        self.syndrome: i64 = syndrome
        self.following: PendingAnswer | None = None

    def step_opcode(self) -> i64:
        """The opcode of the next response."""
        if self.psn + 1 == self.end_psn:
            return READ_RESPONSE_LAST if self.begun else READ_RESPONSE_ONLY
        return READ_RESPONSE_MIDDLE if self.begun else READ_RESPONSE_FIRST

    def step_bytes(self, mtu_bytes: i64) -> i64:
        """The payload of the next response."""
        return self.size_bytes if self.psn + 1 == self.end_psn else mtu_bytes

    def step(self, mtu_bytes: i64) -> bool:
        """The next response was sent; whether it was the last."""
        self.size_bytes -= self.step_bytes(mtu_bytes)
        self.psn += 1
        self.begun = True
        return self.psn == self.end_psn


def add_response(
    first: PendingAnswer | None, psn: i64, end: i64, size_bytes: i64, mtu_bytes: i64
) -> PendingAnswer:
    """The list with responses for [psn, end) in their place."""
    before: PendingAnswer | None = None
    at = first
    while at is not None:
        if at.syndrome >= 0:
            if at.psn >= psn:
                break
        elif at.psn < psn:
            if at.end_psn > psn:  # what is pending already comes soon enough
                assert first is not None
                if at.end_psn >= end:
                    return first
                size_bytes -= (at.end_psn - psn) * mtu_bytes
                psn = at.end_psn
        elif at.psn < end:  # replaced, as far as it is asked for again
            if at.end_psn > end:
                at.size_bytes -= (end - at.psn) * mtu_bytes
                at.psn = end
                at.begun = False
                break
            at = at.following
            if before is None:
                first = at
            else:
                before.following = at
            continue
        else:
            break
        before = at
        at = at.following
    made = PendingAnswer(psn, end, size_bytes, NO_SYNDROME)
    made.following = at
    if before is None or first is None:
        return made
    before.following = made
    return first


def add_acknowledgement(first: PendingAnswer, psn: i64, syndrome: i64) -> bool:
    """Add an acknowledgement for a PSN behind responses; False if it takes the place of an earlier one."""
    at = first
    while at.following is not None:
        at = at.following
    if at.syndrome == SYNDROME_ACK:
        at.psn = max(at.psn, psn)
        at.syndrome = syndrome
        return False
    if at.syndrome >= 0:
        return False
    at.following = PendingAnswer(psn, psn, 0, syndrome)
    return True


def save_pending(first: PendingAnswer | None) -> list[Plain]:
    """The list as plain lists."""
    rows: list[Plain] = []
    while first is not None:
        rows.append(save_fields(first, _FIELDS))
        first = first.following
    return rows


def load_pending(state: Plain) -> PendingAnswer | None:
    """The list that `save_pending` returned."""
    first: PendingAnswer | None = None
    for row in reversed(as_list(state)):
        one = PendingAnswer(0, 0, 0, NO_SYNDROME)
        load_fields(one, _FIELDS, row)
        one.following = first
        first = one
    return first
