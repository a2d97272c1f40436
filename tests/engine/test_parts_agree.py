"""However a network is cut, and whatever the delays between the parts, the answer is the same."""

import pytest

from emu.base.errors import ProtocolError
from emu.devices.lookahead import close_lookaheads
from emu.engine.outcome import Ending
from emu.engine.sync.sync_points import SyncGrid
from tests.conftest import SOAK
from tests.engine.toys import ToyNetwork, ToyRun, crossings_of, finished_run, part_of, random_network

SEEDS = 2000 if SOAK else 100


@pytest.mark.parametrize("block", range(10))
def test_parts_give_the_answer_of_one_over_a_hundred_seeds(block: int) -> None:
    for seed in range(block, SEEDS, 10):
        network = random_network(seed)
        whole = finished_run(network, 1, seed)
        parts = 2 + seed % 6
        if parts > network.devices:
            parts = network.devices
        cut = finished_run(network, parts, seed)
        assert (cut.digest(), cut.virtual_ps) == (whole.digest(), whole.virtual_ps), (seed, parts)


def test_seed_of_the_delays_changes_nothing() -> None:
    network = random_network(3)
    runs = [ToyRun(network, 3, 5) for _ in range(20)]
    for seed, run in enumerate(runs):
        run.seed = seed
        run.start()
        assert run.run() in (Ending.FINISHED, Ending.STALLED)
    assert len({run.digest() for run in runs}) == 1


def test_another_seed_of_the_network_is_another_answer() -> None:
    base = random_network(3)
    other = ToyNetwork(base.devices, base.links, seed=4)
    assert finished_run(base, 2, 1).digest() != finished_run(other, 2, 1).digest()


def test_where_slices_end_changes_nothing() -> None:
    network = random_network(8)
    whole = finished_run(network, 1, 8).digest()
    for budget in (1, 2, 3, 7):
        run = ToyRun(network, 2, 8, slices=budget)
        run.start()
        assert run.run() in (Ending.FINISHED, Ending.STALLED)
        assert run.digest() == whole


@pytest.mark.parametrize("seed", range(8))
def test_sync_points_change_nothing_and_lie_where_they_lay(seed: int) -> None:
    network = random_network(seed)
    grid = SyncGrid(sample_every_ps=1_700_000, stall_after_ps=10**13)
    plain = finished_run(network, 1, seed)
    whole = finished_run(network, 1, seed, grid)
    cut = finished_run(network, min(network.devices, 4), seed, grid)
    assert plain.digest() == whole.digest() == cut.digest()
    assert len(whole.samples) > 5
    by_time: dict[int, dict[int, tuple[int, ...]]] = {}
    for time_ps, part, mixes in cut.samples:
        devices = cut.logical_processes[part].partition.devices
        by_time.setdefault(time_ps, {}).update(
            {device.number: mix for device, mix in zip(devices, mixes, strict=True)}
        )
    merged = [(time_ps, tuple(mix for _, mix in sorted(found.items()))) for time_ps, found in by_time.items()]
    assert merged == [(time_ps, mixes) for time_ps, _, mixes in whole.samples]


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_network_that_falls_silent_stalls_at_the_same_time_in_every_cut(parts: int) -> None:
    network = ToyNetwork(6, tuple((0, at, 300_000) for at in range(1, 6)), seed=2, silent=True, upkeep=True)
    run = ToyRun(network, parts, 1, SyncGrid(0, stall_after_ps=2 * 10**12))
    run.start()
    assert run.run() is Ending.STALLED
    assert run.virtual_ps % (2 * 10**12) == 0
    whole = ToyRun(network, 1, 1, SyncGrid(0, stall_after_ps=2 * 10**12))
    whole.start()
    whole.run()
    assert (run.digest(), run.virtual_ps) == (whole.digest(), whole.virtual_ps)


def test_lookahead_that_lies_is_refused_by_name() -> None:
    network = ToyNetwork(3, ((0, 1, 500_000), (1, 2, 100_000)), seed=1)
    run = ToyRun(network, 3, 1)
    crossings = crossings_of(network, part_of(network, 3, 1))
    longer = [type(one)(one.sender, one.receiver, one.least_ps * 50) for one in crossings]
    for logical_process in run.logical_processes:
        lying = close_lookaheads(3, longer)
        logical_process.machine._lookahead = lying
        logical_process.machine._towards_me = [row[logical_process.machine.index] for row in lying]
    run.start()
    with pytest.raises(
        ProtocolError, match=r"from worker \d: a packet arrives at \d+ ps; the window begins at"
    ):
        run.run()


def test_run_can_be_stopped_between_slices_and_read() -> None:
    network = random_network(5)
    run = ToyRun(network, 2, 5, slices=3)
    run.start()
    looks = iter([True] * 10 + [False] * 1000)
    assert run.run_while(lambda: next(looks)) is None
    assert run.digest()
