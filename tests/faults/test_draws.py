"""Are failures drawn from Llama 3's table as often as they were counted, and is the acceleration printed?"""

from fractions import Fraction
from math import sqrt
from typing import Any

import pytest

from emu import api
from emu.cli.main import main
from emu.engine.live.control_socket import fault_list
from emu.scenario.faults.draws import LLAMA3

INTERRUPTIONS = {
    "gpu_lost": 239,
    "gpu_hung": 24,
    "gpu_slow": 6,
    "nic_down": 7,
    "host_lost": 100,
    "link_down": 35,
}
"""Of 419 in 54 days on 16,384 GPUs (The Llama 3 Herd of Models, table 5); 8 break nothing that we model."""
HOURS = 54 * 24
GPUS = 16_384


def scenario(**keys: Any) -> dict[str, Any]:
    return {
        "name": "drawn",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 2},
        "jobs": [{"name": "job", "workload": {"kind": "permutation", "size": "1KiB"}}],
        "faults": [{"kind": "random", "table": "llama3", "within": "1s"} | keys],
    }


def test_the_table_accounts_for_all_interruptions_but_eight() -> None:
    assert {kind for kind, _, _ in LLAMA3} == INTERRUPTIONS.keys()
    assert sum(INTERRUPTIONS.values()) == 419 - 8
    for kind, _, per_hour in LLAMA3:
        assert per_hour == Fraction(INTERRUPTIONS[kind], HOURS * GPUS)


SINGLE, BONDED = scenario()["topology"], {"kind": "dcn_plus", "pods": 1, "segments_per_pod": 2}


@pytest.mark.parametrize(
    ("topology", "gpus"),
    [
        (SINGLE, 8),
        # Twice the spines, and twice the cables between the tiers.
        (SINGLE | {"spines": 4}, 8),
        # Two cables a NIC, and more between tiers.
        (
            BONDED | {"hosts_per_segment": 2, "gpus_per_host": 2, "aggs_per_pod": 4, "links_per_tor_agg": 1},
            8,
        ),
        ({"kind": "star", "hosts": 8}, 8),
    ],
)
def test_failures_come_as_often_and_in_the_shares_that_the_table_says(
    topology: dict[str, Any], gpus: int
) -> None:
    years = 5_000  # in a second of virtual time
    acceleration = years * 365 * 24 * 3600
    drawing = scenario(acceleration=acceleration, repaired_after="1us") | {"topology": topology}
    prepared = api.prepare(drawing)
    assert len(prepared.topology.gpus) == gpus
    drawn = [fault.kind for fault in prepared.resolved.faults]
    assert len(drawn) > 1000
    for kind, count in INTERRUPTIONS.items():
        expected = count * years * 365 * 24 / HOURS * gpus / GPUS
        assert abs(drawn.count(kind) - expected) < 4 * sqrt(expected) + 1, kind
        share = count / sum(INTERRUPTIONS.values())
        assert drawn.count(kind) / len(drawn) == pytest.approx(share, abs=4 * sqrt(share / len(drawn)))


def test_failures_come_for_so_long_and_are_over_then() -> None:
    prepared = api.prepare(scenario(acceleration=1, at="1ms"))
    steering = api.Steering(prepared.scenario, prepared.topology)
    states = []
    for now_us in (0, 2_000, 1_002_000):
        steering.virtual_ps = now_us * 10**6
        (row,) = fault_list(steering)
        states.append((row["until"], row["state"]))
    assert states == [("1.001s", "to come"), ("1.001s", "active"), ("1.001s", "over")]


@pytest.mark.parametrize("command", [["run", "--local"], ["up", "--local", "--pace", "max"]])
def test_how_much_faster_than_in_life_failures_come_is_printed(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    more = ["--out", str(tmp_path / "run"), "--set", "run.max_time=1us", "--set", "expect=[]"]
    main([command[0], "scenarios/faults/llama3_failures.yaml", *command[1:], *more])
    assert "faults[0]: failures come 1e+11 times as often as in life" in capsys.readouterr().out
