"""Blocks of devices that fit the cache: the cut, the windows between them, and that they do not show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.event import ARRIVAL, MESSAGE, NEVER_PS, Message, key_device, pack_key
from actors.kernel.kernel import Kernel
from actors.kernel.mixing import Stream
from actors.wire.frame import WRITE_MIDDLE, Frame, wire_size
from emu import api
from emu.base.errors import ProtocolError
from emu.devices.devices import Blocks
from emu.devices.drawing import Blueprint, blueprint_of
from emu.engine.outcome import Ending
from emu.engine.recovery.snapshots import to_bytes
from emu.engine.sync.placement import ELSEWHERE, assign, cut_into_blocks, expected_loads
from emu.engine.sync.sync_points import SyncGrid
from emu.scenario.resolve import build_topology
from tests.conftest import SOAK
from tests.engine.spread_runs import SpreadRun, plan_of
from tests.engine.toys import ToyNetwork, ToyRun, build_part, finished_run, part_of, random_network
from tests.wire.batches import batch_of

SEEDS = 2000 if SOAK else 100
US = 10**6


def blueprint(**topology: object) -> Blueprint:
    fabric = {"kind": "ai_zone", "racks": 16, "hosts_per_rack": 8, "gpus_per_host": 8, "spines": 8} | topology
    changes = {"topology": fabric, "jobs[0].workload.size": "4KiB", "switch.latency": "0s"}
    scenario = api.load("permutation", changes).scenario
    return blueprint_of(scenario, build_topology(scenario))


@pytest.mark.parametrize("tens", range(10))
def test_a_drawn_cut_into_blocks_gives_the_answer_of_one_over_a_hundred_seeds(tens: int) -> None:
    for seed in range(tens, SEEDS, 10):
        network = random_network(seed)
        grid = SyncGrid(sample_every_ps=1_700_000, stall_after_ps=10**13)
        draw = Stream(seed, 1, 9)
        whole = finished_run(network, 1, seed, grid)
        parts, blocks, slices = 1 + draw.below(3), 2 + draw.below(5), 1 + draw.below(7)
        run = ToyRun(network, min(parts, network.devices), seed, grid, slices, blocks)
        run.start()
        assert run.run() is Ending.FINISHED
        assert (run.digest(), run.virtual_ps) == (whole.digest(), whole.virtual_ps), (seed, blocks)
        if parts == 1:
            assert run.samples == whole.samples, (seed, blocks)


@pytest.mark.parametrize("name", ["tiny_flap", "incast_lossy"])
def test_a_snapshot_is_the_same_to_the_byte_in_one_block_and_in_many(name: str) -> None:
    saved = []
    for block in (None, 1, 2):
        run = SpreadRun(plan_of(name, 1, {"run.max_time": "300us"}, block))
        run.snapshot_at(60 * US)
        run.start()
        run.run()
        assert run.snapshot is not None
        saved.append(to_bytes(run.snapshot))
    assert saved[0] == saved[1] == saved[2]


def test_a_window_is_cut_only_where_all_blocks_stand_at_one_time() -> None:
    network = random_network(11)
    whole = finished_run(network, 1, 4)
    run = ToyRun(network, 1, 4, blocks=4)
    run.start()
    partition = run.logical_processes[0].partition
    kernel = partition.kernel
    within = 0
    for _ in range(10**4):
        if kernel.run(NEVER_PS, 5) < 5:
            break
        cut_ps = partition.cut_ps()
        within += cut_ps > partition.now_ps() + 1
        kernel.run(cut_ps, 10**9)
        assert all(block.inbox.least_ps >= cut_ps for block in kernel.blocks)
        assert partition.now_ps() < cut_ps <= min(partition.next_time_ps(), partition.stop_ps())
    assert within > 20
    assert run.digest() == whole.digest()


def test_a_short_last_window_is_left_for_what_is_asked_for_next() -> None:
    network = random_network(11)
    whole = finished_run(network, 1, 4)
    run = ToyRun(network, 1, 4, blocks=4)
    run.start()
    partition = run.logical_processes[0].partition
    left = 0
    while partition.run(NEVER_PS, 5) == 5:
        end_ps = partition.cut_ps()
        partition.run(end_ps + 1, 10**9, may_leave=True)
        assert all(block.inbox.least_ps >= end_ps for block in partition.kernel.blocks)
        if partition.kernel.left:
            assert partition.next_time_ps() == partition.cut_ps() == end_ps
            left += 1
        else:
            assert partition.next_time_ps() > end_ps
    assert left > 10
    assert run.digest() == whole.digest()


def test_workers_of_several_blocks_end_their_windows_together() -> None:
    changes = {"jobs[0].workload.size": "256KiB"}
    whole = SpreadRun(plan_of("permutation", 1, changes))
    spread = SpreadRun(plan_of("permutation", 2, changes, block=8))
    kernels = [one.partition.kernel for one in spread.logical_processes]
    left = 0

    def between() -> bool:
        nonlocal left
        left += sum(kernel.left for kernel in kernels)
        return True

    for run in (whole, spread):
        run.start()
    assert whole.run() is spread.run(between)
    assert spread.digest() == whole.digest()
    assert left > 10, "what one begins later, it would do after the other's window"


@pytest.mark.parametrize(("workers", "block"), [(1, None), (1, 8), (1, 4), (2, None), (2, 8)])
def test_a_hop_is_one_event_of_a_queue_whether_or_not_it_crosses(workers: int, block: int | None) -> None:
    """A frame that waits for the wire is no event of its own; here at seven of ten hops one waits."""
    run = SpreadRun(plan_of("path_pinning", workers, {"jobs[0].workload.size": "256KiB"}, block))
    run.start()
    assert run.run() is Ending.FINISHED
    kernels = [one.partition.kernel for one in run.logical_processes]
    devices = [device for kernel in kernels for device in kernel.built()]
    hops = sum(device.frames_received() for device in devices)
    assert hops == 32 * 64 * 2 * 4, "64 packets and their acknowledgements for each of 32, over four links"
    assert sum(int(device.executed) for device in devices) > 1.6 * hops
    assert sum(int(kernel.events) for kernel in kernels) < 1.02 * hops


def test_what_another_worker_sent_is_pending_before_its_block_has_a_turn() -> None:
    network = ToyNetwork(4, ((0, 1, 300_000), (1, 2, 300_000), (2, 3, 300_000)), seed=1)
    partition = build_part(network, [0] * 4, 0, Blocks((0, 0, 1, 1), (300_000, 300_000)))
    frames = []
    for device, at_ps in ((3, 5 * US), (1, 4 * US), (2, 6 * US)):
        frame = Frame(WRITE_MIDDLE, 0, 1, 2, 50_000, 0, device, 1024, wire_size(WRITE_MIDDLE, 1024))
        frame.time_ps, frame.key, frame.sent_ps = at_ps, pack_key(device, ARRIVAL, 0, 0), at_ps - 300_000
        frames.append(frame)
    partition.deliver(batch_of(*frames), 4 * US)
    assert partition.next_time_ps() == 4 * US
    assert [key_device(event.key) for event in partition.kernel.pending()] == [1, 3, 2]
    assert partition.outlook() == (3, 0)


def test_what_comes_after_its_time_has_passed_is_refused_by_name() -> None:
    network = ToyNetwork(2, ((0, 1, 300_000),), seed=1)
    partition = build_part(network, part_of(network, 1, 1), 0)
    kernel: Kernel = partition.kernel
    (block,) = kernel.blocks
    block.reached_ps = 5 * US
    message = Message(7, 0, 0, 0, 0, 0, 0)
    message.time_ps, message.key = 4 * US, pack_key(1, MESSAGE, 0, 3)
    block.inbox.add_message(message)
    with pytest.raises(
        ProtocolError, match="device 1 message port 0 subject 3: sent by another block for 4000000"
    ):
        block.take_in(NEVER_PS)


@given(st.integers(1, 200), st.integers(1, 3), st.data())
def test_no_server_is_cut_and_every_device_of_a_worker_is_in_a_block(
    nics: int, workers: int, data: st.DataObject
) -> None:
    racks = data.draw(st.integers(2, 5))
    plan = blueprint(racks=racks, hosts_per_rack=2, gpus_per_host=2)
    topology = plan.topology
    assignment = assign(topology, workers)
    for worker in range(workers):
        found = cut_into_blocks(plan, assignment, worker, nics)
        hosted = [block for block, at in zip(found.block_of, assignment, strict=True) if at == worker]
        assert sorted(set(hosted)) == list(range(len(found.lookahead_ps)))
        assert all(
            (block == ELSEWHERE) == (at != worker)
            for block, at in zip(found.block_of, assignment, strict=True)
        )
        for host in range(len(topology.hosts)):
            here = {found.block_of[node] for node in topology.server(host)} - {ELSEWHERE}
            assert len(here) <= 1


def test_blocks_of_a_large_fabric_are_alike_and_stand_a_link_apart() -> None:
    plan = blueprint()
    topology = plan.topology
    found = cut_into_blocks(plan, assign(topology, 1), 0)
    loads = [0] * (1024 // 32)
    for block, load in zip(found.block_of, expected_loads(topology), strict=True):
        loads[block] += load
    assert max(loads) < 1.25 * min(loads), "those with a spine have fewer NICs"
    # 500 ns of link and 84 B at 400G.
    assert set(found.lookahead_ps) == {500_000 + 84 * 20}
    assert int(found.slots) == 4096, "four windows of 980 slots"


@pytest.mark.parametrize(
    "topology",
    [{"racks": 2}, {"uplink_delay": "200ns"}],
    ids=["all of it fits a block", "less than four frames of 84 ns in a window"],
)
def test_there_is_one_block_where_more_would_not_pay(topology: dict[str, object]) -> None:
    plan = blueprint(**topology)
    found = cut_into_blocks(plan, assign(plan.topology, 1), 0)
    assert set(found.block_of) == {0}
    assert found.lookahead_ps == (NEVER_PS,)
