"""Does the digest keep all that the model did at a port, and nothing of how the engine got there?"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import pytest

from actors.kernel.device import Device
from actors.kernel.event import (
    ARRIVAL,
    CONFIGURATION,
    FAULT,
    JOB,
    MESSAGE,
    NEVER_PS,
    PAUSE,
    PAUSE_EXPIRY,
    RETRANSMIT,
    SERVE,
    WATCHDOG,
    Event,
    Message,
    pack_key,
)
from actors.kernel.kernel import Kernel
from actors.nic.memory_path import OVERRUN_DROP
from actors.nic.nic import ICRC_DROP, UNKNOWN_PAIR_DROP
from actors.port.port import CORRUPT_DROP, LINK_DOWN_DROP
from actors.switch.buffer import HEADROOM_OVERRUN, NO_SHARED_ROOM
from actors.switch.egress import AQM_IN_DIGEST, NO_ROUTE, TTL_EXPIRED, WATCHDOG_DROP
from actors.switch.switch import EGRESS_LIMIT
from actors.wire.fault import ALPHA, BEGIN_FAULT, RATE
from actors.wire.frame import ACKNOWLEDGE, CNP, WRITE_FIRST, WRITE_ONLY, Frame
from actors.wire.message import COPY, PAUSE_FRAME, POST

Kind = TypeVar("Kind", bound=Event)
MANAGEMENT = 2047
"""The port number of the management network, which is none of a device's ports."""


class Listener(Device):
    """Takes everything. Its timers have an effect while `acts` is set; frames are lost for `reason`."""

    acts = True
    reason = 0

    def on_frame(self, frame: Frame, port: int) -> None:
        self.mix_arrival(port, frame)
        if self.reason:
            self.mix_drop(port, self.reason, frame)

    def on_message(self, message: Message, port: int, subject: int) -> None:
        pass

    def on_pause(self, message: Message, port: int) -> None:
        pass

    def on_fault(self, message: Message) -> None:
        pass

    def on_timer(self, kind: int, port: int, subject: int) -> bool:
        return self.acts


def mixes(*events: Event, acts: bool = True, reason: int = 0) -> list[int]:
    """What device 1 has mixed once it executed these events: what concerns no port, port 0, port 1, ..."""
    kernel = Kernel(2)
    device = Listener(1, kernel.queue)
    device.acts, device.reason = acts, reason
    kernel.add(device)
    for event in events:
        kernel.queue.push(event)
    assert kernel.run(NEVER_PS, 100) == len(events)
    return device.all_mixes()


def arrival(**changes: int) -> Frame:
    """A frame that arrives at port 2 at 1,000,000 ps, but for the changes."""
    frame = Frame(WRITE_ONLY, 3, 1, 2, 50_000, 77, 5, 4096, 4194)
    frame.time_ps = 1_000_000
    frame.key = pack_key(1, ARRIVAL, 2, 0)
    return changed(frame, changes)


def said(kind: int, op: int = POST, port: int = 2, subject: int = 0, **changes: int) -> Message:
    """A message, pause or fault with different numbers in all its fields, at 1,000,000 ps."""
    message = Message(op, 1, 2, 3, 4, 5, 6)
    message.time_ps = 1_000_000
    message.key = pack_key(1, kind, port, subject)
    return changed(message, changes)


def timer(kind: int, port: int = 2, subject: int = 3, time_ps: int = 1_000_000) -> Event:
    return Event(time_ps, pack_key(1, kind, port, subject))


def changed(event: Kind, changes: dict[str, int]) -> Kind:
    for name, value in changes.items():
        setattr(event, name, value)
    return event


def mixed(*words: int) -> int:
    """The mix of these words, from the words that the project says it by."""
    state = 0
    for word in words:
        state = ((state ^ word) * 0x2545F4914F6CDD1D) % 2**62
        state ^= state >> 29
    return state


def test_each_kind_of_entry_is_mixed_as_documented_at_its_port_alone() -> None:
    frame_word = 5 << 38 | 77 << 14 | 4194
    at = 1_000_000
    assert mixes(arrival(ecn=2)) == [0, 0, 0, mixed(at | WRITE_ONLY << 52 | 2 << 60, frame_word)]
    fields = (1, 2, 3, 4, 5, 6)
    post = mixed(at | (32 + MESSAGE) << 52, POST << 28 | 9, *fields)
    assert mixes(said(MESSAGE, subject=9)) == [0, 0, 0, post]
    pause = mixed(at | (32 + PAUSE) << 52, PAUSE_FRAME, *fields)
    assert mixes(said(PAUSE, PAUSE_FRAME)) == [0, 0, 0, pause]
    assert mixes(said(FAULT, RATE, c=2)) == [0, 0, 0, mixed(at | 32 << 52, RATE << 28, 1, 2, 2, 4, 5, 6)]
    expiry = mixed(at | (32 + PAUSE_EXPIRY) << 52, 2 << 28 | 3)
    assert mixes(timer(PAUSE_EXPIRY)) == [0, 0, 0, expiry]
    lost = mixed(at | WRITE_ONLY << 52, frame_word, at | (48 + 4) << 52, frame_word)
    assert mixes(arrival(), reason=4) == [0, 0, 0, lost]


def test_what_concerns_no_port_is_kept_by_the_device() -> None:
    at = 1_000_000
    assert mixes(timer(JOB)) == [mixed(at | (32 + JOB) << 52, 2 << 28 | 3)]
    assert len(mixes(said(FAULT, ALPHA))) == 1
    assert len(mixes(said(MESSAGE, port=MANAGEMENT))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"time_ps": 1_000_001},
        {"key": pack_key(1, ARRIVAL, 3, 0)},
        {"opcode": WRITE_FIRST},
        {"opcode": ACKNOWLEDGE},
        {"opcode": CNP},
        {"psn": 4},
        {"psn": 5 ^ 1 << 23},
        {"qpn": 76},
        {"qpn": 77 ^ 1 << 23},
        {"wire_bytes": 4195},
        {"ecn": 1},
        {"ecn": 2},
    ],
)
def test_one_bit_of_an_arrival_changes_the_digest(changes: dict[str, int]) -> None:
    assert mixes(arrival(**changes)) != mixes(arrival())


FIELDS: list[dict[str, int]] = [{name: 1000} for name in "abcdef"]


@pytest.mark.parametrize(
    "changes", [{"time_ps": 1_000_001}, {"subject": 1}, {"op": COPY}, {"a": -1}, *FIELDS]
)
@pytest.mark.parametrize("kind", [MESSAGE, PAUSE])
def test_one_field_of_a_message_or_a_pause_changes_the_digest(kind: int, changes: dict[str, int]) -> None:
    if kind == PAUSE and "subject" in changes:
        pytest.skip("a pause has no subject")
    assert mixes(said(kind, **changes)) != mixes(said(kind))


@pytest.mark.parametrize("changes", [{"time_ps": 1_000_001}, {"op": ALPHA}, {"b": BEGIN_FAULT}, *FIELDS])
def test_one_field_of_a_fault_changes_the_digest(changes: dict[str, int]) -> None:
    assert mixes(said(FAULT, **{"op": RATE, "c": 2, **changes})) != mixes(said(FAULT, RATE, c=2))


def test_payload_of_a_message_changes_the_digest() -> None:
    def carrying(data: bytes | None) -> list[int]:
        message = said(MESSAGE)
        message.data = data
        return mixes(message)

    found = [carrying(data) for data in (None, b"", b"\0", b"\0\0", b"\1")]
    assert len({mix for *_, mix in found}) == 5
    assert found[-1][-1] != found[0][-1]
    head = (1_000_000 | (32 + MESSAGE) << 52, POST << 28, 1, 2, 3, 4, 5, 6)
    assert found[-1] == [0, 0, 0, mixed(*head, 1, zlib.crc32(b"\1"))]


@pytest.mark.parametrize(
    "other",
    [
        lambda: mixes(arrival()),
        lambda: mixes(arrival(), reason=5),
        lambda: mixes(arrival(psn=4), reason=4),
        lambda: mixes(arrival(time_ps=1_000_001), reason=4),
    ],
)
def test_a_loss_its_reason_its_packet_and_its_time_change_the_digest(other: Callable[[], list[int]]) -> None:
    assert other() != mixes(arrival(), reason=4)


def test_every_reason_of_a_loss_has_a_number_of_its_own() -> None:
    of_switches = [NO_SHARED_ROOM, HEADROOM_OVERRUN, NO_ROUTE, EGRESS_LIMIT, WATCHDOG_DROP, TTL_EXPIRED]
    of_ports, of_nics = [LINK_DOWN_DROP, CORRUPT_DROP], [OVERRUN_DROP, ICRC_DROP, UNKNOWN_PAIR_DROP]
    assert [*of_switches, *of_ports, *of_nics, AQM_IN_DIGEST] == list(range(1, 13))


@pytest.mark.parametrize("kind", [RETRANSMIT, JOB, WATCHDOG, PAUSE_EXPIRY, CONFIGURATION, SERVE])
def test_a_timer_that_had_an_effect_changes_the_digest_and_one_that_had_none_does_not(kind: int) -> None:
    without = mixes(arrival())
    assert mixes(arrival(), timer(kind), acts=False) == without
    found = [
        mixes(arrival(), timer(kind)),
        mixes(arrival(), timer(kind, time_ps=1_000_001)),
        mixes(arrival(), timer(kind, subject=4)),
        mixes(arrival(), timer(kind, port=1)),
    ]
    assert without not in found
    assert len({tuple(one) for one in found}) == 4


def test_order_at_a_port_counts_and_another_port_does_not_touch_it() -> None:
    one, other = arrival(), arrival(psn=6, time_ps=2_000_000)
    late, early = arrival(time_ps=2_000_000), arrival(psn=6)
    elsewhere = arrival(key=pack_key(1, ARRIVAL, 0, 0), time_ps=1_500_000)
    plain = mixes(one, other)
    assert mixes(early, late) != plain
    with_it = mixes(arrival(), elsewhere, arrival(psn=6, time_ps=2_000_000))
    assert (with_it[3], with_it[1]) == (plain[3], mixes(elsewhere)[1])
