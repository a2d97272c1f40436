"""Does the self-check suite find a NIC that came up with 4 of its 16 PCIe lanes?"""

from typing import Any

import pytest

from emu import api

LANES = {16: "504G", 4: "126G"}


def evicted(lanes: int, slower_by: float) -> tuple[str, list[str]]:
    """How a job ends whose host-1 loses a GPU, and who is evicted; a NIC of host-2 has so many lanes."""
    changes: dict[str, Any] = {
        "expect": [],
        "faults": [{"kind": "gpu_lost", "target": "gpu-1-1", "at": "7200ms"}],
        "operator.self_check.slower_by": slower_by,
        "operator.self_check.size": "1MiB",
        "host.pcie.enabled": True,
        "overrides": [{"devices": "nic-2-0", "host": {"pcie": {"rate": LANES[lanes]}}}],
    }
    result = api.run("operator_gpu_lost", overrides=changes, local=True, diagnose=False).summary
    assert result.operator is not None
    return result.operator.ending, [host for one in result.operator.restarts for host in one.evicted]


@pytest.mark.parametrize(
    ("lanes", "slower_by", "found"),
    [(16, 0.5, ["host-1"]), (4, 0.5, ["host-1", "host-2"]), (4, 0, ["host-1"])],
)
def test_a_nic_on_few_lanes_fails_the_tests_that_each_host_does_by_itself(
    lanes: int, slower_by: float, found: list[str]
) -> None:
    assert evicted(lanes, slower_by)[1] == found
