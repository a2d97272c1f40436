"""A run that goes on takes no more memory after twenty-five million events than after ten."""

import gc
from pathlib import Path

import pytest

from actors.kernel.units import PS_PER_S
from emu import api
from emu.cluster.pages.engine_page import resident_bytes
from emu.engine.outcome import Progress
from emu.run_directory.run_directory import RunDirectory
from tests.scenarios_run.small import ROOT

SCENARIO = ROOT / "scenarios/start/permutation.yaml"
WARM_PS = PS_PER_S // 100
"""By then ten million events were executed, and everything that grows once has grown: the allocator's
arenas, garbage until it is first collected, counters that are no longer small integers."""
MOST_GROWTH_BYTES = 10 << 20


class Watch(api.Observer):
    """The resident memory at the first look after `WARM_PS`, and the most at any look."""

    def __init__(self) -> None:
        self.warm_bytes = 0
        self.most_bytes = 0

    def progressed(self, progress: Progress) -> None:
        if progress.virtual_ps >= WARM_PS:
            self.warm_bytes = self.warm_bytes or resident_bytes()
            self.most_bytes = max(self.most_bytes, resident_bytes())


# What other tests have left to the collector is found here as well.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_of_a_run_outlives_it() -> None:
    def left() -> dict[str, int]:
        gc.collect()
        kinds = ("Topology", "Routes", "Partition", "Switch", "Nic", "Scenario")
        names = [type(one).__name__ for one in gc.get_objects()]
        return {kind: names.count(kind) for kind in kinds}

    def run(seed: int) -> None:
        api.run(ROOT / "scenarios/start/tiny_flap.yaml", overrides={"seed": seed, "expect": []}, local=True)

    run(1)
    before = left()
    for seed in (2, 3, 4):
        run(seed)
    after = left()
    assert {kind: more for kind, more in after.items() if more > before[kind]} == {}


@pytest.mark.soak
def test_memory_is_flat_over_fifteen_million_events(tmp_path: Path) -> None:
    overrides = {"jobs[0].workload.size": "256MiB", "expect": [], "run.sample_every": "10us"}
    prepared = api.prepare(SCENARIO, overrides)
    watch = Watch()
    options = api.RunOptions(local=True, progress_every_s=0.2)
    with RunDirectory.create("flat", tmp_path / "flat") as directory:
        result = api.run_prepared(prepared, options, watch, directory)
    assert sum(device.executed for device in result.outcome.devices) > 25_000_000
    assert watch.warm_bytes
    assert watch.most_bytes - watch.warm_bytes <= MOST_GROWTH_BYTES
