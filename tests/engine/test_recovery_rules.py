"""When a snapshot is due, when it is whole, and how often a run that breaks is begun again."""

from emu.engine.recovery.rules import Patience, SnapshotClock
from emu.engine.recovery.snapshots import Saved


def saved(sync_ps: int, cost_s: float, error: str = "") -> Saved:
    return Saved(sync_ps, b"" if error else b"digest", cost_s, error)


def test_a_snapshot_is_asked_for_once_and_then_when_three_percent_allow_it() -> None:
    clock = SnapshotClock(2, None)
    clock.begin(100.0, 0.03)
    assert not clock.due(101.9)
    assert clock.due(102.0)
    assert not clock.due(110.0)
    assert clock.take(0, saved(7, 0.1), 111.0) == []
    assert not clock.due(130.0)
    assert clock.take(1, saved(7, 0.3), 112.0) == [saved(7, 0.1), saved(7, 0.3)]
    assert not clock.due(121.9)
    assert clock.due(122.0)
    assert (clock.taken, clock.cost_s) == (1, 0.3)


def test_before_the_first_one_building_stands_for_its_cost() -> None:
    clock = SnapshotClock(1, None)
    clock.begin(0.0, 3.0)
    assert not clock.due(99.0)
    assert clock.due(100.0)


def test_the_user_sets_the_distance_or_wants_none() -> None:
    clock = SnapshotClock(1, 0.5)
    clock.begin(0.0, 3.0)
    assert not clock.due(0.49)
    assert clock.due(0.5)
    never = SnapshotClock(1, 0.0)
    never.begin(0.0, 0.0)
    assert not never.due(1e9)


def test_a_share_that_was_not_written_makes_no_snapshot_and_doubles_the_distance() -> None:
    clock = SnapshotClock(2, 1.0)
    clock.begin(0.0, 0.0)
    assert clock.due(1.0)
    clock.take(1, saved(7, 0.1), 1.0)
    assert [one.error for one in clock.take(0, saved(7, 0.1, "no space"), 1.0)] == ["no space", ""]
    assert clock.taken == 0
    assert not clock.due(2.9)
    assert clock.due(3.0)


def test_what_was_under_way_when_the_run_went_back_is_forgotten() -> None:
    clock = SnapshotClock(2, 1.0)
    clock.begin(0.0, 0.0)
    assert clock.due(1.0)
    clock.take(0, saved(7, 0.1), 1.0)
    clock.begin(10.0, 0.0)
    assert clock.take(1, saved(7, 0.1), 10.5) == []
    assert not clock.due(10.9)
    assert clock.due(11.0)


def test_one_that_never_becomes_whole_is_asked_for_again_after_a_minute() -> None:
    clock = SnapshotClock(1, 1.0)
    clock.begin(0.0, 0.0)
    assert clock.due(1.0)
    assert not clock.due(60.9)
    assert clock.due(61.0)


def test_a_run_that_gets_farther_is_begun_again_without_end() -> None:
    patience = Patience(2)
    assert all(patience.failed(at_ps) for at_ps in range(100))
    assert patience.recoveries == 100


def test_a_run_that_gets_no_farther_is_given_up() -> None:
    patience = Patience(2)
    assert [patience.failed(50) for _ in range(3)] == [True, True, False]
    assert patience.recoveries == 2
    assert not Patience(0).failed(1)
