"""A channel that carries out a send/receive graph.

It does every step of the rank's graph as soon as it may: what it waits for is given to the GPU, it is the
next on its connections, data is there and a send slot is free. A step moves slice by slice, as a ring does:
one GPU operation takes a slice out of the receive slot (if the step receives), reduces it (if it says so),
puts it into the buffers and into the send slot of each connection that it goes on to. A copy within the rank
is one GPU operation, whatever its size. The GPU does its copies in the order in which they are asked for, so
a step may be given to it as soon as those are that it waits for: no CPU stands between one and the next, as
in a kernel.

Steps of different connections overtake one another freely; those of one connection keep their order, which is
that of the other end.

The graph is worked out anew for each operation, also after a snapshot, which keeps only how far each step is.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.transport.channel import Channel
from actors.ncclx.transport.clear_to_send import ReceiveEnd, SendEnd
from actors.wire.message import COPY_PLAIN, COPY_REDUCE

TaskPlan = tuple[int, list[int], int, bool, list[int]]
"""Of a step: place of the receive end or -1, places of the send ends, bytes, whether it reduces, and the
earlier steps that it waits for.
"""


class Task:
    """A step on its way."""

    def __init__(self, receive: int, sends: list[int], size_bytes: int, reduces: bool, waiting: int) -> None:
        self.receive: i64 = receive
        self.sends: list[int] = sends
        self.size_bytes: i64 = size_bytes
        self.reduces: bool = reduces
        self.waiting: i64 = waiting
        """Steps it waits for that are not wholly given to the GPU."""
        self.slices: i64 = 1
        self.issued: i64 = 0
        """Slices given to the GPU."""
        self.then: list[int] = []
        """Steps that wait for it."""


class GraphChannel(Channel):
    """One channel of one rank. `plan` gives the steps of an operation of the job; its places are those in
    `sends` and `receives`, each end knowing its `place`.
    """

    def __init__(
        self,
        number: int,
        gpu_port: int,
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        slice_bytes: int,
        plan: Callable[[int], list[TaskPlan]],
        orders: Orders | None = None,
    ) -> None:
        super().__init__(number, gpu_port)
        self.sends: list[SendEnd] = sends
        self.receives: list[ReceiveEnd] = receives
        self.slice_bytes: i64 = slice_bytes
        self.plan: Callable[[int], list[TaskPlan]] = plan
        self.orders: Orders | None = orders
        """Where payload is real: writes the GPU's orders."""
        self.operation: i64 = -1
        self.tasks: list[Task] = []
        self.left: i64 = 0
        """Steps not wholly given to the GPU."""
        self.send_lines: list[list[int]] = []
        """By send end, its steps; and how many of them are given to the GPU."""
        self.send_heads: list[int] = []
        self.receive_lines: list[list[int]] = []
        self.receive_heads: list[int] = []

    def _prepare(self, operation: i64) -> None:
        self.operation = operation
        self.tasks = []
        self.send_lines = [[] for _ in self.sends]
        self.receive_lines = [[] for _ in self.receives]
        self.send_heads = [0] * len(self.sends)
        self.receive_heads = [0] * len(self.receives)
        for receive, sends, size_bytes, reduces, after in self.plan(operation):
            number = len(self.tasks)
            task = Task(receive, sends, size_bytes, reduces, len(after))
            if (receive >= 0 or sends) and task.size_bytes > self.slice_bytes:
                task.slices = (task.size_bytes + self.slice_bytes - 1) // self.slice_bytes
            for one in after:
                self.tasks[one].then.append(number)
            for place in sends:
                self.send_lines[place].append(number)
            if receive >= 0:
                self.receive_lines[receive].append(number)
            self.tasks.append(task)
        self.left = len(self.tasks)

    def begin(self, host: Host, operation: i64) -> None:
        self._prepare(operation)
        for send in self.sends:
            send.channel = self.number
        for receive in self.receives:
            receive.channel = self.number
        # Clear-to-sends leave in the order in which data is wanted, so that peers send in that order.
        self.receive_heads = [-1] * len(self.receives)
        for task in self.tasks:
            place: i64 = task.receive
            if place >= 0 and self.receive_heads[place] < 0:
                self.receive_heads[place] = 0
                slices: i64 = 0
                for number in self.receive_lines[place]:
                    slices += self.tasks[number].slices
                self.receives[place].expect(host, slices)
        self.receive_heads = [0] * len(self.receives)
        at: i64 = 0
        while at < len(self.tasks):
            self._go_on(host, at)
            at += 1

    def walked(self) -> bool:
        return self.left == 0

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
        task = self.tasks[note]
        if task.receive >= 0:
            self.receives[task.receive].on_emptied(host)
        for place in task.sends:
            self.sends[place].on_filled(host, data)

    def _go_on(self, host: Host, number: i64) -> None:
        """Give the GPU what may be done of a step, and of those that it held up."""
        line: list[int] = [number]
        while line:
            one: i64 = line.pop()
            if self._issue(host, one):
                task = self.tasks[one]
                for then in task.then:
                    self.tasks[then].waiting -= 1
                    line.append(then)
                for place in task.sends:
                    self.send_heads[place] += 1
                    if self.send_heads[place] < len(self.send_lines[place]):
                        line.append(self.send_lines[place][self.send_heads[place]])
                receive: i64 = task.receive
                if receive >= 0:
                    self.receive_heads[receive] += 1
                    if self.receive_heads[receive] < len(self.receive_lines[receive]):
                        line.append(self.receive_lines[receive][self.receive_heads[receive]])

    def _issue(self, host: Host, number: i64) -> bool:
        """Give the GPU what may be done of a step; whether that was the last of it."""
        task = self.tasks[number]
        if task.waiting > 0 or task.issued == task.slices:
            return False
        for place in task.sends:
            if self.send_lines[place][self.send_heads[place]] != number:
                return False
        receive: i64 = task.receive
        if receive >= 0 and self.receive_lines[receive][self.receive_heads[receive]] != number:
            return False
        kind: i64 = COPY_REDUCE if task.reduces else COPY_PLAIN
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
                self.sends[place].take(size)
                self.sent += 1
            task.issued += 1
            self.give(host, size, kind, number, data)
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
        return [super().save(), self.operation, tasks]

    def load(self, state: list[Plain]) -> None:
        base, operation, tasks = state
        super().load(as_list(base))
        if as_int(operation) < 0:
            return
        self._prepare(as_int(operation))
        for task, saved in zip(self.tasks, as_list(tasks), strict=True):
            task.issued = as_int(saved)
        for task in self.tasks:
            if task.issued == task.slices:
                self.left -= 1
                for number in task.then:
                    self.tasks[number].waiting -= 1
                for place in task.sends:
                    self.send_heads[place] += 1
                if task.receive >= 0:
                    self.receive_heads[task.receive] += 1
