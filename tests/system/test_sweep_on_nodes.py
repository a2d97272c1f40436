"""A sweep over three Ray nodes, one of which is lost half way, has the table of one process."""

import pytest

from tests.system.ray_program import found_by


@pytest.mark.ray
def test_a_sweep_over_three_nodes_of_which_one_is_lost_has_the_table_of_one_process() -> None:
    found = found_by("tests.system.sweep_nodes")
    assert (found["equal"], found["rows"], found["lines"], found["kept"]) == (True, 20, 20, 20)
    assert found["last"] == [20, 0, 0, 20]
    ((status, message),) = found["refused"]
    assert status == 4
    assert "of memory, and the largest node has 64MiB; accepted: a node with more" in message
    ends = found["ends"]
    assert [ends[name] for name in ("one", "two")] == [["ONE", "None", False], ["TWO", "None", False]]
    answer, failure, lost = ends["dies"]
    assert (answer, lost) == (None, True)
    assert failure.startswith(f"lost {found['again'] + 1} times with its process or node")
    answer, failure, lost = ends["asserts"]
    assert (answer, lost) == (None, False)
    assert failure.startswith("a run failed by a bug, AssertionError no such item")
