"""A run on two hosts with addresses of their own and a slow, lossy link between them gives the answer of one
process, where network namespaces can be made."""

import os
import shutil
from pathlib import Path

import pytest

from tests.system.ray_program import found_by

MAY = (
    os.geteuid() == 0
    and Path("/dev/net/tun").exists()
    and all(map(shutil.which, ("unshare", "ip", "nsenter")))
)


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.skipif(not MAY, reason="needs root, /dev/net/tun, unshare, nsenter and ip")
def test_two_hosts_with_a_slow_lossy_link_give_the_answer_of_one_process() -> None:
    found = found_by("tests.system.two_hosts")
    assert found["digests"]["spread"] == found["digests"]["alone"]
    addresses = [worker["data_address"].partition(":")[0] for worker in found["workers"]["workers"]]
    assert addresses == ["10.77.0.1", "10.77.0.2"]
    assert found["carried"] > 100
    assert found["lost"] > 0
