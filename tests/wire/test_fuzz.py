"""Spoilt frames meet the protocol error and nothing else; `make fuzz` tries ten million."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.fuzz import corpus, feed, fuzz, reader


def test_spoilt_frames_meet_nothing_but_the_protocol_error() -> None:
    taken, _ = fuzz(5_000, seed=3)
    assert 0 < taken < 2_500, "most are refused, and some of the damage is none"


@given(st.binary(max_size=400))
def test_any_bytes_meet_nothing_but_the_protocol_error(body: bytes) -> None:
    feed(body, reader())


@given(st.data())
def test_any_eight_bytes_of_a_batch_may_be_anything(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(corpus()))
    at = data.draw(st.integers(0, len(body) - 1))
    feed(body[:at] + data.draw(st.binary(min_size=8, max_size=8)) + body[at + 8 :], reader())


@pytest.mark.soak
def test_memory_is_flat_over_a_million_spoilt_frames() -> None:
    _, grown = fuzz(1_000_000, seed=5)
    assert grown < 16 << 20
