"""One run on a cluster of three Ray nodes gives the answer of one process, compiled or not on each, whatever
makes their workers stumble."""

import re

import pytest

import emu
from tests.system.ray_program import found_by


@pytest.mark.ray
def test_three_nodes_give_the_answer_of_one_process_compiled_or_not() -> None:
    found = found_by("tests.system.three_nodes")
    assert (found["ending"], found["agree"], found["nodes"]) == ("finished", True, 3)
    assert found["its_own"], "no other Ray of this machine is disturbed, and none is needed"
    assert found["stumbled"] >= 1
    compiled = [how for how, _ in found["workers"]]
    assert compiled == [emu.is_compiled(), emu.is_compiled(), False]
    (pinned,) = (worker for worker, (_, devices) in enumerate(found["workers"]) if "nic-0-0" in devices)
    assert pinned == 2
    (waited,) = found["notes"]
    said = r"[1-3] workers? cannot start yet: [0-3] of 3 CPUs of the Ray cluster are free; .*"
    assert re.fullmatch(said, waited)
    other, bare = found["refused"]
    assert " runs another edition of emu than this process, and may give another answer; install " in other
    assert ": ModuleNotFoundError: No module named trio; every node needs emu and what it imports" in bare
