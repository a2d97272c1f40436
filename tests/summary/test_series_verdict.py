"""Are series judged over their spans as the page says, and is a failed one told with time and value?"""

from collections.abc import Sequence
from typing import Any

import pytest

from actors.kernel.device import Series
from emu.base.errors import ScenarioError
from emu.counts.collected import Changed, DeviceRecord
from emu.results.summary import Collective, Job
from emu.results.summary import Expectation as Verdict
from emu.scenario.expect import SeriesExpectation
from emu.scenario.fault_schedule import scripted
from emu.scenario.spans import FaultTimes, bounds_ps, fault_times
from emu.summary.expectations import judge_series
from emu.summary.series import State
from tests.summary.handmade import fabric, scenario

US = 10**6
TOPOLOGY = fabric()
LEAF = TOPOLOGY.node_named("rtsw-0").number
SPINE = TOPOLOGY.node_named("ctsw-1").number
UP = next(at for at, end in enumerate(TOPOLOGY.ports(LEAF)) if end.peer == SPINE)
LAYOUT = [
    Series("port_transmit_bytes", UP),
    Series("port_dropped_frames", UP, -1, "no_shared_room"),
    Series("port_dropped_frames", UP, -1, "link_down"),
    Series("buffer_used_bytes"),
    Series("pfc_paused_ps", UP, 3),
]
SENT, FULL, LOST, USED, PAUSED = range(5)
SENT_BYTES = "emu_port_transmit_bytes_total"
PAUSES = "emu_pfc_paused_seconds_total"
USE = "emu_buffer_used_bytes"
DROPS = "emu_port_dropped_frames_total"
FAULTS = {0: FaultTimes(300 * US, 400 * US), 1: FaultTimes(500 * US, None), 2: FaultTimes(5000 * US, None)}

HISTORY = [
    (100, [SENT, 100_000, USED, 1000]),
    (200, [SENT, 200_000, FULL, 5]),
    (300, [SENT, 300_000, USED, 9000]),
    (400, [SENT, 310_000, LOST, 2, PAUSED, 50 * US]),
    (500, [SENT, 330_000]),
    (600, [SENT, 430_000, USED, 0]),
    (900, [SENT, 440_000]),
]
"""Samples, in us; from 600 us to 800 us nothing happened. The run ends at 1 ms."""
LATE = "200us into the span, the last point of the span"
NO_LEVEL = "was 0 before the fault, so there is no level to recover to"
RATE = f'rate of {SENT_BYTES}{{device="rtsw-0",port="{UP}"}}'
ENDED = [445_000, 5, 2, 0, 50 * US]


def judged(
    faults: dict[int, FaultTimes] = FAULTS, jobs: dict[str, Job] | None = None, **keys: Any
) -> Verdict:
    one = SeriesExpectation.model_validate(keys)
    lines = [Changed(at * US, {LEAF: flat}) for at, flat in HISTORY]
    record = DeviceRecord(LEAF, (), 1, 0, 0, LAYOUT, ENDED)
    (verdict,) = judge_series(
        [one], lambda: lines, [record], TOPOLOGY, State(jobs or {}), faults, 1000 * US, 100 * US
    )
    assert verdict.passed == (verdict.reason == "") == (verdict.actual is not None)
    return verdict


@pytest.mark.parametrize(
    ("keys", "actual"),
    [
        ({"series": DROPS, "where": {"reason": "headroom*"}, "never": {"at_least": 1}}, None),
        (
            {"series": DROPS, "where": {"reason": "congestion"}, "never": {"at_least": 6}},
            "so at all 9 points",
        ),
        (
            {"series": DROPS, "where": {"reason": "congestion"}, "never": {"at_least": 1}, "from": "200us"},
            "so at all 7 points",
        ),
        ({"series": DROPS, "combine": "sum", "reaches": {"equals": 7}}, "so at 400us"),
        (
            {"series": DROPS, "where": {"peer": "ctsw-1"}, "combine": "max", "always": {"at_most": 5}},
            "so at all 9 points",
        ),
        (
            {"series": USE, "always": {"between": ("1KB", "9KB")}, "until": "500us", "from": "100us"},
            "so at all 5 points",
        ),
        ({"series": USE, "never": {"at_least": 1}, "from": "610us", "until": "690us"}, "so at all 2 points"),
        ({"series": PAUSES, "rate": True, "never": {"at_least": 0.51}}, "so at all 8 points"),
        ({"series": PAUSES, "rate": True, "reaches": {"equals": 0.5}}, "so at 400us"),
        (
            {"series": SENT_BYTES, "rate": True, "reaches": {"equals": "8Gbps"}, "until": "100us"},
            "so at 100us",
        ),
        (
            {"series": SENT_BYTES, "rate": True, "recovers_to": "95%", "within": "300us of fault 0"},
            "there from 600us, 300us into the span on, 800Mbps at the lowest",
        ),
        (
            {
                "series": SENT_BYTES,
                "rate": True,
                "recovers_to": "7Gbps",
                "within": "200us of the end of fault 0",
            },
            "there from 600us, 200us into the span on, 1.6Gbps at the lowest",
        ),
    ],
)
def test_what_holds_over_its_span_passes(keys: dict[str, Any], actual: str | None) -> None:
    verdict = judged(**keys)
    if actual is None:
        assert verdict.reason == f"no line of {DROPS} is there in this run"
    else:
        assert (verdict.reason, verdict.actual) == ("", actual)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"series": DROPS, "where": {"reason": "congestion"}, "never": {"at_least": 1}},
            f'{DROPS}{{device="rtsw-0",port="{UP}",reason="no_shared_room"}} is 5 at 200us',
        ),
        (
            {"series": DROPS, "never": {"at_least": 1}, "within": "150us of fault 0"},
            f'{DROPS}{{device="rtsw-0",port="{UP}",reason="link_down"}} is 2 at 400us, 100us into the span',
        ),
        (
            {"series": USE, "always": {"at_most": "8KiB"}},
            'emu_buffer_used_bytes{device="rtsw-0"} is 8.789KiB at 300us',
        ),
        (
            {"series": DROPS, "combine": "sum", "reaches": {"at_least": 8}},
            f"sum of {DROPS} is 0 to 7 at all 9 points",
        ),
        (
            {"series": SENT_BYTES, "rate": True, "recovers_to": "95%", "within": "200us of fault 0"},
            f"{RATE} is 1.6Gbps at 500us, {LATE}, less than 7.6Gbps",
        ),
        (
            {"series": SENT_BYTES, "rate": True, "recovers_to": "95%", "within": "600us of fault 0"},
            f"{RATE} is 800Mbps at 900us, 600us into the span, the last point of the span, less than 7.6Gbps",
        ),
        (
            {
                "series": DROPS,
                "rate": True,
                "where": {"reason": "link_down"},
                "recovers_to": "50%",
                "within": "200us of fault 0",
            },
            f'rate of {DROPS}{{device="rtsw-0",port="{UP}",reason="link_down"}} {NO_LEVEL}',
        ),
        (
            {"series": DROPS, "never": {"at_least": 1}, "within": "1us of fault 2"},
            "the span begins at 5ms, and the run ended at 1ms",
        ),
        (
            {"series": DROPS, "never": {"at_least": 1}, "within": "1us of the end of fault 1"},
            "fault 1 lasts, so it has no end",
        ),
        (
            {"series": PAUSES, "never": {"at_least": "1us"}, "from": "610us", "until": "690us"},
            "no sample was taken between 610us and 690us, so nothing is known of it",
        ),
    ],
)
def test_what_does_not_hold_is_reported_with_time_and_value(keys: dict[str, Any], reason: str) -> None:
    assert judged(**keys).reason == reason


def operations(*rows: tuple[int, int, int]) -> dict[str, Job]:
    """Collectives of a job: begin and end in us, and busbw in Gbit/s."""
    found = [
        Collective(
            op="all_reduce", algorithm="ring", communicator="", bytes=2**20, ranks=4, iteration=at,
            start_ps=begin * US, end_ps=end * US, algbw=busbw * 10**9, busbw=busbw * 10**9,
            status="success", cts_wait=None, wrong=None,
        )
        for at, (begin, end, busbw) in enumerate(rows)
    ]  # fmt: skip
    return {"train": Job(
        ranks=4, status="success", start_ps=0, end_ps=None, collectives=found, flows=[], training=None,
        failures=[], suspects=[],
    )}  # fmt: skip


BUSBW = "emu_collective_bus_bandwidth_bytes_per_second"
SLOWED = operations((0, 100, 100), (100, 200, 90), (200, 350, 40), (350, 450, 96), (450, 700, 30))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"recovers_to": "95%", "within": "200us of fault 0"}, ""),
        (
            {"recovers_to": "95%", "within": "60us of fault 0"},
            f"is 5GB/s at 350us, {LATE.replace('200', '50')}, less than 11.28GB/s",
        ),
        ({"always": {"at_least": "50Gbps"}, "until": "320us"}, ""),
        ({"always": {"at_least": "50Gbps"}}, "is 5GB/s at 350us"),
        (
            {"never": {"at_least": 0}, "within": "40us of fault 0"},
            "no operation ended between 300us and 340us, so nothing is known of it",
        ),
    ],
)
def test_what_collectives_came_to_is_known_when_they_end(keys: dict[str, Any], reason: str) -> None:
    line = f'{BUSBW}{{comm_name="train",nranks="4",collective="AllReduce",message_size="1-2MB"'
    line += ',algo_proto="RING_SIMPLE"}'
    verdict = judged(jobs=SLOWED, series=BUSBW, where={"comm_name": "train"}, **keys)
    assert verdict.reason == (f"{line} {reason}" if reason.startswith("is") else reason)


def test_lines_of_another_job_are_not_asked() -> None:
    keys: dict[str, Any] = {"series": BUSBW, "where": {"comm_name": "other"}, "always": {"at_least": "1Gbps"}}
    assert judged(jobs=SLOWED, **keys).reason == f"no line of {BUSBW} is there in this run"


def refusal(expectation: dict[str, Any]) -> str:
    faults = [{"kind": "link_down", "at": "1us", "target": "rtsw-0:ctsw-0"}]
    with pytest.raises(ScenarioError) as refused:
        scenario(faults=faults, expect=[expectation])
    (problem,) = refused.value.problems
    return f"{problem.key}: {problem.reason}"


NEVER = {"never": {"at_least": 1}}


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        (
            {"series": "emu_port_droped_frames_total", **NEVER},
            f"series: there is no series 'emu_port_droped_frames_total'; did you mean '{DROPS}'?",
        ),
        (
            {"series": "emu_buffer_pool_bytes", **NEVER},
            "series: emu_buffer_pool_bytes never changes",
        ),
        (
            {"series": "emu_windows_total", **NEVER},
            "series: emu_windows_total tells of the emulator itself, which may be another the next time",
        ),
        (
            {"series": DROPS, "where": {"reson": "ttl"}, **NEVER},
            "where.reson: unknown key; did you mean 'reason'?",
        ),
        (
            {"series": DROPS, "where": {"reason": "ttt"}, **NEVER},
            "where.reason: there is no reason 'ttt'; did you mean 'ttl'?",
        ),
        (
            {"series": DROPS, "where": {"priority": 3}, **NEVER},
            f"where.priority: {DROPS} has no label priority",
        ),
        (
            {"series": BUSBW, "where": {"comm_name": "bensh"}, "never": {"at_least": "1G"}},
            "where.comm_name: there is no job 'bensh'; did you mean 'bench'?",
        ),
        ({"series": DROPS}, ": has nothing to hold"),
        ({"series": DROPS, **NEVER, "always": {"equals": 0}}, ": has never and always"),
        (
            {"series": DROPS, "never": {"at_least": "1us"}},
            f"never.at_least: '1us' is not what {DROPS} measures",
        ),
        (
            {"series": SENT_BYTES, "rate": True, "never": {"at_least": 5}},
            f"never.at_least: 5 is not what {SENT_BYTES} measures",
        ),
        ({"series": USE, "rate": True, **NEVER}, f"rate: {USE} is no counter, so it has no rate"),
        ({"series": USE, "recovers_to": "95%"}, "recovers_to: a share of what it was before which fault?"),
        (
            {"series": DROPS, "recovers_to": "95%", "within": "2ms of fault 0"},
            f"rate: {DROPS} only rises: its rate recovers",
        ),
        (
            {"series": DROPS, **NEVER, "within": "2ms of fault 1"},
            "within: there is no fault 1: the scenario has 1, from 0",
        ),
        ({"series": DROPS, **NEVER, "within": "2ms after fault 1"}, "within: '2ms after fault 1' is no span"),
        (
            {"series": DROPS, **NEVER, "within": "1ms of fault 0", "until": "1s"},
            "within: is a span, and so are from and until",
        ),
        ({"series": DROPS, **NEVER, "from": "2us", "until": "1us"}, "until: is not after from"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(keys: dict[str, Any], reported: str) -> None:
    separator = "" if reported.startswith(":") else "."
    assert refusal(keys) == f"expect[0]{separator}{reported}"


def bounds(expect: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    faults = [
        {
            "kind": "link_down",
            "at": "10us",
            "for": "5us",
            "every": "20us",
            "count": 3,
            "target": "rtsw-0:ctsw-0",
        }
    ]
    one = scenario(faults=faults, expect=expect)
    return bounds_ps(one, scripted(one, TOPOLOGY))


def test_a_run_samples_at_both_ends_of_every_span() -> None:
    drops = {"series": DROPS, **NEVER}
    assert bounds([{"value": "drops.total", "equals": 0}]) == ()
    assert bounds([drops]) == ()
    assert bounds([drops | {"from": "3us"}, drops | {"until": "7us"}]) == (3 * US, 7 * US)
    assert bounds([drops | {"within": "2us of fault 0"}]) == (10 * US, 12 * US)
    assert bounds([drops | {"within": "2us of the end of fault 0"}]) == (55 * US, 57 * US)


def test_a_fault_that_lasts_has_no_end() -> None:
    lasting = scenario(faults=[{"kind": "link_down", "at": "10us", "target": "rtsw-0:ctsw-0"}])
    assert fault_times(lasting, scripted(lasting, TOPOLOGY)) == {0: FaultTimes(10 * US, None)}
