"""Does a reliable connection deliver every message once and in order, whatever the wire loses?

Two NICs and 500 ns of wire at 400G: a full packet takes 83,560 ps (FIRST and ONLY 83,880), an ACK 1,720. The
timeout is 4.096 us x 2 where it matters.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.nic.queue_pair.queue_pair import ERROR
from actors.wire.frame import ACKNOWLEDGE, Frame
from actors.wire.message import COMPLETED_SEND, STATUS_FLUSHED, STATUS_RETRY_EXCEEDED, STATUS_SUCCESS
from tests.fabric.rig import Fabric, Tap
from tests.fabric.sections import graph, scenario

TIMEOUT_PS = 8_192_000
WIRE = graph([("nic-0", "nic-1")])


def two_nics(connections: int = 1, priorities: tuple[int, ...] = (), **transport: int) -> Fabric:
    """Two NICs joined by a wire, timeouts of 8.192 us."""
    settled = {"timeout": 1, **transport}
    return Fabric(scenario(WIRE, transport=settled), [(0, 1)] * connections, priorities)


def nth(*places: int) -> Callable[[Frame], bool]:
    """Loses the frames that pass at these places, counted from 0."""
    passed = [0]

    def lose(frame: Frame) -> bool:
        passed[0] += 1
        return passed[0] - 1 in places

    return lose


def statuses(fabric: Fabric, connection: int = 0) -> list[tuple[int, int]]:
    """Work request and status of each completion of a send, in order."""
    return [(c.number, c.status) for c in fabric.completions(connection) if c.kind == COMPLETED_SEND]


def check_at_rest(fabric: Fabric) -> None:
    """Everything that was posted was delivered and acknowledged."""
    assert fabric.broken(at_rest=True) == []
    assert sum(nic.delivered_bytes for nic in fabric.nics) == fabric.posted_bytes


def test_without_loss_each_packet_travels_once() -> None:
    fabric = two_nics()
    tap = fabric.tap("nic-0", 0)
    fabric.post(0, 0, 5 * 4096)
    fabric.run()
    first = fabric.pair(fabric.connections[0]).una_psn - 5
    assert [psn for _, psn, _ in tap.seen] == [(first + place) % 2**24 for place in range(5)]
    assert fabric.nics[1].transmit_acks == 5
    check_at_rest(fabric)


@pytest.mark.parametrize("lost", range(5))
def test_the_loss_of_any_one_packet_is_repaired(lost: int) -> None:
    fabric = two_nics()
    fabric.tap("nic-0", 0, nth(lost))
    fabric.post(0, 0, 5 * 4096)
    fabric.run()
    assert statuses(fabric) == [(0, STATUS_SUCCESS)]
    assert [delivery.size_bytes for delivery in fabric.deliveries(0)] == [5 * 4096]
    check_at_rest(fabric)
    sender, receiver = fabric.nics
    # The last packet has none behind it that would show the gap: only the timer finds that one.
    last = lost == 4
    assert receiver.transmit_naks == sender.packet_seq_err == (0 if last else 1)
    assert sender.local_ack_timeout_err == (1 if last else 0)
    assert receiver.out_of_sequence == 4 - lost
    assert sum(port.retransmitted for port in sender.ports()) == 5 - lost


def test_a_nak_brings_the_sender_back_to_the_gap_at_once() -> None:
    fabric = two_nics()
    fabric.tap("nic-0", 0, nth(1))
    fabric.post(0, 0, 4 * 4096)
    fabric.run()
    # The third packet ends at 83,880 + 2 x 83,560 = 251,000 and shows the gap at 751,000. The NAK is back at
    # 1,252,720; three packets follow until 1,503,400.
    assert [delivery.time_ps for delivery in fabric.deliveries(0)] == [2_003_400]


def test_a_timeout_brings_it_back_when_nothing_else_does() -> None:
    fabric = two_nics()
    fabric.tap("nic-0", 0, nth(0))
    fabric.post(1_000, 0, 4096)
    fabric.run()
    # Sent again at 1,000 + 8,192,000.
    assert [delivery.time_ps for delivery in fabric.deliveries(0)] == [8_193_000 + 583_880]
    assert fabric.nics[0].local_ack_timeout_err == 1


def test_the_timer_counts_from_the_last_progress() -> None:
    fabric = two_nics()
    fabric.tap("nic-0", 0, nth(1))
    fabric.post(0, 0, 2 * 4096)
    fabric.run()
    # The first packet's ACK is back at 83,880 + 500,000 + 1,720 + 500,000 = 1,085,600.
    assert [delivery.time_ps for delivery in fabric.deliveries(0)] == [1_085_600 + TIMEOUT_PS + 583_560]


def test_a_gap_is_reported_once_and_a_second_loss_of_the_packet_waits_for_the_timer() -> None:
    fabric = two_nics()
    # Of 6 packets the second is lost, and again when the NAK brings it back (6 went before it).
    fabric.tap("nic-0", 0, nth(1, 6))
    fabric.post(0, 0, 6 * 4096)
    fabric.run()
    sender, receiver = fabric.nics
    assert (receiver.transmit_naks, sender.packet_seq_err, sender.local_ack_timeout_err) == (1, 1, 1)
    assert receiver.out_of_sequence == 8
    check_at_rest(fabric)


def test_each_gap_is_reported() -> None:
    fabric = two_nics()
    fabric.tap("nic-0", 0, nth(1, 30, 60))
    fabric.post(0, 0, 40 * 4096)
    fabric.run()
    sender, receiver = fabric.nics
    assert receiver.transmit_naks == sender.packet_seq_err == 3
    assert sender.local_ack_timeout_err == 0
    check_at_rest(fabric)


def test_a_duplicate_is_acknowledged_again_and_not_delivered_again() -> None:
    fabric = two_nics()
    fabric.tap("nic-1", 0, nth(0))
    fabric.post(0, 0, 4096, immediate=5)
    fabric.run()
    receiver = fabric.nics[1]
    assert (receiver.duplicate_request, receiver.transmit_acks) == (1, 2)
    assert [(d.message, d.size_bytes) for d in fabric.deliveries(0)] == [(0, 4096)]
    assert statuses(fabric) == [(0, STATUS_SUCCESS)]
    assert len(fabric.completions(fabric.connections[0].reversed())) == 1
    check_at_rest(fabric)


def test_lost_acknowledgements_cost_nothing_while_a_later_one_arrives() -> None:
    fabric = two_nics()
    fabric.tap("nic-1", 0, nth(*range(9)))
    for _ in range(10):
        fabric.post(0, 0, 4096)
    fabric.run()
    assert statuses(fabric) == [(number, STATUS_SUCCESS) for number in range(10)]
    assert sum(port.retransmitted for port in fabric.nics[0].ports()) == 0
    assert fabric.nics[0].local_ack_timeout_err == 0
    check_at_rest(fabric)


@pytest.mark.parametrize(("ack_every", "acks"), [(1, 20), (2, 10), (3, 7), (7, 3), (19, 2), (20, 1), (21, 1)])
def test_an_acknowledgement_covers_several_packets_and_the_end_of_a_message_always_has_one(
    ack_every: int, acks: int
) -> None:
    fabric = two_nics(ack_every=ack_every)
    fabric.post(0, 0, 20 * 4096)
    fabric.run()
    assert fabric.nics[1].transmit_acks == acks
    assert statuses(fabric) == [(0, STATUS_SUCCESS)]
    check_at_rest(fabric)


def test_when_retries_are_used_up_the_first_request_fails_and_the_rest_are_flushed() -> None:
    fabric = two_nics(retry_count=2)
    tap = fabric.tap("nic-0", 0, lambda frame: True)
    for _ in range(3):
        fabric.post(0, 0, 10_000)
    fabric.post(40_000_000, 0, 4096)
    fabric.run()
    # Timeouts at 1, 2 and 3 x 8,192,000; the third finds no retry left. Completions take 1,000 ps each on the
    # host link, and 250,000.
    failed_ps = 3 * TIMEOUT_PS + 251_000
    assert [(c.number, c.status, c.time_ps) for c in fabric.completions(0)] == [
        (0, STATUS_RETRY_EXCEEDED, failed_ps),
        (1, STATUS_FLUSHED, failed_ps + 1_000),
        (2, STATUS_FLUSHED, failed_ps + 2_000),
        (3, STATUS_FLUSHED, 40_251_000),
    ]
    assert fabric.nics[0].local_ack_timeout_err == 3
    assert fabric.pair(fabric.connections[0]).state == ERROR
    assert fabric.deliveries(0) == []
    # Three times nine packets: all were on the wire before each timeout.
    assert len(tap.seen) == 27
    assert fabric.broken() == []
    assert fabric.queue.pending() == []


def test_without_retries_the_first_timeout_is_the_end() -> None:
    fabric = two_nics(retry_count=0)
    fabric.tap("nic-0", 0, nth(0))
    fabric.post(0, 0, 4096)
    fabric.run()
    assert statuses(fabric) == [(0, STATUS_RETRY_EXCEEDED)]


def test_a_timeout_of_zero_waits_for_ever() -> None:
    fabric = two_nics(timeout=0)
    fabric.tap("nic-0", 0, nth(0))
    fabric.post(0, 0, 4096)
    fabric.run()
    assert statuses(fabric) == []
    assert fabric.queue.pending() == []


def test_progress_gives_all_retries_back() -> None:
    fabric = two_nics(retry_count=2)
    tries: dict[int, int] = {}

    def lose_twice(frame: Frame) -> bool:
        tries[frame.psn] = tries.get(frame.psn, 0) + 1
        return tries[frame.psn] <= 2

    fabric.tap("nic-0", 0, lose_twice)
    for number in range(4):
        fabric.post(number * 100_000_000, 0, 4096)
    fabric.run()
    assert statuses(fabric) == [(number, STATUS_SUCCESS) for number in range(4)]
    assert fabric.nics[0].local_ack_timeout_err == 8
    check_at_rest(fabric)


def test_a_queue_pair_in_error_takes_no_more_requests_and_its_peer_fails_too() -> None:
    fabric = two_nics(retry_count=1)
    there = fabric.connections[0]
    back = there.reversed()
    fabric.tap("nic-0", 0, lambda frame: frame.opcode != ACKNOWLEDGE)
    fabric.post(0, there, 4096)
    fabric.run()
    fabric.post(10**9, back, 4096, number=50)
    fabric.run()
    assert fabric.deliveries(back) == []
    assert [(c.number, c.status) for c in fabric.completions(back)] == [(50, STATUS_RETRY_EXCEEDED)]
    assert fabric.pair(back).state == ERROR


@pytest.mark.parametrize("lost", [None, 0, 1, 2, 3])
def test_packet_numbers_go_round_at_24_bits(lost: int | None) -> None:
    fabric = two_nics()
    fabric.set_first_psn(0, 0xFFFFFE)
    tap = fabric.tap("nic-0", 0, (lambda frame: False) if lost is None else nth(lost))
    fabric.post(0, 0, 5 * 4096)
    fabric.run()
    assert [psn for _, psn, _ in tap.seen[:5]] == [0xFFFFFE, 0xFFFFFF, 0, 1, 2]
    assert fabric.pair(fabric.connections[0]).una_psn == 0x1000003
    assert fabric.pair(fabric.connections[0].reversed()).expected_psn == 0x1000003
    assert statuses(fabric) == [(0, STATUS_SUCCESS)]
    check_at_rest(fabric)


def test_packet_number_zero_may_be_acknowledged_again() -> None:
    fabric = two_nics()
    fabric.set_first_psn(0, 0)
    fabric.tap("nic-1", 0, nth(0))
    fabric.post(0, 0, 4096)
    fabric.run()
    assert statuses(fabric) == [(0, STATUS_SUCCESS)]
    assert fabric.nics[1].duplicate_request == 1
    check_at_rest(fabric)


MESSAGES = st.lists(st.sampled_from([0, 1, 4096, 5000, 20_000]), min_size=1, max_size=6)


def check_promise(fabric: Fabric, sizes: list[int]) -> None:
    """Every message exactly once and in order, or the queue pair is in error and says what was not sent."""
    delivered = [(d.message, d.size_bytes) for d in fabric.deliveries(0)]
    assert delivered == list(enumerate(sizes))[: len(delivered)]
    done = statuses(fabric)
    assert [number for number, _ in done] == list(range(len(sizes)))
    successes = [status for _, status in done].count(STATUS_SUCCESS)
    failures = [status for _, status in done[successes:]]
    assert failures == [STATUS_RETRY_EXCEEDED, *[STATUS_FLUSHED] * (len(failures) - 1)][: len(failures)]
    assert len(delivered) >= successes
    state = fabric.pair(fabric.connections[0]).state
    assert (state == ERROR) == bool(failures)
    assert fabric.broken(at_rest=not failures) == []


@given(
    sizes=MESSAGES,
    lost_packets=st.frozensets(st.integers(0, 40), max_size=12),
    lost_answers=st.frozensets(st.integers(0, 40), max_size=12),
    ack_every=st.sampled_from([1, 2, 5, 64]),
    retry_count=st.sampled_from([0, 1, 7]),
)
@settings(max_examples=100)
def test_whatever_is_lost_each_message_is_delivered_once_in_order_or_the_queue_pair_fails(
    sizes: list[int],
    lost_packets: frozenset[int],
    lost_answers: frozenset[int],
    ack_every: int,
    retry_count: int,
) -> None:
    fabric = two_nics(ack_every=ack_every, retry_count=retry_count)
    fabric.tap("nic-0", 0, nth(*lost_packets))
    fabric.tap("nic-1", 0, nth(*lost_answers))
    for place, size_bytes in enumerate(sizes):
        fabric.post(1_000_000 * place, 0, size_bytes)
    fabric.run()
    check_promise(fabric, sizes)
    if not lost_packets and not lost_answers:
        assert sum(port.retransmitted for port in fabric.nics[0].ports()) == 0


@given(
    sizes=MESSAGES,
    back=MESSAGES,
    seed=st.integers(0, 2**32),
    percent=st.sampled_from([5, 20, 50]),
    first_psn=st.sampled_from([0, 0xFFFFF0, 0x7FFFFF]),
)
@settings(max_examples=40)
def test_two_connections_that_talk_both_ways_over_a_bad_wire_keep_their_promises(
    sizes: list[int], back: list[int], seed: int, percent: int, first_psn: int
) -> None:
    fabric = two_nics(connections=2, retry_count=7, ack_every=3)
    fabric.set_first_psn(0, first_psn)
    taps: list[Tap] = []
    for node in ("nic-0", "nic-1"):
        dice = [seed + len(taps)]

        def lose(frame: Frame, dice: list[int] = dice) -> bool:
            dice[0] = (dice[0] * 6364136223846793005 + 1442695040888963407) % 2**64
            return (dice[0] >> 33) % 100 < percent

        taps.append(fabric.tap(node, 0, lose))
    for place, size_bytes in enumerate(sizes):
        fabric.post(300_000 * place, 0, size_bytes, number=place)
    for place, size_bytes in enumerate(back):
        fabric.post(300_000 * place, fabric.connections[1].reversed(), size_bytes, number=place)
    fabric.run()
    check_promise(fabric, sizes)
    delivered = [d.size_bytes for d in fabric.deliveries(fabric.connections[1].reversed())]
    assert delivered == back[: len(delivered)]
