"""Samples add up to what the counters say at that virtual time, also of devices that stood still."""

from typing import Any

import pytest

from actors.wire.batch import BatchReader
from emu.counts.collected import Changed
from emu.devices.devices import build_kernel
from emu.devices.drawing import draw
from emu.engine.sampling import Sampler
from emu.engine.sync.partition import Partition
from emu.engine.sync.sync_points import SyncPoint
from emu.run_directory.samples import LatestSample
from emu.scenario.load import load_mapping

INCAST: dict[str, Any] = {
    "name": "paused",
    "topology": {
        "kind": "ai_zone",
        "racks": 2,
        "hosts_per_rack": 8,
        "gpus_per_host": 1,
        "spines": 2,
        "link": "400G",
    },
    "switch": {"buffer": {"pool": "4MB"}},
    "jobs": [
        {
            "name": "incast",
            "ranks": "all",
            "workload": {"kind": "incast", "fan_in": 12, "size": "1MiB"},
        }
    ],
}
BROKEN = INCAST | {
    "name": "broken",
    "switch": {"buffer": {"pool": "4MB"}, "pfc": {"watchdog": {"enabled": True, "detection": "50us"}}},
    "transport": {"timeout": 5},
    "faults": [
        {"kind": "link_flap", "at": "5us", "target": "rtsw-0:ctsw-0", "down": "8us", "up": "8us", "flaps": 2},
        {"kind": "degrade", "at": "20us", "target": "rtsw-*:ctsw-1", "rate": "100G", "loss": "1/100"},
        {"kind": "pause_storm", "at": "40us", "for": "200us", "target": "nic-0-0"},
        {"kind": "switch_crash", "at": "120us", "for": "20us", "target": "ctsw-0"},
        {"kind": "nic_down", "at": "200us", "for": "20us", "target": "nic-1-0"},
    ],
}


@pytest.mark.parametrize("mapping", [INCAST, BROKEN], ids=["incast", "broken"])
def test_samples_add_up_to_the_counters_of_every_device_also_while_a_class_is_paused(
    mapping: dict[str, Any],
) -> None:
    blueprint = draw(load_mapping(mapping).scenario)
    kernel, outboxes = build_kernel(blueprint, [0] * len(blueprint.topology.nodes), 0)
    partition = Partition(0, kernel, outboxes, BatchReader([], 2047, 4096))
    sampler = Sampler(partition)
    partition.start()
    paused, latest = 0, LatestSample()
    widths = {one.number: len(one.series()) for one in partition.devices}
    for at_us in range(1, 400):
        partition.run(at_us * 10**6, 10**9)
        partition.reach(at_us * 10**6)
        sampler.act(SyncPoint(at_us * 10**6, sample=True, stall_check=False, requested=False))
        (share,) = sampler.drain()
        latest.add(Changed(share.time_ps, share.counters))
        sample = latest.sample(widths)
        assert sample is not None
        assert sample.counters == {one.number: one.counters() for one in partition.devices}, at_us
        paused += sum(not device.steady() for device in partition.devices)
    assert paused > 0, "nothing was paused: the scenario no longer tests what it is for"
    sampler.resume()
    sampler.act(SyncPoint(400 * 10**6, sample=True, stall_check=False, requested=False))
    (whole,) = sampler.drain()
    assert whole.whole
    assert {number: len(flat) // 2 for number, flat in whole.counters.items()} == {
        number: width for number, width in widths.items() if width
    }


def test_a_share_is_kept_until_somebody_has_heard_of_it() -> None:
    blueprint = draw(load_mapping(INCAST).scenario)
    kernel, outboxes = build_kernel(blueprint, [0] * len(blueprint.topology.nodes), 0)
    sampler = Sampler(Partition(0, kernel, outboxes, BatchReader([], 2047, 4096)))
    for at_ps in (100, 200, 300):
        sampler.act(SyncPoint(at_ps, sample=True, stall_check=False, requested=False))
    heard = [[share.time_ps for share in sampler.unheard(heard_ps)] for heard_ps in (-1, -1, 100, 300)]
    assert heard == [[100, 200, 300], [100, 200, 300], [200, 300], []]
