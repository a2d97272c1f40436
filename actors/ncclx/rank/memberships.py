"""Memberships of a rank: the communicators that its job has, one after the other, as it loses ranks.

Where a job may go on without a rank, the ranks of another membership begin the operation again on a
communicator of their own, which has groups and connections of its own. The one before is aborted: its queue
pairs are reset, and what is still reported of it means nothing. A rank that was left out, or whose host came
back, begins anew in a membership that has it.

Not modelled: cost of an abort.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.wire.message import MEMBERSHIP_BITS

PAIR_RESET: Final = 0
PAIR_INIT: Final = 1
PAIR_READY_TO_RECEIVE: Final = 2
PAIR_READY_TO_SEND: Final = 3
"""States of `actors.nic.queue_pair.queue_pair`. In RESET nothing is sent, and what comes is dropped."""

_FIELDS: Final = ("present", "first", "last", "again", "broken")


class Memberships:
    """The memberships of one rank, and the queue pairs that it resets between them."""

    def __init__(self, groups: int) -> None:
        self.pairs: dict[int, Sequence[QpPlan]] = {}
        """By the host's port, the queue pairs of the NIC behind it that have numbers: those of a plan, from
        which a number is read when it is told, and not kept for each rank again."""
        self.psns: dict[int, tuple[int, int]] = {}
        """By (host's port << 20) | index, of a rank whose job has several memberships: the PSN with which it
        begins, and the one that it expects first."""
        self.spare: list[list[tuple[int, int]]] = []
        """Spare queue pairs of a rank whose job has several memberships: by group, port and index of each. A
        rank whose process may be ended has all of its queue pairs here."""
        self.spans: list[tuple[int, int]] = []
        """By membership the rank's groups, first and behind the last; both -1 where it takes no part."""
        self.scripts: list[list[list[tuple[int, int, int]]]] = []
        """By membership its streams."""
        self.present: i64 = 0
        """The present one."""
        self.first: i64 = 0
        """Its first group, from which calls count."""
        self.last: i64 = groups
        """Behind its last group."""
        self.again: bool = False
        """Whether the operation that begins next may be one that the rank has begun before, with others."""
        self.broken: bool = False
        """Whether its host was lost, and its queue pairs with it, since it last took part."""
        self.blames: bool = False
        """Whether it reports with whom it failed, and in which membership."""

    def qpn(self, port: i64, pair: i64) -> i64:
        """The number of a queue pair of its; -1 if it has none, as a pair of a GPU."""
        pairs = self.pairs.get(port)
        if pairs is None or pair >= len(pairs):
            return -1
        return pairs[pair].qpn

    def become(self, membership: i64) -> bool:
        """Another membership is the present one; whether the rank takes part in it."""
        self.present = membership
        first, last = self.spans[membership]
        self.first = first
        self.last = last
        if self.first < 0:
            return False  # the others go on without it
        self.again = True
        return True

    def reset(self, host: Host, first: i64, last: i64) -> None:
        """Reset the queue pairs of the groups from `first` to before `last`."""
        while 0 <= first < last:
            for port, pair in self.spare[first]:
                host.modify(port, pair, PAIR_RESET, 0)
            first += 1

    def connect_again(self, host: Host) -> None:
        """Take the queue pairs of the present membership into use again, if the host lost them."""
        if not self.broken:
            return
        self.broken = False
        group: i64 = self.first
        while group < self.last:
            for port, pair in self.spare[group]:
                own, expected = self.psns[(port << 20) | pair]
                host.modify(port, pair, PAIR_RESET, 0)
                host.modify(port, pair, PAIR_INIT, 0)
                host.modify(port, pair, PAIR_READY_TO_RECEIVE, expected)
                host.modify(port, pair, PAIR_READY_TO_SEND, own)
            group += 1

    def report(self, status: i64) -> i64:
        """A status as it is reported: with the membership where there are several."""
        if not self.blames:
            return status
        return status + (self.present << MEMBERSHIP_BITS)

    def save(self) -> Plain:
        """State for a snapshot."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        load_fields(self, _FIELDS, state)
