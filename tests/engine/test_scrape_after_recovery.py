"""Counters never fall on a page that outlives an incarnation: what was served is served until passed."""

import re

from emu.cluster.pages.scrape import Scrape
from emu.engine.blueprint import RunPlan
from emu.engine.sync.logical_process import LogicalProcess
from emu.engine.sync.partition import Partition
from tests.engine.patience import fetched
from tests.engine.spread_runs import plan_of


def partition_at(plan: RunPlan, time_ps: int) -> Partition:
    """All devices, run up to a time."""
    logical_process = LogicalProcess(plan.partition(0), plan.machine(0), lambda sync: None)
    logical_process.partition.start()
    logical_process.partition.run(time_ps, 1 << 30)
    return logical_process.partition


def counters(address: str) -> dict[str, float]:
    page = fetched(f"http://{address}/metrics").decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^(emu_\S*_total\S*|\S+_total\{[^}]*\}) (\S+)$", page, re.MULTILINE)
    }


def test_counters_do_not_fall_when_the_run_goes_back() -> None:
    plan = plan_of("tiny_flap", 1)
    scrape = Scrape(plan.topology, [partition_at(plan, 60_000_000)], lambda: 70)
    address = scrape.start(plan.scenario)
    try:
        served = counters(address)
        assert len(served) > 20
        assert max(served.values()) > 0
        scrape.host([partition_at(plan, 20_000_000)], lambda: 2)
        assert scrape.start(plan.scenario) == address
        scrape.publish()
        assert counters(address) == served
        scrape.host([partition_at(plan, 90_000_000)], lambda: 9)
        scrape.publish()
        later = counters(address)
        assert later.keys() == served.keys()
        assert all(later[name] >= value for name, value in served.items())
        assert later["emu_virtual_seconds_total"] > served["emu_virtual_seconds_total"]
        assert later["emu_windows_total"] == 70 + 9
    finally:
        scrape.close()
