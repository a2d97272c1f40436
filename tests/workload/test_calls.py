"""Are the calls that devices know by number those that a scenario may name?"""

from actors.ncclx.operations import CALLS, OPERATIONS


def test_calls_are_the_operations_and_then_send_and_recv() -> None:
    assert (*OPERATIONS, "send", "recv") == CALLS
