"""Do digests, random streams and hashes come out the same in every build, and are streams what they claim?

The functions are worked out again here in plain Python, with the constants as literals, and a table of their
values at random and extreme points is compared with the other build's, in another process.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from actors.kernel.mixing import Stream, mix, mix32, scramble

ROOT = Path(__file__).resolve().parents[2]
WORDS62 = st.one_of(st.integers(0, 2**62 - 1), st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**61, 2**62 - 1]))
WORDS32 = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31, 2**32 - 1]))


def plain_scramble(word: int) -> int:
    """`scramble`, in unbounded integers."""
    h = (word ^ (word >> 30)) * 0x3F58476D1CE4E5B9 % 2**62
    h = (h ^ (h >> 27)) * 0x14D049BB133111EB % 2**62
    return h ^ (h >> 31)


@given(WORDS62, WORDS62)
def test_mix_is_its_definition(state: int, word: int) -> None:
    h = (state ^ word) * 0x2545F4914F6CDD1D % 2**62
    assert mix(state, word) == h ^ (h >> 29)


@given(WORDS62)
def test_scramble_is_its_definition(word: int) -> None:
    assert scramble(word) == plain_scramble(word)


@given(WORDS32, WORDS32)
def test_mix32_is_its_definition(state: int, word: int) -> None:
    h = (state ^ word) * 0x9E3779B1 % 2**32
    assert mix32(state, word) == h ^ (h >> 15)


@given(WORDS62, WORDS62, st.integers(0, 61))
def test_one_bit_of_a_word_always_changes_the_digest(state: int, word: int, bit: int) -> None:
    assert mix(state, word) != mix(state, word ^ (1 << bit))
    assert mix(mix(state, word), 5) != mix(mix(state, word ^ (1 << bit)), 5)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**18 - 1), st.integers(0, 2**31), st.integers(0, 2**40))
def test_a_stream_is_its_definition(seed: int, device: int, purpose: int, counter: int) -> None:
    base = plain_scramble((seed ^ (seed >> 62)) % 2**62)
    base = plain_scramble((base + device * 0x9E3779B1 + 1) % 2**62)
    base = plain_scramble((base + purpose * 0x85EBCA77 + 1) % 2**62)
    stream = Stream(seed, device, purpose)
    stream.counter = counter
    drawn = plain_scramble((base + (counter + 1) * 0x1E3779B97F4A7C15) % 2**62)
    assert stream.draw62() == drawn
    stream.counter = counter
    assert stream.below(1000) == (drawn >> 31) * 1000 >> 31


@given(st.integers(1, 2**31), st.integers(0, 2**63 - 1))
def test_below_stays_below(bound: int, seed: int) -> None:
    stream = Stream(seed, 3, 1)
    assert all(0 <= stream.below(bound) < bound for _ in range(20))


@pytest.mark.parametrize("bound", [0, -1, 2**31 + 1])
def test_below_refuses_what_it_cannot_draw(bound: int) -> None:
    with pytest.raises(AssertionError):
        Stream(1, 1, 1).below(bound)


@pytest.mark.parametrize("bound", [2, 7, 16, 100])
def test_below_is_uniform(bound: int) -> None:
    stream = Stream(11, 5, 2)
    draws = 200 * bound
    counts = [0] * bound
    for _ in range(draws):
        counts[stream.below(bound)] += 1
    # Pearson's statistic has mean bound - 1 and variance 2 (bound - 1).
    statistic = sum((count - 200) ** 2 / 200 for count in counts)
    assert abs(statistic - (bound - 1)) < 4 * (2 * (bound - 1)) ** 0.5


def test_neighbouring_names_give_streams_that_share_nothing() -> None:
    names = [(seed, device, purpose) for seed in range(12) for device in range(12) for purpose in range(6)]
    values = [
        value for name in names for stream in [Stream(*name)] for value in (stream.draw62(), stream.draw62())
    ]
    assert len(dict.fromkeys(values)) == len(values)
    # Bits of one stream agree with those of its neighbour half of the time: 864 x 62 bits, 3.5 deviations.
    for other in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        same = 0
        for name in names:
            neighbour = Stream(*(a + b for a, b in zip(name, other, strict=True)))
            same += 62 - f"{Stream(*name).draw62() ^ neighbour.draw62():b}".count("1")
        assert abs(same - 864 * 31) < 3.5 * (864 * 62 / 4) ** 0.5


def test_drawing_more_in_one_place_moves_nothing_in_another() -> None:
    expected = [Stream(7, 2, 1).draw62() for _ in range(1)]
    one, other = Stream(7, 1, 1), Stream(7, 2, 1)
    for _ in range(100):
        one.draw62()
    assert [other.draw62()] == expected


def test_a_stream_goes_on_where_its_counter_stands() -> None:
    stream = Stream(7, 1, 1)
    values = [stream.draw62() for _ in range(10)]
    again = Stream(7, 1, 1)
    again.counter = 6
    assert [again.draw62() for _ in range(4)] == values[6:]


def table() -> str:
    """A hash of thousands of values of every helper, extremes included."""
    random = Random(5)
    words = [0, 1, 2, 2**31, 2**32 - 1, 2**61, 2**62 - 2, 2**62 - 1]
    words += [random.randrange(2**62) for _ in range(300)]
    small = [word & 0xFFFFFFFF for word in words]
    values: list[int] = []
    for word, other in zip(words, words[::-1], strict=True):
        values += [mix(word, other), mix(other, word), scramble(word)]
    for word, other in zip(small, small[::-1], strict=True):
        values.append(mix32(word, other))
    for seed in (0, 1, 2**62, 2**63 - 1, *words[8:40]):
        stream = Stream(seed, random.randrange(2**18), random.randrange(10))
        stream.counter = random.choice((0, 5, 2**40))
        values += [stream.draw62(), stream.below(2**31), stream.below(3), stream.counter]
    return hashlib.sha256(repr(values).encode()).hexdigest()


def test_compiled_and_interpreted_agree() -> None:
    other = "1" if emu.is_compiled() else "0"
    environment = os.environ | {"EMU_INTERPRETED": other}
    code = "from tests.kernel.test_mixing import table; print(table())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == table()
