"""Instructions of a rank to its GPU for each slice, where payload is real.

The walkers of rings and graphs know what a slice is of; here it becomes an order (`actors.gpu.memory`).
Rings name a place in the rank's buffer, graphs a step, whose stretches are worked out when the operation
begins, as its tasks are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.gpu.memory import RankMemory, write_order
from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list
from actors.ncclx.graph import DATA, Step, within

StepsOf = Callable[[int, int], Sequence[Step]]
"""Steps of an operation of the job on a channel, by the numbers of both."""


class Orders:
    """Writes the orders of one rank. `turn` is how many operations it began before this one."""

    def __init__(self, job: int, rank: int, steps_of: StepsOf) -> None:
        self.job = job
        self.rank = rank
        self.turn = -1
        self.memory: RankMemory | None = None
        """The rank's memory, where it is kept here and not by the GPU: with zero-copy."""
        self._steps_of = steps_of
        self._steps: dict[tuple[int, int], Sequence[Step]] = {}

    def rows(self) -> list[list[int]]:
        """Rows for the table `payload`, of a rank whose memory is kept here."""
        if self.memory is None:
            return []
        return [[self.job, row[0], self.rank, *row[1:]] for row in self.memory.compared()]

    def save(self) -> list[Plain]:
        """The turn, and the memory that is kept here."""
        return [self.turn, None if self.memory is None else self.memory.save()]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        turn, memory = as_list(state)
        self.turn = as_int(turn)
        if self.memory is not None:
            self.memory.load(memory)

    def begin(self, group: int = 0) -> None:
        """The rank begins its next operation."""
        self.turn += 1
        self._steps = {}

    def piece(
        self, place: int, size: int, reads: bool, writes: bool, sends: bool, data: bytes | None
    ) -> bytes:
        """A slice of a ring: what is at a place of the buffer, and what was received, if anything was."""
        here = [(DATA, place, size)]
        data = fitted(data, size)
        return write_order(
            self.job,
            self.rank,
            self.turn,
            here if reads else [],
            here if writes else [],
            data,
            sends=sends,
        )

    def step(
        self, channel: int, operation: int, number: int, start: int, size: int, data: bytes | None
    ) -> bytes:
        """A slice of a step of a graph: `size` of its bytes from `start` on."""
        steps = self._steps.get((channel, operation))
        if steps is None:
            steps = self._steps[channel, operation] = self._steps_of(operation, channel)
        one = steps[number]
        data = fitted(data, size)
        return write_order(
            self.job,
            self.rank,
            self.turn,
            within(one.source, start, size),
            within(one.destination, start, size),
            data,
            sends=bool(one.sends),
        )


def fitted(data: bytes | None, size: int) -> bytes | None:
    """What a rank takes out of a slot: as much as its own call says, whatever its peer put in.

    A peer whose call has another size sends slices of another size. What it did not write is zero here; in
    NCCL it is what was in the slot before.
    """
    if data is None or len(data) == size:
        return data
    return data[:size].ljust(size, b"\0")


class GroupOrders(Orders):
    """The orders of all groups of one rank; None for those that carry sizes only."""

    def __init__(self, job: int, rank: int, groups: Sequence[Orders | None]) -> None:
        super().__init__(job, rank, _nothing)
        self.groups = list(groups)

    def begin(self, group: int = 0) -> None:
        """The rank begins the next call of a group."""
        orders = self.groups[group]
        if orders is not None:
            orders.begin()

    def rows(self) -> list[list[int]]:
        return [row for one in self.groups if one is not None for row in one.rows()]

    def save(self) -> list[Plain]:
        return [None if one is None else one.save() for one in self.groups]

    def load(self, state: Plain) -> None:
        for one, saved in zip(self.groups, as_list(state), strict=True):
            if one is not None:
                one.load(saved)


def _nothing(operation: int, channel: int) -> Sequence[Step]:
    raise AssertionError((operation, channel))
