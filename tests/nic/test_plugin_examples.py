"""Do the examples that were written from the pages on plug-ins alone do what their papers say?

The choice of two uplinks (Mitzenmacher, 1996) against a hash. Every link is 400G unless said.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest

from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone
from tests.fabric.test_snapshots import through_msgpack

US = 1_000_000
MIB = 2**20
PACKET = 4178
FLOWS = 8


def timely() -> Fabric:
    """Two flows without end into 10G, as in the paper; steps of 100 Mb/s take it there sooner."""
    control = {
        "kind": "emu.examples.timely:Timely",
        "low": "50us",
        "high": "500us",
        "least_rtt": "20us",
        "step": "100M",
    }
    rates = dict.fromkeys(range(3), "10G")
    one = scenario(star(3, rates, d0="5us", d1="5us", d2="5us"), transport={"congestion_control": control})
    fabric = Fabric(one, [(0, 2), (1, 2)])
    for sender in (0, 1):
        fabric.post(0, sender, 64 * MIB)
    return fabric


def racks(kind: str, seed: int) -> Fabric:
    """Eight hosts of a rack send to the other's over eight uplinks, each 2 us after the one before."""
    one = scenario(zone(2, FLOWS, FLOWS), seed=seed, routing={"kind": kind})
    fabric = Fabric(one, [(flow, FLOWS + flow) for flow in range(FLOWS)])
    for flow in range(FLOWS):
        fabric.post(flow * 2 * US, flow, 4 * MIB)
    return fabric


def slowest(kind: str, seed: int) -> float:
    """How many flows share the fullest uplink, by the last delivery."""
    fabric = racks(kind, seed)
    fabric.run()
    last_ps = max(fabric.deliveries(flow)[0].time_ps for flow in range(FLOWS))
    return last_ps / (4 * MIB // 4096 * PACKET * 20)


def test_of_two_uplinks_the_emptier_makes_the_fullest_less_full_than_a_hash() -> None:
    hashed, chosen = (
        mean(slowest(kind, seed) for seed in range(6))
        for kind in ("e_ecmp", "emu.examples.two_choices:TwoChoices")
    )
    assert hashed > 2.9
    assert chosen < 2.5


@pytest.mark.parametrize("example", ["timely", "two_choices"])
def test_an_example_of_the_pages_goes_on_from_a_snapshot(example: str) -> None:
    def built() -> Fabric:
        return timely() if example == "timely" else racks("emu.examples.two_choices:TwoChoices", 3)

    whole, copy = built(), built()
    whole.run(70 * US)
    saved: Any = whole.save()
    copy.load(through_msgpack(saved))
    whole.run(400 * US)
    copy.run(400 * US)
    assert copy.digest() == whole.digest()
