"""Does every verb end once and in order where the network doubles packets and changes their order?

A tap in each direction keeps some packets back and lets others pass twice. Neither is what a lossless fabric
does; a responder that takes a packet twice, or an acknowledgement that is believed twice, shows here.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.kernel.state import load_frame, save_event
from actors.wire.fault import TIMER_EXPIRED
from actors.wire.frame import Frame
from actors.wire.message import COMPLETED_RECEIVE, COMPLETED_SEND, POST_READ, POST_SEND, POST_WITH_IMMEDIATE
from emu.base.errors import ScenarioError
from tests.fabric.rig import Fabric, Tap
from tests.fabric.sections import graph, scenario, star
from tests.nic.test_verbs import SCHEMES

SEND, READ, WITH_IMM = int(POST_SEND), int(POST_READ), int(POST_WITH_IMMEDIATE)
KEEP, TWICE = 0, 1


def disturb(fabric: Fabric, node: str, step_ps: int, faults: dict[int, tuple[int, int]]) -> Tap:
    """At these places of a NIC's packets: keep the packet back by so many steps, or send it again then."""
    tap = fabric.tap(node, 0)
    passed = [0]

    def look(frame: Frame) -> bool:
        place = passed[0]
        passed[0] += 1
        if place not in faults:
            return False
        kind, steps = faults[place]
        late = load_frame(save_event(frame))
        late.time_ps = fabric.queue.now_ps + tap.SHARE_PS + steps * step_ps + place
        late.key = tap.onwards
        fabric.queue.push(late)
        return kind == KEEP

    tap.lose = look
    return tap


FAULTS = st.dictionaries(
    st.integers(0, 120), st.tuples(st.sampled_from([KEEP, TWICE]), st.integers(1, 400)), max_size=12
)
POSTS = st.lists(
    st.tuples(st.sampled_from([0, 1, 5000, 40_000]), st.sampled_from([0, WITH_IMM, SEND, READ])), max_size=7
)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@given(st.sampled_from([0, 0xFFFFF0, 0x7FFFF8]), POSTS, POSTS, FAULTS, FAULTS)
@settings(max_examples=15, deadline=None)
def test_every_message_ends_once_and_in_order(
    scheme: dict[str, Any],
    first: int,
    there: list[tuple[int, int]],
    back: list[tuple[int, int]],
    faults_there: dict[int, tuple[int, int]],
    faults_back: dict[int, tuple[int, int]],
) -> None:
    sections = {"mtu": 1024, "timeout": 4, "recovery": scheme, "max_rd_atomic": 2}
    fabric = Fabric(scenario(graph([("nic-0", "nic-1")]), transport=sections), [(0, 1)])
    ends = [fabric.connections[0], fabric.connections[0].reversed()]
    for end in ends:
        fabric.set_first_psn(end, first)
    for nic in fabric.nics:
        for pair in nic.pairs:
            pair.message_psn = pair.expected_psn
            nic.recovery.prepare(pair)
    disturb(fabric, "nic-0", 100_003, faults_there)
    disturb(fabric, "nic-1", 99_877, faults_back)
    for end, posts in zip(ends, (there, back), strict=True):
        for number, (size, flags) in enumerate(posts):
            fabric.post(number, end, size, number=number, flags=flags)
    fabric.run()
    for end, posts in zip(ends, (there, back), strict=True):
        done = [c for c in fabric.completions(end) if c.kind == COMPLETED_SEND]
        assert [(c.number, c.status) for c in done] == [(number, 0) for number in range(len(posts))]
        reported = [c for c in fabric.completions(end.reversed()) if c.kind == COMPLETED_RECEIVE]
        assert [c.size_bytes for c in reported] == [
            size for size, flags in posts if flags in (WITH_IMM, SEND)
        ]
        pair, peer = fabric.pair(end), fabric.pair(end.reversed())
        assert pair.una_psn == pair.end_psn == peer.expected_psn
        assert (pair.reads, pair.pending) == (0, None)
    assert fabric.total("nic_delivered_bytes") == fabric.posted_bytes


def test_no_more_than_half_of_all_psns_are_outstanding() -> None:
    fabric = Fabric(scenario(graph([("nic-0", "nic-1")]), transport={"mtu": 256}), [(0, 1)])
    pair = fabric.pair(fabric.connections[0])
    for flags in (0, 0, READ):
        pair.post(0, 2**31, flags, 0)  # 2^23 packets each
    first = pair.una_psn
    pair.go_back(first + 2**23 - 2)
    for _ in range(2):
        assert pair.has_packets()
        pair.next_frame()
    assert pair.next_psn == first + 2**23
    assert not pair.has_packets()
    pair.una_psn += 1
    pair.hold()
    assert pair.has_packets()
    pair.una_psn = first + 2**23
    pair.go_back(first + 2**24)
    assert not pair.has_packets()  # the READ takes as many as there are
    pair.una_psn = first + 2**24
    pair.hold()
    assert pair.has_packets()


@pytest.mark.parametrize("reorder", [1, 8])
@pytest.mark.parametrize(
    "scheme", [{"kind": "go_back_n", "placement": "out_of_order"}, {"kind": "selective_repeat"}], ids=str
)
def test_a_packet_counts_as_lost_when_more_overtook_it_than_reordering_allows(
    scheme: dict[str, Any], reorder: int
) -> None:
    packet_ps = 1_106 * 20  # 1,024 B of payload at 400G
    for overtaken_by in (reorder, reorder + 1):
        sections = {"mtu": 1024, "recovery": {**scheme, "reorder": reorder}}
        fabric = Fabric(scenario(graph([("nic-0", "nic-1")]), transport=sections), [(0, 1)])
        disturb(fabric, "nic-0", packet_ps, {5: (KEEP, overtaken_by)})
        fabric.post(0, 0, 40 * 1024)
        fabric.run()
        assert fabric.total("nic_delivered_bytes") == 40 * 1024
        assert (fabric.total("nic_retransmitted_frames") > 0) == (overtaken_by > reorder)


OUT_OF_ORDER: dict[str, Any] = {"kind": "go_back_n", "placement": "out_of_order"}


@pytest.mark.parametrize("scheme", [OUT_OF_ORDER, {"kind": "selective_repeat"}])
def test_a_packet_cannot_be_later_than_what_a_responder_keeps(scheme: dict[str, Any]) -> None:
    recovery = {**scheme, "window": "64KiB", "reorder": 64}
    assert scenario(star(2), transport={"mtu": 1024, "recovery": recovery}).transport.out_of_order
    recovery["reorder"] = 65
    with pytest.raises(ScenarioError, match=r"keeps 64 packets.*none can be 65 late; accepted: at most 64"):
        scenario(star(2), transport={"mtu": 1024, "recovery": recovery})


LATE_PS, LATER_PS = 1_000_000, 3_000_000


@pytest.mark.parametrize("behind", [0, 1])
def test_a_nak_that_an_acknowledgement_overtook_is_dropped_and_leaves_the_rest_to_the_timer(
    behind: int,
) -> None:
    """Of three packets the third overtakes the second: it is thrown away, and the second asked for. That one
    comes by itself, and its acknowledgement overtakes the NAK, which then asks for what is acknowledged.
    Nobody has the third, and nobody asks for it: but for the timer, or a packet behind it.
    """
    fabric = Fabric(scenario(graph([("nic-0", "nic-1")]), transport={"timeout": 1}), [(0, 1)])
    disturb(fabric, "nic-0", LATE_PS, {1: (KEEP, 1)})
    disturb(fabric, "nic-1", LATE_PS, {1: (KEEP, 3)})
    fabric.post(0, 0, 3 * 4096)
    if behind:
        fabric.post(LATER_PS, 0, 4096, number=1)
    fabric.run()
    sender, receiver = fabric.nics
    assert receiver.delivered_bytes == (3 + behind) * 4096
    assert (sender.late_naks, sender.packet_seq_err) == (1, behind)
    assert receiver.transmit_naks == 1 + behind
    assert sender.local_ack_timeout_err == 1 - behind
    if not behind:
        # The second packet has left at 83,880 + 83,560 and is there 500,000 + 1,000,001 later, its ACK back
        # after 1,720 + 500,000. From then on the timer of 8,192,000 runs.
        expired_ps = 83_880 + 83_560 + 500_000 + LATE_PS + 1 + 1_720 + 500_000 + 8_192_000
        pair = fabric.pair(fabric.connections[0])
        assert sender.log == [[expired_ps, TIMER_EXPIRED, pair.index, pair.qpn, 8_192_000, 1]]
        assert fabric.deliveries(0)[-1].time_ps == expired_ps + 83_560 + 500_000
