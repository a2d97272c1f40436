"""Does a key hold what was packed into it, and order events as the rule says?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.event import (
    ARRIVAL,
    COLLECTION,
    CONFIGURATION,
    COPY_DONE,
    FAULT,
    FIRST_UPKEEP,
    JOB,
    KIND_NAMES,
    LINK_STATE,
    MESSAGE,
    PAUSE,
    PAUSE_EXPIRY,
    PAUSE_REFRESH,
    PROXY,
    RATE_TIMER,
    RETRANSMIT,
    SERVE,
    WATCHDOG,
    describe_key,
    key_device,
    key_kind,
    key_port,
    key_subject,
    pack_key,
)

PARTS = st.tuples(
    st.integers(0, 2**18 - 1), st.integers(0, 31), st.integers(0, 2**11 - 1), st.integers(0, 2**28 - 1)
)
LARGEST = (2**18 - 1, 31, 2**11 - 1, 2**28 - 1)


@given(PARTS)
def test_a_key_gives_back_its_parts(parts: tuple[int, int, int, int]) -> None:
    key = pack_key(*parts)
    assert (key_device(key), key_kind(key), key_port(key), key_subject(key)) == parts


@given(PARTS, PARTS)
def test_keys_are_ordered_by_device_then_kind_then_port_then_subject(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    assert (pack_key(*one) < pack_key(*other)) == (one < other)


def test_the_largest_key_is_not_negative_and_fits_62_bits() -> None:
    assert pack_key(*LARGEST) == 2**62 - 1


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("excess", [-1, 1])
def test_a_part_that_does_not_fit_its_field_is_refused(place: int, excess: int) -> None:
    parts = list(LARGEST)
    parts[place] = -1 if excess < 0 else parts[place] + 1
    with pytest.raises(AssertionError):
        pack_key(*parts)


def test_at_one_instant_faults_links_and_configuration_come_first_then_arrivals_then_timers() -> None:
    state = [FAULT, LINK_STATE, CONFIGURATION]
    arrivals = [ARRIVAL, PAUSE, MESSAGE]
    work = [SERVE, PAUSE_EXPIRY, RETRANSMIT, COPY_DONE, PROXY, JOB]
    upkeep = [RATE_TIMER, PAUSE_REFRESH, WATCHDOG, COLLECTION]
    assert [*state, *arrivals, *work, *upkeep] == list(range(len(KIND_NAMES)))
    assert upkeep[0] == FIRST_UPKEEP


def test_a_key_is_described_in_words() -> None:
    assert describe_key(pack_key(12, PAUSE_EXPIRY, 3, 6)) == "device 12 pause_expiry port 3 subject 6"
