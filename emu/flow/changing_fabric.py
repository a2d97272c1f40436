"""Transfers on a fabric that changes and loses nothing: slower links, drained switches, slow GPUs.

Whenever a link gets another rate, all rates are worked out anew. Whenever a switch forwards otherwise,
transfers go on by the paths that the hashes of their queue pairs give then; what is left of them counts on
these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.flow.filling import LIGHT, PAUSING, UNIT
from actors.flow.progress import NANOS, Progress, Shape, Strand, Work
from actors.flow.switch_queues import Buffers
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.wire.frame import WRITE_MIDDLE, wire_size
from emu.flow.fault_line import FaultLine
from emu.flow.isolated import IsolatedRuns
from emu.flow.messages import message_load
from emu.flow.queue_pair_paths import CONTROL, FlowFabric, strands_of


class ChangingProgress(Progress):
    """Transfers on links of these capacities, some of which change; isolated runs hear of it."""

    def __init__(
        self,
        capacities_kbps: list[int],
        buffers: Buffers | None,
        fabric: FlowFabric,
        line: FaultLine,
        runs: IsolatedRuns,
        mtu_bytes: int,
    ) -> None:
        super().__init__(capacities_kbps, buffers)
        self._fabric = fabric
        self._line = line
        self._runs = runs
        self._moving: dict[Work, None] = {}
        """Transfers whose path may change."""
        self._next = 0
        clear = message_load(int(CTS_BYTES), mtu_bytes, 1, immediate=True, send=False)
        self._cleared = clear.payload_bytes * UNIT // clear.wire_bytes
        """Payload by bytes on the wire: of clear-to-sends, and of data."""
        self._paid = mtu_bytes * UNIT // int(wire_size(int(WRITE_MIDDLE), mtu_bytes))
        self._sleep()

    def computing_ps(self, gpu: int, duration_ps: int) -> int:
        """How long a GPU takes from now on for what usually takes so long."""
        return self._line.computed_ps(gpu, self.now_ps, duration_ps)

    def begin(self, shape: Shape, size_bits: int, done: Callable[[], None]) -> None:
        """Begin a transfer now, and call `done` when its last bit has left."""
        if all(strand.pair < 0 for strand in shape.strands):
            super().begin(shape, size_bits, done)
            return
        found: list[Work] = []
        work = self.put(shape, size_bits, partial(self._done, found, done))
        found.append(work)
        self._moving[work] = None

    def _done(self, found: list[Work], done: Callable[[], None]) -> None:
        del self._moving[found[0]]
        done()

    def _sleep(self) -> None:
        if self._next < len(self._line.events):
            self.at(self._line.events[self._next].at_ps, self._wake)

    def _wake(self) -> None:
        events, first = self._line.events, self._next
        while self._next < len(events) and events[self._next].at_ps <= self.now_ps:
            self._next += 1
        for link in self._line.apply(events[first : self._next]):
            self.set_capacity(link, self._fabric.rates_bps[link] // 1000)
        self._runs.faults = self._line.present(self.now_ps)
        for work in list(self._moving):
            old = self._shapes[work.shape]
            new = self._rewired(old)
            if new != old:
                left = max(work.left // NANOS, 0)
                self._count(old, -left)
                self._count(new, left)
                self.reshape(work, new)
        self._sleep()

    def _rewired(self, shape: Shape) -> Shape:
        """By the paths that hashes give now."""
        shares: dict[tuple[int, int], int] = {}
        for one in shape.strands:
            if one.pair >= 0:
                shares[one.pair, one.kind] = shares.get((one.pair, one.kind), 0) + one.share
        found: list[Strand] = []
        for one in shape.strands:
            share = shares.pop((one.pair, one.kind), 0)
            if one.pair < 0:
                found.append(one)
            elif share:
                way = self._fabric.way_of(one.pair)
                back = one.kind == LIGHT and not one.pair & CONTROL
                found += strands_of(way.back if back else way.there, share, one.kind, one.pair)
        return shape._replace(strands=tuple(found))

    def _count(self, shape: Shape, bits: int) -> None:
        """Count bits of a transfer on its links."""
        fabric = self._fabric
        for one in shape.strands:
            sent = bits * one.share // UNIT // 8
            for link in one.links if one.kind in (PAUSING, LIGHT) else ():
                fabric.wire_bytes[link] += sent
                if one.kind == PAUSING:
                    fabric.payload_bytes[link] += sent * self._paid // UNIT
                elif one.pair >= 0 and one.pair & CONTROL:
                    fabric.payload_bytes[link] += sent * self._cleared // UNIT
