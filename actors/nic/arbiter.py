"""Arbiters of queue pairs at a NIC's port: the seam, and one that weighs classes.

A port without an arbiter is strict between classes and takes the queue pairs of a class in turn, one packet
each (`actors.nic.egress_port`). An arbiter is a scheduler (`actors.port.scheduling`) that is asked twice for
each packet: which class, then which of its queue pairs.

To write one: derive from `Arbiter`, list its knobs in `knobs`, override `choose_class` or `choose_pair`, and
`save` and `load` if it keeps state. In a scenario it is `nic: {arbiter: {kind: my_module:MyArbiter}}`. An
interpreted subclass works in a compiled install.

`WeightedClasses` shares the port by weight (surplus round robin, since a packet is built when its turn comes
and its size is known only then): when its turn comes a class gets the largest frame times its weight over the
least weight that shares, and sends while what it has is above zero; what it sent too much it waits for the
next time.

Source: IEEE 802.1Qaz, enhanced transmission selection, as NICs have it (`mlnx_qos --tsa ets`); Adiseshu et
al. (SIGCOMM'96) for surplus round robin.

Not modelled: rate limits per class.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Device, Plain
from actors.kernel.errors import RuntimeFailure
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.state import as_int, load_integers, save_integers
from actors.kernel.vectors import vec
from actors.nic.egress_port import NicPort, SendQueue
from actors.nic.loss_recovery import Recovery
from actors.nic.queue_pair.queue_pair import QueuePair
from actors.port.link import PRIORITIES, Wire
from actors.port.scheduling import Scheduler, class_mask, highest, quanta_bytes
from actors.wire.frame import Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Arbiter(Scheduler):
    """Base of arbiters: strict between classes, queue pairs in turn. One for each port."""

    def choose_pair(self, first: QueuePair, now: i64) -> QueuePair:
        """The queue pair of the class that sends next: `first`, or one that follows by `active_next`.

        They stand in the order in which their turn came; who has sent goes to the end.
        """
        return first


class WeightedClasses(Arbiter):
    """Strict classes first, the others by weight; queue pairs in turn."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "strict",
            "priorities",
            (6,),
            doc="Priorities that go before all others, the highest number first.",
        ),
        Knob(
            "weights",
            "weights",
            (1, 1, 1, 1, 1, 1, 1, 1),
            1,
            256,
            "Share of each priority in what the strict ones leave (surplus round robin).",
        ),
    )

    def __init__(self, largest_frame_bytes: int, knobs: Knobs) -> None:
        super().__init__(largest_frame_bytes, knobs)
        strict: int = class_mask(knobs.strict)
        self.strict: i64 = strict
        self.quantum_bytes: vec[i64] = vec[i64](
            quanta_bytes(largest_frame_bytes, strict, list(knobs.weights))
        )
        self.credit_bytes: vec[i64] = vec[i64]([0] * PRIORITIES)
        self.turn: i64 = 0

    def choose_class(self, ready: i64, now: i64) -> i64:
        first: i64 = ready & self.strict
        if first != 0:
            return highest(first)
        while True:
            turn: i64 = self.turn
            if (ready >> turn) & 1:
                if self.credit_bytes[turn] > 0:
                    return turn
            elif self.credit_bytes[turn] > 0:
                self.credit_bytes[turn] = 0
            turn = (turn + 1) & 7
            self.turn = turn
            if (ready >> turn) & 1:
                self.credit_bytes[turn] += self.quantum_bytes[turn]

    def on_sent(self, priority: i64, wire_bytes: i64, now: i64) -> None:
        if (self.strict >> priority) & 1 == 0:
            self.credit_bytes[priority] -= wire_bytes

    def save(self) -> list[Plain]:
        return [save_integers(self.credit_bytes), self.turn]

    def load(self, state: list[Plain]) -> None:
        self.credit_bytes = load_integers(state[0])
        self.turn = as_int(state[1])


class ArbitratedPort(NicPort):
    """A NIC's port that asks an arbiter."""

    def __init__(
        self,
        owner: Device,
        number: int,
        wire: Wire,
        own_ingress_latency_ps: int,
        timeout_ps: int,
        recovery: Recovery,
        arbiter: Arbiter,
    ) -> None:
        super().__init__(owner, number, wire, own_ingress_latency_ps, timeout_ps, recovery)
        self.arbiter: Arbiter = arbiter
        self.set_scheduler(arbiter)

    def take(self, priority: i64, now: i64) -> Frame | None:
        """The next frame of a class; of its queue pairs the arbiter chooses."""
        queue = self.queues[priority]
        if queue.frame is None:
            first = queue.pair
            assert first is not None, (self.number, priority)
            self._bring_forward(queue, self.arbiter.choose_pair(first, now))
        return super().take(priority, now)

    def place(self) -> str:
        return f"NIC {self.owner.number}"

    def _bring_forward(self, queue: SendQueue, chosen: QueuePair) -> None:
        """Make the chosen queue pair the first of its round."""
        before = queue.pair
        if before is chosen:
            return
        assert before is not None, self.number
        following = before.active_next
        while following is not chosen:
            if following is None:
                who = f"{type(self.arbiter).__name__} of {self.place()}"
                raise RuntimeFailure(f"{who} chose queue pair {chosen.index}, which does not wait")
            before = following
            following = before.active_next
        before.active_next = chosen.active_next
        if chosen.active_next is None:
            queue.last_pair = before
        chosen.active_next = queue.pair
        queue.pair = chosen
