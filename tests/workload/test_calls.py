"""Are the calls that devices know by number those that a scenario may name?"""

from emu.scenario.operations import OPERATIONS
from emu.workload.operations import CALLS


def test_calls_are_the_operations_and_then_send_and_recv() -> None:
    assert (*OPERATIONS, "send", "recv") == CALLS
