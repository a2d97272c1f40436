"""Do SEND and READ go as the specification has them, to the picosecond and whatever is lost?

400G carries a byte in 20 ps; links are 500 ns long, latencies zero. On the wire, with 62 B of headers and
20 B of preamble and gap: a SEND_ONLY of 4,096 B has 4,178 B, a READ request (RETH 16) 98 B, its response
FIRST, LAST or ONLY (AETH 4) of 4,096 B 4,182 B, MIDDLE 4,178 B, an acknowledgement 86 B. A message over the
host link has 64 B at 512G and takes 250 ns: 251,000 ps.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.nic.queue_pair.pending_answers import NO_SYNDROME, PendingAnswer, add_response
from actors.wire.frame import (
    ACKNOWLEDGE,
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST,
    READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
    SEND_FIRST,
    SEND_LAST,
    SEND_LAST_IMM,
    SEND_MIDDLE,
    SEND_ONLY,
    SEND_ONLY_IMM,
    Frame,
    wire_size,
)
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    POST_READ,
    POST_SEND,
    POST_WITH_IMMEDIATE,
    STATUS_SUCCESS,
)
from emu.base.errors import ScenarioError
from tests.fabric.rig import Completion, Fabric
from tests.fabric.sections import graph, scenario, star
from tests.ncclx.toy import Toy
from tests.ncclx.toy import scenario as toy_scenario

HOST_LINK_PS = 251_000
SEND, READ = int(POST_SEND), int(POST_READ)
WITH_IMM = int(POST_WITH_IMMEDIATE)
BASE = 0xFFFFFF - 20
"""A first PSN from which PSNs wrap within the first messages."""

SCHEMES: list[dict[str, Any]] = [
    {"kind": "go_back_n"},
    {"kind": "go_back_n", "placement": "out_of_order", "reorder": 8, "window": "128KiB"},
    {"kind": "go_back_0"},
    {"kind": "selective_repeat"},
    {"kind": "selective_repeat", "reorder": 8, "window": "64KiB"},
]


def two(first: int | None = None, **transport: Any) -> Fabric:
    """NICs 0 and 1 around a switch; NIC 0 begins at PSN `first`."""
    fabric = Fabric(scenario(star(2), transport=transport), [(0, 1)])
    if first is not None:
        fabric.set_first_psn(0, first)
        for nic in fabric.nics:
            for pair in nic.pairs:
                pair.message_psn = pair.expected_psn
                nic.recovery.prepare(pair)
    return fabric


def opcodes(fabric: Fabric, node: str) -> list[int]:
    """Fills with the opcodes that a NIC sends."""
    seen: list[int] = []
    fabric.tap(node, 0, lambda frame: bool(seen.append(frame.opcode)))  # type: ignore[func-returns-value]
    return seen


def test_sizes_are_those_of_the_headers() -> None:
    sizes = {
        SEND_FIRST: 4178,
        SEND_MIDDLE: 4178,
        SEND_LAST: 4178,
        SEND_ONLY: 4178,
        SEND_LAST_IMM: 4182,
        SEND_ONLY_IMM: 4182,
        READ_RESPONSE_FIRST: 4182,
        READ_RESPONSE_MIDDLE: 4178,
        READ_RESPONSE_LAST: 4182,
        READ_RESPONSE_ONLY: 4182,
    }
    assert {opcode: wire_size(opcode, 4096) for opcode in sizes} == sizes
    assert wire_size(READ_REQUEST, 0) == 62 + 16 + 20


def test_a_send_is_delivered_sixteen_bytes_sooner_than_a_write_and_tells_the_receiver() -> None:
    fabric = two()
    fabric.post(0, 0, 4096, flags=SEND)
    fabric.run()
    delivered = 2 * (4178 * 20 + 500_000)
    assert [d.time_ps for d in fabric.deliveries(0)] == [delivered] == [1_167_120]
    reported = fabric.completions(fabric.connections[0].reversed())
    assert reported == [
        Completion(delivered + HOST_LINK_PS, 0, 0, 0, 4096, COMPLETED_RECEIVE, STATUS_SUCCESS)
    ]
    completed = delivered + 2 * (86 * 20 + 500_000) + HOST_LINK_PS
    assert fabric.completions(0) == [Completion(completed, 0, 0, 0, 4096, COMPLETED_SEND, STATUS_SUCCESS)]


def test_a_write_with_immediate_is_four_bytes_longer() -> None:
    fabric = two()
    fabric.post(0, 0, 4096, immediate=7)
    fabric.run()
    assert [d.time_ps for d in fabric.deliveries(0)] == [2 * (4198 * 20 + 500_000)]


def test_a_read_takes_the_request_there_and_the_response_back() -> None:
    fabric = two()
    fabric.post(0, 0, 4096, flags=READ)
    fabric.run()
    delivered = 2 * (98 * 20 + 500_000) + 2 * (4182 * 20 + 500_000)
    assert delivered == 2_171_200
    assert fabric.deliveries(fabric.connections[0].reversed())[0].time_ps == delivered
    assert fabric.deliveries(0) == []
    completed = delivered + HOST_LINK_PS
    assert fabric.completions(0) == [Completion(completed, 0, 0, 0, 4096, COMPLETED_SEND, STATUS_SUCCESS)]
    assert fabric.nics[1].transmit_acks == 0


def test_a_read_of_three_packets_has_first_middle_and_last_with_consecutive_psns() -> None:
    fabric = two(first=BASE)
    asked = fabric.tap("nic-0", 0)
    answered = fabric.tap("nic-1", 0)
    fabric.post(0, 0, 3 * 4096, flags=READ)
    fabric.post(0, 0, 1, flags=READ)
    fabric.run()
    assert [(opcode, psn) for opcode, psn, _ in asked.seen] == [
        (READ_REQUEST, BASE),
        (READ_REQUEST, BASE + 3),
    ]
    assert [(opcode, psn - BASE) for opcode, psn, _ in answered.seen] == [
        (READ_RESPONSE_FIRST, 0),
        (READ_RESPONSE_MIDDLE, 1),
        (READ_RESPONSE_LAST, 2),
        (READ_RESPONSE_ONLY, 3),
    ]
    # The request, then FIRST and MIDDLE and LAST back to back: 4,182 + 4,178 + 4,182 B, LAST once more.
    last = 2 * (98 * 20 + 500_000) + (4182 + 4178 + 4182 + 4182) * 20 + 2 * 500_000
    assert fabric.deliveries(fabric.connections[0].reversed())[0].time_ps == last


def test_a_send_of_three_packets_has_first_middle_and_last() -> None:
    fabric = two()
    seen = opcodes(fabric, "nic-0")
    fabric.post(0, 0, 3 * 4096, flags=SEND)
    fabric.post(0, 0, 3 * 4096, flags=SEND, immediate=1)
    fabric.run()
    assert seen == [SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_FIRST, SEND_MIDDLE, SEND_LAST_IMM]


def test_no_more_reads_are_outstanding_than_may_be() -> None:
    fabric = two(max_rd_atomic=3)
    for _ in range(10):
        fabric.post(0, 0, 8192, flags=READ)
    pair = fabric.pair(fabric.connections[0])
    most = 0
    while fabric.run_events(1):
        most = max(most, pair.reads)
    assert most == 3
    assert len(fabric.completions(0)) == 10
    assert pair.reads == 0


def test_what_is_said_after_a_read_waits_for_its_responses() -> None:
    fabric = two(ack_priority=6)
    seen = opcodes(fabric, "nic-1")
    fabric.post(0, 0, 4 * 4096, flags=READ)
    fabric.post(0, 0, 100)
    fabric.post(0, 0, 100, flags=SEND)
    fabric.run()
    assert seen[:4] == [READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST]
    assert seen[4:] == [ACKNOWLEDGE]  # one for both
    assert [done.number for done in fabric.completions(0)] == [0, 1, 2]


def lose_psns(*psns: int) -> Callable[[Frame], bool]:
    """Lose the first data packet, or request, with each of these PSNs."""
    waiting = list(psns)

    def lose(frame: Frame) -> bool:
        if frame.opcode < ACKNOWLEDGE and frame.psn in waiting:
            waiting.remove(frame.psn)
            return True
        return False

    return lose


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("lost", [(0,), (15,), (29,), (5, 6, 7), (10, 10), (30,), (28, 30)], ids=str)
def test_lost_responses_are_asked_for_again(scheme: dict[str, Any], lost: tuple[int, ...]) -> None:
    fabric = two(first=BASE, mtu=1024, timeout=4, recovery=scheme)
    fabric.tap("nic-1", 0, lose_psns(*((BASE + at) & 0xFFFFFF for at in lost)))
    for size in (30 * 1024, 500, 3000):
        fabric.post(0, 0, size, flags=READ)
    fabric.run()
    assert [done.status for done in fabric.completions(0)] == [0] * 3
    delivered = fabric.deliveries(fabric.connections[0].reversed())
    assert [d.size_bytes for d in delivered] == [30 * 1024, 500, 3000]
    assert fabric.total("nic_delivered_bytes") == fabric.posted_bytes
    assert fabric.broken(at_rest=True) == []


def test_selective_repeat_asks_for_what_is_missing_and_nothing_else() -> None:
    fabric = two(first=BASE, mtu=1024, recovery={"kind": "selective_repeat"})
    lost = (3, 4, 5, 40, 77)
    answered = fabric.tap("nic-1", 0, lose_psns(*((BASE + at) & 0xFFFFFF for at in lost)))
    asked = fabric.tap("nic-0", 0)
    fabric.post(0, 0, 100 * 1024, flags=READ)
    fabric.run()
    assert len(answered.seen) == 100 + 5
    assert [(psn - BASE) & 0xFFFFFF for _, psn, _ in asked.seen] == [0, 3, 40, 77]
    assert fabric.total("nic_local_ack_timeout_err") == 0


Posted = tuple[int, int, int]
"""Size, flags and when."""


@st.composite
def posts(draw: st.DrawFn) -> list[Posted]:
    verbs = st.sampled_from([0, WITH_IMM, SEND, SEND | WITH_IMM, READ, READ])
    one = st.tuples(st.sampled_from([0, 1, 1024, 5000, 40 * 1024]), verbs, st.integers(0, 40))
    return draw(st.lists(one, min_size=1, max_size=9))


@given(
    st.sampled_from(SCHEMES),
    st.sampled_from([0, 0x7FFFF0, 0xFFFFF0, BASE]),
    st.booleans(),
    posts(),
    posts(),
    st.lists(st.integers(0, 150), max_size=12),
    st.lists(st.integers(0, 150), max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_every_verb_ends_once_and_in_order_whatever_is_lost(
    scheme: dict[str, Any],
    first: int,
    one_class: bool,
    there: list[Posted],
    back: list[Posted],
    lost_there: list[int],
    lost_back: list[int],
) -> None:
    priority = 3 if one_class else 6
    sections = {"mtu": 1024, "timeout": 4, "recovery": scheme, "ack_priority": priority, "max_rd_atomic": 2}
    fabric = Fabric(scenario(graph([("nic-0", "nic-1")]), transport=sections), [(0, 1)])
    ends = [fabric.connections[0], fabric.connections[0].reversed()]
    for end in ends:
        fabric.set_first_psn(end, first)
    for nic in fabric.nics:
        for pair in nic.pairs:
            pair.message_psn = pair.expected_psn
            nic.recovery.prepare(pair)
    for node, places in (("nic-0", lost_there), ("nic-1", lost_back)):
        passed = [0]

        def lose(frame: Frame, passed: list[int] = passed, places: list[int] = places) -> bool:
            passed[0] += 1
            return passed[0] - 1 in places

        fabric.tap(node, 0, lose)
    for end, listed in zip(ends, (there, back), strict=True):
        for number, (size, flags, at_us) in enumerate(sorted(listed, key=lambda post: post[2])):
            fabric.post(at_us * 1_000_000 + number, end, size, number=number, flags=flags)
    fabric.run()
    for end, listed in zip(ends, (there, back), strict=True):
        done = [c for c in fabric.completions(end) if c.kind == COMPLETED_SEND]
        assert [c.number for c in done] == list(range(len(listed)))
        assert [c.status for c in done] == [0] * len(listed)
        reported = [c for c in fabric.completions(end.reversed()) if c.kind == COMPLETED_RECEIVE]
        assert len(reported) == sum(flags & READ == 0 and flags != 0 for _, flags, _ in listed)
    assert fabric.total("nic_delivered_bytes") == fabric.posted_bytes
    assert fabric.broken(at_rest=True) == []


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_run_goes_on_from_its_state_in_the_midst_of_reads(scheme: dict[str, Any]) -> None:
    def make() -> Fabric:
        sections = {"mtu": 1024, "timeout": 4, "recovery": scheme}
        return Fabric(scenario(star(2), nic={"corrupt_every": 31}, transport=sections), [(0, 1)])

    whole, first, second = make(), make(), make()
    for fabric in (whole, first):
        for size, flags in ((30_000, READ), (5_000, SEND), (20_000, READ), (500, 0)):
            fabric.post(0, 0, size, flags=flags)
    whole.run()
    for _ in range(12):
        first.run_events(25)
        second = make()
        second.load(first.save())
        second.run()
        assert second.digest() == whole.digest()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=8))
def test_owed_responses_are_in_order_and_none_twice(asked: list[tuple[int, int]]) -> None:
    pending: PendingAnswer | None = None
    wanted: set[int] = set()
    for psn, count in asked:
        pending = add_response(pending, psn, psn + count, count * 10, 10)
        wanted.update(range(psn, psn + count))
    found: list[int] = []
    while pending is not None:
        assert pending.syndrome == NO_SYNDROME
        assert pending.size_bytes == 10 * (pending.end_psn - pending.psn)
        found += range(pending.psn, pending.end_psn)
        pending = pending.following
    assert found == sorted(wanted)


def test_what_cannot_be_posted_is_refused_by_name() -> None:
    flows = {"kind": "permutation", "size": "5GiB", "message": "3GiB"}
    with pytest.raises(ScenarioError) as caught:
        Toy(toy_scenario([{"name": "long", "workload": flows}]))
    assert "longer than a message can be" in str(caught.value)
