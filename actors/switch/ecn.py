"""Active queue management (AQM): the seam, and ECN marking by random early detection (RED).

Each egress queue that is managed has an AQM of its own. It is asked of every frame that leaves the queue
whether it is marked, and, if it says so (`drops_frames`), of every lossy frame that is to join the queue
whether it is dropped. A frame that finds its port free waits in no queue, and nobody is asked. On a modular
switch the queue is the virtual output queue of the frame's ingress. A switch without AQM pays nothing for the
seam, one that marks or drops nothing of a class a bit test.

To write one: derive from `Aqm`, list its knobs in `knobs`, override `marks` or `drops`, and `save` and `load`
if it keeps state. An interpreted subclass works in a compiled install.

RED is random early detection on the egress queue, at dequeue, so that a mark says what the queue is when the
frame leaves: none up to Kmin, all from Kmax on, and between them with a probability that rises linearly to
Pmax. The queue counts with the frame itself, in bytes on the wire. Only frames that say they are ECN-capable
are marked, and none is ever dropped for it.

RED's probability is a fixed-point number and the dice are the device's own random stream, one draw for each
frame that leaves a queue between the thresholds.

Source: RFC 3168; DCQCN (SIGCOMM 2015), section 3.1, whose RED looks at the instantaneous queue.

Not modelled: of RED, averaging, marking at enqueue, dropping what is not capable.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob
from actors.kernel.mixing import Stream

ONE: Final[i64] = 0x40000000
"""Certainty, as a fixed-point number."""


class EgressQueue:
    """One egress queue, as its AQM knows it: whose it is, how fast it drains, and random numbers."""

    def __init__(self, switch: str, port: int, priority: int, rate_bps: int, stream: Stream) -> None:
        self.switch: str = switch
        """The switch by name."""
        self.port: int = port
        self.priority: int = priority
        self.rate_bps: int = rate_bps
        """Rate of its port's link."""
        self.stream: Stream = stream
        """Depends on the scenario's seed, the switch and the queue alone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Aqm:
    """Base of AQMs, built from its queue and the values of its knobs: marks and drops nothing."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

    def __init__(self, queue: EgressQueue, knobs: object = None) -> None:
        self.queue: EgressQueue = queue
        self.stream: Stream = queue.stream
        self.drops_frames: bool = False
        """Whether `drops` is to be asked."""
        self.marked: i64 = 0
        """Frames that it marked; counted by the port."""

    def marks(self, queued_bytes: i64, waited_ps: i64, now: i64) -> bool:
        """Whether an ECN-capable frame that leaves now is marked: so much waits, itself included, in bytes on
        the wire, and so long it has waited since the end of the switch's ingress pipeline."""
        return False

    def drops(self, queued_bytes: i64, wire_bytes: i64, now: i64) -> bool:
        """Whether a lossy frame of so many bytes on the wire is dropped, which so much waits before."""
        return False

    def save(self) -> list[Plain]:
        """The AQM's own state; marks and random numbers are kept for it."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built AQM returned."""


class Red(Aqm):
    """RED: the thresholds of one queue, and its dice."""

    def __init__(self, queue: EgressQueue, kmin_bytes: int, kmax_bytes: int, pmax_fixed: int) -> None:
        super().__init__(queue)
        assert 0 <= kmin_bytes <= kmax_bytes < 1 << 32, (kmin_bytes, kmax_bytes)
        assert 0 <= pmax_fixed <= ONE, pmax_fixed
        self.built_kmin_bytes: int = kmin_bytes
        self.built_kmax_bytes: int = kmax_bytes
        self.built_pmax_fixed: int = pmax_fixed
        self.kmin_bytes: i64 = kmin_bytes
        self.kmax_bytes: i64 = kmax_bytes
        self.pmax_fixed: i64 = pmax_fixed

    def set_thresholds(self, kmin_bytes: int, kmax_bytes: int, pmax_fixed: int) -> None:
        """Mark by these from now on."""
        self.kmin_bytes, self.kmax_bytes, self.pmax_fixed = kmin_bytes, kmax_bytes, pmax_fixed

    def marks(self, queued_bytes: i64, waited_ps: i64, now: i64) -> bool:
        if queued_bytes <= self.kmin_bytes:
            return False
        if queued_bytes < self.kmax_bytes:
            above: i64 = self.pmax_fixed * (queued_bytes - self.kmin_bytes)
            if self.stream.below(ONE) * (self.kmax_bytes - self.kmin_bytes) >= above:
                return False
        return True
