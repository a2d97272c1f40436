"""Does a run without an end keep what it needs to tell how it goes, and no more?"""

from actors.control.controller import MOST_ROWS, Controller
from actors.kernel.event import Message
from actors.kernel.queue import EventQueue
from actors.ncclx.operations import JobOutline
from actors.ncclx.transport.clear_to_send import Waits
from actors.wire.message import PRESENT_OPERATION, REPORT, STATUS_SUCCESS
from emu import api
from emu.devices.nics import MOST_DELIVERIES
from emu.devices.plan import FOR_EVER


def report(job: int, end_ps: int) -> Message:
    return Message(REPORT, job, int(PRESENT_OPERATION), 0, end_ps - 5, end_ps, int(STATUS_SUCCESS))


def test_the_controller_keeps_the_last_rounds_of_jobs_that_begin_again() -> None:
    outlines = [
        JobOutline(0, FOR_EVER, (), 1, listed=True, period=3),
        JobOutline(1, FOR_EVER, (), 1, listed=True, period=1),
    ]
    controller = Controller(0, EventQueue(), {}, outlines, 1000)
    for at in range(3 * MOST_ROWS):
        controller.on_message(report(at % 2, 10 * at + 10), 0, 0)
        assert len(controller.operations) <= MOST_ROWS
    rows = controller.operations
    assert [row[3] for row in rows] == sorted(row[3] for row in rows)
    for job, period in ((0, 3), (1, 1)):
        ended = int(controller.jobs[job].operation)
        assert ended == 3 * MOST_ROWS // 2
        kept = [row[1] for row in rows if row[0] == job]
        assert kept == list(range(kept[0], ended))
        assert len(kept) >= 2 * period


def test_the_waits_of_an_operation_are_those_of_its_last_round() -> None:
    waits = Waits()
    for length in (100, 200, 300):
        for operation in (0, 1):
            waits.add(length + operation)
            waits.close(7, operation)
    assert waits.rows(7, 0) == [[7, 0, 300, 1], [7, 1, 301, 1]]
    assert waits.count == 6


def test_messages_of_flows_are_remembered_as_far_as_they_are_asked_for() -> None:
    flow = {"src": 0, "dst": 1, "size": "4MiB"}
    workload = {"kind": "flows", "message": "4KiB", "flows": [flow]}
    scenario = {
        "name": "endless",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 1},
        "control": {"management_delay": "1us"},
        "host": {"proxy_cost": "0s"},
        "run": {"repeat": True, "max_time": "8ms"},
        "jobs": [{"name": "again", "workload": workload}],
    }
    result = api.run(scenario, local=True)
    (row,) = result.summary.jobs["again"].flows
    receiver = max(result.outcome.devices, key=lambda one: len(one.results.get("deliveries", ())))
    deliveries = receiver.results["deliveries"]
    numbers = [message for _, message, *_ in deliveries]
    assert numbers[-1] > MOST_DELIVERIES
    assert MOST_DELIVERIES // 2 < len(deliveries) <= MOST_DELIVERIES
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert row.start_ps is not None
    assert row.delivered_ps is not None
    assert row.completed_ps is not None
    assert 7 * 10**9 < row.start_ps < row.delivered_ps < row.completed_ps
