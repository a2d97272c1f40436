"""Do queue pairs change state as `ibv_modify_qp` has it, and does everything posted come back in order?"""

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.compiled.finder import is_compiled
from actors.kernel.event import ARRIVAL, MESSAGE, Message, pack_key
from actors.nic.queue_pair.queue_pair import ERROR, TRANSITIONS
from actors.wire.frame import ACKNOWLEDGE, WRITE_ONLY, Frame, wire_size
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    MODIFY,
    POST_READ,
    POST_SEND,
    POST_WITH_IMMEDIATE,
)
from emu import api
from emu.devices.devices import build_kernel
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario

US = 1_000_000
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
SUCCESS, NOT_SENDING, FLUSHED, INVALID = 0, 2, 5, 22
STATE_NAMES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
ALLOWED = {
    "RESET": "RESET INIT",
    "INIT": "RESET INIT RTR ERR",
    "RTR": "RESET RTS ERR",
    "RTS": "RESET RTS SQD ERR",
    "SQD": "RESET RTS SQD ERR",
    "SQE": "RESET RTS ERR",
    "ERR": "RESET ERR",
}
"""From `qp_state_table` of the Linux kernel, for RC."""


def wired(**transport: Any) -> Fabric:
    return Fabric(scenario(graph([("nic-0", "nic-1")]), transport=transport), [(0, 1)])


def ask(fabric: Fabric, at_ps: int, state: int, psn: int = 0, rank: int = 0) -> None:
    """Let the host of a NIC ask for a state of its only queue pair."""
    nic = fabric.topology.nics[rank]
    message = Message(MODIFY, 0, state, psn, 0, 0, 0)
    message.time_ps = at_ps
    message.key = pack_key(nic, MESSAGE, len(fabric.topology.ports(nic)) - 1, 1 << 20 | fabric.posted)
    fabric.posted += 1
    fabric.queue.push(message)


def ended(fabric: Fabric) -> list[tuple[int, int]]:
    return [(c.number, c.status) for c in fabric.completions(0) if c.kind == COMPLETED_SEND]


def test_the_table_is_that_of_ibv_modify_qp() -> None:
    named = {
        STATE_NAMES[state]: " ".join(STATE_NAMES[after] for after in following)
        for state, following in TRANSITIONS.items()
    }
    assert named == ALLOWED


@given(st.lists(st.integers(0, 6), max_size=12))
def test_what_is_not_in_the_table_is_refused_and_changes_nothing(wanted: list[int]) -> None:
    fabric = wired()
    for at, state in enumerate(wanted):
        ask(fabric, at * US, state)
    fabric.run()
    present, expected = RTS, []
    for state in wanted:
        if STATE_NAMES[state] in ALLOWED[STATE_NAMES[present]].split():
            present = state
            expected.append((0, state, SUCCESS))
        else:
            expected.append((0, present, INVALID))
    assert fabric.hosts[0].modified == expected
    assert fabric.nics[0].pairs[0].state == present


def test_an_error_flushes_what_is_posted_in_order_and_the_receives_after_it() -> None:
    fabric = wired(receive_queue={"depth": 2})
    for number in range(4):
        fabric.post(0, 0, 4096, number=number)
    ask(fabric, 1_150_000, ERR)  # the first acknowledgement is back at 1,085,600, the second at 1,169,480
    fabric.post(5 * US, 0, 4096, number=4)
    fabric.run()
    assert ended(fabric) == [(0, SUCCESS), (1, FLUSHED), (2, FLUSHED), (3, FLUSHED), (4, FLUSHED)]
    receives = [c.status for c in fabric.completions(0) if c.kind == COMPLETED_RECEIVE]
    assert receives == [FLUSHED] * 2
    assert [c.kind for c in fabric.completions(0)][:4] == [COMPLETED_SEND] * 4


def test_a_queue_pair_that_does_not_send_refuses_work_requests() -> None:
    fabric = wired()
    ask(fabric, 0, RESET)
    for at, state in enumerate((INIT, RTR, RTS)):
        fabric.post((2 * at + 1) * US, 0, 100, number=at)
        ask(fabric, (2 * at + 2) * US, state, psn=7)
    ask(fabric, 3 * US, RESET, rank=1)
    for at, state in enumerate((INIT, RTR)):
        ask(fabric, (4 + at) * US, state, psn=7, rank=1)
    fabric.post(10 * US, 0, 100, number=3)
    fabric.run()
    assert ended(fabric) == [(0, NOT_SENDING), (1, NOT_SENDING), (2, NOT_SENDING), (3, SUCCESS)]
    assert len(fabric.deliveries(0)) == 1


@pytest.mark.parametrize("state", [RESET, INIT])
def test_before_rtr_nothing_is_answered(state: int) -> None:
    fabric = wired(timeout=1, retry_count=2)
    ask(fabric, 0, RESET, rank=1)
    if state == INIT:
        ask(fabric, 1, INIT, rank=1)
    answers = fabric.tap("nic-1", 0)
    fabric.post(US, 0, 100, number=0)
    fabric.run()
    assert answers.seen == []
    assert ended(fabric) == [(0, 12)]


def test_rtr_answers_and_does_not_send() -> None:
    fabric = wired()
    psn = int(fabric.pair(fabric.connections[0]).una_psn)
    ask(fabric, 0, RESET, rank=1)
    ask(fabric, 1, INIT, rank=1)
    ask(fabric, 2, RTR, psn, rank=1)
    fabric.post(US, 0, 5000, number=0)
    fabric.run()
    assert ended(fabric) == [(0, SUCCESS)]


def test_a_drained_send_queue_ends_what_it_began_and_begins_nothing() -> None:
    fabric = wired()
    for number in range(3):
        fabric.post(0, 0, 10 * 4096, number=number)
    ask(fabric, 900_000, SQD)  # within the second message
    fabric.run(50 * US)
    assert ended(fabric) == [(0, SUCCESS), (1, SUCCESS)]
    fabric.post(51 * US, 0, 100, number=3)
    fabric.run(60 * US)
    assert len(ended(fabric)) == 2
    ask(fabric, 61 * US, RTS)
    fabric.run()
    assert ended(fabric) == [(number, SUCCESS) for number in range(4)]
    assert fabric.broken(at_rest=True) == []


def test_a_reset_forgets_and_both_ends_begin_again() -> None:
    fabric = wired(recovery={"kind": "selective_repeat"})
    for number in range(3):
        fabric.post(0, 0, 50 * 4096, number=number, flags=int(POST_READ if number == 1 else 0))
    for rank in (0, 1):
        ask(fabric, 2 * US, RESET, rank=rank)
        ask(fabric, 40 * US, INIT, rank=rank)
        ask(fabric, 41 * US, RTR, 0xFFFFFE, rank=rank)
        ask(fabric, 42 * US, RTS, 0xFFFFFE, rank=rank)
    fabric.post(50 * US, 0, 9 * 4096, number=9, flags=int(POST_READ))
    fabric.post(50 * US, 0, 9 * 4096, number=10)
    fabric.run()
    assert ended(fabric) == [(9, SUCCESS), (10, SUCCESS)]


@pytest.mark.parametrize(("syndrome", "status"), [(0x61, 9), (0x62, 10), (0x63, 11)])
def test_a_fatal_nak_ends_its_work_request_with_its_status_and_flushes_the_others(
    syndrome: int, status: int
) -> None:
    fabric = wired()

    def spoil(frame: Frame) -> bool:
        if frame.opcode == ACKNOWLEDGE and frame.psn == (first + 1) & 0xFFFFFF:
            frame.syndrome = syndrome
        return False

    first = int(fabric.pair(fabric.connections[0]).una_psn)
    fabric.tap("nic-1", 0, spoil)
    for number in range(4):
        fabric.post(0, 0, 4096, number=number)
    fabric.run()
    assert ended(fabric) == [(0, SUCCESS), (1, status), (2, FLUSHED), (3, FLUSHED)]


@pytest.mark.parametrize(
    ("access", "flags", "status"),
    [
        ("read", 0, 10),
        ("read", int(POST_WITH_IMMEDIATE), 10),
        ("read", int(POST_READ), 0),
        ("write", int(POST_READ), 10),
        ("write", 0, 0),
        ("none", int(POST_SEND), 0),
        ("none", int(POST_READ), 10),
    ],
)
def test_what_a_queue_pair_does_not_allow_ends_both_ends(access: str, flags: int, status: int) -> None:
    fabric = wired(remote_access=access)
    fabric.post(0, 0, 9000, number=0, flags=flags)
    fabric.run()
    assert ended(fabric) == [(0, status)]
    in_error = [nic.pairs[0].state == ERROR for nic in fabric.nics]
    assert in_error == [status != 0] * 2


def test_a_packet_for_a_queue_pair_that_is_not_here_is_refused_though_its_low_bits_are_known() -> None:
    for stray, refused in ((0, 0), (1 << 12, 1), (1 << 23, 1), (0xFFF000, 1)):
        fabric = wired()
        pair = fabric.nics[1].pairs[0]
        size = wire_size(WRITE_ONLY, 100)
        # A NIC with so few queue pairs tells them apart by less than the low twelve bits.
        qpn, psn = int(pair.qpn) ^ stray, int(pair.expected_psn) & 0xFFFFFF
        frame = Frame(WRITE_ONLY, 3, 0, 0, 50_000, qpn, psn, 100, size)
        frame.time_ps, frame.key = US, pack_key(fabric.nics[1].number, ARRIVAL, 0, 0)
        fabric.queue.push(frame)
        fabric.run()
        assert fabric.total("nic_unknown_qpn") == refused
        assert fabric.total("nic_delivered_bytes") == 100 * (1 - refused)
        assert fabric.nics[1].transmit_acks == 0


def end_bytes(each: int) -> tuple[int, int]:
    """How many ends of queue pairs an all_to_all of 16 GPUs has with so many a connection, and what they and
    all else take that is planned and built.
    """
    collective = {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"]}
    text = {
        "name": "ends",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "spines": 1},
        "ncclx": {"channels": 1, "qps_per_connection": each},
        "jobs": [{"name": "a", "workload": collective}],
    }
    gc.collect()
    tracemalloc.start()
    try:
        ready = api.prepare(text)
        kernel, _ = build_kernel(ready.blueprint, [0] * len(ready.topology.nodes), 0, None, True)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        assert len(list(kernel.hosted())) == len(ready.topology.nodes)
    finally:
        tracemalloc.stop()
    return sum(map(len, ready.plan.pairs.values())), taken


@pytest.mark.skipif(not is_compiled(), reason="interpreted, a queue pair is a dictionary")
def test_an_end_of_a_queue_pair_takes_half_of_what_it_took() -> None:
    end_bytes(1)  # what is kept once for all
    (few, little), (many, much) = end_bytes(1), end_bytes(16)
    assert (much - little) / (many - few) <= 1014 / 2
