"""The network of ASTRA-sim on an open run: sends, receives and timers of its `AstraNetworkAPI`.

    network = AstraNetwork(run)
    network.sim_send(0, 1, 4096, tag=7, done=sent)
    network.sim_recv(1, 0, 4096, tag=7, done=received)
    network.sim_schedule(0, 10_000, then)
    network.simulate()

The arguments are those of ASTRA-sim's methods; the rank of the NPU whose object is called comes first. `done`
of a send is called when the sender has the last acknowledgement. `done` of a receive is called when the
message of its source, tag and place in line is there, or at once if it is there already.

Source: astra-sim 2.0, `astra-sim/common/AstraNetworkAPI.hh`.

Not modelled: buffers and types (messages are sizes), receives of another size than the send.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from emu.engine.live.open_run import OpenRun

PS_A_NS: Final = 1000
Done = Callable[[], None]


class AstraNetwork:
    """The network API of all NPUs: NPU i is rank i of the run."""

    def __init__(self, run: OpenRun) -> None:
        self._run = run
        self._timers: list[tuple[int, int, Done]] = []
        self._count = 0
        self._arrived: dict[tuple[int, int, int], int] = {}
        """By source, destination and tag, messages that no receive has taken."""
        self._wanted: dict[tuple[int, int, int], deque[Done]] = {}

    def sim_get_time(self) -> int:
        """The time in ns, rounded down."""
        return self._run.now_ps // PS_A_NS

    def sim_send(self, npu: int, dst: int, count: int, tag: int, done: Done) -> None:
        """Send so many bytes, now."""
        self._run.post(npu, dst, count, tell="both", note=((npu, dst, tag), done))

    def sim_recv(self, npu: int, src: int, count: int, tag: int, done: Done) -> None:
        """Receive so many bytes, from now on."""
        key = src, npu, tag
        if self._arrived.get(key, 0):
            self._arrived[key] -= 1
            self.sim_schedule(npu, 0, done)
        else:
            self._wanted.setdefault(key, deque()).append(done)

    def sim_schedule(self, npu: int, delta_ns: int, done: Done) -> None:
        """Call something after a time."""
        self._count += 1
        heapq.heappush(self._timers, (self._run.now_ps + delta_ns * PS_A_NS, self._count, done))

    def simulate(self) -> int:
        """Go on until nothing is under way or scheduled; the time in ps."""
        run, timers = self._run, self._timers
        while timers or run.outstanding:
            while timers and timers[0][0] <= run.now_ps:
                heapq.heappop(timers)[2]()
            if not timers:
                completion = run.next() if run.outstanding else None
            else:
                completion = run.next_before(timers[0][0])
            if completion is None:
                continue
            key, done = completion.note
            if completion.kind == "completed":
                done()
            elif self._wanted.get(key):
                self._wanted[key].popleft()()
            else:
                self._arrived[key] = self._arrived.get(key, 0) + 1
        return run.now_ps
