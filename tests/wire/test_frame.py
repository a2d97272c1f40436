"""A frame that has arrived may become the answer; a frame is small."""

import sys
from typing import Final

import pytest

from actors.compiled.finder import is_compiled
from actors.wire.frame import ACKNOWLEDGE, WRITE_FIRST, Frame

TIMES: Final = {"time_ps", "key", "chain", "sent_ps"}
"""What a frame gets as it is sent or waits."""
SHARED: Final = {"carried"}
"""Where `tail` and `payload` are."""


def test_a_frame_that_becomes_another_packet_is_as_a_new_one() -> None:
    new = Frame(ACKNOWLEDGE, 6, 3, 4, 5, 6, 7, 8, 86)
    fields = [name for name in dir(Frame) if not name.startswith("_")]
    names = {name for name in fields if not callable(getattr(Frame, name))} - TIMES - SHARED
    assert len(names) > 15, names
    used = Frame(WRITE_FIRST, 3, 20, 1025, 50_000, 77, 123_456, 4096, 4178)
    for name in names:
        value = getattr(used, name)
        setattr(used, name, b"something" if value is None else value + 1)
        assert getattr(used, name) != getattr(new, name), name
    used.become(ACKNOWLEDGE, 6, 3, 4, 5, 6, 7, 8, 86)
    assert {name: getattr(used, name) for name in names} == {name: getattr(new, name) for name in names}


@pytest.mark.skipif(not is_compiled(), reason="interpreted, fields are references of 8 bytes each")
def test_a_frame_fills_two_cache_lines_with_the_header_of_the_collector() -> None:
    frame = Frame(ACKNOWLEDGE, 6, 3, 4, 5, 6, 7, 8, 86)
    assert sys.getsizeof(frame) == 2 * 64, "the collector's header of 16 bytes included"


@pytest.mark.parametrize("name", ["immediate", "message_bytes"])
def test_words_of_a_header_have_all_32_bits(name: str) -> None:
    frame = Frame(WRITE_FIRST, 3, 20, 1025, 50_000, 77, 123_456, 4096, 4178)
    setattr(frame, name, 2**32 - 1)
    assert getattr(frame, name) == 2**32 - 1
    for value in (2**32, -1):
        with pytest.raises(AssertionError):
            setattr(frame, name, value)


def test_a_frame_has_room_for_tail_and_payload_at_once() -> None:
    frame = Frame(WRITE_FIRST, 3, 20, 1025, 50_000, 77, 123_456, 4096, 4178)
    seen = []
    for name, value in (("tail", b"hops"), ("payload", b"bytes"), ("tail", b"more"), ("payload", b"else")):
        setattr(frame, name, value)
        seen.append((frame.tail, frame.payload))
    assert seen == [(b"hops", None), (b"hops", b"bytes"), (b"more", b"bytes"), (b"more", b"else")]
    frame.tail = None
    assert (frame.tail, frame.payload) == (None, b"else")
    frame.payload = None
    assert frame.carried is None
