"""A worker that is alone looks after scrapes and stops as one with peers does."""

from emu.cluster.workers.simulation import Simulation
from emu.engine.sync.logical_process import LogicalProcess
from tests.engine.spread_runs import plan_of


def alone(looked: list[int], stop_after: int) -> Simulation:
    plan = plan_of("tiny_all_reduce", 1, {"run.sample_every": "1us"})
    logical_process = LogicalProcess(plan.partition(0), plan.machine(0), lambda _: None)
    logical_process.partition.start()

    def between() -> None:
        looked.append(logical_process.partition.now_ps())
        if len(looked) == stop_after:
            simulation.stop_asked = True

    simulation = Simulation(logical_process, None, between)
    return simulation


def test_a_worker_without_peers_looks_around_after_every_window() -> None:
    looked: list[int] = []
    report = alone(looked, 0).run()
    assert report.ending is not None
    assert len(looked) >= report.windows - 1 > 10


def test_a_worker_without_peers_stops_when_it_is_asked_to() -> None:
    looked: list[int] = []
    report = alone(looked, 5).run()
    assert report.ending is None
    assert len(looked) == 5
