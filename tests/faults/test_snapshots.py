"""A run goes on from a snapshot alike, whatever is broken when it is taken, or has been."""

from typing import Any

import pytest

from emu import api
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.outcome import Ending
from tests.engine.spread_runs import SpreadRun
from tests.faults.test_kinds import CASES
from tests.faults.watched import FLOWS, RING, US, mapping_of

MORE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pause_loss": ({"target": "rtsw-1>nic-2-0"}, FLOWS),
    "switch_drain": ({"target": "ctsw-0"}, FLOWS),
    "nic_reset": ({"target": "nic-0-0", "for": None}, FLOWS),
    "qp_error": ({"target": "nic-0-0", "pair": 0}, FLOWS),
    "gpu_slow": ({"target": "gpu-0-0", "factor": 4}, RING),
    "gpu_hung": ({"target": "gpu-0-0"}, RING),
    "gpu_lost": ({"target": "gpu-0-0", "for": None}, RING),
    "host_lost": ({"target": "host-0"}, RING),
    "straggler": ({"target": "host-0", "factor": 4}, RING),
}
"""Kinds that the table of `test_kinds` does not have, with a workload that they hit."""
CASES_AND_MORE = {kind: (keys, FLOWS) for kind, (keys, *_) in CASES.items()} | MORE


def digest_of(kind: str, at_ps: int) -> str:
    """Of a run in one part; if `at_ps` is not 0, broken off then and gone on with in two."""
    keys, workload = CASES_AND_MORE[kind]
    mapping = mapping_of([{"kind": kind} | keys], workload)
    prepared = api.prepare(mapping | {"run": {"max_time": "120us"}, "switch": {"ecn": {"enabled": True}}})
    blueprint = blueprint_of(prepared.scenario, prepared.topology)
    run = SpreadRun(spread(blueprint, 1))
    run.start()
    if at_ps:
        run.snapshot_at(at_ps)
        run.run(lambda: run.snapshot is None)
        assert run.snapshot is not None
        again = SpreadRun(spread(blueprint, 2), seed=3)
        again.resume(run.snapshot)
        run = again
    assert run.run() in (Ending.TIME_LIMIT, Ending.FINISHED)
    return run.digest()


@pytest.mark.parametrize("kind", CASES_AND_MORE)
def test_a_run_goes_on_alike_from_a_snapshot_while_it_lasts_and_after_it(kind: str) -> None:
    whole = digest_of(kind, 0)
    assert [digest_of(kind, us * US) for us in (45, 90)] == [whole, whole]
