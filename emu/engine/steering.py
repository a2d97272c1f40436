"""Steering of a live run: orders from any thread, checked, made one at a time, and reported.

A `Steering` belongs to one run. Anybody, from any thread, orders a change (a fault to inject or to clear) or
the end; the order is checked against the run's scenario at once, and refused with one line. Whoever leads the
run takes the orders one by one: stages each with every worker, has a sync point requested, and says when it
was made. Then it is part of the scenario, its listener writes it down, and whoever waits hears of it. Where
the run goes back to a snapshot, what was made by then stays made, at its time.

One at a time: a change is staged when the one before is made, so that all workers always agree.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from emu.base.errors import ScenarioError, UsageError
from emu.scenario.fault_schedule import scripted
from emu.scenario.faults.events import spans_of
from emu.scenario.live_changes import (
    Change,
    changed,
    check_capture,
    check_clear,
    check_fault,
    end_of,
    one_line,
)
from emu.scenario.resolve import resolve
from emu.scenario.schema import Scenario

MOST_WAITING: Final = 64
GRACE_S: Final = 30.0
"""How long a run that is to end may take to come to a sync point."""
OVER: Final = "the run has ended"

Listener = Callable[[Change, int, int, Scenario], None]
"""Told of each change that was made: the change, the fault's number (-1 of a capture), when, and the scenario
with it."""


class Order:
    """A change that was asked for. `wait` until it is made."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.fault = -1
        """The fault that it injected or cleared, by number."""
        self.capture = -1
        """The capture that it began, by number."""
        self.made_ps = -1
        self._done = threading.Event()
        self._refusal = ""

    def settle(self, refusal: str = "") -> None:
        """It is made, or never will be."""
        self._refusal = refusal
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is made; False after the timeout. Raises UsageError if it will not be."""
        done = self._done.wait(timeout_s)
        if self._refusal:
            raise UsageError(self._refusal)
        return done


class Steering:
    """The orders of one run, from `scenario` on, which is what it began with."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self.scenario = scenario
        """With every change that was made."""
        self.virtual_ps = 0
        """How far the run is, about."""
        self.end_asked = False
        self.measured: Mapping[tuple[int, int], str] = {}
        """What faults that hit the busiest were found to hit, by fault and occurrence, as far as is known."""
        self.listener: Listener | None = None
        self._overdue_s = float("inf")
        self._topology = topology
        self._mended: tuple[Scenario, int, dict[int, int]] | None = None
        """A scenario of which this many targets are known: by fault, when a repair ended all of it."""
        self._lock = threading.Lock()
        self._waiting: deque[Order] = deque()
        self._current: Order | None = None
        self._taken = 0
        self._made: list[tuple[str, int]] = []
        self._reported_ps = 0
        self._heard_ps = -1
        """When the change under way was made, if any worker said so."""
        self._over = False

    def until_ps(self, number: int) -> int | None:
        """When a fault is over for the last time, by itself or since a repair ended it; None if it stands."""
        own_ps = end_of(self.scenario.faults[number])
        ends_ps = [own_ps] if own_ps is not None else []
        if any(fault.kind == "link_up" for fault in self.scenario.faults):
            ends_ps += [end_ps for entry, end_ps in self._mends().items() if entry == number]
        return min(ends_ps, default=None)

    def _mends(self) -> dict[int, int]:
        scenario, measured = self.scenario, self.measured
        known = self._mended
        if known is None or known[0] is not scenario or known[1] != len(measured):
            faults = [
                one for one in scripted(scenario, self._topology, measured) if one.changes or one.repairs
            ]
            begun = [one for one in faults if not one.repairs]
            ends_ps: dict[int, int] = {}
            for fault, (_, end_ps) in zip(begun, spans_of(faults), strict=True):
                ends_ps[fault.entry] = max(end_ps, ends_ps.get(fault.entry, 0))
            over = {entry: end_ps for entry, end_ps in ends_ps.items() if end_ps < NEVER_PS}
            known = self._mended = (scenario, len(measured), over)
        return known[2]

    def inject(self, fault: Mapping[str, object]) -> Order:
        """Order a fault, with the keys that it has in a scenario, `at` left out. Raises UsageError."""
        if "at" in fault:
            raise UsageError("a fault is injected now: `at` is not said")
        check_fault(self.scenario, fault)
        change: Change = {"inject": dict(fault)}
        candidate = changed(self.scenario, change, 0)
        try:
            resolve(candidate, self._topology)
        except ScenarioError as error:
            raise UsageError(one_line(error, f"faults[{len(candidate.faults) - 1}]")) from None
        return self._put(change)

    def capture(self, entry: Mapping[str, object]) -> Order:
        """Order a capture, with the keys of an entry of `run.capture`, `at` left out. Raises UsageError."""
        if "at" in entry:
            raise UsageError("a capture begins now: `at` is not said")
        check_capture(self.scenario, entry)
        change: Change = {"capture": dict(entry)}
        candidate = changed(self.scenario, change, 0)
        try:
            resolve(candidate, self._topology)
        except ScenarioError as error:
            prefix = f"run.capture[{len(candidate.run.capture) - 1}]"
            raise UsageError(one_line(error, prefix)) from None
        return self._put(change)

    def clear(self, number: int) -> Order:
        """Order the end of a fault that lasts. Raises UsageError."""
        check_clear(self.scenario, number, self.virtual_ps + 1)
        return self._put({"clear": number})

    def end(self) -> None:
        """Order the end of the run, as soon as can be."""
        self.end_asked = True

    def end_is_overdue(self) -> bool:
        """Order the end, if nobody has; whether the run has not come to a sync point for long since."""
        if not self.end_asked:
            self._overdue_s = time.monotonic() + GRACE_S
            self.end()
        return time.monotonic() > self._overdue_s

    def _put(self, change: Change) -> Order:
        order = Order(change)
        with self._lock:
            if self._over:
                raise UsageError(OVER)
            if len(self._waiting) >= MOST_WAITING:
                raise UsageError(f"{MOST_WAITING} changes wait already")
            self._waiting.append(order)
        return order

    # ---- for who leads the run

    def take(self) -> tuple[int, str, int] | None:
        """The next change to be made, unless one is under way: how many it makes, its text, not before when.

        Every worker is given the text; then the sync point is requested with the count.
        """
        while self._current is None:
            with self._lock:
                if not self._waiting:
                    return None
                order = self._waiting.popleft()
            not_before_ps = self._reported_ps
            if "clear" in order.change:
                number = int(order.change["clear"])
                try:
                    check_clear(self.scenario, number, max(self.virtual_ps, self._begun_ps(number) + 1))
                except UsageError as error:
                    order.settle(str(error))
                    continue
                not_before_ps = max(not_before_ps, self._begun_ps(number) + 1)
            self._current = order
            self._taken += 1
            return self._taken, json.dumps(order.change), not_before_ps
        return None

    @property
    def taken(self) -> int:
        """How many changes were begun so far."""
        return self._taken

    @property
    def under_way(self) -> int:
        """The number of the change that is being made; 0 if none is."""
        return self._taken if self._current is not None else 0

    def made(self, at_ps: int) -> None:
        """The change under way was made at `at_ps`, everywhere."""
        order = self._current
        assert order is not None, at_ps
        self._current = None
        self._heard_ps = -1
        self._made.append((json.dumps(order.change), at_ps))
        self.scenario = changed(self.scenario, order.change, at_ps)
        order.made_ps = at_ps
        if "capture" in order.change:
            order.capture = len(self.scenario.run.capture) - 1
        elif "clear" in order.change:
            order.fault = int(order.change["clear"])
        else:
            order.fault = len(self.scenario.faults) - 1
        self.virtual_ps = max(self.virtual_ps, at_ps)
        if self.listener is not None:
            self.listener(order.change, order.fault, at_ps, self.scenario)
        order.settle()

    def hear(self, made_ps: Sequence[int]) -> None:
        """A worker has made so many changes, then. Call it before telling of a sample of that worker."""
        if self._current is not None and len(made_ps) >= self._taken:
            self._heard_ps = made_ps[self._taken - 1]

    def go_back(self, reported_ps: int) -> tuple[tuple[str, int], ...]:
        """The run goes back to a snapshot: every change that was made, with its time, for who begins anew.

        Nothing further is made before `reported_ps`: what the run was until then has been reported. The one
        in flight counts as made if any worker reported that it made it: what was reported may show it.
        Otherwise it waits again, as the first.
        """
        if self._current is not None and self._heard_ps >= 0:
            self.made(self._heard_ps)
        elif self._current is not None:
            with self._lock:
                self._waiting.appendleft(self._current)
            self._current = None
            self._taken -= 1
        self._reported_ps = max(self._reported_ps, reported_ps, *(at_ps for _, at_ps in self._made))
        return tuple(self._made)

    def close(self) -> None:
        """The run is over: nothing that waits will be made. May be called again."""
        with self._lock:
            self._over = True
            waiting = [*self._waiting, *([self._current] if self._current is not None else [])]
            self._waiting.clear()
        for order in waiting:
            order.settle(OVER)

    def _begun_ps(self, number: int) -> int:
        return int(self.scenario.faults[number].at_ps)
