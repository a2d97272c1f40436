"""The protocol between workers: machines alone, joined by lists."""

import pytest
from mypy_extensions import i64

from actors.kernel.event import NEVER_PS
from actors.kernel.vectors import vec
from actors.wire.batch import Batch
from emu.base.errors import ProtocolError
from emu.devices.lookahead import (
    Crossing,
    close_lookaheads,
    fabric_lookahead_ps,
    message_lookahead_ps,
    neighbours_of,
)
from emu.engine.outcome import Ending
from emu.engine.sync.rounds import Contribution, Step, SyncMessage
from emu.engine.sync.sync_points import SyncGrid
from emu.engine.sync.window import WindowMachine

US = 1_000_000
FOUR_SECONDS = 4_000_000_000_000


def line(workers: int, least_ps: int) -> list[Crossing]:
    """Workers in a row, each linked with the next."""
    pairs = [(at, at + 1) for at in range(workers - 1)]
    return [Crossing(a, b, least_ps) for x, y in pairs for a, b in ((x, y), (y, x))]


def machines(crossings: list[Crossing], workers: int, grid: SyncGrid | None = None) -> list[WindowMachine]:
    lookahead = close_lookaheads(workers, crossings)
    return [
        WindowMachine(at, lookahead, neighbours_of(at, crossings), grid or SyncGrid(0, 0))
        for at in range(workers)
    ]


def one_round(group: list[WindowMachine], mine: list[Contribution]) -> list[Step]:
    """Every machine opens a round; sync messages arrive, the youngest first; every machine closes it."""
    sync_messages: list[tuple[int, int, SyncMessage]] = []
    for at, machine in enumerate(group):
        batches: list[Batch | None] = [
            None if least == NEVER_PS else Batch(0, 0, 0, b"") for least in mine[at].sent_ps
        ]
        sync_messages += [(at, peer, sync_message) for peer, sync_message in machine.open(mine[at], batches)]
    while sync_messages:
        sender, receiver, sync_message = sync_messages.pop()
        sync_messages += [(receiver, peer, more) for peer, more in group[receiver].take(sender, sync_message)]
    assert all(machine.complete for machine in group)
    return [machine.close() for machine in group]


def idle(workers: int, next_ps: int = NEVER_PS, stop_ps: int = NEVER_PS) -> Contribution:
    return Contribution(next_ps, [NEVER_PS] * workers, stop_ps)


def bounds(steps: list[Step]) -> list[int]:
    return [step.until_ps for step in steps]


def test_lookahead_of_a_link_is_least_frame_propagation_and_ingress() -> None:
    # 84 B at 400 Gbit/s are 1,680 ps.
    assert fabric_lookahead_ps(400 * 10**9, 500_000, 300_000, 900_000) == 1_680 + 500_000 + 300_000
    assert fabric_lookahead_ps(400 * 10**9, 500_000, 300_000, 100_000) == 1_680 + 500_000 + 100_000
    # 64 B at 512 Gbit/s are 1,000 ps.
    assert message_lookahead_ps(512 * 10**9, 250_000) == 251_000


def test_lookaheads_add_up_along_the_best_path_and_round_the_shortest_cycle() -> None:
    crossings = [*line(3, 100), Crossing(0, 2, 450)]
    assert close_lookaheads(3, crossings) == [[200, 100, 200], [100, 200, 100], [200, 100, 200]]
    assert close_lookaheads(2, [Crossing(0, 1, 5)]) == [[NEVER_PS, 5], [NEVER_PS, NEVER_PS]]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_nobody_runs_beyond_the_next_act_of_who_is_listened_to_and_all_stand_behind_what_it_said(
    workers: int,
) -> None:
    group = machines(line(workers, US), workers)
    for machine in group:
        machine.hears_after_ps = 300

    def reported(next_ps: int, acts_ps: int, pause_ps: int = NEVER_PS) -> list[Contribution]:
        """The last worker has the event and hosts who is listened to; the first one is told to pause."""
        mine = [idle(workers) for _ in range(workers)]
        mine[0].pause_ps = pause_ps
        mine[-1].next_ps = next_ps
        mine[-1].acts_ps = acts_ps
        return mine

    # Events at 1000 and an act at 1200; then what may act after a message; then the act itself.
    assert set(bounds(one_round(group, reported(1000, 1200)))) == {1200}
    assert set(bounds(one_round(group, reported(1000, NEVER_PS)))) == {1300}
    assert set(bounds(one_round(group, reported(1300, 1300)))) == {1301}
    steps = one_round(group, reported(1301, 1450, pause_ps=1301))
    assert [(step.sync.time_ps, step.sync.requested) for step in steps if step.sync] == [
        (1301, True)
    ] * workers
    assert set(bounds(steps)) == {1301}
    assert set(bounds(one_round(group, reported(1301, 1450)))) == {1450}


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 9])
def test_gap_of_four_seconds_costs_one_round(workers: int) -> None:
    group = machines(line(workers, US), workers)
    steps = one_round(group, [idle(workers, FOUR_SECONDS + at) for at in range(workers)])
    # Worker 1 hears from worker 0 first; worker 0 from worker 1, or from itself round the cycle.
    assert bounds(steps)[:2] == [FOUR_SECONDS + 1 + US, FOUR_SECONDS + US]
    assert all(step.until_ps > FOUR_SECONDS for step in steps)


def test_window_has_an_end_however_far_apart_the_workers_are() -> None:
    far = [Crossing(0, 1, FOUR_SECONDS), Crossing(1, 0, FOUR_SECONDS)]
    steps = one_round(machines(far, 2), [idle(2, 7 * US), idle(2, 9 * US)])
    assert bounds(steps) == [57 * US, 57 * US]
    alone = one_round(machines([], 1, SyncGrid(FOUR_SECONDS, 0)), [idle(1, 7 * US)])
    assert bounds(alone) == [FOUR_SECONDS]


def test_bound_is_the_nearest_event_that_can_reach_a_worker() -> None:
    group = machines(line(3, 10), 3)
    steps = one_round(group, [idle(3, 1000), idle(3, 2000), idle(3, 1005)])
    # 0: itself and back (1020), 2 over 1 (1025); 1: 0 (1010), 2 (1015); 2: 0 over 1 (1020), itself (1025).
    assert bounds(steps) == [1020, 1010, 1020]


def test_arrival_that_was_sent_counts_as_the_receivers_next_event() -> None:
    group = machines(line(2, 10), 2)
    mine = [Contribution(NEVER_PS, [NEVER_PS, 700]), idle(2, 900)]
    steps = one_round(group, mine)
    assert bounds(steps) == [710, 720]
    assert [peer for peer, _ in steps[1].batches] == [0]
    assert steps[0].batches == []


@pytest.mark.parametrize("workers", [2, 4, 5, 8])
def test_end_is_announced_to_all_and_nobody_runs_past_it(workers: int) -> None:
    group = machines(line(workers, 10), workers)
    steps = one_round(group, [idle(workers, 100, 105 if at == 0 else NEVER_PS) for at in range(workers)])
    assert max(bounds(steps)) == 105
    steps = one_round(group, [idle(workers, 105, 105 if at == 0 else NEVER_PS) for at in range(workers)])
    assert {(step.ending, step.virtual_ps) for step in steps} == {(Ending.FINISHED, 105)}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_everyone_acts_at_a_sync_point_once_nobody_has_an_event_before_it(workers: int) -> None:
    group = machines(line(workers, 10), workers, SyncGrid(1000, 0))
    steps = one_round(group, [idle(workers, 995 + at) for at in range(workers)])
    assert max(bounds(steps)) == 1000
    assert [step.sync for step in steps] == [None] * workers
    steps = one_round(group, [idle(workers, 1000 + at) for at in range(workers)])
    assert {step.sync.time_ps for step in steps if step.sync is not None} == {1000}
    assert all(step.sync is not None and step.sync.sample for step in steps)
    assert all(1000 < step.until_ps <= 2000 for step in steps)


def test_samples_in_which_nothing_happened_are_left_out() -> None:
    group = machines([], 1, SyncGrid(1000, 0))
    assert one_round(group, [idle(1, 50_500)])[0].until_ps == 51_000
    sync = one_round(group, [idle(1, 51_000)])[0].sync
    assert sync is not None
    assert sync.time_ps == 51_000


def test_stall_is_found_at_the_first_check_without_progress() -> None:
    group = machines([], 1, SyncGrid(0, 1000))
    for check, progress in ((1000, 5), (2000, 6)):
        step = one_round(group, [Contribution(check + 1, [NEVER_PS], progress=progress, work=1)])[0]
        assert step.ending is None, check
    step = one_round(group, [Contribution(3001, [NEVER_PS], progress=6, work=1)])[0]
    assert (step.ending, step.virtual_ps) == (Ending.STALLED, 3000)


def test_no_progress_is_no_stall_while_something_is_promised() -> None:
    group = machines([], 1, SyncGrid(0, 1000))
    for check in (1000, 2000, 3000):
        mine = Contribution(check + 1, [NEVER_PS], progress=0, work=1, promises=1)
        assert one_round(group, [mine])[0].ending is None


def test_only_upkeep_pending_is_a_stall_at_the_next_check() -> None:
    group = machines(line(2, 10), 2, SyncGrid(0, 1000))
    steps = one_round(group, [Contribution(1500, [NEVER_PS] * 2, progress=9, work=0) for _ in range(2)])
    assert {(step.ending, step.virtual_ps) for step in steps} == {(Ending.STALLED, 1000)}


def test_time_limit_ends_a_run_that_would_go_on() -> None:
    group = machines(line(2, 10), 2, SyncGrid(0, 0, max_time_ps=5000))
    assert bounds(one_round(group, [idle(2, 4995), idle(2, 4999)])) == [5000, 5000]
    steps = one_round(group, [idle(2, 5000), idle(2, 6000)])
    assert {(step.ending, step.virtual_ps) for step in steps} == {(Ending.TIME_LIMIT, 5000)}


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_requested_sync_point_is_one_that_nobody_has_passed(workers: int) -> None:
    group = machines(line(workers, 10), workers)
    first = one_round(group, [idle(workers, 1000) for _ in range(workers)])
    group[0].request_sync(500)
    reached = [step.until_ps for step in first]
    mine = [idle(workers, 10**9) for _ in range(workers)]
    for at, contribution in enumerate(mine):
        contribution.reached_ps = min(reached[at], 1700)
    steps = one_round(group, mine)
    times = {step.sync.time_ps for step in steps if step.sync is not None}
    assert len(times) == 1
    assert min(times) >= (1700 if workers == 1 else max(reached))
    # Those who act may make events that the others have not heard of: nobody runs before the next round.
    assert {step.until_ps for step in steps} == times
    assert all(step.sync is None for step in one_round(group, [idle(workers, 10**9) for _ in range(workers)]))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_there_are_no_two_requested_sync_points_at_one_time(workers: int) -> None:
    group = machines(line(workers, 100), workers)
    passed: list[int] = []
    for _ in range(4):
        group[0].request_sync(500)
        for _ in range(6):
            (step, *_) = one_round(group, [idle(workers, 500) for _ in range(workers)])
            passed += [step.sync.time_ps] if step.sync is not None else []
    assert passed == [500]  # nobody gets beyond what happens at 500, so there is no time for a second
    resumed = machines(line(workers, 100), workers)
    for machine, saved in zip(resumed, group, strict=True):
        machine.load(saved.save())
    resumed[0].request_sync(0)
    steps = [one_round(resumed, [idle(workers, 900) for _ in range(workers)])[0] for _ in range(6)]
    assert [step.sync.time_ps > 500 for step in steps if step.sync is not None] == [True]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_changes_are_not_made_before_their_time_though_a_snapshot_comes_between(workers: int) -> None:
    group = machines(line(workers, 100), workers)
    group[0].request_changes(2, not_before_ps=5000)
    one_round(group, [idle(workers, 400) for _ in range(workers)])
    group[0].request_sync(500)
    made: list[tuple[int, int]] = []
    for next_ps in (700, 900, 3000, 6000, 6000, 9000, 9000):
        steps = one_round(group, [idle(workers, next_ps) for _ in range(workers)])
        (sync,) = {step.sync for step in steps}
        made += [(sync.time_ps >= 5000, sync.changes)] if sync is not None else []
    assert made == [(False, 0), (True, 2)]


def test_sync_point_requested_for_later_waits_for_its_time() -> None:
    group = machines(line(2, 10), 2)
    group[0].request_sync(5000)
    assert bounds(one_round(group, [idle(2, 4990), idle(2, 4990)])) == [5000, 5000]
    steps = one_round(group, [idle(2, 5000), idle(2, 5001)])
    assert [step.sync.requested for step in steps if step.sync is not None] == [True, True]


def test_sync_message_of_the_next_round_is_held_until_it_is_due() -> None:
    fast, slow = machines(line(2, 10), 2)
    early = SyncMessage("batch", 1, vec[i64]([100, *[NEVER_PS] * 6, 0, 0, 0, 0]), None)
    assert slow.take(0, early) == []
    slow.open(idle(2, 50), [None, None])
    assert slow.complete
    assert slow.close().until_ps == 70
    assert fast.round == 0


BAD_SYNC_MESSAGES = {
    "of a round long past": SyncMessage("batch", 0, vec[i64]([1] * 11), None),
    "of a round far ahead": SyncMessage("batch", 3, vec[i64]([1] * 11), None),
    "with too few integers": SyncMessage("batch", 1, vec[i64]([1] * 10), None),
    "with too many integers": SyncMessage("batch", 1, vec[i64]([1] * 12), None),
    "with a negative time": SyncMessage("batch", 1, vec[i64]([-1] * 11), None),
    "gathered where all talk to all": SyncMessage("gather", 1, vec[i64]([1] * 11), None),
    "spread where all talk to all": SyncMessage("spread", 1, vec[i64]([1] * 11), None),
}


@pytest.mark.parametrize("sync_message", BAD_SYNC_MESSAGES.values(), ids=BAD_SYNC_MESSAGES.keys())
def test_sync_message_that_is_not_due_is_refused(sync_message: SyncMessage) -> None:
    machine = machines(line(2, 10), 2)[0]
    machine.open(idle(2), [None, None])
    with pytest.raises(ProtocolError):
        machine.take(1, sync_message)


def test_second_batch_of_a_round_is_refused() -> None:
    machine = machines(line(3, 10), 3)[0]
    machine.open(idle(3), [None] * 3)
    sync_message = SyncMessage("batch", 1, vec[i64]([1] * 12), None)
    machine.take(1, sync_message)
    with pytest.raises(ProtocolError):
        machine.take(1, sync_message)
    assert machine.missing() == [2]


def test_peer_that_floods_ahead_of_the_round_is_refused() -> None:
    machine = machines(line(2, 10), 2)[0]
    machine.open(idle(2), [None, None])
    flood = [SyncMessage("batch", 2, vec[i64]([1] * 10), None)] * 100
    with pytest.raises(ProtocolError, match="worker 1 sends ahead of round 1"):
        _ = [machine.take(1, sync_message) for sync_message in flood]


def test_large_groups_talk_along_a_tree_and_to_neighbours_only() -> None:
    group = machines(line(9, 10), 9)
    assert group[4].peers == [1, 3, 5]
    assert group[1].peers == [0, 2, 3, 4]
    assert [len(machine.peers) for machine in machines(line(4, 10), 4)] == [3, 3, 3, 3]


def test_a_run_samples_at_further_points_besides_its_grid() -> None:
    grid = SyncGrid(1000, 0, also_ps=(300, 1000, 1700))
    points = [0]
    while points[-1] < 3000:
        points.append(grid.next_sample_ps(points[-1]))
    assert points == [0, 300, 1000, 1700, 2000, 3000]
    assert SyncGrid(0, 0, also_ps=(300,)).next_sample_ps(300) == NEVER_PS
