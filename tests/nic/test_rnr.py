"""What happens when no receive is posted for a message?

Two NICs and 500 ns of wire at 400G (20 ps a byte). A SEND_ONLY of 4,096 B has 4,178 B on the wire, an
acknowledgement 86 B. The hosts of the rig post no receives; a test lets a message that posts some arrive.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.kernel.event import MESSAGE, Message, pack_key
from actors.nic.queue_pair.queue_pair import ERROR
from actors.nic.queue_pair.requester import rnr_wait_ps
from actors.wire.frame import ACKNOWLEDGE
from actors.wire.message import (
    COMPLETED_SEND,
    POST_SEND,
    RECEIVE,
    STATUS_FLUSHED,
    STATUS_RNR_RETRY_EXCEEDED,
)
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario
from tests.nic.test_verbs import SCHEMES

US = 1_000_000
SEND = int(POST_SEND)
HOST_LINK_PS = 251_000
MILLISECONDS = {
    0: 655.36,
    1: 0.01,
    2: 0.02,
    3: 0.03,
    4: 0.04,
    5: 0.06,
    6: 0.08,
    7: 0.12,
    8: 0.16,
    9: 0.24,
    10: 0.32,
    11: 0.48,
    12: 0.64,
    13: 0.96,
    14: 1.28,
    15: 1.92,
    16: 2.56,
    17: 3.84,
    18: 5.12,
    19: 7.68,
    20: 10.24,
    21: 15.36,
    22: 20.48,
    23: 30.72,
    24: 40.96,
    25: 61.44,
    26: 81.92,
    27: 122.88,
    28: 163.84,
    29: 245.76,
    30: 327.68,
    31: 491.52,
}
"""Table 46 of the specification."""


def short_of_receives(depth: int = 1, **transport: Any) -> Fabric:
    """Two NICs on a wire, with so many receives posted on each queue pair."""
    sections = {"receive_queue": {"depth": depth}, "rnr_timer": 1, **transport}
    return Fabric(scenario(graph([("nic-0", "nic-1")]), transport=sections), [(0, 1)])


def post_receives(fabric: Fabric, at_ps: int, count: int, rank: int = 1) -> None:
    """Let the host post receives on the only queue pair of a NIC."""
    nic = fabric.topology.nics[rank]
    message = Message(RECEIVE, 0, count, 0, 0, 0, 0)
    message.time_ps = at_ps
    message.key = pack_key(nic, MESSAGE, len(fabric.topology.ports(nic)) - 1, 1 << 20 | fabric.posted)
    fabric.posted += 1
    fabric.queue.push(message)


def test_timer_codes_stand_for_the_times_of_the_table() -> None:
    assert [rnr_wait_ps(code) for code in range(32)] == [
        round(MILLISECONDS[code] * 1_000_000_000) for code in range(32)
    ]


def test_a_send_without_a_receive_comes_again_after_the_encoded_time() -> None:
    fabric = short_of_receives()
    seen = fabric.tap("nic-0", 0)
    for _ in range(2):
        fabric.post(0, 0, 4096, flags=SEND)
    post_receives(fabric, 5 * US, 1)
    fabric.run()
    # The second leaves at 83,560 and is there 583,560 later; its NAK is back after 86 x 20 + 500,000. 10 us
    # later the SEND leaves again.
    again = 2 * 83_560 + 500_000 + 1_720 + 500_000 + 10 * US
    assert [d.time_ps for d in fabric.deliveries(0)] == [583_560, again + 583_560]
    assert len(seen.seen) == 3
    assert fabric.total("nic_rnr_nak_retry_err") == fabric.total("nic_out_of_buffer") == 1
    assert fabric.total("nic_local_ack_timeout_err") == fabric.total("nic_packet_seq_err") == 0
    assert [c.status for c in fabric.completions(0)] == [0, 0]
    assert fabric.broken(at_rest=True) == []


def test_a_send_takes_its_receive_with_the_first_packet_a_write_with_immediate_with_the_last() -> None:
    for flags, immediate, packets in ((SEND, None, 3 + 3), (0, 5, 3 + 1)):
        fabric = short_of_receives(depth=1)
        seen = fabric.tap("nic-0", 0)
        fabric.post(0, 0, 3 * 4096, flags=flags, immediate=immediate)
        fabric.run(2 * US)
        fabric.post(2 * US, 0, 3 * 4096, flags=flags, immediate=immediate)
        post_receives(fabric, 9 * US, 1)
        fabric.run()
        assert len(seen.seen) - 3 == packets
        assert len(fabric.deliveries(0)) == 2
        assert fabric.total("nic_out_of_buffer") == 1


def test_a_plain_write_takes_none() -> None:
    fabric = short_of_receives(depth=1)
    for _ in range(5):
        fabric.post(0, 0, 4096)
    fabric.run()
    assert len(fabric.deliveries(0)) == 5
    assert fabric.total("nic_out_of_buffer") == 0


@pytest.mark.parametrize("retry", range(7))
def test_after_so_many_waits_without_progress_the_queue_pair_is_in_error(retry: int) -> None:
    fabric = short_of_receives(rnr_retry=retry)
    for number in range(4):
        fabric.post(0, 0, 4096, flags=SEND, number=number)
    fabric.run()
    done = [c for c in fabric.completions(0) if c.kind == COMPLETED_SEND]
    flushed = (2, STATUS_FLUSHED), (3, STATUS_FLUSHED)
    assert [(c.number, c.status) for c in done] == [(0, 0), (1, STATUS_RNR_RETRY_EXCEEDED), *flushed]
    assert fabric.pair(fabric.connections[0]).state == ERROR
    assert fabric.total("nic_rnr_nak_retry_err") == retry
    assert fabric.total("nic_out_of_buffer") == retry + 1


def test_seven_retries_are_for_ever() -> None:
    fabric = short_of_receives(rnr_retry=7)
    for _ in range(2):
        fabric.post(0, 0, 4096, flags=SEND)
    post_receives(fabric, 1_000 * US, 1)
    fabric.run()
    assert [c.status for c in fabric.completions(0)] == [0, 0]
    assert 90 <= fabric.total("nic_rnr_nak_retry_err") <= 100


def test_progress_gives_the_retries_back() -> None:
    fabric = short_of_receives(rnr_retry=2)
    for _ in range(6):
        fabric.post(0, 0, 4096, flags=SEND)
    for at_us in range(15, 100, 15):
        post_receives(fabric, at_us * US, 1)
    fabric.run()
    assert [c.status for c in fabric.completions(0)] == [0] * 6
    assert fabric.total("nic_rnr_nak_retry_err") > 4


@given(
    st.sampled_from(SCHEMES),
    st.lists(
        st.tuples(st.sampled_from([0, 700, 9000, 30_000]), st.sampled_from([1, SEND, 0, 4])), max_size=12
    ),
    st.lists(st.integers(1, 200), min_size=12, max_size=12),
    st.lists(st.integers(0, 120), max_size=8),
    st.lists(st.integers(0, 60), max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_every_message_ends_once_however_receives_and_losses_fall(
    scheme: dict[str, Any],
    posts: list[tuple[int, int]],
    receives_us: list[int],
    lost_there: list[int],
    lost_back: list[int],
) -> None:
    fabric = short_of_receives(depth=1, mtu=1024, timeout=4, recovery=scheme)
    for node, places in (("nic-0", lost_there), ("nic-1", lost_back)):
        passed = [0]

        def lose(frame: object, passed: list[int] = passed, places: list[int] = places) -> bool:
            passed[0] += 1
            return passed[0] - 1 in places

        fabric.tap(node, 0, lose)
    for number, (size, flags) in enumerate(posts):
        fabric.post(number, 0, size, number=number, flags=flags)
    for at_us in receives_us:
        post_receives(fabric, at_us * US, 1)
    fabric.run()
    done = [c for c in fabric.completions(0) if c.kind == COMPLETED_SEND]
    assert [(c.number, c.status) for c in done] == [(number, 0) for number in range(len(posts))]
    assert fabric.total("nic_delivered_bytes") == sum(size for size, _ in posts)
    taken = sum(flags in (1, SEND) for _, flags in posts)
    assert fabric.nics[1].pairs[0].receives == 1 + 12 - taken
    assert fabric.broken(at_rest=True) == []


def test_a_run_goes_on_from_its_state_while_a_requester_waits() -> None:
    def make() -> Fabric:
        fabric = short_of_receives()
        for _ in range(3):
            fabric.post(0, 0, 9000, flags=SEND)
        for at_us in (12, 31):
            post_receives(fabric, at_us * US, 1)
        return fabric

    whole = make()
    whole.run()
    for at_us in (1, 5, 11, 14, 30):
        first, second = make(), make()
        first.run(at_us * US)
        second.load(first.save())
        second.run()
        assert second.digest() == whole.digest()


def test_the_nak_carries_the_code_and_the_psn() -> None:
    fabric = short_of_receives(rnr_timer=17)
    fabric.set_first_psn(0, 0xFFFFFF)
    reported: list[tuple[int, int]] = []

    def look(frame: Any) -> bool:
        if frame.opcode == ACKNOWLEDGE:
            reported.append((frame.syndrome, frame.psn))
        return False

    fabric.tap("nic-1", 0, look)
    for _ in range(2):
        fabric.post(0, 0, 100, flags=SEND)
    fabric.run(100 * US)
    assert reported == [(0x1F, 0xFFFFFF), (0x20 | 17, 0)]
