"""Does a lossless class lose nothing to congestion when links flap while headroom is in use?

A link that goes down makes both ends forget what pauses were said over it, and what is in headroom may still
be there when it comes back. So a link is cut at the worst of moments, while its ingress holds frames in
headroom, and for less time than they take to leave; now and then its switch with all of its links. Without
the hold after link-up (`actors.port.pfc`) about one of thirty of these runs overruns headroom.
"""

from random import Random

import pytest

from actors.fabric.model import FABRIC
from tests.fabric.random_fabric import random_fabric
from tests.fabric.rig import Fabric


def links_under_pressure(fabric: Fabric, random: Random) -> list[int]:
    """A link behind which headroom is in use now, or all links of its switch; none if there is none."""
    found = []
    for switch in fabric.switches:
        ends = fabric.topology.ports(int(switch.number))
        for port, end in zip(switch.ports, ends, strict=True):
            groups = switch.buffer.groups
            used = sum(groups[int(port.number) * 8 + priority].headroom_used_bytes for priority in range(8))
            if used > 0 and port.up:
                found.append([end.link])
                if random.random() < 0.2:
                    found.append([every.link for every in ends if every.kind == FABRIC])
    return random.choice(found) if found else []


def flap_and_check(seed: int) -> None:
    """Run a random fabric to its end, flapping links under pressure."""
    fabric = random_fabric(seed)
    random = Random(seed + 3_000_000)
    flaps = 0
    while True:
        budget = random.choice((3, 20, 100)) if flaps < 12 else 10**9
        if fabric.run_events(budget) < budget:
            break
        assert fabric.broken() == [], f"seed {seed}"
        links = links_under_pressure(fabric, random)
        if links:
            flaps += 1
            down_ps = int(fabric.queue.now_ps) + random.randrange(1, 1000)
            up_ps = down_ps + random.choice((1, 10_000, 100_000, 500_000, 2_000_000))
            for link in links:
                fabric.set_state(link, down_ps, up=False)
                fabric.set_state(link, up_ps, up=True)
            fabric.run(up_ps + 1)
    assert fabric.broken(at_rest=True) == [], f"seed {seed}"
    assert fabric.total("port_dropped_frames", "headroom_overrun") == 0, f"seed {seed}"
    assert fabric.congestion_drops() == 0, f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_a_lossless_class_loses_nothing_to_congestion_when_links_flap(seed: int) -> None:
    flap_and_check(seed)
