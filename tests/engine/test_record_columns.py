"""What devices leave behind comes to the coordinator as it was, whichever worker it lived on."""

import pickle

import pytest

from emu.cluster.workers.record_columns import RecordColumns, merged, to_columns
from emu.counts.collected import DeviceRecord, Rows
from emu.engine.outcome import Ending
from emu.engine.sync.logical_process import records_of
from tests.engine.spread_runs import SpreadRun, plan_of

CASES = {
    "permutation": {"run.event_log": 8, "run.capture": [{"ports": ["nic-0*"], "at": "0s", "for": "5us"}]},
    "fault_losses": {},
    "tiny_all_reduce": {},
}


def listed(rows: Rows) -> list[tuple[str, list[list[int]]]]:
    """Tables in their order, as plain lists."""
    return [(name, [list(row) for row in table]) for name, table in rows.items()]


def told(record: DeviceRecord) -> tuple[object, ...]:
    """All that there is of a record, whatever kinds of lists it has."""
    return (
        *(record.number, record.executed, record.frames_received, record.data_frames_received, record.idle),
        *(list(record.mixes), list(record.series), list(record.counters), list(record.end_states)),
        *(listed(record.results), listed(record.shown), listed(record.recorded)),
        [(one.capture, one.port, one.missed, list(one.rows)) for one in record.captured],
    )


def travelled(columns: RecordColumns) -> RecordColumns:
    """What comes out of a pickle, as Ray has it."""
    found: RecordColumns = pickle.loads(pickle.dumps(columns))
    return found


@pytest.mark.parametrize("name", CASES)
def test_records_of_all_workers_come_as_they_were_in_the_order_of_the_devices(name: str) -> None:
    run = SpreadRun(plan_of(name, 3, CASES[name]))
    run.start()
    assert run.run() in (Ending.FINISHED, Ending.TIME_LIMIT)
    records = [records_of(one.partition) for one in run.logical_processes]
    found = merged(travelled(to_columns(one)) for one in records)
    expected = sorted((record for share in records for record in share), key=lambda one: one.number)
    assert [told(one) for one in found] == [told(one) for one in expected]
    if name == "permutation":
        assert any(record.recorded for record in found), "the event log of each device"
        assert any(record.captured for record in found)


def test_what_idle_devices_share_travels_once_and_is_shared_afterwards() -> None:
    run = SpreadRun(plan_of("permutation", 1, {"jobs[0].ranks": [0, 1], "jobs[0].workload.racks": "any"}))
    run.start()
    assert run.run() is Ending.FINISHED
    records = records_of(run.logical_processes[0].partition)
    idle = [one for one in records if one.idle]
    shared = {id(one.counters) for one in idle}
    assert len(shared) < len(idle) / 4
    found = [one for one in merged([travelled(to_columns(records))]) if one.idle]
    assert len(found) == len(idle)
    assert len({id(one.counters) for one in found}) == len(shared)
