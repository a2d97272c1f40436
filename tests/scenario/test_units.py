"""Are quantities read exactly, refused where a unit would be a guess, and printed so that they read back?"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.units import sending_ps, serialisation_ps
from emu.base.errors import QuantityError, ScenarioError
from emu.base.units import (
    MAX_QUANTITY,
    about_time,
    distinct_texts,
    format_rate,
    format_size,
    format_time,
    parse_fraction,
    parse_rate,
    parse_size,
    parse_time,
    shown_time,
)
from emu.scenario.load import load_text

QUANTITIES = st.integers(min_value=0, max_value=MAX_QUANTITY)


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("500ns", 500_000),
        ("4.096us", 4_096_000),
        ("4.096µs", 4_096_000),
        ("1ms", 1_000_000_000),
        (" 2 s ", 2_000_000_000_000),
        ("1min", 60_000_000_000_000),
        ("1h", 3_600_000_000_000_000),
        ("0.001ns", 1),
        ("1_000ps", 1000),
        (".5ns", 500),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        ("-0ns", 0),
    ],
)
def test_times_are_read_exactly(text: object, time_ps: int) -> None:
    assert parse_time(text) == time_ps


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4KiB", 4096), ("64MB", 64_000_000), ("1B", 1), ("1.5KiB", 1536), ("2GiB", 2 * 2**30), ("1TB", 10**12)],
)
def test_sizes_tell_powers_of_1000_from_powers_of_1024(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("400G", 400 * 10**9),
        ("400Gbps", 400 * 10**9),
        ("400 Gb/s", 400 * 10**9),
        ("12.5Gbit/s", 12_500_000_000),
        ("3TB/s", 24 * 10**12),
        ("1bps", 1),
    ],
)
def test_rates_count_bits_unless_the_b_is_capital(text: str, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


def test_times_are_reported_in_days_and_hours_too() -> None:
    assert (parse_time("1.5h"), parse_time("53d")) == (5_400 * 10**12, 4_579_200 * 10**12)


@pytest.mark.parametrize("times", ["at: 54d", "at: 30d, for: 30d"])
def test_a_fault_beyond_the_clock_is_refused_with_its_line(times: str) -> None:
    text = f"""name: late
topology: {{kind: star, nodes: 2}}
faults:
  - {{kind: link_down, target: any, {times}}}
"""
    with pytest.raises(ScenarioError, match=r":4: faults\[0\]\..*beyond the clock, which ends after 53 days"):
        load_text(text)


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (parse_time, "5", "'5' is a bare number: its unit would be a guess"),
        (parse_time, 5, "5 is a bare number: its unit would be a guess"),
        (parse_time, "-5ns", "'-5ns' is negative"),
        (parse_time, -5, "-5 is negative"),
        (parse_time, "5parsec", "'5parsec': 'parsec' is not a unit of time"),
        (parse_time, "5US", "'5US': 'US' is not a unit of time; did you mean 'us'?"),
        (parse_time, "0.0001ps", "'0.0001ps' is not a whole number of ps"),
        (parse_time, "10:30", "'10:30' is not a time"),
        (parse_time, True, "True is not a time"),
        (parse_time, None, "None is not a time"),
        (parse_time, float("nan"), "nan is not a time"),
        (parse_time, "9999999h", "'9999999h' is beyond the clock, which ends after 53 days"),
        (parse_time, "54d", "'54d' is beyond the clock, which ends after 53 days"),
        (parse_time, "1" * 100 + "ns", "'" + "1" * 60 + "... is not a time"),
        (parse_size, "4K", "'4K': 'K' may mean KB (powers of 1000) or KiB (powers of 1024)"),
        (parse_size, "0.5B", "'0.5B' is not a whole number of bytes"),
        (parse_rate, "-400G", "'-400G' is negative"),
        (parse_rate, "400g", "'400g': 'g' is not a unit of rate; did you mean 'G'?"),
        (parse_rate, 400e9, "'400000000000.0' is a bare number"),
        (parse_fraction, "1/0", "'1/0' is not a fraction"),
        (parse_fraction, "-1/8", "'-1/8' is negative"),
        (parse_fraction, float("inf"), "inf is not a fraction"),
        (parse_fraction, "an eighth", "'an eighth' is not a fraction"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_would_be(read: object, value: object, said: str) -> None:
    assert callable(read)
    with pytest.raises(QuantityError) as refused:
        read(value)
    assert refused.value.reason.startswith(said.replace("'400000000000.0'", "400000000000.0"))
    assert refused.value.accepted
    assert str(refused.value) == f"{refused.value.reason}; accepted: {refused.value.accepted}"


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        ("5%", Fraction(1, 20)),
        ("12.5 %", Fraction(1, 8)),
        ("1/8", Fraction(1, 8)),
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (2, Fraction(2)),
        (" 3 / 4 ", Fraction(3, 4)),
        (1e-3, Fraction(1, 1000)),
    ],
)
def test_fractions_are_what_is_written_and_not_the_nearest_binary(value: object, fraction: Fraction) -> None:
    assert parse_fraction(value) == fraction


@given(QUANTITIES)
def test_what_is_printed_reads_back(amount: int) -> None:
    assert parse_time(format_time(amount)) == amount
    assert parse_size(format_size(amount)) == amount
    assert parse_rate(format_rate(amount)) == amount


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_time(0), "0s"),
        (format_time(1_167_760), "1167.76ns"),
        (format_time(200_000_000), "200us"),
        (format_size(64_000_000), "64MB"),
        (format_size(4096), "4KiB"),
        (format_size(1500), "1500B"),
        (format_size(0), "0B"),
        (format_rate(400 * 10**9), "400Gbps"),
        (format_rate(12_800 * 10**9), "12.8Tbps"),
        (format_rate(0), "0bps"),
    ],
)
def test_printed_quantities_are_short_and_exact(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(
    ("size_bytes", "rate_bps", "time_ps"),
    [
        (4194, 400 * 10**9, 83_880),
        (84, 400 * 10**9, 1_680),
        (1, 3, 2_666_666_666_667),
        (0, 400 * 10**9, 0),
        (2**40, 1, 8_796_093_022_208 * 10**12),
    ],
)
def test_serialisation_rounds_up_and_never_overflows(size_bytes: int, rate_bps: int, time_ps: int) -> None:
    assert serialisation_ps(size_bytes, rate_bps) == time_ps


@given(QUANTITIES, st.integers(min_value=1, max_value=MAX_QUANTITY))
def test_serialisation_is_the_least_time_that_carries_all_bits(size_bytes: int, rate_bps: int) -> None:
    time_ps = serialisation_ps(size_bytes, rate_bps)
    bits = size_bytes * 8 * 10**12
    assert (time_ps - 1) * rate_bps < bits <= time_ps * rate_bps or bits == 0 == time_ps


@given(st.integers(0, 1 << 40) | st.integers((1 << 20) - 2, (1 << 20) + 2), st.integers(10**7, 10**15))
def test_devices_calculate_the_same_time_in_native_integers(size_bytes: int, rate_bps: int) -> None:
    assert sending_ps(size_bytes, rate_bps) == serialisation_ps(size_bytes, rate_bps)


@pytest.mark.parametrize("start_s", [10, 61, 10_800, 86_400 * 30])
def test_what_follows_at_once_late_in_a_run_is_reported_from_it(start_s: int) -> None:
    """A fault, its loss and its notice within a millisecond, at any second of a run."""
    shown = [shown_time(start_s * 10**12 + us * 10**6) for us in (0, 200, 430, 627)]
    assert shown == [f"{start_s}s", f"{start_s}.0002s", f"{start_s}.00043s", f"{start_s}.000627s"]


@given(st.lists(st.integers(0, 10**17), min_size=1, max_size=6), st.integers(0, 10**17))
def test_times_of_one_line_look_different_where_they_are(apart_ps: list[int], start_ps: int) -> None:
    """Near zero, and late in a run where four digits are the same."""
    for times_ps in (apart_ps, [start_ps + one % 10**9 for one in apart_ps]):
        shown = distinct_texts(times_ps)
        assert len(set(shown)) == len(set(times_ps))
        for text, time_ps in zip(shown, times_ps, strict=True):
            assert abs(parse_time(text) - time_ps) * 2000 <= time_ps


def test_as_many_digits_as_it_takes_are_shown() -> None:
    late_ps = 10_800 * 10**12
    assert distinct_texts([late_ps + 627_000_000, late_ps + 200_000_000]) == ["10800.000627s", "10800.0002s"]
    assert distinct_texts([1_234_567_890, 1_234_599_999], about_time) == ["1234.57us", "1234.6us"]
    assert distinct_texts([5, 5]) == ["5ps", "5ps"]
