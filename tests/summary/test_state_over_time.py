"""Series of jobs and faults over time: what an expectation is judged by is what a scrape then shows."""

from typing import Any

import pytest

from actors.kernel.event import NEVER_PS
from emu import api
from emu.counts.collected import Changed
from emu.devices.drawing import blueprint_of
from emu.devices.job_plans import job_plans
from emu.scenario.expect import SeriesExpectation
from emu.scenario.fault_schedule import scripted
from emu.scenario.faults.events import spans_of
from emu.summary.series import State, lines_of_state
from tests.summary.test_state_series import states

US = 10**6
TINY = "scenarios/start/tiny_all_reduce.yaml"
DOWN = {"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"}
BROKEN: dict[str, Any] = {"faults": [DOWN], "transport.timeout": 4, "run.sample_every": "10us"}
RING = {"job_name": "ring"}
TRAIN = {"job_name": "train"}
MEMBER = "emu_routing_group_member_payload_bytes_total"
SENT: dict[str, Any] = {"series": MEMBER, "rate": True}
UPLINK = {"device": "rtsw-0", "peer": "ctsw-0", "direction": "up"}


def verdicts(expect: list[dict[str, Any]], source: Any = TINY, **changes: Any) -> list[str]:
    """Why each does not hold; empty where it does."""
    result = api.run(source, overrides=BROKEN | changes | {"expect": expect}, local=True, diagnose=False)
    return [one.reason for one in result.summary.expectations]


HOLDS: list[dict[str, Any]] = [
    {"series": "emu_faults_active", "always": {"equals": 0}, "until": "19us"},
    {"series": "emu_faults_active", "always": {"equals": 1}, "from": "20us", "until": "49us"},
    {"series": "emu_faults_active", "always": {"equals": 0}, "within": "1ms of the end of fault 0"},
    {"series": "emu_faults_total", "reaches": {"equals": 1}},
    {"series": "emu_job_running", "where": RING, "always": {"equals": 1}, "until": "60us"},
    {"series": "emu_job_running", "where": RING, "reaches": {"equals": 0}},
    {"series": "emu_job_failed", "where": RING, "never": {"equals": 1}},
    {"series": "emu_job_operations_total", "where": RING, "never": {"at_least": 1}, "until": "30us"},
    {"series": "emu_job_operations_total", "rate": True, "reaches": {"at_least": 1}},
    {"series": "emu_collectives_total", "where": {"algo_proto": "RING*"}, "reaches": {"at_least": 1}},
    SENT | {"where": UPLINK, "reaches": {"at_least": "1Gbps"}, "until": "20us"},
    SENT | {"where": UPLINK, "never": {"at_least": "1bps"}, "within": "30us of fault 0"},
    SENT | {"where": {"group": "2-3"}, "reaches": {"at_least": "1bps"}},
]  # fmt: skip
FAILS: list[tuple[dict[str, Any], str]] = [
    ({"series": "emu_faults_active", "never": {"equals": 1}}, "emu_faults_active is 1 at 20us"),
    (
        {"series": "emu_faults_active", "always": {"equals": 1}, "from": "30us"},
        "emu_faults_active is 0 at 50us",
    ),
    ({"series": "emu_job_failed", "reaches": {"equals": 1}}, 'emu_job_failed{job_name="ring"} stays 0 at '),
    (
        {"series": "emu_job_step_time_seconds", "reaches": {"at_least": "1us"}},
        "no line of emu_job_step_time_seconds is there in this run",
    ),
    ({"series": MEMBER, "where": {"group": "0-1"}, "never": {"at_least": 1}}, f"no line of {MEMBER}"),
]


def test_jobs_faults_and_groups_can_be_expected_over_time() -> None:
    assert verdicts(HOLDS) == [""] * len(HOLDS)


def test_what_does_not_hold_of_them_is_reported_with_its_time() -> None:
    found = verdicts([keys for keys, _ in FAILS])
    assert [reason.startswith(reported) for reason, (_, reported) in zip(found, FAILS, strict=True)] == [
        True
    ] * len(FAILS), found


def test_a_job_that_fails_has_failed_from_then_on() -> None:
    lost = {"at": "20us", "kind": "gpu_lost", "target": "gpu-1-0"}
    expect: list[dict[str, Any]] = [
        {"value": "jobs.ring.status", "equals": "gpu_lost"},
        {"series": "emu_job_failed", "always": {"equals": 0}, "until": "19us"},
        {"series": "emu_job_failed", "reaches": {"equals": 1}, "within": "5us of fault 0"},
        {"series": "emu_job_running", "reaches": {"equals": 0}, "within": "5us of fault 0"},
    ]
    assert verdicts(expect, faults=[lost]) == [""] * 4


def test_steps_of_training_are_known_when_they_end() -> None:
    result = api.run("scenarios/workloads/training_step.yaml", local=True, diagnose=False)
    training = result.summary.jobs["train"].training
    assert training is not None
    assert training.step_ps is not None
    assert training.mfu is not None
    expect = [
        {"series": "emu_job_step_time_seconds", "always": {"equals": f"{training.step_ps}ps"}},
        {"series": "emu_job_mfu_ratio", "always": {"between": [training.mfu - 2e-6, training.mfu + 2e-6]}},
        {"series": "emu_job_mfu_ratio", "where": TRAIN, "never": {"at_most": training.mfu - 0.01}},
    ]
    again = api.run(
        "scenarios/workloads/training_step.yaml", overrides={"expect": expect}, local=True, diagnose=False
    )
    assert [one.reason for one in again.summary.expectations] == [""] * 3


def at(records: list[Changed], time_ps: int) -> dict[int, int]:
    """The values of lines at a time."""
    found: dict[int, int] = {}
    for record in records:
        flat = record.changed.get(0, ())
        if record.virtual_ps <= time_ps:
            found.update(zip(flat[::2], flat[1::2], strict=True))
    return found


@pytest.mark.parametrize(
    ("series", "key"),
    [
        ("emu_job_operations_total", "job_operations"),
        ("emu_job_running", "job_running"),
        ("emu_job_failed", "job_failed"),
        ("emu_collectives_total", "collectives"),
        ("emu_faults_total", "faults"),
        ("emu_faults_active", "faults_active"),
    ],
)
def test_what_is_judged_is_what_a_scrape_shows(series: str, key: str) -> None:
    prepared = api.prepare(TINY, {"faults": [DOWN], "transport.timeout": 4})
    result = api.run_prepared(prepared, api.RunOptions(local=True, metrics=False))
    rows = [row for one in result.outcome.devices for row in one.results.get("operations", ())]
    plans = job_plans(blueprint_of(prepared.scenario, prepared.topology).plan, prepared.topology)
    occurred = scripted(prepared.scenario, prepared.topology)
    state = State(result.summary.jobs, plans, rows, occurred)
    wanted = SeriesExpectation.model_validate({"series": series, "never": {"equals": -1}})
    _, records = lines_of_state(wanted, state, 10 * US, result.outcome.virtual_ps)
    # The controller hears of an operation's end a management delay later, so one looks apart from ends.
    heard_ps = int(prepared.scenario.control.management_delay_ps)
    ends_ps = [row[3] for row in rows]
    times_ps = [
        at_ps
        for at_ps in range(0, result.outcome.virtual_ps, 7 * US)
        if not any(end_ps <= at_ps <= end_ps + heard_ps + US for end_ps in ends_ps)
    ]
    times_ps.append(result.outcome.virtual_ps)
    assert len(times_ps) > 5
    for at_ps, rows_then in zip(times_ps, states(*times_ps), strict=True):
        shown = {value for _, value in rows_then[key]} or {0}
        assert set(at(records, at_ps).values()) == shown, at_ps


def test_a_repair_ends_what_it_mends_and_nothing_else() -> None:
    prepared = api.prepare(
        TINY,
        {
            "faults": [
                {"at": "10us", "kind": "link_down", "target": "rtsw-0:ctsw-0"},
                {"at": "12us", "kind": "switch_drain", "target": "ctsw-1"},
                {"at": "14us", "kind": "gpu_slow", "target": "gpu-0-0", "for": "5us"},
                {"at": "16us", "kind": "link_up", "target": "rtsw-0:ctsw-0"},
                {"at": "18us", "kind": "link_down", "target": "rtsw-0:ctsw-0"},
            ]
        },
    )
    never = int(NEVER_PS)
    spans = [(10 * US, 16 * US), (12 * US, never), (14 * US, 19 * US), (18 * US, never)]
    assert spans_of(scripted(prepared.scenario, prepared.topology)) == spans
