"""One channel of a rank while an operation runs, and the one that carries out a send/receive graph.

A channel takes its share of every operation. It walks the rank's part of the algorithm and gives the GPU each
slice whose data is here and whose send slot is free; how slices then travel is the business of the ends of
its connections (`actors.ncclx.transport.clear_to_send`). There are two walkers: one that computes a ring's
sequence as it goes (`actors.ncclx.algorithms.ring`), and one that follows a send/receive graph
(`GraphChannel`). Where a communicator calls both, they work with the same ends, and
which of them serves is chosen for each call; an end knows who works with it now (`channel`).

Zero-copy. Buffers of the user are registered, and NICs read and write them: the CTS carries the address of
the receiver's, into which the WRITE goes. What is only moved needs no GPU then: it is sent from where it is,
and is where it belongs when it arrives. What is reduced is the GPU's still. The operations of a channel keep
their order either way, so that one that needs no GPU waits for those before it that do.

Where payload is real as well, what NICs read and write has no message of the GPU's to ride in: the rank's
memory is then kept beside its channels (`actors.ncclx.gpu_orders`), orders are carried out on it as they are
given, and what goes on waits here for its turn. What the GPU reduces takes its time there all the same.

A graph. The channel does every step of the rank's graph as soon as it may: what it waits for is given to the
GPU, it is the next on its connections, data is there and a send slot is free. A step moves slice by slice, as
a ring does: one GPU operation takes a slice out of the receive slot (if the step receives), reduces it (if it
says so), puts it into the buffers and into the send slot of each connection that it goes on to. A copy within
the rank is one GPU operation, whatever its size. The GPU does its copies in the order in which they are asked
for, so a step may be given to it as soon as those are that it waits for: no CPU stands between one and the
next, as in a kernel.

Steps of different connections overtake one another freely; those of one connection keep their order, which is
that of the other end.

The graph is worked out anew for each operation, also after a snapshot, which keeps only how far each step is.
Of a long operation it is one loop and how often that is done (`StepPlans`): a loop's steps are made when a
connection has no other left, and those at the front that the GPU has all slices of are forgotten. A step is
made before it can be next on its connections, so nothing is done earlier or later than if all had been there.

Protocols. A call has one (`actors.ncclx.protocols`): what slices are on the wire, how many slots there are,
and what a copy costs. Each has buffers of its own in NCCL; here an end has as many slots as any of them, of
which a call uses some, and slices of the call before that are under way count among them. With LL nothing
needs the GPU, reductions neither: then, too, a rank's memory is kept beside its channels.

NICs. Where a copy for a NIC costs more than another (`actors.gpu.gpu.CopyCosts`), the GPU is told which are:
of what a NIC has received, and of what it is to send, lines of LL included. What goes on over NVLink passes
the channel's thread block in the transfer, all else that a NIC has a part in passes it in the copy.

Source: NCCLX (CTRAN), zero-copy; NCCL 2.30, user buffer registration (`ncclCommRegister`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from actors.gpu.memory import RankMemory, read_order
from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.event_log import COPIED
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.protocols import LL, LL128, SIMPLE, on_wire
from actors.ncclx.transport.clear_to_send import ReceiveEnd, SendEnd
from actors.ncclx.transport.posting import Totals
from actors.wire.message import (
    COPY_BLOCK,
    COPY_FLAGGED,
    COPY_FROM_NIC,
    COPY_KINDS,
    COPY_LINES,
    COPY_ORDERED,
    COPY_PLAIN,
    COPY_REDUCE,
    COPY_TO_NIC,
)

BY_GPU: Final[i64] = -1
RECEIVES: Final[i64] = 1
SENDS: Final[i64] = 2
REDUCES: Final[i64] = 4
"""What a GPU operation does with a slice (a mask): from a receive slot, into a send slot, with a sum."""

_FIELDS: Final = ("copies", "sent", "direct", "protocol", "line", "moved", "given", "done_ps")


class Channel:
    """Base of the walkers. `gpu_port` is the host's port to the rank's GPU."""

    def __init__(self, number: int, gpu_port: int) -> None:
        self.number: i64 = number
        self.program: i64 = 0
        """Number of the rank's program at its host."""
        self.gpu_port: i64 = gpu_port
        self.priority: i64 = 0
        """Priority of its copies among those of the GPU; higher ones are done first."""
        self.copies: i64 = 0
        """GPU operations under way."""
        self.sent: i64 = 0
        """Slices that took a send slot, since the job began."""
        self.protocol: i64 = SIMPLE
        """Protocol of the operation."""
        self.zero_copy: bool = False
        """Whether what is only moved needs no GPU."""
        self.by_nic: bool = False
        """Whether the GPU is told which copies are for NICs."""
        self.by_peer: bool = False
        """Whether there is a thread block for each peer, as of sends and receives."""
        self.in_line: bool = False
        """Whether some operations need no GPU, so that the order of those that do is kept here."""
        self.direct: i64 = 0
        """Slices that needed none."""
        self.totals: Totals = Totals()
        """Totals of the rank, once it has its channels."""
        self.line: list[int] = []
        """With `in_line`, operations under way in their order: the note of one that needs no GPU, else
        BY_GPU."""
        self.memory: RankMemory | None = None
        """Memory of the rank, with `in_line` and real payload."""
        self.moved: list[bytes | None] = []
        """What of each operation in `line` goes on to other ranks, where payload is real."""
        self.given: list[int] = []
        """Where the host has an event log: when each operation under way was asked for, and its bytes."""
        self.done_ps: i64 = 0
        """When the last one was done, likewise."""

    def begin(self, host: Host, operation: i64) -> None:
        """Start an operation of the job: expect what it brings, give the GPU what it can do."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def walked(self) -> bool:
        """Whether every slice of the operation was given to the GPU."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def connect(self) -> i64:
        """Take the queue pairs of its ends as made; how many were not."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def on_room(self, host: Host, end: SendEnd) -> None:
        """A slot of a send end is free."""
        raise AssertionError(f"channel {self.number} sends nothing")

    def on_ready(self, host: Host, end: ReceiveEnd) -> None:
        """A slice is here."""
        raise AssertionError(f"channel {self.number} receives nothing")

    def finish(self, host: Host, note: i64, data: bytes | None) -> None:
        """What `give` was asked for with that note is done; `data` goes on, where payload is real."""
        raise AssertionError(f"channel {self.number} copies nothing")

    def give(
        self, host: Host, size: i64, kind: i64, note: i64, order: bytes | None = None, nics: i64 = 0
    ) -> None:
        """Let the GPU copy or reduce a slice, or nobody where that is not needed. `nics`: what a NIC has to
        do with it.
        """
        self.copies += 1
        if host.events is not None:
            self.given.append(host.queue.now_ps)
            self.given.append(size)
        if self.protocol == LL128:
            kind |= COPY_FLAGGED
        if self.in_line:
            memory = self.memory
            if memory is not None and order is not None:
                self.moved.append(memory.carry_out(read_order(order)))
                order = None
            direct: bool = self.protocol == LL and nics & (COPY_TO_NIC | COPY_FROM_NIC) == 0
            if direct or (self.zero_copy and kind == COPY_PLAIN):
                self.direct += 1
                self.totals.direct += 1
                self.line.append(note)
                self._advance(host)
                return
            self.line.append(BY_GPU)
        if nics != 0:
            kind |= nics
            if self.protocol == LL:
                kind |= COPY_LINES
        host.copy(self.program, self.gpu_port, self.number, size, kind, note, self.priority, order)

    def on_copied(self, host: Host, message: Message) -> None:
        """The GPU finished the oldest copy under way."""
        self.copies -= 1
        if host.events is not None and self.given:
            self._note(host, message.e)
        if not self.in_line:
            self.finish(host, message.e, message.data)
            return
        self.line.pop(0)
        self.finish(host, message.e, self._next_moved())
        self._advance(host)

    def _advance(self, host: Host) -> None:
        """Finish what needs no GPU and waits for none."""
        while self.line and self.line[0] != BY_GPU:
            note: i64 = self.line.pop(0)
            self.copies -= 1
            if self.given:
                self._note(host, note)
            self.finish(host, note, self._next_moved())

    def _note(self, host: Host, note: i64) -> None:
        """The oldest operation under way is done: write it into the host's event log."""
        given_ps: i64 = self.given.pop(0)
        size: i64 = self.given.pop(0)
        now: i64 = host.queue.now_ps
        if given_ps < self.done_ps:
            given_ps = self.done_ps
        self.done_ps = now
        events = host.events
        if events is not None:
            events.note(COPIED, self.program, self.number, self.moves(note), size, given_ps, now)

    def moves(self, note: i64) -> i64:
        """What an operation that `give` was asked for with this note does: RECEIVES, SENDS, REDUCES."""
        raise AssertionError(f"channel {self.number} copies nothing")

    def polled(self) -> i64:
        """How many connections over NICs it uses in its operation, which the rank's proxy looks after."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def has_nics(self) -> bool:
        """Whether it has connections over NICs."""
        raise AssertionError(f"channel {self.number} walks nothing")

    def _next_moved(self) -> bytes | None:
        """What goes on of the oldest operation under way."""
        return self.moved.pop(0) if self.moved else None

    def waits_for(self) -> str:
        """What holds it up, in words, or nothing."""
        return ""

    def copied_all(self) -> bool:
        """Whether the GPU has done its last copy of the operation."""
        return self.copies == 0 and self.walked()

    def save(self) -> list[Plain]:
        """The channel's state, without that of its ends."""
        return save_fields(self, _FIELDS)

    def load(self, state: list[Plain]) -> None:
        """Take what `save` returned."""
        load_fields(self, _FIELDS, state)


TaskPlan = tuple[int, list[int], int, bool, list[int]]
"""A step: place of the receive end or -1, places of the send ends, bytes, whether it reduces, and the earlier
steps that it waits for."""


PLAN_WORTH: Final[i64] = 16
"""Events of the time that a step takes to be worked out, in interpreted Python."""


def _in_turn(plans: list[TaskPlan], loop: list[TaskPlan], first: int) -> bool:
    """Whether a step of a later loop, of which `first` is the first, can only be next on a connection after
    one of the loop before."""
    sends: set[int] = set()
    receives: set[int] = set()
    for source, targets, _, _, _ in loop:
        receives.add(source)
        sends.update(targets)
    for source, targets, _, _, _ in plans:
        if (source >= 0 and source not in receives) or not sends.issuperset(targets):
            return False
    return all(source >= 0 or bool(targets) for source, targets, _, _, _ in plans[first:])


class StepPlans:
    """The steps of an operation. The `period` of `plans` from `first` on are done `more` times more, each
    time as the time before, and then those behind them.
    """

    def __init__(self, plans: list[TaskPlan], first: int = 0, period: int = 0, more: int = 0) -> None:
        self.plans: list[TaskPlan] = plans
        self.first: i64 = first
        self.period: i64 = period
        self.more: i64 = more
        self.count: i64 = len(plans) + period * more
        self.begun: i64 = self.count
        """How many an operation begins with: all, unless every connection has its part in every loop."""
        if more > 0 and _in_turn(plans, plans[first : first + period], first):
            self.begun = self.first + self.period

    def shift(self, number: i64) -> i64:
        """How far a step is behind the one of `plans` that it is as."""
        over: i64 = number - self.first
        if self.more == 0 or over < self.period:
            return 0
        loops: i64 = over // self.period
        if loops > self.more:
            loops = self.more
        return loops * self.period

    def times(self, place: i64) -> i64:
        """How often one of `plans` is done."""
        return self.more + 1 if self.first <= place < self.first + self.period else 1


class Task:
    """A step on its way."""

    def __init__(self, receive: int, sends: list[int], size_bytes: int, reduces: bool) -> None:
        self.receive: i64 = receive
        self.sends: list[int] = sends
        self.size_bytes: i64 = size_bytes
        self.reduces: bool = reduces
        self.waiting: i64 = 0
        """Steps it waits for that are not wholly given to the GPU."""
        self.slices: i64 = 1
        self.issued: i64 = 0
        """Slices given to the GPU."""
        self.then: list[int] = []
        """Steps that wait for it."""


class GraphChannel(Channel):
    """One channel of one rank. `plan` gives the steps of an operation of the job; its places are those in
    `sends` and `receives`, each end knowing its `place`. `protocols` are those of the operations, `cuts`
    (slice, slots, chunk) of each protocol.
    """

    def __init__(
        self,
        number: int,
        gpu_port: int,
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        protocols: list[int],
        cuts: list[tuple[int, int, int]],
        plan: Callable[[int], StepPlans],
        orders: Orders | None = None,
    ) -> None:
        super().__init__(number, gpu_port)
        self.sends: list[SendEnd] = sends
        self.receives: list[ReceiveEnd] = receives
        self.protocols: list[int] = protocols
        self.cuts: list[tuple[int, int, int]] = cuts
        self.slice_bytes: i64 = cuts[0][0]
        self.plan: Callable[[int], StepPlans] = plan
        self.orders: Orders | None = orders
        """Where payload is real: writes the GPU's orders."""
        self.operation: i64 = -1
        self.steps: StepPlans = StepPlans([])
        self.base: i64 = 0
        """Steps that are forgotten: the number of the first in `tasks`."""
        self.tasks: list[Task] = []
        """Those that are made."""
        self.left: i64 = 0
        """Steps not wholly given to the GPU."""
        self.send_lines: list[list[int]] = []
        """By send end, its steps; and how many of them are given to the GPU."""
        self.send_heads: list[int] = []
        self.receive_lines: list[list[int]] = []
        self.receive_heads: list[int] = []

    def _prepare(self, operation: i64) -> None:
        self.operation = operation
        self.protocol = self.protocols[operation]
        slice_bytes, slots, _ = self.cuts[self.protocol]
        self.slice_bytes = slice_bytes
        for send in self.sends:
            send.limit = slots
            send.sender.use(self.protocol)
        for receive in self.receives:
            receive.limit = slots
        self.base = 0
        self.tasks = []
        self.send_lines = [[] for _ in self.sends]
        self.receive_lines = [[] for _ in self.receives]
        self.send_heads = [0] * len(self.sends)
        self.receive_heads = [0] * len(self.receives)
        self.steps = self.plan(operation)
        self.left = self.steps.count

    def _make(self, number: i64, issued: i64) -> None:
        """Make the next step, of which so many slices were given to the GPU."""
        steps = self.steps
        shift: i64 = steps.shift(number)
        source, sends, size_bytes, reduces, after = steps.plans[number - shift]
        task = Task(source, sends, size_bytes, reduces)
        task.slices = self._slices(source, sends, size_bytes)
        task.issued = issued
        for one in after:
            place: i64 = i64(one) + shift - self.base
            if place >= 0:
                before = self.tasks[place]
                if before.issued < before.slices:
                    before.then.append(number)
                    task.waiting += 1
        self.tasks.append(task)
        if issued == task.slices:
            self.left -= 1
            return
        for target in sends:
            self.send_lines[target].append(number)
        if source >= 0:
            self.receive_lines[source].append(number)

    def _slices(self, source: i64, sends: list[int], size_bytes: i64) -> i64:
        if (source >= 0 or sends) and size_bytes > self.slice_bytes:
            return (size_bytes + self.slice_bytes - 1) // self.slice_bytes
        return 1

    def _extend(self) -> bool:
        """Make the next loop's steps, and forget those that the GPU has all of; whether there were any."""
        number: i64 = self.base + len(self.tasks)
        end: i64 = number + self.steps.period
        if end > self.steps.count:
            end = self.steps.count
        if number == end:
            return False
        gone: i64 = 0
        while gone < len(self.tasks) and self.tasks[gone].issued == self.tasks[gone].slices:
            gone += 1
        self.tasks = self.tasks[gone:]
        self.base += gone
        for place in range(len(self.sends)):
            self.send_lines[place] = self.send_lines[place][self.send_heads[place] :]
            self.send_heads[place] = 0
        for place in range(len(self.receives)):
            self.receive_lines[place] = self.receive_lines[place][self.receive_heads[place] :]
            self.receive_heads[place] = 0
        while number < end:
            self._make(number, 0)
            number += 1
        return True

    def begin(self, host: Host, operation: i64) -> None:
        self._prepare(operation)
        host.queue.extra += PLAN_WORTH * len(self.steps.plans)
        for send in self.sends:
            send.channel = self.number
        for receive in self.receives:
            receive.channel = self.number
        self._expect(host)
        at: i64 = 0
        while at < self.steps.begun:
            self._make(at, 0)
            at += 1
        at = 0
        while at < self.base + len(self.tasks):
            self._go_on(host, at)
            at += 1

    def _expect(self, host: Host) -> None:
        """Tell the receive ends what the operation brings.

        Clear-to-sends leave in the order in which data is wanted, so that peers send in that order.
        """
        steps = self.steps
        slices: list[int] = [0] * len(self.receives)
        for at, (source, sends, size_bytes, _, _) in enumerate(steps.plans):
            if source >= 0:
                slices[source] += steps.times(at) * self._slices(source, sends, size_bytes)
        for source, _, _, _, _ in steps.plans:
            if source >= 0 and slices[source] > 0:
                self.receives[source].expect(host, slices[source])
                slices[source] = 0

    def walked(self) -> bool:
        return self.left == 0

    def connect(self) -> i64:
        made: i64 = 0
        for send in self.sends:
            made += send.unmade
            send.unmade = 0
        for receive in self.receives:
            made += receive.unmade
            receive.unmade = 0
        return made

    def on_room(self, host: Host, end: SendEnd) -> None:
        place: i64 = end.place
        line = self.send_lines[place]
        if self.send_heads[place] < len(line):
            self._go_on(host, line[self.send_heads[place]])

    def on_ready(self, host: Host, end: ReceiveEnd) -> None:
        place: i64 = end.place
        if place < len(self.receive_lines):
            line = self.receive_lines[place]
            if self.receive_heads[place] < len(line):
                self._go_on(host, line[self.receive_heads[place]])

    def finish(self, host: Host, note: i64, data: bytes | None) -> None:
        source, sends, _, _, _ = self.steps.plans[note - self.steps.shift(note)]
        if source >= 0:
            self.receives[source].on_emptied(host)
        for place in sends:
            self.sends[place].on_filled(host, data)

    def moves(self, note: i64) -> i64:
        source, sends, _, reduces, _ = self.steps.plans[note - self.steps.shift(note)]
        moves: i64 = 0
        if source >= 0:
            moves |= RECEIVES
        if sends:
            moves |= SENDS
        if reduces:
            moves |= REDUCES
        return moves

    def polled(self) -> i64:
        count: i64 = 0
        place: i64 = 0
        while place < len(self.send_lines):
            if len(self.send_lines[place]) > 0 and not self.sends[place].sender.inside:
                count += 1
            place += 1
        place = 0
        while place < len(self.receive_lines):
            if len(self.receive_lines[place]) > 0 and not self.receives[place].inside:
                count += 1
            place += 1
        return count

    def has_nics(self) -> bool:
        for send in self.sends:
            if not send.sender.inside:
                return True
        return any(not receive.inside for receive in self.receives)

    def _nics(self, task: Task) -> i64:
        """What NICs have to do with a step."""
        nics: i64 = 0
        blocks: i64 = COPY_BLOCK
        for place in task.sends:
            if self.sends[place].sender.inside:
                blocks = 0
            else:
                nics |= COPY_TO_NIC | COPY_BLOCK
        if task.receive >= 0 and not self.receives[task.receive].inside:
            nics |= COPY_FROM_NIC | blocks
        if self.by_peer:
            block: i64 = len(self.sends) + task.receive
            if len(task.sends) > 0:
                block = task.sends[0]
            nics += block * COPY_KINDS
        return nics | COPY_ORDERED

    def _go_on(self, host: Host, number: i64) -> None:
        """Give the GPU what may be done of a step, and of those that it held up."""
        line: list[int] = [number]
        while line:
            one: i64 = line.pop()
            if one >= self.base and self._issue(host, one):
                task = self.tasks[one - self.base]
                for then in task.then:
                    self.tasks[then - self.base].waiting -= 1
                    line.append(then)
                for place in task.sends:
                    self._advance_line(self.send_lines, self.send_heads, place, line)
                if task.receive >= 0:
                    self._advance_line(self.receive_lines, self.receive_heads, task.receive, line)

    def _advance_line(self, lines: list[list[int]], heads: list[int], place: i64, found: list[int]) -> None:
        """A connection goes to its next step, if there is one: that is one more to look at."""
        heads[place] += 1
        while heads[place] == len(lines[place]) and self._extend():
            pass
        if heads[place] < len(lines[place]):
            found.append(lines[place][heads[place]])

    def _issue(self, host: Host, number: i64) -> bool:
        """Give the GPU what may be done of a step; whether that was the last of it."""
        task = self.tasks[number - self.base]
        if task.waiting > 0 or task.issued == task.slices:
            return False
        for place in task.sends:
            if self.send_lines[place][self.send_heads[place]] != number:
                return False
        receive: i64 = task.receive
        if receive >= 0 and self.receive_lines[receive][self.receive_heads[receive]] != number:
            return False
        kind: i64 = COPY_REDUCE if task.reduces else COPY_PLAIN
        nics: i64 = self._nics(task) if self.by_nic else 0
        while task.issued < task.slices:
            if receive >= 0 and self.receives[receive].taken == self.receives[receive].ready:
                return False
            for place in task.sends:
                if self.sends[place].full():
                    return False
            size: i64 = task.size_bytes
            if task.slices > 1:
                size -= task.issued * self.slice_bytes
                if size > self.slice_bytes:
                    size = self.slice_bytes
            data: bytes | None = None
            if receive >= 0:
                data = self.receives[receive].take()
            orders = self.orders
            if orders is not None:
                start: i64 = task.issued * self.slice_bytes
                data = orders.step(self.number, self.operation, number, start, size, data)
            for place in task.sends:
                self.sends[place].take(on_wire(self.protocol, size))
                self.sent += 1
            task.issued += 1
            self.give(host, size, kind, number, data, nics)
        self.left -= 1
        return True

    def waits_for(self) -> str:
        for send in self.sends:
            if send.admitted and send.posted < send.filled and send.posted == send.granted:
                return f"a clear-to-send from rank {send.peer} (slice {send.posted})"
        place: i64 = 0
        while place < len(self.receive_lines):  # none before the first operation
            receive = self.receives[place]
            if self.receive_heads[place] < len(self.receive_lines[place]) and receive.taken == receive.ready:
                return f"data from rank {receive.peer} (slice {receive.ready})"
            place += 1
        for send in self.sends:
            if send.freed < send.posted:
                return f"an acknowledgement from rank {send.peer} (slice {send.freed})"
        return ""

    def save(self) -> list[Plain]:
        tasks: list[Plain] = [task.issued for task in self.tasks]
        return [super().save(), self.operation, self.base, tasks]

    def load(self, state: list[Plain]) -> None:
        base, operation, gone, tasks = state
        super().load(as_list(base))
        if as_int(operation) < 0:
            return
        self._prepare(as_int(operation))
        self.base = as_int(gone)
        self.left -= self.base
        number: i64 = self.base
        for issued in as_list(tasks):
            self._make(number, as_int(issued))
            number += 1
