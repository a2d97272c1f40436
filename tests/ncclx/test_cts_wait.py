"""Is a clear-to-send's wait what it was held up beyond its flight, and does a class of its own cut it?"""

from functools import cache
from typing import Any

import pytest

from actors.ncclx.transport.clear_to_send import Waits, bucket_ps, stamp, waited_ps
from emu import api
from emu.results.summary import ClearToSends
from tests.ncclx.toy import collective
from tests.scenario.plain import plain


@cache
def wait(name: str) -> ClearToSends:
    found = api.run(name, local=True, diagnose=False).summary.jobs["bench"].collectives[-1].cts_wait
    assert found is not None
    return found


def lone_wait(gpus: list[int], **sections: Any) -> ClearToSends:
    """Waits of a ring of these GPUs, two hosts a rack, whose clear-to-sends meet nothing."""
    job = {**collective("all_gather", "8KiB"), "ranks": gpus}
    topology = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1}
    given = plain({"name": "lone", "topology": topology, "jobs": [job], **sections})
    found = api.run(given, local=True, diagnose=False).summary.jobs["bench"].collectives[-1].cts_wait
    assert found is not None
    return found


def test_in_its_own_class_a_clear_to_send_waits_a_fifth_at_most_of_what_it_waits_among_data() -> None:
    own, data = wait("cts_own_class"), wait("cts_data_class")
    assert own.count == data.count == 8 * 14
    assert 0 < own.p90_ps * 5 <= data.p90_ps
    # Of its own class, a clear-to-send waits for no more than a frame in progress (4,198 B at 400G) at each
    # of four hops, and for another clear-to-send or ACK at each.
    assert own.max_ps <= 4 * (83_960 + 2 * 3_320)


@pytest.mark.parametrize("gpus", [[0, 1], [0, 2]], ids=["rack", "zone"])
@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"host": {"proxy_cost": "700ns", "link_delay": "400ns", "link_rate": "256G"}},
        {"switch": {"forwarding": "cut_through", "latency": "650ns"}, "nic": {"latency": "10ns"}},
        {"switch": {"deep_buffer": {"where": "spines"}}},
        {
            "switch": {
                "deep_buffer": {"where": "spines", "credit_delay": "1700ns"},
                "forwarding": "cut_through",
            }
        },
        {
            "switch": {"deep_buffer": {"where": "spines"}},
            "overrides": [{"devices": "ctsw-0", "switch": {"deep_buffer": {"credit_delay": "9us"}}}],
        },
    ],
    ids=["defaults", "slow host", "cut through", "modular", "modular among cut through", "one modular"],
)
def test_a_clear_to_send_that_meets_nothing_waits_for_nothing(
    gpus: list[int], sections: dict[str, Any]
) -> None:
    assert lone_wait(gpus, **sections) == ClearToSends(count=2, p50_ps=0, p90_ps=0, max_ps=0)


def test_without_admission_there_is_nothing_to_wait() -> None:
    given = plain(
        {
            "name": "blind",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 1},
            "ncclx": {"admission": "none"},
            "jobs": [collective("all_gather", "8KiB")],
        }
    )
    assert api.run(given, local=True, diagnose=False).summary.jobs["bench"].collectives[-1].cts_wait is None


def test_a_stamp_that_wrapped_still_tells_the_flight() -> None:
    posted_ps = (1 << 42) - 5_000_000
    now_ps = posted_ps + 9_000_000
    assert abs(int(waited_ps(stamp(posted_ps), now_ps, 2_000_000)) - 7_000_000) <= 1024
    assert waited_ps(stamp(posted_ps), posted_ps + 2_000_500, 2_000_000) == 0


@pytest.mark.parametrize("wait_ps", [0, 1_024, 65_535, 65_536, 1_000_000, 123_456_789, 1 << 41])
def test_a_bucket_is_at_most_a_thirtysecond_wide(wait_ps: int) -> None:
    lower = int(bucket_ps(wait_ps))
    assert lower <= wait_ps < lower + max(1_024, lower // 32 + 1_024)


def test_the_longest_wait_is_kept_exactly_and_operations_are_kept_apart() -> None:
    waits = Waits()
    for wait_ps in (0, 0, 2_048, 10_000_000, 10_100_000):
        waits.add(wait_ps)
    waits.close(3, 7)
    waits.add(4_096)
    # 9,766 and 9,863 units share the bucket of 9,728, which is 256 wide.
    assert waits.rows(3, 8) == [
        [3, 7, 0, 2],
        [3, 7, 2_048, 1],
        [3, 7, 10_100_000, 1],
        [3, 7, 9_728 * 1_024, 1],
        [3, 8, 4_096, 1],
    ]
    other = Waits()
    other.load(waits.save())
    assert other.rows(3, 8) == waits.rows(3, 8)
    assert (other.count, other.total_ps, other.most_ps) == (6, 20_106_144, 10_100_000)
