"""A GPU: its copy engine moves bytes between compute buffers and channel buffers.

A host asks for a copy (COPY) and hears when it is done (COPIED). All copies of a GPU share its memory
(HBM): they are served one after the other, in the order in which they were asked for, each taking bytes /
`copy_rate`. On top of that every copy has a fixed latency, which does not occupy the memory, so latencies
of copies overlap. What goes over NVLink to the other GPUs of the server is in `actors.gpu.nvlink`.

Served in order, the end of a copy is known when it is asked for, and nothing that comes later can move it.
So the answer is put on the host link at once, stamped with the time at which it leaves: a copy costs the
two events of its messages and no timer.

Priorities. Where a job gives its communicators priorities, copies wait in a line: those of the highest
priority first, in the order in which they were asked for; a copy under way is finished. That takes an event
for each copy that waits, and is left out where nobody has a priority.

`progress` counts bytes copied. A copy that reduces reads two buffers and writes one, yet is charged as one
that copies: rates are published for the copy.

Source: the copy in and out of channel buffers by GPU threads is NCCL's Simple protocol
(`src/device/prims_simple.h`); HBM3 of an H100 moves about 3 TB/s.

Faults. A slow GPU takes a multiple of the time; one that hangs does what it is asked for only when it goes
on, transfers in both directions as well; one that is lost forgets it, and nobody hears. A copy that was asked
for before ends as it would have.

Payload. Where it is real a COPY brings an order (`actors.gpu.memory`), which is carried out on the GPU's
memory (`actors.gpu.memory`) when it is asked for: copies are done in this order, so what a copy reads is
there. A fault turns over a bit of that memory.

Not modelled: sharing of HBM among concurrent copies in equal parts (they take turns instead), compute
that competes for memory. SMs that channels take from computing are the program's
(`actors.ncclx.rank.rank_program`).
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64

from actors.gpu.memory import GpuMemory, read_order
from actors.gpu.nvlink import MOST_TRANSFER_BYTES, NVLINK_SERIES, Domain
from actors.kernel.counters import (
    GPU_COPIED_BYTES,
    GPU_COPIES,
    GPU_COPY_PS,
    GPU_OVERTAKEN_COPIES,
    GPU_UNRESPONSIVE_PS,
)
from actors.kernel.device import Device, Plain, Series, Tally, series_of
from actors.kernel.event import COPY_DONE, Message
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_event, load_fields, save_event, save_fields
from actors.kernel.units import sending_ps
from actors.port.link import MessagePort
from actors.wire.fault import FLIP, HUNG, LOST, SLOW
from actors.wire.message import COPIED, COPY, COPY_FLAGGED, POST, TRANSFER

NVLINK_PORT: Final = 1
"""A GPU's port 0 leads to its host, the other to its NVSwitch."""

MOST_COPY_BYTES: Final[i64] = 1 << 40
"""No job moves more at once."""
_FIELDS: Final = (
    "free_ps",
    "hung",
    "lost",
    "flips",
    "flipped",
    "armed",
    "overtaken",
    "copies",
    "copy_ps",
    "unresponsive_ps",
)

SERIES: Final = (GPU_COPIES, GPU_COPIED_BYTES, GPU_COPY_PS, GPU_UNRESPONSIVE_PS)


class Gpu(Device):
    """One GPU and its copy engine. `host` is its end of the link to the host."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        copy_rate_bps: int,
        copy_latency_ps: int,
        prioritised: bool = False,
    ) -> None:
        super().__init__(number, queue)
        self.prioritised: bool = prioritised
        self.line: list[Message] = []
        """Copies that wait, the next one last; only where there are priorities."""
        self.armed: bool = False
        """Whether the end of the copy under way is a pending event."""
        self.overtaken: i64 = 0
        """Copies that waited and were passed by one of a higher priority, once for each."""
        self.host: MessagePort = host
        self.copy_rate_bps = copy_rate_bps
        self.copy_latency_ps: i64 = copy_latency_ps
        self.domain: Domain | None = None
        """Its part in the NVSwitch domain; None where its server has none."""
        self.free_ps: i64 = 0
        """When the last copy asked for so far leaves the memory free."""
        self.slowness: i64 = 1000
        """Thousandths of its time that everything takes."""
        self.hung: bool = False
        self.lost: bool = False
        self._waiting: list[Message] = []
        """What a GPU that hangs was asked for."""
        self.memory: GpuMemory | None = None
        """What it holds, where payload is real."""
        self.flips: i64 = 0
        """Faults that ail it by turning a bit over; each does so as it begins."""
        self.flipped: i64 = 0
        """Bits that were turned over."""
        self.copies: i64 = 0
        """Copies that it began."""
        self.copy_ps: i64 = 0
        """How long they took in all, without their turn."""
        self.unresponsive_ps: i64 = 0
        """The longest time for which it did nothing of what it was asked for."""

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        if message.op == COPY:
            return self._admits_copy(message)
        domain = self.domain
        if domain is None or message.c < 0 or message.c > MOST_TRANSFER_BYTES:
            return False
        if message.op == POST:
            return message.a < len(domain.pairs)
        return message.op == TRANSFER and 0 <= message.b < len(domain.pairs)

    def _admits_copy(self, message: Message) -> bool:
        data = message.data
        if data is None:
            return message.b <= MOST_COPY_BYTES
        memory = self.memory
        order = read_order(data)
        return memory is not None and memory.knows(order) and order.size_bytes == message.b

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        if self.lost:
            return
        if self.hung:
            self._waiting.append(message)
            return
        self._do(message)

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        if op == SLOW:
            self.slowness = 1000 if values is None else values[0]
        elif op == LOST:
            self.lost = values is not None
            self._waiting = []
            self.line = []
            if self.domain is not None:
                self.domain.forget()
        elif op == HUNG:
            self.hung = values is not None
            if not self.hung:
                self.unresponsive_ps = self._silent_ps()
                waiting = self._waiting
                self._waiting = []
                for message in waiting:
                    self._do(message)
        elif op == FLIP:
            flips: int = sum([row[0] == FLIP for row in self.fault_states])
            memory = self.memory
            if values is not None and flips > self.flips and memory is not None and memory.flip(values[0]):
                self.flipped += 1
            self.flips = flips
        else:
            super().apply_fault(op, place, values)

    def _do(self, message: Message) -> None:
        if message.op == COPY:
            self._copy(message)
            return
        domain = self.domain
        assert domain is not None, (self.number, message.op)
        if message.op == POST:
            block: i64 = domain.pairs[message.a].block
            written_ps: i64 = domain.write(message, self.queue.now_ps)
            if written_ps >= 0:
                self.push_timer(written_ps, COPY_DONE, NVLINK_PORT, block)
        else:
            assert message.op == TRANSFER, (self.number, message.op)
            domain.arrive(message, self.queue.now_ps)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        assert kind == COPY_DONE, (self.number, kind)
        if port == NVLINK_PORT:
            domain = self.domain
            return domain is not None and domain.written(subject, self.queue.now_ps)
        self.armed = False
        waited: bool = len(self.line) > 0
        if waited:
            self._serve(self.line.pop())
        self._arm()
        return waited

    def _copy(self, message: Message) -> None:
        if not self.prioritised:
            self._serve(message)
            return
        place: i64 = len(self.line)
        while place > 0 and self.line[place - 1].f >= message.f:
            place -= 1
        self.line.insert(place, message)
        self.overtaken += place
        if not self.armed and self.queue.now_ps >= self.free_ps:
            self._serve(self.line.pop())
        self._arm()

    def _arm(self) -> None:
        """Look again when the memory is free, if something waits for it."""
        if self.line and not self.armed:
            self.armed = True
            self.push_timer(self.free_ps, COPY_DONE, 0, 0)

    def _serve(self, message: Message) -> None:
        now: i64 = self.queue.now_ps
        start: i64 = self.free_ps
        if now > start:
            start = now
        size: i64 = message.b
        busy_ps: i64 = 0
        if size > 0:
            busy_ps = self._taking(sending_ps(size, self.copy_rate_bps))
            start += busy_ps
        self.free_ps = start
        self.progress += size
        latency_ps: i64 = 0
        if message.c & COPY_FLAGGED == 0:
            latency_ps = self._taking(self.copy_latency_ps)
        self.copies += 1
        self.copy_ps += busy_ps + latency_ps
        order = message.data
        memory = self.memory
        message.data = None
        if order is not None and memory is not None:
            message.data = memory.carry_out(read_order(order))
        message.op = COPIED  # what was asked for goes back as the answer
        message.f = 0
        self.host.send(message, start + latency_ps)

    def _taking(self, time_ps: i64) -> i64:
        """How long something takes that would take so long."""
        return time_ps if self.slowness == 1000 else time_ps * self.slowness // 1000

    def _silent_ps(self) -> i64:
        """The longest time without doing what was asked for, up to now."""
        longest: i64 = self.unresponsive_ps
        if self._waiting:
            since_ps: i64 = self._waiting[0].time_ps
            now: i64 = self.queue.now_ps
            if now - since_ps > longest:
                longest = now - since_ps
        return longest

    def series(self) -> list[Series]:
        found = [series_of(GPU_OVERTAKEN_COPIES)] if self.prioritised else []
        if self.domain is not None:
            found += [series_of(name, NVLINK_PORT) for name in NVLINK_SERIES]
        return found + [series_of(name) for name in SERIES]

    def count(self, into: Tally) -> None:
        domain = self.domain
        if self.prioritised:
            into.add(self.overtaken)
        if domain is not None:
            domain.link.count(into)
        into.add(self.copies)
        into.add(self.progress)
        into.add(self.copy_ps)
        into.add(self._silent_ps())

    def steady(self) -> bool:
        return not self._waiting

    def results(self) -> dict[str, list[list[int]]]:
        """What came out of operations with real payload: see `actors.gpu.memory`."""
        if self.memory is None:
            return {}
        tables = {"payload": self.memory.rows()}
        if self.flipped > 0:
            tables["flips"] = [[self.flipped]]
        return tables

    def save(self) -> list[Plain]:
        """The GPU's state."""
        waiting: list[Plain] = [save_event(message) for message in self._waiting]
        domain = self.domain
        inside: Plain = None if domain is None else domain.save()
        memory: Plain = None if self.memory is None else self.memory.save()
        line: list[Plain] = [save_event(message) for message in self.line]
        return [super().save(), save_fields(self, _FIELDS), self.host.free_ps, waiting, inside, memory, line]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        base, fields, host_free_ps, waiting, inside, memory, line = state
        super().load(as_list(base))
        load_fields(self, _FIELDS, fields)
        self.host.free_ps = as_int(host_free_ps)
        if self.memory is not None:
            self.memory.load(memory)
        self._waiting = [cast(Message, load_event(message)) for message in as_list(waiting)]
        domain = self.domain
        if domain is not None:
            domain.load(inside)
        self.line = [cast(Message, load_event(message)) for message in as_list(line)]
        self.reapply_faults()
