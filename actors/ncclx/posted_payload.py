"""Real payload of an open job: each rank's call is posted with its bytes, and its result is fetched.

A group of a communicator has a memory for each rank that lives here, on its GPU, or at the rank where slices
go from its buffers to the NIC (`in_line`). Operations are known by their places among the calls of the group.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from actors.fabric.model import Topology
from actors.fabric.paths import Unloaded
from actors.gpu.gpu import Gpu
from actors.gpu.memory import GROUP_MEMORIES, Stretch
from actors.gpu.posted_memory import PostedContents, PostedMemory
from actors.host.host import Host
from actors.ncclx.checking import beginning, ending
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.graph import Call, Extent
from actors.ncclx.payload import steps_of
from actors.ncclx.rank.sm_share import GpuSms
from actors.ncclx.schedule import Schedule
from actors.ncclx.script import GroupCall
from actors.ncclx.scripted import RankBuilder
from actors.ncclx.transport.posting import NicLoads
from actors.ncclx.transport.wiring import WiredJob

NO_CUT: Final = 0
"""Chunks do not matter where only the beginning and the end of a call do."""


def input_stretches(op: str, ranks: int, size_bytes: int, root: int, place: int) -> list[Stretch]:
    """Where the input of a rank lies in its buffers, in the order of its bytes."""
    call = _call(op, ranks, size_bytes, root)
    return [_stretch(extent) for extent, _, _ in beginning(call, place) if extent.size_bytes]


def result_stretches(op: str, ranks: int, size_bytes: int, root: int, place: int) -> list[Stretch]:
    """Where the result of a rank lies; none after a barrier."""
    if op == "barrier":
        return []
    call = _call(op, ranks, size_bytes, root)
    return [_stretch(extent) for extent, _, _ in ending(call, place) if extent.size_bytes]


def _stretch(extent: Extent) -> Stretch:
    return extent.buffer, extent.offset_bytes, extent.size_bytes


def _call(op: str, ranks: int, size_bytes: int, root: int) -> Call:
    return Call(op, ranks, size_bytes, 1, 0, NO_CUT, NO_CUT, root=root)


class PostedBuilder(RankBuilder):
    """Builds the program of one rank of an open job, and keeps its memories by group."""

    def __init__(
        self,
        reducer: Gpu | None,
        job: WiredJob,
        topology: Topology,
        host: Host,
        rank: int,
        loads: NicLoads | None,
        sms: GpuSms | None,
        unloaded: Unloaded,
    ) -> None:
        super().__init__(job, topology, host, rank, loads, sms, unloaded)
        self._reducer = reducer
        """The GPU in which bytes are reduced; None where calls carry sizes only."""
        self.number_of_group = 0
        """The next group's, over all communicators."""
        self.memories: list[PostedMemory] = []
        """By group of the communicator."""

    def orders_of(self, place: int, first_channel: int) -> Orders | None:
        reducer = self._reducer
        if reducer is None:
            return None
        job = self._job
        schedule: Schedule = job.schedules[place]
        contents = PostedContents(job.job, self.number_of_group * GROUP_MEMORIES + self._rank)
        found = Orders(job.job, contents.rank, partial(steps_of, schedule, first_channel, self._rank))
        if self._settings.in_line:
            memory = found.memory = PostedMemory(contents)
        else:
            assert reducer.memory is not None, contents.rank
            memory = PostedMemory(contents, reducer.memory)
            reducer.memory.add(memory)
        self.memories.append(memory)
        return found

    def note_call(self, place: int, call: GroupCall) -> None:
        """One more call of a group, where calls carry bytes."""
        if self._reducer is not None:
            what = (call.op, len(self._job.gpus), call.size_bytes, call.root, self._rank)
            kind = call.dtype, call.redop
            self.memories[place].grow(kind, input_stretches(*what), result_stretches(*what))
