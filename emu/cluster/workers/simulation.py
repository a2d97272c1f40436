"""The simulation thread of a worker, from the first window to the last.

It runs rounds: sends what its logical process has to send, waits for the others, runs its window slice by
slice. Between slices, and whenever it has waited a moment, it looks whether somebody asked it to stop or
scrapes it. How it ended comes back as a report, never as an exception: a worker that fails tells its peers
why before it goes, so that they do not guess.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Final

from actors.kernel.event import NEVER_PS
from emu.base.errors import EmuError
from emu.cluster.workers.exchange import Exchange, PeerGone
from emu.devices.checks import blaming
from emu.engine.outcome import Blame, Ending, Report
from emu.engine.recovery.saving import SnapshotRequests
from emu.engine.sync.garbage import quiet_collector
from emu.engine.sync.logical_process import LogicalProcess, Sends
from emu.engine.sync.pacing import Pace
from emu.engine.sync.rounds import PeerLeft, encode_leave
from emu.scenario.schema import Scenario

WAIT_S: Final = 0.05
FLUSH_S: Final = 5.0


class Simulation:
    """Runs one logical process over an exchange until the run ends. `between` is called between slices."""

    def __init__(
        self,
        logical_process: LogicalProcess,
        exchange: Exchange | None,
        between: Callable[[], None],
        snapshot_requests: SnapshotRequests | None = None,
        pace: Pace | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        self.logical_process = logical_process
        self.stop_asked = False
        self.snapshot_requests = snapshot_requests
        """The sync points to request; on worker 0 only."""
        self.waited_ps = 0
        """Wall time for which others were waited for."""
        self._exchange = exchange
        self._between = between
        self._pace = pace
        self._blaming = nullcontext if scenario is None else partial(blaming, scenario)
        """Names the class of the user's own that fails."""

    def run(self) -> Report:
        """Run to the end. Devices are started by the caller."""
        return self.advance(NEVER_PS)

    def advance(self, until_ps: int) -> Report:
        """Go on to a time, as `emu.engine.in_process.InProcess.advance` does, or to the end."""
        self.logical_process.pause_ps = until_ps
        ending: Ending | None = None
        fault, message, details = Blame.NONE, "", ""
        with quiet_collector():
            begin_wall_s, begin_cpu_s = time.perf_counter(), time.process_time()
            try:
                with self._blaming():
                    ending = self._rounds()
            except (PeerGone, PeerLeft) as error:
                fault, message = Blame.PEER, str(error)
            except EmuError as error:
                fault, message = Blame.OWN, str(error)
            except Exception as error:  # noqa: BLE001  reported with its traceback, by the coordinator
                fault, message = Blame.OWN, f"{type(error).__name__}: {error}"
                details = traceback.format_exc()
            wall_s, cpu_s = time.perf_counter() - begin_wall_s, time.process_time() - begin_cpu_s
        if fault is not Blame.NONE:
            self._say_goodbye(message)
        return Report(
            ending,
            fault,
            message,
            details,
            self.logical_process.virtual_ps
            if ending is not None
            else self.logical_process.partition.now_ps(),
            self.logical_process.machine.round,
            wall_s,
            cpu_s,
        )

    def _rounds(self) -> Ending | None:
        logical_process, snapshot_requests, pace = self.logical_process, self.snapshot_requests, self._pace
        while True:
            while pace is not None and (nap_s := pace.hold_s()) > 0:
                time.sleep(nap_s)
                self._between()
                if self.stop_asked:
                    return None
            if snapshot_requests is not None:
                snapshot_requests.put()
            self._send(logical_process.open())
            while not logical_process.complete:
                assert self._exchange is not None, logical_process.machine.missing()
                begin_ns = time.perf_counter_ns()
                received = self._exchange.receive(WAIT_S)
                self.waited_ps += (time.perf_counter_ns() - begin_ns) * 1000
                for peer, body in received:
                    self._send(logical_process.take(peer, body))
                if self.stop_asked:
                    return None
                if not received:
                    self._between()
            if self._exchange is not None:
                self._exchange.flush(FLUSH_S)
            ending = logical_process.close()
            if ending is not None or logical_process.stands:
                return ending
            # A window is run in slices, so that scrapes, orders and a stop need not wait for its end.
            done = False
            while not done:
                done = logical_process.run_slice()
                if self.stop_asked:
                    return None
                self._between()
                if (
                    snapshot_requests is not None
                    and (snapshot_requests.soon or logical_process.machine.asked)
                    and not done
                ):
                    logical_process.cut_window()

    def _send(self, sends: Sends) -> None:
        for peer, body in sends:
            assert self._exchange is not None, peer
            self._exchange.send(peer, body)

    def _say_goodbye(self, reason: str) -> None:
        if self._exchange is None:
            return
        for peer in self.logical_process.machine.peers:
            try:
                self._exchange.send(peer, encode_leave(reason))
            except EmuError:
                continue
        try:
            self._exchange.flush(FLUSH_S)
        except EmuError:
            return
