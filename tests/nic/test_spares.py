"""Does a packet that is made of a used frame differ from one that is made of a new frame?"""

from __future__ import annotations

from actors.kernel.state import save_event
from actors.nic.queue_pair.packets import Connection
from actors.wire.frame import ACKNOWLEDGE, MOST_SPARES, WRITE_FIRST, Frame, Spares


def used() -> Frame:
    """An acknowledgement that has come: nothing in it is as in a new frame."""
    frame = Frame(ACKNOWLEDGE, 6, 7, 8, 9, 10, 11, 12, 13)
    frame.ecn = frame.ack_request = frame.corrupt = 1
    frame.syndrome, frame.ttl, frame.dscp, frame.whence, frame.cut = 31, 2, 3, 44, -55
    frame.immediate, frame.message_bytes, frame.tail, frame.payload = 66, 77, b"tail", b"data"
    return frame


def connection() -> Connection:
    return Connection(0, 17, 18, 19, 20, 49152, 3, 6, 4096, 1)


def test_a_used_frame_becomes_a_packet_that_is_as_new() -> None:
    sender = connection()
    sender.spares = Spares()
    spare = used()
    sender.spares.keep(spare)
    packet = sender.frame(WRITE_FIRST, 5, 4096)
    assert packet is spare
    assert save_event(packet) == save_event(connection().frame(WRITE_FIRST, 5, 4096))
    assert (packet.chain, packet.whence, packet.cut) == (None, 0, 0)
    assert sender.frame(WRITE_FIRST, 6, 4096) is not spare


def test_a_nic_keeps_no_more_used_frames_than_it_soon_needs() -> None:
    spares = Spares()
    for _ in range(3 * int(MOST_SPARES)):
        spares.keep(used())
    assert spares.count == MOST_SPARES
    taken = [spares.take() for _ in range(int(MOST_SPARES) + 1)]
    assert [frame.opcode for frame in taken] == [ACKNOWLEDGE] * int(MOST_SPARES) + [0]
    assert all(frame.chain is None for frame in taken)
