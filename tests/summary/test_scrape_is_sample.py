"""Is a page that is published at a sync point the sample of that virtual time, number by number?"""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emu import api
from emu.cluster.pages.scrape import Scrape
from emu.counts.collected import Changed
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.in_process import InProcess
from emu.engine.sampling import Sampler
from emu.engine.sync.logical_process import LogicalProcess
from emu.engine.sync.sync_points import SyncPoint
from emu.results.metrics import METRIC_OF, labels_of, shown_value
from emu.run_directory.samples import LatestSample
from tests.engine.patience import fetched

US = 10**6
SHOWN = (3, 6)
"""Priorities that a page has also while they are 0."""
OVERRIDES = {
    "faults": [
        {"at": "15us", "kind": "pause_storm", "target": "nic-1-0", "for": "20us"},
        {"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"},
    ],
    "transport.timeout": 4,
}


def pages(parts: int) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """At some sync points: the series of the page, and those of the sample."""
    prepared = api.prepare("scenarios/start/tiny_all_reduce.yaml", OVERRIDES)
    plan = spread(blueprint_of(prepared.scenario, prepared.topology), parts)
    partitions = [plan.partition(part) for part in range(parts)]
    samplers = [Sampler(partition) for partition in partitions]
    run = InProcess(
        [
            LogicalProcess(partition, plan.machine(part), lambda _: None)
            for part, partition in enumerate(partitions)
        ],
        1,
        lambda: True,
    )
    for partition in partitions:
        partition.start()
    latest = LatestSample()
    counted = {one.number: one.series() for partition in partitions for one in partition.devices}
    scrape = Scrape(plan.topology, partitions, lambda: 0)
    try:
        address = scrape.start(prepared.scenario)
        for at_ps in (10 * US, 23 * US, 40 * US, 90 * US):
            run.advance(at_ps)
            for sampler in samplers:
                sampler.act(SyncPoint(at_ps, sample=True, stall_check=False, requested=False))
            scrape.publish()
            page = fetched(f"http://{address}/metrics").decode()
            found = {
                one.name + str(sorted(one.labels.items())): one.value
                for family in text_string_to_metric_families(page)
                for one in family.samples
            }
            sampled: dict[str, float] = {}
            for sampler in samplers:
                (share,) = sampler.drain()
                latest.add(Changed(at_ps, share.counters))
                assert share.time_ps == at_ps
            sample = latest.sample({number: len(series) for number, series in counted.items()})
            assert sample is not None
            for number, values in sample.counters.items():
                name = plan.topology.nodes[number].name
                for series, value in zip(counted[number], values, strict=True):
                    metric = METRIC_OF[series.metric]
                    if value or series.priority < 0 or series.priority in SHOWN:
                        text = f"{metric.name}{labels_of(metric, name, series)} "
                        (parsed,) = text_string_to_metric_families(text + shown_value(metric, value) + "\n")
                        (one,) = parsed.samples
                        sampled[one.name + str(sorted(one.labels.items()))] = one.value
            assert found["emu_virtual_seconds_total[]"] == at_ps / 10**12
            yield found, sampled
    finally:
        scrape.close()


@pytest.mark.parametrize("parts", [1, 3])
def test_a_scrape_equals_the_sample_at_its_virtual_time(parts: int) -> None:
    moved = 0
    for found, sampled in pages(parts):
        assert len(sampled) > 400
        assert {name: found.get(name) for name in sampled} == sampled
        devices = {name for name in found if "device" in name}
        assert devices == set(sampled)
        moved += sum(value > 0 for value in sampled.values())
    assert moved > 400
