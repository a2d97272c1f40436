"""A frame that has arrived may become the answer."""

from typing import Final

from actors.wire.frame import ACKNOWLEDGE, WRITE_FIRST, Frame

TIMES: Final = {"time_ps", "key", "chain", "sent_ps", "queue_next"}
"""What a frame gets as it is sent or waits."""


def test_a_frame_that_becomes_another_packet_is_as_a_new_one() -> None:
    new = Frame(ACKNOWLEDGE, 6, 3, 4, 5, 6, 7, 8, 86)
    fields = [name for name in dir(Frame) if not name.startswith("_")]
    names = {name for name in fields if not callable(getattr(Frame, name))} - TIMES
    assert len(names) > 15, names
    used = Frame(WRITE_FIRST, 3, 20, 1025, 50_000, 77, 123_456, 4096, 4178)
    for name in names:
        value = getattr(used, name)
        setattr(used, name, b"something" if value is None else value + 1)
        assert getattr(used, name) != getattr(new, name), name
    used.become(ACKNOWLEDGE, 6, 3, 4, 5, 6, 7, 8, 86)
    assert {name: getattr(used, name) for name in names} == {name: getattr(new, name) for name in names}
