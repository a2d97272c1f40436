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

NIC buffers. What a NIC sends or has received passes a thread block of its channel, which copies at
`CopyCosts.block_rate_bps` and does its copies one after the other; what it sends over NVLink passes it in the
transfer. Such a copy may have a latency of its own: a fence and a flag over PCIe before the NIC sends, a flag
and a flush before the copy of what a NIC has received. All copies of such a channel end in their order, those
of channels in none, so each end has an event.

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
from actors.gpu.nvlink import LL, LL128, MOST_TRANSFER_BYTES, NVLINK_SERIES, Domain, lines_bytes, written_bps
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
from actors.kernel.vectors import vec
from actors.port.link import MessagePort
from actors.wire.fault import FLIP, HUNG, LOST, SLOW
from actors.wire.message import (
    COPIED,
    COPY,
    COPY_BLOCK,
    COPY_FLAGGED,
    COPY_FROM_NIC,
    COPY_KINDS,
    COPY_LINES,
    COPY_ORDERED,
    COPY_TO_NIC,
    POST,
    TRANSFER,
)

NVLINK_PORT: Final = 1
"""A GPU's port 0 leads to its host, the other to its NVSwitch."""
BLOCK_PORT: Final = 2
"""No port: in the timer of a thread block's copy."""

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


class CopyLine:
    """The copies of a channel that copies for NICs, by one thread block or by one for each of its peers."""

    def __init__(self) -> None:
        self.free_ps: list[int] = []
        """By block, when it has copied all that it was asked for."""
        self.due_ps: i64 = 0
        """When the last answer is due; answers leave in the order of the copies."""
        self.line: list[Message] = []
        """The answers that are not due, the next one first."""


class CopyCosts:
    """What copies cost beside their bytes, by protocol and by where the bytes come from and go. Times in ps;
    without arguments nothing costs anything.
    """

    def __init__(
        self,
        simple_ps: int = 0,
        lines_ps: int = 0,
        fence_ps: int = 0,
        flush_ps: int = 0,
        tail_ps: int = 0,
        head_ps: int = 0,
        block_rate_bps: int = 0,
        staged_bps: int = 0,
    ) -> None:
        self.simple_ps: i64 = simple_ps
        self.block_rate_bps: i64 = block_rate_bps
        """What a thread block copies into and out of buffers of NICs; 0: any rate."""
        self.staged_bps: i64 = staged_bps
        """What all blocks of a GPU together copy into and out of host memory; 0: NICs reach the GPU's."""
        self.latencies: vec[i64] = vec[i64]([0] * COPY_KINDS)
        """By kind of copy, the fixed time that follows its bytes."""
        for kind in range(COPY_KINDS):
            lines, flagged = kind & COPY_LINES != 0, kind & COPY_FLAGGED != 0
            total = 0 if lines else lines_ps if flagged else simple_ps
            if kind & COPY_TO_NIC:
                # Lines of LL are the flags, and the proxy looks at them; what follows others is a fence and
                # the tail, and lines of LL128 are not in host memory either.
                total += tail_ps if lines else fence_ps + tail_ps
                total += tail_ps if staged_bps and not lines else 0
            if kind & COPY_FROM_NIC:
                # Of LL128 the lines are in the GPU's memory, of LL in the host's; the flag of Simple is there
                # too, and where the library flushes it does so before it sets the flag.
                total += head_ps if lines else 0 if flagged else head_ps + flush_ps
                total += head_ps if staged_bps and not lines else 0
            self.latencies[kind] = total

    def differ_by_nic(self) -> bool:
        """Whether a copy for a NIC costs anything that another does not."""
        if self.block_rate_bps > 0 or self.staged_bps > 0:
            return True
        nics: i64 = COPY_TO_NIC | COPY_FROM_NIC | COPY_BLOCK
        return any(self.latencies[kind] != self.latencies[kind & ~nics] for kind in range(COPY_KINDS))


class Gpu(Device):
    """One GPU and its copy engine. `host` is its end of the link to the host."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        copy_rate_bps: int,
        costs: CopyCosts,
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
        self.costs: CopyCosts = costs
        self.by_block: bool = costs.differ_by_nic()
        """Whether copies for NICs are done by blocks."""
        self.lines: list[CopyLine] = []
        """Channels that copied for NICs, in the order of their first copies."""
        self.line_of: dict[int, int] = {}
        """The place of a channel among them, by program and channel."""
        self.answers: MessagePort = host
        """Where their answers leave: a lane of the link to the host, which keeps an order of its own."""
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
        """How long they took in all, without their turn, each with the latency of Simple."""
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
        if port == BLOCK_PORT:
            self.answers.send(self.lines[subject].line.pop(0), self.queue.now_ps)
            return True
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
        kind: i64 = message.c
        in_line: bool = self.by_block and kind & COPY_ORDERED != 0
        if size > 0:
            rate_bps: i64 = self.copy_rate_bps
            if kind & (COPY_TO_NIC | COPY_FROM_NIC) != 0 and self.costs.staged_bps > 0:
                rate_bps = self.costs.staged_bps
            busy_ps = self._taking(sending_ps(size, rate_bps))
            start += busy_ps
        self.free_ps = start
        self.progress += size
        latency_ps: i64 = self.costs.latencies[kind % COPY_KINDS]
        if latency_ps > 0:
            latency_ps = self._taking(latency_ps)
        self.copies += 1
        self.copy_ps += busy_ps + self._taking(self.costs.simple_ps)
        order = message.data
        memory = self.memory
        message.data = None
        if order is not None and memory is not None:
            message.data = memory.carry_out(read_order(order))
        channel: i64 = message.a
        program: i64 = message.d
        message.op = COPIED  # what was asked for goes back as the answer
        message.f = 0
        if in_line:
            self._copy_by_block(message, program, channel, start, latency_ps)
            return
        self.host.send(message, start + latency_ps)

    def _copy_by_block(
        self, message: Message, program: i64, channel: i64, least_ps: i64, latency_ps: i64
    ) -> None:
        """Let the thread block of a channel copy, behind what it does; its answer is due when it has, not
        before `least_ps`, and a latency later.
        """
        place: i64 = self.line_of.setdefault((program << 20) | channel, len(self.lines))
        if place == len(self.lines):
            self.lines.append(CopyLine())
        line = self.lines[place]
        block: i64 = message.c // COPY_KINDS
        while len(line.free_ps) <= block:
            line.free_ps.append(0)
        now: i64 = self.queue.now_ps
        end_ps: i64 = line.free_ps[block]
        if end_ps < now:
            end_ps = now
        rate_bps: i64 = self.costs.block_rate_bps
        kind: i64 = message.c
        if rate_bps > 0 and kind & COPY_BLOCK != 0 and message.b > 0:
            protocol: i64 = 0
            if kind & COPY_LINES != 0:
                protocol = LL
            elif kind & COPY_FLAGGED != 0:
                protocol = LL128
            size: i64 = lines_bytes(message.b, protocol)
            end_ps += self._taking(sending_ps(size, written_bps(rate_bps, protocol)))
        if end_ps < least_ps:
            end_ps = least_ps
        line.free_ps[block] = end_ps
        due_ps: i64 = end_ps + latency_ps
        if due_ps <= line.due_ps:
            due_ps = line.due_ps + 1  # each at a time of its own
        line.due_ps = due_ps
        line.line.append(message)
        self.push_timer(due_ps, COPY_DONE, BLOCK_PORT, place)

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
        own = save_fields(self, _FIELDS)
        return [super().save(), own, self.host.free_ps, waiting, inside, memory, line, self._save_lines()]

    def _save_lines(self) -> list[Plain]:
        """The state of copies for NICs."""
        saved: list[Plain] = [self.answers.free_ps]
        for key, place in self.line_of.items():
            line = self.lines[place]
            free: list[Plain] = list(line.free_ps)
            copies: list[Plain] = [save_event(message) for message in line.line]
            saved.append([key, free, line.due_ps, copies])
        return saved

    def _load_lines(self, state: list[Plain]) -> None:
        """Take what `_save_lines` returned."""
        self.lines = []
        self.line_of = {}
        answers_free_ps, *lines = state
        self.answers.free_ps = as_int(answers_free_ps)
        for saved in lines:
            key, free, due_ps, copies = as_list(saved)
            line = CopyLine()
            line.free_ps = [as_int(one) for one in as_list(free)]
            line.due_ps = as_int(due_ps)
            line.line = [cast(Message, load_event(message)) for message in as_list(copies)]
            self.line_of[as_int(key)] = len(self.lines)
            self.lines.append(line)

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        base, fields, host_free_ps, waiting, inside, memory, line, lines = state
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
        self._load_lines(as_list(lines))
        self.reapply_faults()
