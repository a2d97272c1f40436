"""The memory of a rank of an open job: operations come with their bytes, and what they leave is fetched.

An operation's input is given when it is posted, which may be long before it begins; its result stays until it
is taken, also where the next operation has begun meanwhile. A bit that turns over while no operation has its
bytes here (`bit_flip`) is one of the next operation's input: between two calls of a program the bytes lie in
the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.gpu.memory import Contents, Filled, GpuMemory, RankMemory, Stretch
from actors.kernel.device import Plain
from actors.kernel.state import as_bytes, as_int, as_list


class PostedContents(Contents):
    """The operations of one rank of a communicator, as they are posted; a turn is the number of one."""

    def __init__(self, job: int, rank: int) -> None:
        super().__init__(job, rank, [])
        self._kinds: list[tuple[str, str]] = []
        self._stretches: list[tuple[Sequence[Stretch], Sequence[Stretch]]] = []
        self.given: dict[int, bytes] = {}
        """Inputs of operations that have not begun."""

    def grow(self, kind: tuple[str, str], begins: Sequence[Stretch], ends: Sequence[Stretch]) -> None:
        """One more operation: its type and reduction, where its input lies, and where its result."""
        self._kinds.append(kind)
        self._stretches.append((begins, ends))

    def operation(self, turn: int) -> int:
        return turn

    def kind(self, turn: int) -> tuple[str, str]:
        return self._kinds[turn]

    def beginning(self, operation: int) -> list[Filled]:
        """The input; zeros where none was given."""
        data = self.given.pop(operation, None)
        found: list[Filled] = []
        at = 0
        for buffer, offset, size in self._stretches[operation][0]:
            found.append((buffer, offset, bytes(size) if data is None else data[at : at + size]))
            at += size
        return found

    def result(self, operation: int) -> Sequence[Stretch]:
        """Where the result is."""
        return self._stretches[operation][1]


class PostedMemory(RankMemory):
    """The buffers of one rank; `gpu` is the memory of its GPU, None where the host keeps the buffers."""

    posted = True

    def __init__(self, contents: PostedContents, gpu: GpuMemory | None = None) -> None:
        super().__init__(contents)
        self._own = contents
        self._gpu = gpu
        self._taken = -1
        """The operation in memory, if its result was taken."""
        self._left: dict[int, bytes] = {}
        """Results that were not taken before the next operation began."""

    def grow(self, kind: tuple[str, str], begins: Sequence[Stretch], ends: Sequence[Stretch]) -> None:
        """See `PostedContents.grow`."""
        self._own.grow(kind, begins, ends)

    def give(self, turn: int, data: bytes) -> None:
        """The input of an operation that has not begun."""
        self._own.given[turn] = data

    def take(self, turn: int) -> bytes:
        """The result of an operation that is over."""
        if turn in self._left:
            return self._left.pop(turn)
        if turn != self.turn:  # nothing was ever done here
            self._begin(turn)
        self._taken = turn
        return self._read(self._own.result(turn))

    def flip(self, bit: int) -> bool:
        return self.turn != self._taken and super().flip(bit)

    def compared(self) -> list[list[int]]:
        """Nothing: nobody here knows what must come out."""
        return []

    def _begin(self, turn: int) -> None:
        for before in range(max(self.turn, 0), turn):
            if before != self.turn:
                self.turn = before
                self._fill(before)
            if before != self._taken:
                self._left[before] = self._read(self._own.result(before))
        self.turn = turn
        self._fill(turn)
        gpu = self._gpu
        if gpu is not None and gpu.flips and self.buffers[0]:
            for bit in gpu.flips:
                super().flip(bit)
            gpu.flips.clear()

    def save(self) -> list[Plain]:
        buffers: list[Plain] = [bytes(buffer) for buffer in self.buffers]
        given: list[Plain] = [[turn, data] for turn, data in self._own.given.items()]
        left: list[Plain] = [[turn, data] for turn, data in self._left.items()]
        return [self.turn, buffers, given, left, self._taken]

    def load(self, state: Plain) -> None:
        turn, buffers, given, left, taken = as_list(state)
        self.turn, self._taken = as_int(turn), as_int(taken)
        self.buffers = [bytearray(as_bytes(buffer)) for buffer in as_list(buffers)]
        self._own.given = _by_turn(given)
        self._left = _by_turn(left)


def _by_turn(state: Plain) -> dict[int, bytes]:
    pairs = [as_list(pair) for pair in as_list(state)]
    return {as_int(turn): as_bytes(data) for turn, data in pairs}
