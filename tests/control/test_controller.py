"""Does the controller take every job from operation to operation, and end the run once all have ended?"""

from actors.control.controller import Controller, build_controller
from actors.kernel.device import Device
from actors.kernel.event import MESSAGE, NEVER_PS, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.ncclx.operations import JobOutline
from actors.wire.message import BEGIN, REPORT, STATUS_RETRY_EXCEEDED

US = 10**6
CONTROLLER = 3
DELAY_PS = 100 * US + 51_200
"""100 us after 64 B at 10G."""


class Listener(Device):
    """A host that notes what it is told to begin: (time, job, operation)."""

    def __init__(self, number: int, kernel: Kernel) -> None:
        super().__init__(number, kernel.queue)
        self.begun: list[tuple[int, int, int]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        assert (message.op, port, subject) == (BEGIN, 2047, 0)
        self.begun.append((self.queue.now_ps, message.a, message.b))


def fabric(*outlines: JobOutline) -> tuple[Kernel, Controller, list[Listener]]:
    kernel = Kernel(4)
    listeners = [Listener(number, kernel) for number in range(3)]
    for listener in listeners:
        kernel.add(listener)
    hosts = (0, 1, 2)
    controller = build_controller(CONTROLLER, hosts, list(outlines), 100 * US, kernel.queue, lambda _: None)
    kernel.add(controller)
    return kernel, controller, listeners


def collective(job: int, operations: int, hosts: tuple[int, ...] = (0, 1), reports: int = 2) -> JobOutline:
    return JobOutline(job, operations, hosts, reports, listed=True)


def report(
    kernel: Kernel,
    at_us: int,
    host: int,
    job: int,
    operation: int,
    start_us: int,
    end_us: int,
    status: int = 0,
) -> None:
    message = Message(REPORT, job, operation, host, start_us * US, end_us * US, status)
    message.time_ps = at_us * US
    message.key = pack_key(CONTROLLER, MESSAGE, 2047, host)
    kernel.queue.push(message)


def test_an_operation_lasts_from_its_first_begin_to_its_last_end() -> None:
    kernel, controller, _ = fabric(collective(0, 2))
    report(kernel, 10, 0, 0, 0, 3, 9)
    report(kernel, 11, 1, 0, 0, 2, 7)
    kernel.run(1 << 61, 100)
    assert controller.results() == {"operations": [[0, 0, 2 * US, 9 * US, 0]]}


def test_the_next_operation_begins_everywhere_once_all_have_reported() -> None:
    kernel, _, listeners = fabric(collective(0, 2))
    report(kernel, 10, 0, 0, 0, 3, 9)
    report(kernel, 40, 1, 0, 0, 2, 7)
    kernel.run(1 << 61, 100)
    assert [listener.begun for listener in listeners] == [
        [(40 * US + DELAY_PS, 0, 1)],
        [(40 * US + DELAY_PS, 0, 1)],
        [],
    ]
    assert kernel.queue.stop_ps == NEVER_PS


def test_the_run_stops_a_management_delay_after_the_last_job() -> None:
    kernel, _, _ = fabric(collective(0, 1, (0,), 1), collective(1, 1, (1, 2)))
    report(kernel, 10, 0, 0, 0, 0, 1)
    report(kernel, 20, 1, 1, 0, 0, 1)
    kernel.run(1 << 61, 100)
    assert kernel.queue.stop_ps == NEVER_PS
    report(kernel, 30, 2, 1, 0, 0, 1)
    kernel.run(1 << 61, 100)
    assert kernel.queue.stop_ps == 130 * US


def test_one_failed_rank_ends_its_job_and_late_reports_do_not_matter() -> None:
    kernel, controller, listeners = fabric(collective(0, 5, (0, 1, 2), 3))
    report(kernel, 10, 1, 0, 0, 2, 8, STATUS_RETRY_EXCEEDED)
    report(kernel, 20, 0, 0, 0, 2, 9)
    kernel.run(1 << 61, 100)
    assert controller.operations == [[0, 0, 2 * US, 8 * US, STATUS_RETRY_EXCEEDED]]
    assert [listener.begun for listener in listeners] == [[], [], []]
    assert kernel.queue.stop_ps == 110 * US


def test_flows_all_report_even_if_one_failed() -> None:
    kernel, controller, _ = fabric(JobOutline(0, 1, (0, 1), 2, listed=False))
    report(kernel, 10, 0, 0, 0, 0, 9, STATUS_RETRY_EXCEEDED)
    kernel.run(1 << 61, 100)
    assert kernel.queue.stop_ps == NEVER_PS
    report(kernel, 20, 1, 0, 0, 0, 9)
    kernel.run(1 << 61, 100)
    assert kernel.queue.stop_ps == 120 * US
    assert controller.end_states() == [1, STATUS_RETRY_EXCEEDED]


def test_a_saved_controller_remembers_who_has_reported() -> None:
    kernel, controller, _ = fabric(collective(0, 2))
    report(kernel, 10, 0, 0, 0, 3, 9)
    kernel.run(1 << 61, 100)
    other_kernel, other, listeners = fabric(collective(0, 2))
    other.load(controller.save())
    assert other.save() == controller.save()
    report(other_kernel, 40, 1, 0, 0, 2, 7)
    other_kernel.run(1 << 61, 100)
    assert other.operations == [[0, 0, 2 * US, 9 * US, 0]]
    assert listeners[1].begun == [(40 * US + DELAY_PS, 0, 1)]
