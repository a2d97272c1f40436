"""A run that a program steps is the same run, and its submitted jobs do what they are told."""

from pathlib import Path

import pytest

from actors.port.port import Port
from actors.port.tap import Tap
from actors.switch.switch import Switch
from actors.wire.frame import Frame
from emu import api
from emu.base.errors import UsageError
from emu.counts.digest import run_digest
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.in_process import InProcess
from emu.engine.outcome import Ending
from emu.engine.sync.logical_process import LogicalProcess, records_of

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"
MS = 10**9
NEVER_PS = 2**62 - 1


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("steps_ps", [[17_000_001], [1, 2, 3_000_000, 50_000_000]])
def test_a_run_in_steps_gives_the_answer_of_the_run(parts: int, steps_ps: list[int]) -> None:
    whole = api.run(TINY, local=True)
    run = api.stepped(TINY, parts=parts)
    for step_ps in steps_ps:
        assert run.advance(step_ps) is None
        assert run.now_ps == step_ps
    assert run.advance(NEVER_PS) is Ending.FINISHED
    assert run.digest() == whole.summary.digest
    assert run.now_ps == whole.outcome.virtual_ps


def submitted(parts: int) -> api.Stepped:
    return api.stepped(TINY, {"jobs[0].submitted": True, "jobs[0].workload.iterations": 2}, parts=parts)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_submitted_operation_begins_one_management_delay_after_it_was_submitted(parts: int) -> None:
    run = submitted(parts)
    delay_ps = api.load(TINY).scenario.control.management_delay_ps
    job = api.load(TINY).scenario.jobs[0].name
    run.advance(MS)
    assert run.operations(job) == []
    run.submit(job)
    done = run.next(job)
    assert done == run.operations(job)[0]
    (number, start_ps, end_ps, status) = done
    # A message of 64 bytes at 10 Gbit/s (51,200 ps) goes before the delay.
    assert (number, start_ps, status) == (0, MS + delay_ps + 51_200, 0)
    assert end_ps > start_ps
    assert run.now_ps > end_ps + delay_ps + 51_200
    # Not a picosecond before that it was done, and nothing later has happened.
    again = submitted(parts)
    again.advance(MS)
    again.submit(job)
    again.advance(run.now_ps - 1)
    assert again.operations(job) == []
    again.advance(run.now_ps)
    assert again.operations(job) == [done]
    assert again.digest() == run.digest()


def test_when_a_job_is_reported_what_to_do_decides_the_answer_and_parts_do_not() -> None:
    answers = []
    for parts, pause_ps in ((1, MS), (2, MS), (3, 2 * MS)):
        run = submitted(parts)
        job = api.load(TINY).scenario.jobs[0].name
        run.submit(job)
        assert run.next(job)
        run.advance(run.now_ps + pause_ps)
        run.submit(job)
        while run.next(job):
            pass
        assert run.ending is Ending.FINISHED
        answers.append(run.digest())
    assert answers[0] == answers[1] != answers[2]


def test_what_cannot_be_submitted_is_refused_by_name() -> None:
    job = api.load(TINY).scenario.jobs[0].name
    run = api.stepped(TINY)
    with pytest.raises(UsageError, match="begins by itself"):
        run.submit(job)
    with pytest.raises(UsageError, match="there is no job nobody"):
        run.submit("nobody")
    waiting = submitted(1)
    waiting.submit(job)
    waiting.submit(job)
    with pytest.raises(UsageError, match="no operation left"):
        waiting.submit(job)
    waiting.advance(10)
    with pytest.raises(UsageError, match="the run is at 10 ps"):
        waiting.advance(10)


def test_a_job_that_waits_for_somebody_is_not_run_unattended() -> None:
    with pytest.raises(UsageError, match="waits for a program"):
        api.run(TINY, overrides={"jobs[0].submitted": True}, local=True)


class Mirror(Tap):
    """Notes when which frame arrived."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def saw(self, frame: Frame, now: int) -> None:
        self.seen.append((now, frame.psn, frame.wire_bytes))


def test_a_tap_sees_every_frame_that_arrives_at_its_port_and_changes_nothing() -> None:
    prepared = api.prepare(TINY)
    plan = spread(blueprint_of(prepared.scenario, prepared.topology), 1)
    partition = plan.partition(0)
    mirrors: list[tuple[Mirror, Port]] = []
    for device in partition.devices:
        if isinstance(device, Switch):
            mirrors += [(Mirror(), port) for port in device.ports]
    for mirror, port in mirrors:
        port.set_tap(mirror)
    partition.start()
    InProcess([LogicalProcess(partition, plan.machine(0), lambda _: None)], 1, lambda: True).run()
    assert sum(len(mirror.seen) for mirror, _ in mirrors) > 0
    for mirror, port in mirrors:
        assert len(mirror.seen) == port.received_frames
        assert sum(size for _, _, size in mirror.seen) == port.received_bytes
        assert mirror.seen == sorted(mirror.seen, key=lambda one: one[0])
    assert run_digest(records_of(partition)) == api.run(TINY, local=True).summary.digest


def test_a_stepped_run_is_tapped_by_name() -> None:
    run = api.stepped(TINY)
    switch, nic = Mirror(), Mirror()
    run.tap("rtsw-0", 0, switch)
    run.tap("nic-0-0", 0, nic)
    run.advance(NEVER_PS)
    assert len(switch.seen) > 0 < len(nic.seen)
    with pytest.raises(UsageError, match="there is no switch or NIC host-0"):
        run.tap("host-0", 0, nic)
    with pytest.raises(UsageError, match="rtsw-0 has no fabric port 99"):
        run.tap("rtsw-0", 99, nic)
