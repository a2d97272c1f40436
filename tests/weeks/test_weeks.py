"""Does a job of weeks go on after a failure when and where a hand calculation says?"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.doors.weeks.failure_tables import Shows
from emu.doors.weeks.weeks import Cause, Course, Hit, Logged, Row, followed, strikes_of, weeks

S = 1000


def cause(
    shows: Shows = "stop", hosts: int = 1, noticed: int = 40, slow_step: int = 10, takes: int = 0
) -> Cause:
    return Cause(shows, shows, Fraction(1, 10**9), hosts, noticed * S, slow_step * S, takes * S)


def course(*causes: Cause, lasts: int = 1_000, spare_hosts: int = 4, **changes: Any) -> Course:
    plain = Course(
        lasts_ms=lasts * S,
        step_ms=10 * S,
        steps_between=10,
        stalls_ms=5 * S,
        written_ms=33 * S,
        loads_ms=20 * S,
        kept=3,
        self_check_ms=60 * S,
        replace_ms=30 * S,
        init_ms=10 * S,
        repaired_ms=500 * S,
        spare_hosts=spare_hosts,
        causes=causes,
    )
    return replace(plain, **changes)


def reported(rows: tuple[Row, ...]) -> list[tuple[int, int, str, int, int]]:
    """Seconds, phase, steps before and after."""
    return [(row.begin_ms // S, row.end_ms // S, row.phase, row.steps_from, row.steps_to) for row in rows]


def test_a_stopped_job_goes_back_to_the_newest_whole_checkpoint_and_on_after_every_phase() -> None:
    # ten steps, 5 s of checkpoint, nine steps and half of one; the checkpoint is whole at 138 s
    found = followed(course(cause()), [(200 * S, 0)])
    assert reported(found.rows) == [
        (0, 200, "training", 0, 19),
        (200, 240, "noticing", 10, 10),
        (240, 300, "self_check", 10, 10),
        (300, 330, "replacing", 10, 10),
        (330, 340, "init", 10, 10),
        (340, 360, "loading", 10, 10),
        (360, 1000, "training", 10, 10 + 61),
    ]
    # 640 s: six times ten steps with 5 s after them, and one step
    assert found.rows[-1].stalled_ms == 30 * S


def test_a_checkpoint_that_is_not_whole_yet_is_none() -> None:
    assert followed(course(cause()), [(137 * S, 0)]).rows[1].steps_to == 0
    assert followed(course(cause()), [(138 * S, 0)]).rows[1].steps_to == 10


def test_software_takes_no_host_out() -> None:
    phases = [row.phase for row in followed(course(cause(hosts=0)), [(200 * S, 0)]).rows]
    assert phases == ["training", "noticing", "self_check", "init", "loading", "training"]


def test_without_a_spare_host_the_job_waits_until_the_broken_one_is_repaired() -> None:
    found = followed(course(cause(), spare_hosts=0), [(200 * S, 0)])
    assert reported(found.rows)[3:5] == [
        (300, 800, "waiting_for_spares", 10, 10),
        (800, 830, "replacing", 10, 10),
    ]


def test_a_job_that_lacks_two_hosts_waits_for_the_second_repair() -> None:
    # one host goes to repair at 300 s, and the only spare one takes its place; two more go at 550 s
    found = followed(
        course(cause(), cause(hosts=2), lasts=2_000, spare_hosts=1), [(200 * S, 0), (450 * S, 1)]
    )
    waits = [row[:3] for row in reported(found.rows) if row[2] == "waiting_for_spares"]
    assert waits == [(550, 550 + 500, "waiting_for_spares")]


def test_hosts_that_fail_together_wait_for_as_many_spares() -> None:
    # three of four spare ones go at 330 s; of the next three two must come back, sent to repair at 300 s
    found = followed(course(cause(hosts=3), spare_hosts=4), [(200 * S, 0), (450 * S, 0)])
    waits = [row for row in reported(found.rows) if row[2] == "waiting_for_spares"]
    assert waits == [(550, 800, "waiting_for_spares", waits[0][3], waits[0][4])]


def test_a_failure_during_recovery_begins_it_again_from_the_self_check() -> None:
    found = followed(course(cause()), [(200 * S, 0), (320 * S, 0)])
    assert reported(found.rows)[3:6] == [
        (300, 320, "replacing", 10, 10),
        (320, 380, "self_check", 10, 10),
        (380, 410, "replacing", 10, 10),
    ]


def test_a_slow_job_saves_when_it_is_noticed_and_loses_nothing() -> None:
    # from 205 s on a step takes 20 s, but for the checkpoint until 210 s
    found = followed(course(cause("slow", slow_step=20)), [(200 * S, 0)])
    assert reported(found.rows)[:4] == [
        (0, 200, "training", 0, 19),
        (200, 240, "slowed", 19, 21),
        (240, 278, "checkpoint", 21, 21),
        (278, 338, "self_check", 21, 21),
    ]
    assert reported(found.rows)[-1][3] == 21


def test_a_job_that_breaks_off_while_it_saves_has_not_saved() -> None:
    slow, stop = cause("slow", slow_step=20), cause()
    found = followed(course(slow, stop), [(200 * S, 0), (277 * S, 1)])
    assert reported(found.rows)[3] == (277, 317, "noticing", 20, 20)
    found = followed(course(slow, stop), [(200 * S, 0), (279 * S, 1)])
    assert reported(found.rows)[4] == (279, 339, "self_check", 21, 21)


def test_silent_corruption_goes_back_behind_the_time_it_began() -> None:
    # begun at 104 s, during the first checkpoint (100 to 105 s, of what was there at 100 s); noticed at 404 s
    found = followed(course(cause("silent", noticed=300)), [(104 * S, 0)])
    assert reported(found.rows)[2][:4] == (404, 464, "self_check", 10)
    found = followed(course(cause("silent", noticed=300)), [(99 * S, 0)])
    assert reported(found.rows)[2][:4] == (399, 459, "self_check", 0)


def test_corruption_older_than_every_kept_checkpoint_costs_the_whole_run() -> None:
    found = followed(course(cause("silent", noticed=600), kept=2), [(104 * S, 0)])
    assert reported(found.rows)[2][:4] == (704, 764, "self_check", 0)


def test_corruption_that_a_restart_undid_is_never_noticed() -> None:
    # struck at 150 s; the stop at 200 s goes back to the checkpoint of 100 s
    found = followed(course(cause("silent", noticed=300), cause()), [(150 * S, 0), (200 * S, 1)])
    assert sum(row.phase == "self_check" for row in found.rows) == 1


def test_with_one_kept_the_last_whole_checkpoint_stays_until_the_next_is_whole() -> None:
    # ten steps take 100 s and a checkpoint 150 s to be written: that of 100 s is whole at 255 s, and the
    # next one begins at 205 s
    found = followed(course(cause(), kept=1, written_ms=150 * S), [(254 * S, 0)])
    assert found.rows[1].steps_to == 0
    found = followed(course(cause(), kept=1, written_ms=150 * S), [(255 * S, 0)])
    assert found.rows[1].steps_to == 10


def test_a_lost_host_is_noticed_though_the_job_hangs_already() -> None:
    # the watchdog would end the hang at 800 s; heartbeats miss the host at 290 s
    hang = cause("hang", hosts=0, noticed=600)
    found = followed(course(hang, cause()), [(200 * S, 0), (250 * S, 1)])
    assert [row[:3] for row in reported(found.rows)[1:5]] == [
        (200, 250, "noticing"),
        (250, 290, "noticing"),
        (290, 350, "self_check"),
        (350, 380, "replacing"),
    ]


def test_planned_work_is_done_though_something_else_breaks() -> None:
    planned = cause("planned", hosts=0, noticed=0, takes=100)
    found = followed(course(planned, cause()), [(200 * S, 0), (268 * S, 1)])
    assert [row[:3] for row in reported(found.rows)[2:6]] == [
        (238, 268, "planned"),
        (268, 338, "planned"),
        (338, 398, "self_check"),
        (398, 428, "replacing"),
    ]
    # a stop at 220 s, while the checkpoint is written: noticed, worked on, then checked
    found = followed(course(planned, cause()), [(200 * S, 0), (220 * S, 1)])
    assert [row[:3] for row in reported(found.rows)[2:5]] == [
        (220, 260, "noticing"),
        (260, 360, "planned"),
        (360, 420, "self_check"),
    ]


def test_a_slow_host_that_a_stop_lets_the_check_find_is_replaced_too() -> None:
    # both hosts go at 300 s where one is spare: the other comes back 500 s later
    slow, stop = cause("slow", slow_step=20, noticed=300), cause()
    found = followed(course(slow, stop, spare_hosts=1), [(150 * S, 0), (200 * S, 1)])
    assert [row[:3] for row in reported(found.rows) if row[2] == "waiting_for_spares"] == [
        (300, 800, "waiting_for_spares")
    ]


def test_a_slow_host_stays_slow_after_planned_work_until_it_is_noticed() -> None:
    slow, planned = cause("slow", slow_step=20, noticed=300), cause("planned", hosts=0, takes=50)
    found = followed(course(slow, planned), [(150 * S, 0), (200 * S, 1)])
    assert [row[:3] for row in reported(found.rows)[4:8]] == [
        (288, 298, "init"),
        (298, 318, "loading"),
        (318, 450, "slowed"),
        (450, 488, "checkpoint"),
    ]


def test_planned_work_begins_after_a_checkpoint_and_takes_its_time() -> None:
    found = followed(course(cause("planned", hosts=0, noticed=0, takes=100)), [(200 * S, 0)])
    assert reported(found.rows) == [
        (0, 200, "training", 0, 19),
        (200, 238, "checkpoint", 19, 19),
        (238, 338, "planned", 19, 19),
        (338, 348, "init", 19, 19),
        (348, 368, "loading", 19, 19),
        (368, 1000, "training", 19, 19 + 60),
    ]


def test_without_failures_and_without_stalls_all_time_counts() -> None:
    found = weeks(course(stalls_ms=0), 1)
    assert found.kept_ms() == found.lasts_ms
    assert found.shares_ms()["kept"] == found.lasts_ms


CAUSES = (
    cause(),
    cause("hang", hosts=0, noticed=90),
    cause("slow", slow_step=13, noticed=120),
    cause("silent", noticed=200),
    cause("planned", hosts=0, noticed=0, takes=70),
    cause("stop", hosts=3),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5_000 * S), st.integers(0, 5)), max_size=40),
    st.integers(0, 4),
    st.integers(1, 4),
)
def test_rows_fill_the_time_without_a_gap_and_shares_add_up_to_it(
    strikes: list[tuple[int, int]], spares: int, kept: int
) -> None:
    found = followed(course(*CAUSES, lasts=5_000, spare_hosts=spares, kept=kept), sorted(strikes))
    assert found.rows[0].begin_ms == 0
    assert found.rows[-1].end_ms == found.lasts_ms
    for one, following in zip(found.rows, found.rows[1:], strict=False):
        assert one.end_ms == following.begin_ms
        assert following.steps_from <= one.steps_to
    shares = found.shares_ms()
    assert sum(shares.values()) == found.lasts_ms
    assert min(shares.values()) >= 0, shares


def test_causes_strike_as_often_as_they_are_said_to() -> None:
    often = replace(cause(), per_ms=Fraction(1, 3_600_000))
    once, twice = course(often, lasts=400 * 3600), course(often, often, lasts=10**5)
    counts = [len(strikes_of(once, seed)) for seed in range(25)]
    # 10,000 expected of a Poisson process: three standard errors are 300
    assert sum(counts) == pytest.approx(10_000, abs=300)
    assert strikes_of(twice, 1) != strikes_of(twice, 2)


def logged(**changes: Any) -> Logged:
    """Two hosts of four that failed in 1,000 s: one three times, one once; and software, twice."""
    lemon = tuple(Hit(at * S, 0, "lemon", 1, 900 * S) for at in (100, 150, 700))
    once, nobody = (Hit(400 * S, 0, "b", 1, -1),), (Hit(50 * S, 1, "", 0, -1), Hit(60 * S, 1, "", 0, -1))
    return Logged((lemon, once), nobody, 4, 1_000 * S, Fraction(1), replayed=False)._replace(**changes)


def test_a_replayed_log_strikes_its_hosts_at_its_times_and_repairs_them_for_as_long() -> None:
    own = replace(course(cause(), cause(hosts=0), spare_hosts=0), log=logged(replayed=True))
    found = weeks(own, 1)
    assert [(one.at_ms // S, one.host) for one in found.strikes] == [
        (50, ""),
        (60, ""),
        (100, "lemon"),
        (150, "lemon"),
        (400, "b"),
        (700, "lemon"),
    ]
    assert weeks(own, 2) == found
    # both failures of lemon are found by the check until 210 s; one of the job's places waits 900 s
    lemon = logged(replayed=True, by_host=(logged().by_host[0][:2],), of_none=())
    rows = reported(weeks(replace(own, log=lemon, lasts_ms=2_000 * S), 1).rows)
    assert rows[2:6] == [
        (140, 150, "self_check", 0, 0),
        (150, 210, "self_check", 0, 0),
        (210, 1110, "waiting_for_spares", 0, 0),
        (1110, 1140, "replacing", 0, 0),
    ]


@settings(max_examples=20)
@given(hosts=st.integers(1, 40), times=st.fractions(Fraction(1, 3), 3), seed=st.integers(0, 99))
def test_a_resampled_host_has_the_gaps_of_a_host_of_the_log(hosts: int, times: Fraction, seed: int) -> None:
    own = course(replace(cause(), logged=True), replace(cause(hosts=0), logged=True), lasts=10_000)
    own = replace(own, job_hosts=hosts, log=logged(times=times))
    by_host: dict[str, list[int]] = {}
    for one in strikes_of(own, seed):
        by_host.setdefault(one.host, []).append(one.at_ms // S % 1_000)
    by_host.pop("", None)
    assert set(by_host) <= {str(one) for one in range(hosts)}
    if times <= 1:  # a host has one record at most
        for struck in by_host.values():
            around = sorted(set(struck))
            gaps = sorted((b - a) % 1_000 for a, b in zip(around, [*around[1:], around[0]], strict=True))
            assert gaps in ([0], [50, 400, 550])
            assert len(struck) == 10 * len(around)


def test_a_resampled_log_strikes_as_often_as_the_recorded_hosts_did() -> None:
    own = course(replace(cause(), logged=True), replace(cause(hosts=0), logged=True), lasts=2_000)
    own = replace(own, job_hosts=40, log=logged(times=Fraction(3, 2)))
    counts = [Counter(bool(one.host) for one in strikes_of(own, seed)) for seed in range(200)]
    # 40 hosts of four that failed four times in 1,000 s, for 2,000 s, half as often again
    assert fmean(one[True] for one in counts) == pytest.approx(40 / 4 * 4 * 2 * 1.5, rel=0.03)
    assert fmean(one[False] for one in counts) == pytest.approx(40 / 4 * 2 * 2 * 1.5, rel=0.03)


def test_time_to_notice_and_to_recover_are_those_of_the_hand_calculation() -> None:
    work = replace(cause("planned", hosts=0, noticed=0, takes=100), name="planned")
    found = followed(course(cause(), work), [(200 * S, 0), (600 * S, 1)])
    # noticed 40 s after it; 160 s until it trains: 40 + 60 + 30 + 10 + 20. Planned work is no recovery.
    assert found.noticed_ms == (40 * S,)
    assert found.recovered_ms({"planned"}) == [160 * S]
