"""Does a stall end the run at the first check, also where something that is no progress goes on for ever?

In each run something is still being counted when it stalls: pauses told again, a watchdog that drops, packets
sent again. What it waits for is named, and the exit status is 3.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.counts.collected import Changed, DeviceRecord
from emu.run_directory.samples import LatestSample

RING = Path(__file__).parents[2] / "scenarios/switch/ring_deadlock.yaml"
CHECK_PS = 300_000_000
ENDLESS = {
    "transport.timeout": 0,
    "run.stall_after": "300us",
    "run.sample_every": "300us",
    "run.max_time": "1s",
    "expect": [],
}


def fabric(*flows: tuple[int, int], **more: object) -> dict[str, Any]:
    listed = [{"src": source, "dst": destination, "size": "1MiB"} for source, destination in flows]
    return {
        "name": "stalls",
        "topology": {
            "kind": "ai_zone",
            "racks": 2,
            "hosts_per_rack": 2,
            "gpus_per_host": 1,
            "spines": 2,
            "link": "100G",
        },
        "jobs": [{"name": "job", "workload": {"kind": "flows", "flows": listed, **more}}],
    }


STORM = {"kind": "pause_storm", "at": "10us", "target": "nic-2-0"}
CUT = {"kind": "nic_port_down", "at": "60us", "target": "nic-2-0"}
WATCHDOG = {"enabled": True, "detection": "50us", "restoration": "50us"}

RUNS: dict[str, tuple[object, dict[str, object], str, str]] = {
    "a circle of pauses that are told again": (
        RING,
        {"switch.pfc.quanta": 200},
        "pfc_transmit_xoff_frames",
        "a circle of pauses: ring-0 -> ring-1",
    ),
    "a storm that no watchdog sees": (
        fabric((0, 2)),
        {"faults": [STORM], "switch.pfc.quanta": 200},
        "pfc_transmit_xoff_frames",
        "rtsw-1 waits for nic-2-0",
    ),
    "a storm whose watchdog goes on and on": (
        fabric((0, 2)),
        {"faults": [STORM], "switch.pfc.watchdog": WATCHDOG},
        "pfc_transmit_xoff_frames",
        "nic-0-0 waits for nic-2-0",
    ),
    "timers of DCQCN whose acknowledgements never come": (
        fabric((0, 2), (1, 2), (3, 2)),
        {
            "faults": [CUT],
            "switch.ecn": {"enabled": True, "kmin": "20KiB", "kmax": "80KiB"},
            "transport.congestion_control": {"kind": "dcqcn"},
        },
        "",
        "nic-0-0 waits for nic-2-0",
    ),
    "SENDs that come back for ever": (
        fabric((0, 2), verb="send", message="64KiB"),
        {
            "transport.rnr_retry": 7,
            "transport.receive_queue": {"depth": 1, "repost": "10s"},
            "transport.rnr_timer": 2,
        },
        "nic_rnr_nak_retry_err",
        "nic-0-0 waits for nic-2-0",
    ),
}


class Progress(api.Observer):
    """What was delivered by each check."""

    def __init__(self) -> None:
        self.samples: list[Changed] = []

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        del mixes
        self.samples.append(sample)

    def total(self, at: int, metric: str, devices: tuple[DeviceRecord, ...]) -> int:
        """Of a counter over all devices, at one of the samples."""
        latest = LatestSample(self.samples[: at % len(self.samples) + 1])
        sample = latest.sample({record.number: len(record.series) for record in devices})
        assert sample is not None
        return sum(
            value
            for record in devices
            for series, value in zip(record.series, sample.counters[record.number], strict=True)
            if series.metric == metric
        )


@pytest.mark.parametrize(("source", "changes", "goes_on", "named"), RUNS.values(), ids=RUNS.keys())
@pytest.mark.parametrize("parts", [1, 3])
def test_a_stall_ends_the_run_at_the_first_check(
    source: Any, changes: dict[str, object], goes_on: str, named: str, parts: int
) -> None:
    watched = Progress()
    result = api.run(source, overrides=ENDLESS | changes, local=True, parts=parts, observer=watched)
    outcome = result.outcome
    assert (outcome.ending, result.exit_status) == ("stalled", 3)
    assert named in outcome.message
    assert "stall_after 300us" in outcome.message.splitlines()[0]
    delivered = [
        watched.total(at, "nic_delivered_bytes", outcome.devices) for at in range(len(watched.samples))
    ]
    times_ps = [sample.virtual_ps for sample in watched.samples]
    assert delivered[-1] > 0
    last = delivered.index(delivered[-1])
    # The first check with all that was ever delivered is one at which something had moved since the one
    # before, so it is the next one that ends the run, or that one itself if nothing but upkeep was left.
    assert outcome.virtual_ps in (times_ps[last], times_ps[last] + CHECK_PS)
    if goes_on:
        assert outcome.virtual_ps == times_ps[-1] == times_ps[last] + CHECK_PS
        assert watched.total(-1, goes_on, outcome.devices) > watched.total(last, goes_on, outcome.devices)
