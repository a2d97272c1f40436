"""Are 64 B from CPU to CPU as long on their way as published, over RoCE and over InfiniBand?

Published (DeepSeek, arXiv 2505.09343): RoCE 3.6 us below one leaf and 5.6 us across leaves, InfiniBand 2.8
and 3.7. A flow is delivered when its last byte is in memory; the CPU that polls sees it one host link and one
operation of its proxy later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from emu import api

SCENARIO = Path(__file__).parents[2] / "scenarios/nic/small_messages.yaml"
PROXY_PS = 100_000
DOORBELL_PS = 1_000
"""64 B at 512G."""
PUBLISHED = [
    ("", "leaf", 3.6),
    ("", "across", 5.6),
    ("infiniband", "leaf", 2.8),
    ("infiniband", "across", 3.7),
]


@pytest.mark.parametrize(("variant", "job", "published_us"), PUBLISHED)
def test_a_small_message_takes_as_long_as_published(variant: str, job: str, published_us: float) -> None:
    assert seen_us(api.load(str(SCENARIO), variant=variant), job) == pytest.approx(published_us, rel=0.02)


@pytest.mark.parametrize(("variant", "job", "published_us"), PUBLISHED[:2])
def test_switches_and_cables_of_the_defaults_are_within_a_tenth(
    variant: str, job: str, published_us: float
) -> None:
    """A switch of 300 ns in place of 500: 3.41 and 5.01 us."""
    loaded = api.load(str(SCENARIO), {"switch.latency": "300ns", "expect": []}, variant=variant)
    assert seen_us(loaded, job) == pytest.approx(published_us, rel=0.11)


def seen_us(loaded: api.Loaded, job: str) -> float:
    """When the CPU that polls sees a job's message, with the floor of host and NIC as it comes."""
    host_link_ps = loaded.scenario.host.nic_link_delay_ps
    assert host_link_ps == 800_000  # one for both fabrics
    found = api.run(loaded, local=True, diagnose=False).summary.jobs[job]
    assert found.flow_times is not None
    return (found.flow_times.p50_ps + DOORBELL_PS + host_link_ps + PROXY_PS) / 10**6


@pytest.mark.parametrize("delay_ns", [250, 800, 1890])
def test_the_delay_of_a_nic_s_host_link_is_paid_once_on_each_side(delay_ns: int) -> None:
    """Before the first bit at the sender; behind the last acknowledgement until the sender's CPU sees it."""
    overrides = {"host.nic_link_delay": f"{delay_ns}ns", "expect": []}
    found = api.run(str(SCENARIO), overrides=overrides, local=True, diagnose=False).summary
    (flow,) = found.jobs["leaf"].flows
    wires_ps = 2 * 500_000 + 500_000 + 300_000  # cables, switch, NIC
    assert flow.delivered_ps is not None
    floor_ps = PROXY_PS + DOORBELL_PS + delay_ns * 1_000
    on_wire_ps = 2 * (64 + 62 + 24 - 4) * 20  # two links of 400G
    assert flow.delivered_ps == pytest.approx(floor_ps + wires_ps + on_wire_ps, abs=2_000)
    alone = {"overrides": [{"devices": "nic-0-0", "host": {"nic_link_delay": f"{delay_ns}ns"}}], "expect": []}
    own = api.run(str(SCENARIO), overrides=alone, local=True, diagnose=False).summary
    assert own.jobs["leaf"].flows[0].delivered_ps == flow.delivered_ps
