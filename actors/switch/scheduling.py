"""Deficit round robin among the classes of a switch port.

Strict classes go first, the highest number before the others. The rest take turns by deficit round robin:
when its turn comes a class gets its quantum (its weight times the largest frame) on top of what it kept, and
sends while the next frame fits. A class with nothing to send, or stopped by its peer, gets no quantum; an
empty one forgets its deficit.

Source: Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round Robin (SIGCOMM 1995).

Not modelled: guaranteed or capped rates per class, hierarchies.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Device, Plain
from actors.kernel.state import as_int, as_list, load_integers, save_integers
from actors.kernel.vectors import vec
from actors.port.link import PRIORITIES, Wire
from actors.switch.buffer import Buffer
from actors.switch.egress import SwitchPort

ALL_STRICT: Final[i64] = 0xFF


class WeightedPort(SwitchPort):
    """A switch port with deficit round robin among the classes that are not strict."""

    def __init__(
        self, owner: Device, number: int, wire: Wire, own_ingress_latency_ps: int, buffer: Buffer
    ) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps, buffer)
        self.strict: i64 = ALL_STRICT
        self.quantum_bytes: vec[i64] = vec[i64]([1] * PRIORITIES)
        self.deficit_bytes: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.turn: i64 = 0
        """The class whose turn it is."""

    def set_weights(self, strict: int, quantum_bytes: list[int]) -> None:
        """Which classes (a mask) are strict, and the quantum of each of the others."""
        assert len(quantum_bytes) == PRIORITIES and min(quantum_bytes) > 0, quantum_bytes
        self.strict = strict
        self.quantum_bytes = vec[i64](quantum_bytes)

    def serve(self, now: i64) -> None:
        """Send the next frame by this discipline; the wire is free."""
        self._serving = True
        if self.control_pending:
            self.send_control(now)
        else:
            ready: i64 = self.waiting & ~self.blocked
            if ready != 0:
                frame = self.take(self._next(ready), now)
                if frame is not None:
                    self.transmit(frame, now)
        self._serving = False
        if (self.waiting & ~self.blocked) != 0 or self.control_pending:
            self.arm()

    def _next(self, ready: i64) -> i64:
        first: i64 = ready & self.strict
        if first != 0:
            priority: i64 = 7
            while (first >> priority) & 1 == 0:
                priority -= 1
            return priority
        turn: i64 = self.turn
        while True:
            if (ready >> turn) & 1:
                size: i64 = self.head_bytes(turn)
                if size <= self.deficit_bytes[turn]:
                    self.deficit_bytes[turn] -= size
                    self.turn = turn
                    return turn
            elif (self.waiting >> turn) & 1 == 0:
                self.deficit_bytes[turn] = 0
            turn = (turn + 1) & 7
            if (ready >> turn) & 1:
                self.deficit_bytes[turn] += self.quantum_bytes[turn]

    def save(self) -> list[Plain]:
        return [super().save(), save_integers(self.deficit_bytes), self.turn]

    def load(self, state: Plain) -> None:
        base, deficits, turn = as_list(state)
        super().load(base)
        self.deficit_bytes = load_integers(deficits)
        self.turn = as_int(turn)
