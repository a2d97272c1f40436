"""A run goes on where its nodes are lost one after the other, with the answer of a quiet run."""

import re

import pytest

from tests.system.ray_program import found_by


@pytest.mark.ray
@pytest.mark.provokes("a node of the cluster is lost")
def test_run_whose_nodes_are_lost_one_after_the_other_gives_the_answer_of_a_quiet_one() -> None:
    found = found_by("tests.system.lost_node")
    assert (found["ending"], found["message"], found["recoveries"]) == ("finished", "", 2)
    assert (found["agree"], found["samples"]) == (True, True)
    assert found["nodes"] == [["second", "third"], ["second", "second"], ["fourth", "fourth"]]
    first, moved, second, waited, moved_again = found["notes"]
    # Not to the start, and not to an older snapshot: what was spoilt on disk came from the other node.
    assert re.search(r"^worker 1 .* died: .*; the run goes back to [1-9][0-9.]*[a-z]+$", first)
    assert re.search(r"started again on second \(.*\): 1$", moved)
    assert re.search(r"^worker 0 .* died: .*; the run goes back to [1-9][0-9.]*[a-z]+$", second)
    assert waited == "no node with a CPU is left; the run waits up to 300 s for one"
    assert re.search(r"started again on fourth \(.*\): 0, 1$", moved_again)
    assert not any("rpc" in line.lower() for line in found["notes"]), "nobody has to know Ray's transport"
    headless = r"the head of the Ray cluster at \S+:\d+ is gone"
    assert re.fullmatch(headless, found["headless"])
