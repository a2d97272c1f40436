"""A paced run keeps its pace, does not hurry after it was late, and waits for who is to watch it."""

from types import SimpleNamespace

import pytest

from emu.engine.sync import pacing as pace_of_runs
from emu.engine.sync.pacing import LATE_S, NAP_S, QUANTUM_S, Pace

PACE_PS = 10**9
QUANTUM_PS = int(PACE_PS * QUANTUM_S)


class Machine:
    """What `Pace` sees of worker 0's machine: a run that is always as far as it may be."""

    def __init__(self) -> None:
        self.sync_ps = 0
        self.earliest_ps = 0
        self.asked = False

    def hold(self, cap_ps: int) -> None:
        self.earliest_ps = cap_ps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now_s=100.0)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(pace_of_runs, "time", clock)
    return clock


def run_for(pace: Pace, clock: SimpleNamespace, seconds: float, looks: bool = True) -> None:
    """Let wall time pass as the run's loop does: nap where it is told to."""
    end_s = clock.now_s + seconds
    while clock.now_s < end_s:
        if looks:
            pace.watched()
        if (nap_s := pace.hold_s()) > 0:
            clock.now_s += min(nap_s, end_s - clock.now_s)


def test_a_run_that_could_be_quicker_keeps_its_pace(clock: SimpleNamespace) -> None:
    machine = Machine()
    run_for(Pace(machine, PACE_PS), clock, 2.0)  # type: ignore[arg-type]
    assert abs(machine.earliest_ps - 2 * PACE_PS) <= QUANTUM_PS


def test_a_run_that_was_late_does_not_hurry_afterwards(clock: SimpleNamespace) -> None:
    machine = Machine()
    pace = Pace(machine, PACE_PS)  # type: ignore[arg-type]
    run_for(pace, clock, 1.0)
    clock.now_s += 10.0
    run_for(pace, clock, 1.0)
    assert machine.earliest_ps <= (2.0 + LATE_S) * PACE_PS + 2 * QUANTUM_PS


def test_a_run_waits_where_nobody_looks_and_then_goes_on_at_its_pace(clock: SimpleNamespace) -> None:
    machine = Machine()
    pace = Pace(machine, PACE_PS, watch_s=0.1)  # type: ignore[arg-type]
    run_for(pace, clock, 1.0)
    before_ps = machine.earliest_ps
    run_for(pace, clock, 30.0, looks=False)
    assert machine.earliest_ps <= before_ps + 0.1 * PACE_PS + QUANTUM_PS
    before_ps = machine.earliest_ps
    run_for(pace, clock, 1.0)
    assert abs(machine.earliest_ps - before_ps - PACE_PS) <= (NAP_S + 2 * QUANTUM_S) * PACE_PS


def test_what_was_asked_for_is_done_though_nobody_looks(clock: SimpleNamespace) -> None:
    machine = Machine()
    pace = Pace(machine, PACE_PS, watch_s=0.1)  # type: ignore[arg-type]
    run_for(pace, clock, 30.0, looks=False)
    assert pace.hold_s() > 0
    machine.asked = True
    assert pace.hold_s() == 0
