"""Are expectations judged exactly, in the unit of the value, and is a failed one told so that it helps?"""

from typing import Any

import pytest

from emu.base.records import RefusedError
from emu.scenario.expect import Expectation, path_steps
from emu.summary.verdict import evaluate
from tests.scenario.scenarios import refusals

SUMMARY: dict[str, Any] = {
    "digest": "ab12",
    "compiled": True,
    "virtual_ps": 300_000_000,
    "engine": {"wall_s": 1.5},
    "drops": {"congestion": 0, "total": 3},
    "faults": [{"frames_lost": 12, "until_ps": None}],
    "fabric": {
        "pfc_transmit_xoff_frames": 7,
        "drops": {"total": 4},
        "buffer_peak_bytes": 65_536,
        "max_over_mean": 1.25,
    },
    "jobs": {
        "bench": {
            "status": "success",
            "collectives": [
                {"bytes": 1_048_576, "busbw": 100 * 10**9},
                {"bytes": 2_097_152, "busbw": 180 * 10**9},
            ],
        },
    },
}


def judged(value: str, **bound: Any) -> str:
    """Empty if the expectation holds, else why not."""
    ((verdict),) = evaluate([Expectation.model_validate({"value": value, **bound})], SUMMARY)
    assert verdict.passed == (verdict.reason == "")
    return verdict.reason


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        ("drops.congestion", {"equals": 0}),
        ("drops.total", {"equals": 3}),
        ("fabric.drops.total", {"equals": 4}),
        ("pfc_transmit_xoff_frames", {"at_least": 7, "at_most": None}),
        ("faults[0].frames_lost", {"between": (12, 13)}),
        ("faults[-1].frames_lost", {"at_most": 12}),
        ("jobs.bench.collectives[-1].busbw", {"at_least": "180Gbps"}),
        ("jobs.bench.collectives[-1].busbw", {"equals": 180_000_000_000}),
        ("jobs.bench.collectives[0].busbw", {"between": ("12.5GB/s", "0.1T")}),
        ("jobs.bench.collectives[0].bytes", {"equals": "1MiB"}),
        ("jobs.bench.status", {"equals": "success"}),
        ("buffer_peak_bytes", {"at_most": "64KiB"}),
        ("virtual_ps", {"equals": "300us"}),
        ("engine.wall_s", {"at_most": "1500ms"}),
        ("engine.wall_s", {"at_least": 1.5}),
        ("max_over_mean", {"at_most": 1.25}),
        ("compiled", {"equals": True}),
        ("digest", {"equals": "ab12"}),
    ],
)
def test_what_holds_passes(value: str, bound: dict[str, Any]) -> None:
    assert judged(value, **{name: one for name, one in bound.items() if one is not None}) == ""


@pytest.mark.parametrize(
    ("value", "bound", "reason"),
    [
        ("drops.total", {"equals": 0}, "3 is not 0"),
        ("drops.total", {"at_least": 4}, "3 is less than 4"),
        ("drops.total", {"at_most": 2.5}, "3 is more than 2.5"),
        ("virtual_ps", {"at_most": "299.999999us"}, "300us is more than 299.999999us"),
        ("jobs.bench.collectives[0].busbw", {"at_least": "101G"}, "12.5GB/s is less than 12.62GB/s"),
        ("jobs.bench.collectives[0].bytes", {"between": ("2MiB", "4MiB")}, "1MiB is less than 2MiB"),
        ("jobs.bench.status", {"equals": "unfinished"}, "'success' is not unfinished"),
        ("jobs.bench.status", {"at_least": 3}, "'success' has no order, so it cannot be at_least 3"),
        ("compiled", {"equals": 1}, "True is not 1"),
        ("drops.congestion", {"equals": False}, "0 is not False"),
        ("drops.total", {"equals": "three"}, "the value is a number, and 'three' is a text"),
        ("drops.total", {"equals": "3us"}, "the value is a number without a unit, and 3us is a time"),
        ("virtual_ps", {"at_most": "1MB"}, "the value is a time, and 1MB is a size"),
        ("engine.wall_s", {"at_most": "1MB"}, "the value is a time, and 1MB is a size"),
        ("buffer_peak_bytes", {"at_most": "1G"}, "the value is a size, and 1G is a rate"),
        ("faults[0].until_ps", {"at_least": 0}, "faults[0].until_ps has no value in this run"),
        ("faults[1].frames_lost", {"equals": 0}, "faults has 1 item, none at [1]"),
        ("faults.frames_lost", {"equals": 0}, "faults is not a mapping, so there is no 'frames_lost' in it"),
        ("drops[0]", {"equals": 0}, "drops is not a list"),
        ("jobs.bench", {"equals": 0}, "jobs.bench is not a single value"),
        (
            "jobs.bench.colectives[0]",
            {"equals": 0},
            "no 'colectives' in jobs.bench; did you mean 'collectives'?",
        ),
        ("drops.xyz", {"equals": 0}, "there is no 'xyz' in drops; there is congestion, total"),
    ],
)
def test_what_does_not_hold_says_why(value: str, bound: dict[str, Any], reason: str) -> None:
    assert judged(value, **bound).endswith(reason)


def test_verdicts_carry_what_was_expected_and_what_was_found() -> None:
    expectations = [
        Expectation.model_validate({"value": "drops.total", "at_most": 2}),
        Expectation.model_validate({"value": "nowhere", "between": (1, 2)}),
    ]
    assert [verdict.model_dump() for verdict in evaluate(expectations, SUMMARY)] == [
        {
            "value": "drops.total",
            "relation": "at_most",
            "expected": 2,
            "actual": 3,
            "passed": False,
            "reason": "3 is more than 2",
        },
        {
            "value": "nowhere",
            "relation": "between",
            "expected": "1 and 2",
            "actual": None,
            "passed": False,
            "reason": f"there is no 'nowhere' in the summary; there is {', '.join(SUMMARY)}",
        },
    ]


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ("a",)),
        ("a.b-c.d_1", ("a", "b-c", "d_1")),
        ("a[0].b[-1][2]", ("a", 0, "b", -1, 2)),
        ("a.0", ("a", "0")),
    ],
)
def test_paths_are_keys_and_indices(path: str, steps: tuple[str | int, ...]) -> None:
    assert path_steps(path) == steps


@pytest.mark.parametrize(
    "path", ["", ".a", "a.", "a..b", "[0]", "a[", "a[x]", "a[1.5]", "0", "a b", "a" * 300]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(RefusedError, match="is not a path"):
        path_steps(path)


FLOWS = """\
name: small
topology: {kind: star, hosts: 4}
jobs:
  - {name: bench, workload: {kind: collective, op: all_reduce, sizes: [1MiB, 2MiB], iterations: 2}}
  - {name: pairs, workload: {kind: permutation, size: 1MiB}}
expect:
"""


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (
            "{value: drops.congestoin, equals: 0}",
            "there is no 'congestoin' in drops; did you mean 'congestion'?",
        ),
        (
            "{value: pfc_transmit_xof_frames, equals: 0}",
            "there is no 'pfc_transmit_xof_frames' in the summary; did you mean 'pfc_transmit_xoff_frames'?",
        ),
        (
            "{value: fabric.links.paused, equals: 0}",
            "fabric.links is not a mapping, so there is no 'paused' in it",
        ),
        ("{value: 'drops[0]', equals: 0}", "drops is not a list; accepted: a key"),
        (
            "{value: fabric.drops, equals: 0}",
            "fabric.drops is not a single value; accepted: with a key after it: ",
        ),
        ("{value: virtual_ps.x, equals: 0}", "virtual_ps is not a mapping, so there is no 'x' in it"),
        (
            "{value: drops.by_reason.watchdogg, equals: 0}",
            "there is no reason 'watchdogg'; did you mean 'watchdog'?",
        ),
        (
            "{value: fabric.engineering.rounds, equals: 0}",
            "there is no engineering; accepted: routing.kind: traf",
        ),
        (
            "{value: 'jobs.bench.collectives[4].busbw', at_least: 1Gbps}",
            "there is no collective 4: the job has 4",
        ),
        (
            "{value: 'jobs.bench.collectives[-5].busbw', at_least: 1Gbps}",
            "there is no collective -5: the job has 4",
        ),
        (
            "{value: 'jobs.pairs.collectives[0].busbw', at_least: 1Gbps}",
            "job pairs has no collectives",
        ),
        ("{value: jobs.bench.training.mfu, at_least: 1}", "job bench has no training"),
    ],
)
def test_a_path_that_no_run_of_the_scenario_can_have_is_refused_before_it(
    expectation: str, said: str
) -> None:
    (line,) = refusals(FLOWS + f"  - {expectation}\n")
    assert line.startswith(f"file:7: expect[0].value: {said}")


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (
            "{value: ending, equals: finshed}",
            "equals: ending is never 'finshed'; did you mean 'finished'?; accepted: ",
        ),
        (
            "{value: virtual_ps, at_most: 5KiB}",
            "at_most: the value is a time, and 5KiB is a size; accepted: a time,",
        ),
        (
            "{value: drops.total, at_most: 5us}",
            "at_most: the value is a number without a unit, and 5us is a time",
        ),
        (
            "{value: jobs.bench.status, equals: 5}",
            "equals: the value is a text, and 5 is none; accepted: a text",
        ),
        (
            "{value: 'jobs.bench.collectives[3].busbw', between: [1Gbps, 1s]}",
            'between: the value is a rate, and 1s is a time; accepted: a rate, like "50GB/s"',
        ),
    ],
)
def test_a_bound_that_no_value_can_be_compared_with_is_refused_before_the_run(
    expectation: str, said: str
) -> None:
    (line,) = refusals(FLOWS + f"  - {expectation}\n")
    assert line.startswith(f"file:7: expect[0].{said}")
