"""Several partitions in one process, which exchange messages as workers on sockets do.

Each is built on its own, and they exchange the same encoded bodies as workers on sockets do. What a socket
would leave open is drawn from a seed: which of the bodies under way arrives next, and which partition runs
next. Between two partitions order is kept, as in a stream. Whatever the seed, the answer is the same; that
is where the promise is tested. With one partition there is nothing to exchange and nothing to draw.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from actors.kernel.event import NEVER_PS
from actors.kernel.mixing import Stream
from emu.engine.outcome import Ending
from emu.engine.recovery.saving import SnapshotRequests
from emu.engine.sync.logical_process import LogicalProcess, Sends
from emu.engine.sync.pacing import Pace

DELAYS_PURPOSE: Final = 1
"""Names the stream of delays between partitions, on which no answer depends."""
Between = Callable[[], bool]
"""Called between slices; returns whether to go on."""


class InProcess:
    """Runs logical processes in this thread until the run ends."""

    def __init__(
        self,
        logical_processes: Sequence[LogicalProcess],
        seed: int,
        between: Between,
        snapshot_requests: SnapshotRequests | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._pace = pace
        self._logical_processes = logical_processes
        self._snapshot_requests = snapshot_requests
        self._delays = Stream(seed, 0, DELAYS_PURPOSE)
        self._between = between
        count = len(logical_processes)
        self._channels: list[deque[bytes]] = [deque() for _ in range(count * count)]
        self._busy: list[int] = []
        """The channels that hold something, and `-1 - i` for each logical process i with a window to run."""
        self._stand: list[int] = []
        """Who stands still, until the run goes on."""

    def run(self) -> Ending | None:
        """How the run ended; None if `between` asked to stop."""
        return self.advance(NEVER_PS)

    def advance(self, until_ps: int) -> Ending | None:
        """Execute everything before `until_ps`, which is after the last call's, and nothing at or after it;
        where somebody listens to watched devices, less, up to when one of them said something.

        Returns how the run ended, or None if it has not: then every part stands still at one sync point, and
        whoever steps the run may make events. None also if `between` asked to stop, after which the run is
        over.
        """
        for logical_process in self._logical_processes:
            logical_process.pause_ps = until_ps
        self._stand = []
        for at in range(len(self._logical_processes)):
            self._open(at)
        while self._busy:
            choice = self._delays.below(len(self._busy)) if len(self._busy) > 1 else 0
            self._busy[choice], self._busy[-1] = self._busy[-1], self._busy[choice]
            chosen = self._busy.pop()
            if chosen >= 0:
                self._arrive(chosen)
            elif self._logical_processes[-1 - chosen].stands:
                self._stand.append(-1 - chosen)
            elif not self._run_window(-1 - chosen):
                return None
        if self._stand:
            return None
        endings = {logical_process.ending for logical_process in self._logical_processes}
        assert len(endings) == 1, [
            logical_process.machine.missing() for logical_process in self._logical_processes
        ]
        return endings.pop()

    def _open(self, at: int) -> None:
        if at == 0 and self._snapshot_requests is not None:
            self._snapshot_requests.put()
        self._send(at, self._logical_processes[at].open())
        self._close_if_complete(at)

    def _arrive(self, channel: int) -> None:
        sender, receiver = divmod(channel, len(self._logical_processes))
        waiting = self._channels[channel]
        body = waiting.popleft()
        if waiting:
            self._busy.append(channel)
        self._send(receiver, self._logical_processes[receiver].take(sender, body))
        self._close_if_complete(receiver)

    def _close_if_complete(self, at: int) -> None:
        logical_process = self._logical_processes[at]
        if logical_process.complete and logical_process.close() is None:
            self._busy.append(-1 - at)

    def _run_window(self, at: int) -> bool:
        logical_process = self._logical_processes[at]
        while not logical_process.run_slice():
            if not self._between():
                return False
            soon = self._snapshot_requests is not None and self._snapshot_requests.soon
            if (soon or logical_process.machine.asked) and len(self._logical_processes) == 1:
                logical_process.cut_window()
        if not self._between():
            return False
        pace = self._pace
        while at == 0 and pace is not None and (nap_s := pace.hold_s()) > 0:
            time.sleep(nap_s)
            if not self._between():
                return False
        self._open(at)
        return True

    def _send(self, sender: int, sends: Sends) -> None:
        for receiver, body in sends:
            channel = sender * len(self._logical_processes) + receiver
            if not self._channels[channel]:
                self._busy.append(channel)
            self._channels[channel].append(body)
