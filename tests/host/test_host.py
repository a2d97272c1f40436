"""Do completions find their program, and does a proxy take its time for each operation, in turn?"""

from actors.host.host import Host, Program
from actors.kernel.device import Device
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.port.link import MessagePort
from actors.wire.message import (
    BEGIN,
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    COPIED,
    COPY,
    POST,
    RECEIVE,
    REPORT,
)

HOST, NIC, GPU, CONTROLLER = 0, 1, 2, 3
GPU_PORT, NIC_PORT = 0, 1
LINK_PS = 2_000
"""64 B at 512G, then 1 ns."""


class Listener(Device):
    """Notes every message: time, operation, and its first three integers."""

    def __init__(self, number: int, kernel: Kernel) -> None:
        super().__init__(number, kernel.queue)
        self.heard: list[tuple[int, int, list[int]]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        self.heard.append((self.queue.now_ps, message.op, [message.a, message.b, message.c]))


class Recorder(Program):
    """Notes what it is told, and posts once for every completion."""

    def __init__(self, job: int, start_ps: int) -> None:
        super().__init__(job, start_ps)
        self.reported: list[tuple[int, str, int]] = []

    def on_begin(self, host: Host, operation: int, now: int) -> None:
        self.reported.append((now, "begin", operation))

    def on_completion(self, host: Host, context: int, message: Message, now: int) -> None:
        self.reported.append((now, "completion", context))
        host.post(self.number, NIC_PORT, message.a, 77, 4096, 0, 0)

    def on_copied(self, host: Host, message: Message, now: int) -> None:
        self.reported.append((now, "copied", message.a))

    def on_timer(self, host: Host, subject: int, now: int) -> bool:
        self.reported.append((now, "timer", subject))
        return True


def fabric(proxy_cost_ps: int, *programs: Recorder) -> tuple[Kernel, Host, dict[int, Listener]]:
    kernel = Kernel(4)
    rate = 512 * 10**9
    ports = [MessagePort(kernel.queue, rate, 1_000, peer, 0, 0, None) for peer in (GPU, NIC)]
    management = MessagePort(kernel.queue, 10**10, 10**8, CONTROLLER, 2047, HOST, None)
    host = Host(HOST, kernel.queue, ports, management, proxy_cost_ps)
    for program in programs:
        host.add(program)
    listeners = {number: Listener(number, kernel) for number in (NIC, GPU, CONTROLLER)}
    kernel.add(host)
    for listener in listeners.values():
        kernel.add(listener)
    return kernel, host, listeners


def arrive(kernel: Kernel, at_ps: int, port: int, message: Message, subject: int = 0) -> None:
    message.time_ps = at_ps
    message.key = pack_key(HOST, MESSAGE, port, subject)
    kernel.queue.push(message)


def completion(pair: int) -> Message:
    return Message(COMPLETION, pair, 0, 0, COMPLETED_SEND, 0, 0)


def test_a_completion_reaches_the_program_that_owns_the_queue_pair() -> None:
    one, other = Recorder(0, 0), Recorder(1, 0)
    kernel, host, listeners = fabric(0, one, other)
    host.bind(NIC_PORT, 4, 1, 9)
    host.bind(NIC_PORT, 2, 0, 3)
    arrive(kernel, 100, NIC_PORT, completion(4))
    kernel.run(1 << 61, 100)
    assert one.reported == []
    assert other.reported == [(100, "completion", 9)]
    assert listeners[NIC].heard == [(100 + LINK_PS, POST, [4, 77, 4096])]


def test_the_first_operation_begins_at_the_job_s_start_and_the_next_when_reported() -> None:
    one, other = Recorder(0, 0), Recorder(1, 5_000)
    kernel, host, _ = fabric(0, one, other)
    host.start()
    arrive(kernel, 9_000, 2047, Message(BEGIN, 1, 1, 0, 0, 0, 0))
    kernel.run(1 << 61, 100)
    assert one.reported == [(0, "begin", 0)]
    assert other.reported == [(5_000, "begin", 0), (9_000, "begin", 1)]


def test_timers_and_copies_come_back_to_whoever_asked() -> None:
    one, other = Recorder(0, 0), Recorder(0, 0)
    kernel, host, listeners = fabric(0, one, other)
    host.set_timer(1, 300, 12)
    host.copy(0, GPU_PORT, 6, 1024, 0, 0, 0)
    arrive(kernel, 400, GPU_PORT, Message(COPIED, 6, 1024, 0, 0, 0, 0))
    kernel.run(1 << 61, 100)
    assert (one.reported, other.reported) == ([(400, "copied", 6)], [(300, "timer", 12)])
    assert listeners[GPU].heard == [(LINK_PS, COPY, [6, 1024, 0])]


def test_a_report_takes_the_management_delay() -> None:
    kernel, host, listeners = fabric(0)
    host.report(3, 1, 8, 10, 20, 0)
    kernel.run(1 << 61, 100)
    # 64 B at 10G, then 100 us.
    assert listeners[CONTROLLER].heard == [(51_200 + 10**8, REPORT, [3, 1, 8])]


def test_a_proxy_takes_its_cost_for_every_completion_and_post_in_turn() -> None:
    one, other = Recorder(0, 0), Recorder(1, 0)
    kernel, host, listeners = fabric(10_000, one, other)
    for pair, program in ((0, 0), (1, 0), (2, 1)):
        host.bind(NIC_PORT, pair, program, pair)
    for pair, at_ps in ((0, 1_000), (1, 2_000), (2, 3_000)):
        arrive(kernel, at_ps, NIC_PORT, completion(pair))
    kernel.run(1 << 61, 100)
    # The line of the first program: completion 0, completion 1, post for 0, post for 1.
    assert one.reported == [(11_000, "completion", 0), (21_000, "completion", 1)]
    assert other.reported == [(13_000, "completion", 2)]
    assert [(at, heard[0]) for at, _, heard in listeners[NIC].heard] == [
        (23_000 + LINK_PS, 2),
        (31_000 + LINK_PS, 0),
        (41_000 + LINK_PS, 1),
    ]


def test_a_saved_proxy_goes_on_with_its_line() -> None:
    programs = Recorder(0, 0), Recorder(0, 0)
    kernels = []
    hosts = []
    for program in programs:
        kernel, host, _ = fabric(10_000, program)
        host.bind(NIC_PORT, 0, 0, 5)
        host.bind(NIC_PORT, 1, 0, 6)
        kernels.append(kernel)
        hosts.append(host)
    arrive(kernels[0], 1_000, NIC_PORT, completion(0))
    arrive(kernels[0], 2_000, NIC_PORT, completion(1))
    kernels[0].run(5_000, 100)
    hosts[1].load(hosts[0].save())
    for event in kernels[0].queue.pending():
        kernels[1].queue.push(event)
    kernels[1].run(1 << 61, 100)
    assert programs[1].reported == [(11_000, "completion", 5), (21_000, "completion", 6)]


def test_a_receive_that_was_taken_is_posted_again_one_after_the_other_per_nic() -> None:
    one = Recorder(0, 0)
    kernel, host, listeners = fabric(0, one)
    host.bind(NIC_PORT, 0, 0, 0)
    host.reposting = True
    host.repost_ps = 5_000
    for pair, at_ps in ((0, 1_000), (7, 2_000), (0, 20_000)):
        message = completion(pair)
        message.d = COMPLETED_RECEIVE
        arrive(kernel, at_ps, NIC_PORT, message)
    kernel.run(1 << 61, 100)
    posted = [(at, *heard[:2]) for at, op, heard in listeners[NIC].heard if op == RECEIVE]
    assert posted == [(6_000 + LINK_PS, 0, 1), (11_000 + LINK_PS, 7, 1), (25_000 + LINK_PS, 0, 1)]
