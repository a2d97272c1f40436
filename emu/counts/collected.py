"""What a run hands over when it is done: counters, end states, results.

Plain records, from which everything else in this package is worked out: the devices' own (`DeviceRecord`, one
for each device, whichever worker it lived on), the engine's (`EngineFacts`), and what was planned
(`JobPlan`), which the rows that devices report are matched with. None of them knows a worker or a partition
except `EngineFacts`.

`emu.counts.counts` adds the counters of all devices up in the ways the summary asks for.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from actors.kernel.counters import PORT_DROPPED_FRAMES
from actors.kernel.device import Series
from actors.kernel.readings import by_device, joined
from emu.results.job_facts import NO_FACTS, JobFacts
from emu.results.planned_rows import CallPlan, CollectivePlan

LINK_DOWN: Final = "link_down"
"""The reason of a drop on a link that was down."""

DROPPED: Final = PORT_DROPPED_FRAMES

Rows = Mapping[str, Sequence[Sequence[int]]]
"""`Device.results()`: rows of integers under the name of their table."""
NO_ROWS: Final[Rows] = MappingProxyType({})


class CapturedRows(NamedTuple):
    """What one capture has of one port: rows of `actors.port.tap`, and how many frames it had no room for."""

    capture: int
    port: int
    missed: int
    rows: Sequence[bytes]


class DeviceRecord(NamedTuple):
    """What one device counted and reported. `counters` are the values of `series`, in the same order."""

    number: int
    mixes: Sequence[int]
    """Mixes of what concerns no port, then by port: `Device.all_mixes`."""
    executed: int
    frames_received: int
    data_frames_received: int
    series: Sequence[Series]
    counters: Sequence[int]
    end_states: Sequence[int] = ()
    results: Rows = NO_ROWS
    shown: Rows = NO_ROWS
    """What the device shows to an operator who asks at the end (`emu.engine.device_inspection`)."""
    captured: Sequence[CapturedRows] = ()
    """No part of the digest."""
    recorded: Rows = NO_ROWS
    """What event log and trace have (`emu.devices.recorders`); no part of the digest."""
    idle: bool = False
    """Whether nothing happened to it: all mixes are 0 then, and counters are what they were at the start."""

    def counted(self) -> Iterator[tuple[Series, int]]:
        """The counters that are not 0, of a few devices among thousands; none where nothing happened."""
        assert len(self.series) == len(self.counters), self.number
        if self.idle:
            return iter(())
        return compress(zip(self.series, self.counters, strict=True), self.counters)


T = TypeVar("T")


class ByCounters(Generic[T]):
    """What is worked out once for all devices that have the same counters: thousands share few lists of
    them, which are told apart by identity, and then by what is in them."""

    def __init__(self, make: Callable[[tuple[Series, ...]], T]) -> None:
        self._make = make
        self._of_list: dict[int, T] = {}
        self._held: list[Sequence[Series]] = []
        """What has these identities."""
        self._of_counters: dict[tuple[Series, ...], T] = {}

    def of(self, series: Sequence[Series]) -> T:
        """It, for these counters."""
        at = id(series)
        if at not in self._of_list:
            equal = tuple(series)
            if equal not in self._of_counters:
                self._of_counters[equal] = self._make(equal)
            self._of_list[at] = self._of_counters[equal]
            self._held.append(series)
        return self._of_list[at]


class EngineFacts(NamedTuple):
    """How the run was carried out: the only part of a summary that may differ between placements."""

    workers: int
    placement: str
    windows: int
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    recoveries: int = 0
    """How often the run went back to a snapshot."""
    snapshots: int = 0
    snapshots_s: float = 0.0
    """How long the run stood still for them."""
    solves: int | None = None
    """At flow level, how often rates were worked out."""
    solved_transfers: int | None = None
    """Transfers in all solutions, counted each time."""
    doubts: tuple[str, ...] = ()
    """What flow level may have wrong in this run, and why."""
    choice: str = ""
    """Why it was one process or workers."""


class GroupPlan(NamedTuple):
    """A group of ranks that call collectives together, or send to one another."""

    name: str
    """Name of its communicator or dimension; empty where the job has one."""
    ranks: tuple[int, ...]
    points: bool = False
    """Whether the first sends to the second, and that is all."""


class FlowPlan(NamedTuple):
    """One flow of a job. `nic` is the receiver; `messages` are (QP index there, message number) of its
    parts."""

    flow: int
    source: str
    destination: str
    size_bytes: int
    nic: int = -1
    messages: tuple[tuple[int, int], ...] = ()
    ideal_ps: int = 0
    """How long it takes alone in the fabric; 0 if that is not known."""


class TendedFacts(NamedTuple):
    """What the results need to know of a job that an operator tends."""

    job: str
    incarnations: tuple[int, ...]
    """Numbers of the jobs that it is after restarts."""
    tests: tuple[str, ...]
    """Tests of the self-check suite."""
    stop_ps: int
    """How long the operator gives processes to end."""
    sample_ps: int = 0
    """From sample to sample of NICs; 0: there are none."""


class JobPlan(NamedTuple):
    """One job of the scenario, by its number."""

    job: int
    name: str
    ranks: int
    collectives: tuple[CollectivePlan, ...] = ()
    flows: tuple[FlowPlan, ...] = ()
    enabled: bool = True
    """Whether it runs."""
    facts: JobFacts = NO_FACTS
    """What its kind of workload knows of it, and makes of what devices report."""
    start_ps: int = 0
    """When it begins."""
    calls: tuple[CallPlan, ...] = ()
    """Calls of a program, step by step, in the order of its list."""
    groups: tuple[GroupPlan, ...] = ()
    """By number, as ranks report them; none in a job of flows."""
    hosts: tuple[int, ...] = ()
    """The servers that take part, in order."""
    idle_ports: str = ""
    """In words, which NICs have fewer queue pairs for its data than ports."""
    gpus: tuple[int, ...] = ()
    """GPUs of its ranks, as node numbers; none in a job of flows."""
    tended: TendedFacts | None = None
    """Facts of a job that an operator tends."""


class FaultPlan(NamedTuple):
    """One fault of the scenario. `links` are the numbers of the links that it takes down or brings up."""

    kind: str
    target: str
    at_ps: int
    until_ps: int | None = None
    links: tuple[int, ...] = ()
    takes_down: bool = True
    begins_ps: tuple[int, ...] | None = None
    """When each occurrence begins, in order; None for one at `at_ps`, () where none was drawn."""


class Sample(NamedTuple):
    """The counters of every device at one sync point: device number to the values of its series."""

    virtual_ps: int
    counters: Mapping[int, Sequence[int]]


Place = tuple[str, int, int, str]
"""Metric, port, priority and reason of a counter."""


class Layouts(NamedTuple):
    """What devices count: lists of counters, and which of them each device has, by number."""

    layouts: tuple[tuple[Place, ...], ...]
    of_device: Mapping[int, int]


def layouts_of(series: Mapping[int, Sequence[Series]]) -> Layouts:
    """The layouts of devices, each once."""
    layouts: dict[tuple[Place, ...], int] = {}
    known: dict[tuple[Series, ...], int] = {}
    same: dict[int, int] = {}
    of_device: dict[int, int] = {}
    for number, counters in sorted(series.items()):
        found = same.get(id(counters))
        if found is None:
            equal = tuple(counters)  # Series of one name are one object in a worker: few are looked at.
            if equal not in known:
                layout = tuple([one.place for one in counters])
                known[equal] = layouts.setdefault(layout, len(layouts))
            found = same[id(counters)] = known[equal]
        of_device[number] = found
    return Layouts(tuple(layouts), of_device)


def joined_layouts(parts: Iterable[Layouts]) -> Layouts:
    """The layouts of the devices of several workers."""
    layouts: dict[tuple[Place, ...], int] = {}
    of_device: dict[int, int] = {}
    for part in parts:
        numbers = [layouts.setdefault(layout, len(layouts)) for layout in part.layouts]
        of_device.update({number: numbers[layout] for number, layout in part.of_device.items()})
    order = dict(sorted(of_device.items()))
    first = list(dict.fromkeys(order.values()))
    every = list(layouts)
    place = {one: at for at, one in enumerate(first)}
    numbered = {number: place[one] for number, one in order.items()}
    return Layouts(tuple(every[one] for one in first), numbered)


class Packed(Mapping[int, Sequence[int]]):
    """What changed of devices, in their order: `flat` is a reading (`actors.kernel.readings`) of it, in which
    places and new values become numbers where they are asked for.
    """

    __slots__ = ("_found", "flat")

    def __init__(self, flat: bytes) -> None:
        self.flat = flat
        self._found: dict[int, bytes] | None = None

    @property
    def plain(self) -> dict[int, bytes]:
        """By device, place and new value in turn as little-endian integers of eight bytes."""
        if self._found is None:
            self._found = by_device(self.flat)
        return self._found

    def __getitem__(self, number: int) -> Sequence[int]:
        """What changed of a device."""
        numbers = array("q", self.plain[number])
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def __iter__(self) -> Iterator[int]:
        """The devices."""
        return iter(self.plain)

    def __len__(self) -> int:
        return len(self.plain)

    @classmethod
    def joined(cls, parts: Sequence[Packed]) -> Packed:
        """What changed of the devices of all workers."""
        return parts[0] if len(parts) == 1 else cls(joined([one.flat for one in parts]))


class Changed(NamedTuple):
    """What changed since the sample before: of each device, place and new value in turn."""

    virtual_ps: int
    changed: Mapping[int, Sequence[int]]
    whole: bool = False
    """Whether it also has what did not change: the run went on from a snapshot."""
