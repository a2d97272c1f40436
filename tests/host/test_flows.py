"""Are WRITEs posted as perftest would, and is a flow over when its last completion is here?"""

from typing import Any

import pytest

from actors.wire.message import STATUS_RETRY_EXCEEDED, STATUS_SUCCESS
from tests.ncclx.toy import US, Toy, scenario


def flows(*listed: tuple[int, int, str, str], **more: Any) -> dict[str, Any]:
    """A job of flows: (source rank, destination rank, size, start)."""
    wanted = tuple({"src": src, "dst": dst, "size": size, "start": start} for src, dst, size, start in listed)
    return {"name": "flows", "workload": {"kind": "flows", "flows": wanted, **more}}


def writes(toy: Toy, flow: int = 0) -> list[tuple[int, int]]:
    """(place among the flow's queue pairs, bytes) of what was posted for it, in order."""
    work = toy.plan.jobs[0].flows[flow]
    places = {index: place for place, (index, _) in enumerate(work.pairs)}
    return [(places[pair], size) for pair, size, _ in toy.nic(work.source).posted if pair in places]


def rows(toy: Toy) -> list[list[int]]:
    """Rows of all hosts."""
    return [row for host in toy.topology.hosts for row in toy.host(host).results()["flows"]]


def test_a_flow_is_one_write_unless_reported_otherwise() -> None:
    toy = Toy(scenario([flows((0, 1, "16MiB", "0ns"))])).run()
    assert writes(toy) == [(0, 16 << 20)]


def test_a_flow_s_bytes_go_to_its_queue_pairs_in_equal_shares() -> None:
    toy = Toy(scenario([flows((0, 1, "1001B", "0ns"), qps=4)])).run()
    assert writes(toy) == [(0, 251), (1, 251), (2, 251), (3, 248)]


def test_messages_go_to_queue_pairs_in_turn() -> None:
    toy = Toy(scenario([flows((0, 1, "1000B", "0ns"), qps=2, message="300B")])).run()
    assert writes(toy) == [(0, 300), (1, 300), (0, 300), (1, 100)]


def test_more_queue_pairs_than_messages_leaves_some_idle() -> None:
    toy = Toy(scenario([flows((0, 1, "100B", "0ns"), qps=3, message="64B")])).run()
    assert writes(toy) == [(0, 64), (1, 36)]
    assert [row[4] for row in rows(toy)] == [STATUS_SUCCESS]
    assert [message for _, message in toy.plan.jobs[0].flows[0].last_messages()] == [0, 0]


@pytest.mark.parametrize(("given", "depth"), [({}, 128), ({"tx_depth": 1}, 1), ({"tx_depth": 7}, 7)])
def test_no_more_writes_than_the_depth_are_outstanding_on_a_queue_pair(
    given: dict[str, int], depth: int
) -> None:
    toy = Toy(scenario([flows((0, 1, "300KiB", "0ns"), message="1KiB", **given)])).run()
    posted = [at for _, _, at in toy.nic(toy.plan.jobs[0].flows[0].source).posted]
    # A WRITE of 1,088 B takes 21,760 ps on the line, so the first is acknowledged after 2.02 us.
    assert len(posted) == 300
    assert posted[depth - 1] < 1 * US
    assert 2 * US + 21_760 <= posted[depth] < 2 * US + 21_760 + 10_000


def test_a_flow_starts_after_its_job_and_is_completed_a_round_trip_after_its_last_byte() -> None:
    job = {**flows((0, 1, "4KiB", "3us"), (2, 1, "1B", "0ns")), "start": "10us"}
    toy = Toy(scenario([job])).run()
    first, second = rows(toy)
    assert first[:3] == [0, 0, 13 * US]
    assert second[:3] == [0, 1, 10 * US]
    # 4,160 B at 400G, there and back, and three messages of about 1 ns.
    assert 13 * US + 83_200 + 2 * US <= first[3] <= 13 * US + 83_200 + 2 * US + 10_000


def test_a_job_of_flows_ends_when_every_sender_has_reported() -> None:
    toy = Toy(scenario([flows((0, 1, "4KiB", "0ns"), (2, 1, "4KiB", "50us"), (2, 3, "4KiB", "70us"))])).run()
    assert [row[1] for row in rows(toy)] == [0, 1, 2]
    last_ps = max(row[3] for row in rows(toy))
    assert toy.kernel.queue.stop_ps == last_ps + 51_200 + 200 * US
    assert toy.controller.operations == []


def test_a_failed_flow_keeps_its_status_and_the_others_go_on() -> None:
    toy = Toy(scenario([flows((0, 1, "600KiB", "0ns"), (0, 2, "4KiB", "9us"), qps=2, message="1KiB")]))
    work = toy.plan.jobs[0].flows[0]
    toy.nic(work.source).broken.add(work.pairs[1][0])
    toy.run()
    assert [row[4] for row in rows(toy)] == [STATUS_RETRY_EXCEEDED, STATUS_SUCCESS]
    # The healthy queue pair has sent all its 300, the other no more than its first 128.
    assert [sum(1 for place, _ in writes(toy) if place == pair) for pair in (0, 1)] == [300, 128]
    assert toy.controller.end_states() == [1, STATUS_RETRY_EXCEEDED]
