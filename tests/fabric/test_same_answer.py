"""Is the answer the same however it is computed, and another one where anything is different?"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import emu
from actors.wire.frame import ECN_CONGESTED, Frame
from tests.fabric.random_fabric import random_fabric
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", range(12))
def test_slices_and_windows_of_any_size_give_one_answer(seed: int) -> None:
    whole, sliced, windowed = (
        random_fabric(seed, varied=seed % 2 == 1, faulty=seed % 3 > 0) for _ in range(3)
    )
    events = whole.run()
    random = Random(seed)
    total = 0
    while total < events:
        total += sliced.run_events(random.choice((1, 2, 10, 333)))
    assert sliced.run_events(1) == 0
    assert sliced.digest() == whole.digest()
    while len(windowed.queue):
        windowed.run(windowed.queue.next_time_ps() + random.choice((1, 1_000, 584_000, 10**7)))
    assert windowed.digest() == whole.digest()


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_posting_and_building_does_not_matter(seed: int) -> None:
    one, other = random_fabric(seed), random_fabric(seed)
    posts = other.queue.pending()
    other.queue.clear()
    Random(seed).shuffle(posts)
    for post in posts:
        other.queue.push(post)
    one.run()
    other.run()
    assert one.digest() == other.digest()


def one_transfer(at_ps: int = 1_000, first_psn: int = 5, congested: int = -1) -> list[tuple[list[int], int]]:
    """Ten packets over a wire; the packet with the number `congested` is marked on its way."""
    fabric = Fabric(scenario(graph([("nic-0", "nic-1")])), [(0, 1)])
    fabric.set_first_psn(0, first_psn)

    def mark(frame: Frame) -> bool:
        if frame.psn == congested:
            frame.ecn = ECN_CONGESTED
        return False

    fabric.tap("nic-0", 0, mark)
    fabric.post(at_ps, 0, 10 * 4096)
    fabric.run()
    return [(device.all_mixes(), device.executed) for device in fabric.devices()]


def test_one_picosecond_one_packet_number_and_one_ecn_bit_each_change_the_digest() -> None:
    plain = one_transfer()
    assert one_transfer() == plain
    for other in (one_transfer(at_ps=1_001), one_transfer(first_psn=6), one_transfer(congested=9)):
        assert other != plain
        # Nothing else is different: as many events on every device.
        assert [executed for _, executed in other] == [executed for _, executed in plain]


def answers() -> str:
    """A hash over the digests of some random fabrics: half are lossy, half varied, two in three faulty."""
    digests = []
    for seed in range(100, 116):
        fabric = random_fabric(seed, lossy=seed % 2 == 1, varied=seed % 4 > 1, faulty=seed % 3 > 0)
        fabric.run()
        digests.append(fabric.digest())
    return hashlib.sha256(repr(digests).encode()).hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_compiled_and_interpreted_agree_under_any_hash_seed(hash_seed: str) -> None:
    other = "1" if emu.is_compiled() else "0"
    environment = os.environ | {"EMU_INTERPRETED": other, "PYTHONHASHSEED": hash_seed}
    code = "from tests.fabric.test_same_answer import answers; print(answers())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == answers()


@pytest.mark.parametrize("seed", range(20))
def test_lossy_fabrics_deliver_everything_and_come_to_rest(seed: int) -> None:
    fabric = random_fabric(seed, lossy=True)
    while fabric.run_events(997) == 997:
        assert fabric.broken() == []
    failed = [c for host in fabric.hosts for c in host.completions if c.status]
    assert fabric.broken(at_rest=not failed) == []
    if not failed:
        assert sum(nic.delivered_bytes for nic in fabric.nics) == fabric.posted_bytes
