"""Is the answer of a scenario the same on Ray workers, however its devices are spread over them?

Real actors, real sockets; against one part in this process. The workers are kept from run to run.
"""

import pytest

from emu import api
from tests.scenarios_run.small import PACKETS, WHOLE, digest_of, loaded

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("kept_workers")]

MOST_HOSTS = 8
"""A worker for each server and each switch, where there are so many servers at most."""
MOST_DEVICES = 17
"""A worker for each device, where there are so many devices at most."""
IN_EVERY_WAY = ("tiny_all_reduce", "tiny_flap", "incast_lossy", "fabric_infiniband")
"""Scenarios that are spread in every way also outside a soak; the others over two workers."""


def spreads(name: str) -> list[tuple[str, int | None]]:
    """Placement, and how many workers (None: as many as it takes, few and many in turn)."""
    found: list[tuple[str, int | None]] = [("packed", 2)]
    if not WHOLE and name not in IN_EVERY_WAY:
        return found
    topology = api.prepare(loaded(name)).topology
    found += [("packed", 1), ("packed", 4)]
    if len(topology.hosts) <= MOST_HOSTS:
        found.append(("node", None))
    if len(topology.nodes) <= MOST_DEVICES:
        found.append(("device", None))
    return found


@pytest.mark.parametrize("name", PACKETS)
def test_placement_and_number_of_workers_change_no_answer(name: str) -> None:
    whole = digest_of(name)
    for placement, workers in spreads(name):
        result = api.run(loaded(name), placement=placement, workers=workers, diagnose=False)
        assert result.summary.digest == whole, (placement, workers)
        if placement == "packed":
            assert result.summary.engine.workers == workers


def test_a_worker_for_each_device_is_exercised_on_more_than_one_scenario() -> None:
    assert sum(("device", None) in spreads(name) for name in PACKETS) >= 2
