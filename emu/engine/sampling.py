"""Samples: each worker's share of a sampling point, and their union.

A share is what changed since the worker's share before. A run that goes back to a snapshot passes the
sampling points after it again, and at each of them the same has changed: what was reported already is left
out. A snapshot may lie between two sampling points, so the first share after it is whole.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from actors.kernel.device import Series
from actors.kernel.kernel import Kernel
from actors.kernel.readings import Readings
from emu.counts.collected import CapturedRows, Changed, Layouts, Packed, joined_layouts, layouts_of
from emu.devices.captures import captures_of, rows_of
from emu.engine.outcome import Observer
from emu.engine.sync.partition import Partition
from emu.engine.sync.sync_points import SyncPoint


class Share(NamedTuple):
    """What changed in one worker up to a sampling point: by device, place and new value in turn."""

    time_ps: int
    counters: Packed
    mixes: Packed
    captured: tuple[tuple[int, CapturedRows], ...] = ()
    """What captures that are over have, with the device."""
    layouts: Layouts | None = None
    """What the devices count, in the first share since the worker was built."""
    whole: bool = False
    """Whether it has what did not change, too."""


class Sampler:
    """Takes a worker's share at each sampling point; whoever reads them takes them away."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        built = partition.built
        self._readings = Readings(built)
        self._read = False
        """Whether devices were read already, or their state was loaded."""
        self._woken = 0
        """How many had been woken then."""
        self._shares: deque[Share] = deque()
        self._reported = False
        self.captures = captures_of(built)
        """Captures that are not over: device, port, capture."""

    def resume(self) -> None:
        """The state of the devices was loaded. Of one that sleeps something else may be known."""
        self._readings.look_at(self._partition.devices, {})
        self._woken = len(self._partition.kernel.woken)
        self._read = True
        self._readings.begin_anew()

    def act(self, sync: SyncPoint) -> None:
        """Take a share if this sync point is for sampling."""
        if sync.sample:
            kernel = self._partition.kernel
            self._look_at_woken(kernel)
            reading = self._readings.take()
            layouts = None if self._reported else layouts_of(_counted_by(kernel))
            self._reported = True
            self._shares.append(
                Share(
                    sync.time_ps,
                    Packed(reading.counters),
                    Packed(reading.mixes),
                    self._ended(sync.time_ps),
                    layouts,
                    reading.whole,
                )
            )

    def _look_at_woken(self, kernel: Kernel) -> None:
        """Read the devices that were built meanwhile as well, and the first time those that sleep."""
        sleepers = kernel.sleepers
        if sleepers is None:
            return
        woken = kernel.woken[self._woken :]
        if self._read:
            known = {number: sleepers.idle(number).counters for number in woken}
        else:
            known, asleep = {}, kernel.asleep()
            self._readings.let_sleep(asleep, [sleepers.idle(number).first_reading for number in asleep])
        if woken:
            self._readings.look_at(kernel.built(), known)
        self._woken += len(woken)
        self._read = True

    def _ended(self, now_ps: int) -> tuple[tuple[int, CapturedRows], ...]:
        ended = [one for one in self.captures if one[2].over(now_ps)]
        for one in ended:
            self.captures.remove(one)
        return tuple((device, rows_of(port, capture)) for device, port, capture in ended)

    def drain(self) -> list[Share]:
        """The shares taken since the last call; also from another thread."""
        shares: list[Share] = []
        while self._shares:
            shares.append(self._shares.popleft())
        return shares

    def unheard(self, heard_ps: int) -> list[Share]:
        """The shares after `heard_ps`; older ones are forgotten, as somebody has them.

        So a share outlives an answer that came too late to be taken.
        """
        while self._shares and self._shares[0].time_ps <= heard_ps:
            self._shares.popleft()
        return list(self._shares.copy())


def _counted_by(kernel: Kernel) -> dict[int, Sequence[Series]]:
    """What each device of a kernel counts, by number; none wakes."""
    found: dict[int, Sequence[Series]] = {int(one.number): one.series() for one in kernel.built()}
    sleepers = kernel.sleepers
    if sleepers is not None:
        found.update({number: sleepers.idle(number).series for number in kernel.asleep()})
    return found


class Merger:
    """Puts the shares of all workers together, in device order, and tells the observer.

    Each sampling point is reported once, also where the run goes back to a snapshot and passes it again.
    """

    def __init__(self, workers: int, observer: Observer) -> None:
        self._workers = workers
        self._observer = observer
        self._waiting: dict[int, list[Share]] = {}
        self._reported_ps = -1
        self._layouts: list[Layouts] | None = []
        """What the devices count; None once that was reported."""

    def restart(self) -> None:
        """The run went back: shares whose sampling point is not complete will be taken again."""
        self._waiting.clear()

    def add(self, share: Share) -> None:
        """One worker's share; the last one of a sampling point completes it."""
        if share.layouts is not None and self._layouts is not None:
            self._layouts.append(share.layouts)
        if share.time_ps <= self._reported_ps:
            return
        shares = self._waiting.setdefault(share.time_ps, [])
        shares.append(share)
        if len(shares) < self._workers:
            return
        del self._waiting[share.time_ps]
        self._reported_ps = share.time_ps
        if self._layouts is not None:
            self._observer.counted(joined_layouts(self._layouts))
            self._layouts = None
        captured = [row for one in shares for row in one.captured]
        if captured:
            self._observer.captured(captured)
        counters = Packed.joined([one.counters for one in shares])
        mixes = Packed.joined([one.mixes for one in shares])
        whole = any(one.whole for one in shares)
        self._observer.sampled(Changed(share.time_ps, counters, whole), mixes)
