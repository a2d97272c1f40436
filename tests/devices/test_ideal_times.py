"""Does a flow that is alone take its ideal time, to the picosecond?"""

from typing import Any

import pytest

from emu import api


@pytest.mark.parametrize("verb", ["write", "write_with_imm", "send", "read"])
@pytest.mark.parametrize(("size", "target"), [("100B", 1), ("5000B", 2), ("1MiB", 2)])
@pytest.mark.parametrize("forwarding", ["store_and_forward", "cut_through"])
def test_a_lone_flow_is_delivered_at_its_ideal_time(
    verb: str, size: str, target: int, forwarding: str
) -> None:
    scenario: dict[str, Any] = {
        "name": "lone",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1},
        "switch": {"forwarding": forwarding},
        "jobs": [
            {
                "name": "one",
                "workload": {
                    "kind": "flows",
                    "verb": verb,
                    "flows": [{"src": 0, "dst": target, "size": size}],
                },
            }
        ],
    }
    (flow,) = api.run(scenario, local=True, diagnose=False).summary.jobs["one"].flows
    assert flow.delivered_ps is not None
    assert flow.start_ps is not None
    assert flow.delivered_ps - flow.start_ps == flow.ideal_ps
    assert flow.slowdown == 1
